/* slices.c - a value that is read in parts is split, so that the gradients of the parts are joined, each written once.
 *
 * Exports read the queries, keys and values of an attention by Gather with one index, and gates of a recurrent cell by
 * Slice. The gradient of each would be as large as the whole value and zero outside its part, and their sum another.
 *
 *   before  %a = slice %x {start=[0,0], size=[N,8]}     after  %a, %rest, %b = split %x {axis=1, sizes=[8,4,8]}
 *           %b = slice %x {start=[0,12], size=[N,8]}
 *
 * Parts are those along one axis of known size that do not overlap, and gathers with one known index.
 *
 * Requires: @train in its forward phase. */
#include "passes/pass.h"

#include <stdlib.h>

typedef struct part {
    ir_node *node;
    int axis;
    int64_t start, size;
    int slot; /* of the split's results */
} part;

static bool is_part_of_axis(part *p, const ir_type *x, int axis, ir_dim start, ir_dim size)
{
    p->axis = axis;
    p->start = start;
    p->size = size;
    const bool known = !ir_dim_is_symbolic(x->dims[axis]) && !ir_dim_is_symbolic(start) && !ir_dim_is_symbolic(size);
    return known && start >= 0 && size > 0 && start + size <= x->dims[axis];
}

static bool is_slice_part(part *p)
{
    const ir_type *x = &ir_in(p->node, 0)->type;
    const ir_attr *attr = p->node->attr;
    int axis = -1;
    for (int i = 0; i < x->rank; i++) {
        const ir_dim start = attr[IR_ATTR(slice, start)].list.items[i], size = p->node->out[0]->type.dims[i];
        if (attr[IR_ATTR(slice, step)].list.items[i] != 1) return false;
        if (start == 0 && size == x->dims[i]) continue;
        if (axis >= 0) return false;
        axis = i;
    }
    return axis >= 0 &&
           is_part_of_axis(p, x, axis, attr[IR_ATTR(slice, start)].list.items[axis], p->node->out[0]->type.dims[axis]);
}

static bool is_gathered_part(part *p, ir_const_map *known)
{
    const ir_type *x = &ir_in(p->node, 0)->type;
    const ir_const_value *index = ir_const_get(known, ir_in(p->node, 1));
    int axis = (int)p->node->attr[IR_ATTR(gather, axis)].i;
    if (!index || index->count != 1 || x->rank == 0) return false;
    if (axis < 0) axis += x->rank;
    ir_dim at = index->ints[0];
    if (!ir_dim_is_symbolic(at) && at < 0 && !ir_dim_is_symbolic(x->dims[axis])) at += x->dims[axis];
    return is_part_of_axis(p, x, axis, at, 1);
}

static bool is_part(part *p, ir_node *n, ir_const_map *known)
{
    p->node = n;
    if (!n->n_out || !ir_value_used(n->out[0]) || n->phase != IR_FORWARD) return false;
    if (n->op == IR_OP_slice) return is_slice_part(p);
    return n->op == IR_OP_gather && is_gathered_part(p, known);
}

static int by_start(const void *a, const void *b)
{
    const part *p = a, *q = b;
    if (p->start != q->start) return p->start < q->start ? -1 : 1;
    return p->node->id < q->node->id ? -1 : 1;
}

/* Assigns the parts, in order, to results of a split; what no part covers is a result, too. Returns the number of
 * results; 0 if parts overlap. */
static int divide(part *parts, size_t n, int64_t length, int64_t *sizes)
{
    int count = 0;
    int64_t end = 0;
    for (size_t i = 0; i < n; i++) {
        const part *before = i ? &parts[i - 1] : NULL;
        if (before && before->start == parts[i].start && before->size == parts[i].size) {
            parts[i].slot = before->slot;
            continue;
        }
        if (parts[i].start < end) return 0;
        if (parts[i].start > end) sizes[count++] = parts[i].start - end;
        parts[i].slot = count;
        sizes[count++] = parts[i].size;
        end = parts[i].start + parts[i].size;
    }
    if (end < length) sizes[count++] = length - end;
    return count;
}

/* Splits the value that the first part, which is the first of them in the graph, reads. */
static void split(part first, ir_const_map *known, arena *a, diag *d)
{
    ir_value *x = ir_in(first.node, 0);
    VEC(part) parts = {0};
    for (const ir_use *u = x->first_use; u; u = u->next) {
        part p = {0};
        if (u->index == 0 && is_part(&p, u->user, known) && p.axis == first.axis) vec_push(a, &parts, p);
    }
    qsort(parts.items, parts.count, sizeof *parts.items, by_start);
    int64_t *sizes = arena_array(a, 2 * parts.count + 1, sizeof *sizes);
    const int count = divide(parts.items, parts.count, x->type.dims[first.axis], sizes);
    if (count < 2 || parts.items[0].slot == parts.items[parts.count - 1].slot) return;
    ir_builder b = ir_builder_before(first.node, d);
    ir_node *n = ir_new_array(&b, IR_OP_split, 1, &x, count);
    ir_set_int(n, IR_ATTR(split, axis), first.axis);
    ir_set_list(n, IR_ATTR(split, sizes), sizes, count);
    if (!ir_done_all(&b, n)) return;
    for (size_t i = 0; i < parts.count; i++) {
        ir_value *old = parts.items[i].node->out[0];
        ir_value *new = ir_reshape_like(&b, n->out[parts.items[i].slot], &old->type);
        if (!new) return;
        ir_value_replace(old, new);
        new->name = old->name; /* the old value is removed at the end */
    }
}

ampc_status pass_slices(ir_module *m, compile *c)
{
    ir_graph *g = ir_graph_by_role(m, IR_GRAPH_train);
    if (!g || c->options->plain_runtime) return AMPC_OK;
    arena *a = pass_scratch_new(m);
    ir_graph_renumber(g);
    ir_const_map *known = ir_const_map_new(a, g);
    bool *seen = arena_array(a, g->value_ids, sizeof *seen);
    for (ir_node *n = g->first; n; n = n->next) {
        part p = {0};
        if (!is_part(&p, n, known) || seen[ir_in(n, 0)->id] || !ir_dtype_is_float(ir_in(n, 0)->type.dtype)) continue;
        seen[ir_in(n, 0)->id] = true;
        split(p, known, a, c->diag);
    }
    pass_remove_dead(g);
    arena_free(a);
    return diag_status(c->diag);
}
