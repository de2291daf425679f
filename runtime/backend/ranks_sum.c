/* ranks_sum.c - sums of the elements of several ranks: low types are added in f32, and each partial sum is rounded. */
#include "runtime/backend/ranks_sum.h"

#include <string.h>

enum { TILE = 1024 };

int rt_ranks_middle(int first, int last)
{
    int half = 1;
    while (2 * half < last - first) half *= 2;
    return first + half;
}

typedef struct request {
    const rt_ranks_term *terms;
    ir_dtype type;
    k_reduced by;
} request;

typedef union tile {
    float low[TILE];
    double f64[TILE];
} tile;

#define COMBINE(REAL) \
    REAL *to = (REAL *)sums; \
    const REAL *x = (const REAL *)a, *y = (const REAL *)b; \
    if (by == K_REDUCED_max) \
        for (int64_t i = 0; i < n; i++) to[i] = x[i] > y[i] || x[i] != x[i] ? x[i] : y[i]; \
    else \
        for (int64_t i = 0; i < n; i++) to[i] = x[i] + y[i];

IR_CLONES static void combine_f32(void *sums, const void *a, const void *b, int64_t n, k_reduced by){
    COMBINE(float)} IR_CLONES static void combine_f64(void *sums, const void *a, const void *b, int64_t n, k_reduced by)
{
    COMBINE(double)
}

/* The sums of elements [at, at + n) of positions [first, last), in f64 or f32, at the result or, if they are there
 * already, where they are. */
static const void *sum_tile(const request *r, int first, int last, int64_t at, int64_t n, bool round, tile *to)
{
    const rt_ranks_term *t = &r->terms[first];
    if (t->data && t->last == last) {
        const void *from = (const char *)t->data + (size_t)at * ir_dtype_size(r->type);
        if (!ir_dtype_is_low(r->type)) return from;
        ir_widen(r->type, to->low, from, (size_t)n);
        return to;
    }
    const int middle = rt_ranks_middle(first, last);
    tile rest;
    const void *a = sum_tile(r, first, middle, at, n, true, to), *b = sum_tile(r, middle, last, at, n, true, &rest);
    if (r->type == IR_f64) combine_f64(to, a, b, n, r->by);
    else combine_f32(to, a, b, n, r->by);
    if (!round || !ir_dtype_is_low(r->type) || r->by == K_REDUCED_max) return to;
    uint16_t rounded[TILE];
    ir_narrow(r->type, rounded, to->low, (size_t)n);
    ir_widen(r->type, to->low, rounded, (size_t)n);
    return to;
}

void rt_ranks_sum(const rt_ranks_term *terms, int first, int last, void *to, int64_t n, ir_dtype type, k_reduced by)
{
    const request r = {.terms = terms, .type = type, .by = by};
    for (int64_t at = 0; at < n; at += TILE) {
        const int64_t count = n - at < TILE ? n - at : TILE;
        char *target = (char *)to + (size_t)at * ir_dtype_size(type);
        tile sums;
        const void *made = sum_tile(&r, first, last, at, count, false, &sums);
        if (ir_dtype_is_low(type)) ir_narrow(type, (uint16_t *)target, made, (size_t)count);
        else memmove(target, made, (size_t)count * ir_dtype_size(type));
    }
}
