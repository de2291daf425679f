/* data_spec.c - parses KIND:ARGUMENT,KEY=VALUE,... by the tables of kinds, options and types of values. */
#include "runtime/data/data_spec.h"
#include "ir/base/text_buffer.h"
#include "runtime/backend/memory.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char common[] = "limit order validation split-seed permute-labels";

typedef enum value_type {
    SEED,
    POSITIVE,
    NUMBERS,
    ABOVE_ZERO,
    POSITIVE_NUMBERS,
    FRACTION,
    SHARE,
    SIZE,
    TEXT,
    WORD
} value_type;

static const char *const expected[] = {[SEED] = "a seed",
                                       [POSITIVE] = "a count above 0",
                                       [NUMBERS] = "a number in f32 or, by channel, A/B/C",
                                       [ABOVE_ZERO] = "a number above 0 in f32",
                                       [POSITIVE_NUMBERS] = "a number above 0 in f32 or, by channel, A/B/C",
                                       [FRACTION] = "a fraction between 0 and 1",
                                       [SHARE] = "a number above 0 and at most 1",
                                       [SIZE] = "HEIGHTxWIDTH",
                                       [TEXT] = "a text",
                                       [WORD] = "one of"};

typedef struct option {
    const char *key;
    value_type type;
    const char *words;
} option;

#define OPTION(key, type, words) {key, type, words},
static const option options[] = {
#include "runtime/data/data_options.def"
};
enum { OPTIONS = sizeof options / sizeof *options };

/* Whether `word` is one of those in the list, which are separated by spaces. */
static bool is_listed(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; n && (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

static bool parse_count(const char *text, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno;
}

static bool parse_real(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return *text && !*end && isfinite((float)*out);
}

/* Numbers separated by slashes; like all others, they are used in f32. */
static bool parse_reals(const char *text, bool positive)
{
    for (char *end = NULL; !end || *end; text = end + 1) {
        const double number = strtod(text, &end);
        if (end == text || (*end && *end != '/') || !isfinite((float)number)) return false;
        if (positive && !((float)number > 0)) return false;
    }
    return true;
}

static bool parse_size(const char *text)
{
    uint64_t height, width;
    char first[24];
    const char *cross = strchr(text, 'x');
    if (!cross || (size_t)(cross - text) >= sizeof first) return false;
    memcpy(first, text, (size_t)(cross - text));
    first[cross - text] = 0;
    return parse_count(first, &height) && parse_count(cross + 1, &width) && height > 0 && width > 0 &&
           height <= INT32_MAX && width <= INT32_MAX;
}

static bool is_valid(const option *o, const char *value)
{
    uint64_t count;
    double number;
    switch (o->type) {
    case SEED: return parse_count(value, &count);
    case POSITIVE: return parse_count(value, &count) && count > 0;
    case NUMBERS: return parse_reals(value, false);
    case POSITIVE_NUMBERS: return parse_reals(value, true);
    case SIZE: return parse_size(value);
    case ABOVE_ZERO: return parse_real(value, &number) && (float)number > 0;
    case SHARE: return parse_real(value, &number) && number > 0 && number <= 1;
    case FRACTION: return parse_real(value, &number) && number > 0 && number < 1;
    case TEXT: return *value;
    case WORD: return !strchr(value, ' ') && is_listed(o->words, value);
    }
    return false;
}

static ampc_status refuse(diag *d, const char *spec, const char *what, const char *item)
{
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "data '%s': %s%s%s%s", spec, what, item ? " '" : "",
                      item ? item : "", item ? "'" : "");
}

static ampc_status refuse_value(diag *d, const char *spec, const option *o, const char *value)
{
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "data '%s': %s must be %s%s%s, not '%s'", spec, o->key,
                      expected[o->type], o->words ? " " : "", o->words ? o->words : "", value);
}

static ampc_status add_item(rt_spec_item **items, size_t *n, const char *key, const char *value, diag *d)
{
    rt_spec_item *more = realloc(*items, (*n + 1) * sizeof *more);
    if (!more) return rt_no_memory(d);
    *items = more;
    more[(*n)++] = (rt_spec_item){key, value};
    return AMPC_OK;
}

