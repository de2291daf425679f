/* conv.c - convolution and its two gradients: 1 to 3 spatial axes, groups, strides, dilations, any pads.
 *
 * oneDNN runs on the layouts it prefers, blocks of 16 channels: reorders between these and NCHW cost 2 to 15 % of the
 * time, but the primitive is 1.6 to 3 times faster. Only the gradient of an x with few channels stays plain. In NHWC,
 * images are used without a reorder wherever there is optimised code for that, and only w is reordered, unless it is
 * packed. Without oneDNN, and where it is faster, own code runs (conv_own.h, own_pack.h). f64 has its own loops: a row
 * of y with a row of x for each tap of w. For oneDNN, f16 is converted to f32 even if it computes in it, because its
 * code for that is half as fast. */
#include "kernels/convolution.h"
#include "kernels/cpu/conv_own.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/own_pack.h"
#include "kernels/cpu/visit.h"

#include <string.h>

/* ---- f64 ------------------------------------------------------------------------------------- */

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
    int64_t channels = v->dims[1], area = conv_volume(points);
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
    for (int64_t tap = 0; tap < conv_volume(g->k); tap++) {
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
    const int64_t filters = c->g.groups * c->g.m, size = conv_volume(c->g.y);
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
    return c->kind != CONV_FORWARD || c->y->channels_last ? 1 : conv_volume(c->g.y); /* gradients add no bias */
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
static cpu_operand operand_of(const k_view *v, int channel, int arg, bool result, bool low)
{
    cpu_operand o = {.arg = arg, .result = result, .dtype = v->dtype, .packed = v->packed};
    o.desc = (cpu_desc){.rank = v->rank, .type = cpu_dnnl_type(v->dtype, low)};
    int64_t stride = 1;
    if (v->channels_last) {
        o.desc.strides[channel] = 1;
        stride = v->dims[channel];
    }
    for (int i = v->rank - 1; i >= 0; i--) {
        o.desc.dims[i] = v->dims[i];
        if (v->channels_last && i == channel) continue;
        o.desc.strides[i] = stride;
        stride *= v->dims[i];
    }
    return o;
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

/* Returns the number of operands. */
static int list_operands(const conv *c, bool low, cpu_operand *o)
{
    const k_view *result = conv_result(c);
    const k_view w = grouped(c);
    o[0] = operand_of(c->x, 1, names[c->kind].x, c->x == result, low);
    o[1] = operand_of(&w, w.rank - c->g.spatial - 1, names[c->kind].w, c->w == result, low);
    o[2] = operand_of(c->y, 1, names[c->kind].y, c->y == result, low);
    if (c->bias) o[3] = operand_of(c->bias, 0, names[c->kind].bias, c->kind == CONV_GRAD_WEIGHT, low);
    return c->bias ? 4 : 3;
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

/* A single channel is copied to scratch memory for windows with a stride, and some of the copy is never written. */
static bool copies_too_little(const conv_geometry *g) { return g->c == 1 && g->stride[g->spatial - 1] > 1; }

/* Code of oneDNN that accesses memory outside of its buffers or computes wrong numbers for shapes for which `hits`
 * returns true; `code` is a prefix of its name. The rules cover all failures found in 2.6, 3.2 and 3.6 with random
 * shapes between guard zones, and some more. */
static const struct fault {
    int since; /* the first version, 100 * major + minor: later than the last one found without it */
    const char *code;
    conv_kind kind;
    bool last;                            /* only in NHWC */
    bool (*hits)(const conv_geometry *g); /* NULL: all shapes */
} faults[] = {
    {0, "jit_bf16:", CONV_GRAD_WEIGHT, false, overruns},
    {0, "jit:avx512", CONV_GRAD_WEIGHT, false, overruns},
    {0, "jit_bf16_1x1:", CONV_GRAD_WEIGHT, true, copies_too_much},
    {0, "jit_1x1:", CONV_GRAD_WEIGHT, true, copies_too_much},
    {0, "jit_bf16_1x1:", CONV_GRAD_INPUT, true, is_odd},
    {303, "brg_conv_fwd:", CONV_FORWARD, false, copies_too_little},
    {300, "brgconv_bwd_w:avx512_core_amx", CONV_GRAD_WEIGHT, false,
     NULL}, /* NaN where a window reads padding only, and more */
};

static bool is_faulty(const char *code, const void *what)
{
    const conv *c = what;
    const dnnl_version_t *v = cpu_dnnl.version();
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const struct fault *f = &faults[i];
        if (v->major * 100 + v->minor >= f->since && f->kind == c->kind && (!f->last || c->x->channels_last) &&
            strncmp(code, f->code, strlen(f->code)) == 0 && (!f->hits || f->hits(&c->g)))
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

/* In NCHW order, or as oneDNN prefers it. */
static cpu_desc laid_out(const cpu_desc *from, bool plain)
{
    cpu_desc to = *from;
    int64_t stride = 1;
    to.any = !plain;
    for (int i = to.rank - 1; i >= 0; i--) {
        to.strides[i] = stride;
        stride *= to.dims[i];
    }
    return to;
}

static cpu_primitive primitive_of(const conv *c, way w, const cpu_operand *o, int n)
{
    static const cpu_primitive_kind kinds[] = {
        [CONV_FORWARD] = CPU_CONV, [CONV_GRAD_INPUT] = CPU_CONV_GRAD_INPUT, [CONV_GRAD_WEIGHT] = CPU_CONV_GRAD_WEIGHT};
    const bool moves = w.layout != ACTUAL, plain = w.layout == NCHW;
    cpu_primitive p = {.kind = kinds[c->kind], .fast = w.fast, .faulty = is_faulty, .what = c};
    p.x = moves ? laid_out(&o[0].desc, plain) : o[0].desc;
    p.w = laid_out(&o[1].desc, plain);
    if (o[1].packed) p.w.layout = cpu_format_layout(o[1].packed);
    p.y = moves ? laid_out(&o[2].desc, plain) : o[2].desc;
    if (n == 4) p.bias = o[3].desc;
    for (int i = 0; i < c->g.spatial; i++) {
        p.stride[i] = c->g.stride[i];
        p.dilation[i] = c->g.dilation[i] - 1;
        p.before[i] = c->g.before[i];
        p.after[i] = c->g.after[i];
    }
    return p;
}

/* `p` is a gradient. */
static dnnl_status_t describe_hint(const conv *c, const cpu_primitive *p, const k_context *ctx,
                                   dnnl_primitive_desc_t *pd)
{
    conv hinted = *c;
    hinted.kind = CONV_FORWARD;
    cpu_primitive forward = *p;
    forward.kind = CPU_CONV;
    forward.what = &hinted;
    forward.x.type = forward.w.type = p->y.type; /* the same everywhere */
    if (forward.w.layout) forward.w.any = true;  /* the pack is not one of a forward convolution */
    forward.w.layout = NULL;
    forward.bias.rank = 0;
    return cpu_dnnl_describe(&forward, ctx, pd);
}

static dnnl_status_t describe_way(const conv *c, way w, const k_context *ctx, cpu_operand *operands, int *n,
                                  dnnl_primitive_desc_t *pd)
{
    *n = list_operands(c, w.low, operands);
    cpu_primitive p = primitive_of(c, w, operands, *n);
    if (c->kind == CONV_FORWARD) return cpu_dnnl_describe(&p, ctx, pd);
    dnnl_primitive_desc_t hint;
    dnnl_status_t status = describe_hint(c, &p, ctx, &hint);
    if (status != dnnl_success) return status;
    p.hint = hint;
    status = cpu_dnnl_describe(&p, ctx, pd);
    cpu_dnnl.primitive_desc_destroy(hint);
    return status;
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

static bool is_low(const k_args *args) { return args->in[0].dtype == IR_bf16 && cpu_dnnl_computes(IR_bf16); }

static ampc_status prepare_call(const k_args *args, const conv *c, void **state, size_t *workspace)
{
    cpu_operand operands[CPU_CALL_OPERANDS];
    dnnl_primitive_desc_t pd;
    int n;
    dnnl_status_t status = describe_conv(c, is_low(args), args->ctx, operands, &n, &pd);
    if (status != dnnl_success) return cpu_dnnl_fail(args->ctx, status, "describing a primitive");
    return cpu_call_make(pd, operands, n, args->ctx, (cpu_call **)state, workspace);
}

/* Which code runs a convolution. */
typedef enum runner { LIBRARY, OWN, OWN_PACKED, OWN_IN_PLACE } runner;

static runner runner_of(const k_args *args, const conv *c)
{
    enum { FEW_ROWS = 36 }; /* for which products in bf16, which may be faster than f32, do not matter */
    if (args->in[0].dtype == IR_f64 || conv_is_empty(c)) return LIBRARY;
    if (cpu_is_own_pack(c->w)) return OWN_PACKED;
    if (!cpu_has_onednn() && (c->kind != CONV_GRAD_WEIGHT || !cpu_is_own_faster_in_place(c))) return OWN;
    if (cpu_is_own_faster_depthwise(c)) return OWN;
    if (c->w->packed) return LIBRARY;
    if (c->kind == CONV_GRAD_WEIGHT && conv_type(c) == IR_bf16 && cpu_is_own_faster_tiles(c)) return OWN;
    if (conv_type(c) == IR_f32 && is_low(args) && c->g.n * conv_volume(c->g.y) > FEW_ROWS) return LIBRARY;
    if (cpu_is_own_faster_in_place(c)) return OWN_IN_PLACE;
    return cpu_is_own_faster_tiles(c) ? OWN : LIBRARY;
}

bool cpu_conv_can_be_visited(const k_args *args)
{
    const conv c = conv_of(args);
    return c.kind == CONV_GRAD_WEIGHT && !c.bias && c.w->dtype == IR_f32 && runner_of(args, &c) == OWN_IN_PLACE;
}

size_t cpu_conv_visit_workspace(const k_args *args, gemm_visit *visit)
{
    const conv c = conv_of(args);
    return conv_visit_workspace(&c, visit, args->ctx);
}

void cpu_conv_visit(const k_args *args, gemm_visit *visit, void *user)
{
    const conv c = conv_of(args);
    conv_visit_gradient(&c, args->workspace, visit, user, args->ctx);
}

static size_t own_workspace(runner own, const conv *c, const k_context *ctx)
{
    if (own == OWN_IN_PLACE) return conv_in_place_workspace(c, ctx);
    return own == OWN_PACKED ? conv_own_packed_workspace(c, ctx) : conv_own_workspace(c, ctx);
}

static void run_own(runner own, const conv *c, void *workspace, const k_context *ctx)
{
    if (own == OWN_IN_PLACE) conv_in_place_run(c, workspace, ctx);
    else if (own == OWN_PACKED) conv_own_run_packed(c, c->w->data, workspace, ctx);
    else conv_own_run(c, workspace, ctx);
}

/* Whether weights that do not change are packed for own code. */
static bool wants_own_pack(const conv *c)
{
    if (c->kind != CONV_FORWARD) return false;
    if (!cpu_has_onednn() || cpu_is_own_faster_tiles(c)) return true;
    return c->x->dtype == IR_f32 && c->w->dtype == IR_f32 && c->y->dtype == IR_f32 && cpu_is_own_faster_conv(c);
}

static ampc_status pack_format(const k_args *args, int operand, const k_format **format)
{
    const conv c = conv_of(args);
    cpu_operand operands[CPU_CALL_OPERANDS];
    dnnl_primitive_desc_t pd;
    int n;
    *format = NULL;
    if (c.w != &args->in[operand] || conv_is_empty(&c) || args->in[0].dtype == IR_f64) return AMPC_OK;
    if (wants_own_pack(&c)) return cpu_own_conv_format(&c, args->ctx, format);
    if (!cpu_has_onednn()) return AMPC_OK;
    const dnnl_status_t status = describe_conv(&c, is_low(args), args->ctx, operands, &n, &pd);
    if (status != dnnl_success) return cpu_dnnl_fail(args->ctx, status, "describing a primitive");
    return cpu_call_format(pd, &operands[1], args->ctx, format);
}

static ampc_status prepare(const k_args *args, void **state, size_t *workspace)
{
    conv c = conv_of(args);
    const k_view *result = conv_result(&c);
    size_t bytes = 0;
    const runner own = runner_of(args, &c);
    if (own != LIBRARY) {
        *workspace = own_workspace(own, &c, args->ctx);
        return AMPC_OK;
    }
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
    const runner own = runner_of(args, &c);
    if (own != LIBRARY) {
        run_own(own, &c, args->workspace, args->ctx);
        return AMPC_OK;
    }
    if (workspace != args->workspace) {
        spare.data = args->workspace;
        c.w = &spare;
    }
    if (args->state) {
        void *data[] = {c.x->data, c.w->data, c.y->data, c.bias ? c.bias->data : NULL};
        return cpu_call_run(args->state, args->bound, data, workspace, args->ctx);
    }
    if (!conv_is_empty(&c)) {
        run_f64(&c, workspace, args->ctx);
        return AMPC_OK;
    }
    cpu_fill_bias(conv_result(&c), c.kind == CONV_FORWARD && c.bias ? c.bias : &absent, channel_inner(&c));
    if (c.kind == CONV_GRAD_WEIGHT && c.bias) sum_bias(&c); /* dy may have elements although x or w has none */
    return AMPC_OK;
}

#define CALL .release = cpu_call_free, .bind = cpu_call_bind, .unbind = cpu_call_unbind
const k_kernel cpu_conv = {.prepare = prepare, .run = run, CALL, .pack_format = pack_format};
const k_kernel cpu_conv_grad_input = {.prepare = prepare, .run = run, CALL, .pack_format = pack_format};
const k_kernel cpu_conv_grad_weight = {.prepare = prepare, .run = run, CALL};
