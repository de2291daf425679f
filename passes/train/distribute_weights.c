/* distribute_weights.c - losses whose parts are not means over the samples.
 *
 * The losses of the ranks are averaged, each counted by its share of the samples, and so are their gradients. That is
 * the loss of all samples if it is a mean over them. Other parts become such means:
 *
 *   sum / weight   is divided by the weight of all ranks instead, times the share of this rank. A mean over labels that
 *                  are not ignored, or that have weights, is multiplied by weight / (weight of all ranks * share)
 *   sum            is divided by the share
 *
 * and their gradients likewise. With one rank all factors are 1. The weights are computed first, and travel together.
 * Whatever else the loss computes of several samples, each rank computes of its own, with a warning. So it does if
 * samples are compared with each other. */
#include "passes/amp/samples.h"
#include "passes/train/distribute.h"
#include "passes/train/loss.h"

#include <string.h>

typedef VEC(ir_value *) value_list;

typedef struct weighting {
    ir_graph *graph;
    diag *diag;
    arena *arena;
    loss_parts parts;
    value_list weights, totals; /* of this rank, of all; without duplicates */
    value_list divisors, fresh; /* what divided, what does now */
    ir_value *share;
} weighting;

static bool contains(const value_list *l, const ir_value *v, size_t *at)
{
    for (*at = 0; *at < l->count; ++*at)
        if (l->items[*at] == v) return true;
    return false;
}

static void warn(const weighting *w, const ir_value *v)
{
    if (w->graph->role != IR_GRAPH_train_step) return;
    diag_warning(w->diag, ir_diag_loc(ir_def(v)),
                 "is part of the loss, but neither a mean over samples nor a sum, nor a quotient of sums: with several "
                 "ranks each computes it of its own samples, and their losses are averaged");
}

/* ---- the parts ------------------------------------------------------------------------------------- */

static bool known(const weighting *w, const loss_part *p)
{
    for (size_t i = 0; i < w->parts.count; i++)
        if (w->parts.items[i].ratio == p->ratio && w->parts.items[i].value == p->value) return true;
    return false;
}

static void find_parts(weighting *w)
{
    ir_graph *g = w->graph;
    loss_parts all = {0};
    for (ir_node *n = ir_first_output(g); n; n = ir_next_output(n))
        if (n->role == IR_OUTPUT_loss || n->role == IR_OUTPUT_loss_term)
            loss_find_ratios(g, ir_in(n, 0), w->diag, &all);
    for (size_t i = 0; i < all.count; i++) {
        const loss_part *p = &all.items[i];
        if ((p->weight || p->sum || p->coupled) && !known(w, p)) vec_push(w->arena, &w->parts, *p);
    }
}

/* Whether nothing of the network but quotients of the loss reads the divisor: gradients that read it are theirs. */
static bool only_divides(const weighting *w, const ir_value *divisor)
{
    for (const ir_use *u = divisor->first_use; u; u = u->next) {
        bool divides = u->user->phase == IR_BACKWARD || u->user->n_out == 0;
        for (size_t i = 0; i < w->parts.count; i++) divides |= w->parts.items[i].ratio == u->user && u->index == 1;
        if (!divides) return false;
    }
    return true;
}

static bool is_loss(const ir_node *n) { return ir_label(n) != NULL; }

/* Marks parts that cannot be reduced exactly as coupled. */
static void check_parts(weighting *w)
{
    for (size_t i = 0; i < w->parts.count; i++) {
        loss_part *p = &w->parts.items[i];
        if (p->weight && !is_loss(p->ratio) && !only_divides(w, ir_in(p->ratio, 1))) p->coupled = true;
        if (p->coupled) warn(w, p->value);
    }
}

/* Whether a result of n has a number for every two samples. */
static bool compares_samples(const samples *s, const ir_node *n)
{
    for (int i = 0; s->twice && i < n->n_out; i++) {
        int axes = 0;
        for (int k = 0; k < n->out[i]->type.rank; k++) axes += n->out[i]->type.dims[k] == s->batch;
        if (axes > 1 && (samples_mark(s, n->out[i]) & SAMPLES_DATA)) return true;
    }
    return is_loss(n) && ir_def(ir_label(n)) && !ir_def(ir_label(n))->n_in; /* the class of sample i is i */
}

