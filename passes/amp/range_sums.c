/* range_sums.c - range rules about sums that overflow in fp16 although none of their terms is large.
 *
 * depth     A sum of more terms than the rule allows, in a product, a convolution or a reduction. Kernels add in f32,
 *           so only the result may overflow; an op that can choose the type of its result writes f32.
 * residual  x + f(x) + g(..) + ..: no layer in between normalises the stream, so it grows with every addition.
 *           Additions after the number that the rule allows stay f32. */
#include "passes/amp/range.h"

#include <string.h>

/* ---- depth ----------------------------------------------------------------------------------- */

/* Number of terms in one element of the result; symbols count as 1. */
typedef double count_terms(const ir_node *n, const int64_t *sizes);

static double elements(const ir_node *n, const ir_type *type, const int64_t *sizes)
{
    return pass_elements(n->graph->module, type, sizes);
}

static double product_terms(const ir_node *n, const int64_t *sizes)
{
    const ir_type *a = &ir_in(n, IR_IN(matmul, a))->type;
    int inner = a->rank - (n->attr[IR_ATTR(matmul, trans_a)].i ? 2 : 1);
    ir_type axis = ir_type_make(a->dtype, 1, &a->dims[inner]);
    return elements(n, &axis, sizes);
}

static double filter_terms(const ir_node *n, const int64_t *sizes)
{
    ir_type filter = ir_in(n, IR_IN(conv, w))->type;
    filter.dims[0] = 1;
    return elements(n, &filter, sizes);
}

static double reduced_terms(const ir_node *n, const int64_t *sizes)
{
    double results = elements(n, &ir_out(n, 0)->type, sizes);
    return results > 0 ? elements(n, &ir_in(n, 0)->type, sizes) / results : 0;
}

static const struct {
    ir_op op;
    count_terms *terms;
} sums[] = {
    {IR_OP_matmul, product_terms},
    {IR_OP_conv, filter_terms},
    {IR_OP_reduce_sum, reduced_terms},
    {IR_OP_reduce_l1, reduced_terms},
};

static void mark_depth(const ir_node *n, int64_t max, const int64_t *sizes, range_mark *mark, arena *a)
{
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        double terms = sums[i].op == n->op ? sums[i].terms(n, sizes) : 0;
        if (terms <= (double)max) continue;
        list_place *place = arena_alloc(a, sizeof *place);
        *place = (list_place){arena_printf(a, "pattern sum of %.0f terms: its result is fp32", terms), 0};
        mark->overflow = place;
    }
}

/* ---- terms of a reduction -------------------------------------------------------------------- */

static const struct {
    ir_op op;
    const char *what;
    bool sum, one; /* one: along an axis, not axes */
} reductions[] = {
    {IR_OP_reduce_sum, "sum", true, false},      {IR_OP_reduce_l1, "sum", true, false},
    {IR_OP_reduce_mean, "mean", false, false},   {IR_OP_softmax, "softmax", false, true},
    {IR_OP_log_softmax, "softmax", false, true},
};

static bool count_axis(const ir_type *t, int64_t axis, double *count)
{
    const int64_t size = t->dims[axis < 0 ? axis + t->rank : axis];
    *count *= (double)size;
    return !ir_dim_is_symbolic(size);
}

bool range_find_terms(const ir_node *n, range_terms *terms)
{
    size_t at = 0, rows = sizeof reductions / sizeof *reductions;
    while (at < rows && reductions[at].op != n->op) at++;
    if (at == rows) return false;
    *terms = (range_terms){reductions[at].what, reductions[at].sum, 1};
    const ir_type *t = &ir_in(n, 0)->type;
    const ir_attr *attr = &n->attr[ir_op_find_attr(n->op, reductions[at].one ? "axis" : "axes")];
    if (reductions[at].one) return count_axis(t, attr->i, &terms->count);
    for (int i = 0; i < attr->list.count; i++)
        if (!count_axis(t, attr->list.items[i], &terms->count)) return false;
    for (int i = 0; !attr->list.count && i < t->rank; i++)
        if (!count_axis(t, i, &terms->count)) return false;
    return true;
}

/* ---- residual additions ---------------------------------------------------------------------- */

static const list_place residual = {"pattern chain of residual additions", 0};

/* Length of the chain of additions that ends at n. Movements and additions of weights do not interrupt it. */
static int64_t count_additions(const ir_node *n, bool adds, const int64_t *chain)
{
    int64_t longest = 0, computed = 0;
    for (int i = 0; i < n->n_in && (adds || amp_only_moves(n)); i++) {
        const ir_value *v = ir_in(n, i);
        if (!v || v->kind == IR_VALUE_STORAGE || !ir_dtype_is_float(v->type.dtype)) continue;
        computed++;
        if (chain[v->id] > longest) longest = chain[v->id];
    }
    return longest + (adds && computed == 2);
}

/* ---- both ------------------------------------------------------------------------------------ */

void range_mark_sums(const ir_graph *g, const amp_list *l, range_mark *marks, arena *a)
{
    const int64_t *sizes = pass_symbol_sizes(g->module, 1, a);
    int64_t *chain = arena_array(a, g->value_ids + 1, sizeof *chain), max = l->rule.residual;
    for (const ir_node *n = g->first; n && n->phase == IR_FORWARD; n = n->next) {
        if (l->rule.depth) mark_depth(n, l->rule.depth, sizes, &marks[n->id], a);
        if (!max || n->n_out != 1) continue;
        bool adds = n->op == IR_OP_add;
        chain[n->out[0]->id] = count_additions(n, adds, chain);
        if (adds && chain[n->out[0]->id] > max && !marks[n->id].pattern) marks[n->id].pattern = &residual;
    }
}
