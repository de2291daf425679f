/* distribute.c - makes the training graphs those of one rank of several, each of which has a share of the samples.
 *
 * A value differs between the ranks if it depends on the samples, on their number or on random numbers. Nothing that
 * does is stored: what the update phase reads of the other phases, and @apply of a window, is replaced by its mean over
 * all ranks. So every rank makes the same decisions in the update phase, and has the same states after it, by
 * construction; an infinity on one rank reaches all in the sum. The gradients are reduced in buckets, in the order in
 * which the backward makes them, each after its last gradient, and everything else (losses, statistics) in one more
 * all_reduce. A mean weighs by the samples of the ranks, and on one rank it is a copy.
 *
 * Random numbers are those of as many consecutive counters as there are ranks. @accumulate is left as it is otherwise:
 * its sums are reduced once, in @apply or @unscale. @infer and @eval are left as they are, because ranks may evaluate
 * different numbers of batches. So is a module that has been distributed before.
 *
 *   before  %d.w = matmul ..            after  %d.w = matmul ..
 *           %u.w, %found_inf =                 %d.w.all = all_reduce %d.w {wire=f16}
 *             check_finite .. %d.w ..          %u.w, %found_inf = check_finite .. %d.w.all .. */
#include "passes/train/distribute.h"
#include "passes/train/shard.h"

#include <string.h>

/* ---- values that differ between the ranks ------------------------------------------------------ */

/* Flags by id of a value; new values have none. */
typedef struct value_set {
    bool *has;
    uint32_t count;
} value_set;

static value_set new_set(const ir_graph *g)
{
    return (value_set){arena_array(g->module->arena, g->value_ids + 1, sizeof(bool)), g->value_ids};
}

static bool has(const value_set *s, const ir_value *v) { return v && v->id < s->count && s->has[v->id]; }

/* States that the ranks have not made equal yet. */
static bool is_pending(const ir_storage *s)
{
    return s->kind == IR_STATE &&
           (s->role == IR_STATE_grad_sum || s->role == IR_STATE_next || s->role == IR_STATE_loss_sum);
}

static bool has_symbol(const ir_node *n)
{
    const ir_op_info *info = ir_op_get(n->op);
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i] && !ir_type_is_static(&n->out[i]->type)) return true;
    for (int i = 0; i < info->n_attr; i++)
        for (int k = 0; info->attr[i].kind == IR_SLOT_DIMS && k < n->attr[i].list.count; k++)
            if (ir_dim_is_symbolic(n->attr[i].list.items[k])) return true;
    return false;
}

/* Whether n chooses the sums of a window where @unscale has reduced them already. */
static bool is_unless_unscaled(const ir_node *n)
{
    const ir_value *v = ir_in(n, 0);
    return v && v->kind == IR_VALUE_STORAGE && v->storage->role == IR_STATE_unscaled && n->n_in == 3;
}

static bool node_differs(const ir_node *n, const value_set *differs)
{
    if (ir_op_has(n->op, IR_RANKED)) return true;
    if (ir_op_has(n->op, IR_COLLECTIVE)) return false;
    for (int i = 0; i < n->n_in; i++) {
        const ir_value *v = ir_in(n, i);
        if (v && (v->kind == IR_VALUE_INPUT || has(differs, v))) return true;
        if (v && v->kind == IR_VALUE_STORAGE && !ir_op_has(n->op, IR_EFFECT) && is_pending(v->storage))
            return !is_unless_unscaled(n);
    }
    return has_symbol(n);
}

static value_set find_different(const ir_graph *g)
{
    value_set s = new_set(g);
    for (const ir_node *n = g->first; n; n = n->next) {
        const bool differs = node_differs(n, &s);
        for (int i = 0; i < n->n_out; i++)
            if (n->out[i]) s.has[n->out[i]->id] = differs;
    }
    return s;
}

/* ---- what has to be reduced -------------------------------------------------------------------- */

typedef struct distribution {
    ir_graph *graph;
    const compile_options *options;
    diag *diag;
    value_set differs, gradients, others; /* the last two: to be reduced */
    value_set seen;
} distribution;

static bool is_early(const ir_value *v)
{
    if (v->kind == IR_VALUE_STORAGE) return is_pending(v->storage);
    return v->kind == IR_VALUE_RESULT && v->def->phase != IR_UPDATE;
}

