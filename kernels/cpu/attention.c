/* attention.c - attention: softmax(q k^T * scale + mask) v.
 *
 * A task computes a block of queries. It reads the keys block by block and keeps for each query the maximum of the
 * scores so far, the sum of the exponentials relative to it, and the sum of the values, which are scaled when the
 * maximum grows. */
#include "kernels/cpu/attention.h"
#include "ir/ops/real.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* The buffers of a thread, in numbers of its type. */
typedef struct buffers {
    int64_t queries, crossed, keys, values, scores, sums, state, low, mask, size;
} buffers;

static buffers buffers_of(const attention_sizes *s, bool masked)
{
    buffers b = {.queries = 0};
    b.crossed = b.queries + s->block * s->depth_row;
    b.keys = b.crossed + s->block * s->depth_row;
    b.values = b.keys + ATTENTION_KEYS * s->depth_row;
    b.scores = b.values + ATTENTION_KEYS * s->width_row;
    b.sums = b.scores + ATTENTION_KEYS * s->block;
    b.state = b.sums + s->block * s->width_row;
    b.low = b.state + 3 * s->block;
    b.mask = b.low + (s->low ? ATTENTION_KEYS * s->block : 0);
    b.size = b.mask + (masked ? 2 * ATTENTION_KEYS * s->block : 0);
    return b;
}

/* A block of queries, from query `first` on, of an item of q. */
typedef struct task {
    const k_args *args;
    attention_sizes s; /* of a block as small as n allows */
    buffers b;
    attention_rows q, k, v;
    attention_mask mask;
    int64_t item, first, n;
} task;

static task task_of(const k_args *args, const attention_sizes *s, int64_t i)
{
    const int64_t item = i / s->query_blocks, first = i % s->query_blocks * ATTENTION_QUERIES;
    task t = {.args = args,
              .s = *s,
              .b = buffers_of(s, k_present(&args->in[IR_IN(attention, mask)])),
              .q = attention_item(&args->in[IR_IN(attention, q)], item),
              .k = attention_item(&args->in[IR_IN(attention, k)], item / s->group),
              .v = attention_item(&args->in[IR_IN(attention, v)], item / s->group),
              .mask = attention_mask_of(args, item, 0),
              .item = item,
              .first = first,
              .n = k_min(ATTENTION_QUERIES, s->queries - first)};
    t.s.block = attention_block(s, t.n);
    return t;
}

/* ---- products in AMX tiles: what the functions of the template do with floats ---- */

static int64_t padded_low(int64_t n) { return cpu_ceil_div(n, ATTENTION_TERMS) * ATTENTION_TERMS; }

static void cross_queries_low(const task *t, float *memory)
{
    const attention_sizes *s = &t->s;
    int64_t row;
    const uint16_t *q = attention_load_low(&t->q, t->first, t->n, (void *)(memory + t->b.queries), &row);
    attention_cross_low((void *)(memory + t->b.crossed), s->block, q, row / 2, s->block, s->depth_row / 2);
}

static void score_low(const task *t, float *memory, int64_t key, int64_t keys)
{
    const attention_sizes *s = &t->s;
    float *scores = memory + t->b.scores;
    attention_low_product p = {.b = (void *)(memory + t->b.crossed), .b_row = s->block, .k = s->depth_row};
    p.a = attention_load_low(&t->k, key, keys, (void *)(memory + t->b.keys), &p.a_row);
    p.c = scores;
    p.c_row = p.n = s->block;
    p.m = padded_low(keys);
    attention_multiply_low(&p);
    attention_scale_float(scores, (float)s->scale, keys * s->block);
}

static void add_values_low(const task *t, float *memory, float *sums, int64_t key, int64_t keys)
{
    const attention_sizes *s = &t->s;
    const int64_t padded = padded_low(keys), width = s->width_row, block = s->block;
    float *scores = memory + t->b.scores, *values = memory + t->b.values, *low = memory + t->b.low;
    uint32_t *value_pairs = (void *)(values + ATTENTION_KEYS / 2 * width), *pairs = (void *)low,
             *crossed = (void *)(low + ATTENTION_KEYS / 2 * block);
    int64_t row;
    const uint16_t *v = attention_load_low(&t->v, key, keys, (void *)values, &row);
    attention_pairs_low(value_pairs, v, row, padded, width);
    memset(scores + keys * block, 0, (size_t)((padded - keys) * block) * sizeof *scores);
    attention_round_pairs(pairs, scores, padded, block);
    attention_cross_low(crossed, padded / 2, pairs, block, padded / 2, block);
    attention_multiply_low(&(attention_low_product){.a = (void *)crossed,
                                                    .a_row = padded,
                                                    .b = value_pairs,
                                                    .b_row = width,
                                                    .c = sums,
                                                    .c_row = width,
                                                    .m = block,
                                                    .n = width,
                                                    .k = padded,
                                                    .adds = key > 0});
}

#define REAL float
#include "kernels/cpu/attention_body.h"
#undef REAL
#define REAL double
#include "kernels/cpu/attention_body.h"
#undef REAL

static void run_task(const task *t, void *memory)
{
    if (t->s.low) attention_begin_low();
    if (t->q.dtype == IR_f64) attend_double(t, memory);
    else attend_float(t, memory);
    if (t->s.low) attention_end_low();
}

static size_t thread_bytes(const k_args *args, const attention_sizes *s)
{
    return attention_bytes(args, buffers_of(s, k_present(&args->in[IR_IN(attention, mask)])).size);
}

static ampc_status prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    const attention_sizes s = attention_measure(args);
    *workspace = (size_t)args->ctx->threads * thread_bytes(args, &s);
    return AMPC_OK;
}

static ampc_status run(const k_args *args)
{
    const attention_sizes s = attention_measure(args);
    const size_t bytes = thread_bytes(args, &s);
    const int64_t tasks = s.items * s.query_blocks;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, tasks *s.block *s.keys)) schedule(static, 1)
    for (int64_t i = 0; i < tasks; i++) {
        const task t = task_of(args, &s, i);
        run_task(&t, (char *)args->workspace + (size_t)omp_get_thread_num() * bytes);
    }
    return AMPC_OK;
}

const k_kernel cpu_attention = {.prepare = prepare, .run = run};
