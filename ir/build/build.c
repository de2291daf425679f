/* build.c - nodes with inferred types, and shorthands for common formulas. */
#include "ir/graph/ir.h"

#include <stdio.h>
#include <string.h>

/* ---- nodes ----------------------------------------------------------------------------------- */

void ir_name_results(ir_node *n)
{
    for (int i = 0; i < n->n_out; i++) {
        if (n->out[i]->name) continue;
        char name[64];
        const ir_slot *slot = ir_op_out_slot(n->op, i, n->n_out);
        snprintf(name, sizeof name, i ? "%s.%s" : "%s", ir_op_get(n->op)->name, slot ? slot->name : "");
        ir_value_rename(n->out[i], name);
    }
}

bool ir_done_all(ir_builder *b, ir_node *n)
{
    if (!n) return false;
    if (!b->nameless) ir_name_results(n);
    if (ir_infer(n, b->diag) != AMPC_OK) {
        ir_node_remove(n);
        return false;
    }
    ir_node_insert(b, n);
    return true;
}

ir_value *ir_done(ir_builder *b, ir_node *n) { return ir_done_all(b, n) && n->n_out > 0 ? n->out[0] : NULL; }

/* ---- shorthands ------------------------------------------------------------------------------ */

ir_value *ir_unary(ir_builder *b, ir_op op, ir_value *x) { return ir_done(b, ir_new(b, op, 1, x)); }

ir_value *ir_binary(ir_builder *b, ir_op op, ir_value *x, ir_value *y) { return ir_done(b, ir_new(b, op, 2, x, y)); }

ir_value *ir_cast(ir_builder *b, ir_value *x, ir_dtype to)
{
    if (!x || x->type.dtype == to) return x;
    ir_node *n = ir_new(b, IR_OP_cast, 1, x);
    ir_set_dtype(n, IR_ATTR(cast, to), to);
    return ir_done(b, n);
}

_Static_assert(IR_ATTR(reshape, shape) == IR_ATTR(expand, shape), "with_shape sets both");

static ir_value *with_shape(ir_builder *b, ir_op op, ir_value *x, const ir_dim *dims, int rank)
{
    if (!x) return NULL;
    ir_type target = ir_type_make(x->type.dtype, rank, dims);
    if (ir_type_same_shape(&x->type, &target)) return x;
    ir_node *n = ir_new(b, op, 1, x);
    ir_set_list(n, IR_ATTR(reshape, shape), dims, rank);
    return ir_done(b, n);
}

ir_value *ir_reshape(ir_builder *b, ir_value *x, const ir_dim *dims, int rank)
{
    return with_shape(b, IR_OP_reshape, x, dims, rank);
}

ir_value *ir_reshape_like(ir_builder *b, ir_value *x, const ir_type *shape)
{
    return ir_reshape(b, x, shape->dims, shape->rank);
}

ir_value *ir_expand(ir_builder *b, ir_value *x, const ir_dim *dims, int rank)
{
    return with_shape(b, IR_OP_expand, x, dims, rank);
}

ir_value *ir_transpose(ir_builder *b, ir_value *x, const int64_t *perm)
{
    if (!x) return NULL;
    bool identity = true;
    for (int i = 0; i < x->type.rank; i++) identity &= perm[i] == i;
    if (identity) return x;
    ir_node *n = ir_new(b, IR_OP_transpose, 1, x);
    ir_set_list(n, IR_ATTR(transpose, perm), perm, x->type.rank);
    return ir_done(b, n);
}

/* A slice or its gradient, from the first element of each axis on. */
static ir_value *from_start(ir_builder *b, ir_op op, ir_value *x, int shape, int start, int step, const ir_dim *dims)
{
    static const int64_t zeros[IR_MAX_RANK];
    int64_t ones[IR_MAX_RANK];
    if (!x) return NULL;
    const ir_type to = ir_type_make(x->type.dtype, x->type.rank, dims);
    if (ir_type_same_shape(&x->type, &to)) return x;
    for (int i = 0; i < to.rank; i++) ones[i] = 1;
    ir_node *n = ir_new(b, op, 1, x);
    ir_set_list(n, shape, dims, to.rank);
    ir_set_list(n, start, zeros, to.rank);
    ir_set_list(n, step, ones, to.rank);
    return ir_done(b, n);
}

ir_value *ir_cut(ir_builder *b, ir_value *x, const ir_dim *dims)
{
    return from_start(b, IR_OP_slice, x, IR_ATTR(slice, size), IR_ATTR(slice, start), IR_ATTR(slice, step), dims);
}

