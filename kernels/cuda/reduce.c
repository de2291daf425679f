/* reduce.c - launches of the reductions. */
#include "kernels/cuda/reduce.h"
#include "ir/ops/reductions.h"
#include "kernels/cuda/cuda.h"
#include "kernels/reduction.h"
#include "kernels/update.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    GROUP_BLOCKS = 528, /* with fewer, rows are cut into groups; device-independent to fix the order of sums */
    LANE_TILES = 512,   /* longer rows use a block each */
    FEW_OUTPUTS = 2048, /* with fewer outputs, so do all rows with more tiles than lanes */
    BLOCK_TILES = REDUCE_BLOCK * 4, /* minimum tiles per group of a row */
    COLUMN_ROWS = 8                 /* minimum rows per thread */
};

/* How a reduction is partitioned; depends only on its shape. */
typedef struct plan {
    k_reduction shape;
    enum { LANES, BLOCK, COLUMNS } form;
    int lanes;
    int64_t groups, blocks;
} plan;

static int64_t at_least_one(int64_t n) { return n > 1 ? n : 1; }

static int64_t groups_of(int64_t units, int64_t limit)
{
    const int64_t busy = GROUP_BLOCKS / at_least_one(units);
    return at_least_one(busy < limit ? busy : limit);
}

/* Returns the smallest power of two >= n, at most 32. */
static int lanes_for(int64_t n)
{
    int lanes = 1;
    while (lanes < n && lanes < 32) lanes *= 2;
    return lanes;
}

static plan plan_rows(k_reduction shape)
{
    plan p = {.shape = shape, .form = LANES, .groups = 1};
    const int64_t tiles = shape.n_reduced * ((shape.length + CUDA_TILE - 1) / CUDA_TILE);
    p.lanes = lanes_for(tiles);
    if (tiles > LANE_TILES || (tiles > p.lanes && shape.n_kept < FEW_OUTPUTS)) {
        p.form = BLOCK;
        p.groups = groups_of(shape.n_kept, tiles / BLOCK_TILES);
    }
    p.blocks = p.form == BLOCK ? shape.n_kept * p.groups : cuda_blocks(shape.n_kept, REDUCE_BLOCK / p.lanes);
    return p;
}

static plan plan_columns(k_reduction shape)
{
    plan p = {.shape = shape, .form = COLUMNS};
    const int64_t tiles = (shape.length + CUDA_TILE - 1) / CUDA_TILE;
    p.lanes = lanes_for(tiles);
    const int64_t strips = shape.n_kept * ((tiles + p.lanes - 1) / p.lanes), height = REDUCE_BLOCK / p.lanes;
    p.groups = groups_of(strips, shape.n_reduced / (height * COLUMN_ROWS));
    p.blocks = strips * p.groups;
    return p;
}

static plan plan_of(const k_args *args)
{
    const k_reduction shape = k_reduction_of(&args->in[0], &args->attr[IR_ATTR(reduce_sum, axes)]);
    return shape.inner_kept ? plan_columns(shape) : plan_rows(shape);
}

/* Treats the partial sums of each output as a row. */
static plan plan_groups(int64_t outputs, int64_t groups)
{
    return plan_rows((k_reduction){.kept = {1, {outputs}, {groups}, {0}},
                                   .n_kept = outputs,
                                   .n_reduced = 1,
                                   .length = groups,
                                   .outputs = outputs,
                                   .terms = groups});
}

cuda_row_cut cuda_cut_rows(int64_t rows, int64_t length)
{
    const plan p = plan_rows((k_reduction){.n_kept = rows, .n_reduced = 1, .length = length});
    return (cuda_row_cut){p.form == BLOCK, p.lanes, p.groups, p.blocks};
}

static const char *const combines[] = {
#define COMBINE(name, ...) #name,
#include "ir/ops/reductions.def"
};

static ampc_status find_kernels(const k_context *ctx, ir_combine combine, ir_dtype dtype, cuda_reduce_kernels *out)
{
    static const char *const forms[] = {[LANES] = "lanes", [BLOCK] = "block", [COLUMNS] = "columns"};
    for (int i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "reduce_%s_%s_%s", forms[i], combines[combine], cuda_carrier_name(dtype));
        CUDA_FORWARD(cuda_find(ctx, CUDA_FAMILY_reduce, name, &out->by_form[i]));
    }
    return AMPC_OK;
}

ampc_status cuda_find_reduce(const k_context *ctx, cuda_reduce_kernels *out)
{
    return find_kernels(ctx, IR_COMBINE_sum, IR_f32, out);
}

/* The kernels that reduce the operand, and those that combine its groups. */
typedef struct reduce_state {
    cuda_reduce_kernels terms, groups;
} reduce_state;

static ampc_status reduce_prepare(const k_args *args, void **out, size_t *workspace)
{
    const ir_dtype dtype = args->in[0].dtype;
    const ir_combine combine = ir_reduction_of(args->op).combine;
    const plan p = plan_of(args);
    if (p.blocks > INT32_MAX)
        return cuda_fail(args->ctx, AMPC_UNSUPPORTED, "%lld results are too many for this device",
                         (long long)p.shape.outputs);
    CUDA_FORWARD(cuda_new_state(args, sizeof(reduce_state), out));
    reduce_state *s = *out;
    CUDA_FORWARD(find_kernels(args->ctx, combine, dtype, &s->terms));
    CUDA_FORWARD(find_kernels(args->ctx, ir_combine_of_parts(combine), dtype, &s->groups));
    if (p.groups > 1) *workspace = (size_t)(p.groups * p.shape.outputs) * ir_dtype_size(cuda_carrier(dtype));
    return AMPC_OK;
}