/* Collects the values that v depends on. flags: also through flags, such as whether the step is skipped. */
static void collect(distribution *x, const ir_value *v, value_set *to, bool flags)
{
    if (!v || v->id >= x->seen.count || x->seen.has[v->id] || (!flags && !ir_dtype_is_float(v->type.dtype))) return;
    x->seen.has[v->id] = true;
    if (is_early(v)) {
        const bool differs = v->kind == IR_VALUE_STORAGE || has(&x->differs, v);
        if (differs && ir_dtype_is_float(v->type.dtype) && ir_type_is_static(&v->type)) to->has[v->id] = true;
        return;
    }
    const ir_node *n = ir_def(v);
    if (!n || ir_op_has(n->op, IR_COLLECTIVE)) return;
    /* A check changes each of its operands by itself, but its flag is that of all. */
    const bool check = ir_op_has(n->op, IR_CHECKS) && v->def_index < n->n_out - 1;
    for (int i = 0; i < n->n_in; i++)
        if (!check || i == v->def_index) collect(x, ir_in(n, i), to, flags);
}

static bool belongs_to_parameter(const ir_storage *s)
{
    return s->kind == IR_PARAM || (s->kind == IR_STATE && (s->role == IR_STATE_slot || s->role == IR_STATE_average ||
                                                           s->role == IR_STATE_grad_sum));
}

static bool is_averaged(ir_output_role role)
{
    return role == IR_OUTPUT_loss || role == IR_OUTPUT_loss_term || role == IR_OUTPUT_penalty ||
           role == IR_OUTPUT_found_inf || role == IR_OUTPUT_buffer;
}

static void collect_all(distribution *x)
{
    ir_graph *g = x->graph;
    x->gradients = new_set(g);
    x->others = new_set(g);
    x->seen = new_set(g);
    for (const ir_node *n = ir_first_store(g); n; n = ir_next_store(n))
        if (belongs_to_parameter(ir_in(n, 0)->storage)) collect(x, ir_in(n, 1), &x->gradients, false);
    for (const ir_node *n = ir_first_output(g); n; n = ir_next_output(n))
        if (n->role == IR_OUTPUT_gradient || n->role == IR_OUTPUT_grad_norm)
            collect(x, ir_in(n, 0), &x->gradients, false);
    const value_set gradients = x->seen;
    x->seen = new_set(g);
    for (uint32_t i = 0; i < gradients.count; i++) x->seen.has[i] = x->gradients.has[i];
    for (const ir_node *n = ir_first_store(g); n; n = ir_next_store(n)) collect(x, ir_in(n, 1), &x->others, true);
    for (const ir_node *n = ir_first_output(g); n; n = ir_next_output(n))
        if (is_averaged(n->role)) collect(x, ir_in(n, 0), &x->others, true);
    /* A check of gradients of inputs, which are those of the samples of this rank, remains one: see agree_on_flag. */
    for (ir_node *n = g->first; n; n = n->next)
        for (int i = 0; ir_op_has(n->op, IR_CHECKS) && i < n->n_in; i++)
            if (ir_in(n, i)->id < x->others.count) x->others.has[ir_in(n, i)->id] = false;
}

/* ---- reductions -------------------------------------------------------------------------------- */

static bool reads_reduced(const ir_use *u)
{
    const ir_node *n = u->user;
    return ir_op_has(n->op, IR_EFFECT) ? u->index == n->n_in - 1 : n->phase == IR_UPDATE;
}

/* Makes the update phase, outputs and stores read `to`, which is defined before `after`, instead of v. */
static void replace_late(ir_value *v, ir_value *to)
{
    ir_node *made = to->def;
    for (ir_use *u = v->first_use, *next; u; u = next) {
        next = u->next;
        ir_node *n = u->user;
        if (n == made || !reads_reduced(u) || ir_op_has(n->op, IR_COLLECTIVE)) continue;
        ir_node_set_input(n, u->index, to);
        if (n->phase == IR_UPDATE && made->phase != IR_UPDATE) continue;
        ir_node *at = made->next;
        while (at && at != n) at = at->next;
        if (at) continue; /* n follows it already */
        n->phase = made->phase;
        ir_node_move_before(n, made->next);
    }
}

/* In a graph that reads sums: not those that @unscale has reduced already. */
static ir_value *unless_unscaled(ir_builder *b, ir_value *v, ir_value *reduced)
{
    ir_storage *unscaled = ir_state_by_role(b->graph->module, IR_STATE_unscaled);
    if (v->kind != IR_VALUE_STORAGE || v->storage->role != IR_STATE_grad_sum || !unscaled) return reduced;
    return ir_done(b, ir_new(b, IR_OP_select, 3, ir_graph_storage(b->graph, unscaled), v, reduced));
}

typedef struct bucket {
    VEC(ir_value *) values;
    ir_node *last; /* that defines one of them; NULL: they are states */
    double bytes;
    ir_dtype wire;
    bool first;
} bucket;

