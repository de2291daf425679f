/* resample.c - launches of resize and its gradient.
 *
 * The workspace has the tables of the axes, which the first launches fill, and f32 tensors between launches if the axes
 * need several: the innermost ones are resized first. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/inner.h"
#include "kernels/cuda/resample.h"

#include <stdlib.h>

_Static_assert((int)RESAMPLE_AXES == (int)IR_MAX_RANK, "an entry for each axis");

/* One launch: it resizes axes [first, end) of the form in resizing.h. */
typedef struct group {
    int first, end;
} group;

typedef struct state {
    cudaKernel_t fill, transpose, resize;
    resizing r;
    int taps[IR_MAX_RANK]; /* per result, in the op's own direction */
    group groups[IR_MAX_RANK];
    int n_groups;
    size_t tables;  /* bytes */
    size_t between; /* bytes of each of the two tensors between launches */
} state;

/* ---- preparing ---- */

/* The largest number of outputs that use an input. */
static ampc_status count_users(const k_args *args, const resample_axis *a, int *most)
{
    int *starts = malloc((size_t)a->out * sizeof *starts + 1), count;
    if (!starts) return cuda_fail(args->ctx, AMPC_NO_MEMORY, "out of memory");
    for (int64_t o = 0; o < a->out; o++) starts[o] = (int)resample_range_of(a, o).start;
    *most = 1;
    for (int64_t i = 0; i < a->in; i++) {
        resample_users(a, starts, i, &count);
        if (count > *most) *most = count;
    }
    free(starts);
    return AMPC_OK;
}

static size_t table_bytes(int64_t out, int taps)
{
    return 2 * cuda_aligned((size_t)out * sizeof(int)) + cuda_aligned((size_t)out * (size_t)taps * sizeof(float));
}

static ampc_status measure_axis(const k_args *args, state *s, int i)
{
    const resizing_axis *a = &s->r.axes[i];
    if (!a->resized) return AMPC_OK;
    if (a->in > INT32_MAX || a->out > INT32_MAX)
        return cuda_fail(args->ctx, AMPC_UNSUPPORTED, "an axis has 2^31 elements or more");
    s->taps[i] = a->axis.taps;
    s->tables += table_bytes(a->axis.out, a->axis.taps);
    if (!s->r.backward) return AMPC_OK;
    CUDA_FORWARD(count_users(args, &a->axis, &s->taps[i]));
    s->tables += table_bytes(a->axis.in, s->taps[i]);
    return AMPC_OK;
}

/* The elements of the tensor after the launch that resizes the axes from `first` on. */
static size_t numbers_after(const state *s, int first)
{
    size_t n = 1;
    for (int i = 0; i < s->r.rank; i++) n *= (size_t)(i < first ? s->r.axes[i].in : s->r.axes[i].out);
    return n;
}

static void divide_axes(state *s, size_t size)
{
    for (int end = s->r.rank; end > 0;) {
        int first = end, n = 0;
        int64_t taps = 1;
        while (first > 0) {
            const bool resized = s->r.axes[first - 1].resized;
            if (resized && n > 0 && (n == RESAMPLE_GROUP || taps * s->taps[first - 1] > RESAMPLE_MAX_TAPS)) break;
            first--;
            if (resized) taps *= s->taps[first], n++;
        }
        s->groups[s->n_groups++] = (group){first, end};
        if (first > 0 && numbers_after(s, first) * size > s->between) s->between = numbers_after(s, first) * size;
        end = first;
    }
    s->between = s->n_groups > 1 ? cuda_aligned(s->between) : 0;
}

static bool is_integer(const k_args *args) { return !ir_dtype_is_float(args->out[0].dtype); }

static ampc_status prepare(const k_args *args, void **out, size_t *workspace)
{
    const k_view *x = &args->in[0];
    CUDA_FORWARD(cuda_new_state(args, sizeof(state), out));
    state *s = *out;
    if (k_count(&args->out[0]) == 0) return AMPC_OK;
    if (k_count(x) == 0 && args->op == IR_OP_resize)
        return cuda_fail(args->ctx, AMPC_REJECTED, "an axis has no elements to resize");
    s->r = resizing_of(args);
    for (int i = 0; i < s->r.rank && k_count(x); i++) CUDA_FORWARD(measure_axis(args, s, i));
    divide_axes(s, is_integer(args) ? ir_dtype_size(x->dtype) : sizeof(float));
    *workspace = s->tables + 2 * s->between;
    CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_resample, "resample_fill", &s->fill));
    CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_resample, "resample_transpose", &s->transpose));
    return cuda_find(args->ctx, CUDA_FAMILY_resample, is_integer(args) ? "resample_integer" : "resample_float",
                     &s->resize);
}

/* ---- running ---- */

