/* attention_grad.c - the gradient of attention, which computes the probabilities again from the scores and lse:
 *
 *     P = exp(q k^T * scale + mask - lse)    dP = dy v^T    dS = P * (dP - delta) * scale
 *     dv = P^T dy    dq = dS k    dk = dS^T q
 *
 * With dropout, D = 1 / (1 - ratio) where a probability stays and 0 elsewhere: dP = (dy v^T) * D, dv = (P * D)^T dy.
 * delta, the sum of P dP by query, is that of dy y if the keys are more than a block. Gradients are summed up in place
 * if they are in the type of the sums.
 *
 * If there are enough items of k and v for all threads, a task computes all gradients of an item. Otherwise there are
 * tasks for blocks of queries, which compute dq, and tasks for blocks of keys, which compute dk and dv. The additions
 * are the same: an element of dq adds the blocks of keys in ascending order, one of dk or dv the blocks of queries. */
#include "kernels/cpu/attention.h"
#include "ir/ops/real.h"

#include <math.h>
#include <omp.h>
#include <string.h>

_Static_assert(IR_IN(attention_grad, q) == IR_IN(attention, q) && IR_IN(attention_grad, k) == IR_IN(attention, k) &&
                   IR_IN(attention_grad, v) == IR_IN(attention, v) &&
                   IR_IN(attention_grad, mask) == IR_IN(attention, mask) &&
                   IR_ATTR(attention_grad, scale) == IR_ATTR(attention, scale) &&
                   IR_ATTR(attention_grad, causal) == IR_ATTR(attention, causal) &&
                   IR_ATTR(attention_grad, ratio) == IR_ATTR(attention, ratio) &&
                   IR_ATTR(attention_grad, stream) == IR_ATTR(attention, stream),
               "attention_measure reads both");

/* How the work is divided. */
typedef struct division {
    attention_sizes s;
    bool by_block, dq, dkv; /* by_block: tasks compute one block; which gradients are wanted */
    bool clears;            /* the first block of queries does not see all keys, so dk and dv start as zeros */
    int64_t kv_items, tasks;
    int64_t key_sums; /* keys of which a task keeps dk and dv */
    int64_t crossed_q, crossed_dy, queries, dy, y, keys, values, scores, slopes, state, low, mask, sums_q, sums_k,
        sums_v;
    int64_t size; /* of all these buffers of a thread, in numbers of its type */
} division;

static int64_t take(int64_t *size, int64_t n)
{
    *size += n;
    return *size - n;
}

static division divide(const k_args *args)
{
    division d = {.s = attention_measure(args)};
    const attention_sizes *s = &d.s;
    const int64_t block = s->block;
    d.dq = cpu_is_used(cpu_result(args, IR_OUT(attention_grad, dq)));
    d.dkv = cpu_is_used(cpu_result(args, IR_OUT(attention_grad, dk))) ||
            cpu_is_used(cpu_result(args, IR_OUT(attention_grad, dv)));
    d.clears = s->queries == 0 || (s->query_blocks > 1 && s->last < s->keys);
    d.kv_items = s->items / s->group;
    d.by_block = d.kv_items < args->ctx->threads;
    d.tasks = !d.by_block ? d.kv_items
                          : (d.dq ? s->items * s->query_blocks : 0) + (d.dkv ? d.kv_items * s->key_blocks : 0);
    d.key_sums = d.by_block ? ATTENTION_KEYS : cpu_ceil_div(s->keys, ATTENTION_TERMS) * ATTENTION_TERMS;
    d.crossed_q = take(&d.size, block * s->depth_row);
    d.crossed_dy = take(&d.size, block * s->width_row);
    d.queries = take(&d.size, block * s->depth_row);
    d.dy = take(&d.size, block * s->width_row);
    d.y = take(&d.size, block * s->width_row);
    d.keys = take(&d.size, ATTENTION_KEYS * s->depth_row);
    d.values = take(&d.size, ATTENTION_KEYS * s->width_row);
    d.scores = take(&d.size, ATTENTION_KEYS * block);
    d.slopes = take(&d.size, ATTENTION_KEYS * block);
    d.state = take(&d.size, 3 * block);
    d.low = take(&d.size, s->low ? 2 * ATTENTION_KEYS * block : 0);
    d.mask = take(&d.size, k_present(&args->in[IR_IN(attention_grad, mask)]) ? 2 * ATTENTION_KEYS * block : 0);
    d.sums_q = take(&d.size, block * s->depth_row);
    d.sums_k = take(&d.size, d.key_sums * s->depth_row);
    d.sums_v = take(&d.size, d.key_sums * s->width_row);
    return d;
}

/* ---- products in AMX tiles: what the functions of the template do with floats ---- */

