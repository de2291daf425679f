/* merge_products.c - computes products of one operand with several weights as one, on discrete devices, if attention
 * reads the parts of the result in place.
 *
 *     %q = matmul %x, @wq   %q' = add %q, @bq         %w = concat @wq, @wk, @wv    %b = concat @bq, @bk, @bv
 *     %k = matmul %x, @wk   %k' = add %k, @bk   ->    %y = matmul %x, %w           %y' = add %y, %b
 *     %v = matmul %x, @wv   %v' = add %v, @bv         %q', %k', %v' = split %y'
 *
 *     %xq = matmul %dq, @wq (transposed), ..          %dy = concat %dq, %dk, %dv
 *     .. = add .., %xq   .. = add .., %xk       ->    %dx = matmul %dy, %w (transposed)    .. = add .., %dx
 *     %wq = matmul %x (transposed), %dq, ..     ->    %dw = matmul %x (transposed), %dy    %wq, .. = split %dw
 *     %bq = reduce_sum %dq, ..                  ->    %db = reduce_sum %dy                 %bq, .. = split %db
 *
 * stride_operands.c removes the first split and the concat of gradients, because attention accepts strides. Weights and
 * their gradients are copied, which pays only if there are more rows than columns. */
#include "ir/ops/formulas.h"
#include "kernels/walk.h"
#include "runtime/plan/stages.h"

#include <string.h>

enum { IN_A = IR_IN(matmul, a), IN_B = IR_IN(matmul, b), IN_BIAS = IR_IN(matmul, bias), MAX_SLOTS = IN_BIAS + 1 };
enum { MAX_PARTS = 4, WHOLE = 0 };

/* Steps of one op that become one step. */
typedef struct group {
    rt_step *s[MAX_PARTS];
    int n;
} group;

/* By operand, the axis along which those of the steps are joined, counted from the end (-1: the last one), or WHOLE if
 * all steps read the same value. out: the axis along which the results are parts, or WHOLE if the result is their
 * sum. */
typedef struct joint {
    int in[MAX_SLOTS], out;
} joint;

/* Values and the value that they are parts of, along the axis, which is counted from the end. */
typedef struct joined {
    uint32_t part[MAX_PARTS], whole;
    int n, axis;
    struct joined *next;
} joined;

typedef struct merge_state {
    rt_plan *p;
    joined *all;
} merge_state;

static bool is_matmul(const rt_step *s) { return rt_step_is(s, IR_OP_matmul) && s->index >= 0; }
static bool is_transpose(const rt_step *s) { return rt_step_is(s, IR_OP_transpose); }
static bool is_add(const rt_step *s)
{
    return s && s->kind == RT_STEP_OP && !s->hoisted && ir_formula_of(s->op, s->attr) == IR_FORMULA_add;
}

static bool transposes(const rt_step *m, int slot)
{
    return m->attr[slot == IN_A ? IR_ATTR(matmul, trans_a) : IR_ATTR(matmul, trans_b)].i != 0;
}

/* Whether the matmul has no bias. */
static bool is_plain(const rt_step *m) { return m->n_out == 1 && !rt_step_reads(m, IN_BIAS); }

static int64_t last_dim(const k_view *v) { return v->dims[v->rank - 1]; }

/* ---- merging ------------------------------------------------------------------------------------------- */

static bool note_joined(merge_state *m, const uint32_t *part, int n, int axis, uint32_t whole)
{
    joined *j = rt_plan_alloc(m->p, 1, sizeof *j);
    if (!j) return false;
    *j = (joined){.whole = whole, .n = n, .axis = axis, .next = m->all};
    for (int i = 0; i < n; i++) j->part[i] = rt_root(m->p, part[i]);
    m->all = j;
    return true;
}

static uint32_t find_joined(const merge_state *m, const group *g, int slot, int axis)
{
    for (const joined *j = m->all; j; j = j->next) {
        int i = 0;
        if (j->n != g->n || j->axis != axis) continue;
        while (i < g->n && j->part[i] == rt_root(m->p, g->s[i]->in_value[slot])) i++;
        if (i == g->n) return j->whole;
    }
    return RT_NO_VALUE;
}