/* Parses KEY=VALUE. Modifies `item`. */
static ampc_status parse_item(rt_data_spec *s, const rt_spec_kind *kind, char *item, diag *d)
{
    char *value = strchr(item, '=');
    if (!value) return refuse(d, s->spec, "expected KEY=VALUE instead of", item);
    *value++ = 0;
    for (size_t i = 0; i < OPTIONS; i++) {
        if (strcmp(item, options[i].key) != 0 || !(is_listed(common, item) || is_listed(kind->options, item))) continue;
        if (is_valid(&options[i], value)) return add_item(&s->options, &s->n_options, item, value, d);
        return refuse_value(d, s->spec, &options[i], value);
    }
    if (kind->form != RT_SPEC_FILES) return refuse(d, s->spec, "unknown option", item);
    if (!*item || !*value) return refuse(d, s->spec, "expected NAME=FILE", NULL);
    return add_item(&s->files, &s->n_files, item, value, d);
}

static ampc_status parse_items(rt_data_spec *s, const rt_spec_kind *kind, char *rest, diag *d)
{
    for (char *item; (item = strsep(&rest, ","));) {
        if (kind->form == RT_SPEC_PATH && !s->path) {
            if (!*item) return refuse(d, s->spec, "the path is missing", NULL);
            s->path = item;
        } else if (kind->form == RT_SPEC_PATHS && !strchr(item, '=')) {
            if (!*item) return refuse(d, s->spec, "a path is missing", NULL);
            TRY(add_item(&s->files, &s->n_files, NULL, item, d));
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

ampc_status rt_data_spec_parse(const char *spec, const rt_spec_kind *kinds, size_t n, diag *d, rt_data_spec *out)
{
    *out = (rt_data_spec){.spec = spec, .text = strdup(spec)};
    if (!out->text) return rt_no_memory(d);
    for (size_t i = 0; i < n; i++) {
        const size_t name = strlen(kinds[i].name);
        char *rest = out->text + name;
        if (strncmp(spec, kinds[i].name, name) != 0) continue;
        out->kind = i;
        if (*rest == (kinds[i].form == RT_SPEC_NOTHING ? ',' : ':')) return parse_items(out, &kinds[i], rest + 1, d);
        if (!*rest && kinds[i].form == RT_SPEC_NOTHING) return AMPC_OK;
    }
    return refuse_kind(spec, kinds, n, d);
}

ampc_status rt_data_spec_parse_options(const char *text, diag *d, rt_data_spec *out)
{
    static const rt_spec_kind none = {.name = "", .form = RT_SPEC_NOTHING, .options = "classes"};
    *out = (rt_data_spec){.spec = text, .text = strdup(text)};
    if (!out->text) return rt_no_memory(d);
    return *text ? parse_items(out, &none, out->text, d) : AMPC_OK;
}

void rt_data_spec_clear(rt_data_spec *s)
{
    free(s->text);
    free(s->files);
    free(s->options);
}

/* ---- values ---- */

const char *rt_spec_text(const rt_data_spec *s, const char *key, const char *otherwise)
{
    for (size_t i = s->n_options; i-- > 0;)
        if (strcmp(s->options[i].key, key) == 0) return s->options[i].value;
    return otherwise;
}

double rt_spec_number(const rt_data_spec *s, const char *key, double otherwise)
{
    const char *value = rt_spec_text(s, key, NULL);
    return value ? strtod(value, NULL) : otherwise;
}

uint64_t rt_spec_count(const rt_data_spec *s, const char *key, uint64_t otherwise)
{
    const char *value = rt_spec_text(s, key, NULL);
    return value ? strtoull(value, NULL, 10) : otherwise;
}

/* One number is that of every channel. */
static ampc_status numbers_by_channel(const rt_data_spec *s, const char *key, double otherwise, int n, double *out,
                                      diag *d)
{
    const char *value = rt_spec_text(s, key, NULL);
    int count = 0;
    for (int i = 0; i < n; i++) out[i] = otherwise;
    if (!value) return AMPC_OK;
    for (char *end = NULL; !end || *end; value = end + 1, count++) {
        const double number = strtod(value, &end);
        if (count < n) out[count] = number;
    }
    for (int i = 1; count == 1 && i < n; i++) out[i] = out[0];
    if (count == 1 || count == n) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "data '%s': %s has %d numbers, but the images have %d channel%s",
                      s->spec, key, count, n, n == 1 ? "" : "s");
}

ampc_status rt_spec_levels(const rt_data_spec *s, int channels, float out[][RT_LEVELS], diag *d)
{
    double mean[RT_MAX_CHANNELS], std[RT_MAX_CHANNELS];
    const float divide = (float)rt_spec_number(s, "divide", 255);
    TRY(numbers_by_channel(s, "mean", 0, channels, mean, d));
    TRY(numbers_by_channel(s, "std", 1, channels, std, d));
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

bool rt_spec_has(const rt_data_spec *s, const char *key) { return rt_spec_text(s, key, NULL) != NULL; }
