/* distribute_tree.c - sums over the samples of a step in an order that does not depend on who computes them.
 *
 * Rank r of R computes micro-batch k of a step as number k R + r. What the step adds of each, gradients and losses, is
 * added as a balanced binary tree over these numbers, and divided once, by their number. So one rank with four
 * micro-batches, two with two and four with one have the same bits.
 *
 *   @train_step   v = (all_reduce v {by=sum, tree}) / R, in f32 or f64; with a loss scale, that is multiplied instead
 *   @accumulate   adds all_reduce v to a binary counter of partial sums: level l, a state, has the sum of 2^l
 *                 micro-batches and is void unless bit l of micro_batches is set. Level 0 is grad_sum, loss_sum or next
 *   @unscale and @apply   add the levels, the lowest first, and divide by micro_batches R
 *
 * Each micro-batch computes a buffer, such as a running mean, from its value before the step, and their mean is stored.
 *
 * The highest level, that of the largest power of 2 in a window, accepts all that longer windows have, one after
 * another. The other numbers that these graphs store or output are averaged. */
#include "passes/train/distribute.h"

#include "passes/amp/samples.h"

#define BINARY(op, x, y) ir_binary(b, IR_OP_##op, x, y)

typedef VEC(ir_value *) value_list;
typedef VEC(ir_use *) use_list;

static ir_value *choose(ir_builder *b, ir_value *cond, ir_value *yes, ir_value *no)
{
    return ir_done(b, ir_new(b, IR_OP_select, 3, cond, yes, no));
}

static ir_dtype wide_type(const ir_value *v) { return v->type.dtype == IR_f64 ? IR_f64 : IR_f32; }

static bool is_state(const ir_value *v, ir_state_role role)
{
    return v->kind == IR_VALUE_STORAGE && v->storage->kind == IR_STATE && v->storage->role == role;
}

/* ---- what is reduced -------------------------------------------------------------------------------------- */

typedef struct reducing {
    ir_graph *graph;
    diag *diag;
    arena *arena;
    samples samples;
    value_list sums;  /* divided later, by what divides gradients */
    value_list means; /* divided at once */
    bool *seen;       /* by value id */
} reducing;

static bool first_time(reducing *r, const ir_value *v)
{
    if (v->kind != IR_VALUE_RESULT || !ir_dtype_is_float(v->type.dtype) || r->seen[v->id]) return false;
    r->seen[v->id] = true;
    return true;
}

static void add_mean(reducing *r, ir_value *v)
{
    if (first_time(r, v)) vec_push(r->arena, &r->means, v);
}

static bool is_choice(const ir_node *n) { return ir_op_has(n->op, IR_COMMITS) && ir_in_named(n, "cond"); }

/* What a step stores if it is not skipped. */
static ir_value *accepted(ir_value *v)
{
    while (v->kind == IR_VALUE_RESULT && is_choice(v->def))
        v = ir_in(v->def,
                  ir_in(v->def, IR_IN(select, b))->kind == IR_VALUE_RESULT ? IR_IN(select, b) : IR_IN(select, a));
    return v;
}

/* Losses and what is stored to buffers. */
static void find_means(reducing *r)
{
    const ir_graph *g = r->graph;
    for (const ir_node *n = ir_first_output(g); n; n = ir_next_output(n))
        if (n->role == IR_OUTPUT_loss || n->role == IR_OUTPUT_loss_term || n->role == IR_OUTPUT_penalty)
            add_mean(r, ir_in(n, 0));
    for (const ir_node *n = ir_first_store(g); n; n = ir_next_store(n))
        if (is_state(ir_in(n, 0), IR_STATE_buffer)) add_mean(r, accepted(ir_in(n, 1)));
}

/* The values of the backward that the update of v depends on are gradients. */
static void find_gradients(reducing *r, ir_value *v, value_list *out)
{
    if (v->kind != IR_VALUE_RESULT) return;
    ir_node *n = v->def;
    if (n->phase != IR_UPDATE) {
        const bool of_data = (samples_mark(&r->samples, v) & SAMPLES_DATA) || n->phase == IR_BACKWARD;
        if (of_data && first_time(r, v)) vec_push(r->arena, out, v);
        return;
    }
    if (r->seen[v->id]) return;
    r->seen[v->id] = true;
    for (int i = 0; i < n->n_in; i++)
        if (ir_in(n, i)) find_gradients(r, ir_in(n, i), out);
}

