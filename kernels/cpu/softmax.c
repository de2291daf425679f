/* softmax.c - softmax and log_softmax along one axis, and their gradients.
 *
 * Each row is loaded into a per-thread buffer in the carrier, so that three passes over it stay in cache. A row of
 * -infinity results in NaN, following the formula. Its gradient is 0 if none arrives: masked rows are replaced, as
 * by Where(IsNaN(y), 0, y). */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"
#include "ir/ops/real.h"

#include <omp.h>
#include <string.h>

#define REAL float
#include "kernels/cpu/softmax_body.h"
#undef REAL
#define REAL double
#include "kernels/cpu/softmax_body.h"
#undef REAL

/* a, b: rows of the operands, a = b if there is one; y: row of the result */
typedef void row_fn(const void *a, const void *b, void *y, int64_t n);

_Static_assert(IR_ATTR(softmax, axis) == 0 && IR_ATTR(softmax_grad, axis) == 0 && IR_ATTR(log_softmax, axis) == 0 &&
                   IR_ATTR(log_softmax_grad, axis) == 0,
               "one driver");

/* The size in bytes of a buffer for one block of rows. */
static size_t buffer_bytes(const k_args *args, const cpu_rows *s)
{
    size_t carrier = ir_dtype_size(cpu_carrier(args->in[0].dtype));
    return cpu_lines((size_t)cpu_rows_scratch(s) * carrier);
}

static ampc_status softmax_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    cpu_rows s = cpu_rows_of(&args->in[0], args->attr[0].i);
    *workspace = (size_t)args->ctx->threads * 3 * buffer_bytes(args, &s);
    return AMPC_OK;
}

static ampc_status run_rows(const k_args *args, row_fn *f32, row_fn *f64)
{
    const k_view *x = args->in, *y = &args->out[0];
    const cpu_rows s = cpu_rows_of(x, args->attr[0].i);
    ir_dtype carrier = cpu_carrier(x->dtype);
    row_fn *row = carrier == IR_f64 ? f64 : f32;
    size_t bytes = buffer_bytes(args, &s);
    int64_t stride = s.length * (int64_t)ir_dtype_size(carrier);
    if (k_count(y) == 0) return AMPC_OK;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(y))) schedule(static)
    for (int64_t block = 0; block < s.blocks; block++) {
        char *buffer = (char *)args->workspace + (size_t)omp_get_thread_num() * 3 * bytes;
        int64_t first, n = cpu_rows_block(&s, block, &first);
        const char *a = cpu_rows_load(&x[0], &s, first, n, carrier, buffer);
        const char *b = args->n_in > 1 ? cpu_rows_load(&x[1], &s, first, n, carrier, buffer + bytes) : a;
        char *d = cpu_rows_target(y, &s, first, carrier, buffer + 2 * bytes);
        for (int64_t r = 0; r < n; r++) row(a + r * stride, b + r * stride, d + r * stride, s.length);
        cpu_rows_store(y, &s, first, n, carrier, d);
    }
    return AMPC_OK;
}

#define KERNEL(op) \
    static ampc_status op##_run(const k_args *args) { return run_rows(args, op##_float, op##_double); } \
    const k_kernel cpu_##op = {.prepare = softmax_prepare, .run = op##_run};
KERNEL(softmax)
KERNEL(softmax_grad)
KERNEL(log_softmax)
KERNEL(log_softmax_grad)
