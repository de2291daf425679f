/* pad_cross_entropy.c - pads the scores of a loss, so that products are fast.
 *
 *   before  %y = matmul %x, %w.h {trans_b=true} : f16[N,50257]
 *           %loss, .. = softmax_cross_entropy %y, @label
 *   after   %w.padded = slice_grad %w.h {shape=[50264,768], start=[0,0], step=[1,1]}
 *           %y.padded = matmul %x, %w.padded {trans_b=true} : f16[N,50264]
 *           %loss, .. = softmax_cross_entropy %y.padded, @label {classes=50257}
 *
 * The tensor cores of a GPU need rows of a low type whose length is a multiple of 8, and the three products of the last
 * layer are a large part of a language model. Weight and bias are padded with zeros. The loss does not read the padding
 * and its gradient there is 0, so gradients of weight and bias are those of the model, the first rows of the padded
 * ones. Other readers of the scores, such as an output, get a copy without the padding, which costs nothing unless the
 * output is selected.
 *
 * Requires: forward phase only; runs after mixed precision, because only low types are padded. */
#include "ir/ops/formulas.h"
#include "passes/amp/explain.h"
#include "passes/pass.h"

#include <inttypes.h>

enum { COLUMNS = 8 };

typedef struct padding {
    int64_t classes, columns;
    const compile *compile;
} padding;

static bool has_columns(const ir_type *t, int64_t n) { return t->rank > 0 && t->dims[t->rank - 1] == n; }

static bool is_add(const ir_node *n) { return ir_formula_of(n->op, n->attr) == IR_FORMULA_add; }

/* Whether the value has one element per class. */
static bool is_row(const ir_value *v, int64_t classes)
{
    for (int i = 0; i < v->type.rank - 1; i++)
        if (v->type.dims[i] != 1) return false;
    return has_columns(&v->type, classes);
}

/* The operand that has the scores, if the node is one of those between a product and the loss; else -1. */
static int scores_of(const ir_node *n, const padding *p)
{
    if (!n || n->phase != IR_FORWARD || !has_columns(&n->out[0]->type, p->classes)) return -1;
    if (ir_op_has(n->op, IR_VIEW)) return has_columns(&ir_in(n, 0)->type, p->classes) ? 0 : -1;
    if (!is_add(n)) return -1;
    for (int i = 0; i < 2; i++)
        if (is_row(ir_in(n, 1 - i), p->classes) && ir_type_same_shape(&ir_in(n, i)->type, &n->out[0]->type)) return i;
    return -1;
}

/* The axis of a product's second matrix that has the classes. */
static int axis_of(const ir_node *n) { return n->attr[IR_ATTR(matmul, trans_b)].i ? 0 : 1; }

static bool is_read_once(const ir_value *v) { return v->first_use && !v->first_use->next; }

/* The node that computes the scores, which the others reshape. */
static ir_node *last_of(const ir_value *v, const padding *p)
{
    ir_node *n = ir_def(v);
    while (scores_of(n, p) >= 0 && ir_op_has(n->op, IR_VIEW)) n = ir_def(ir_in(n, 0));
    return n;
}

/* Whether the scores are those of a product, computed with reshapes and a bias, and have one reader before the bias. */
static bool is_product(const ir_value *v, const padding *p)
{
    const ir_node *n = last_of(v, p);
    int from;
    while ((from = scores_of(n, p)) >= 0) {
        if (!is_read_once(ir_in(n, from))) return false;
        n = ir_def(ir_in(n, from));
    }
    return n && ir_op_has(n->op, IR_EPILOGUE) && n->phase == IR_FORWARD && ir_in(n, 1)->type.rank == 2 &&
           ir_in(n, 1)->type.dims[axis_of(n)] == p->classes && ir_dtype_is_low(n->out[0]->type.dtype);
}

static ir_value *named(ir_value *padded, const ir_value *plain)
{
    if (padded) ir_value_rename(padded, arena_printf(plain->graph->module->arena, "%s.padded", plain->name));
    return padded;
}

/* The value, followed by zeros along one axis. */
static ir_value *pad(ir_builder *b, ir_value *v, int axis, const padding *p)
{
    if (!v) return NULL;
    ir_type type = v->type;
    type.dims[axis] = p->columns;
    return named(ir_pad(b, v, type.dims), v);
}

