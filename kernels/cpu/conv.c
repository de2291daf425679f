/* conv.c - convolution and its two gradients: 1 to 3 spatial axes, groups, strides, dilations, any pads.
 *
 * oneDNN runs on the layouts it prefers, blocks of 16 channels: reorders between these and NCHW cost 2 to 15 % of the
 * time, but the primitive is 1.6 to 3 times faster. Only the gradient of an x with few channels stays plain. In NHWC,
 * images are used without a reorder wherever there is optimised code for that, and only w is reordered. f64 has its own
 * loops: one row of y with one row of x for each tap of w. */
#include "kernels/convolution.h"
#include "kernels/cpu/onednn.h"

#include <string.h>

/* ---- f64 ------------------------------------------------------------------------------------- */

static int64_t volume(const int64_t *v) { return v[0] * v[1] * v[2]; }

/* The positions [first, end) of y along an axis for which tap k is inside x. */
static void valid_range(const conv_geometry *g, int axis, int64_t k, int64_t *first, int64_t *end)
{
    int64_t shift = k * g->dilation[axis] - g->before[axis], stride = g->stride[axis];
    *first = shift >= 0 ? 0 : cpu_ceil_div(-shift, stride);
    *end = g->x[axis] - shift <= 0 ? 0 : k_min(g->y[axis], cpu_ceil_div(g->x[axis] - shift, stride));
}

/* A view [outer, channels, points] in f64, and the strides of its dimensions. */
typedef struct planes {
    double *data;
    int64_t outer, channel, point;
} planes;

static planes planes_of(const k_view *v, double *data, const int64_t *points)
{
    int64_t channels = v->dims[1], area = volume(points);
    return v->channels_last ? (planes){data, channels * area, 1, channels} : (planes){data, channels * area, area, 1};
}

static double *plane_at(const planes *p, int64_t outer, int64_t channel)
{
    return p->data + outer * p->outer + channel * p->channel;
}

/* Processes one row of y, one row of x and one tap. The strides are `step` in y and `stride` in x. */
static void tap_row(conv_kind kind, double *y, int64_t step, double *x, int64_t stride, double *w, int64_t count)
{
    double sum = 0;
    switch (kind) {
    case CONV_FORWARD:
        for (int64_t i = 0; i < count; i++) y[i * step] += *w * x[i * stride];
        break;
    case CONV_GRAD_INPUT:
        for (int64_t i = 0; i < count; i++) x[i * stride] += *w * y[i * step];
        break;
    case CONV_GRAD_WEIGHT:
        for (int64_t i = 0; i < count; i++) sum += y[i * step] * x[i * stride];
        *w += sum;
        break;
    }
}

/* The operands of a convolution in f64. */
typedef struct sums {
    planes x, w, y;
} sums;

/* Processes one channel image each of y and x, and one kernel image of w; y, x and w are their first elements. */
static void tap_image(const conv_geometry *g, conv_kind kind, const sums *s, double *y, double *x, double *w)
{
    int64_t k[3], first[3], end[3];
    for (int64_t tap = 0; tap < volume(g->k); tap++) {
        k[0] = tap / (g->k[1] * g->k[2]), k[1] = tap / g->k[2] % g->k[1], k[2] = tap % g->k[2];
        for (int i = 0; i < 3; i++) valid_range(g, i, k[i], &first[i], &end[i]);
        int64_t from[3]; /* position of x at this tap for the first position of y */
        for (int i = 0; i < 3; i++) from[i] = first[i] * g->stride[i] + k[i] * g->dilation[i] - g->before[i];
        for (int64_t d = first[0]; d < end[0]; d++)
            for (int64_t h = first[1]; h < end[1]; h++) {
                int64_t xd = from[0] + (d - first[0]) * g->stride[0], xh = from[1] + (h - first[1]) * g->stride[1];
                double *row_y = y + ((d * g->y[1] + h) * g->y[2] + first[2]) * s->y.point;
                double *row_x = x + ((xd * g->x[1] + xh) * g->x[2] + from[2]) * s->x.point;
                if (end[2] > first[2])
                    tap_row(kind, row_y, s->y.point, row_x, g->stride[2] * s->x.point, w + tap * s->w.point,
                            end[2] - first[2]);
            }
    }
}

/* Computes result image `task`, summing over `inner`. Each kind derives the indices of its operands from those of its
 * result, so no two tasks write the same image. */
