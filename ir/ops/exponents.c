/* exponents.c - counts numbers by binary exponent: f32 in blocks that stay in the first-level cache, other types one by
 * one. */
#include "ir/ops/exponents.h"

#include <math.h>
#include <string.h>

/* Without its sign, the bit pattern of a float is ordered like its magnitude. */
enum { BLOCK = 1024, TABLES = 4, BIASED = 256, BIAS = 127, MANTISSA = 23, NORMAL = 0x00800000, INFINITE = 0x7f800000 };
enum { MAGNITUDE = 0x7fffffff };

/* ---- one by one -------------------------------------------------------------------------------- */

static void widen(ir_exponents *e, double min, double max)
{
    const bool first = ir_exponents_finite(e) == 0;
    if (first || min < e->min) e->min = min;
    if (first || max > e->max) e->max = max;
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

/* What a block has, by magnitude; the range as integers that are ordered like the numbers. */
typedef struct block_facts {
    uint32_t zero, tiny, special, largest;
    int32_t min, max;
} block_facts;

IR_CLONES static block_facts scan_block(const uint32_t *bits, int n)
{
    uint32_t zero = 0, tiny = 0, special = 0, largest = 0;
    int32_t min = INT32_MAX, max = INT32_MIN;
    for (int i = 0; i < n; i++) {
        const uint32_t size = bits[i] & MAGNITUDE;
        const int32_t order = (int32_t)(bits[i] ^ ((uint32_t)((int32_t)bits[i] >> 31) & MAGNITUDE));
        zero += size == 0;
        tiny += size < NORMAL;
        special += size >= INFINITE;
        largest = size > largest ? size : largest;
        min = order < min ? order : min;
        max = order > max ? order : max;
    }
    return (block_facts){zero, tiny, special, largest, min, max};
}

static double ordered(int32_t order) { return ir_f32_bits((uint32_t)order ^ ((uint32_t)(order >> 31) & MAGNITUDE)); }

/* Several tables, because neighbouring numbers often have the same exponent, and an increment waits for the last one
 * of the same place. */
static void count_block(uint32_t (*tables)[BIASED], const uint32_t *bits, int n)
{
    int i = 0;
    for (; i + TABLES <= n; i += TABLES)
        for (int k = 0; k < TABLES; k++) tables[k][bits[i + k] >> MANTISSA & (BIASED - 1)]++;
    for (; i < n; i++) tables[0][bits[i] >> MANTISSA & (BIASED - 1)]++;
}

static int64_t count_large(const uint32_t *bits, int n)
{
    int64_t large = 0;
    for (int i = 0; i < n; i++) large += fabsf(ir_f32_bits(bits[i])) > (float)ir_dtype_largest(IR_f16);
    return large;
}

/* A block with NaN, infinities or subnormal numbers, which are rare, is counted one by one. */
static void add_block(ir_exponents *e, uint32_t (*tables)[BIASED], const uint32_t *bits, int n)
{
    const block_facts f = scan_block(bits, n);
    if (f.special || f.tiny != f.zero) {
        for (int i = 0; i < n; i++) add_number(e, ir_f32_bits(bits[i]));
        return;
    }
    widen(e, ordered(f.min), ordered(f.max));
    if (ir_f32_bits(f.largest) > (float)ir_dtype_largest(IR_f16)) e->large += count_large(bits, n);
    e->zero += f.zero;
    e->count += n;
    count_block(tables, bits, n);
}

/* The tables have the zeros at exponent 0, which has no other numbers. */
static void add_f32(ir_exponents *e, const uint32_t *bits, int64_t n)
{
    uint32_t tables[TABLES][BIASED];
    for (int64_t from = 0; from < n;) {
        const int64_t end = n - from < INT32_MAX ? n : from + INT32_MAX; /* so that no count overflows */
        memset(tables, 0, sizeof tables);
        for (int64_t at = from; at < end; at += BLOCK)
            add_block(e, tables, bits + at, end - at < BLOCK ? (int)(end - at) : BLOCK);
        for (int k = 0; k < TABLES; k++)
            for (int i = 1; i < BIASED; i++) e->bins[i - BIAS - IR_EXPONENT_LEAST] += tables[k][i];
        from = end;
    }
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
