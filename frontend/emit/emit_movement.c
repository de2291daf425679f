/* emit_movement.c - data movement with computed operands: Reshape, Expand, Split, Gather, Trilu, Slice, Pad. */
#include "frontend/emit/emit.h"

#include <string.h>

/* ---- Reshape, Expand ------------------------------------------------------------------------- */

/* Encodes a shape with ONNX's wildcards: 0 for "same as in x" and a single -1 for "the rest". False: a size of 0 or a
 * second unknown size makes that ambiguous. */
static bool with_wildcards(const ir_type *x, const ir_attr *shape, int64_t *out)
{
    bool rest = false;
    for (int i = 0; i < shape->list.count; i++) {
        ir_dim d = shape->list.items[i];
        bool same = i < x->rank && x->dims[i] == d;
        if (d == 0) return false;
        out[i] = !ir_dim_is_symbolic(d) ? d : same ? 0 : -1;
        if (out[i] == -1 && rest) return false;
        rest |= out[i] == -1;
    }
    return true;
}

static void plain_reshape(emitter *e, const ir_node *n)
{
    const ir_attr *shape = &n->attr[IR_ATTR(reshape, shape)];
    const ir_value *x = ir_in(n, 0);
    int64_t wildcards[IR_MAX_RANK];
    bool short_form = with_wildcards(&x->type, shape, wildcards);
    const char *name = short_form ? emit_i64s(e, wildcards, shape->list.count)
                                  : emit_dims(e, n, shape->list.items, shape->list.count);
    emit_op op = emit_begin(e, n, "Reshape");
    emit_operand(&op, 0);
    emit_in(&op, name);
    if (!short_form) emit_int(&op, "allowzero", 1);
    emit_finish(&op);
}

/* Lists the axes that `longer` has in addition to `shorter`, of size 1 or a symbol that must be 1; -1: there are other
 * differences. */
static int added_axes(const ir_type *longer, const ir_type *shorter, int64_t *axes)
{
    int count = 0, k = 0;
    for (int i = 0; i < longer->rank; i++)
        if (k < shorter->rank && longer->dims[i] == shorter->dims[k]) k++;
        else if (longer->dims[i] == 1 || ir_dim_is_symbolic(longer->dims[i])) axes[count++] = i;
        else return -1;
    return k == shorter->rank ? count : -1;
}

static bool move_axes(emitter *e, const ir_node *n, const ir_type *longer, const ir_type *shorter)
{
    int64_t axes[IR_MAX_RANK];
    int count = added_axes(longer, shorter, axes);
    if (count < 1) return false;
    const char *list = emit_i64s(e, axes, count);
    emit_op op = emit_begin(e, n, n->loc.op);
    emit_operand(&op, 0);
    emit_in(&op, list);
    emit_finish(&op);
    return true;
}

static bool as_squeeze(emitter *e, const ir_node *n) { return move_axes(e, n, &ir_in(n, 0)->type, &n->out[0]->type); }

static bool as_unsqueeze(emitter *e, const ir_node *n) { return move_axes(e, n, &n->out[0]->type, &ir_in(n, 0)->type); }

static bool as_flatten(emitter *e, const ir_node *n)
{
    const ir_type *x = &ir_in(n, 0)->type, *y = &n->out[0]->type;
    ir_dim_table *t = e->module->dims;
    int axis = y->rank == 2 ? 0 : x->rank + 1;
    while (axis <= x->rank && (ir_dim_product(t, x->dims, axis) != y->dims[0] ||
                               ir_dim_product(t, x->dims + axis, x->rank - axis) != y->dims[1]))
        axis++;
    if (axis > x->rank) return false;
    emit_op op = emit_begin(e, n, "Flatten");
    emit_operand(&op, 0);
    emit_int(&op, "axis", axis);
    emit_finish(&op);
    return true;
}

/* A view is written as the operator that it was, if that still describes it. */
void emit_reshape(emitter *e, const ir_node *n)
{
    static const struct {
        const char *op;
        bool (*write)(emitter *e, const ir_node *n);
    } views[] = {{"Squeeze", as_squeeze}, {"Unsqueeze", as_unsqueeze}, {"Flatten", as_flatten}};
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        if (n->loc.op && strcmp(n->loc.op, views[i].op) == 0 && views[i].write(e, n)) return;
    plain_reshape(e, n);
}

/* Dimensions that do not change are written as 1, so only new symbolic ones must be computed. */
void emit_expand(emitter *e, const ir_node *n)
{
    const ir_attr *shape = &n->attr[IR_ATTR(expand, shape)];
    const ir_type *x = &ir_in(n, 0)->type;
    ir_dim target[IR_MAX_RANK];
    int before = shape->list.count - x->rank;
    for (int i = 0; i < shape->list.count; i++) {
        ir_dim d = shape->list.items[i];
        bool stays = i >= before && x->dims[i - before] == d;
        target[i] = stays && ir_dim_is_symbolic(d) ? 1 : d;
    }
    const char *name = emit_dims(e, n, target, shape->list.count);
    emit_op op = emit_begin(e, n, "Expand");
    emit_operand(&op, 0);
    emit_in(&op, name);
    emit_finish(&op);
}

/* ---- Split, Gather, Trilu -------------------------------------------------------------------- */

