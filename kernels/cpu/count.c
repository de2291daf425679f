/* count.c - counts numbers by binary exponent on all threads. */
#include "kernels/cpu/cpu.h"

enum { CHUNK = 1 << 16 };

void cpu_count_exponents(const k_context *ctx, ir_dtype type, const void *data, int64_t n, ir_exponents *to)
{
    const char *bytes = data;
    const int64_t size = (int64_t)ir_dtype_size(type), chunks = cpu_ceil_div(n, CHUNK);
#pragma omp parallel num_threads(cpu_threads_available(cpu_threads(ctx, n)))
    {
        ir_exponents own = {.count = 0};
#pragma omp for schedule(static)
        for (int64_t i = 0; i < chunks; i++)
            ir_exponents_add(&own, type, bytes + i * CHUNK * size, k_min(CHUNK, n - i * CHUNK), 1);
#pragma omp critical
        ir_exponents_merge(to, &own);
    }
}