/* The view of the operand in the slot, or of the result if that is negative, joined along the axis. */
static k_view join_views(const group *g, int slot, int axis)
{
    k_view all = slot < 0 ? g->s[0]->out[0] : g->s[0]->in[slot];
    for (int i = 1; i < g->n && axis != WHOLE; i++) {
        const k_view *v = slot < 0 ? &g->s[i]->out[0] : &g->s[i]->in[slot];
        all.dims[all.rank + axis] += v->dims[v->rank + axis];
    }
    return all;
}

/* Inserts the step before `at`, or, if all operands are invariant, makes it the last hoisted one. */
static void insert(rt_plan *p, rt_step *s, rt_step *at)
{
    bool is_invariant = !p->nested;
    for (int i = 0; i < s->n_in; i++) is_invariant &= rt_is_invariant(p, s->in_value[i]);
    s->hoisted = is_invariant;
    p->values[s->out_value[0]].invariant = is_invariant;
    if (!is_invariant) rt_step_insert_before(p, s, at);
    else if (p->n_hoisted) rt_step_insert_after(p, s, p->steps[p->n_hoisted - 1]);
    else rt_step_insert_before(p, s, p->first_step);
}

static uint32_t join_operands(merge_state *m, const group *g, int slot, int axis, rt_step *at)
{
    rt_plan *p = m->p;
    uint32_t part[MAX_PARTS], whole = find_joined(m, g, slot, axis);
    if (whole != RT_NO_VALUE) return whole;
    const k_view view = join_views(g, slot, axis);
    rt_step *s = rt_step_new(p, g->s[0]->node, IR_OP_concat, g->n, 1);
    whole = rt_plan_new_value(p, g->s[0]->in_value[slot], &view);
    if (!s || whole == RT_NO_VALUE) return RT_NO_VALUE;
    s->attr[IR_ATTR(concat, axis)].i = view.rank + axis;
    for (int i = 0; i < g->n; i++) {
        part[i] = g->s[i]->in_value[slot];
        rt_step_read(p, s, i, part[i]);
        s->in[i] = g->s[i]->in[slot];
    }
    rt_step_write(p, s, 0, whole);
    insert(p, s, at);
    return note_joined(m, part, g->n, axis, whole) ? whole : RT_NO_VALUE;
}

/* Lets a split of the value define what the steps define. */
static bool split_result(merge_state *m, const group *g, uint32_t whole, int axis, rt_step *at)
{
    rt_plan *p = m->p;
    uint32_t part[MAX_PARTS];
    rt_step *s = rt_step_new(p, g->s[0]->node, IR_OP_split, 1, g->n);
    int64_t *sizes = rt_plan_alloc(p, (size_t)g->n, sizeof *sizes);
    if (!s || !sizes) return false;
    s->attr[IR_ATTR(split, axis)].i = p->values[whole].view.rank + axis;
    s->attr[IR_ATTR(split, sizes)].list.items = sizes;
    s->attr[IR_ATTR(split, sizes)].list.count = g->n;
    rt_step_read(p, s, 0, whole);
    for (int i = 0; i < g->n; i++) {
        const k_view view = g->s[i]->out[0];
        sizes[i] = view.dims[view.rank + axis];
        part[i] = g->s[i]->out_value[0];
        rt_step_write(p, g->s[i], 0, RT_NO_VALUE);
        rt_step_write(p, s, i, part[i]);
        s->out[i] = view;
    }
    rt_step_insert_before(p, s, at);
    return note_joined(m, part, g->n, axis, whole);
}

