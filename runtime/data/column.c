/* column.c - lists of columns, and columns whose rows are in memory. */
#include "runtime/data/column.h"

#include "runtime/backend/memory.h"

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

void rt_columns_clear(rt_columns *all)
{
    for (size_t i = 0; i < all->count; i++) {
        rt_column *c = &all->items[i];
        if (c->close) c->close(c);
        free((char *)c->field.name);
    }
    free(all->items);
    rt_codebook_clear(&all->codes);
    if (all->close_source) all->close_source(all->source);
    *all = (rt_columns){0};
}

/* ---- arrays ---- */

typedef struct stored {
    void *data;
    ir_dtype dtype;
    size_t elements, bytes; /* of a row */
} stored;

static ampc_status read_stored(const rt_column *c, int64_t row, const rt_draw *draw, void *dst, ir_dtype dtype, diag *d)
{
    const stored *s = c->state;
    (void)draw, (void)d;
    ir_convert(dtype, dst, s->dtype, (const char *)s->data + (size_t)row * s->bytes, s->elements);
    return AMPC_OK;
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
