/* exponents.c - counts numbers by binary exponent: f32 in blocks that stay in the first-level cache, other types one by
 * one. */
#include "ir/ops/exponents.h"

#include <math.h>
#include <string.h>

/* Without its sign, the bit pattern of a float is ordered like its magnitude. */
enum { BLOCK = 2048, LANES = 32, DENSE = 16, BIAS = 127, MANTISSA = 23 };
enum { INFINITE = 0x7f800000, MAGNITUDE = 0x7fffffff };

/* ---- one by one -------------------------------------------------------------------------------- */

static void widen(ir_exponents *e, double min, double max)
{
    const bool first = ir_exponents_finite(e) == 0;
    if (first || min < e->min) e->min = min + 0; /* not -0, so that the order of numbers does not matter */
    if (first || max > e->max) e->max = max + 0;
}

static void add_number(ir_exponents *e, double x)
{
    if (isfinite(x)) {
        widen(e, x, x);
        e->large += fabs(x) > ir_dtype_largest(IR_f16);
        if (x == 0) e->zero++;
        else e->bins[(int)fmin(fmax(ilogb(x), IR_EXPONENT_LEAST), IR_EXPONENT_MOST) - IR_EXPONENT_LEAST]++;
    } else if (isnan(x)) e->nan++;
    else e->inf++;
    e->count++;
}

/* ---- blocks of f32 ----------------------------------------------------------------------------- */

typedef uint8_t lanes __attribute__((vector_size(LANES)));
typedef uint64_t words __attribute__((vector_size(LANES)));
#define EVEN_BYTES UINT64_C(0x00ff00ff00ff00ff)
#define FOUR_SHORTS UINT64_C(0x0001000100010001)

/* What a block has, by magnitude, and its exponents. */
typedef struct block_facts {
    uint32_t zero, tiny, largest;
    float min, max;
    lanes exponents[BLOCK / LANES]; /* 0: zeros, and what fills the last one */
} block_facts;

/* As integers, positive numbers are ordered like the numbers, negative ones the other way round. */
IR_CLONES static void scan_block(const uint32_t *restrict bits, int n, block_facts *restrict f)
{
    uint32_t zero = 0, tiny = 0, first = UINT32_MAX, last = 0;
    int32_t positive = INT32_MIN;
    uint8_t *exponents = (uint8_t *)f->exponents;
    for (int i = 0; i < n; i++) {
        const uint32_t x = bits[i];
        zero += (x & MAGNITUDE) == 0;
        tiny += (x & INFINITE) == 0;
        first = x < first ? x : first;
        last = x > last ? x : last;
        positive = (int32_t)x > positive ? (int32_t)x : positive;
        exponents[i] = (uint8_t)(x >> MANTISSA);
    }
    memset(exponents + n, 0, (size_t)(-n & (LANES - 1)));
    const bool negative = last > MAGNITUDE;
    f->zero = zero;
    f->tiny = tiny;
    f->min = ir_f32_bits(negative ? last : first);
    f->max = ir_f32_bits(positive >= 0 ? (uint32_t)positive : first);
    f->largest = negative ? last & MAGNITUDE : 0;
    if (positive >= 0 && (uint32_t)positive > f->largest) f->largest = (uint32_t)positive;
}

/* The number of elements with this exponent; at most 127 blocks of lanes. */
IR_CLONES static int count_equal(const lanes *exponents, int blocks, uint8_t exponent)
{
    const lanes wanted = exponent - (lanes){0};
    lanes found = {0};
    for (int i = 0; i < blocks; i++) found -= (lanes)(exponents[i] == wanted);
    const words pairs = ((words)found & EVEN_BYTES) + (((words)found >> 8) & EVEN_BYTES);
    const words sums = pairs * FOUR_SHORTS >> 48; /* of the four pairs of a word */
    return (int)(sums[0] + sums[1] + sums[2] + sums[3]);
}

