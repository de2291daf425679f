/* rows_control.c - graphs with `if` and `loop` for rows_gradient.c. */
#include "tests/ops/rows_gradient.h"

static ir_graph *subgraph(ir_node *n, const char *attribute)
{
    ir_graph *g = ir_body_new(n->graph->module);
    ir_region_add(n, attribute, g);
    return g;
}

/* ---- if ------------------------------------------------------------------------------------------ */

/* Two results: tanh(x)*w and x, or x*x and x + exp(w). */
static void fill_branch(ir_node *n, const char *attribute, ir_value *x, ir_value *w, bool taken, diag *d)
{
    ir_graph *g = subgraph(n, attribute);
    ir_builder b = ir_builder_at_end(g, d);
    ir_value *bx = ir_capture_add(g, x), *bw = ir_capture_add(g, w);
    ir_output(&b, "0",
              taken ? ir_binary(&b, IR_OP_mul, ir_unary(&b, IR_OP_tanh, bx), bw) : ir_binary(&b, IR_OP_mul, bx, bx));
    ir_output(&b, "1", taken ? bx : ir_binary(&b, IR_OP_add, bx, ir_unary(&b, IR_OP_exp, bw)));
}

/* y = first result + second result * w */
ir_value *gradient_build_if(ir_builder *b, const gradient_row *r, ir_value **in, int set)
{
    (void)set;
    ir_node *n = ir_new_array(b, r->op, 1, in, 2);
    for (int i = 0; i < 2; i++) n->out[i]->type = in[1]->type;
    ir_node_insert(b, n);
    fill_branch(n, "then_branch", in[1], in[2], true, b->diag);
    fill_branch(n, "else_branch", in[1], in[2], false, b->diag);
    if (ir_infer(n, b->diag) != AMPC_OK) return NULL;
    ir_name_results(n);
    return ir_binary(b, IR_OP_add, n->out[0], ir_binary(b, IR_OP_mul, n->out[1], in[2]));
}

/* ---- loop ---------------------------------------------------------------------------------------- */

/* s becomes tanh(s*w) + x/4 in each iteration, which returns s*w; x is a scanned value or, without one, s. */
static void fill_body(ir_node *n, ir_value *s, ir_value *w, const ir_type *x, diag *d)
{
    ir_graph *g = subgraph(n, "body");
    ir_builder b = ir_builder_at_end(g, d);
    const ir_type number = ir_type_scalar(IR_i64), truth = ir_type_scalar(IR_bool);
    ir_value *go = NULL;
    if (!x) {
        ir_graph_input(g, "i", &number);
        go = ir_graph_input(g, "go", &truth);
    }
    ir_value *bs = ir_graph_input(g, "s", &s->type), *bx = x ? ir_graph_input(g, "x", x) : bs;
    ir_value *bw = ir_capture_add(g, w), *product = ir_binary(&b, IR_OP_mul, bs, bw);
    ir_value *next = ir_binary(&b, IR_OP_add, ir_unary(&b, IR_OP_tanh, product),
                               ir_binary(&b, IR_OP_mul, bx, ir_scalar(&b, IR_f64, 0.25)));
    if (go) ir_output(&b, "go", go);
    ir_output(&b, "s", next);
    ir_output(&b, "product", product);
}

static ir_value *finish(ir_builder *b, ir_node *n, const ir_type *state, ir_dim trips)
{
    ir_type all = {.dtype = state->dtype, .rank = state->rank + 1, .dims = {trips}};
    for (int i = 0; i < state->rank; i++) all.dims[i + 1] = state->dims[i];
    n->out[0]->type = *state;
    n->out[1]->type = all;
    if (ir_infer(n, b->diag) != AMPC_OK) return NULL;
    ir_name_results(n);
    return ir_binary(b, IR_OP_add, n->out[0], ir_reduce_sum(b, n->out[1], (int64_t[]){0}, 1, false));
}

/* in: s, w. The number of iterations is that of the table. */
ir_value *gradient_build_loop(ir_builder *b, const gradient_row *r, ir_value **in, int set)
{
    static const int64_t trips[] = {0, 1, 17, 2, 3, 5, 1, 4, 0, 6};
    ir_value *operands[] = {ir_scalar(b, IR_i64, (double)trips[set]), in[0]};
    ir_node *n = ir_new_array(b, r->op, 2, operands, 2);
    ir_layout_set(n, "x_x", "xx");
    ir_node_insert(b, n);
    fill_body(n, in[0], in[1], NULL, b->diag);
    return finish(b, n, &in[0]->type, trips[set]);
}

/* in: s, w, x; the first dimension of x is the number of iterations. */
ir_value *gradient_build_scan(ir_builder *b, const gradient_row *r, ir_value **in, int set)
{
    ir_type one = in[2]->type;
    one.rank--;
    for (int i = 0; i < one.rank; i++) one.dims[i] = in[2]->type.dims[i + 1];
    ir_node *n = ir_new_array(b, r->op, 2, (ir_value *[]){in[0], in[2]}, 2);
    const int64_t reversed[] = {set % 2, set / 2 % 2};
    ir_set_bool(n, IR_ATTR(loop, counted), false);
    ir_set_int(n, IR_ATTR(loop, scanned), 1);
    ir_set_list(n, IR_ATTR(loop, slice_reversed), &reversed[0], 1);
    ir_set_list(n, IR_ATTR(loop, stack_reversed), &reversed[1], 1);
    ir_node_insert(b, n);
    fill_body(n, in[0], in[1], &one, b->diag);
    return finish(b, n, &in[0]->type, in[2]->type.dims[0]);
}