static reduce_positions positions_of(const k_walk *w, int64_t count)
{
    reduce_positions p = {.count = count, .rank = w->rank};
    for (int i = 0; i < w->rank; i++) {
        p.dims[i] = w->dims[i];
        p.strides[i] = w->src[i];
    }
    return p;
}

/* r: data and dtypes of x and y, start and finish; launch() sets the rest. */
static ampc_status launch(const k_args *args, const cuda_reduce_kernels *kernels, const plan *p, reduce_shape r)
{
    r.kept = positions_of(&p->shape.kept, p->shape.n_kept);
    r.reduced = positions_of(&p->shape.reduced, p->shape.n_reduced);
    r.length = p->shape.length;
    r.groups = p->groups;
    r.lanes = p->lanes;
    return cuda_launch(args, kernels->by_form[p->form], p->blocks, REDUCE_BLOCK, 0, (void *[]){&r});
}

static ampc_status reduce_run(const k_args *args)
{
    const reduce_state *state = args->state;
    const k_view *x = &args->in[0], *y = &args->out[0];
    const ir_reduction of = ir_reduction_of(args->op);
    const plan p = plan_of(args);
    reduce_shape r = {.x = x->data,
                      .y = y->data,
                      .x_dtype = (int)x->dtype,
                      .y_dtype = (int)y->dtype,
                      .finish = (int)of.finish,
                      .terms = p.shape.terms,
                      .start = (float)ir_combine_start_float(of.combine),
                      .start_integer = ir_combine_start_integer(of.combine, x->dtype)};
    if (p.shape.outputs == 0) return AMPC_OK;
    if (p.groups == 1) return launch(args, &state->terms, &p, r);
    const int between = (int)cuda_carrier(x->dtype);
    const plan groups = plan_groups(p.shape.outputs, p.groups);
    reduce_shape parts = r;
    parts.y = args->workspace;
    parts.y_dtype = between;
    parts.finish = IR_FINISH_none;
    r.x = args->workspace;
    r.x_dtype = between;
    CUDA_FORWARD(launch(args, &state->terms, &p, parts));
    return launch(args, &state->groups, &groups, r);
}

ampc_status cuda_join_rows(const k_args *args, const cuda_reduce_kernels *kernels, const void *parts, int64_t groups,
                           int64_t terms, void *y, ir_dtype y_dtype, int64_t rows)
{
    const plan p = plan_groups(rows, groups);
    return launch(args, kernels, &p,
                  (reduce_shape){.x = parts,
                                 .y = y,
                                 .x_dtype = IR_f32,
                                 .y_dtype = (int)y_dtype,
                                 .finish = terms > 0 ? IR_FINISH_mean : IR_FINISH_none,
                                 .terms = terms});
}

/* ---- the global norm: one launch per table of operands, nearly always one ---- */

typedef struct norm {
    cudaKernel_t squares, root;
    norm_table table;
} norm;

static int64_t norm_units(const k_view *v) { return (k_count(v) + NORM_UNIT - 1) / NORM_UNIT; }

static ampc_status global_norm_prepare(const k_args *args, void **out, size_t *workspace)
{
    if (!k_extra_in(args, K_SLOT(norm, squares))) CUDA_FORWARD(cuda_check_dtypes(args));
    norm *s = *out = calloc(1, sizeof *s);
    if (!s) return cuda_fail(args->ctx, AMPC_NO_MEMORY, "out of memory");
    if (!k_extra_in(args, K_SLOT(norm, squares)))
        *workspace = (size_t)(args->listed / NORM_SPANS + 1) * NORM_BLOCKS * sizeof(double);
    CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_reduce, "norm_squares", &s->squares));
    return cuda_find(args->ctx, CUDA_FAMILY_reduce, "norm_root", &s->root);
}

/* Puts operands [first, first + n) into the table. */
static void fill_table(const k_args *args, norm_table *t, int first, int n)
{
    t->spans = t->units = 0;
    for (int i = first; i < first + n; i++) {
        const k_view *v = &args->in[i];
        t->span[t->spans++] = (norm_span){v->data, k_count(v), (int)v->dtype, t->units};
        t->units += (int)norm_units(v);
    }
}

static ampc_status launch_root(const k_args *args, const double *partial, long long n)
{
    const norm *s = args->state;
    return cuda_launch(args, s->root, 1, REDUCE_BLOCK, 0, (void *[]){&partial, &n, (void *)&args->out[0].data});
}

static ampc_status global_norm_run(const k_args *args)
{
    norm *s = args->state;
    const k_view *made = k_extra_in(args, K_SLOT(norm, squares));
    if (made) return launch_root(args, made->data, k_count(made));
    const k_view *scale = k_extra_in(args, K_SLOT(norm, scale));
    const int gradients = args->listed;
    double *partial = args->workspace;
    int64_t n = 0;
    s->table.scale = scale ? scale->data : NULL;
    for (int i = 0; i < gradients; i += NORM_SPANS) {
        fill_table(args, &s->table, i, gradients - i < NORM_SPANS ? gradients - i : NORM_SPANS);
        s->table.partial = partial + n;
        const int64_t blocks = s->table.units < NORM_BLOCKS ? s->table.units : NORM_BLOCKS;
        CUDA_FORWARD(cuda_launch(args, s->squares, blocks, REDUCE_BLOCK, 0, (void *[]){&s->table}));
        n += blocks;
    }
    return launch_root(args, partial, n);
}

#define REDUCTION(op, ...) \
    const k_kernel cuda_##op = {.prepare = reduce_prepare, .run = reduce_run, .release = cuda_release};
#include "ir/ops/reductions.def"

const k_kernel cuda_global_norm = {.prepare = global_norm_prepare, .run = global_norm_run, .release = cuda_release};
