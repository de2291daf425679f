/* data_spec.c - parses KIND:ARGUMENT,KEY=VALUE,... by the tables of kinds and keys. */
#include "runtime/data/data_spec.h"
#include "runtime/data/kinds.h"
#include "ir/base/limits.h"
#include "ir/base/text_buffer.h"
#include "runtime/backend/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#define NUMBER(key, member, kind, help, ...) SETTING(rt_data_options, key, member, kind, help, __VA_ARGS__)
#define FROM(key, member, kind, ...) SETTING_FROM(rt_data_options, key, member, kind, __VA_ARGS__)
#define OTHER(key, member, kind, help) SETTING_OTHER(rt_data_options, key, member, kind, help)
#define WORDS(key, member, words, initial, help) SETTING_WORDS_FROM(rt_data_options, key, member, words, initial, help)
#define COUNTS 1, INT32_MAX
static const setting keys[] = {
    /* of every kind */
    NUMBER("limit", limit, COUNT, "only the first N samples", LIMITS_STEPS),
    WORDS("order", order, "shuffle|file", "shuffle", "the order of the samples in training"),
    NUMBER("validation", validation, REAL, "the share that is held out", SETTING_ABOVE_0, SETTING_BELOW_1),
    OTHER("split-seed", split_seed, SEED, "selects the samples that are held out"),
    OTHER("permute-labels", permute_labels, SEED, "shuffles the labels, to see how much is memorised"),

    /* of images */
    WORDS("target", target, "input", NULL, "the labels are the input itself"),
    FROM("divide", divide, REAL, "255", "a pixel is (p / X - mean) / std", SETTING_F32_ABOVE_0),
    FROM("mean", mean, REALS, "0", "the mean of the pixels, of all channels or of each", SETTING_F32),
    FROM("std", std, REALS, "1", "their standard deviation, likewise", SETTING_F32_ABOVE_0),
    OTHER("size", size, SIZE, "the size of the images, by default that of the model's input"),
    WORDS("channels", channels, "1|3", NULL, "grey or colour"),
    WORDS("fit", fit, "crop|stretch", "crop", "how images of another shape are made to fit"),
    NUMBER("resized-crop", resized_crop, REAL, "training: a random box with a share of at least X of the image",
           SETTING_ABOVE_0, SETTING_BELOW_1),
    WORDS("flip", flip, "horizontal|vertical|both", NULL, "training: mirrors images at random"),
    NUMBER("crop", crop, COUNT, "training: moves images at random by up to N pixels", COUNTS),
    NUMBER("mixup", mixup, REAL, "training: mixes pairs of samples; the parameter of the distribution",
           SETTING_ABOVE_0, 1),
    OTHER("masks", masks, TEXT, "the folder or column of the masks, which are the labels"),
    OTHER("images", images, TEXT, "the column of the paths of images"),

    /* of tables */
    OTHER("label", label, TEXT, "the column of the label"),
    OTHER("columns", columns, TEXT, "A+B+..: the columns that are read"),
    OTHER("classes", classes, TEXT, "A+B+..: the names of the classes, in order"),
    OTHER("categories", categories, TEXT, "A+B+..: columns of names, whatever their values look like"),
    WORDS("encode", encode, "number|one-hot", "number", "how names become numbers in x"),
    OTHER("missing", missing, TEXT, "what becomes of missing values"),
    WORDS("header", header, "yes|no", "yes", "whether the first line has the names of the columns"),
    FROM("delimiter", delimiter, TEXT, "comma", "a character or comma, semicolon, tab, space or bar", 0, 0),

    /* of tokens and random numbers */
    WORDS("dtype", dtype, "u16|u32", NULL, "the type of the tokens"),
    NUMBER("context", context, COUNT, "tokens of a sample, by default as many as the model reads", COUNTS),
    NUMBER("stride", stride, COUNT, "tokens from a sample to the next, by default the context", COUNTS),
    NUMBER("rows", rows, COUNT, "the number of samples", COUNTS),
};
/* clang-format on */
enum { KEYS = sizeof keys / sizeof *keys };

const setting *rt_data_key(int index) { return index < KEYS ? &keys[index] : NULL; }

static ampc_status refuse(diag *d, const char *spec, const char *what, const char *item)
{
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "data '%s': %s%s%s%s", spec, what, item ? " '" : "",
                      item ? item : "", item ? "'" : "");
}

static ampc_status add_file(rt_data_spec *s, const char *key, const char *value, diag *d)
{
    rt_spec_item *more = realloc(s->files, (s->n_files + 1) * sizeof *more);
    if (!more) return rt_no_memory(d);
    s->files = more;
    more[s->n_files++] = (rt_spec_item){key, value};
    return AMPC_OK;
}

/* Parses KEY=VALUE, or NAME=FILE where the key is none. Modifies `item`. */
static ampc_status parse_item(rt_data_spec *s, const rt_spec_kind *kind, char *item, diag *d)
{
    char *equals = strchr(item, '=');
    if (kind->form == RT_SPEC_FILES && !*item) return refuse(d, s->spec, "expected NAME=FILE", NULL);
    if (kind->form != RT_SPEC_FILES || !equals) return settings_set(&s->read, item, &s->o, d);
    *equals = 0;
    const bool is_key = settings_find(&s->read, item);
    if (!is_key && *item && equals[1]) return add_file(s, item, equals + 1, d);
    if (!is_key) return refuse(d, s->spec, "expected NAME=FILE", NULL);
    *equals = '=';
    return settings_set(&s->read, item, &s->o, d);
}