static void find_all_gradients(reducing *r, value_list *out)
{
    for (const ir_node *n = ir_first_store(r->graph); n; n = ir_next_store(n))
        if (ir_in(n, 0)->storage->kind == IR_PARAM) find_gradients(r, ir_in(n, 1), out);
    for (const ir_node *n = ir_first_output(r->graph); n; n = ir_next_output(n))
        if (n->role == IR_OUTPUT_gradient) find_gradients(r, ir_in(n, 0), out);
}

/* ---- the reduction ---------------------------------------------------------------------------------------- */

/* The uses of v after the backward, and by outputs. */
static use_list later_uses(const reducing *r, const ir_value *v)
{
    use_list uses = {0};
    for (ir_use *u = v->first_use; u; u = u->next)
        if (u->user->phase == IR_UPDATE || ir_op_has(u->user->op, IR_NAMED)) vec_push(r->arena, &uses, u);
    return uses;
}

/* Lets these uses read v instead, and outputs the mean. Statements keep the types of their operands. */
static void set_uses(ir_builder *b, const use_list *uses, ir_value *v, ir_value *mean)
{
    for (size_t i = 0; i < uses->count && v && mean; i++) {
        ir_node *user = uses->items[i]->user;
        const int index = uses->items[i]->index;
        const ir_dtype type = uses->items[i]->value->type.dtype;
        if (ir_op_has(user->op, IR_NAMED)) ir_output_again(b, user, ir_cast(b, mean, type));
        else ir_node_set_input(user, index, user->n_out ? v : ir_cast(b, v, type));
    }
}

/* Appends one reduction of all values of this type to the backward. */
static void reduce(reducing *r, ir_dtype type)
{
    ir_builder backward = pass_builder(r->graph, IR_BACKWARD, r->diag), *b = &backward;
    value_list values = {0}, of = {0};
    size_t sums = 0;
    for (size_t k = 0; k < r->sums.count + r->means.count; k++) {
        const bool sum = k < r->sums.count;
        ir_value *v = sum ? r->sums.items[k] : r->means.items[k - r->sums.count];
        if (wide_type(v) != type) continue;
        vec_push(r->arena, &of, v);
        sums += sum;
    }
    if (!of.count) return;
    use_list *uses = arena_array(r->arena, of.count, sizeof *uses);
    for (size_t i = 0; i < of.count; i++) {
        uses[i] = later_uses(r, of.items[i]);
        vec_push(r->arena, &values, ir_cast(b, of.items[i], type));
    }
    if (!distribute_reduce(b, values.items, (int)of.count, IR_WORD(reduced, sum), type, true)) return;
    ir_value *count = ir_cast(b, distribute_number(b, IR_WORD(rank_number, count)), type);
    for (size_t i = 0; i < of.count; i++) {
        ir_value *mean = BINARY(div, values.items[i], count);
        set_uses(b, &uses[i], i < sums ? values.items[i] : mean, mean);
    }
}

static ampc_status infer_again(ir_graph *g, diag *d)
{
    for (ir_node *n = g->first; n; n = n->next)
        if (n->phase == IR_UPDATE) TRY(ir_infer(n, d));
    return AMPC_OK;
}

/* ---- divisors --------------------------------------------------------------------------------------------- */

static ir_value *times_ranks(ir_builder *b, ir_value *v)
{
    ir_value *count = distribute_number(b, IR_WORD(rank_number, count));
    return v && count ? BINARY(mul, v, ir_cast(b, count, v->type.dtype)) : NULL;
}

/* Multiplies the loss scale by the number of ranks where it divides gradients. */
static void divide_gradients(reducing *r)
{
    for (ir_node *n = r->graph->first; n; n = n->next) {
        if (!ir_op_has(n->op, IR_CHECKS)) continue;
        ir_builder b = ir_builder_before(n, r->diag);
        ir_node_set_input(n, n->n_in - 1, times_ranks(&b, ir_in(n, n->n_in - 1)));
    }
}

/* ---- the counter of partial sums -------------------------------------------------------------------------- */

enum { MAX_LEVELS = 63 };

/* The states of a sum: itself, and the higher levels. */
typedef struct levels {
    ir_storage *items[MAX_LEVELS];
    int top; /* the highest */
} levels;

static int top_of(const ir_module *m)
{
    int top = 0;
    while (m->training.window >> (top + 1)) top++;
    return top;
}

static levels levels_of(ir_module *m, ir_storage *sum)
{
    levels l = {.items = {sum}, .top = top_of(m)};
    for (int i = 1; i <= l.top; i++) l.items[i] = pass_state_of(m, IR_STATE_partial, l.items[i - 1]);
    return l;
}