void emit_split(emitter *e, const ir_node *n)
{
    const ir_attr *sizes = &n->attr[IR_ATTR(split, sizes)];
    const char *name = emit_dims(e, n, sizes->list.items, sizes->list.count);
    emit_op op = emit_begin(e, n, "Split");
    emit_operand(&op, 0);
    emit_in(&op, name);
    emit_finish(&op);
}

/* Indices must be i32 or i64. */
void emit_gather(emitter *e, const ir_node *n)
{
    const ir_value *indices = ir_in(n, IR_IN(gather, indices));
    ir_dtype type = indices->type.dtype == IR_i32 ? IR_i32 : IR_i64;
    emit_op op = emit_begin(e, n, "Gather");
    emit_operand(&op, 0);
    emit_in(&op, emit_value_as(e, indices, type));
    emit_finish(&op);
}

void emit_trilu(emitter *e, const ir_node *n)
{
    const char *k = emit_i64(e, n->attr[IR_ATTR(trilu, k)].i);
    emit_op op = emit_begin(e, n, "Trilu");
    emit_operand(&op, 0);
    emit_in(&op, k);
    emit_finish(&op);
}

/* ---- Slice, Pad ------------------------------------------------------------------------------ */

/* The end of a slice in ONNX's encoding. ONNX clamps an end beyond the last element. With a negative step, the end
 * may be before the first element, which a plain negative number cannot express because it counts from the back; it
 * is encoded relative to the back, or as the lowest number. */
static ir_dim end_of(ir_dim_table *t, ir_dim start, ir_dim size, int64_t step, ir_dim dim)
{
    ir_dim end = ir_dim_add(t, start, ir_dim_mul(t, size, step));
    if (step > 0 || end >= 0 || end == IR_DIM_NONE) return end;
    return ir_dim_is_symbolic(end) ? ir_dim_sub(t, end, dim) : IR_DIM_LOWEST;
}

/* The same, computed in the model: for ends that are too complex for one dimension. */
static const char *computed_end(emitter *e, const ir_node *n, ir_dim start, ir_dim size, int64_t step, ir_dim dim)
{
    const char *begin = emit_dims(e, n, &start, 1), *count = emit_dims(e, n, &size, 1);
    const char *length = step < 0 ? emit_dims(e, n, &dim, 1) : NULL;
    if (!begin || !count || (step < 0 && !length)) return NULL;
    const char *end = emit_size_call(e, n, "Add", begin, emit_size_call(e, n, "Mul", count, emit_i64s(e, &step, 1)));
    return length ? emit_size_call(e, n, "Sub", end, length) : end;
}

void emit_slice(emitter *e, const ir_node *n)
{
    ir_dim_table *dims = e->module->dims;
    const int64_t *start = n->attr[IR_ATTR(slice, start)].list.items, *size = n->attr[IR_ATTR(slice, size)].list.items,
                  *step = n->attr[IR_ATTR(slice, step)].list.items;
    const ir_type *x = &ir_in(n, 0)->type;
    int64_t starts[IR_MAX_RANK], ends[IR_MAX_RANK], axes[IR_MAX_RANK], steps[IR_MAX_RANK];
    const char *parts[IR_MAX_RANK];
    bool computed = false;
    int count = 0;
    for (int i = 0; i < x->rank; i++) {
        if (size[i] == x->dims[i] && start[i] == 0 && step[i] == 1) continue;
        axes[count] = i;
        steps[count] = size[i] == 0 ? 1 : step[i];
        starts[count] = start[i];
        ends[count] = end_of(dims, start[i], size[i], steps[count], x->dims[i]);
        computed |= ends[count] == IR_DIM_NONE;
        count++;
    }
    for (int k = 0; k < count && computed; k++) {
        const int i = (int)axes[k];
        parts[k] = ends[k] != IR_DIM_NONE ? emit_dims(e, n, &ends[k], 1)
                                          : computed_end(e, n, start[i], size[i], steps[k], x->dims[i]);
        if (!parts[k]) return;
    }
    const char *end = computed ? emit_concat(e, n, parts, count, count) : emit_dims(e, n, ends, count);
    const char *lists[4] = {emit_dims(e, n, starts, count), end};
    lists[2] = emit_i64s(e, axes, count);
    lists[3] = emit_i64s(e, steps, count);
    emit_op op = emit_begin(e, n, "Slice");
    emit_operand(&op, 0);
    for (int i = 0; i < 4; i++) emit_in(&op, lists[i]);
    emit_finish(&op);
}

void emit_pad(emitter *e, const ir_node *n)
{
    enum { WITH_WRAP = 19 };
    const ir_attr *before = &n->attr[IR_ATTR(pad, before)], *after = &n->attr[IR_ATTR(pad, after)];
    int rank = before->list.count;
    int64_t amounts[2 * IR_MAX_RANK];
    memcpy(amounts, before->list.items, (size_t)rank * sizeof *amounts);
    memcpy(amounts + rank, after->list.items, (size_t)rank * sizeof *amounts);
    if (n->attr[IR_ATTR(pad, mode)].i == IR_WORD(pad, wrap)) emit_need(e, WITH_WRAP);
    const char *pads = emit_i64s(e, amounts, 2 * rank);
    emit_op op = emit_begin(e, n, "Pad");
    emit_operand(&op, 0);
    emit_in(&op, pads);
    if (ir_in(n, IR_IN(pad, value))) emit_operand(&op, IR_IN(pad, value));
    emit_finish(&op);
}