static void convolve_task(const conv *c, int64_t task, const sums *s)
{
    const conv_geometry *g = &c->g;
    int64_t channels = g->groups * g->c, filters = g->groups * g->m;
    int64_t inner = c->kind == CONV_FORWARD ? g->c : c->kind == CONV_GRAD_INPUT ? g->m : g->n;
    for (int64_t i = 0; i < inner; i++) {
        int64_t n, channel, filter;
        if (c->kind == CONV_FORWARD) {
            n = task / filters, filter = task % filters, channel = filter / g->m * g->c + i;
        } else if (c->kind == CONV_GRAD_INPUT) {
            n = task / channels, channel = task % channels, filter = channel / g->c * g->m + i;
        } else {
            n = i, filter = task / g->c, channel = filter / g->m * g->c + task % g->c;
        }
        tap_image(g, c->kind, s, plane_at(&s->y, n, filter), plane_at(&s->x, n, channel),
                  plane_at(&s->w, filter, channel % g->c));
    }
}

/* Computes dbias where no oneDNN primitive does. */
static void sum_bias(const conv *c)
{
    const int64_t filters = c->g.groups * c->g.m, size = volume(c->g.y);
    const planes dy = planes_of(c->y, NULL, c->g.y);
    for (int64_t filter = 0; filter < filters; filter++) {
        double sum = 0;
        for (int64_t n = 0; n < c->g.n; n++)
            for (int64_t i = 0; i < size; i++)
                sum += ir_load_f64(c->y->dtype, cpu_at(c->y, n * dy.outer + filter * dy.channel + i * dy.point));
        ir_store_f64(c->bias->dtype, cpu_at(c->bias, filter), sum);
    }
}

/* The number of consecutive elements of the result that belong to the same channel. */
static int64_t channel_inner(const conv *c)
{
    return c->kind != CONV_FORWARD || c->y->channels_last ? 1 : volume(c->g.y); /* gradients add no bias */
}

static void run_f64(const conv *c, void *workspace, const k_context *ctx)
{
    const k_view *result = conv_result(c), absent = {0};
    bool direct = result->dtype == IR_f64;
    k_view sum = *result;
    sum.dtype = IR_f64;
    if (!direct) sum.data = workspace;
    cpu_fill_bias(&sum, c->kind == CONV_FORWARD && c->bias ? c->bias : &absent, channel_inner(c));
    const sums s = {
        .x = planes_of(c->x, c->kind == CONV_GRAD_INPUT ? sum.data : c->x->data, c->g.x),
        .w = planes_of(c->w, c->kind == CONV_GRAD_WEIGHT ? sum.data : c->w->data, c->g.k),
        .y = planes_of(c->y, c->kind == CONV_FORWARD ? sum.data : c->y->data, c->g.y),
    };
    int64_t tasks = result->dims[0] * result->dims[1];
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t task = 0; task < tasks; task++) convolve_task(c, task, &s);
    if (!direct) cpu_convert(result->dtype, result->data, IR_f64, sum.data, k_count(result));
    if (c->kind == CONV_GRAD_WEIGHT && c->bias) sum_bias(c);
}

/* ---- oneDNN ---------------------------------------------------------------------------------- */

/* The argument numbers of the operands in each of the three primitives. */
static const struct {
    int x, w, bias, y;
} names[] = {
    [CONV_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST},
    [CONV_GRAD_INPUT] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DIFF_DST},
    [CONV_GRAD_WEIGHT] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS, DNNL_ARG_DIFF_DST},
};

/* `channel` is the axis of the channels, which has stride 1 in NHWC. */
static dnnl_status_t describe_view(cpu_operand *o, const k_view *v, int channel, int arg, bool result,
                                   dnnl_data_type_t type)
{
    dnnl_dims_t dims, strides;
    int64_t stride = 1;
    if (v->channels_last) {
        strides[channel] = 1;
        stride = v->dims[channel];
    }
    for (int i = v->rank - 1; i >= 0; i--) {
        dims[i] = v->dims[i];
        if (v->channels_last && i == channel) continue;
        strides[i] = stride;
        stride *= v->dims[i];
    }
    *o = (cpu_operand){.arg = arg, .result = result, .dtype = v->dtype};
    return cpu_dnnl.memory_desc_init_by_strides(&o->desc, v->rank, dims, type, strides);
}

