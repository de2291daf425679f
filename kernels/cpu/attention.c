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
    int64_t queries, crossed, keys, values, scores, sums, state, mask, size;
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
    b.mask = b.state + 3 * s->block;
    b.size = b.mask + (masked ? 2 * ATTENTION_KEYS * s->block : 0);
    return b;
}

#define REAL float
#include "kernels/cpu/attention_body.h"
#undef REAL
#define REAL double
#include "kernels/cpu/attention_body.h"
#undef REAL

static size_t thread_bytes(const k_args *args, const attention_sizes *s)
{
    const buffers b = buffers_of(s, k_present(&args->in[IR_IN(attention, mask)]));
    return cpu_lines((size_t)b.size * ir_dtype_size(cpu_carrier(args->in[0].dtype)));
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
    const bool wide = args->in[0].dtype == IR_f64;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, tasks *s.block *s.keys)) schedule(static, 1)
    for (int64_t i = 0; i < tasks; i++) {
        void *buffer = (char *)args->workspace + (size_t)omp_get_thread_num() * bytes;
        if (wide) attend_double(args, &s, i / s.query_blocks, i % s.query_blocks, buffer);
        else attend_float(args, &s, i / s.query_blocks, i % s.query_blocks, buffer);
    }
    return AMPC_OK;
}

const k_kernel cpu_attention = {.prepare = prepare, .run = run};