static ampc_status parse_items(rt_data_spec *s, const rt_spec_kind *kind, char *rest, diag *d)
{
    for (char *item; (item = strsep(&rest, ","));) {
        if (kind->form == RT_SPEC_PATH && !s->path) {
            if (!*item) return refuse(d, s->spec, "the path is missing", NULL);
            s->path = item;
        } else if (kind->form == RT_SPEC_PATHS && !strchr(item, '=')) {
            if (!*item) return refuse(d, s->spec, "a path is missing", NULL);
            TRY(add_file(s, NULL, item, d));
        } else TRY(parse_item(s, kind, item, d));
    }
    if (kind->form == RT_SPEC_PATHS && !s->n_files) return refuse(d, s->spec, "the path is missing", NULL);
    if (kind->form == RT_SPEC_FILES && !s->n_files) return refuse(d, s->spec, "NAME=FILE is missing", NULL);
    return AMPC_OK;
}

static ampc_status refuse_kind(const char *spec, const rt_spec_kind *kinds, size_t n, diag *d)
{
    char known[512];
    text_buffer t = TEXT_IN(known);
    for (size_t i = 0; i < n; i++) {
        text_add_item(&t, i + 1 == n ? " or " : ", ", kinds[i].name);
        text_put(&t, kinds[i].argument);
    }
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "data '%s': unknown kind (%s)", spec, known);
}

/* Sets the defaults. */
static ampc_status begin(const char *spec, const rt_spec_kind *kind, diag *d, rt_data_spec *out)
{
    *out = (rt_data_spec){.spec = spec, .text = strdup(spec)};
    out->o = (rt_data_options){.categories = "", .missing = ""};
    settings_defaults(keys, KEYS, &out->o);
    out->o.dtype = out->o.channels = out->o.flip = out->o.target = -1;
    out->read = (settings){.what = "data", .text = spec, .rows = keys, .count = KEYS, .keys = kind->keys};
    if (*kind->name) out->read.of = kind->name;
    return out->text ? AMPC_OK : rt_no_memory(d);
}

ampc_status rt_data_spec_parse(const char *spec, const rt_spec_kind *kinds, size_t n, diag *d, rt_data_spec *out)
{
    *out = (rt_data_spec){.spec = spec};
    for (size_t i = 0; i < n; i++) {
        const size_t name = strlen(kinds[i].name);
        const char after = strncmp(spec, kinds[i].name, name) == 0 ? spec[name] : '=';
        const bool nothing = kinds[i].form == RT_SPEC_NOTHING;
        if (after != (nothing ? ',' : ':') && (after || !nothing)) continue;
        TRY(begin(spec, &kinds[i], d, out));
        out->kind = i;
        return after ? parse_items(out, &kinds[i], out->text + name + 1, d) : AMPC_OK;
    }
    return refuse_kind(spec, kinds, n, d);
}

ampc_status rt_data_spec_parse_options(const char *text, diag *d, rt_data_spec *out)
{
    static const rt_spec_kind none = {.name = "", .form = RT_SPEC_NOTHING, .keys = RT_COMMON_KEYS " classes"};
    TRY(begin(text, &none, d, out));
    return *text ? parse_items(out, &none, out->text, d) : AMPC_OK;
}

void rt_data_spec_clear(rt_data_spec *s)
{
    free(s->text);
    free(s->files);
}

/* ---- values ---- */

bool rt_spec_has(const rt_data_spec *s, const char *key)
{
    for (size_t i = 0; i < KEYS; i++)
        if (strcmp(keys[i].key, key) == 0) return s->read.given >> i & 1;
    return false;
}

/* One number is that of every channel. */
static ampc_status numbers_by_channel(const rt_data_spec *s, const char *key, const char *text, int n, double *out,
                                      diag *d)
{
    const size_t count = settings_numbers(text, out, (size_t)n);
    for (int i = 1; count == 1 && i < n; i++) out[i] = out[0];
    if (count == 1 || count == (size_t)n) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "data '%s': %s has %zu numbers, but the images have %d channel%s",
                      s->spec, key, count, n, n == 1 ? "" : "s");
}

ampc_status rt_spec_levels(const rt_data_spec *s, int channels, float out[][RT_LEVELS], diag *d)
{
    double mean[RT_MAX_CHANNELS], std[RT_MAX_CHANNELS];
    const float divide = (float)s->o.divide;
    TRY(numbers_by_channel(s, "mean", s->o.mean, channels, mean, d));
    TRY(numbers_by_channel(s, "std", s->o.std, channels, std, d));
    for (int k = 0; k < channels; k++)
        for (int i = 0; i < RT_LEVELS; i++) {
            out[k][i] = ((float)i / divide - (float)mean[k]) / (float)std[k];
            if (!isfinite(out[k][i]))
                return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                                  "data '%s': (%d / divide - mean) / std, the value of a pixel, is beyond the range of "
                                  "f32",
                                  s->spec, i);
        }
    return AMPC_OK;
}