/* The operands of a block of queries: pairs of rows, and rows that are crossed, so that they are pairs as well. */
static void cross_low(const division *d, const attention_rows *m, int64_t first, int64_t n, float *memory,
                      float *crossed, int64_t columns)
{
    const int64_t block = d->s.block;
    int64_t row;
    const uint16_t *from = attention_load_low(m, first, n, (void *)memory, &row);
    attention_cross_low((void *)crossed, block, from, row / 2, block, columns / 2);
    attention_pairs_low((void *)(memory + block * columns / 2), from, row, block, columns);
}

/* Scores and slopes, that is dP, of keys [key, key + keys). */
static void multiply_keys_low(const division *d, const attention_rows *k, const attention_rows *v, int64_t key,
                              int64_t keys, float *memory)
{
    const attention_sizes *s = &d->s;
    attention_low_product p = {.m = cpu_ceil_div(keys, ATTENTION_TERMS) * ATTENTION_TERMS};
    int64_t row = 0;
    p.n = p.b_row = p.c_row = s->block;
    p.a = attention_load_low(v, key, keys, (void *)(memory + d->values), &p.a_row);
    p.b = (void *)(memory + d->crossed_dy);
    p.c = memory + d->slopes;
    p.k = s->width_row;
    attention_multiply_low(&p);
    p.a = attention_load_low(k, key, keys, (void *)(memory + d->keys), &row);
    p.a_row = row;
    p.b = (void *)(memory + d->crossed_q);
    p.c = memory + d->scores;
    p.k = s->depth_row;
    attention_multiply_low(&p);
    attention_scale_float(memory + d->scores, (float)s->scale, keys * s->block);
    attention_pairs_low((void *)(memory + d->keys + ATTENTION_KEYS / 2 * s->depth_row), p.a, row, p.m, s->depth_row);
}

/* Adds to dq, if it is not NULL, and to dk and dv, if dk is not. */
static void add_products_low(const division *d, int64_t keys, float *memory, float *dq, float *dk, float *dv,
                             bool adds_q, bool adds_k)
{
    const attention_sizes *s = &d->s;
    const int64_t block = s->block, padded = cpu_ceil_div(keys, ATTENTION_TERMS) * ATTENTION_TERMS;
    float *scores = memory + d->scores, *slopes = memory + d->slopes, *low = memory + d->low;
    const size_t rest = (size_t)((padded - keys) * block) * sizeof *scores;
    attention_low_product p = {.adds = adds_q};
    memset(scores + keys * block, 0, rest);
    memset(slopes + keys * block, 0, rest);
    if (dq) {
        uint32_t *pairs = (void *)low, *crossed = (void *)(low + ATTENTION_KEYS / 2 * block);
        attention_round_pairs(pairs, slopes, padded, block);
        attention_cross_low(crossed, padded / 2, pairs, block, padded / 2, block);
        p.a = (void *)crossed, p.a_row = padded;
        p.b = (void *)(memory + d->keys + ATTENTION_KEYS / 2 * s->depth_row);
        p.c = dq, p.m = block, p.k = padded;
        p.b_row = p.c_row = p.n = s->depth_row;
        attention_multiply_low(&p);
    }
    if (!dk) return;
    uint16_t *rows = (void *)(low + ATTENTION_KEYS * block);
    p.a = rows, p.a_row = block, p.m = padded, p.k = block, p.adds = adds_k;
    attention_round_rows(rows, slopes, padded * block);
    p.b = (void *)(memory + d->queries + block * s->depth_row / 2), p.c = dk;
    p.b_row = p.c_row = p.n = s->depth_row;
    attention_multiply_low(&p);
    attention_round_rows(rows, scores, padded * block);
    p.b = (void *)(memory + d->dy + block * s->width_row / 2), p.c = dv;
    p.b_row = p.c_row = p.n = s->width_row;
    attention_multiply_low(&p);
}

#define REAL float
#include "kernels/cpu/attention_grad_body.h"
#undef REAL
#define REAL double
#include "kernels/cpu/attention_grad_body.h"
#undef REAL

static ampc_status prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    const division d = divide(args);
    *workspace = (size_t)args->ctx->threads * attention_bytes(args, d.size);
    return AMPC_OK;
}

static ampc_status run(const k_args *args)
{
    const division d = divide(args);
    const size_t bytes = attention_bytes(args, d.size);
    const bool wide = args->in[0].dtype == IR_f64;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, d.s.items *d.s.queries *d.s.keys)) schedule(static, 1)
    for (int64_t i = 0; i < d.tasks; i++) {
        void *buffer = (char *)args->workspace + (size_t)omp_get_thread_num() * bytes;
        if (d.s.low) attention_begin_low();
        if (wide) run_task_double(args, &d, i, buffer);
        else run_task_float(args, &d, i, buffer);
        if (d.s.low) attention_end_low();
    }
    return AMPC_OK;
}

const k_kernel cpu_attention_grad = {.prepare = prepare, .run = run};