/* w as oneDNN expects it: [groups, M, C, kernel] if there is more than one group. */
static k_view grouped(const conv *c)
{
    k_view w = *c->w;
    if (c->g.groups == 1) return w;
    w.rank++;
    memmove(&w.dims[1], &w.dims[0], (size_t)(w.rank - 1) * sizeof w.dims[0]);
    w.dims[0] = c->g.groups;
    w.dims[1] = c->g.m;
    return w;
}

static dnnl_status_t describe_operands(const conv *c, bool low, cpu_operand *o, int *n)
{
    const k_view *result = conv_result(c);
    k_view w = grouped(c);
    *n = c->bias ? 4 : 3;
    dnnl_status_t status = describe_view(&o[0], c->x, 1, names[c->kind].x, c->x == result,
                                         cpu_dnnl_type(c->x->dtype, low));
    if (status == dnnl_success)
        status = describe_view(&o[1], &w, w.rank - c->g.spatial - 1, names[c->kind].w, c->w == result,
                               cpu_dnnl_type(w.dtype, low));
    if (status == dnnl_success)
        status = describe_view(&o[2], c->y, 1, names[c->kind].y, c->y == result, cpu_dnnl_type(c->y->dtype, low));
    if (status == dnnl_success && c->bias)
        status = describe_view(&o[3], c->bias, 0, names[c->kind].bias, c->kind == CONV_GRAD_WEIGHT,
                               cpu_dnnl_type(c->bias->dtype, low));
    return status;
}

/* ---- bugs of oneDNN -------------------------------------------------------------------------- */

static int64_t window(const conv_geometry *g, int axis) { return (g->k[axis] - 1) * g->dilation[axis] + 1; }

/* The number of positions by which the last window extends beyond the end of x. */
static int64_t beyond(const conv_geometry *g, int axis)
{
    return (g->y[axis] - 1) * g->stride[axis] - g->before[axis] + window(g, axis) - g->x[axis];
}

/* If a window is larger than x, or a strided window extends beyond the end of the depth, the code misplaces rows of the
 * sum: they are written before the scratchpad and missing in dw. The bf16 code does so for more shapes than the f32
 * code. If a row of x is shorter than the stride, it is multiplied by stale contents of the scratchpad. */
static bool overruns(const conv_geometry *g)
{
    int width = g->spatial - 1;
    if (g->stride[width] > g->x[width]) return true;
    if (g->spatial < 3) return false;
    return window(g, 0) > g->x[0] || window(g, 1) > g->x[1] || (g->stride[0] > 1 && beyond(g, 0) > 0);
}

/* The code copies the points that a strided window reads, and in NHWC this copy overflows the scratchpad if the
 * channels do not fill whole vectors. */
static bool copies_too_much(const conv_geometry *g)
{
    bool strided = g->stride[0] > 1 || g->stride[1] > 1 || g->stride[2] > 1;
    return strided && g->c % 16 != 0;
}

/* In NHWC channels are processed in pairs; the last of an odd number is paired with the next point. */
static bool is_odd(const conv_geometry *g) { return g->m % 2 != 0; }

/* Code of oneDNN 2.6 that accesses memory outside of its buffers or computes wrong numbers for shapes for which `hits`
 * returns true; `code` is a prefix of its name. The rules cover all failures found with random shapes between guard
 * zones, and some more. */
static const struct fault {
    const char *code;
    conv_kind kind;
    bool last; /* only in NHWC */
    bool (*hits)(const conv_geometry *g);
} faults[] = {
    {"jit_bf16:", CONV_GRAD_WEIGHT, false, overruns},           {"jit:avx512", CONV_GRAD_WEIGHT, false, overruns},
    {"jit_bf16_1x1:", CONV_GRAD_WEIGHT, true, copies_too_much}, {"jit_1x1:", CONV_GRAD_WEIGHT, true, copies_too_much},
    {"jit_bf16_1x1:", CONV_GRAD_INPUT, true, is_odd},
};

static bool is_faulty(const char *code, const void *what)
{
    const conv *c = what;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const struct fault *f = &faults[i];
        if (f->kind == c->kind && (!f->last || c->x->channels_last) && strncmp(code, f->code, strlen(f->code)) == 0 &&
            f->hits(&c->g))
            return true;
    }
    return false;
}

/* ---- oneDNN's descriptors -------------------------------------------------------------------- */

