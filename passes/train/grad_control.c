/* grad_control.c - gradients of nodes that run subgraphs.
 *
 * The gradient of an `if` is an `if` with the same condition and captures. Its branches are those of the node, followed
 * by their backward: they compute the values of the branch again, so nothing is kept from the forward. They capture the
 * gradients of the results and return that of each float capture, zero where the branch does not read it.
 *
 *   %y = if %c (.. captures @x, @w)      %d.x, %d.w = if %c (.. captures @x, @w, %d.y) */
#include "passes/train/grad.h"

#include <string.h>

/* ---- parameters ---------------------------------------------------------------------------------- */

static bool is_trained(const ir_value *v)
{
    return v && v->kind == IR_VALUE_STORAGE && v->storage->kind == IR_PARAM && !v->storage->frozen &&
           ir_dtype_is_float(v->type.dtype);
}

static void lift_from(ir_node *n, ir_graph *subgraph)
{
    for (ir_node *user = subgraph->first; user; user = user->next)
        for (int i = 0; i < user->n_in; i++) {
            ir_value *v = ir_in(user, i);
            if (is_trained(v))
                ir_node_set_input(user, i, ir_capture_add(subgraph, ir_graph_storage(n->graph, v->storage)));
        }
}

void lift_params(ir_graph *g)
{
    for (ir_node *n = g->first; n; n = n->next)
        for (int i = 0; i < n->n_regions && n->op != IR_OP_opaque; i++) {
            lift_params(n->regions[i].graph);
            lift_from(n, n->regions[i].graph);
        }
}

/* ---- the gradient node --------------------------------------------------------------------------- */

/* A gradient node under construction. Its results are the gradients of `wanted`, operands of the forward node. */
typedef struct backward {
    grad *g;
    ir_node *node;
    int *wanted, count;
} backward;

static backward backward_new(grad *g, ir_op op)
{
    arena *a = g->n->graph->module->arena;
    backward b = {.g = g, .wanted = arena_array(a, (size_t)g->n->n_in + 1, sizeof *b.wanted)};
    ir_value **in = arena_array(a, (size_t)g->n->n_in + 1, sizeof(ir_value *));
    for (int i = 0; i < g->n->n_in; i++) {
        in[i] = ir_in(g->n, i);
        if (g->required[i]) b.wanted[b.count++] = i;
    }
    b.node = ir_new_array(g->b, op, g->n->n_in, in, b.count);
    ir_node_insert(g->b, b.node);
    return b;
}

/* Declares the types of the results: those of the operands. */
static void declare_results(const backward *b)
{
    b->node->layout.n_in = 1; /* the condition; the other operands are captures */
    for (int i = 0; i < b->count; i++) b->node->out[i]->type = ir_in(b->g->n, b->wanted[i])->type;
}

/* ---- a branch ------------------------------------------------------------------------------------ */

/* Removes the output statements of the copy and returns their values with their gradients, which it captures. */
static grad_subgraph take_outputs(const backward *b, ir_graph *copy)
{
    arena *a = copy->module->arena;
    grad_subgraph s = {.graph = copy};
    for (const ir_node *o = ir_first_output(copy); o; o = ir_next_output(o)) s.count++;
    ir_value **dy = arena_array(a, (size_t)s.count + 1, sizeof *dy);
    s.outputs = arena_array(a, (size_t)s.count + 1, sizeof *s.outputs);
    s.dy = dy;
    int i = 0;
    for (ir_node *o = ir_first_output(copy), *next; o; o = next, i++) {
        const int k = ir_opaque_result_at(b->g->n, i);
        next = ir_next_output(o);
        s.outputs[i] = ir_in(o, 0);
        if (k >= 0 && b->g->dy[k]) dy[i] = ir_capture_add(copy, b->g->dy[k]);
        ir_node_remove(o);
    }
    return s;
}

static ir_value *gradient_of(const grad_subgraph *s, int operand)
{
    for (size_t i = 0; i < s->graph->inputs.count; i++)
        if (ir_capture_find(s->graph->inputs.items[i]) == operand) return s->dx[i];
    return NULL;
}

static bool put_outputs(const backward *b, const grad_subgraph *s)
{
    ir_builder end = ir_builder_at_end(s->graph, b->g->b->diag);
    end.phase = IR_BACKWARD;
    end.loc = b->g->n->loc;
    for (int i = 0; i < b->count; i++) {
        const ir_value *operand = ir_in(b->g->n, b->wanted[i]);
        ir_value *d = gradient_of(s, b->wanted[i]);
        if (!d) d = grad_zeros(&(grad){.b = &end}, operand);
        if (!d) return false;
        ir_output(&end, arena_printf(s->graph->module->arena, "%d", i), d);
    }
    return true;
}

static grad_subgraph make_branch(const backward *b, const ir_region *branch)
{
    const ir_node *n = b->g->n;
    arena *a = n->graph->module->arena;
    ir_graph *copy = ir_region_clone(branch, b->node);
    grad_subgraph s = take_outputs(b, copy);
    bool *required = arena_array(a, copy->inputs.count + 1, sizeof *required);
    for (size_t i = 0; i < copy->inputs.count; i++) {
        const int operand = ir_capture_find(copy->inputs.items[i]);
        required[i] = operand >= 0 && operand < n->n_in && b->g->required[operand];
    }
    s.required = required;
    s.dx = arena_array(a, copy->inputs.count + 1, sizeof *s.dx);
    return s;
}

static void begin_branches(grad *g)
{
    arena *a = g->n->graph->module->arena;
    backward *b = arena_alloc(a, sizeof *b);
    *b = backward_new(g, IR_OP_if);
    declare_results(b);
    g->begun = b;
    g->subgraphs = arena_array(a, (size_t)g->n->n_regions, sizeof *g->subgraphs);
    for (int i = 0; i < g->n->n_regions; i++) g->subgraphs[g->n_subgraphs++] = make_branch(b, &g->n->regions[i]);
}

static bool finish_branches(grad *g)
{
    const backward *b = g->begun;
    for (int i = 0; i < g->n_subgraphs; i++)
        if (!put_outputs(b, &g->subgraphs[i])) return false;
    if (ir_infer(b->node, g->b->diag) != AMPC_OK) return false;
    for (int i = 0; i < b->count; i++) g->dx[b->wanted[i]] = b->node->out[i];
    return true;
}

bool grad_if(grad *g)
{
    if (g->begun) return finish_branches(g);
    begin_branches(g);
    return true;
}
