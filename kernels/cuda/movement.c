/* movement.c - launches of the ops that move elements.
 *
 * Most of them are one strided copy. It uses the widest elements that runs, strides and addresses allow, up to 16
 * bytes. */
#include "kernels/cuda/movement.h"
#include "kernels/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct state {
    cudaKernel_t copy[MOVE_SIZES], pad[MOVE_SIZES], transpose[TRANSPOSE_SIZES]; /* by log2 of the element size */
    cudaKernel_t pad_grad;
} state;

static size_t element_size(const k_view *v) { return ir_dtype_size(v->dtype); }

static int log2_of(size_t size) { return size == 1 ? 0 : 1 + log2_of(size / 2); }

/* Returns the integer type of the element size; its carrier preserves all bits. */
static int integer_dtype(const k_view *v)
{
    static const ir_dtype types[] = {IR_u8, IR_i16, IR_i32, IR_i64};
    return (int)types[log2_of(element_size(v))];
}

static ampc_status find_sizes(const k_args *args, const char *word, cudaKernel_t *kernels, int sizes)
{
    for (int i = 0; i < sizes; i++) {
        char name[32];
        snprintf(name, sizeof name, "move_%s_%d", word, 1 << i);
        CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_movement, name, &kernels[i]));
    }
    return AMPC_OK;
}

static ampc_status copy_prepare(const k_args *args, void **out, size_t *workspace)
{
    (void)workspace;
    CUDA_FORWARD(cuda_new_state(args, sizeof(state), out));
    state *s = *out;
    CUDA_FORWARD(find_sizes(args, "transpose", s->transpose, TRANSPOSE_SIZES));
    return find_sizes(args, "copy", s->copy, MOVE_SIZES);
}

/* ---- strided copies ---- */

static move_copy copy_of(const k_walk *w, const void *src, void *dst)
{
    move_copy c = {.src = src, .dst = dst, .count = 1, .rank = w->rank};
    for (int i = 0; i < w->rank; i++) {
        c.dims[i] = w->dims[i];
        c.src_strides[i] = w->src[i];
        c.dst_strides[i] = w->dst[i];
        c.count *= w->dims[i];
    }
    return c;
}

static ampc_status launch_transpose(const k_args *args, const k_walk *w, int row_dim, size_t size, const void *src,
                                    void *dst)
{
    const state *s = args->state;
    const int inner = w->rank - 1;
    k_walk outer = {.rank = 0};
    for (int i = 0; i < inner; i++) {
        if (i == row_dim) continue;
        outer.dims[outer.rank] = w->dims[i];
        outer.src[outer.rank] = w->src[i];
        outer.dst[outer.rank++] = w->dst[i];
    }
    move_transpose t = {.outer = copy_of(&outer, src, dst),
                        .rows = w->dims[row_dim],
                        .columns = w->dims[inner],
                        .src_stride = w->src[inner],
                        .dst_stride = w->dst[row_dim]};
    const int64_t side = TRANSPOSE_SIDE(size),
                  squares = t.outer.count * ((t.rows + side - 1) / side) * ((t.columns + side - 1) / side);
    return cuda_launch(args, s->transpose[log2_of(size)], squares, MOVE_BLOCK, 0, (void *[]){&t});
}

/* Returns the size of the widest elements, at most 16 bytes, that the copy can use. */
static size_t widest(const k_walk *w, size_t size, const void *src, const void *dst)
{
    const int inner = w->rank - 1;
    if (w->src[inner] != 1 || w->dst[inner] != 1) return size;
    uint64_t all = (uint64_t)(uintptr_t)src | (uint64_t)(uintptr_t)dst | (uint64_t)w->dims[inner] * size | 16;
    for (int i = 0; i < inner; i++) all |= (uint64_t)w->src[i] * size | (uint64_t)w->dst[i] * size;
    return (size_t)(all & (0 - all)); /* the lowest bit is the largest power of two that divides all */
}

