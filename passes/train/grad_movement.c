/* grad_movement.c - gradients of ops that move values: the inverse movement, with sums where a value was copied. */
#include "passes/train/grad.h"

bool grad_reshape(grad *g) { return (g->dx[0] = ir_reshape_like(g->b, D, &X->type)) != NULL; }

bool grad_transpose(grad *g)
{
    const ir_attr *perm = &g->n->attr[IR_ATTR(transpose, perm)];
    int64_t inverse[IR_MAX_RANK];
    for (int i = 0; i < perm->list.count; i++) inverse[perm->list.items[i]] = i;
    return (g->dx[0] = ir_transpose(g->b, D, inverse)) != NULL;
}

/* The walk sums over the expanded axes. */
bool grad_expand(grad *g) { return (g->dx[0] = D) != NULL; }

bool grad_concat(grad *g)
{
    int n = g->n->n_in, axis = (int)g->n->attr[IR_ATTR(concat, axis)].i;
    if (axis < 0) axis += D->type.rank;
    int64_t *sizes = arena_array(g->b->graph->module->arena, (size_t)n, sizeof *sizes);
    for (int i = 0; i < n; i++) sizes[i] = ir_in(g->n, i)->type.dims[axis];
    ir_node *parts = ir_new_array(g->b, IR_OP_split, 1, &D, n);
    ir_set_int(parts, IR_ATTR(split, axis), axis);
    ir_set_list(parts, IR_ATTR(split, sizes), sizes, n);
    if (!ir_done_all(g->b, parts)) return false;
    for (int i = 0; i < n; i++) g->dx[i] = parts->out[i];
    return true;
}

bool grad_split(grad *g)
{
    int n = g->n->n_out;
    ir_value **parts = arena_array(g->b->graph->module->arena, (size_t)n, sizeof *parts);
    for (int i = 0; i < n; i++) parts[i] = g->dy[i] ? g->dy[i] : grad_zeros(g, g->n->out[i]);
    ir_node *joined = ir_new_array(g->b, IR_OP_concat, n, parts, 0);
    ir_set_int(joined, IR_ATTR(concat, axis), g->n->attr[IR_ATTR(split, axis)].i);
    return (g->dx[0] = ir_done(g->b, joined)) != NULL;
}

bool grad_slice(grad *g)
{
    ir_node *n = grad_node(g, IR_OP_slice_grad, 1, &D);
    return (g->dx[0] = ir_done(g->b, grad_shaped(n, IR_ATTR(slice_grad, shape), X))) != NULL;
}

bool grad_slice_grad(grad *g)
{
    ir_node *n = grad_node(g, IR_OP_slice, 1, &D);
    return (g->dx[0] = ir_done(g->b, grad_shaped(n, IR_ATTR(slice, size), X))) != NULL;
}

/* The gradient of the value of a constant border: the walk adds up that of the border's elements. */
static ir_value *border(grad *g)
{
    ir_value *zeros = grad_zeros(g, X), *parts[] = {zeros, ir_scalar_like(g->b, X, 1.0)};
    return ir_binary(g->b, IR_OP_mul, D, ir_done(g->b, grad_node(g, IR_OP_pad, 2, parts)));
}

/* The gradient of a constant border is that of its value; that of a copied border is added where the copy came from. */
bool grad_pad(grad *g)
{
    if (g->required[IR_IN(pad, value)]) g->dx[IR_IN(pad, value)] = border(g);
    if (g->n->attr[IR_ATTR(pad, mode)].i != IR_WORD(pad, constant)) {
        ir_node *n = grad_node(g, IR_OP_pad_grad, 1, &D);
        return (g->dx[0] = ir_done(g->b, grad_shaped(n, IR_ATTR(pad_grad, shape), X))) != NULL;
    }
    int64_t before[IR_MAX_RANK], after[IR_MAX_RANK];
    int rank = X->type.rank;
    for (int i = 0; i < rank; i++) {
        before[i] = -g->n->attr[IR_ATTR(pad, before)].list.items[i];
        after[i] = -g->n->attr[IR_ATTR(pad, after)].list.items[i];
    }
    ir_node *n = ir_new(g->b, IR_OP_pad, 1, D);
    ir_set_list(n, IR_ATTR(pad, before), before, rank);
    ir_set_list(n, IR_ATTR(pad, after), after, rank);
    return (g->dx[0] = ir_done(g->b, n)) != NULL;
}

bool grad_pad_grad(grad *g) { return (g->dx[0] = ir_done(g->b, grad_node(g, IR_OP_pad, 1, &D))) != NULL; }

bool grad_gather(grad *g)
{
    ir_node *n = grad_node(g, IR_OP_gather_grad, 2, (ir_value *[]){D, ir_in(g->n, 1)});
    return (g->dx[0] = ir_done(g->b, grad_shaped(n, IR_ATTR(gather_grad, shape), X))) != NULL;
}

bool grad_gather_grad(grad *g)
{
    ir_node *n = grad_node(g, IR_OP_gather, 2, (ir_value *[]){grad_cast_like(g, D, X), ir_in(g->n, 1)});
    return (g->dx[0] = ir_done(g->b, n)) != NULL;
}

bool grad_trilu(grad *g) { return (g->dx[0] = ir_done(g->b, grad_node(g, IR_OP_trilu, 1, &D))) != NULL; }

bool grad_where(grad *g)
{
    ir_value *cond = ir_in(g->n, 0), *zero = ir_scalar_like(g->b, D, 0.0);
    if (g->required[1]) g->dx[1] = ir_done(g->b, ir_new(g->b, IR_OP_where, 3, cond, D, zero));
    if (g->required[2]) g->dx[2] = ir_done(g->b, ir_new(g->b, IR_OP_where, 3, cond, zero, D));
    return true;
}

bool grad_cast(grad *g) { return (g->dx[0] = grad_cast_like(g, D, X)) != NULL; }
