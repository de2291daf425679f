/* data_spec.c - parses KIND[:ITEM],KEY=VALUE,... by two tables: kinds and options. */
#include "runtime/data/data_spec.h"
#include "runtime/backend/memory.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KIND(k) (1u << (k))
#define REAL_FILES (KIND(RT_DATA_IDX) | KIND(RT_DATA_NPZ) | KIND(RT_DATA_NPY))

static const struct {
    const char *prefix;
    rt_data_kind kind;
} kinds[] = {{"idx:", RT_DATA_IDX}, {"npz:", RT_DATA_NPZ}, {"npy:", RT_DATA_NPY}, {"synthetic", RT_DATA_SYNTHETIC}};

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
    return *text && !*end && isfinite(*out);
}

static bool set_divide(rt_data_spec *s, const char *v) { return parse_real(v, &s->divide) && s->divide > 0; }
static bool set_mean(rt_data_spec *s, const char *v) { return parse_real(v, &s->mean); }
static bool set_std(rt_data_spec *s, const char *v) { return parse_real(v, &s->std) && s->std > 0; }
static bool set_rows(rt_data_spec *s, const char *v) { return parse_count(v, &s->rows) && s->rows > 0; }
static bool set_limit(rt_data_spec *s, const char *v) { return parse_count(v, &s->limit) && s->limit > 0; }

static bool set_permute(rt_data_spec *s, const char *v)
{
    s->permute_labels = true;
    return parse_count(v, &s->permute_seed);
}

static const struct {
    const char *key;
    unsigned kinds; /* set of the kinds that accept it */
    bool (*set)(rt_data_spec *s, const char *value);
    const char *expected;
} options[] = {
    {"divide", KIND(RT_DATA_IDX), set_divide, "a number above 0"},
    {"mean", KIND(RT_DATA_IDX), set_mean, "a number"},
    {"std", KIND(RT_DATA_IDX), set_std, "a number above 0"},
    {"rows", KIND(RT_DATA_SYNTHETIC), set_rows, "a count above 0"},
    {"limit", REAL_FILES | KIND(RT_DATA_SYNTHETIC), set_limit, "a count above 0"},
    {"permute-labels", REAL_FILES, set_permute, "a seed"},
};
enum { OPTIONS = sizeof options / sizeof *options };

static ampc_status refuse(diag *d, const char *spec, const char *what, const char *item)
{
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "data '%s': %s%s%s%s", spec, what, item ? " '" : "",
                      item ? item : "", item ? "'" : "");
}

static ampc_status add_file(rt_data_spec *s, const char *name, const char *file, diag *d)
{
    struct rt_data_file *files = realloc(s->files, (s->n_files + 1) * sizeof *files);
    if (!files) return rt_no_memory(d);
    s->files = files;
    files[s->n_files++] = (struct rt_data_file){name, file};
    return AMPC_OK;
}

/* Parses KEY=VALUE; for npy, an unknown key is the name of an array. Modifies `item`. */
static ampc_status parse_item(rt_data_spec *s, char *item, const char *spec, diag *d)
{
    char *value = strchr(item, '=');
    if (!value) return refuse(d, spec, "expected KEY=VALUE instead of", item);
    *value++ = 0;
    for (size_t i = 0; i < OPTIONS; i++) {
        if (strcmp(item, options[i].key) != 0 || !(options[i].kinds & KIND(s->kind))) continue;
        if (options[i].set(s, value)) return AMPC_OK;
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "data '%s': %s must be %s, not '%s'", spec, item,
                          options[i].expected, value);
    }
    if (s->kind != RT_DATA_NPY) return refuse(d, spec, "unknown option", item);
    if (!*item || !*value) return refuse(d, spec, "expected NAME=FILE", NULL);
    return add_file(s, item, value, d);
}

static ampc_status parse_items(rt_data_spec *s, char *rest, const char *spec, diag *d)
{
    bool needs_path = s->kind == RT_DATA_IDX || s->kind == RT_DATA_NPZ;
    for (char *item; (item = strsep(&rest, ","));) {
        if (needs_path && !s->path) {
            if (!*item) return refuse(d, spec, "the path is missing", NULL);
            s->path = item;
        } else TRY(parse_item(s, item, spec, d));
    }
    if (s->kind == RT_DATA_NPY && !s->n_files) return refuse(d, spec, "NAME=FILE is missing", NULL);
    return AMPC_OK;
}

ampc_status rt_data_spec_parse(const char *spec, diag *d, rt_data_spec *out)
{
    *out = (rt_data_spec){.divide = 255, .std = 1, .rows = 8192, .text = strdup(spec)};
    if (!out->text) return rt_no_memory(d);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i].prefix);
        char *rest = out->text + n;
        if (strncmp(spec, kinds[i].prefix, n) != 0) continue;
        out->kind = kinds[i].kind;
        if (out->kind != RT_DATA_SYNTHETIC) return parse_items(out, rest, spec, d);
        if (!*rest) return AMPC_OK;
        if (*rest == ',') return parse_items(out, rest + 1, spec, d);
    }
    return refuse(d, spec, "unknown kind (idx:DIR, npz:FILE, npy:NAME=FILE,.. or synthetic)", NULL);
}

void rt_data_spec_clear(rt_data_spec *s)
{
    free(s->text);
    free(s->files);
}
