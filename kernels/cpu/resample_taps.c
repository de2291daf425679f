/* resample_taps.c - tables of resized axes, and the rows of nearest neighbours. */
#include "kernels/cpu/resample.h"

#include <stdlib.h>

/* A table with the taps of each result next to each other. */
typedef struct rows {
    int64_t count;
    int taps;
    int32_t *starts, *counts;
    double *weights; /* [count][taps] */
} rows;

static void rows_free(rows *r)
{
    free(r->starts);
    free(r->counts);
    free(r->weights);
}

static bool rows_make(int64_t count, int taps, rows *r)
{
    *r = (rows){.count = count, .taps = taps};
    r->starts = malloc((size_t)count * sizeof *r->starts + 1);
    r->counts = malloc((size_t)count * sizeof *r->counts + 1);
    r->weights = calloc((size_t)count * (size_t)taps + 1, sizeof *r->weights);
    if (r->starts && r->counts && r->weights) return true;
    rows_free(r);
    return false;
}

static bool forward_rows(const resample_axis *a, rows *r)
{
    if (!rows_make(a->out, a->taps, r)) return false;
    for (int64_t o = 0; o < a->out; o++) {
        const resample_range range = resample_range_of(a, o);
        const double divisor = resample_divisor(a, &range);
        r->starts[o] = (int32_t)range.start;
        r->counts[o] = range.clear ? 0 : range.count;
        for (int t = 0; t < range.count; t++) r->weights[o * a->taps + t] = resample_weight(a, &range, divisor, t);
    }
    return true;
}

static bool transpose_rows(const resample_axis *a, const rows *forward, rows *r)
{
    int most = 1, count;
    for (int64_t i = 0; i < a->in; i++) {
        resample_users(a, forward->starts, i, &count);
        if (count > most) most = count;
    }
    if (!rows_make(a->in, most, r)) return false;
    for (int64_t i = 0; i < a->in; i++) {
        const int64_t first = resample_users(a, forward->starts, i, &r->counts[i]);
        r->starts[i] = (int32_t)first;
        for (int t = 0; t < r->counts[i]; t++) {
            const int64_t tap = i - forward->starts[first + t];
            if (tap < forward->counts[first + t])
                r->weights[i * most + t] = forward->weights[(first + t) * forward->taps + tap];
        }
    }
    return true;
}

static void set_weight(cpu_taps *t, ir_dtype carrier, int64_t at, double weight)
{
    if (carrier == IR_f64) ((double *)t->weights)[at] = weight;
    else ((float *)t->weights)[at] = (float)weight;
}

static void spread_row(const rows *r, int64_t o, ir_dtype carrier, cpu_taps *t)
{
    const int count = r->counts[o];
    const int32_t near = (int32_t)k_min(r->starts[o], t->in - 1);
    double rest = count ? r->weights[o * r->taps + count - 1] : 0;
    for (int k = 0; k < r->taps; k++) {
        const bool last = k >= count - 1;
        if (last && k < r->taps - 1) rest /= 2; /* exact, so that the sum is, too */
        t->index[k * r->count + o] = count ? r->starts[o] + (last ? count - 1 : k) : near;
        set_weight(t, carrier, k * r->count + o, last ? rest : r->weights[o * r->taps + k]);
    }
}

static int64_t factor_of(const cpu_taps *t)
{
    const int64_t factor = t->in && t->out % t->in == 0 ? t->out / t->in : 0;
    for (int64_t o = 0; o < t->out && factor; o++)
        if (t->index[o] != o / factor || !t->counts[o]) return 0;
    return factor;
}

/* Moves the counts from the rows into the table. */
static bool spread_rows(rows *r, int64_t in, ir_dtype carrier, cpu_taps *t)
{
    const size_t cells = (size_t)r->count * (size_t)r->taps;
    *t = (cpu_taps){.in = in, .out = r->count, .taps = r->taps};
    t->index = malloc(cells * sizeof *t->index + 1);
    t->weights = malloc(cells * ir_dtype_size(carrier) + 1);
    if (!t->index || !t->weights) return false;
    for (int64_t o = 0; o < r->count; o++) {
        spread_row(r, o, carrier, t);
        t->clears |= r->counts[o] == 0;
    }
    t->counts = r->counts;
    r->counts = NULL;
    t->factor = factor_of(t);
    return true;
}

bool cpu_taps_make(const resample_axis *a, bool backward, ir_dtype carrier, cpu_taps *out)
{
    rows forward, transposed = {0};
    if (!forward_rows(a, &forward)) return false;
    bool made = !backward || transpose_rows(a, &forward, &transposed);
    if (made) made = spread_rows(backward ? &transposed : &forward, backward ? a->out : a->in, carrier, out);
    rows_free(&forward);
    rows_free(&transposed);
    return made;
}

void cpu_taps_free(cpu_taps *t)
{
    free(t->counts);
    free(t->index);
    free(t->weights);
}

/* ---- nearest ---- */

#define SELECT_ROW(T) \
    CPU_CLONES static void select_##T(const cpu_taps *t, const T *x, T *y) \
    { \
        if (t->factor == 2) { \
            for (int64_t i = 0; i < t->in; i++) y[2 * i] = y[2 * i + 1] = x[i]; \
            return; \
        } \
        for (int64_t o = 0; o < t->out; o++) y[o] = x[t->index[o]]; \
    }
SELECT_ROW(uint8_t)
SELECT_ROW(uint16_t)
SELECT_ROW(uint32_t)
SELECT_ROW(uint64_t)

static void select_blocks(const cpu_taps *t, size_t size, const void *x, void *y)
{
    for (int64_t o = 0; o < t->out; o++)
        memcpy((char *)y + (size_t)o * size, (const char *)x + (size_t)t->index[o] * size, size);
}

void cpu_select_row(const cpu_taps *t, size_t block, const void *x, void *y, const void *outside, size_t size)
{
    switch (block) {
    case 1: select_uint8_t(t, x, y); break;
    case 2: select_uint16_t(t, x, y); break;
    case 4: select_uint32_t(t, x, y); break;
    case 8: select_uint64_t(t, x, y); break;
    default: select_blocks(t, block, x, y);
    }
    for (int64_t o = 0; o < t->out && t->clears; o++)
        for (size_t at = 0; at < block && !t->counts[o]; at += size)
            memcpy((char *)y + (size_t)o * block + at, outside, size);
}
