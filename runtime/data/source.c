/* source.c - columns over the caller's memory and the caller's function. */
#include "runtime/data/source.h"

#include "runtime/backend/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    rt_source_field from;
    size_t index, elements, bytes; /* per row */
    int (*read)(void *user, int64_t row, size_t field, void *dst);
    void *user;
} reader;

static ampc_status read_borrowed(const rt_column *c, int64_t row, const rt_draw *draw, void *dst, ir_dtype dtype,
                                 diag *d)
{
    const reader *r = c->state;
    (void)draw;
    const char *from = (const char *)r->from.data + (size_t)row * r->bytes;
    return rt_column_convert(c, row, dst, dtype, from, c->field.dtype, r->elements, d);
}

static ampc_status call(const rt_column *c, int64_t row, void *dst, diag *d)
{
    const reader *r = c->state;
    const int code = r->read(r->user, row, r->index, dst);
    if (!code) return AMPC_OK;
    return diag_error(d, AMPC_IO, DIAG_NOWHERE,
                      "the function that reads the data failed with code %d for row %" PRId64 " of '%s'", code, row,
                      c->field.name);
}

static ampc_status read_called(const rt_column *c, int64_t row, const rt_draw *draw, void *dst, ir_dtype dtype, diag *d)
{
    const reader *r = c->state;
    (void)draw;
    if (dtype == c->field.dtype) return call(c, row, dst, d);
    void *stored = malloc(r->bytes ? r->bytes : 1);
    if (!stored) return rt_no_memory(d);
    ampc_status s = call(c, row, stored, d);
    if (s == AMPC_OK) s = rt_column_convert(c, row, dst, dtype, stored, c->field.dtype, r->elements, d);
    free(stored);
    return s;
}

static void close_reader(rt_column *c) { free(c->state); }

static ampc_status refuse(diag *d, size_t index, const char *why)
{
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "field %zu of the data %s", index, why);
}

static ampc_status check_field(const rt_source *source, size_t index, diag *d)
{
    const rt_source_field *f = &source->fields[index];
    int64_t dims[RT_ARRAY_MAX_RANK + 1];
    size_t bytes;
    if (!f->field.name || !*f->field.name) return refuse(d, index, "has no name");
    for (size_t i = 0; i < index; i++)
        if (strcmp(source->fields[i].field.name, f->field.name) == 0)
            return refuse(d, index, "has the name of an earlier one");
    if (f->field.rank < 0 || f->field.rank >= RT_ARRAY_MAX_RANK) return refuse(d, index, "has too many dimensions");
    dims[0] = f->field.whole ? 1 : source->rows;
    memcpy(dims + 1, f->field.dims, (size_t)f->field.rank * sizeof *dims);
    if (!rt_array_bytes(f->field.dtype, f->field.rank + 1, dims, &bytes)) return refuse(d, index, "is too large");
    if (!f->data && !source->read) return refuse(d, index, "has no memory, and there is no function to read it");
    return AMPC_OK;
}

static ampc_status add(rt_columns *out, const rt_source *source, size_t index, diag *d)
{
    const rt_source_field *f = &source->fields[index];
    rt_column c = {.field = f->field, .read = f->data ? read_borrowed : read_called, .close = close_reader};
    TRY(check_field(source, index, d));
    reader *r = c.state = malloc(sizeof *r);
    if (!r) return rt_no_memory(d);
    *r = (reader){.from = *f, .index = index, .read = source->read, .user = source->user};
    r->elements = (size_t)rt_field_elements(&f->field);
    r->bytes = r->elements * ir_dtype_size(f->field.dtype);
    if (!f->data) out->reading = source->one_thread ? RT_CALLING_ONLY : RT_DECODED;
    ampc_status s = rt_columns_add(out, &c, d);
    if (s != AMPC_OK) free(r);
    return s;
}

ampc_status rt_source_columns(const rt_source *source, diag *d, rt_columns *out)
{
    if (source->rows < 1 || source->rows > INT32_MAX)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "data of %" PRId64 " rows (the range is 1 to 2147483647)",
                          source->rows);
    out->rows = source->rows;
    for (size_t i = 0; i < source->n_fields; i++) TRY(add(out, source, i, d));
    return source->n_fields ? AMPC_OK : diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "the data have no fields");
}