/* Inserts a step before `at` that computes what the steps of the group do. */
static bool merge(merge_state *m, const group *g, const joint *j, rt_step *at)
{
    rt_plan *p = m->p;
    rt_step *first = g->s[0], *s = rt_step_new(p, first->node, first->op, first->n_in, 1);
    const k_view view = join_views(g, -1, j->out);
    uint32_t result = first->out_value[0];
    if (!s) return false;
    memcpy(s->attr, first->attr, (size_t)ir_op_get(s->op)->n_attr * sizeof *s->attr);
    for (int i = 0; i < first->n_in; i++) {
        if (!rt_step_reads(first, i)) continue;
        const uint32_t value = j->in[i] == WHOLE ? first->in_value[i] : join_operands(m, g, i, j->in[i], at);
        if (value == RT_NO_VALUE) return false;
        rt_step_read(p, s, i, value);
        s->in[i] = join_views(g, i, j->in[i]);
    }
    if (j->out == WHOLE) rt_step_write(p, first, 0, RT_NO_VALUE);
    else result = rt_plan_new_value(p, result, &view);
    if (result == RT_NO_VALUE) return false;
    rt_step_write(p, s, 0, result);
    s->out[0] = view;
    rt_step_insert_before(p, s, at);
    return j->out == WHOLE || split_result(m, g, result, j->out, at);
}

static void remove_all(rt_plan *p, const group *g)
{
    for (int i = 0; i < g->n; i++) rt_step_remove(p, g->s[i]);
}

/* ---- products ------------------------------------------------------------------------------------------ */

/* Whether attention, and nothing else, reads the value, possibly transposed. */
static bool is_for_attention(const rt_plan *p, uint32_t value)
{
    const rt_use *u = rt_uses(p, value);
    for (; u; u = u->next) {
        const bool is_transposed = is_transpose(u->step) && is_for_attention(p, u->step->out_value[0]);
        if (!is_transposed && !rt_step_is_strided(u->step)) return false;
    }
    return rt_uses(p, value) != NULL;
}

/* Whether the operand is in memory before the steps that are not hoisted. */
static bool is_ready(const rt_plan *p, const rt_step *s, int slot)
{
    const rt_step *def = rt_def(p, s->in_value[slot]);
    return def ? def->hoisted : rt_is_storage(p, s->in_value[slot]);
}

/* Whether operand `slot` of the addition is a bias of the matmul, whose result is the other one. */
static bool adds_bias(const rt_plan *p, const rt_step *add, int slot, const rt_step *m)
{
    const k_view *bias = &add->in[slot], *y = &m->out[0];
    return rt_root(p, add->in_value[1 - slot]) == rt_root(p, m->out_value[0]) && is_ready(p, add, slot) &&
           rt_same_view(&add->in[1 - slot], y) && rt_same_view(&add->out[0], y) && bias->dtype == y->dtype &&
           bias->rank == 1 && bias->dims[0] == last_dim(y);
}

/* Returns the step that adds the bias, if it alone reads the product; else NULL. */
static rt_step *find_bias(const rt_plan *p, const rt_step *m)
{
    rt_step *s = rt_has_one_use(p, m->out_value[0]) ? rt_uses(p, m->out_value[0])->step : NULL;
    return is_add(s) && (adds_bias(p, s, 0, m) || adds_bias(p, s, 1, m)) ? s : NULL;
}

/* Whether the step multiplies by a weight, for attention. */
static bool is_projection(const rt_plan *p, const rt_step *m)
{
    if (!is_matmul(m) || m->n_out != 1 || m->n_in > MAX_SLOTS || transposes(m, IN_A)) return false;
    if (m->in[IN_B].rank != 2 || m->in[IN_A].rank < 2 || !is_ready(p, m, IN_B)) return false;
    if (rt_step_reads(m, IN_BIAS) && (m->in[IN_BIAS].rank != 1 || !is_ready(p, m, IN_BIAS))) return false;
    const rt_step *bias = find_bias(p, m);
    return is_for_attention(p, bias ? bias->out_value[0] : m->out_value[0]);
}

/* Whether both steps read the same value in the slot. */
static bool same_operand(const rt_plan *p, const rt_step *a, const rt_step *b, int slot)
{
    return rt_root(p, a->in_value[slot]) == rt_root(p, b->in_value[slot]) && rt_same_view(&a->in[slot], &b->in[slot]);
}

