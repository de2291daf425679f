/* nms.c - non-maximum suppression: greedy choice of boxes that overlap little, for each batch and class.
 *
 * The candidates of a class are kept in a heap, so that only those that are considered are sorted. The chosen rows of
 * each class are stored at a fixed place and moved together at the end. */
#include "kernels/cpu/cpu.h"
#include "ir/ops/real.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#define REAL float
#include "kernels/cpu/nms_body.h"
#undef REAL
#define REAL double
#include "kernels/cpu/nms_body.h"
#undef REAL

typedef struct nms_shape {
    int64_t batches, classes, boxes, limit; /* limit: rows per batch and class in the result */
    ir_dtype carrier;
} nms_shape;

static nms_shape shape_of(const k_args *args)
{
    const k_view *boxes = &args->in[IR_IN(nms, boxes)], *scores = &args->in[IR_IN(nms, scores)];
    return (nms_shape){boxes->dims[0], scores->dims[1], boxes->dims[1], args->attr[IR_ATTR(nms, limit)].list.items[0],
                       cpu_carrier(boxes->dtype)};
}

/* The workspace: all boxes as corners, all scores in the carrier, the number of rows per class, a heap per thread. */
typedef struct nms_space {
    size_t corners, scores, counts, heap;
} nms_space;

static nms_space space_of(const nms_shape *s)
{
    const size_t size = ir_dtype_size(s->carrier), pairs = (size_t)(s->batches * s->classes), boxes = (size_t)s->boxes;
    return (nms_space){.corners = cpu_lines((size_t)s->batches * boxes * 5 * size),
                       .scores = cpu_lines(pairs * boxes * size),
                       .counts = cpu_lines(pairs * sizeof(int64_t)),
                       .heap = cpu_lines(boxes * sizeof(int64_t))};
}

static ampc_status nms_prepare(const k_args *args, void **state, size_t *workspace)
{
    const nms_shape s = shape_of(args);
    const nms_space space = space_of(&s);
    (void)state;
    *workspace = space.corners + space.scores + space.counts + (size_t)args->ctx->threads * space.heap;
    return AMPC_OK;
}

/* Operand i, which may be absent, as a number. */
static double number(const k_args *args, int i, double absent)
{
    return i < args->n_in ? cpu_scalar(&args->in[i], absent) : absent;
}

static int64_t most_rows(const k_args *args, const nms_shape *s)
{
    const int i = IR_IN(nms, max);
    if (i >= args->n_in || !cpu_is_used(&args->in[i])) return s->limit;
    const int64_t most = ir_load_i64(args->in[i].dtype, args->in[i].data);
    return k_max(0, k_min(most, s->limit));
}

static void find_corners(const k_args *args, const nms_shape *s, void *corners)
{
    const k_view *boxes = &args->in[IR_IN(nms, boxes)];
    const bool center = args->attr[IR_ATTR(nms, center)].i;
    const int64_t n = s->batches * s->boxes;
    enum { TILE = CPU_TILE / 4 };
    for (int64_t first = 0; first < n; first += TILE) {
        cpu_tile tile;
        const int64_t count = k_min(TILE, n - first);
        const void *from = cpu_tile_load(boxes, first * 4, count * 4, s->carrier, &tile);
        if (s->carrier == IR_f64) find_corners_double(from, count, center, (corners_double *)corners + first);
        else find_corners_float(from, count, center, (corners_float *)corners + first);
    }
}

static void load_scores(const k_args *args, const nms_shape *s, void *scores)
{
    const k_view *from = &args->in[IR_IN(nms, scores)];
    const size_t size = ir_dtype_size(s->carrier);
    for (int64_t first = 0, n = k_count(from); first < n; first += CPU_TILE) {
        char *to = (char *)scores + (size_t)first * size;
        const int64_t count = k_min(CPU_TILE, n - first);
        const void *values = cpu_tile_load(from, first, count, s->carrier, to);
        if (values != to) memcpy(to, values, (size_t)count * size);
    }
}

/* Moves the rows of all classes together; returns their number. */
static int64_t join_rows(const nms_shape *s, const int64_t *counts, int64_t *rows)
{
    int64_t all = 0;
    for (int64_t pair = 0; pair < s->batches * s->classes; pair++) {
        memmove(rows + all * 3, rows + pair * s->limit * 3, (size_t)counts[pair] * 3 * sizeof *rows);
        all += counts[pair];
    }
    return all;
}

static ampc_status nms_run(const k_args *args)
{
    const nms_shape s = shape_of(args);
    const nms_space space = space_of(&s);
    const k_view *selected = &args->out[0], *count = cpu_result(args, IR_OUT(nms, count));
    const int64_t pairs = s.batches * s.classes, most = most_rows(args, &s), bound = pairs * s.limit;
    const double iou = number(args, IR_IN(nms, iou), 0), score = number(args, IR_IN(nms, score), -INFINITY);
    const bool filters = IR_IN(nms, score) < args->n_in && cpu_is_used(&args->in[IR_IN(nms, score)]);
    char *corners = args->workspace, *scores = corners + space.corners, *counts = scores + space.scores;
    char *heaps = counts + space.counts;
    int64_t *rows = selected->data;
    if (bound > 0) {
        find_corners(args, &s, corners);
        load_scores(args, &s, scores);
    }
#pragma omp parallel for num_threads(cpu_threads(args->ctx, bound ? pairs *s.boxes : 0)) schedule(dynamic, 1)
    for (int64_t pair = 0; pair < (bound ? pairs : 0); pair++) {
        const nms_pair p = {.batch = pair / s.classes,
                            .class = pair % s.classes,
                            .boxes = s.boxes,
                            .most = most,
                            .iou = iou,
                            .score = score,
                            .filters = filters,
                            .heap = (int64_t *)(heaps + (size_t)omp_get_thread_num() * space.heap),
                            .rows = rows + pair * s.limit * 3};
        ((int64_t *)counts)[pair] = s.carrier == IR_f64 ? choose_double(&p, corners, (double *)scores + pair * s.boxes)
                                                        : choose_float(&p, corners, (float *)scores + pair * s.boxes);
    }
    const int64_t all = bound ? join_rows(&s, (int64_t *)counts, rows) : 0;
    memset(rows + all * 3, 0, (size_t)(bound - all) * 3 * sizeof *rows);
    if (cpu_is_used(count)) *(int64_t *)count->data = all;
    return AMPC_OK;
}

const k_kernel cpu_nms = {.prepare = nms_prepare, .run = nms_run};
