/* fold_movement.c - movement of known elements: each op copies through two views, one of the result and one of an
 * operand. Inference has checked indices and bounds; ops with symbolic ones are not folded. */
#include "ir/fold/fold.h"

#include <string.h>

/* ---- views ----------------------------------------------------------------------------------- */

static int64_t count_of(const ir_type *shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++) count *= shape->dims[i];
    return count;
}

/* Copies all elements of `shape`. */
static bool copy_all(const cells *to, fold_view target, const ir_const_value *from, fold_view source,
                     const ir_type *shape)
{
    int64_t count = count_of(shape);
    for (int64_t i = 0; i < count; i++)
        fold_copy(to, fold_view_at(&target, shape, i), from, fold_view_at(&source, shape, i));
    return true;
}

static bool copy_to_result(const fold_state *f, fold_view source)
{
    const ir_type *shape = &f->out[0].type;
    return copy_all(&f->out[0], fold_view_dense(shape), f->in[0], source, shape);
}

/* ---- whole tensors --------------------------------------------------------------------------- */

bool fold_reshape(const fold_state *f) { return copy_to_result(f, fold_view_dense(&f->out[0].type)); }

bool fold_transpose(const fold_state *f)
{
    fold_view dense = fold_view_dense(&f->in[0]->type), v = {0};
    const int64_t *perm = f->node->attr[IR_ATTR(transpose, perm)].list.items;
    for (int i = 0; i < f->in[0]->type.rank; i++) v.stride[i] = dense.stride[perm[i]];
    return copy_to_result(f, v);
}

bool fold_expand(const fold_state *f)
{
    return copy_to_result(f, fold_view_broadcast(&f->in[0]->type, &f->out[0].type));
}

static int axis_of(const ir_attr *axis, const ir_type *type)
{
    return (int)(axis->i < 0 ? axis->i + type->rank : axis->i);
}

bool fold_concat(const fold_state *f)
{
    fold_view target = fold_view_dense(&f->out[0].type);
    int axis = axis_of(&f->node->attr[IR_ATTR(concat, axis)], &f->out[0].type);
    for (int i = 0; i < f->node->n_in; i++) {
        const ir_type *part = &f->in[i]->type;
        copy_all(&f->out[0], target, f->in[i], fold_view_dense(part), part);
        target.offset += part->dims[axis] * target.stride[axis];
    }
    return true;
}

bool fold_split(const fold_state *f)
{
    fold_view source = fold_view_dense(&f->in[0]->type);
    int axis = axis_of(&f->node->attr[IR_ATTR(split, axis)], &f->in[0]->type);
    for (int i = 0; i < f->node->n_out; i++) {
        const ir_type *part = &f->out[i].type;
        copy_all(&f->out[i], fold_view_dense(part), f->in[0], source, part);
        source.offset += part->dims[axis] * source.stride[axis];
    }
    return true;
}

/* ---- parts of tensors ------------------------------------------------------------------------ */

/* A view of the part start, start + step, ... of a dense tensor. Returns false if a start is symbolic. */
static bool view_part(const ir_type *full, const ir_attr *start, const ir_attr *step, fold_view *v)
{
    *v = fold_view_dense(full);
    for (int i = 0; i < full->rank; i++) {
        if (ir_dim_is_symbolic(start->list.items[i])) return false;
        uint64_t stride = (uint64_t)v->stride[i]; /* may wrap if no elements are read */
        v->offset = (int64_t)((uint64_t)v->offset + (uint64_t)start->list.items[i] * stride);
        v->stride[i] = (int64_t)((uint64_t)step->list.items[i] * stride);
    }
    return true;
}

bool fold_slice(const fold_state *f)
{
    const ir_attr *a = f->node->attr;
    fold_view v;
    return view_part(&f->in[0]->type, &a[IR_ATTR(slice, start)], &a[IR_ATTR(slice, step)], &v) && copy_to_result(f, v);
}

bool fold_slice_grad(const fold_state *f)
{
    const ir_attr *a = f->node->attr;
    const ir_type *part = &f->in[0]->type;
    fold_view v;
    if (!view_part(&f->out[0].type, &a[IR_ATTR(slice_grad, start)], &a[IR_ATTR(slice_grad, step)], &v)) return false;
    return copy_all(&f->out[0], v, f->in[0], fold_view_dense(part), part);
}

