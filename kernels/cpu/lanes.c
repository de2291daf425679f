/* lanes.c - vector loops over contiguous carriers (see cpu.h). */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"
#include "ir/real.h"

#define REAL float
#include "kernels/cpu/lanes_body.h"
#undef REAL
#define REAL double
#include "kernels/cpu/lanes_body.h"
#undef REAL

uint64_t lanes_sum_uint64_t(const uint64_t *x, int64_t n)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum;
}