/* Most numbers of a block have one of a few exponents below the largest. */
static void count_block(int64_t *table, const block_facts *f, int n)
{
    const int blocks = (n + LANES - 1) / LANES, top = (int)(f->largest >> MANTISSA);
    const uint8_t *exponents = (const uint8_t *)f->exponents;
    int left = n - (int)f->zero, at = top;
    for (; left && at > top - DENSE && at > 0; at--) {
        const int found = count_equal(f->exponents, blocks, (uint8_t)at);
        table[at] += found;
        left -= found;
    }
    const int64_t subnormal = table[0];
    for (int i = 0; left && i < n; i++) table[exponents[i]] += exponents[i] <= at;
    table[0] = subnormal; /* zeros were added */
}

static int64_t count_large(const uint32_t *bits, int n)
{
    int64_t large = 0;
    for (int i = 0; i < n; i++) large += fabsf(ir_f32_bits(bits[i])) > (float)ir_dtype_largest(IR_f16);
    return large;
}

/* A block with NaN, infinities or subnormal numbers, which are rare, is counted one by one. */
static void add_block(ir_exponents *e, int64_t *table, const uint32_t *bits, int n)
{
    block_facts f;
    scan_block(bits, n, &f);
    if (f.largest >= INFINITE || f.tiny != f.zero) {
        for (int i = 0; i < n; i++) add_number(e, ir_f32_bits(bits[i]));
        return;
    }
    widen(e, f.min, f.max);
    if (ir_f32_bits(f.largest) > (float)ir_dtype_largest(IR_f16)) e->large += count_large(bits, n);
    e->zero += f.zero;
    e->count += n;
    count_block(table, &f, n);
}

static void add_f32(ir_exponents *e, const uint32_t *bits, int64_t n)
{
    int64_t *table = &e->bins[-BIAS - IR_EXPONENT_LEAST]; /* by biased exponent */
    for (int64_t at = 0; at < n; at += BLOCK) add_block(e, table, bits + at, n - at < BLOCK ? (int)(n - at) : BLOCK);
}

void ir_exponents_add(ir_exponents *e, ir_dtype type, const void *data, int64_t n, double divisor)
{
    const size_t size = ir_dtype_size(type);
    if (type == IR_f32 && divisor == 1) {
        add_f32(e, data, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) add_number(e, ir_load_f64(type, (const char *)data + (size_t)i * size) / divisor);
}

void ir_exponents_merge(ir_exponents *into, const ir_exponents *from)
{
    if (ir_exponents_finite(from)) widen(into, from->min, from->max);
    into->count += from->count;
    into->zero += from->zero;
    into->nan += from->nan;
    into->inf += from->inf;
    into->large += from->large;
    for (int i = 0; i < IR_EXPONENTS; i++) into->bins[i] += from->bins[i];
}

double ir_exponents_largest(const ir_exponents *e)
{
    return ir_exponents_finite(e) ? fmax(fabs(e->min), fabs(e->max)) : 0;
}

/* ---- in a low type ----------------------------------------------------------------------------- */

ir_exponent_shares ir_exponents_in(const ir_exponents *e, ir_dtype low, int shift)
{
    const int normal = low == IR_bf16 ? -126 : -14, subnormal = normal - (low == IR_bf16 ? 7 : 10);
    const int most = ilogb(ir_dtype_largest(low));
    ir_exponent_shares s = {.flushed = 0};
    const double total = (double)(ir_exponents_finite(e) - e->zero);
    for (int i = 0; i < IR_EXPONENTS && total > 0; i++) {
        const int exponent = i + IR_EXPONENT_LEAST + shift;
        const double share = (double)e->bins[i] / total;
        if (exponent < subnormal) s.below_subnormal += share;
        if (exponent < normal) s.below_normal += share;
        if (exponent < subnormal - 1) s.flushed += share;
        if (exponent > most) s.above += share;
    }
    if (low == IR_f16 && shift == 0 && total > 0) s.above = (double)e->large / total;
    return s;
}
