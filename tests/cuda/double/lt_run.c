/* lt_run.c - executes a cuBLASLt matmul in f32: sums in the order of k, then alpha and beta, bias, activation and one rounding.
 * Overwrites the workspace that the algorithm uses. */
#include "tests/cuda/double/lt.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float load(ir_dtype t, const char *base, int64_t i)
{
    return (float)ir_load_f64(t, base + i * (int64_t)ir_dtype_size(t));
}

static void store(ir_dtype t, char *base, int64_t i, float v)
{
    ir_store_f64(t, base + i * (int64_t)ir_dtype_size(t), v);
}

/* Returns op(M) of one batch as dense f32: `columns` columns of `rows` elements each. */
static float *bring(const lt_matrix *m, const char *base, bool trans, int64_t batch)
{
    int64_t rows = trans ? m->columns : m->rows, columns = trans ? m->rows : m->columns;
    float *out = malloc((size_t)(rows * columns) * sizeof *out);
    for (int64_t j = 0; out && j < columns; j++)
        for (int64_t i = 0; i < rows; i++)
            out[j * rows + i] = load(m->type, base, batch * m->stride + (trans ? i * m->ld + j : j * m->ld + i));
    return out;
}

/* The tanh approximation, which the library uses, and its derivative. */
static float gelu_inner(float x) { return 0.7978845608f * (x + 0.044715f * x * x * x); }
static float gelu(float x) { return 0.5f * x * (1 + tanhf(gelu_inner(x))); }
static float gelu_slope(float x)
{
    float t = tanhf(gelu_inner(x));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
}

static bool aux_bit(const lt_problem *p, int64_t at) { return (unsigned char)p->aux[at / 8] >> at % 8 & 1; }

static void set_aux_bit(const lt_problem *p, int64_t at, bool on)
{
    unsigned byte = (unsigned char)p->aux[at / 8], bit = 1u << at % 8;
    p->aux[at / 8] = (char)(on ? byte | bit : byte & ~bit);
}

/* Applies the epilogue to value v at (i, j) of a batch. */
static float finish(const lt_problem *p, float v, int64_t i, int64_t j, int64_t batch)
{
    int64_t at = batch * p->aux_stride + j * p->aux_ld + i;
    unsigned e = p->epilogue;
    if (e & LT_BIAS) v += load(p->bias_type, p->bias, batch * p->bias_stride + i);
    if (e & LT_AUX_OUT && e & LT_RELU) set_aux_bit(p, at, v > 0);
    if (e & LT_AUX_OUT && e & LT_GELU) store(p->aux_type, p->aux, at, v);
    if (e & LT_RELU) v = v > 0 ? v : 0; /* the library does not propagate NaN */
    if (e & LT_GELU) v = gelu(v);
    if (e & LT_RELU_BACK) v = aux_bit(p, at) ? v : 0;
    if (e & LT_GELU_BACK) v *= gelu_slope(load(p->aux_type, p->aux, at));
    return v;
}

/* Stores the sums of x over the second index (n) for each of the m first indices. */
static void store_sums(const lt_problem *p, const float *x, int64_t m, int64_t n, int64_t step_m, int64_t step_n,
                       int64_t batch)
{
    for (int64_t i = 0; i < m; i++) {
        float sum = 0;
        for (int64_t j = 0; j < n; j++) sum += x[i * step_m + j * step_n];
        store(p->bias_type, p->bias, batch * p->bias_stride + i, sum);
    }
}

static void multiply(const lt_call *call, const float *a, const float *b, float *d, int64_t k, int64_t batch)
{
    const lt_problem *p = &call->p;
    const float alpha = call->device_alpha ? *call->device_alpha : call->alpha;
    const float beta = call->device_beta ? *call->device_beta : call->beta;
    const int64_t m = p->d.rows, n = p->d.columns;
    memset(d, 0, (size_t)(m * n) * sizeof *d);
    for (int64_t j = 0; j < n; j++) {
        float *column = d + j * m;
        for (int64_t l = 0; l < k; l++) {
            const float factor = b[j * k + l], *from = a + l * m;
            for (int64_t i = 0; i < m; i++) column[i] += from[i] * factor;
        }
        for (int64_t i = 0; i < m; i++) {
            float v = alpha * column[i];
            if (beta != 0) v += beta * load(p->c.type, call->c, batch * p->c.stride + j * p->c.ld + i);
            column[i] = finish(p, v, i, j, batch);
            store(p->d.type, call->d, batch * p->d.stride + j * p->d.ld + i, column[i]);
        }
    }
}

static bool run_batch(const lt_call *call, int64_t batch)
{
    const lt_problem *p = &call->p;
    const int64_t m = p->d.rows, n = p->d.columns, k = p->trans_a ? p->a.rows : p->a.columns;
    float *a = bring(&p->a, call->a, p->trans_a, batch), *b = bring(&p->b, call->b, p->trans_b, batch);
    float *d = malloc((size_t)(m * n) * sizeof *d);
    bool done = a && b && d;
    if (done) multiply(call, a, b, d, k, batch);
    if (done && p->epilogue & LT_BIAS_GRAD) store_sums(p, d, m, n, 1, m, batch);
    if (done && p->epilogue & LT_SUM_A) store_sums(p, a, m, k, 1, m, batch);
    if (done && p->epilogue & LT_SUM_B) store_sums(p, b, n, k, k, 1, batch);
    free(a);
    free(b);
    free(d);
    return done;
}

cudaError_t lt_run(void *user)
{
    const lt_call *call = user;
    if (call->workspace_bytes) memset(call->workspace, 0x5a, call->workspace_bytes);
    for (int64_t batch = 0; batch < call->p.d.batch; batch++)
        if (!run_batch(call, batch)) return cudaErrorMemoryAllocation;
    return cudaSuccess;
}
