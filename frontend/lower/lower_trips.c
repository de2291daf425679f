/* lower_trips.c - the number of iterations of a Loop that runs its body.
 *
 * A loop counts if its body continues while all of some counters are below bounds that do not change. A counter is the
 * number of the iteration, or a carried value that grows by the same number in each; it starts at a known number or
 * size, as a bound is one. tf2onnx writes each `while` of TensorFlow in this form. */
#include "frontend/lower/lower.h"

#include <string.h>

enum { MAX_BOUNDS = 16, ITERATION = 0, CONDITION, FIRST_STATE }; /* inputs of the body */

/* Conditions x < y as y - x; `step` is what x grows by. */
typedef struct bounds {
    ir_dim left[MAX_BOUNDS];
    int64_t step[MAX_BOUNDS];
    int count;
} bounds;

typedef struct counting {
    onnx_node *n;
    const onnx_subgraph *body;
    const Onnx__GraphProto *g;
} counting;

static ir_value *output_of(const counting *c, size_t i)
{
    const ir_node *out = c->body->graph->last;
    for (size_t k = c->g->n_output - 1; k > i; k--) out = out->prev;
    return ir_in(out, 0);
}

/* The index of the body's input v, or -1. */
static int input_of(const counting *c, const ir_value *v)
{
    for (size_t i = 0; v && i < c->g->n_input; i++)
        if (ir_graph_find_input(c->body->graph, c->g->input[i]->name) == v) return (int)i;
    return -1;
}

static onnx_term inside(const counting *c, const ir_value *v, int64_t at)
{
    return onnx_term_of(c->n, c->body->consts, v, at);
}

/* A number or size outside of the body. */
static bool outside(const counting *c, const ir_value *v, int64_t at, ir_dim *out)
{
    const onnx_term t = onnx_term_of(c->n, c->n->importer->consts, v, at);
    *out = t.plus;
    return !t.from && t.plus != IR_DIM_NONE;
}

/* A number or size that is the same in each iteration. */
static bool is_fixed(const counting *c, onnx_term t, ir_dim *out)
{
    const ir_value *v = NULL;
    ir_dim plus = 0;
    const int input = input_of(c, t.from);
    if (input >= FIRST_STATE && output_of(c, (size_t)input - 1) == t.from) v = c->n->in[input];
    for (size_t i = 0; t.from && !v && i < c->body->captures.count; i++) {
        const onnx_capture *capture = &c->body->captures.items[i];
        if (capture->input == t.from || capture->inner == t.from) v = capture->outer;
    }
    if (t.from && (!v || !outside(c, v, t.at, &plus))) return false;
    *out = ir_dim_add(c->n->dims, t.plus, plus);
    return *out != IR_DIM_NONE;
}

/* The first value of a counter and what it grows by. */
static bool is_counter(const counting *c, onnx_term t, ir_dim *first, int64_t *step)
{
    const int input = input_of(c, t.from);
    *first = t.plus;
    *step = 1;
    if (input == ITERATION) return true;
    if (input < FIRST_STATE || !c->n->in[input]) return false;
    const onnx_term next = inside(c, output_of(c, (size_t)input - 1), t.at);
    if (next.from != t.from || next.at != t.at || ir_dim_is_symbolic(next.plus) || next.plus < 1) return false;
    if (next.plus > IR_DIM_MAX_SIZE || !outside(c, c->n->in[input], t.at, first)) return false;
    *first = ir_dim_add(c->n->dims, *first, t.plus);
    *step = next.plus;
    return *first != IR_DIM_NONE;
}

/* Adds a comparison of two integers. `in_body`: the left one is a counter; otherwise both are fixed. */
static bool add_bound(const counting *c, const ir_node *compare, bool in_body, bounds *to)
{
    const bool turned = compare->op == IR_OP_greater || compare->op == IR_OP_greater_or_equal;
    const bool equal = compare->op == IR_OP_less_or_equal || compare->op == IR_OP_greater_or_equal;
    const ir_value *x = ir_in(compare, turned), *y = ir_in(compare, !turned);
    ir_dim first = 0, bound = 0;
    int64_t step = 0;
    if (to->count == MAX_BOUNDS) return false;
    if (in_body && (!is_counter(c, inside(c, x, 0), &first, &step) || !is_fixed(c, inside(c, y, 0), &bound)))
        return false;
    if (!in_body && (!outside(c, x, 0, &first) || !outside(c, y, 0, &bound))) return false;
    const ir_dim left = ir_dim_add(c->n->dims, ir_dim_sub(c->n->dims, bound, first), equal);
    to->left[to->count] = left;
    to->step[to->count++] = step;
    return left != IR_DIM_NONE;
}