/* Whether the steps, of one op, agree in attributes, types and ranks. */
static bool same_form(const rt_step *a, const rt_step *b)
{
    const ir_op_info *info = ir_op_get(a->op);
    if (a->n_in != b->n_in || a->out[0].dtype != b->out[0].dtype) return false;
    for (int i = 0; i < info->n_attr; i++)
        if (!ir_attr_equal(info->attr[i].kind, &a->attr[i], &b->attr[i])) return false;
    for (int i = 0; i < a->n_in; i++)
        if (a->in[i].dtype != b->in[i].dtype || a->in[i].rank != b->in[i].rank) return false;
    return true;
}

/* Finds the projections of the operand of m, the first of which is m, and their biases. */
static void find_projections(const rt_plan *p, rt_step *m, group *products, group *adds)
{
    const rt_step *first = find_bias(p, m);
    *products = *adds = (group){.n = 0};
    for (const rt_use *u = rt_uses(p, m->in_value[IN_A]); u; u = u->next) {
        rt_step *s = u->step;
        if (u->slot != IN_A || !is_projection(p, s) || !same_operand(p, m, s, IN_A) || !same_form(m, s)) continue;
        if (products->n == MAX_PARTS) break;
        rt_step *add = find_bias(p, s);
        if (!add != !first || (add && adds_bias(p, add, 0, s) != adds_bias(p, first, 0, m))) continue;
        products->s[products->n++] = s;
        if (add) adds->s[adds->n++] = add;
    }
}

static bool has_more_rows(const group *g)
{
    const k_view all = join_views(g, -1, -1);
    const int64_t columns = last_dim(&all);
    return columns > 0 && k_count(&all) >= columns * columns;
}

/* ---- gradients ----------------------------------------------------------------------------------------- */

/* The steps that read the gradients of the products, in the order of these. */
typedef struct gradients {
    group inputs, weights, biases; /* weights, biases: may have no steps */
    int slot;                      /* of `weights`: the operand that is the gradient of a product */
} gradients;

/* Returns the kernel that writes the gradient, possibly transposed, for no other step; NULL: there is none. */
static rt_step *find_source(const rt_plan *p, uint32_t gradient)
{
    rt_step *s = rt_def(p, gradient);
    while (is_transpose(s) && rt_has_one_use(p, s->in_value[0])) s = rt_def(p, s->in_value[0]);
    return rt_step_is_strided(s) && !s->hoisted ? s : NULL;
}

/* Whether the steps sum over all rows. */
static bool sums_rows(const rt_step *s)
{
    const ir_attr *axes = &s->attr[IR_ATTR(reduce_sum, axes)];
    for (int i = 0; i < axes->list.count; i++)
        if (k_axis_number(axes->list.items[i], s->in[0].rank) == s->in[0].rank - 1) return false;
    return k_count(&s->out[0]) == last_dim(&s->in[0]) && last_dim(&s->out[0]) == last_dim(&s->in[0]);
}

/* Adds the step to the group as number i; whether each number has one step, and all have one form. */
static bool add_step(group *g, int i, rt_step *s)
{
    if (g->n != i) return false;
    g->s[g->n++] = s;
    return same_form(g->s[0], s);
}

static bool is_weight_gradient(const rt_step *s)
{
    return is_matmul(s) && is_plain(s) && transposes(s, IN_A) && !transposes(s, IN_B) && s->in[IN_A].rank == 2;
}

/* Adds the readers of the gradient of product i to the groups; whether it has no others. */
static bool add_readers(const rt_plan *p, uint32_t gradient, int i, gradients *g)
{
    for (const rt_use *u = rt_uses(p, gradient); u; u = u->next) {
        rt_step *s = u->step;
        if (s && s == g->inputs.s[i]) continue;
        if (rt_step_is(s, IR_OP_reduce_sum) && sums_rows(s)) {
            if (!add_step(&g->biases, i, s)) return false;
        } else {
            if (!is_weight_gradient(s) || !add_step(&g->weights, i, s)) return false;
            g->slot = u->slot;
            if (!same_operand(p, g->weights.s[0], s, 1 - u->slot)) return false;
        }
    }
    return true;
}