static void widen(k_walk *w, int64_t times)
{
    const int inner = w->rank - 1;
    w->dims[inner] /= times;
    for (int i = 0; i < inner; i++) {
        w->src[i] /= times;
        w->dst[i] /= times;
    }
}

static ampc_status launch_copy(const k_args *args, k_walk w, size_t size, const void *src, void *dst)
{
    const state *s = args->state;
    const int row_dim = k_walk_transposed(&w);
    if (row_dim >= 0 && w.dims[row_dim] >= MIN_TRANSPOSE && w.dims[w.rank - 1] >= MIN_TRANSPOSE)
        return launch_transpose(args, &w, row_dim, size, src, dst);
    const size_t wide = widest(&w, size, src, dst);
    widen(&w, (int64_t)(wide / size));
    move_copy c = copy_of(&w, src, dst);
    return cuda_launch(args, s->copy[log2_of(wide)], cuda_grid(args, c.count, MOVE_BLOCK), MOVE_BLOCK, 0,
                       (void *[]){&c});
}

static ampc_status transpose_run(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    return launch_copy(args, k_walk_transpose(x, y, &args->attr[IR_ATTR(transpose, perm)]), element_size(x), x->data,
                       y->data);
}

/* Copies between the dense view `part` and the positions start + i * step of `large`. */
static ampc_status copy_slice(const k_args *args, const k_view *large, const k_view *part, const int64_t *start,
                              const int64_t *step, bool into)
{
    int64_t offset;
    if (k_count(part) == 0) return AMPC_OK;
    k_walk w = k_walk_slice(large, part, start, step, &offset);
    const size_t size = element_size(part);
    void *at = (char *)large->data + offset * (int64_t)size;
    if (at == part->data) return AMPC_OK; /* in its place */
    return launch_copy(args, into ? k_walk_back(w) : w, size, into ? part->data : at, into ? at : part->data);
}

static ampc_status copy_part(const k_args *args, const k_view *large, const k_view *part, int axis, int64_t first,
                             bool into)
{
    int64_t start[IR_MAX_RANK] = {0};
    start[axis] = first;
    return copy_slice(args, large, part, start, NULL, into);
}

static ampc_status concat_run(const k_args *args)
{
    const k_view *y = &args->out[0];
    const int axis = k_axis_number(args->attr[IR_ATTR(concat, axis)].i, y->rank);
    int64_t first = 0;
    for (int i = 0; i < args->n_in; i++) {
        if (k_present(&args->in[i])) CUDA_FORWARD(copy_part(args, y, &args->in[i], axis, first, true));
        first += args->in[i].dims[axis];
    }
    return AMPC_OK;
}

static ampc_status split_run(const k_args *args)
{
    const k_view *x = &args->in[0];
    const ir_attr *sizes = &args->attr[IR_ATTR(split, sizes)];
    const int axis = k_axis_number(args->attr[IR_ATTR(split, axis)].i, x->rank);
    int64_t first = 0;
    for (int i = 0; i < args->n_out; i++) {
        if (cuda_is_used(&args->out[i])) CUDA_FORWARD(copy_part(args, x, &args->out[i], axis, first, false));
        first += sizes->list.items[i];
    }
    return AMPC_OK;
}

static ampc_status slice_run(const k_args *args)
{
    return copy_slice(args, &args->in[0], &args->out[0], args->attr[IR_ATTR(slice, start)].list.items,
                      args->attr[IR_ATTR(slice, step)].list.items, false);
}

static ampc_status slice_grad_run(const k_args *args)
{
    const k_view *dy = &args->in[0], *dx = &args->out[0];
    if (k_count(dx) == 0) return AMPC_OK;
    CUDA_CALL(args->ctx, cudaMemsetAsync(dx->data, 0, k_bytes(dx), cuda_of(args->ctx)->stream));
    return copy_slice(args, dx, dy, args->attr[IR_ATTR(slice_grad, start)].list.items,
                      args->attr[IR_ATTR(slice_grad, step)].list.items, true);
}