static ir_value *micro_batches(ir_builder *b)
{
    return ir_graph_storage(b->graph, ir_state_by_role(b->graph->module, IR_STATE_micro_batches));
}

static ir_value *power(ir_builder *b, int bits, int minus)
{
    return ir_scalar(b, IR_i64, (double)(((int64_t)1 << bits) - minus));
}

static ir_value *modulo(ir_builder *b, int bits)
{
    ir_value *divisor = power(b, bits, 0);
    return BINARY(mod, micro_batches(b), divisor);
}

/* Whether the sum of this and all lower levels is stored to level i: all bits below are set, and bit i is not. */
static ir_value *is_reached(ir_builder *b, int i, int top)
{
    ir_value *ones = power(b, i, 1);
    return BINARY(equal, modulo(b, i == top ? i : i + 1), ones);
}

/* Adds v, the sum of a micro-batch, to the counter, before n, the store to level 0. */
static void count_up(ir_node *n, ir_value *v, const levels *l, diag *d)
{
    ir_builder before = ir_builder_before(n, d), *b = &before;
    for (int i = 0; i <= l->top && v; i++) {
        ir_value *old = ir_graph_storage(b->graph, l->items[i]), *sum = BINARY(add, old, v), *fresh = v;
        ir_value *count = i == l->top ? power(b, i, 0) : NULL;
        if (count) fresh = choose(b, BINARY(less, micro_batches(b), count), v, sum);
        fresh = choose(b, is_reached(b, i, l->top), fresh, old);
        if (i) pass_store_new(b, l->items[i], fresh);
        else if (fresh) ir_node_set_input(n, 1, fresh);
        v = sum;
    }
}

/* The sum of all levels that are not void. */
static ir_value *add_levels(ir_builder *b, const levels *l)
{
    ir_value *sum = ir_graph_storage(b->graph, l->items[0]);
    for (int i = 1; i <= l->top && sum; i++) {
        ir_value *level = ir_graph_storage(b->graph, l->items[i]);
        ir_value *zero = power(b, 0, 1), *is_alone = BINARY(equal, modulo(b, i), zero);
        ir_value *both = choose(b, is_alone, level, BINARY(add, level, sum));
        ir_value *bits = i == l->top ? micro_batches(b) : modulo(b, i + 1);
        sum = choose(b, BINARY(less, bits, power(b, i, 0)), sum, both);
    }
    return sum;
}

/* ---- @accumulate ------------------------------------------------------------------------------------------ */

/* Whether @accumulate computes the number that it stores. */
static bool is_mean_of_buffers(const ir_node *store)
{
    return is_state(ir_in(store, 0), IR_STATE_next) && ir_def(ir_in(store, 1)) &&
           ir_dtype_is_float(ir_in(store, 1)->type.dtype);
}

static bool is_sum(const ir_node *store)
{
    return is_state(ir_in(store, 0), IR_STATE_grad_sum) || is_state(ir_in(store, 0), IR_STATE_loss_sum) ||
           is_mean_of_buffers(store);
}

/* What a store to a sum adds to it; pass accumulate makes select(empty, v, sum + v). */
static ir_value *added_by(const ir_node *store)
{
    const ir_node *n = ir_def(ir_in(store, 1));
    if (is_mean_of_buffers(store)) return ir_in(store, 1);
    return n && is_choice(n) ? ir_in(n, IR_IN(select, a)) : NULL;
}

/* Makes each micro-batch read the buffers that the step begins with; pass accumulate makes
 * select(empty, buffer, next). */
static void read_buffers(ir_graph *g)
{
    for (ir_node *n = g->first; n; n = n->next)
        if (is_choice(n) && is_state(ir_in(n, IR_IN(select, b)), IR_STATE_next))
            ir_value_replace(ir_out(n, 0), ir_in(n, IR_IN(select, a)));
}

/* What the backward computes of it. */
static ir_value *computed(ir_value *v)
{
    while (v->kind == IR_VALUE_RESULT && v->def->phase == IR_UPDATE && ir_op_has(v->def->op, IR_CONVERTS | IR_VIEW))
        v = ir_in(v->def, 0);
    return v;
}