static void reduce_bucket(distribution *x, bucket *bu)
{
    ir_graph *g = x->graph;
    const int n = (int)bu->values.count;
    if (!n) return;
    ir_builder b = bu->last ? ir_builder_after(bu->last, x->diag)
                            : (ir_builder){.graph = g, .before = g->first, .phase = IR_UPDATE, .diag = x->diag};
    b.loc = (ir_loc){0};
    ir_value **reduced = arena_array(g->module->arena, (size_t)n, sizeof *reduced);
    memcpy(reduced, bu->values.items, (size_t)n * sizeof *reduced);
    if (!distribute_reduce(&b, reduced, n, IR_WORD(reduced, mean), bu->wire, false)) return;
    for (int i = 0; i < n; i++) {
        ir_value *to = unless_unscaled(&b, bu->values.items[i], reduced[i]);
        if (to) replace_late(bu->values.items[i], to);
    }
    bu->values.count = 0;
    bu->last = NULL;
    bu->bytes = 0;
    bu->first = false;
}

enum { MIB = 1 << 20 };

static void add_to_bucket(distribution *x, bucket *bu, ir_value *v, double limit)
{
    vec_push(x->graph->module->arena, &bu->values, v);
    bu->last = ir_def(v);
    bu->bytes += pass_elements(x->graph->module, &v->type, NULL) * (double)ir_dtype_size(bu->wire);
    if (bu->bytes >= (bu->first && limit > MIB ? MIB : limit)) reduce_bucket(x, bu);
}

static void reduce_set(distribution *x, const value_set *set, ir_dtype wire, double limit)
{
    ir_graph *g = x->graph;
    bucket buckets[2] = {{.wire = wire, .first = true}, {.wire = IR_f64, .first = true}};
    VEC(ir_value *) all = {0};
    arena *a = g->module->arena;
    for (size_t i = 0; i < g->module->storage.count; i++) {
        if (!is_pending(g->module->storage.items[i])) continue;
        ir_value *v = ir_graph_storage(g, g->module->storage.items[i]);
        if (has(set, v)) vec_push(a, &all, v);
    }
    for (const ir_node *n = g->first; n; n = n->next)
        for (int i = 0; i < n->n_out; i++)
            if (has(set, n->out[i])) vec_push(a, &all, n->out[i]);
    for (size_t i = 0; i < all.count; i++)
        add_to_bucket(x, &buckets[all.items[i]->type.dtype == IR_f64], all.items[i], limit);
    for (int i = 0; i < 2; i++) reduce_bucket(x, &buckets[i]);
}

/* If the flag still differs, the step is skipped on all ranks. */
static void agree_on_flag(distribution *x)
{
    const ir_node *output = ir_output_by_role(x->graph, IR_OUTPUT_found_inf);
    ir_value *flag = output ? ir_in(output, 0) : NULL;
    const value_set differs = find_different(x->graph);
    if (!has(&differs, flag)) return;
    ir_builder b = ir_builder_after(flag->def, x->diag);
    ir_value *number = ir_cast(&b, flag, IR_f32), *cast = number;
    if (!number || !distribute_reduce(&b, &number, 1, IR_WORD(reduced, max), IR_f32, false)) return;
    ir_value *agreed = ir_cast(&b, number, IR_bool);
    if (!agreed) return;
    ir_value_replace(flag, agreed);
    ir_node_set_input(cast->def, 0, flag);
}

static ampc_status check_stores(const ir_graph *g, diag *d)
{
    const value_set differs = find_different(g);
    for (const ir_node *n = ir_first_store(g); n; n = ir_next_store(n)) {
        const ir_storage *s = ir_in(n, 0)->storage;
        if (!is_pending(s) && s->role != IR_STATE_rng && has(&differs, ir_in(n, 1)))
            return diag_error(d, AMPC_REJECTED, ir_storage_loc(g->module, s),
                              "@%s: %s that depends on the samples cannot be averaged over the ranks of a distributed "
                              "training",
                              s->name, ir_dtype_is_float(s->type.dtype) ? "a state" : "an integer");
    }
    return AMPC_OK;
}

static ampc_status reduce_graph(ir_graph *g, const compile_options *o, diag *d)
{
    distribution x = {.graph = g, .options = o, .diag = d, .differs = find_different(g)};
    collect_all(&x);
    reduce_set(&x, &x.gradients, o->reduce_dtype, o->bucket * MIB);
    reduce_set(&x, &x.others, IR_f32, 1e30);
    agree_on_flag(&x);
    TRY(diag_status(d));
    return check_stores(g, d);
}

/* ---- random numbers ---------------------------------------------------------------------------- */