/* In which type a convolution is computed, and in which layouts. */
typedef struct way {
    bool low;  /* in bf16, else f32 */
    bool fast; /* no reference code */
    enum {
        ACTUAL, /* x and y in the layout of their views, w as oneDNN prefers it */
        ANY,    /* all as oneDNN prefers them */
        NCHW,   /* all in NCHW order */
    } layout;
} way;

/* The descriptors of the operands, some in a layout that oneDNN may choose, and the geometry of the windows. */
typedef struct description {
    dnnl_memory_desc_t x, w, bias, y;
    dnnl_dims_t stride, dilation, before, after;
    bool has_bias;
} description;

static dnnl_status_t set_layout(dnnl_memory_desc_t *to, const dnnl_memory_desc_t *from, bool plain)
{
    static const dnnl_format_tag_t plain_tags[] = {
        [3] = dnnl_abc, [4] = dnnl_abcd, [5] = dnnl_abcde, [6] = dnnl_abcdef};
    return cpu_dnnl.memory_desc_init_by_tag(to, from->ndims, from->dims, from->data_type,
                                            plain ? plain_tags[from->ndims] : dnnl_format_tag_any);
}

static dnnl_status_t describe_windows(const conv *c, way w, const cpu_operand *o, int n, description *d)
{
    for (int i = 0; i < c->g.spatial; i++) {
        d->stride[i] = c->g.stride[i];
        d->dilation[i] = c->g.dilation[i] - 1;
        d->before[i] = c->g.before[i];
        d->after[i] = c->g.after[i];
    }
    d->x = o[0].desc;
    d->y = o[2].desc;
    d->has_bias = n == 4;
    if (d->has_bias) d->bias = o[3].desc;
    dnnl_status_t status = set_layout(&d->w, &o[1].desc, w.layout == NCHW);
    if (status == dnnl_success && w.layout != ACTUAL) status = set_layout(&d->x, &o[0].desc, w.layout == NCHW);
    return status == dnnl_success && w.layout != ACTUAL ? set_layout(&d->y, &o[2].desc, w.layout == NCHW) : status;
}

static dnnl_status_t describe_forward(const conv *c, const description *d, bool fast, const k_context *ctx,
                                      dnnl_primitive_desc_t *pd)
{
    dnnl_convolution_desc_t desc;
    dnnl_status_t status = cpu_dnnl.dilated_convolution_forward_desc_init(
        &desc, dnnl_forward_training, dnnl_convolution_direct, &d->x, &d->w, d->has_bias ? &d->bias : NULL, &d->y,
        d->stride, d->dilation, d->before, d->after);
    return status == dnnl_success ? cpu_dnnl_describe(&desc, NULL, fast, is_faulty, c, ctx, pd) : status;
}

static dnnl_status_t describe_backward(const conv *c, const description *d, way w, const k_context *ctx,
                                       dnnl_primitive_desc_t *pd)
{
    description forward = *d; /* the hint: the same type everywhere */
    dnnl_data_type_t type = w.low ? dnnl_bf16 : dnnl_f32;
    forward.x.data_type = forward.w.data_type = forward.y.data_type = type;
    forward.has_bias = false;
    conv hinted = *c;
    hinted.kind = CONV_FORWARD;
    dnnl_primitive_desc_t hint;
    dnnl_status_t status = describe_forward(&hinted, &forward, w.fast, ctx, &hint);
    if (status != dnnl_success) return status;
    dnnl_convolution_desc_t desc;
    if (c->kind == CONV_GRAD_INPUT)
        status = cpu_dnnl.dilated_convolution_backward_data_desc_init(
            &desc, dnnl_convolution_direct, &d->x, &d->w, &d->y, d->stride, d->dilation, d->before, d->after);
    else
        status = cpu_dnnl.dilated_convolution_backward_weights_desc_init(&desc, dnnl_convolution_direct, &d->x, &d->w,
                                                                         d->has_bias ? &d->bias : NULL, &d->y,
                                                                         d->stride, d->dilation, d->before, d->after);
    if (status == dnnl_success) status = cpu_dnnl_describe(&desc, hint, w.fast, is_faulty, c, ctx, pd);
    cpu_dnnl.primitive_desc_destroy(hint);
    return status;
}

