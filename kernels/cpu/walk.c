/* walk.c - strided copies, the basis of broadcasting, transposition, slicing, concat and split.
 *
 * Coordinates are computed by division once per range; from there an odometer adds strides, and the innermost dimension
 * is one loop. If the innermost dimension is contiguous on one side and another dimension on the other (a
 * transposition), the copy proceeds in square panels to use whole cache lines. */
#include "kernels/cpu/cpu.h"

#define SEGMENT(type) \
    do { \
        type *d = dst; \
        const type *s = src; \
        if (ss == 0) \
            for (int64_t i = 0; i < n; i++) d[i * ds] = *s; \
        else \
            for (int64_t i = 0; i < n; i++) d[i * ds] = s[i * ss]; \
    } while (0)

/* Copies n elements of `size` bytes with strides ss and ds, in elements. */
static void copy_segment(size_t size, void *dst, int64_t ds, const void *src, int64_t ss, int64_t n)
{
    if (ds == 1 && ss == 1 && n > 4) {
        memcpy(dst, src, (size_t)n * size);
        return;
    }
    switch (size) {
    case 1: SEGMENT(uint8_t); break;
    case 2: SEGMENT(uint16_t); break;
    case 4: SEGMENT(uint32_t); break;
    default: SEGMENT(uint64_t); break;
    }
}

typedef struct position {
    int64_t at[IR_MAX_RANK]; /* coordinates */
    int64_t src, dst;        /* offsets in elements */
} position;

static position position_of(const k_walk *w, int rank, int64_t index)
{
    position p = {.src = 0};
    for (int i = rank - 1; i >= 0; i--) {
        p.at[i] = index % w->dims[i];
        index /= w->dims[i];
        p.src += p.at[i] * w->src[i];
        p.dst += p.at[i] * w->dst[i];
    }
    return p;
}

/* Advances to the next position of the first `rank` dimensions. */
static void advance(const k_walk *w, int rank, position *p)
{
    for (int i = rank - 1; i >= 0; i--) {
        p->src += w->src[i];
        p->dst += w->dst[i];
        if (++p->at[i] < w->dims[i]) return;
        p->src -= w->src[i] * w->dims[i];
        p->dst -= w->dst[i] * w->dims[i];
        p->at[i] = 0;
    }
}

static void copy_range(const k_walk *w, size_t size, const char *src, int64_t first, int64_t n, char *dst)
{
    int inner = w->rank - 1;
    int64_t length = w->dims[inner], ss = w->src[inner], ds = w->dst[inner], bytes = (int64_t)size;
    int64_t start = first % length;
    position p = position_of(w, inner, first / length);
    while (n > 0) {
        int64_t m = k_min(length - start, n);
        copy_segment(size, dst + (p.dst + start * ds) * bytes, ds, src + (p.src + start * ss) * bytes, ss, m);
        advance(w, inner, &p);
        start = 0;
        n -= m;
    }
}

void cpu_walk_gather(const k_walk *w, size_t size, const void *src, int64_t first, int64_t n, void *dst)
{
    int inner = w->rank - 1;
    int64_t length = w->dims[inner], ss = w->src[inner], bytes = (int64_t)size, start = first % length;
    position p = position_of(w, inner, first / length);
    const char *s = src;
    char *d = dst;
    while (n > 0) {
        int64_t m = k_min(length - start, n);
        copy_segment(size, d, 1, s + (p.src + start * ss) * bytes, ss, m);
        advance(w, inner, &p);
        start = 0;
        n -= m;
        d += m * bytes;
    }
}

/* ---- transposition ---- */

enum { PANEL = 16 };

#define TRANSPOSE(type) \
    do { \
        type *d = dst; \
        const type *s = src; \
        for (int64_t i = 0; i < rows; i++) \
            for (int64_t j = 0; j < columns; j++) d[i * ds + j] = s[i + j * ss]; \
    } while (0)

/* dst[i, j] = src[j, i]; rows and columns are those of dst */
static void copy_panel(size_t size, void *dst, int64_t ds, const void *src, int64_t ss, int64_t rows, int64_t columns)
{
    switch (size) {
    case 1: TRANSPOSE(uint8_t); break;
    case 2: TRANSPOSE(uint16_t); break;
    case 4: TRANSPOSE(uint32_t); break;
    default: TRANSPOSE(uint64_t); break;
    }
}

static void copy_transposed(const k_walk *w, int row_dim, size_t size, const char *src, char *dst, const k_context *ctx,
                            int64_t total)
{
    int inner = w->rank - 1;
    k_walk outer = {.rank = 0};
    int64_t outer_count = 1;
    for (int i = 0; i < inner; i++) {
        if (i == row_dim) continue;
        outer.dims[outer.rank] = w->dims[i];
        outer.src[outer.rank] = w->src[i];
        outer.dst[outer.rank++] = w->dst[i];
        outer_count *= w->dims[i];
    }
    int64_t rows = w->dims[row_dim], columns = w->dims[inner], bands = cpu_ceil_div(rows, PANEL);
    int64_t ss = w->src[inner], ds = w->dst[row_dim], bytes = (int64_t)size;
#pragma omp parallel for num_threads(cpu_threads(ctx, total)) schedule(static)
    for (int64_t b = 0; b < outer_count * bands; b++) {
        position p = position_of(&outer, outer.rank, b / bands);
        int64_t i = b % bands * PANEL;
        for (int64_t j = 0; j < columns; j += PANEL)
            copy_panel(size, dst + (p.dst + i * ds + j) * bytes, ds, src + (p.src + i + j * ss) * bytes, ss,
                       k_min(PANEL, rows - i), k_min(PANEL, columns - j));
    }
}

void cpu_walk_copy(const k_walk *w, size_t size, const void *src, void *dst, const k_context *ctx)
{
    int64_t total = 1;
    for (int i = 0; i < w->rank; i++) total *= w->dims[i];
    if (total == 0) return;
    int row_dim = k_walk_transposed(w);
    if (row_dim >= 0) {
        copy_transposed(w, row_dim, size, src, dst, ctx, total);
        return;
    }
    enum { GRAIN = 8192 };
    int64_t grains = cpu_ceil_div(total, GRAIN);
#pragma omp parallel for num_threads(cpu_threads(ctx, total)) schedule(static)
    for (int64_t g = 0; g < grains; g++) copy_range(w, size, src, g * GRAIN, k_min(GRAIN, total - g * GRAIN), dst);
}