/* ---- padding ---- */

static ampc_status pad_prepare(const k_args *args, void **out, size_t *workspace)
{
    (void)workspace;
    CUDA_FORWARD(cuda_new_state(args, sizeof(state), out));
    state *s = *out;
    CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_movement, "move_pad_grad_axis", &s->pad_grad));
    return find_sizes(args, "pad", s->pad, MOVE_SIZES);
}

static bool padded_axis(const k_view *padded, const k_view *plain, const int64_t *before, int a)
{
    return before[a] != 0 || padded->dims[a] != plain->dims[a];
}

/* Merges adjacent axes without padding. */
static move_pad pad_of(const k_view *padded, const k_view *plain, const int64_t *before, int mode)
{
    move_pad p = {.mode = mode, .count = k_count(padded)};
    bool joins = false;
    for (int a = 0; a < padded->rank; a++) {
        const bool changes = padded_axis(padded, plain, before, a);
        if (joins && !changes) {
            p.padded[p.rank - 1] *= padded->dims[a];
            p.plain[p.rank - 1] *= plain->dims[a];
        } else {
            p.padded[p.rank] = padded->dims[a];
            p.plain[p.rank] = plain->dims[a];
            p.before[p.rank++] = changes ? before[a] : 0;
        }
        joins = !changes;
    }
    return p;
}

/* Uses wider elements if the last axis is not padded and the padding value is zero. */
static size_t pad_widen(move_pad *p, size_t size)
{
    const int last = p->rank - 1;
    if (last < 0 || p->before[last] || p->padded[last] != p->plain[last] || p->value) return size;
    const uint64_t all = (uint64_t)(uintptr_t)p->src | (uint64_t)(uintptr_t)p->dst | (uint64_t)p->plain[last] * size |
                         16;
    const size_t wide = (size_t)(all & (0 - all));
    p->padded[last] /= (int64_t)(wide / size);
    p->plain[last] /= (int64_t)(wide / size);
    p->count /= (int64_t)(wide / size);
    return wide;
}

static ampc_status launch_pad(const k_args *args, move_pad p, const k_view *from, const k_view *to, const void *value)
{
    const state *s = args->state;
    p.src = from->data;
    p.dst = to->data;
    p.value = value;
    const size_t wide = pad_widen(&p, element_size(to));
    int64_t strides[IR_MAX_RANK], plain[IR_MAX_RANK];
    for (int a = 0; a < p.rank; a++) plain[a] = p.plain[a];
    k_dense_strides(p.rank, plain, strides);
    for (int a = 0; a < p.rank; a++) p.strides[a] = strides[a];
    return cuda_launch(args, s->pad[log2_of(wide)], cuda_grid(args, p.count, MOVE_BLOCK), MOVE_BLOCK, 0,
                       (void *[]){&p});
}

static ampc_status pad_run(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    move_pad p = pad_of(y, x, args->attr[IR_ATTR(pad, before)].list.items, (int)args->attr[IR_ATTR(pad, mode)].i);
    return launch_pad(args, p, x, y, cuda_data(args->in, 1, args->n_in));
}

/* The axes along which padding is summed, last first. Intermediate f32 sums alternate between two buffers. */
typedef struct unpad {
    int n, axes[IR_MAX_RANK];
    int64_t between; /* elements per buffer */
} unpad;

static unpad unpad_of(const k_view *dy, const k_view *dx, const int64_t *before)
{
    unpad u = {.n = 0};
    int64_t count = k_count(dy);
    for (int a = dy->rank - 1; a >= 0; a--) {
        if (!padded_axis(dy, dx, before, a)) continue;
        u.axes[u.n++] = a;
        count = dy->dims[a] ? count / dy->dims[a] * dx->dims[a] : 0;
        if (count > u.between) u.between = count;
    }
    return u;
}