/* Returns the step that multiplies the gradient of a product by the transposed weight, if there is exactly one. */
static rt_step *find_input_gradient(const rt_plan *p, uint32_t weight, bool was_transposed)
{
    rt_step *found = NULL;
    for (const rt_use *u = rt_uses(p, weight); u; u = u->next) {
        rt_step *s = u->step;
        if (!is_matmul(s) || u->slot != IN_B) continue;
        if (found || !is_plain(s) || transposes(s, IN_A) || transposes(s, IN_B) == was_transposed) return NULL;
        if (rt_step_reads(s, IN_BIAS) || !find_source(p, s->in_value[IN_A])) return NULL;
        found = s;
    }
    return found;
}

/* The addition that alone reads the value and has its shape; NULL: there is none. */
static rt_step *find_addition(const rt_plan *p, uint32_t value)
{
    rt_step *s = rt_has_one_use(p, value) ? rt_uses(p, value)->step : NULL;
    return is_add(s) && rt_same_view(&s->in[0], &s->in[1]) && rt_same_view(&s->in[0], &s->out[0]) ? s : NULL;
}

/* The sum that the value is a summand of and that nothing else reads in part. */
static uint32_t find_sum(const rt_plan *p, uint32_t value)
{
    for (const rt_step *s; (s = find_addition(p, value)) != NULL;) value = s->out_value[0];
    return value;
}

/* Whether gradients of weights, if there are any, can be computed where the gradients of the products are. */
static bool can_follow_source(const rt_plan *p, const gradients *g)
{
    const rt_step *source = find_source(p, g->inputs.s[0]->in_value[IN_A]);
    const rt_step *def = g->weights.n ? rt_def(p, g->weights.s[0]->in_value[1 - g->slot]) : NULL;
    return !def || def->index < source->index;
}

/* Finds the gradients of products by these weights, if they all come from one step, and those of the operand are summed
 * up. */
static bool find_gradients(const rt_plan *p, const uint32_t *weight, int n, bool was_transposed, gradients *g)
{
    *g = (gradients){.slot = IN_B};
    for (int i = 0; i < n; i++) {
        rt_step *s = g->inputs.s[i] = find_input_gradient(p, weight[i], was_transposed);
        if (!s) return false;
        g->inputs.n = i + 1;
        const rt_step *first = g->inputs.s[0];
        const uint32_t y = first->in_value[IN_A];
        if (find_source(p, y) != find_source(p, s->in_value[IN_A]) || !rt_same_view(&first->out[0], &s->out[0]) ||
            find_sum(p, first->out_value[0]) != find_sum(p, s->out_value[0]) ||
            !add_readers(p, s->in_value[IN_A], i, g))
            return false;
    }
    return (g->weights.n == n || g->weights.n == 0) && (g->biases.n == n || g->biases.n == 0) &&
           can_follow_source(p, g);
}

/* Lets an output of the sum, which may have another shape, be the rest. */
static bool redirect_effect(rt_plan *p, rt_effect *e, uint32_t sum, uint32_t rest)
{
    const k_view view = p->values[e->value].view;
    if (e->value != sum) rest = rt_plan_new_view(p, e->value, rt_root(p, rest), &view);
    if (rest != RT_NO_VALUE) rt_effect_read(p, e, rest);
    return rest != RT_NO_VALUE;
}

/* Removes the value from the sum that it is a summand of. */
static bool remove_summand(rt_plan *p, uint32_t value)
{
    rt_step *add = find_addition(p, value);
    const int other = rt_root(p, add->in_value[0]) == rt_root(p, value);
    const uint32_t rest = add->in_value[other], sum = add->out_value[0];
    for (const rt_use *u; (u = rt_uses(p, sum)) != NULL;)
        if (u->step) rt_step_redirect(p, u->step, u->slot, rest);
        else if (!redirect_effect(p, &p->effects[u->slot], sum, rest)) return false;
    rt_step_remove(p, add);
    return true;
}