/* A rank number as a distance of counters: {0, number}. */
static ir_value *counter_distance(ir_builder *b, const ir_storage *rng, enum ir_words_rank_number number)
{
    ir_value *unit = ir_constant(b, arena_printf(b->graph->module->arena, "%s.unit", rng->name), &rng->type,
                                 (int64_t[]){0, 1});
    return ir_binary(b, IR_OP_mul, ir_cast(b, distribute_number(b, number), IR_i64), unit);
}

static bool reads(const ir_graph *root, const ir_storage *s)
{
    for (const ir_graph *g = root; g; g = ir_next_graph_in(root, g))
        for (const ir_node *n = g->first; n; n = n->next)
            for (int i = 0; i < n->n_in; i++)
                if (ir_in(n, i) && ir_in(n, i)->kind == IR_VALUE_STORAGE && ir_in(n, i)->storage == s) return true;
    return false;
}

/* Makes the graph and its regions read `shifted` instead of the state; not the update phase, which advances it. */
static void shift_reads(ir_graph *g, ir_storage *rng, ir_value *shifted)
{
    ir_value *v = ir_graph_storage(g, rng);
    for (ir_use *u = v->first_use, *next; u; u = next) {
        next = u->next;
        if (!ir_op_has(u->user->op, IR_EFFECT) && u->user->phase != IR_UPDATE && u->user != ir_def(shifted))
            ir_node_set_input(u->user, u->index, shifted);
    }
    for (ir_node *n = g->first; n; n = n->next)
        for (int i = 0; i < n->n_regions; i++) {
            ir_graph *body = n->regions[i].graph;
            if (reads(body, rng)) shift_reads(body, rng, ir_capture_add(body, shifted));
        }
}

static void distribute_random(ir_graph *g, diag *d)
{
    ir_storage *rng = ir_state_by_role(g->module, IR_STATE_rng);
    if (!rng || !reads(g, rng)) return;
    ir_builder begin = {.graph = g, .before = g->first, .phase = IR_FORWARD, .diag = d};
    ir_value *distance = counter_distance(&begin, rng, IR_WORD(rank_number, index));
    ir_value *shifted = ir_binary(&begin, IR_OP_add, ir_graph_storage(g, rng), distance);
    if (!shifted) return;
    ir_value_rename(shifted, arena_printf(g->module->arena, "%s.rank", rng->name));
    shift_reads(g, rng, shifted);
    for (ir_node *n = ir_first_store(g); n; n = ir_next_store(n)) {
        ir_node *advance = ir_in(n, 0)->storage == rng ? ir_def(ir_in(n, 1)) : NULL;
        if (!advance) continue;
        ir_builder b = ir_builder_before(advance, d);
        ir_value *all = counter_distance(&b, rng, IR_WORD(rank_number, count));
        const bool second = ir_in(advance, 0)->kind == IR_VALUE_STORAGE && ir_in(advance, 0)->storage == rng;
        if (all) ir_node_set_input(advance, second, all);
    }
}

/* ---- the pass ---------------------------------------------------------------------------------- */

static bool is_distributed(const ir_module *m)
{
    for (const ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g))
        for (const ir_node *n = g->first; n; n = n->next)
            if (ir_op_has(n->op, IR_COLLECTIVE)) return true;
    return false;
}

static ampc_status reduce(ir_module *m, const compile_options *o, diag *d)
{
    static const struct {
        ir_graph_role role;
        bool runs, reduces; /* the network; whether @apply does not reduce its results */
    } graphs[] = {{IR_GRAPH_train_step, true, true},
                  {IR_GRAPH_grad, true, true},
                  {IR_GRAPH_accumulate, true, false},
                  {IR_GRAPH_unscale, false, true},
                  {IR_GRAPH_apply, false, true}};
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        ir_graph *g = ir_graph_by_role(m, graphs[i].role);
        if (!g || !graphs[i].runs) continue;
        if (g->role == IR_GRAPH_train_step) distribute_note_batch_norm(g, o, d);
        if (!o->tree) TRY(distribute_weights(g, d)); /* a tree averages the losses of micro-batches as they are */
        if (o->sync_bn) TRY(distribute_batch_norm(g, d));
        distribute_random(g, d);
    }
    if (o->tree) return distribute_tree(m, o, d);
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        ir_graph *g = ir_graph_by_role(m, graphs[i].role);
        if (g && graphs[i].reduces) TRY(reduce_graph(g, o, d));
    }
    return diag_status(d);
}

ampc_status pass_distribute(ir_module *m, compile *c)
{
    const compile_options *o = c->options;
    if (!o->distribute || is_distributed(m)) return AMPC_OK;
    TRY(reduce(m, o, c->diag));
    if (o->shard != PASS_SHARD_OPTIMIZER) return AMPC_OK;
    return shard_optimizer(m, o->ranks, (int64_t)(o->bucket * MIB), c->diag);
}