static ampc_status pad_grad_prepare(const k_args *args, void **out, size_t *workspace)
{
    const unpad u = unpad_of(&args->in[0], &args->out[0], args->attr[IR_ATTR(pad_grad, before)].list.items);
    if (u.n > 1) *workspace = 2 * (size_t)u.between * sizeof(float);
    return pad_prepare(args, out, workspace);
}

static ampc_status launch_unpad(const k_args *args, move_unpad p)
{
    const state *s = args->state;
    return cuda_launch(args, s->pad_grad, cuda_grid(args, p.outer * p.plain * p.inner, MOVE_BLOCK), MOVE_BLOCK, 0,
                       (void *[]){&p});
}

/* Positions of dx from which no element was copied become zero. */
static ampc_status launch_crop(const k_args *args, const k_view *dy, const k_view *dx, const int64_t *before)
{
    int64_t back[IR_MAX_RANK];
    for (int a = 0; a < dx->rank; a++) back[a] = -before[a];
    return launch_pad(args, pad_of(dx, dy, back, IR_WORD(pad, constant)), dy, dx, NULL);
}

static ampc_status pad_grad_run(const k_args *args)
{
    const k_view *dy = &args->in[0], *dx = &args->out[0];
    const int64_t *before = args->attr[IR_ATTR(pad_grad, before)].list.items;
    const int mode = (int)args->attr[IR_ATTR(pad_grad, mode)].i;
    const unpad u = unpad_of(dy, dx, before);
    if (mode == IR_WORD(pad, constant) || u.n == 0 || k_count(dy) == 0) return launch_crop(args, dy, dx, before);
    float *buffers[2] = {args->workspace, (float *)args->workspace + u.between};
    k_view shape = *dy; /* remaining shape */
    move_unpad p = {.x = dy->data, .x_dtype = (int)dy->dtype, .mode = mode};
    for (int i = 0; i < u.n; i++) {
        const bool last = i == u.n - 1;
        const k_axis axis = k_axis_of(&shape, u.axes[i]);
        p.y = last ? dx->data : buffers[i % 2];
        p.y_dtype = last ? (int)dx->dtype : IR_f32;
        p.outer = axis.outer, p.padded = axis.length, p.plain = dx->dims[u.axes[i]], p.inner = axis.inner;
        p.before = before[u.axes[i]];
        CUDA_FORWARD(launch_unpad(args, p));
        shape.dims[u.axes[i]] = p.plain;
        p.x = p.y, p.x_dtype = p.y_dtype;
    }
    return AMPC_OK;
}

/* ---- other ops ---- */

static ampc_status one_prepare(const k_args *args, const char *name, void **out)
{
    return cuda_prepare_one(args, CUDA_FAMILY_movement, name, out);
}