static void warn_of_comparison(const weighting *w)
{
    if (w->graph->role != IR_GRAPH_train_step) return;
    const samples s = samples_find(w->graph, w->arena);
    for (const ir_node *n = w->graph->first; n; n = n->next) {
        if (n->phase != IR_FORWARD || !compares_samples(&s, n)) continue;
        diag_warning(w->diag, ir_diag_loc(n),
                     "compares the samples of a batch with each other: with several ranks each compares its own, and "
                     "their losses are averaged");
        return;
    }
}

/* ---- the weights of all ranks ------------------------------------------------------------------------ */

/* Moves what the weights depend on to the start of the graph, in order. Returns the last of these nodes. */
static ir_node *compute_first(weighting *w)
{
    ir_graph *g = w->graph;
    ir_graph_renumber(g);
    bool *needed = arena_array(w->arena, g->value_ids + 1, sizeof *needed);
    ir_node *first = g->first, *last = NULL;
    for (size_t i = 0; i < w->weights.count; i++) needed[w->weights.items[i]->id] = true;
    for (ir_node *n = g->last; n; n = n->prev) {
        bool used = false;
        for (int i = 0; i < n->n_out; i++) used |= needed[n->out[i]->id];
        for (int i = 0; used && i < n->n_in; i++)
            if (ir_in(n, i)) needed[ir_in(n, i)->id] = true;
    }
    for (ir_node *n = g->first, *next; n; n = next) {
        next = n->next;
        bool used = false;
        for (int i = 0; i < n->n_out; i++) used |= needed[n->out[i]->id];
        if (!used) continue;
        if (n == first) first = n->next;
        else ir_node_move_before(n, first);
        last = n;
    }
    return last;
}

static void reduce_weights(weighting *w)
{
    const size_t n = w->weights.count;
    ir_dtype type = IR_f32;
    if (!n) return;
    for (size_t i = 0; i < n; i++)
        if (w->weights.items[i]->type.dtype == IR_f64) type = IR_f64;
    ir_node *last = compute_first(w);
    ir_builder b = last ? ir_builder_after(last, w->diag) : ir_builder_before(w->graph->first, w->diag);
    b.phase = IR_FORWARD;
    b.loc = (ir_loc){0};
    ir_value **in = arena_array(w->arena, n, sizeof *in);
    for (size_t i = 0; i < n; i++) in[i] = ir_cast(&b, w->weights.items[i], type);
    if (!distribute_reduce(&b, in, (int)n, IR_WORD(reduced, sum), type, false)) return;
    for (size_t i = 0; i < n; i++) {
        ir_value *total = ir_cast(&b, in[i], w->weights.items[i]->type.dtype);
        vec_push(w->arena, &w->totals, total);
    }
}

static ir_value *total_of(const weighting *w, const ir_value *weight)
{
    size_t at;
    return contains(&w->weights, weight, &at) && at < w->totals.count ? w->totals.items[at] : NULL;
}

/* ---- gradients ---------------------------------------------------------------------------------------- */

static void replace_in_backward(ir_value *from, ir_value *to)
{
    for (ir_use *u = from->first_use, *next; u; u = next) {
        next = u->next;
        if (u->user->phase == IR_BACKWARD) ir_node_set_input(u->user, u->index, to);
    }
}

static ir_value *times_share(weighting *w, ir_builder *b, ir_op op, ir_value *v)
{
    return v ? ir_binary(b, op, v, ir_cast(b, w->share, v->type.dtype)) : NULL;
}

/* Whether both nodes come from the same node of the model. */
static bool same_origin(const ir_node *a, const ir_node *b)
{
    return a->loc.op && b->loc.op && strcmp(a->loc.op, b->loc.op) == 0 && strcmp(a->loc.node, b->loc.node) == 0;
}