/* The source position of position i on a padded axis, or -1 for constant padding. */
static int64_t pad_source(int64_t i, int64_t size, int64_t mode)
{
    if (i >= 0 && i < size) return i;
    if (mode == IR_WORD(pad, constant)) return -1;
    if (mode == IR_WORD(pad, edge)) return i < 0 ? 0 : size - 1;
    int64_t period = mode == IR_WORD(pad, wrap) ? size : size > 1 ? 2 * (size - 1) : 1;
    int64_t r = (i % period + period) % period;
    return r < size ? r : period - r;
}

bool fold_pad(const fold_state *f)
{
    const ir_type *to = &f->out[0].type, *from = &f->in[0]->type;
    const int64_t *before = f->node->attr[IR_ATTR(pad, before)].list.items;
    const int64_t mode = f->node->attr[IR_ATTR(pad, mode)].i;
    const ir_const_value *value = f->in[IR_IN(pad, value)];
    fold_view dense = fold_view_dense(from);
    for (int64_t i = 0; i < f->out[0].count; i++) {
        int64_t at = 0, rest = i;
        for (int k = to->rank; k-- > 0; rest /= to->dims[k]) {
            int64_t source = pad_source(rest % to->dims[k] - before[k], from->dims[k], mode);
            at = source < 0 || at < 0 ? -1 : at + source * dense.stride[k];
        }
        if (at >= 0) fold_copy(&f->out[0], i, f->in[0], at);
        else if (value) fold_copy(&f->out[0], i, value, 0);
    }
    return true;
}

bool fold_gather(const fold_state *f)
{
    const ir_const_value *table = f->in[IR_IN(gather, x)], *indices = f->in[IR_IN(gather, indices)];
    int axis = axis_of(&f->node->attr[IR_ATTR(gather, axis)], &table->type);
    int64_t size = table->type.dims[axis], inner = fold_view_dense(&table->type).stride[axis];
    for (int64_t i = 0; i < f->out[0].count; i++) {
        int64_t outer = i / inner / indices->count, index = indices->ints[i / inner % indices->count];
        if (index < 0 && index >= -size) index += size;
        if (index < 0 || index >= size) return false;
        fold_copy(&f->out[0], i, table, (outer * size + index) * inner + i % inner);
    }
    return true;
}

bool fold_trilu(const fold_state *f)
{
    const ir_type *type = &f->out[0].type;
    int64_t rows = type->dims[type->rank - 2], columns = type->dims[type->rank - 1];
    int64_t k = f->node->attr[IR_ATTR(trilu, k)].i;
    bool upper = f->node->attr[IR_ATTR(trilu, upper)].i;
    for (int64_t i = 0; i < f->out[0].count; i++) {
        int64_t diagonal = i % columns - i / columns % rows;
        if (upper ? diagonal >= k : diagonal <= k) fold_copy(&f->out[0], i, f->in[0], i);
    }
    return true;
}

/* Also used for select, whose cond is a scalar. */
bool fold_where(const fold_state *f)
{
    const ir_type *shape = &f->out[0].type;
    fold_view views[3];
    for (int i = 0; i < 3; i++) views[i] = fold_view_broadcast(&f->in[i]->type, shape);
    for (int64_t i = 0; i < f->out[0].count; i++) {
        int from = f->in[0]->ints[fold_view_at(&views[0], shape, i)] ? 1 : 2;
        fold_copy(&f->out[0], i, f->in[from], fold_view_at(&views[from], shape, i));
    }
    return true;
}

/* ---- integer generators ---------------------------------------------------------------------- */

bool fold_iota(const fold_state *f)
{
    for (int64_t i = 0; i < f->out[0].count; i++) f->out[0].ints[i] = fold_wrap(f->out[0].type.dtype, i);
    return true;
}

bool fold_dims(const fold_state *f)
{
    const ir_attr *value = &f->node->attr[IR_ATTR(dims, value)];
    for (int64_t i = 0; i < f->out[0].count; i++) f->out[0].ints[i] = value->list.items[i];
    return true;
}