ir_value *ir_pad(ir_builder *b, ir_value *x, const ir_dim *dims)
{
    return from_start(b, IR_OP_slice_grad, x, IR_ATTR(slice_grad, shape), IR_ATTR(slice_grad, start),
                      IR_ATTR(slice_grad, step), dims);
}

ir_value *ir_reduce_sum(ir_builder *b, ir_value *x, const int64_t *axes, int n_axes, bool keepdims)
{
    if (!n_axes) return x;
    ir_node *n = ir_new(b, IR_OP_reduce_sum, 1, x);
    ir_set_list(n, IR_ATTR(reduce_sum, axes), axes, n_axes);
    ir_set_bool(n, IR_ATTR(reduce_sum, keepdims), keepdims);
    return ir_done(b, n);
}

ir_value *ir_matmul(ir_builder *b, ir_value *x, ir_value *y, ir_value *bias, bool trans_a, bool trans_b)
{
    ir_node *n = ir_new(b, IR_OP_matmul, 3, x, y, bias);
    ir_set_bool(n, IR_ATTR(matmul, trans_a), trans_a);
    ir_set_bool(n, IR_ATTR(matmul, trans_b), trans_b);
    return ir_done(b, n);
}

/* ---- constants ------------------------------------------------------------------------------- */

ir_value *ir_constant(ir_builder *b, const char *name, const ir_type *type, const void *bytes)
{
    ir_storage *s = ir_storage_new(b->graph->module, IR_CONST, name, type);
    ir_storage_set(b->graph->module, s, bytes);
    return ir_graph_storage(b->graph, s);
}

/* Equal constants share one storage, which is named by their bits. */
static void name_scalar(char name[64], ir_dtype t, const void *bytes)
{
    uint64_t bits = 0;
    memcpy(&bits, bytes, ir_dtype_size(t));
    snprintf(name, 64, "c.%s.%llx", ir_dtype_name(t), (unsigned long long)bits);
}

bool ir_storage_is_scalar(const ir_storage *s)
{
    if (s->kind != IR_CONST || s->type.rank != 0) return false;
    static const unsigned char zero[8];
    if (s->data.kind != IR_DATA_INLINE && s->data.kind != IR_DATA_ZERO) return false;
    char name[64];
    name_scalar(name, s->type.dtype, s->data.kind == IR_DATA_ZERO ? zero : s->data.bytes);
    return strcmp(name, s->name) == 0;
}

bool ir_is_scalar(const ir_value *v) { return v->kind == IR_VALUE_STORAGE && ir_storage_is_scalar(v->storage); }

ir_value *ir_scalar(ir_builder *b, ir_dtype t, double v)
{
    ir_module *m = b->graph->module;
    ir_type type = ir_type_scalar(t);
    unsigned char bytes[8] = {0};
    ir_store_f64(t, bytes, v);
    char name[64];
    name_scalar(name, t, bytes);
    ir_storage *s = ir_storage_find(m, name);
    if (s && s->kind == IR_CONST && ir_type_equal(&s->type, &type)) return ir_graph_storage(b->graph, s);
    return ir_constant(b, name, &type, bytes);
}

ir_value *ir_scalar_like(ir_builder *b, const ir_value *like, double v)
{
    return like ? ir_scalar(b, like->type.dtype, v) : NULL;
}

ir_node *ir_output(ir_builder *b, const char *name, ir_value *v)
{
    ir_node *n = ir_new(b, IR_OP_output, 1, v);
    ir_set_str(n, IR_ATTR(output, name), name);
    ir_done_all(b, n);
    if (b->graph->output_names) strmap_put(b->graph->output_names, name, n);
    return n;
}

ir_node *ir_output_as(ir_builder *b, ir_output_role role, ir_value *of, ir_value *v)
{
    const char *name = arena_printf(b->graph->module->arena, "%s%s", ir_output_roles[role].name, of ? of->name : "");
    ir_node *n = ir_output(b, ir_graph_name_output(b->graph, name), v);
    n->role = role;
    n->of = of;
    return n;
}

void ir_output_again(ir_builder *b, ir_node *n, ir_value *v)
{
    ir_node *again = ir_output(b, ir_output_name(n), v);
    again->role = n->role;
    again->of = n->of;
    ir_node_remove(n);
}

void ir_store(ir_builder *b, ir_storage *s, ir_value *v)
{
    ir_done_all(b, ir_new(b, IR_OP_store, 2, ir_graph_storage(b->graph, s), v));
}