static const char *describe(const ir_value *matrix, const padding *p)
{
    arena *a = matrix->graph->module->arena;
    const int64_t *dims = matrix->type.dims, size = (int64_t)ir_dtype_size(matrix->type.dtype);
    const char *text = arena_printf(a, "columns %" PRId64 " to %" PRId64 " are padding", p->classes, p->columns - 1);
    if (ir_dim_is_symbolic(dims[0]) || ir_dim_is_symbolic(dims[1])) return text;
    return arena_printf(a, "%s, each step writes %" PRId64 " bytes of padded weights", text, dims[0] * dims[1] * size);
}

static ir_value *pad_product(ir_builder *b, const ir_node *n, const padding *p)
{
    ir_value *bias = ir_in(n, IR_IN(matmul, bias)), *matrix = pad(b, ir_in(n, 1), axis_of(n), p);
    if (bias) bias = pad(b, bias, bias->type.rank - 1, p);
    ir_node *product = ir_new(b, IR_OP_matmul, 3, ir_in(n, 0), matrix, bias);
    if (!product || !matrix) return NULL;
    for (int i = 0; i < ir_op_get(n->op)->n_attr; i++) product->attr[i] = n->attr[i];
    const char *text = describe(matrix, p);
    product->note = n->note ? arena_printf(n->graph->module->arena, "%s, %s", n->note, text) : text;
    amp_explain_more(n, text, p->compile);
    return ir_done(b, product);
}

/* Makes the padded form of the scores; other readers than the next node get a part of it. A bias is padded before the
 * product, which may then add it. */
static ir_value *pad_scores(ir_builder *b, ir_value *v, const padding *p)
{
    const ir_node *n = ir_def(v);
    const int from = scores_of(n, p);
    ir_value *bias = NULL, *x = NULL, *padded;
    b->loc = n->loc;
    if (from >= 0 && is_add(n)) bias = pad(b, ir_in(n, 1 - from), ir_in(n, 1 - from)->type.rank - 1, p);
    if (from >= 0) x = pad_scores(b, ir_in(n, from), p);
    b->loc = n->loc;
    if (from < 0) padded = pad_product(b, n, p);
    else if (is_add(n)) padded = ir_binary(b, IR_OP_add, from ? bias : x, from ? x : bias);
    else {
        ir_type type = v->type;
        type.dims[type.rank - 1] = p->columns;
        padded = ir_reshape_like(b, x, &type);
    }
    if (!padded || is_read_once(v)) return named(padded, v);
    ir_value *part = ir_cut(b, padded, v->type.dims);
    if (part) ir_value_replace(v, part);
    return named(padded, v);
}

static void pad_loss(ir_node *n, const compile *c)
{
    diag *d = c->diag;
    const ir_type *x = &ir_in(n, 0)->type;
    const int64_t classes = x->rank == 2 && !ir_dim_is_symbolic(x->dims[1]) ? x->dims[1] : 0;
    const padding p = {classes, (classes + COLUMNS - 1) / COLUMNS * COLUMNS, c};
    const bool is_alone = !ir_in(n, IR_IN(softmax_cross_entropy, weight)) &&
                          !ir_value_used(n->out[IR_OUT(softmax_cross_entropy, lse)]) &&
                          !ir_value_used(n->out[IR_OUT(softmax_cross_entropy, log_prob)]);
    if (p.columns == classes || !is_alone || !is_product(ir_in(n, 0), &p)) return;
    ir_builder b = ir_builder_before(last_of(ir_in(n, 0), &p), d);
    ir_value *scores = pad_scores(&b, ir_in(n, 0), &p);
    if (!scores) return;
    ir_node_set_input(n, 0, scores);
    ir_set_int(n, IR_ATTR(softmax_cross_entropy, classes), classes);
    ir_infer(n, d);
}

ampc_status pass_pad(ir_module *m, compile *c)
{
    const compile_options *o = c->options;
    if (!o->pad || o->grad_penalty || o->wide || o->plain_runtime || o->draws) return AMPC_OK;
    for (size_t i = 0; i < m->graphs.count; i++) {
        ir_graph *g = m->graphs.items[i];
        if (g->role != IR_GRAPH_train) continue;
        for (ir_node *n = g->first; n; n = n->next)
            if (n->op == IR_OP_softmax_cross_entropy && n->phase == IR_FORWARD) pad_loss(n, c);
        pass_remove_dead(g);
    }
    return diag_status(c->diag);
}