static resample_taps place_table(char **at, int64_t out, int taps)
{
    const size_t list = cuda_aligned((size_t)out * sizeof(int));
    const resample_taps t = {.starts = (int *)*at,
                             .counts = (int *)(*at + list),
                             .weights = (float *)(*at + 2 * list),
                             .out = out,
                             .taps = taps};
    *at += table_bytes(out, taps);
    return t;
}

/* Places the tables; own[i] is the table of axis i in the op's direction. */
static void place_tables(const k_args *args, resample_tables *t, resample_taps *own)
{
    const state *s = args->state;
    char *at = args->workspace;
    for (int i = 0; i < s->r.rank; i++) {
        const resizing_axis *a = &s->r.axes[i];
        if (!a->resized) continue;
        t->axes[t->n] = a->axis;
        own[i] = t->forward[t->n] = place_table(&at, a->axis.out, a->axis.taps);
        if (s->r.backward) own[i] = t->users[t->n] = place_table(&at, a->axis.in, s->taps[i]);
        t->n++;
    }
}

static ampc_status fill_tables(const k_args *args, resample_tables *t)
{
    const state *s = args->state;
    int64_t entries = 0, users = 0;
    for (int i = 0; i < t->n; i++) {
        entries += t->forward[i].out;
        users += t->users[i].out;
    }
    CUDA_FORWARD(
        cuda_launch(args, s->fill, cuda_grid(args, entries, RESAMPLE_BLOCK), RESAMPLE_BLOCK, 0, (void *[]){t}));
    return cuda_launch(args, s->transpose, cuda_grid(args, users, RESAMPLE_BLOCK), RESAMPLE_BLOCK, 0, (void *[]){t});
}

/* The dimensions of a launch: axes after those of the group already have their result's size. */
static void set_dims(const state *s, const group *g, const resample_taps *own, resample_pass *p)
{
    int at = RESAMPLE_GROUP;
    int64_t inner = 1;
    for (int i = g->end; i < s->r.rank; i++) inner *= s->r.axes[i].out;
    for (int i = g->end - 1; i >= g->first; i--) {
        const resizing_axis *a = &s->r.axes[i];
        if (a->resized) p->dims[--at] = (resample_dim){.taps = own[i], .in = a->in, .inner = inner}, inner = 1;
        else inner *= a->out;
    }
    /* the copied axes before the group are the first dimension */
    for (int i = g->first - 1; i >= 0; i--) inner *= s->r.axes[i].in;
    while (at > 0) p->dims[--at] = (resample_dim){.taps = {.out = 1}, .in = 1, .inner = inner}, inner = 1;
}

static ampc_status run_group(const k_args *args, int number, const resample_taps *own, const void *from, void *to)
{
    const state *s = args->state;
    const bool first = number == 0, last = number == s->n_groups - 1, integer = is_integer(args);
    int64_t stored = 0;
    const double outside = s->r.backward ? 0 : args->attr[IR_ATTR(resize, outside)].f;
    resample_pass p = {.x = from,
                       .y = to,
                       .x_dtype = first || integer ? (int)args->in[0].dtype : IR_f32,
                       .y_dtype = last || integer ? (int)args->out[0].dtype : IR_f32,
                       .outside = (float)outside,
                       .count = (int64_t)numbers_after(s, s->groups[number].first)};
    if (integer) ir_convert(args->out[0].dtype, &stored, IR_f64, &outside, 1);
    if (integer) ir_convert(IR_i64, &p.outside_integer, args->out[0].dtype, &stored, 1);
    set_dims(s, &s->groups[number], own, &p);
    return cuda_launch(args, s->resize, cuda_grid(args, p.count, RESAMPLE_BLOCK), RESAMPLE_BLOCK, 0, (void *[]){&p});
}

static ampc_status run(const k_args *args)
{
    const state *s = args->state;
    const k_view *x = &args->in[0], *y = &args->out[0];
    resample_tables tables = {0};
    resample_taps own[IR_MAX_RANK] = {{0}};
    if (k_count(y) == 0) return AMPC_OK;
    if (k_count(x) == 0)
        return cuda_status(args->ctx, cuda.cudaMemsetAsync(y->data, 0, k_bytes(y), cuda_of(args->ctx)->stream),
                           "cudaMemsetAsync");
    place_tables(args, &tables, own);
    CUDA_FORWARD(fill_tables(args, &tables));
    const void *from = x->data;
    for (int i = 0; i < s->n_groups; i++) {
        char *to = (char *)args->workspace + s->tables + (i % 2 ? s->between : 0);
        if (i == s->n_groups - 1) to = y->data;
        CUDA_FORWARD(run_group(args, i, own, from, to));
        from = to;
    }
    return AMPC_OK;
}

const k_kernel cuda_resize = {.prepare = prepare, .run = run, .release = cuda_release};
const k_kernel cuda_resize_grad = {.prepare = prepare, .run = run, .release = cuda_release};