/* The operand of a node of the backward by which the gradient of the result of n, a scalar, arrives; -1: none. */
static int arrives_at(const ir_node *n, const ir_node *back)
{
    if (back->phase != IR_BACKWARD || !same_origin(n, back)) return -1;
    for (int i = 0; i < back->n_in; i++) {
        const ir_value *v = ir_in(back, i);
        const ir_node *def = v ? ir_def(v) : NULL;
        if (!v || !ir_dtype_is_float(v->type.dtype) || ir_type_count(n->graph->module->dims, &v->type) != 1) continue;
        if (def && (def->phase != IR_BACKWARD || same_origin(n, def))) continue;
        return i;
    }
    return -1;
}

/* Divides the gradient that arrives at the sum v by the share. Returns false if it is not found. */
static bool divide_gradient(weighting *w, const ir_value *v)
{
    const ir_node *n = ir_def(v);
    bool found = false;
    if (!n) return true;
    if (ir_op_has(n->op, IR_CONVERTS | IR_VIEW)) return divide_gradient(w, ir_in(n, 0));
    if (!ir_op_has(n->op, IR_SUMS) && !is_loss(n)) {
        for (int i = 0; i < n->n_in; i++)
            if (ir_def(ir_in(n, i))) found |= divide_gradient(w, ir_in(n, i));
        return found;
    }
    for (ir_node *back = w->graph->first; back; back = back->next) {
        const int i = arrives_at(n, back);
        if (i < 0) continue;
        ir_builder b = ir_builder_before(back, w->diag);
        ir_node_set_input(back, i, times_share(w, &b, IR_OP_div, ir_in(back, i)));
        found = true;
    }
    return found;
}

/* ---- sum / weight -------------------------------------------------------------------------------------- */

/* Lets the divisor, which is a bound of the weight or the weight itself, be that of all ranks, times the share. */
static ir_value *divisor_of(weighting *w, ir_value *divisor, const ir_value *weight)
{
    ir_value *base = divisor, *total = total_of(w, weight);
    size_t at;
    if (contains(&w->divisors, divisor, &at)) return w->fresh.items[at];
    if (!total) return NULL;
    if (divisor == weight) base = total;
    for (ir_value *v = divisor; v != weight; v = ir_in(v->def, 0))
        if (ir_in(v->def, 0) == weight) {
            ir_node_set_input(v->def, 0, total);
            break;
        }
    ir_builder b = ir_builder_after(base->def, w->diag);
    ir_value *fresh = times_share(w, &b, IR_OP_mul, base);
    if (!fresh) return NULL;
    vec_push(w->arena, &w->divisors, divisor);
    vec_push(w->arena, &w->fresh, fresh);
    replace_in_backward(divisor, fresh);
    return fresh;
}

/* The gradient of a divisor that depends on parameters reads the quotient, which must be that of all ranks. */
static void share_quotient(weighting *w, ir_node *n)
{
    bool read = false;
    for (const ir_use *u = ir_out(n, 0)->first_use; u; u = u->next) read |= u->user->phase == IR_BACKWARD;
    if (!read) return;
    ir_builder b = ir_builder_after(n, w->diag);
    ir_value *mean = ir_out(n, 0);
    const ir_dtype wire = mean->type.dtype == IR_f64 ? IR_f64 : IR_f32;
    if (distribute_reduce(&b, &mean, 1, IR_WORD(reduced, mean), wire, false)) replace_in_backward(ir_out(n, 0), mean);
}

static void divide_by_all(weighting *w, const loss_part *p)
{
    ir_value *divisor = ir_in(p->ratio, 1), *fresh = divisor_of(w, divisor, p->weight);
    if (!fresh) return;
    ir_node_set_input(p->ratio, 1, fresh);
    share_quotient(w, p->ratio);
}

static bool same_labels(const ir_node *n, const ir_node *back)
{
    static const char *const slots[] = {"label", "weight"}, *const attrs[] = {"ignore_index", "reduction"};
    for (int i = 0; i < 2; i++) {
        const int own = ir_op_find_attr(n->op, attrs[i]), other = ir_op_find_attr(back->op, attrs[i]);
        if (other < 0 || n->attr[own].i != back->attr[other].i) return false;
        if (ir_in_named(n, slots[i]) != ir_in_named(back, slots[i])) return false;
    }
    return ir_op_find_in(back->op, "dloss") >= 0;
}

