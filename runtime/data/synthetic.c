/* synthetic.c - seeded data for the fields that the caller describes, generated when they are read. */
#include "ir/base/philox.h"
#include "runtime/backend/memory.h"
#include "runtime/data/data.h"
#include "runtime/data/kinds.h"

#include <stdlib.h>

enum { CHUNK = 256, DEFAULT_ROWS = 8192 };

typedef struct generator {
    uint64_t seed, stream;
} generator;

/* Generates floats uniformly with mean 0 and variance 1, integers uniformly below the bound. */
static void make_up(const rt_column *c, uint64_t at, void *dst, ir_dtype dtype, size_t n)
{
    const generator *g = c->state;
    float reals[CHUNK];
    int64_t integers[CHUNK];
    philox_words block = {{0}};
    bool real = ir_dtype_is_float(c->field.dtype);
    for (size_t k = 0; k < n; k++) {
        if (k == 0 || (at + k) % 4 == 0) block = philox_block(g->seed, g->stream, (at + k) / 4);
        uint32_t word = block.v[(at + k) % 4];
        if (real) reals[k] = (2 * philox_unit(word) - 1) * 1.7320508f;
        else integers[k] = (int64_t)philox_below((uint64_t)word << 32, (uint64_t)c->field.bound);
    }
    if (real) ir_convert(dtype, dst, IR_f32, reals, n);
    else ir_convert(dtype, dst, IR_i64, integers, n);
}

static ampc_status read_synthetic(const rt_column *c, int64_t row, const rt_draw *draw, void *dst, ir_dtype dtype,
                                  diag *d)
{
    const size_t n = (size_t)rt_field_elements(&c->field), size = ir_dtype_size(dtype);
    (void)draw, (void)d;
    for (size_t k = 0; k < n; k += CHUNK)
        make_up(c, (uint64_t)row * n + k, (char *)dst + k * size, dtype, n - k < CHUNK ? n - k : CHUNK);
    return AMPC_OK;
}

static void close_synthetic(rt_column *c) { free(c->state); }

static ampc_status add(rt_columns *out, const rt_field *f, uint64_t seed, diag *d)
{
    rt_column c = {.field = *f, .read = read_synthetic, .close = close_synthetic};
    generator *g = c.state = malloc(sizeof *g);
    if (!g) return rt_no_memory(d);
    *g = (generator){seed, out->count};
    if (c.field.bound <= 0) c.field.bound = 2;
    ampc_status s = rt_columns_add(out, &c, d);
    if (s != AMPC_OK) free(g);
    return s;
}

ampc_status rt_open_synthetic(const rt_data_spec *spec, const rt_dataset_options *o, diag *d, rt_columns *out)
{
    out->rows = spec->o.rows ? spec->o.rows : DEFAULT_ROWS;
    for (size_t i = 0; i < o->n_fields; i++) TRY(add(out, &o->fields[i], o->seed, d));
    return AMPC_OK;
}
