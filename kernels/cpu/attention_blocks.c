/* attention_blocks.c - blocks of attention: reading, masking, products (see attention.h). */
#include "kernels/cpu/attention.h"
#include "ir/ops/real.h"
#include "kernels/attention.h"

#include <math.h>
#include <string.h>

attention_sizes attention_measure(const k_args *args)
{
    const k_view *q = &args->in[IR_IN(attention, q)], *k = &args->in[IR_IN(attention, k)],
                 *v = &args->in[IR_IN(attention, v)];
    const int at = q->rank - 2;
    attention_sizes s = {.items = 1,
                         .group = 1,
                         .queries = q->dims[at],
                         .keys = k->dims[at],
                         .depth = q->dims[at + 1],
                         .width = v->dims[at + 1],
                         .scale = (double)args->attr[IR_ATTR(attention, scale)].f};
    for (int i = 0; i < at; i++) s.items *= q->dims[i];
    if (at > 0 && k->dims[at - 1]) s.group = q->dims[at - 1] / k->dims[at - 1];
    s.low = attention_is_low(q->dtype);
    const int64_t lanes = s.low ? ATTENTION_TERMS : ATTENTION_LANES;
    s.depth_row = cpu_ceil_div(s.depth, lanes) * lanes;
    s.width_row = cpu_ceil_div(s.width, lanes) * lanes;
    s.block = attention_block(&s, k_min(s.queries, ATTENTION_QUERIES));
    s.query_blocks = cpu_ceil_div(s.queries, ATTENTION_QUERIES);
    s.key_blocks = cpu_ceil_div(s.keys, ATTENTION_KEYS);
    s.last = args->attr[IR_ATTR(attention, causal)].i ? s.keys - s.queries : s.keys;
    s.ratio = args->attr[IR_ATTR(attention, ratio)].f;
    const k_view *rng = attention_rng(args);
    s.drops = rng && rng->data;
    if (s.drops) s.draw = cpu_draw_of(rng, s.ratio, args->attr[IR_ATTR(attention, stream)].i);
    return s;
}

void attention_draw(const attention_sizes *s, int64_t row, int64_t queries, int64_t key, int64_t keys, uint8_t *keep)
{
    uint8_t of_query[ATTENTION_KEYS];
    memset(keep, 0, (size_t)(keys * s->block));
    for (int64_t i = 0; i < queries; i++) {
        cpu_draw_tile(&s->draw, (row + i) * s->keys + key, keys, of_query);
        for (int64_t j = 0; j < keys; j++) keep[j * s->block + i] = of_query[j];
    }
}

attention_rows attention_item(const k_view *v, int64_t item)
{
    int64_t strides[IR_MAX_RANK], offset = 0;
    if (!k_present(v)) return (attention_rows){.data = NULL};
    k_strides(v, strides);
    for (int d = v->rank - 3; d >= 0; d--) {
        offset += item % v->dims[d] * strides[d];
        item /= v->dims[d];
    }
    return (attention_rows){.data = v->data ? cpu_at(v, offset) : NULL,
                            .dtype = v->dtype,
                            .row = strides[v->rank - 2],
                            .columns = v->dims[v->rank - 1]};
}

attention_mask attention_mask_of(const k_args *args, int64_t item, int64_t first)
{
    const k_view *q = &args->in[IR_IN(attention, q)], *m = &args->in[IR_IN(attention, mask)];
    int64_t strides[IR_MAX_RANK], own[IR_MAX_RANK] = {0}, offset = 0;
    if (!k_present(m)) return (attention_mask){NULL, IR_NO_DTYPE, 0, 0};
    k_strides(m, strides);
    for (int d = 0; d < m->rank; d++) own[d + q->rank - m->rank] = m->dims[d] == 1 ? 0 : strides[d];
    for (int d = q->rank - 3; d >= 0; d--) {
        offset += item % q->dims[d] * own[d];
        item /= q->dims[d];
    }
    offset += first * own[q->rank - 2];
    return (attention_mask){cpu_at(m, offset), m->dtype, own[q->rank - 2], own[q->rank - 1]};
}

void attention_multiply_float(const attention_product_float *p) { gemm_multiply(p); }

void attention_multiply_double(const attention_product_double *p)
{
    for (int64_t i = 0; i < p->m; i++) {
        double *c = p->c + i * p->c_row;
        if (!p->adds) memset(c, 0, (size_t)p->n * sizeof *c);
        for (int64_t l = 0; l < p->k; l++) {
            const double x = p->a[i * p->a_row + l * p->a_column], *b = p->b + l * p->b_row;
            CPU_SIMD for (int64_t j = 0; j < p->n; j++) c[j] += x * b[j];
        }
    }
}

#define transpose_float gemm_transpose
static void transpose_double(double *to, int64_t to_ld, const double *from, int64_t ld, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) to[i * to_ld + j] = from[i + j * ld];
}

#define REAL float
#define CARRIER IR_f32
#include "kernels/cpu/attention_blocks_body.h"
#undef REAL
#undef CARRIER
#define REAL double
#define CARRIER IR_f64
#include "kernels/cpu/attention_blocks_body.h"
#undef REAL
#undef CARRIER