static ampc_status add_in_tree(reducing *r)
{
    ir_graph *g = r->graph;
    VEC(ir_node *) stores = {0};
    read_buffers(g);
    for (ir_node *n = ir_first_store(g); n; n = ir_next_store(n)) {
        if (!is_sum(n)) continue;
        if (!added_by(n))
            return diag_error(r->diag, AMPC_REJECTED, ir_diag_loc(n), "the sum of micro-batches has an unknown form");
        vec_push(r->arena, &stores, n);
        if (first_time(r, computed(added_by(n)))) vec_push(r->arena, &r->sums, computed(added_by(n)));
    }
    find_means(r);
    reduce(r, IR_f32);
    reduce(r, IR_f64);
    TRY(infer_again(g, r->diag));
    for (size_t i = 0; i < stores.count && diag_status(r->diag) == AMPC_OK; i++) {
        const levels l = levels_of(g->module, ir_in(stores.items[i], 0)->storage);
        count_up(stores.items[i], added_by(stores.items[i]), &l, r->diag);
    }
    pass_remove_dead(g);
    return diag_status(r->diag);
}

/* ---- @unscale and @apply ---------------------------------------------------------------------------------- */

static void replace_reads(const use_list *uses, ir_value *to)
{
    for (size_t i = 0; i < uses->count && to; i++) {
        ir_node *user = uses->items[i]->user;
        if (!ir_op_has(user->op, IR_STORES) || uses->items[i]->index)
            ir_node_set_input(user, uses->items[i]->index, to);
    }
}

static void read_levels(reducing *r, ir_storage *s)
{
    ir_graph *g = r->graph;
    ir_builder begin = {.graph = g, .before = g->first, .phase = IR_UPDATE, .diag = r->diag};
    ir_value *v = ir_graph_storage(g, s), *unscaled = NULL;
    const levels l = levels_of(g->module, s);
    const use_list uses = later_uses(r, v);
    if (!uses.count || (!l.top && s->role != IR_STATE_next)) return;
    ir_value *sum = add_levels(&begin, &l);
    if (s->role == IR_STATE_next) {
        ir_builder *b = &begin;
        sum = BINARY(div, sum, times_ranks(b, ir_cast(b, micro_batches(b), s->type.dtype)));
    }
    if (s->role == IR_STATE_grad_sum) {
        unscaled = ir_graph_storage(g, ir_state_by_role(g->module, IR_STATE_unscaled));
        sum = choose(&begin, unscaled, v, sum);
    }
    replace_reads(&uses, sum);
}

static void count_ranks(reducing *r)
{
    ir_graph *g = r->graph;
    ir_storage *s = ir_state_by_role(g->module, IR_STATE_micro_batches);
    ir_value *v = ir_graph_storage(g, s);
    for (ir_use *u = v->first_use, *next; u; u = next) {
        next = u->next;
        if (!ir_op_has(u->user->op, IR_CONVERTS)) continue;
        ir_value *count = ir_out(u->user, 0);
        const use_list uses = later_uses(r, count);
        ir_builder b = ir_builder_after(u->user, r->diag);
        replace_reads(&uses, times_ranks(&b, count));
    }
}

static ampc_status read_sums(reducing *r)
{
    count_ranks(r);
    const ir_graph *added = ir_graph_by_role(r->graph->module, IR_GRAPH_accumulate);
    for (const ir_node *n = ir_first_store(added); n; n = ir_next_store(n))
        if (is_sum(n)) read_levels(r, ir_in(n, 0)->storage);
    return diag_status(r->diag);
}

/* ---- @train_step ------------------------------------------------------------------------------------------ */

static ampc_status reduce_step(reducing *r)
{
    const bool scaled = ir_state_by_role(r->graph->module, IR_STATE_loss_scale) != NULL;
    find_means(r);
    find_all_gradients(r, scaled ? &r->sums : &r->means);
    divide_gradients(r);
    reduce(r, IR_f32);
    reduce(r, IR_f64);
    pass_remove_dead(r->graph);
    return infer_again(r->graph, r->diag);
}

ampc_status distribute_tree(ir_module *m, const compile_options *o, diag *d)
{
    static const struct {
        ir_graph_role role;
        ampc_status (*rewrite)(reducing *r);
    } graphs[] = {{IR_GRAPH_train_step, reduce_step},
                  {IR_GRAPH_accumulate, add_in_tree},
                  {IR_GRAPH_unscale, read_sums},
                  {IR_GRAPH_apply, read_sums}};
    (void)o;
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        ir_graph *g = ir_graph_by_role(m, graphs[i].role);
        if (!g) continue;
        arena *scratch = pass_scratch_new(m);
        reducing r = {.graph = g, .diag = d, .arena = scratch};
        r.samples = samples_find(g, scratch);
        r.seen = arena_array(scratch, g->value_ids + 1, sizeof *r.seen);
        const ampc_status status = graphs[i].rewrite(&r);
        arena_free(scratch);
        TRY(status);
    }
    return AMPC_OK;
}
