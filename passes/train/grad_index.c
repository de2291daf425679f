/* grad_index.c - gradients of ops that address elements by coordinates. A gather's gradient is a sum of scattered
 * gradients; a scatter's updates read theirs from where they went. */
#include "passes/train/grad.h"

#define INDICES ir_in(g->n, 1)
#define UPDATES ir_in(g->n, 2)
#define BINARY(op, x, y) ir_binary(g->b, IR_OP_##op, x, y)
#define WHERE(cond, yes, no) ir_done(g->b, ir_new(g->b, IR_OP_where, 3, cond, yes, no))
#define NUMBER(v) ir_scalar_like(g->b, D, v)

/* Both scatters have the reduction in the same slot. */
_Static_assert(IR_ATTR(scatter_nd, reduction) == IR_ATTR(scatter_elements, reduction), "one slot");

static bool by_elements(const grad *g)
{
    return g->n->op == IR_OP_gather_elements || g->n->op == IR_OP_scatter_elements;
}

/* The elements of v that the node's indices address. */
static ir_value *gathered(grad *g, ir_value *v)
{
    const ir_op op = by_elements(g) ? IR_OP_gather_elements : IR_OP_gather_nd;
    return ir_done(g->b, grad_node(g, op, 2, (ir_value *[]){v, INDICES}));
}

/* `x` with `updates` at the node's indices. */
static ir_value *scattered(grad *g, ir_value *x, ir_value *updates, int reduction)
{
    const ir_op op = by_elements(g) ? IR_OP_scatter_elements : IR_OP_scatter_nd;
    ir_node *n = grad_node(g, op, 3, (ir_value *[]){x, INDICES, updates});
    if (n) ir_set_int(n, IR_ATTR(scatter_nd, reduction), reduction);
    return ir_done(g->b, n);
}

/* The sums of `updates` at the node's indices, in the shape of x. */
static ir_value *sums(grad *g, ir_value *updates)
{
    return scattered(g, ir_expand(g->b, NUMBER(0), X->type.dims, X->type.rank), updates, IR_WORD(scatter, add));
}

bool grad_gather_elements(grad *g) { return (g->dx[0] = sums(g, D)) != NULL; }
bool grad_gather_nd(grad *g) { return (g->dx[0] = sums(g, D)) != NULL; }

/* ---- scatters, by reduction ------------------------------------------------------------------ */

/* Whether each item of the indices is the last one at its place, in a shape that broadcasts to that of the updates. The
 * numbers of the items are scattered in the same way and read back. */
static ir_value *is_last(grad *g)
{
    const ir_type *indices = &INDICES->type;
    const bool elements = by_elements(g);
    const int tuple = elements ? 0 : (int)indices->dims[indices->rank - 1];
    ir_type items = ir_type_make(IR_i64, indices->rank - !elements, indices->dims), places = X->type;
    if (!elements) places.rank = (int)g->n->attr[IR_ATTR(scatter_nd, batch)].i + tuple;
    const ir_dim count = ir_type_count(g->b->graph->module->dims, &items);
    ir_node *iota = ir_new(g->b, IR_OP_iota, 0);
    ir_set_list(iota, IR_ATTR(iota, size), &count, 1);
    ir_value *number = ir_reshape(g->b, ir_done(g->b, iota), items.dims, items.rank);
    ir_value *zeros = ir_expand(g->b, ir_scalar(g->b, IR_i64, 0), places.dims, places.rank);
    ir_value *last = BINARY(equal, number, gathered(g, scattered(g, zeros, number, IR_WORD(scatter, none))));
    while (items.rank < UPDATES->type.rank) items.dims[items.rank++] = 1;
    return ir_reshape(g->b, last, items.dims, items.rank);
}

/* Elements of x that were replaced, and updates that a later one replaced, have gradient 0. */
static void replaced(grad *g)
{
    if (g->required[0]) {
        ir_value *zero = ir_expand(g->b, NUMBER(0), UPDATES->type.dims, UPDATES->type.rank);
        g->dx[0] = scattered(g, D, zero, IR_WORD(scatter, none));
    }
    if (!g->required[2]) return;
    ir_value *zero = NUMBER(0), *last_d = gathered(g, D);
    g->dx[2] = WHERE(is_last(g), last_d, zero);
}

static void added(grad *g)
{
    g->dx[0] = D;
    if (g->required[2]) g->dx[2] = gathered(g, D);
}

/* The derivative by each factor is the product of the others. It is y divided by the factor, except for a factor of 0:
 * there the product is computed with 1 in its place, and it is 0 if another update of the same place is 0 too. */
static void multiplied(grad *g)
{
    ir_value *x = grad_cast_like(g, X, D), *updates = grad_cast_like(g, UPDATES, D);
    if (g->required[0]) {
        ir_value *ones = ir_expand(g->b, NUMBER(1), X->type.dims, X->type.rank);
        g->dx[0] = BINARY(mul, D, scattered(g, ones, updates, IR_WORD(scatter, mul)));
    }
    if (!g->required[2]) return;
    ir_value *zero = NUMBER(0), *is_zero = BINARY(equal, updates, zero);
    ir_value *zeros = gathered(g, sums(g, WHERE(is_zero, NUMBER(1), zero)));
    ir_value *single = BINARY(and, is_zero, BINARY(equal, zeros, NUMBER(1)));
    ir_value *others = scattered(g, x, WHERE(single, NUMBER(1), updates), IR_WORD(scatter, mul));
    ir_value *divisor = WHERE(is_zero, NUMBER(1), updates);
    ir_value *quotient = BINARY(div, gathered(g, BINARY(mul, D, Y)), divisor);
    g->dx[2] = WHERE(single, gathered(g, BINARY(mul, D, others)), quotient);
}

/* Everything equal to the result shares the gradient equally, as in PyTorch. */
static void chosen(grad *g)
{
    ir_value *is_x = BINARY(equal, X, Y), *is_update = BINARY(equal, UPDATES, gathered(g, Y));
    ir_value *zero = NUMBER(0), *one = NUMBER(1), *updates = WHERE(is_update, one, zero);
    ir_value *zeros = ir_expand(g->b, zero, X->type.dims, X->type.rank);
    ir_value *count = scattered(g, WHERE(is_x, one, zeros), updates, IR_WORD(scatter, add));
    ir_value *share = BINARY(div, D, count);
    g->dx[0] = WHERE(is_x, share, NUMBER(0));
    if (g->required[2]) g->dx[2] = WHERE(is_update, gathered(g, share), zero);
}

static bool grad_scatter(grad *g)
{
    static void (*const rules[])(grad * g) = {[IR_WORD(scatter, none)] = replaced,
                                              [IR_WORD(scatter, add)] = added,
                                              [IR_WORD(scatter, mul)] = multiplied,
                                              [IR_WORD(scatter, max)] = chosen,
                                              [IR_WORD(scatter, min)] = chosen};
    rules[g->n->attr[IR_ATTR(scatter_nd, reduction)].i](g);
    return diag_status(g->b->diag) == AMPC_OK;
}

bool grad_scatter_elements(grad *g) { return grad_scatter(g); }
bool grad_scatter_nd(grad *g) { return grad_scatter(g); }
