/* slopes.c - the derivatives of a graph's outputs, or of its loss, with respect to every value of the network. */
#include "passes/train/grad.h"
#include "passes/passes.h"
#include "passes/pass.h"

typedef VEC(ir_value *) values;

/* The float results of the model's operators. */
static values find_values(const ir_graph *g, arena *a)
{
    values found = {0};
    for (const ir_node *n = g->first; n; n = n->next)
        for (int i = 0; i < n->n_out && n->loc.op; i++)
            if (n->out[i]->type.dtype == IR_f32 && n->out[i]->first_use) vec_push(a, &found, n->out[i]);
    return found;
}

/* The sum of the elements of v, weighted by a new input of the graph. */
static ir_value *weighted_sum(ir_builder *b, const ir_node *output, ir_value *v)
{
    const char *name = arena_printf(b->graph->module->arena, PASS_SEED "%s", ir_output_name(output));
    int64_t axes[IR_MAX_RANK];
    for (int i = 0; i < v->type.rank; i++) axes[i] = i;
    ir_value *seed = ir_graph_input(b->graph, name, &v->type);
    ir_value *product = ir_binary(b, IR_OP_mul, v, seed);
    return v->type.rank ? ir_reduce_sum(b, product, axes, v->type.rank, false) : product;
}

static values find_sums(ir_graph *g, ir_builder *b, bool of_loss, arena *a)
{
    values sums = {0};
    VEC(ir_node *) outputs = {0};
    if (of_loss) vec_push(a, &sums, ir_in(ir_output_by_role(g, IR_OUTPUT_loss), 0));
    for (ir_node *n = ir_first_output(g); n && !of_loss; n = ir_next_output(n))
        if (!ir_output_roles[n->role].name) vec_push(a, &outputs, n);
    for (size_t i = 0; i < outputs.count; i++) {
        ir_value *v = ir_in(outputs.items[i], 0);
        ir_value *sum = v->type.dtype == IR_f32 ? weighted_sum(b, outputs.items[i], v) : NULL;
        if (sum) vec_push(a, &sums, sum);
    }
    return sums;
}

/* What has no derivative is left out, without a message. */
static void differentiate(ir_graph *g, bool of_loss, diag *quiet, arena *a)
{
    ir_graph_renumber(g);
    values wrt = find_values(g, a);
    ir_builder b = pass_builder(g, IR_FORWARD, quiet);
    values sums = find_sums(g, &b, of_loss, a);
    if (!sums.count) return;
    ir_builder end = pass_builder(g, IR_BACKWARD, quiet);
    grad_walk w = {.graph = g, .phase = IR_BACKWARD, .prefix = "d.", .of = sums.items, .wrt = wrt.items};
    w.of_count = (int)sums.count;
    w.count = (int)wrt.count;
    w.seed = ir_scalar(&end, IR_f32, 1.0);
    w.gradients = arena_array(a, wrt.count + 1, sizeof *w.gradients);
    (void)grad_walk_run(&w, quiet);
    end = pass_builder(g, IR_BACKWARD, quiet);
    for (size_t i = 0; i < wrt.count; i++)
        if (w.gradients[i])
            ir_output(&end, arena_printf(g->module->arena, PASS_SLOPE "%s", wrt.items[i]->name), w.gradients[i]);
}

/* Seeds of such a size would be inputs whose size is known only during the run. */
static ampc_status refuse_sized(const ir_graph *g, diag *d)
{
    for (const ir_node *n = g->first; n; n = n->next)
        if (ir_op_has(n->op, IR_SIZES))
            return diag_error(d, AMPC_UNSUPPORTED, ir_diag_loc(n),
                              "has no derivative: the size of its result depends on data");
    return AMPC_OK;
}

ampc_status compile_slopes(ir_module *m, const char *graph, bool of_loss, diag *d)
{
    ir_graph *g = ir_graph_by_key(m, graph);
    TRY(refuse_sized(g, d));
    diag *quiet = diag_new(NULL, NULL);
    arena *a = arena_new(0);
    jmp_buf guard;
    ampc_status status = AMPC_OK;
    if (!quiet || !a || setjmp(guard)) status = diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory");
    else {
        arena_set_guard(a, &guard);
        arena_set_guard(m->arena, &guard);
        differentiate(g, of_loss, quiet, a);
        status = ir_verify(m, d);
    }
    arena_set_guard(m->arena, NULL);
    arena_free(a);
    diag_free(quiet);
    return status;
}