static dnnl_status_t describe_way(const conv *c, way w, const k_context *ctx, cpu_operand *operands, int *n,
                                  dnnl_primitive_desc_t *pd)
{
    description d;
    dnnl_status_t status = describe_operands(c, w.low, operands, n);
    if (status == dnnl_success) status = describe_windows(c, w, operands, *n, &d);
    if (status != dnnl_success) return status;
    return c->kind == CONV_FORWARD ? describe_forward(c, &d, w.fast, ctx, pd) : describe_backward(c, &d, w, ctx, pd);
}

static bool is_way(const conv *c, way w)
{
    bool few = c->kind == CONV_GRAD_INPUT && c->g.groups == 1 && c->g.c < 8;
    return w.layout == NCHW ? few : w.layout == ANY ? !few : c->x->channels_last && (w.low || !few);
}

/* Selects the first way for which oneDNN has code. */
static dnnl_status_t describe_conv(const conv *c, bool low, const k_context *ctx, cpu_operand *operands, int *n,
                                   dnnl_primitive_desc_t *pd)
{
    static const way ways[] = {{true, true, ACTUAL},  {true, true, ANY},   {true, true, NCHW},
                               {false, true, ACTUAL}, {false, false, ANY}, {false, false, NCHW}};
    dnnl_status_t status = dnnl_unimplemented;
    for (size_t i = 0; i < sizeof ways / sizeof *ways && status == dnnl_unimplemented; i++)
        if ((low || !ways[i].low) && is_way(c, ways[i])) status = describe_way(c, ways[i], ctx, operands, n, pd);
    return status;
}

/* ---- the kernels ----------------------------------------------------------------------------- */

/* The size of the weight gradient at the start of the workspace, if only the bias gradient is wanted; else 0. */
static size_t spare_bytes(const conv *c)
{
    if (c->kind != CONV_GRAD_WEIGHT || cpu_is_used(c->w)) return 0;
    return (size_t)cpu_ceil_div((int64_t)k_bytes(c->w), 64) * 64;
}

static ampc_status prepare_call(const k_args *args, const conv *c, void **state, size_t *workspace)
{
    cpu_operand operands[CPU_CALL_OPERANDS];
    dnnl_primitive_desc_t pd;
    int n;
    const bool low = args->in[0].dtype == IR_bf16 && cpu_computes(IR_bf16);
    dnnl_status_t status = describe_conv(c, low, args->ctx, operands, &n, &pd);
    if (status != dnnl_success) return cpu_dnnl_fail(args->ctx, status, "describing a primitive");
    return cpu_call_make(pd, operands, n, args->ctx, (cpu_call **)state, workspace);
}

static ampc_status prepare(const k_args *args, void **state, size_t *workspace)
{
    conv c = conv_of(args);
    const k_view *result = conv_result(&c);
    size_t bytes = 0;
    ampc_status status = AMPC_OK;
    if (conv_is_empty(&c)) bytes = 0;
    else if (args->in[0].dtype != IR_f64) status = prepare_call(args, &c, state, &bytes);
    else if (result->dtype != IR_f64) bytes = (size_t)k_count(result) * sizeof(double);
    *workspace = bytes + spare_bytes(&c);
    return status;
}

static ampc_status run(const k_args *args)
{
    conv c = conv_of(args);
    char *workspace = (char *)args->workspace + spare_bytes(&c);
    k_view spare = *c.w, absent = {0};
    if (workspace != args->workspace) {
        spare.data = args->workspace;
        c.w = &spare;
    }
    if (args->state) {
        void *data[] = {c.x->data, c.w->data, c.y->data, c.bias ? c.bias->data : NULL};
        return cpu_call_run(args->state, data, workspace, args->ctx);
    }
    if (!conv_is_empty(&c)) {
        run_f64(&c, workspace, args->ctx);
        return AMPC_OK;
    }
    cpu_fill_bias(conv_result(&c), c.kind == CONV_FORWARD && c.bias ? c.bias : &absent, channel_inner(&c));
    if (c.kind == CONV_GRAD_WEIGHT && c.bias) sum_bias(&c); /* dy may have elements although x or w has none */
    return AMPC_OK;
}

const k_kernel cpu_conv = {.prepare = prepare, .run = run, .release = cpu_call_free};
const k_kernel cpu_conv_grad_input = {.prepare = prepare, .run = run, .release = cpu_call_free};
const k_kernel cpu_conv_grad_weight = {.prepare = prepare, .run = run, .release = cpu_call_free};
