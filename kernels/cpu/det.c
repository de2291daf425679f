/* det.c - determinants of matrices and their gradient, computed in f64. */
#include "kernels/cpu/cpu.h"
#include "kernels/determinant.h"

#include <omp.h>

static int64_t size_of(const k_view *x) { return x->dims[x->rank - 1]; }

static int64_t matrices_of(const k_view *x)
{
    int64_t count = 1;
    for (int i = 0; i < x->rank - 2; i++) count *= x->dims[i];
    return count;
}

/* Workspace per thread: a matrix, and what det_cofactors needs. */
static size_t thread_bytes(int64_t n) { return cpu_lines((size_t)(n * (2 * n + 3)) * sizeof(double)); }

static ampc_status prepare(const k_args *args, const k_view *x, size_t *workspace)
{
    *workspace = (size_t)args->ctx->threads * thread_bytes(size_of(x));
    return AMPC_OK;
}

static double *load_matrix(const k_args *args, const k_view *x, int64_t m)
{
    const int64_t n = size_of(x);
    double *a = (double *)((char *)args->workspace + (size_t)omp_get_thread_num() * thread_bytes(n));
    for (int64_t i = 0; i < n * n; i++) a[i] = cpu_number(x, m * n * n + i);
    return a;
}

static ampc_status det_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    return prepare(args, &args->in[0], workspace);
}

static ampc_status det_run(const k_args *args)
{
    const k_view *x = &args->in[0];
    const int64_t n = size_of(x), count = matrices_of(x);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(x) * n)) schedule(static)
    for (int64_t m = 0; m < count; m++)
        cpu_store_number(&args->out[0], m, det_factor(load_matrix(args, x, m), n, NULL, NULL));
    return AMPC_OK;
}

static ampc_status det_grad_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    return prepare(args, &args->in[IR_IN(det_grad, x)], workspace);
}

static ampc_status det_grad_run(const k_args *args)
{
    const k_view *dy = &args->in[0], *x = &args->in[IR_IN(det_grad, x)];
    const int64_t n = size_of(x), count = matrices_of(x);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(x) * n)) schedule(static)
    for (int64_t m = 0; m < count; m++) {
        double *a = load_matrix(args, x, m), d = cpu_number(dy, m);
        det_cofactors(a, n, a + n * n);
        for (int64_t i = 0; i < n * n; i++) cpu_store_number(&args->out[0], m * n * n + i, d * a[i]);
    }
    return AMPC_OK;
}

const k_kernel cpu_det = {.prepare = det_prepare, .run = det_run};
const k_kernel cpu_det_grad = {.prepare = det_grad_prepare, .run = det_grad_run};
