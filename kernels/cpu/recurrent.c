/* recurrent.c - recurrent networks, step by step: a product of the hidden states with R, then the rest of the cell for
 * each row of the batch, whose hidden units are computed in vectors. */
#include "kernels/cpu/math.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/wide.h"
#include "kernels/recurrent.h"

/* c[m,n] = a b, or a b' if `trans_b`, plus c if `add`. */
static ampc_status product_float(const k_context *ctx, bool trans_b, int64_t m, int64_t n, int64_t k, const float *a,
                                 int64_t lda, const float *b, bool add, float *c, int64_t ldc)
{
    return cpu_sgemm(ctx, false, trans_b, m, n, k, a, lda, b, trans_b ? k : n, add, c, ldc);
}

static ampc_status product_double(const k_context *ctx, bool trans_b, int64_t m, int64_t n, int64_t k, const double *a,
                                  int64_t lda, const double *b, bool add, double *c, int64_t ldc)
{
#pragma omp parallel for num_threads(cpu_threads(ctx, m *n *k)) schedule(static)
    for (int64_t i = 0; i < m; i++) {
        double *row = c + i * ldc;
        for (int64_t j = 0; j < n && !add; j++) row[j] = 0;
        for (int64_t l = 0; l < k; l++)
            for (int64_t j = 0; j < n; j++) row[j] += a[i * lda + l] * b[trans_b ? j * k + l : l * n + j];
    }
    return AMPC_OK;
}

enum { SIGMOID = IR_WORD(activation, sigmoid), TANH = IR_WORD(activation, tanh) };

/* Whether the activations are the usual ones, for which there are vector loops. */
static bool is_usual(const recurrent_shape *s)
{
    return s->f.word == SIGMOID && s->g.word == TANH && s->h.word == TANH;
}

static int64_t step_at(const recurrent_shape *s, int64_t k) { return s->reverse ? s->steps - 1 - k : k; }

/* Whether step t is within the length of row b. */
static bool is_active(const int64_t *lengths, int64_t b, int64_t t) { return !lengths || t < lengths[b]; }

#define REAL_IS_FLOAT
#define REAL float
#define CARRIER IR_f32
#include "ir/formulas_body.h"
#include "kernels/recurrent_body.h"
#include "kernels/cpu/recurrent_forward.h"
#include "kernels/cpu/recurrent_backward.h"
#undef REAL
#undef CARRIER
#define REAL double
#define CARRIER IR_f64
#include "ir/formulas_body.h"
#include "kernels/recurrent_body.h"
#include "kernels/cpu/recurrent_forward.h"
#include "kernels/cpu/recurrent_backward.h"
#undef REAL
#undef CARRIER

/* Reads the lengths to *at, which is advanced; *out stays NULL if there are none. */
static ampc_status read_lengths(const k_args *args, const k_view *v, int64_t steps, char **at, const int64_t **out)
{
    if (!k_present(v)) return AMPC_OK;
    int64_t *to = (int64_t *)(void *)*at;
    *at += cpu_lines((size_t)k_count(v) * sizeof *to);
    for (int64_t i = 0; i < k_count(v); i++) {
        to[i] = ir_load_i64(v->dtype, cpu_at(v, i));
        if (to[i] < 0 || to[i] > steps)
            return cpu_fail(args->ctx, AMPC_REJECTED, "length %lld at position %lld is outside of [0,%lld]",
                            (long long)to[i], (long long)i, (long long)steps);
    }
    *out = to;
    return AMPC_OK;
}

static ampc_status forward_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    const k_view *y = &args->out[0];
    const ir_dtype carrier = cpu_carrier(y->dtype);
    const recurrent_shape s = recurrent_shape_of(args, y);
    const bool is_float = carrier == IR_f32;
    *workspace = cpu_wide_bytes(args, carrier) + cpu_lines((size_t)s.batch * sizeof(int64_t)) +
                 (is_float ? forward_bytes_float(args, &s) : forward_bytes_double(args, &s));
    return AMPC_OK;
}

static ampc_status forward_run(const k_args *args)
{
    const k_view *y = &args->out[0];
    const recurrent_shape s = recurrent_shape_of(args, y);
    const int64_t *lengths = NULL;
    char *at = args->workspace;
    const ampc_status status = read_lengths(args, &args->in[IR_IN(recurrent, lengths)], s.steps, &at, &lengths);
    if (status != AMPC_OK) return status;
    return cpu_carrier(y->dtype) == IR_f64 ? forward_double(args, &s, lengths, at)
                                           : forward_float(args, &s, lengths, at);
}

static ampc_status backward_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    const k_view *y = &args->in[IR_IN(recurrent_grad, y)];
    const ir_dtype carrier = cpu_carrier(y->dtype);
    const recurrent_shape s = recurrent_shape_of(args, y);
    const bool is_float = carrier == IR_f32;
    *workspace = cpu_wide_bytes(args, carrier) + cpu_lines((size_t)s.batch * sizeof(int64_t)) +
                 (is_float ? backward_bytes_float(args, &s) : backward_bytes_double(args, &s));
    return AMPC_OK;
}

static ampc_status backward_run(const k_args *args)
{
    const k_view *y = &args->in[IR_IN(recurrent_grad, y)];
    const recurrent_shape s = recurrent_shape_of(args, y);
    const int64_t *lengths = NULL;
    char *at = args->workspace;
    const ampc_status status = read_lengths(args, &args->in[IR_IN(recurrent_grad, lengths)], s.steps, &at, &lengths);
    if (status != AMPC_OK) return status;
    return cpu_carrier(y->dtype) == IR_f64 ? backward_double(args, &s, lengths, at)
                                           : backward_float(args, &s, lengths, at);
}

const k_kernel cpu_recurrent = {.prepare = forward_prepare, .run = forward_run};
const k_kernel cpu_recurrent_grad = {.prepare = backward_prepare, .run = backward_run};