/* Moves the transposes of the gradients to the step that writes these, and returns the step that follows them. */
static rt_step *gather_gradients(rt_plan *p, const gradients *g)
{
    rt_step *source = find_source(p, g->inputs.s[0]->in_value[IN_A]), *next;
    for (int i = 0; i < g->inputs.n; i++)
        for (rt_step *s = rt_def(p, g->inputs.s[i]->in_value[IN_A]); s != source; s = next) {
            next = rt_def(p, s->in_value[0]);
            rt_step_move_after(p, s, source);
        }
    for (next = source->next; is_transpose(next);) next = next->next;
    return next;
}

static bool merge_gradients(merge_state *m, const uint32_t *weight, int n, bool was_transposed)
{
    rt_plan *p = m->p;
    gradients g;
    if (!find_gradients(p, weight, n, was_transposed, &g)) return true;
    rt_step *at = gather_gradients(p, &g);
    for (int i = 1; i < n; i++)
        if (!remove_summand(p, g.inputs.s[i]->out_value[0])) return false;
    const joint input = {.in = {[IN_A] = -1, [IN_B] = was_transposed ? -2 : -1}, .out = WHOLE};
    const joint w = {.in = {[IN_A] = g.slot == IN_A ? -1 : WHOLE, [IN_B] = g.slot == IN_B ? -1 : WHOLE},
                     .out = g.slot == IN_A ? -2 : -1};
    const joint bias = {.in = {-1}, .out = -1};
    if (!merge(m, &g.inputs, &input, at)) return false;
    if (g.weights.n && !merge(m, &g.weights, &w, at)) return false;
    if (g.biases.n && !merge(m, &g.biases, &bias, at)) return false;
    remove_all(p, &g.inputs);
    remove_all(p, &g.weights);
    remove_all(p, &g.biases);
    return true;
}

/* ---- the stage ----------------------------------------------------------------------------------------- */

/* Merges the projections and their biases, of which there may be none. */
static bool merge_projections(merge_state *m, const group *products, const group *adds)
{
    rt_plan *p = m->p;
    rt_step *at = products->s[0];
    const joint product = {.in = {[IN_B] = transposes(at, IN_B) ? -2 : -1, [IN_BIAS] = -1}, .out = -1};
    const joint add = {.in = {-1, -1}, .out = -1};
    /* A bias is an epilogue of the product only if it is ready there. */
    for (int i = 0; i < 2 && adds->n; i++)
        if (is_ready(p, adds->s[0], i) && join_operands(m, adds, i, -1, at) == RT_NO_VALUE) return false;
    if (!merge(m, products, &product, at)) return false;
    rt_step *split = at->prev;
    if (adds->n && !merge(m, adds, &add, at)) return false;
    remove_all(p, products);
    remove_all(p, adds);
    if (adds->n) rt_step_remove(p, split);
    return true;
}

ampc_status rt_stage_merge_products(rt_plan *p, diag *d)
{
    merge_state m = {.p = p};
    (void)d;
    for (int i = 0; i < p->n_steps && p->backend->device_ops; i++) {
        rt_step *s = p->steps[i];
        uint32_t weight[MAX_PARTS];
        group products, adds;
        if (!is_projection(p, s)) continue;
        find_projections(p, s, &products, &adds);
        if (products.n < 2 || !has_more_rows(&products)) continue;
        const bool was_transposed = transposes(s, IN_B);
        for (int k = 0; k < products.n; k++) weight[k] = products.s[k]->in_value[IN_B];
        if (!merge_projections(&m, &products, &adds)) return AMPC_NO_MEMORY;
        if (!merge_gradients(&m, weight, products.n, was_transposed)) return AMPC_NO_MEMORY;
    }
    return AMPC_OK;
}
