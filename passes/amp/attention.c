/* attention.c - finds attentions that are spelled out. It rewrites nothing; the marks are for colouring.
 *
 *   product -> { * / one number, + - mask, where, movement } -> softmax over the last axis -> { movement } -> product
 *
 * The operands of both products have to be computed: a product with a weight is a layer. One walk in execution order
 * records for each value whether it holds scores, and of which softmax it is the attention weights. At a product whose
 * first operand is attention weights, the nodes between the first product and the softmax are marked. */
#include "ir/ops/formulas.h"
#include "passes/amp/attention.h"

static bool is_single(const ir_value *v)
{
    for (int i = 0; i < v->type.rank; i++)
        if (v->type.dims[i] != 1) return false;
    return true;
}

typedef enum role { OTHER, PRODUCT, MASK, DIFFERENCE, SCALE, QUOTIENT, MOVEMENT, SOFTMAX, DROPOUT } role;

/* The role of a node in an attention. */
static role role_of(const ir_node *n)
{
    static const struct {
        ir_op op;
        role role;
    } roles[] = {
        {IR_OP_matmul, PRODUCT}, {IR_OP_add, MASK},        {IR_OP_sub, DIFFERENCE},  {IR_OP_mul, SCALE},
        {IR_OP_div, QUOTIENT},   {IR_OP_softmax, SOFTMAX}, {IR_OP_dropout, DROPOUT},
    };
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (roles[i].op == n->op) return roles[i].role;
    return ir_op_get(ir_op_like(n->op, n->attr))->colour == IR_CLEAR && n->n_out == 1 ? MOVEMENT : OTHER;
}

/* The operand whose scores n passes on, or -1. */
static int passing_operand(const ir_node *n, const bool *scores)
{
    int at = 0;
    while (at < n->n_in && !(ir_in(n, at) && scores[ir_in(n, at)->id])) at++;
    if (at == n->n_in) return -1;
    switch (role_of(n)) {
    case MASK:
    case MOVEMENT: return at;
    case DIFFERENCE: return at == 0 ? at : -1;
    case SCALE: return is_single(ir_in(n, 1 - at)) ? at : -1;
    case QUOTIENT: return at == 0 && is_single(ir_in(n, 1)) ? at : -1;
    default: return -1;
    }
}

static bool is_last_softmax(const ir_node *n)
{
    if (role_of(n) != SOFTMAX) return false;
    int64_t axis = n->attr[IR_ATTR(softmax, axis)].i;
    return axis == -1 || axis == ir_in(n, 0)->type.rank - 1;
}

static bool is_computed(const ir_node *n, int i, const bool *computed)
{
    const ir_value *v = ir_in(n, i);
    return v && (v->kind == IR_VALUE_INPUT || computed[v->id]);
}

static bool is_product(const ir_node *n, const bool *computed)
{
    return role_of(n) == PRODUCT && is_computed(n, 0, computed) && is_computed(n, 1, computed);
}

/* Marks backwards from the softmax to the product; stops at a marked node, since the rest is marked too. */
static void mark_way(const ir_node *softmax, const bool *scores, attention_mark *marks)
{
    for (const ir_node *n = ir_in(softmax, 0)->def; role_of(n) != PRODUCT && !marks[n->id].scores;) {
        const ir_value *from = ir_in(n, passing_operand(n, scores));
        marks[n->id] = (attention_mark){from, softmax};
        n = from->def;
    }
}

const attention_mark *attention_find(const ir_graph *g, arena *a)
{
    attention_mark *marks = arena_array(a, g->node_ids + 1, sizeof *marks);
    bool *scores = arena_array(a, g->value_ids + 1, sizeof *scores);
    bool *computed = arena_array(a, g->value_ids + 1, sizeof *computed);
    const ir_node **weights = arena_array(a, g->value_ids + 1, sizeof *weights);
    for (const ir_node *n = g->first; n && n->phase == IR_FORWARD; n = n->next) {
        if (!n->n_out || !n->n_in) continue;
        const ir_value *first = ir_in(n, 0);
        const ir_node *softmax = first ? weights[first->id] : NULL;
        bool product = is_product(n, computed);
        if (product && softmax) mark_way(softmax, scores, marks);
        role is = role_of(n);
        scores[n->out[0]->id] = is == PRODUCT ? product : passing_operand(n, scores) >= 0;
        for (int i = 0; i < n->n_in; i++)
            for (int k = 0; k < n->n_out; k++) computed[n->out[k]->id] |= is_computed(n, i, computed);
        if (is_last_softmax(n) && scores[first->id]) weights[n->out[0]->id] = n;
        else if (softmax && (is == MOVEMENT || is == DROPOUT)) weights[n->out[0]->id] = softmax;
    }
    return marks;
}