/* The mean of labels of this rank, which are perhaps none, becomes its part of the mean of all. */
static void weigh_mean(weighting *w, const loss_part *p)
{
    ir_node *n = p->ratio;
    ir_value *mean = ir_out(n, 0), *total = total_of(w, p->weight);
    ir_builder b = ir_builder_after(n, w->diag);
    ir_value *factor = ir_binary(&b, IR_OP_div, p->weight, times_share(w, &b, IR_OP_mul, total));
    ir_value *none = ir_binary(&b, IR_OP_equal, p->weight, ir_scalar_like(&b, p->weight, 0));
    ir_value *zero = ir_scalar_like(&b, mean, 0), *kept = ir_done(&b, ir_new(&b, IR_OP_where, 3, none, zero, mean));
    factor = factor ? ir_cast(&b, factor, mean->type.dtype) : NULL;
    ir_value *part = ir_binary(&b, IR_OP_mul, kept, factor);
    if (!part) return;
    ir_value_replace(mean, part);
    ir_node_set_input(kept->def, IR_IN(where, b), mean);
    for (ir_node *back = w->graph->first; back; back = back->next) {
        if (back->phase != IR_BACKWARD || !same_labels(n, back)) continue;
        const int at = ir_op_find_in(back->op, "dloss");
        ir_builder before = ir_builder_before(back, w->diag);
        ir_value *d = ir_in(back, at);
        ir_node_set_input(back, at, ir_binary(&before, IR_OP_mul, d, ir_cast(&before, factor, d->type.dtype)));
    }
}

/* ---- sums ---------------------------------------------------------------------------------------------- */

static void divide_sum(weighting *w, const loss_part *p)
{
    ir_value *v = p->value;
    ir_builder b = ir_builder_after(v->def, w->diag);
    ir_value *part = times_share(w, &b, IR_OP_div, v);
    if (!part) return;
    if (!divide_gradient(w, v)) {
        warn(w, v);
        ir_node_remove(part->def);
        return;
    }
    ir_value_replace(v, part);
    ir_node_set_input(part->def, 0, v);
}

static void rewrite(weighting *w)
{
    for (size_t i = 0; i < w->parts.count; i++) {
        const loss_part *p = &w->parts.items[i];
        size_t at;
        if (p->weight && !p->coupled && !contains(&w->weights, p->weight, &at))
            vec_push(w->arena, &w->weights, p->weight);
    }
    reduce_weights(w);
    ir_builder begin = {.graph = w->graph, .before = w->graph->first, .phase = IR_FORWARD, .diag = w->diag};
    w->share = distribute_number(&begin, IR_WORD(rank_number, share));
    if (!w->share || w->totals.count < w->weights.count) return;
    for (size_t i = 0; i < w->parts.count; i++) {
        const loss_part *p = &w->parts.items[i];
        if (p->coupled) continue;
        if (p->sum) divide_sum(w, p);
        else if (is_loss(p->ratio)) weigh_mean(w, p);
        else divide_by_all(w, p);
    }
}

/* A gradient penalty differentiates the loss as it is. */
static bool has_penalty(const ir_graph *g, diag *d)
{
    const ir_node *penalty = ir_output_by_role(g, IR_OUTPUT_penalty);
    if (penalty && g->role == IR_GRAPH_train_step)
        diag_warning(d, DIAG_FILE(ir_module_source(g->module)),
                     "with a gradient penalty, each of several ranks computes the loss and the penalty of its own "
                     "samples, and these are averaged");
    return penalty;
}

ampc_status distribute_weights(ir_graph *g, diag *d)
{
    if (has_penalty(g, d)) return diag_status(d);
    arena *scratch = pass_scratch_new(g->module);
    weighting w = {.graph = g, .diag = d, .arena = scratch};
    warn_of_comparison(&w);
    find_parts(&w);
    check_parts(&w);
    if (w.parts.count && diag_status(d) == AMPC_OK) rewrite(&w);
    arena_free(scratch);
    return diag_status(d);
}
