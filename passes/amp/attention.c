/* attention.c - finds attentions that are spelled out. It rewrites nothing; the marks are for colouring. The nodes are
 * replaced later, by pass attention, and only if a device has the op.
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

attention_role attention_role_of(const ir_node *n)
{
    static const struct {
        ir_op op;
        attention_role role;
    } roles[] = {
        {IR_OP_matmul, ATTENTION_PRODUCT},  {IR_OP_add, ATTENTION_MASK},     {IR_OP_sub, ATTENTION_DIFFERENCE},
        {IR_OP_mul, ATTENTION_SCALE},       {IR_OP_div, ATTENTION_QUOTIENT}, {IR_OP_softmax, ATTENTION_SOFTMAX},
        {IR_OP_dropout, ATTENTION_DROPOUT},
    };
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (roles[i].op == n->op) return roles[i].role;
    return ir_op_get(ir_op_like(n->op, n->attr))->colour == IR_CLEAR && n->n_out == 1 ? ATTENTION_MOVEMENT
                                                                                      : ATTENTION_OTHER;
}

/* The operand whose scores n passes on, or -1. */
static int passing_operand(const ir_node *n, const bool *scores)
{
    int at = 0;
    while (at < n->n_in && !(ir_in(n, at) && scores[ir_in(n, at)->id])) at++;
    if (at == n->n_in) return -1;
    switch (attention_role_of(n)) {
    case ATTENTION_MASK:
    case ATTENTION_MOVEMENT: return at;
    case ATTENTION_DIFFERENCE: return at == 0 ? at : -1;
    case ATTENTION_SCALE: return is_single(ir_in(n, 1 - at)) ? at : -1;
    case ATTENTION_QUOTIENT: return at == 0 && is_single(ir_in(n, 1)) ? at : -1;
    default: return -1;
    }
}

bool attention_is_last_softmax(const ir_node *n)
{
    if (attention_role_of(n) != ATTENTION_SOFTMAX) return false;
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
    return attention_role_of(n) == ATTENTION_PRODUCT && is_computed(n, 0, computed) && is_computed(n, 1, computed);
}

/* Marks backwards from the softmax to the product; stops at a marked node, since the rest is marked too. */
static void mark_way(const ir_node *softmax, const bool *scores, attention_mark *marks)
{
    for (const ir_node *n = ir_in(softmax, 0)->def;
         attention_role_of(n) != ATTENTION_PRODUCT && !marks[n->id].scores;) {
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
        const attention_role is = attention_role_of(n);
        scores[n->out[0]->id] = is == ATTENTION_PRODUCT ? product : passing_operand(n, scores) >= 0;
        for (int i = 0; i < n->n_in; i++)
            for (int k = 0; k < n->n_out; k++) computed[n->out[k]->id] |= is_computed(n, i, computed);
        if (attention_is_last_softmax(n) && scores[first->id]) weights[n->out[0]->id] = n;
        else if (softmax && (is == ATTENTION_MOVEMENT || is == ATTENTION_DROPOUT)) weights[n->out[0]->id] = softmax;
    }
    return marks;
}