/* The comparisons that a condition consists of. False: it has other parts. */
static bool find_bounds(const counting *c, const ir_value *v, bool in_body, bounds *to)
{
    const ir_value *parts[MAX_BOUNDS] = {v};
    for (int i = 0, count = 1; i < count; i++) {
        const ir_value *p = parts[i];
        const ir_const_value *known = ir_const_get(in_body ? c->body->consts : c->n->importer->consts, p);
        while (!known && p->kind == IR_VALUE_RESULT && p->def->op == IR_OP_reshape) p = ir_in(p->def, 0);
        const bool given = in_body && input_of(c, p) == CONDITION, single = known && known->ints && known->count == 1;
        if (given || (single && known->ints[0] == 1)) continue;
        if (single && to->count < MAX_BOUNDS) {
            to->step[to->count] = in_body;
            to->left[to->count++] = 0; /* it is false */
            continue;
        }
        if (known || p->kind != IR_VALUE_RESULT) return false;
        switch (p->def->op) {
        case IR_OP_and:
            if (count + 2 > MAX_BOUNDS) return false;
            parts[count++] = ir_in(p->def, 0);
            parts[count++] = ir_in(p->def, 1);
            break;
        case IR_OP_less:
        case IR_OP_less_or_equal:
        case IR_OP_greater:
        case IR_OP_greater_or_equal:
            if (!add_bound(c, p->def, in_body, to)) return false;
            break;
        default: return false;
        }
    }
    return true;
}

/* Whether one of the bounds, a step earlier, is at most `bound` for all sizes. */
static bool has_below(ir_dim_table *t, const bounds *all, ir_dim bound)
{
    for (int i = 0; i < all->count; i++) {
        const ir_dim gap = ir_dim_sub(t, bound, ir_dim_add(t, all->left[i], all->step[i]));
        if (gap != IR_DIM_NONE && ir_dim_lower_bound(t, gap) >= 0) return true;
    }
    return false;
}

/* Whether the condition before the loop says the same as that of the body, one step earlier: each of its bounds has one
 * in the body that is not larger, and each of those one before the loop. */
static bool same_before(ir_dim_table *t, const bounds *before, const bounds *after)
{
    bool same = true;
    for (int i = 0; i < before->count; i++) same &= has_below(t, after, before->left[i]);
    for (int i = 0; i < after->count; i++) same &= has_below(t, before, ir_dim_add(t, after->left[i], after->step[i]));
    return same;
}

static ir_dim at_most(ir_dim_table *t, ir_dim trips, ir_dim more, bool *any)
{
    const ir_dim least = *any ? ir_dim_min(t, trips, more) : more;
    *any = true;
    return least;
}

bool onnx_is_decided(onnx_node *n, const ir_value *v, bool *truth)
{
    const counting c = {.n = n};
    bounds b = {.count = 0};
    *truth = true;
    if (!v || !find_bounds(&c, v, false, &b)) return false;
    for (int i = 0; i < b.count; i++) {
        if (ir_dim_is_symbolic(b.left[i])) return false;
        *truth &= b.left[i] > 0;
    }
    return true;
}

ir_dim onnx_loop_trips(onnx_node *n, const onnx_subgraph *body, const Onnx__GraphProto *g)
{
    const counting c = {n, body, g};
    ir_dim_table *t = n->dims;
    bounds before = {.count = 0}, after = {.count = 0};
    bool any = false;
    ir_dim trips = 0;
    if (!find_bounds(&c, output_of(&c, 0), true, &after)) return IR_DIM_NONE;
    if (onnx_in(n, 1) && !find_bounds(&c, n->in[1], false, &before)) return IR_DIM_NONE;
    if (before.count && !same_before(t, &before, &after)) return IR_DIM_NONE;
    for (int i = 0; i < after.count; i++) {
        /* after iteration k, x has grown by k steps: it ends in the iteration that follows the last x < y */
        const ir_dim further = ir_dim_floordiv(t, ir_dim_add(t, after.left[i], after.step[i] - 1), after.step[i]);
        const ir_dim lowest = before.count ? ir_dim_number(-1) : 0;
        trips = at_most(t, trips, ir_dim_add(t, ir_dim_max(t, further, lowest), 1), &any);
    }
    if (onnx_in(n, 0)) {
        ir_dim most;
        if (!outside(&c, n->in[0], 0, &most)) return IR_DIM_NONE;
        const bool endless = any && !ir_dim_is_symbolic(most) && most >= IR_DIM_MAX_SIZE;
        if (!endless) trips = at_most(t, trips, ir_dim_max(t, most, 0), &any);
    }
    return any ? trips : IR_DIM_NONE;
}
