/* codebook.c - lists of names and means, and their text. */
#include "runtime/data/codebook.h"

#include "ir/base/json_writer.h"
#include "runtime/backend/memory.h"
#include "runtime/files/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void rt_codebook_clear(rt_codebook *b)
{
    for (size_t i = 0; i < b->count; i++) {
        free(b->items[i].field);
        rt_names_clear(&b->items[i].names);
    }
    free(b->items);
    *b = (rt_codebook){0};
}

const rt_code *rt_codebook_find(const rt_codebook *b, const char *field)
{
    for (size_t i = 0; b && i < b->count; i++)
        if (strcmp(b->items[i].field, field) == 0) return &b->items[i];
    return NULL;
}

/* Adds an entry without names. */
static ampc_status add(rt_codebook *b, const char *field, double mean, diag *d)
{
    rt_code *more = realloc(b->items, (b->count + 1) * sizeof *more);
    if (more) b->items = more;
    char *copy = more ? strdup(field) : NULL;
    if (!copy) return rt_no_memory(d);
    more[b->count++] = (rt_code){.field = copy, .mean = mean};
    return AMPC_OK;
}

ampc_status rt_codebook_add_names(rt_codebook *b, const char *field, const char *const *names, size_t n, diag *d)
{
    TRY(add(b, field, NAN, d));
    for (size_t i = 0; i < n; i++) TRY(rt_names_add(&b->items[b->count - 1].names, strdup(names[i]), d));
    return AMPC_OK;
}

ampc_status rt_codebook_set_names(rt_codebook *b, const char *field, rt_names *names, diag *d)
{
    if (!rt_codebook_find(b, field)) TRY(add(b, field, NAN, d));
    rt_code *c = (rt_code *)(uintptr_t)rt_codebook_find(b, field);
    rt_names_clear(&c->names);
    c->names = *names;
    *names = (rt_names){0};
    return AMPC_OK;
}

static bool same_names(const rt_names *a, const rt_names *b)
{
    bool same = a->count == b->count;
    for (size_t i = 0; same && i < a->count; i++) same = strcmp(a->items[i], b->items[i]) == 0;
    return same;
}

ampc_status rt_codebook_add_list(rt_codebook *b, const char *field, const char *list, diag *d)
{
    rt_names names = {0};
    ampc_status s = AMPC_OK;
    const rt_code *known = rt_codebook_find(b, field);
    for (const char *at = list; s == AMPC_OK && at; at = strchr(at, '+') ? strchr(at, '+') + 1 : NULL)
        s = rt_names_add(&names, strndup(at, strcspn(at, "+")), d);
    if (s == AMPC_OK && known && !same_names(&names, &known->names))
        s = diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "classes=%s: the training had other classes", list);
    if (s == AMPC_OK && !known) s = rt_codebook_set_names(b, field, &names, d);
    rt_names_clear(&names);
    return s;
}

ampc_status rt_codebook_add_mean(rt_codebook *b, const char *field, double mean, diag *d)
{
    return add(b, field, mean, d);
}

/* ---- text ---- */

char *rt_codebook_print(const rt_codebook *b)
{
    json_writer w = {.file = NULL};
    if (!json_open_text(&w)) return NULL;
    json_begin(&w, NULL, '{');
    for (size_t i = 0; i < b->count; i++) {
        const rt_code *c = &b->items[i];
        if (!c->names.count) json_write_real(&w, c->field, "%.17g", c->mean);
        if (!c->names.count) continue;
        json_begin(&w, c->field, '[');
        for (size_t k = 0; k < c->names.count; k++) json_write_string(&w, NULL, c->names.items[k]);
        json_end(&w, ']');
    }
    json_end(&w, '}');
    return json_close_text(&w, &(size_t){0});
}

/* The elements of an array as names; false if one is not a text. */
static ampc_status parse_names(const json_t *array, rt_names *out, diag *d, bool *ok)
{
    *ok = json_array_size(array) > 0;
    for (size_t i = 0; *ok && i < json_array_size(array); i++) {
        const char *name = json_string_value(json_array_get(array, i));
        if (!name) *ok = false;
        else TRY(rt_names_add(out, strdup(name), d));
    }
    return AMPC_OK;
}

static ampc_status parse_entry(const char *field, const json_t *value, diag *d, rt_codebook *out)
{
    bool ok = json_is_number(value) && isfinite(json_number_value(value));
    TRY(add(out, field, ok ? json_number_value(value) : NAN, d));
    if (json_is_array(value)) TRY(parse_names(value, &out->items[out->count - 1].names, d, &ok));
    if (ok) return AMPC_OK;
    return diag_error(d, AMPC_REJECTED, diag_named(NULL, DIAG_FIELD, field),
                      "neither the names nor the mean of a field");
}

ampc_status rt_codebook_parse(const char *text, diag *d, rt_codebook *out)
{
    json_t *all;
    json_error_t e;
    const char *field;
    json_t *value;
    ampc_status s = rt_json_parse(text, strlen(text), false, &e, &all);
    if (s == AMPC_NO_MEMORY) return rt_no_memory(d);
    if (s != AMPC_OK) return diag_error(d, s, DIAG_NOWHERE, "names of the data: not JSON: %s", e.text);
    if (!json_is_object(all))
        s = diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "the names of the data must be a JSON object");
    json_object_foreach(all, field, value) if (s == AMPC_OK) s = parse_entry(field, value, d, out);
    json_decref(all);
    return s;
}

/* ---- numbers by name ---- */

static int by_name(const void *a, const void *b, void *names)
{
    char *const *items = ((const rt_names *)names)->items;
    return strcmp(items[*(const size_t *)a], items[*(const size_t *)b]);
}

ampc_status rt_code_index_open(const rt_names *names, diag *d, rt_code_index *out)
{
    *out = (rt_code_index){names, malloc((names->count + 1) * sizeof *out->sorted)};
    if (!out->sorted) return rt_no_memory(d);
    for (size_t i = 0; i < names->count; i++) out->sorted[i] = i;
    qsort_r(out->sorted, names->count, sizeof *out->sorted, by_name, (void *)(uintptr_t)names);
    return AMPC_OK;
}

void rt_code_index_clear(rt_code_index *x) { free(x->sorted); }

int64_t rt_code_number(const rt_code_index *x, const char *name)
{
    size_t from = 0, to = x->names->count;
    while (from < to) {
        const size_t middle = from + (to - from) / 2, number = x->sorted[middle];
        const int order = strcmp(name, x->names->items[number]);
        if (!order) return (int64_t)number;
        if (order < 0) to = middle;
        else from = middle + 1;
    }
    return -1;
}