#define PREPARE_ONE(op) \
    static ampc_status op##_prepare(const k_args *args, void **out, size_t *workspace) \
    { \
        (void)workspace; \
        return one_prepare(args, "move_" #op, out); \
    }
PREPARE_ONE(expand)
PREPARE_ONE(where)
PREPARE_ONE(trilu)
PREPARE_ONE(iota)
PREPARE_ONE(dims)

static ampc_status launch_one(const k_args *args, int64_t blocks, void **arguments)
{
    return cuda_launch(args, ((const cuda_one *)args->state)->kernel, blocks, MOVE_BLOCK, 0, arguments);
}

static cuda_operand integer_operand(const k_view *v, const k_view *y)
{
    cuda_operand o = cuda_operand_of(v, y);
    o.dtype = integer_dtype(v);
    return o;
}

static ampc_status expand_run(const k_args *args)
{
    const k_view *y = &args->out[0];
    move_choice w = {
        .a = integer_operand(&args->in[0], y), .y = y->data, .dtype = integer_dtype(y), .count = k_count(y)};
    return launch_one(args, cuda_grid(args, w.count, MOVE_BLOCK * CUDA_TILE), (void *[]){&w});
}

static ampc_status where_run(const k_args *args)
{
    const k_view *y = &args->out[0];
    move_choice w = {.cond = integer_operand(&args->in[0], y),
                     .a = integer_operand(&args->in[1], y),
                     .b = integer_operand(&args->in[2], y),
                     .y = y->data,
                     .dtype = integer_dtype(y),
                     .count = k_count(y)};
    return launch_one(args, cuda_grid(args, w.count, MOVE_BLOCK * CUDA_TILE), (void *[]){&w});
}

static ampc_status trilu_run(const k_args *args)
{
    const k_view *y = &args->out[0];
    move_triangle t = {.x = args->in[0].data,
                       .y = y->data,
                       .dtype = integer_dtype(y),
                       .upper = args->attr[IR_ATTR(trilu, upper)].i != 0,
                       .rows = y->dims[y->rank - 2],
                       .columns = y->dims[y->rank - 1],
                       .k = args->attr[IR_ATTR(trilu, k)].i,
                       .count = k_count(y)};
    return launch_one(args, cuda_grid(args, t.count, MOVE_BLOCK), (void *[]){&t});
}

static ampc_status iota_run(const k_args *args)
{
    const k_view *y = &args->out[0];
    int dtype = (int)y->dtype;
    int64_t n = k_count(y);
    return launch_one(args, cuda_grid(args, n, MOVE_BLOCK), (void *[]){(void *)&y->data, &dtype, &n});
}

static ampc_status dims_run(const k_args *args)
{
    const k_view *y = &args->out[0];
    const ir_attr *value = &args->attr[IR_ATTR(dims, value)];
    const size_t size = element_size(y);
    for (int done = 0; done < value->list.count; done += MAX_DIMS) {
        move_values d = {.y = (char *)y->data + (size_t)done * size, .dtype = (int)y->dtype};
        for (; d.count < MAX_DIMS && done + d.count < value->list.count; d.count++)
            d.values[d.count] = value->list.items[done + d.count];
        CUDA_FORWARD(cuda_launch(args, ((const cuda_one *)args->state)->kernel, 1, MAX_DIMS, 0, (void *[]){&d}));
    }
    return AMPC_OK;
}

/* The planner commits states and returns outputs, so `store` is a copy into the state and `output` does nothing. */
static ampc_status store_run(const k_args *args)
{
    const k_view *to = &args->in[0], *value = &args->in[1];
    if (to->data == value->data || k_count(to) == 0) return AMPC_OK;
    return cuda_commit(args->ctx, to->data, value->data, k_bytes(to));
}

static ampc_status output_run(const k_args *args)
{
    (void)args;
    return AMPC_OK;
}

const k_kernel cuda_transpose = {.prepare = copy_prepare, .run = transpose_run, .release = cuda_release};
const k_kernel cuda_expand = {.prepare = expand_prepare, .run = expand_run, .release = cuda_release};
const k_kernel cuda_concat = {.prepare = copy_prepare, .run = concat_run, .release = cuda_release};
const k_kernel cuda_split = {.prepare = copy_prepare, .run = split_run, .release = cuda_release};
const k_kernel cuda_slice = {.prepare = copy_prepare, .run = slice_run, .release = cuda_release};
const k_kernel cuda_slice_grad = {.prepare = copy_prepare, .run = slice_grad_run, .release = cuda_release};
const k_kernel cuda_pad = {.prepare = pad_prepare, .run = pad_run, .release = cuda_release};
const k_kernel cuda_pad_grad = {.prepare = pad_grad_prepare, .run = pad_grad_run, .release = cuda_release};
const k_kernel cuda_trilu = {.prepare = trilu_prepare, .run = trilu_run, .release = cuda_release};
const k_kernel cuda_where = {.prepare = where_prepare, .run = where_run, .release = cuda_release};
const k_kernel cuda_iota = {.prepare = iota_prepare, .run = iota_run, .release = cuda_release};
const k_kernel cuda_dims = {.prepare = dims_prepare, .run = dims_run, .release = cuda_release};
const k_kernel cuda_store = {.run = store_run};
const k_kernel cuda_output = {.run = output_run};
