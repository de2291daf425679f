/* column.c - lists of columns, and columns whose rows are in memory. */
#include "runtime/data/column.h"

#include "runtime/backend/memory.h"
#include "runtime/data/data.h"
#include "runtime/files/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t rt_field_elements(const rt_field *f)
{
    int64_t n = 1;
    for (int i = 0; i < f->rank; i++) n *= f->dims[i];
    return n;
}

ampc_status rt_columns_add(rt_columns *all, const rt_column *c, diag *d)
{
    rt_column *more = realloc(all->items, (all->count + 1) * sizeof *more);
    if (more) all->items = more;
    char *name = more ? strdup(c->field.name) : NULL;
    if (!name) return rt_no_memory(d);
    more[all->count] = *c;
    more[all->count++].field.name = name;
    return AMPC_OK;
}

static void close_column(rt_column *c)
{
    if (c->close) c->close(c);
    free((char *)(uintptr_t)c->field.name);
}

void rt_columns_clear(rt_columns *all)
{
    for (size_t i = 0; i < all->count; i++) close_column(&all->items[i]);
    free(all->items);
    rt_codebook_clear(&all->codes);
    if (all->close_source) all->close_source(all->source);
    *all = (rt_columns){0};
}

/* ---- input and labels ---- */

const char *const rt_input_names[] = {"images", "x", NULL};
const char *const rt_label_names[] = {"labels", "label", "y", NULL};

int rt_columns_find(const rt_columns *all, const char *const *names)
{
    for (; *names; names++)
        for (size_t i = 0; i < all->count; i++)
            if (strcmp(all->items[i].field.name, *names) == 0) return (int)i;
    return -1;
}

const rt_field *rt_labels_described(const rt_dataset_options *o)
{
    for (size_t i = 0; i < o->n_fields; i++)
        if (o->fields[i].label) return &o->fields[i];
    return NULL;
}

ampc_status rt_columns_repeat_input(rt_columns *all, const rt_data_spec *spec, diag *d)
{
    const int input = rt_columns_find(all, rt_input_names);
    if (input < 0 || all->items[input].field.whole)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "data '%s': target=input needs a field named images or x",
                          spec->spec);
    rt_column target = all->items[input];
    for (int label; (label = rt_columns_find(all, rt_label_names)) >= 0;) {
        close_column(&all->items[label]);
        all->count--;
        memmove(&all->items[label], &all->items[label + 1], (all->count - (size_t)label) * sizeof *all->items);
    }
    target.field.name = rt_label_names[0];
    target.close = NULL; /* the input closes the state */
    return rt_columns_add(all, &target, d);
}

/* ---- arrays ---- */

ampc_status rt_column_convert(const rt_column *c, int64_t row, void *dst, ir_dtype dtype, const void *from,
                              ir_dtype from_dtype, size_t n, diag *d)
{
    char what[128];
    snprintf(what, sizeof what, "row %lld of '%.80s'", (long long)row, c->field.name);
    return rt_convert(dtype, dst, from_dtype, from, n, DIAG_NOWHERE, what, d);
}

typedef struct stored {
    void *data;
    ir_dtype dtype;
    size_t elements, bytes; /* of a row */
} stored;

static ampc_status read_stored(const rt_column *c, int64_t row, const rt_draw *draw, void *dst, ir_dtype dtype, diag *d)
{
    const stored *s = c->state;
    (void)draw;
    return rt_column_convert(c, row, dst, dtype, (const char *)s->data + (size_t)row * s->bytes, s->dtype, s->elements,
                             d);
}

static void close_stored(rt_column *c)
{
    stored *s = c->state;
    free(s->data);
    free(s);
}

ampc_status rt_columns_add_array(rt_columns *all, rt_array *a, bool whole, diag *d)
{
    const int samples = whole ? 0 : 1; /* dimensions that count samples */
    rt_column c = {.field = {.name = a->name, .dtype = a->dtype, .whole = whole, .rank = a->rank - samples},
                   .read = read_stored,
                   .close = close_stored};
    memcpy(c.field.dims, a->dims + samples, (size_t)c.field.rank * sizeof *a->dims);
    stored *s = c.state = calloc(1, sizeof *s);
    if (!s) return rt_no_memory(d);
    *s = (stored){.data = a->data, .dtype = a->dtype, .elements = (size_t)rt_field_elements(&c.field)};
    s->bytes = s->elements * ir_dtype_size(a->dtype);
    ampc_status status = rt_columns_add(all, &c, d);
    if (status == AMPC_OK) a->data = NULL;
    else free(s);
    return status;
}
