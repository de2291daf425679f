/* colour.c - decides in which type every node computes.
 *
 * The lists determine the colour of each node. Then one walk in execution order decides types (profile `ampc`):
 *   white            low
 *   black            f32; "b" if the op computes in f32 internally: its operands keep their types, its result is low if
 *                    its operand is low or a white op reads it, and it does not make gray users f32
 *   gray             f32 if a counted producer is f32, else low if one is low, else the type of the operands;
 *                    parameters, constants, graph inputs and casts of the model never count, in any operand order
 *   clear            the type of its float operands, f32 if they differ; counts as its producers do
 * The loss is an f32 terminal: everything on the path from the last white or b op to the loss is f32, because the
 * backward is seeded with the loss scale, which needs f32. A b op without the attribute `out`, whose result has the
 * type of its operand, does not end that path. In @eval, nor does any op whose operand was reduced over the samples: an
 * evaluation adds up what its batches report, and rounded sums would depend on the size of the batches. */
#include "ir/ops/formulas.h"
#include "passes/amp/colour.h"
#include "passes/amp/attention.h"
#include "passes/amp/consumer.h"
#include "passes/amp/operands.h"
#include "passes/amp/range.h"
#include "passes/amp/samples.h"

#include <string.h>

typedef enum count { COUNT_NOT, COUNT_F32, COUNT_LOW } count;

typedef struct colour_state {
    ir_graph *graph;
    const amp_scope *scope;
    const amp_list *list;
    const compile_options *options;
    diag *diag;
    amp_entry *entries;               /* by node id */
    ir_dtype *type;                   /* by value id: dtype after casting */
    count *counts;                    /* by value id: what the value counts as for a gray user */
    bool *terminal;                   /* by node id: f32 because of the loss */
    samples samples;                  /* of @eval */
    const range_mark *ranges;         /* by node id, or NULL */
    const attention_mark *attentions; /* by node id, or NULL */
    const bool *low_moves;            /* by node id */
    const consumer *consumer;         /* or NULL */
    const list_place **inside;        /* by node id: why the consumer computes the operator in f32 inside, or NULL */
    bool names_tensors;               /* some list names tensors */
} colour_state;

/* Whether the node only selects between subgraphs and is coloured like any operator, with its captures as operands. */
static bool is_listed_control(const amp_scope *s, const ir_node *n)
{
    const bool as_model = s->compile->list->rule.control == CONTROL_MODEL;
    if (as_model || !n->n_regions || !amp_lowers_subgraphs(s)) return false;
    for (int i = 0; i < ir_declared_operands(n); i++)
        if (ir_in(n, i) && ir_dtype_is_float(ir_in(n, i)->type.dtype)) return false;
    return true;
}

/* An opaque operator whose schema allows only the model's types. */
static bool is_fixed(const colour_state *c, const ir_node *n)
{
    if (is_listed_control(c->scope, n)) return false;
    for (int i = 0; i < n->n_in; i++)
        if (amp_is_cast_operand(n, i)) return false;
    return ir_op_has(n->op, IR_DECLARED);
}

/* Whether n has a float operand or, if it has no operands, a float result. */
static bool touches_float(const ir_node *n)
{
    bool reads = false;
    for (int i = 0; i < n->n_in; i++) {
        if (ir_in(n, i) && ir_dtype_is_float(ir_in(n, i)->type.dtype)) return true;
        reads |= ir_in(n, i) && !n->n_regions;
    }
    for (int i = 0; i < n->n_out && !reads; i++)
        if (ir_dtype_is_float(n->out[i]->type.dtype)) return true;
    return false;
}

static bool touches_f64(const ir_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (ir_in(n, i) && ir_in(n, i)->type.dtype == IR_f64) return true;
    return n->n_out > 0 && n->out[0]->type.dtype == IR_f64;
}

static bool computes_in_f32(const colour_state *c, const ir_node *n)
{
    return c->inside[n->id] || amp_list_inside(c->list, n);
}

/* ---- colours from the lists ------------------------------------------------------------------ */

/* A list that names one of the nodes that an operator was lowered to names all of them; they are adjacent. */
static bool is_same_operator(const ir_node *a, const ir_node *b)
{
    if (a == b) return true;
    bool model = a->loc.op && b->loc.op;
    return model && strcmp(a->loc.node, b->loc.node) == 0 && strcmp(a->loc.op, b->loc.op) == 0;
}

static const ir_node *first_part(const ir_node *n)
{
    while (n->prev && is_same_operator(n->prev, n)) n = n->prev;
    return n;
}

static const ir_node *next_part(const ir_node *n) { return n->next && is_same_operator(n->next, n) ? n->next : NULL; }

static const list_pattern *find_tensor(const colour_state *c, const ir_node *n)
{
    const list_pattern *p = NULL;
    if (!c->names_tensors) return NULL;
    for (n = first_part(n); n && !p; n = next_part(n)) {
        for (int i = 0; i < n->n_in && !p; i++)
            if (ir_in(n, i)) p = amp_list_find_tensor(c->list, ir_in(n, i)->name);
        for (int i = 0; i < n->n_out && !p; i++) p = amp_list_find_tensor(c->list, n->out[i]->name);
    }
    return p;
}

static bool has_word(const char *name, const char *words)
{
    for (const char *end; *words; words = end) {
        words += strspn(words, ", ");
        end = words + strcspn(words, ", ");
        if (end > words && memmem(name, strlen(name), words, (size_t)(end - words))) return true;
    }
    return false;
}

/* `fp32_names = WORD, ...`: an operand or result whose name contains the word. */
static bool has_f32_name(const colour_state *c, const ir_node *n)
{
    const char *words = c->list->rule.fp32_names;
    if (!*words) return false;
    for (n = first_part(n); n; n = next_part(n)) {
        for (int i = 0; i < n->n_in; i++)
            if (ir_in(n, i) && has_word(ir_in(n, i)->name, words)) return true;
        for (int i = 0; i < n->n_out; i++)
            if (has_word(n->out[i]->name, words)) return true;
    }
    return false;
}

/* The colour of a white op without an operator of the model, such as the product of a gradient with an operand of the
 * forward: that of the model's white op which reads the same operand. */
static ir_colour colour_of_sibling(const colour_state *c, const ir_node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        const ir_value *v = ir_in(n, i);
        while (v && ir_def(v) && !ir_def(v)->loc.op && ir_op_has(ir_def(v)->op, IR_VIEW)) v = ir_in(ir_def(v), 0);
        for (const ir_use *u = v ? v->first_use : NULL; u; u = u->next)
            if (u->user->loc.op && ir_op_get(u->user->op)->colour == IR_WHITE) return c->entries[u->user->id].colour;
    }
    return IR_WHITE;
}

/* Why the consumer computes n in f32 inside, or as well in the low type, or NULL. A sum of many terms may be too large
 * for fp16 wherever it is computed. bf16 has three bits less, so that it loses as much with an eighth of the terms. */
static const list_place *find_inside(const colour_state *c, const ir_node *n)
{
    const consumer *by = c->consumer;
    const list_place *line = consumer_inside(by, n);
    const bool f16 = c->options->low == IR_f16;
    range_terms terms;
    if (!by->terms || !range_find_terms(n, &terms)) return line;
    const bool few = terms.count <= (double)by->terms / (f16 ? 1 : 8);
    if (line) return few || !f16 || !terms.sum ? line : NULL;
    if (!few) return NULL;
    list_place *place = arena_alloc(c->scope->arena, sizeof *place);
    *place = (list_place){arena_printf(c->scope->arena, "%s:%d: a %s of %.0f terms", by->terms_place.file,
                                       by->terms_place.line, terms.what, terms.count),
                          0};
    return place;
}

static void colour_by_lists(colour_state *c, ir_node *n, amp_entry *e)
{
    if (!n->loc.op) {
        const ir_colour colour = ir_op_get(ir_op_like(n->op, n->attr))->colour;
        e->colour = colour == IR_WHITE ? colour_of_sibling(c, n) : colour;
        return;
    }
    const list_entry *line = amp_list_find_at(c->list, n, c->options->low);
    const int own = ir_op_find_attr(n->op, "colour"); /* of a custom operator, unless a list names it */
    e->colour = line ? line->colour : own >= 0 ? (ir_colour)n->attr[own].i : IR_BLACK;
    e->line = line ? &line->place : NULL;
    if (c->consumer && e->colour == IR_BLACK && amp_list_is_of_profile(c->list, line))
        c->inside[n->id] = find_inside(c, n);
    if (line || own >= 0) return;
    e->rule = AMP_UNLISTED;
    if (c->list->rule.unlisted == UNLISTED_ERROR)
        diag_error(c->diag, AMPC_REJECTED, ir_diag_loc(n), "operator %s is not on any list", n->loc.op);
}

/* Whether the op can write a type other than that of its operands, and the runtime allows it. */
static bool has_separate_result(const colour_state *c, const ir_node *n)
{
    return ir_op_out_attr(n->op) >= 0 && !c->options->plain_runtime;
}

/* A pattern makes the node f32 unless it is white. A tensor or result that fp16 cannot represent makes it f32 in any
 * case. */
static void colour_by_range(const colour_state *c, const ir_node *n, amp_entry *e)
{
    const range_mark *m = c->ranges && n->loc.op ? &c->ranges[n->id] : &(range_mark){0};
    if (m->large) *e = (amp_entry){.colour = IR_BLACK, .rule = AMP_INIT_MAX, .cause = m->large};
    else if (m->tensor) *e = (amp_entry){.colour = IR_BLACK, .rule = AMP_INITIALIZER, .cause = m->tensor};
    else if (m->pattern && e->colour != IR_WHITE && !(m->alone && c->inside[n->id]))
        *e = (amp_entry){.colour = IR_BLACK, .rule = AMP_RANGE, .line = m->pattern};
    else if (m->overflow && !has_separate_result(c, n))
        *e = (amp_entry){.colour = IR_BLACK, .rule = AMP_RANGE, .line = m->overflow};
}

/* Applies what overrides the operator lists, in order of precedence. */
static void colour_by_name(colour_state *c, const ir_node *n, amp_entry *e)
{
    const list_pattern *tensor = find_tensor(c, n), *node = n->loc.op ? amp_list_find_node(c->list, &n->loc) : NULL;
    const list_place *no_kernel = c->consumer && n->loc.op ? strmap_get(c->consumer->no_kernel, n->loc.op) : NULL;
    if (no_kernel || (n->loc.op && amp_list_unsupported(c->list, n->loc.op)))
        *e = (amp_entry){.colour = IR_BLACK, .rule = AMP_UNSUPPORTED, .line = no_kernel};
    else if (node || tensor)
        *e = (amp_entry){.colour = (node ? node : tensor)->dtype == IR_f32 ? IR_BLACK : IR_WHITE,
                         .rule = node ? AMP_NODE : AMP_TENSOR,
                         .line = node ? &node->place : &tensor->place};
    else if (has_f32_name(c, n)) *e = (amp_entry){.colour = IR_BLACK, .rule = AMP_NAMED};
}

/* Whether a cast of the model keeps its type. It does not if a name applies to it, or if the rule `user_cast` is gray
 * and the list has its operator gray. */
static bool is_honoured_cast(const colour_state *c, const ir_node *n)
{
    if (!ir_op_has(n->op, IR_CONVERTS) || has_f32_name(c, n) || find_tensor(c, n)) return false;
    if (c->options->level == PASS_OD && c->list->rule.od == OD_STRICT) return false;
    bool listed = c->list->rule.user_cast == USER_CAST_GRAY && n->loc.op;
    const list_entry *line = listed ? amp_list_find(c->list, n->loc.op, n, c->options->low) : NULL;
    return !line || line->colour != IR_GRAY;
}

/* Uncoloured nodes compute in the types of the model and do not count as producers. */
static bool is_untouched(const colour_state *c, const ir_node *n, amp_rule *why)
{
    const amp_rules *rule = &c->list->rule;
    bool listed = rule->integer_ops == INTEGER_LISTED && n->loc.op;
    *why = ir_op_get(n->op)->traits & IR_EFFECT ? AMP_STATEMENT
           : !touches_float(n) && !listed       ? AMP_NO_FLOAT
           : is_honoured_cast(c, n)             ? AMP_USER_CAST
           : is_fixed(c, n)                     ? AMP_OPAQUE
           : touches_f64(n)                     ? AMP_F64
                                                : AMP_FIXED;
    if (*why != AMP_FIXED) return true;
    bool fixed = rule->fixed_dtype_ops == FIXED_DTYPE_UNTOUCHED && n->loc.op;
    return fixed && rules_text_has(rule->dtype_attribute, n->loc.op);
}

static void colour_node(colour_state *c, ir_node *n)
{
    amp_entry *e = &c->entries[n->id];
    *e = (amp_entry){.colour = IR_KEEP};
    if (operands_colour(n, c->scope, e)) return;
    if (is_untouched(c, n, &e->rule)) return;
    e->rule = AMP_LISTED_WHITE; /* coloured: the walk decides the rule */
    colour_by_lists(c, n, e);
    colour_by_range(c, n, e);
    colour_by_name(c, n, e);
}

/* ---- the loss as f32 terminal ---------------------------------------------------------------- */

static bool is_listed_black(const amp_entry *e) { return e->colour == IR_BLACK && e->rule != AMP_UNLISTED; }

/* Whether n computes in f32 internally and writes f32 whatever the types of its operands. */
static bool is_boundary(const colour_state *c, const ir_node *n)
{
    return is_listed_black(&c->entries[n->id]) && computes_in_f32(c, n) &&
           (ir_op_out_attr(n->op) >= 0 || ir_op_out_slot(n->op, 0, n->n_out)->group == IR_GROUP_F32);
}

static bool is_ours(const ir_node *n) { return !n->loc.op; }

/* Whether the operand x of n, where marking otherwise ends, is part of an appended loss, which is f32 as a whole. A
 * view of the model's output is not, unless `views`: its reader computes in f32 anyway. */
static bool continues(const ir_node *n, const ir_node *x, bool views)
{
    return is_ours(n) && is_ours(x) && (views || !ir_op_has(x->op, IR_VIEW));
}

/* Whether the value of an evaluation has no axis of samples, but depends on them. */
static bool is_of_all_samples(const colour_state *c, const ir_value *x)
{
    return c->samples.marks && samples_mark(&c->samples, x) == SAMPLES_DATA;
}

/* Marks `last` and the nodes that marked nodes are computed from, except for `apart`. `ours_only`: only nodes of
 * passes; `white`: white ones too, which changes nothing for them, but for what they are computed from. */
static void mark_before(colour_state *c, const ir_node *last, bool ours_only, bool white, const ir_node *apart)
{
    c->terminal[last->id] = white || c->entries[last->id].colour != IR_WHITE;
    for (const ir_node *n = last; n; n = n->prev) {
        if (!c->terminal[n->id]) continue;
        bool boundary = is_boundary(c, n);
        for (int i = 0; i < n->n_in; i++) {
            const ir_value *x = ir_in(n, i);
            if (!x || x->kind != IR_VALUE_RESULT || x->def == apart) continue;
            const bool captured = is_ours(n) && n->n_regions;
            if (!amp_is_cast_operand(n, i) && !ir_op_has(n->op, IR_CONVERTS) && !captured) continue;
            const bool ends = (boundary || ours_only) && !continues(n, x->def, white);
            if (ends && !is_of_all_samples(c, x)) continue;
            c->terminal[x->def->id] |= white || c->entries[x->def->id].colour != IR_WHITE;
        }
    }
}

/* Marks the nodes the loss is computed from, back to white ops and to ops that compute in f32 internally, which read
 * the model's output in its own type. A loss that a pass has appended (no ONNX origin) is f32 as a whole, and so is a
 * penalty, except for its white ops. */
static void mark_terminal(colour_state *c)
{
    const ir_node *loss = ir_output_by_role(c->graph, IR_OUTPUT_loss);
    const ir_node *penalty = ir_output_by_role(c->graph, IR_OUTPUT_penalty);
    const ir_node *apart = penalty ? ir_def(ir_in(penalty, 0)) : NULL;
    const bool ours_only = c->list->rule.loss == LOSS_AS_COLOURED;
    for (const ir_node *output = loss ? ir_first_output(c->graph) : NULL; output; output = ir_next_output(output)) {
        const ir_node *sum = amp_is_loss(output) ? ir_def(ir_in(output, 0)) : NULL;
        if (sum && (is_ours(sum) || !ours_only || is_of_all_samples(c, ir_in(output, 0))))
            mark_before(c, sum, ours_only, false, apart);
    }
    if (apart) mark_before(c, apart, true, true, NULL);
}

/* ---- the walk -------------------------------------------------------------------------------- */

/* Types of a node's float operands after casting. Storage is considered only if there are no other operands. */
typedef struct arrival {
    bool f32, low;
    ir_dtype type;                         /* common type of the operands */
    const ir_value *f32_cause, *low_cause; /* first producer that counts as such */
} arrival;

static arrival inspect_operands(const colour_state *c, const ir_node *n)
{
    arrival a = {.type = IR_NO_DTYPE};
    for (int storage = 0; storage <= 1 && !a.f32 && !a.low; storage++)
        for (int i = 0; i < n->n_in; i++) {
            const ir_value *v = ir_in(n, i);
            if (!amp_is_cast_operand(n, i) || (v->kind == IR_VALUE_STORAGE) != storage) continue;
            ir_dtype t = c->type[v->id];
            (ir_dtype_is_low(t) ? &a.low : &a.f32)[0] = true;
            a.type = t;
            if (c->counts[v->id] == COUNT_F32 && !a.f32_cause) a.f32_cause = v;
            if (c->counts[v->id] == COUNT_LOW && !a.low_cause) a.low_cause = v;
        }
    return a;
}

static void set(amp_entry *e, amp_rule rule, ir_dtype dtype, const ir_value *cause)
{
    e->rule = rule;
    e->compute_dtype = e->result = dtype;
    e->cause = cause;
}

static bool read_by_white(const colour_state *c, const ir_node *n)
{
    for (int i = 0; i < n->n_out; i++)
        for (const ir_use *u = n->out[i]->first_use; u; u = u->next)
            if (c->entries[u->user->id].colour == IR_WHITE && amp_is_cast_operand(u->user, u->index)) return true;
    return false;
}

static count decide_inside(const colour_state *c, const ir_node *n, amp_entry *e, const arrival *a)
{
    bool mixed = a->f32 && a->low;
    ir_dtype low = c->options->low;
    set(e, mixed ? AMP_F32_COMPUTE_MIXED : AMP_F32_COMPUTE, mixed ? IR_f32 : a->type, NULL);
    if (c->inside[n->id]) e->line = c->inside[n->id];
    if (!has_separate_result(c, n)) return ir_dtype_is_low(e->result) ? COUNT_LOW : COUNT_NOT;
    if (c->terminal[n->id]) e->result = IR_f32;
    else if (e->compute_dtype == IR_f32 && read_by_white(c, n)) e->result = low;
    return ir_dtype_is_low(e->result) ? COUNT_LOW : COUNT_NOT;
}

/* Whether a black node that the consumer computes in f32 inside is f32 without any more casts: it has one computed
 * operand, and its result, which is as large, is only an output in f32. The operand is cast instead of the result. */
static bool is_last(const colour_state *c, const ir_node *n)
{
    int computed = 0;
    bool same = c->inside[n->id] && c->options->keep_io_types && !c->graph->owner;
    for (int i = 0; i < n->n_in && same; i++) {
        const ir_value *v = ir_in(n, i);
        if (!v || v->kind == IR_VALUE_STORAGE || !ir_dtype_is_float(v->type.dtype)) continue;
        same = computed++ == 0 && ir_type_equal(&v->type, &n->out[0]->type);
    }
    for (int i = 0; i < n->n_out && same; i++)
        for (const ir_use *u = n->out[i]->first_use; u && same; u = u->next) same = ir_op_has(u->user->op, IR_NAMED);
    return same && computed == 1;
}

/* The counted producers of a gray node: the first f32 one, the first low one and the last. Operands that are moved or
 * combined come after those that only control the op, as in PaddlePaddle's slot order. */
typedef struct producers {
    const ir_value *f32, *low, *last;
} producers;

static producers inspect_producers(const colour_state *c, const ir_node *n)
{
    producers p = {0};
    for (int part = 0; part <= 1; part++)
        for (int i = 0; i < n->n_in; i++) {
            const ir_value *v = ir_in(n, i);
            if (!v || amp_is_cast_operand(n, i) != part || c->counts[v->id] == COUNT_NOT) continue;
            const ir_value **first = c->counts[v->id] == COUNT_F32 ? &p.f32 : &p.low;
            if (!*first) *first = v;
            p.last = v;
        }
    if (c->list->rule.gray == GRAY_LAST_PRODUCER && p.last)
        *(c->counts[p.last->id] == COUNT_F32 ? &p.low : &p.f32) = NULL;
    return p;
}

static count decide_gray(const colour_state *c, const ir_node *n, amp_entry *e, const arrival *a)
{
    producers p = inspect_producers(c, n);
    bool last = c->list->rule.gray == GRAY_LAST_PRODUCER;
    ir_dtype low = c->options->low;
    if (p.f32) return set(e, AMP_GRAY_F32, IR_f32, last ? p.last : p.f32), COUNT_F32;
    if (p.low) return set(e, AMP_GRAY_LOW, low, last ? p.last : p.low), COUNT_LOW;
    if (c->list->rule.orphan == ORPHAN_LOW) return set(e, AMP_GRAY_DEFAULT_LOW, low, NULL), COUNT_LOW;
    set(e, AMP_GRAY_KEEP, a->f32 && a->low ? IR_f32 : a->type, NULL);
    return COUNT_NOT;
}

/* The f32 storage that the subgraphs of a node read, or NULL. PaddlePaddle lists it among the operands of a block. */
static const ir_value *f32_storage_within(const ir_node *n)
{
    const ir_value *found = NULL;
    for (int i = 0; i < n->n_regions && !found; i++) {
        for (const ir_node *inner = n->regions[i].graph->first; inner && !found; inner = inner->next) {
            for (int k = 0; k < inner->n_in && !found; k++) {
                const ir_value *v = ir_in(inner, k);
                if (v && v->kind == IR_VALUE_STORAGE && v->type.dtype == IR_f32) found = v;
            }
            if (!found) found = f32_storage_within(inner);
        }
    }
    return found;
}

/* f32 if an f32 operand would have to be cast, else low. */
static count decide_promoted(const colour_state *c, const ir_node *n, amp_entry *e)
{
    bool pinned = n->loc.op && amp_list_fp32_operands(c->list, n->loc.op);
    for (int i = 0; i < n->n_in; i++) {
        const ir_value *v = ir_in(n, i);
        if (!v || c->type[v->id] != IR_f32 || amp_list_is_attribute(c->list, n, i)) continue;
        if (pinned && (!amp_is_cast_operand(n, i) || (i && ir_op_has(n->op, IR_DECLARED)))) continue;
        return set(e, AMP_PROMOTE_F32, IR_f32, v), COUNT_F32;
    }
    const ir_value *within = c->options->level == PASS_O2 ? NULL : f32_storage_within(n);
    if (within) return set(e, AMP_PROMOTE_F32, IR_f32, within), COUNT_F32;
    return set(e, AMP_PROMOTE_LOW, c->options->low, NULL), COUNT_LOW;
}

static count decide_clear(const colour_state *c, amp_entry *e, const arrival *a)
{
    bool mixed = a->f32 && a->low;
    const ir_value *cause = a->f32_cause ? a->f32_cause : mixed ? NULL : a->low_cause;
    if (mixed && c->options->level == PASS_O2) return set(e, AMP_O2, c->options->low, NULL), COUNT_LOW;
    set(e, mixed ? AMP_CLEAR_MIXED : AMP_CLEAR, mixed ? IR_f32 : a->type, cause);
    if (ir_dtype_is_low(e->compute_dtype)) return a->low_cause ? COUNT_LOW : COUNT_NOT;
    return a->f32_cause ? COUNT_F32 : COUNT_NOT;
}

/* For a node named in [nodes] or [tensors], whose rule is already set. */
static count decide_named(amp_entry *e, ir_dtype low)
{
    e->compute_dtype = e->result = e->colour == IR_WHITE ? low : IR_f32;
    return e->colour == IR_WHITE ? COUNT_LOW : COUNT_F32;
}

static bool is_named(const amp_entry *e)
{
    return e->rule == AMP_NODE || e->rule == AMP_TENSOR || e->rule == AMP_UNSUPPORTED || e->rule == AMP_NAMED ||
           e->rule == AMP_OPERANDS || e->rule == AMP_RANGE || e->rule == AMP_INITIALIZER || e->rule == AMP_INIT_MAX;
}

/* Low scores stay low up to a softmax that computes in f32 internally, whatever the type of the mask. */
static bool is_in_attention(const colour_state *c, const ir_node *n)
{
    const attention_mark *m = c->attentions ? &c->attentions[n->id] : &(attention_mark){0};
    return m->scores && ir_dtype_is_low(c->type[m->scores->id]) && computes_in_f32(c, m->softmax) &&
           !is_named(&c->entries[m->softmax->id]);
}

/* Gray, clear and unlisted nodes, for which levels and profiles differ. */
static count decide_by_rules(const colour_state *c, const ir_node *n, amp_entry *e, const arrival *a)
{
    if (c->list->rule.promote == PROMOTE_ON) return decide_promoted(c, n, e);
    if (c->low_moves[n->id]) return set(e, AMP_MOVED_WEIGHT, c->options->low, NULL), COUNT_NOT;
    if ((e->colour == IR_CLEAR || e->colour == IR_GRAY) && is_in_attention(c, n))
        return set(e, AMP_ATTENTION, c->options->low, c->attentions[n->id].scores), COUNT_LOW;
    if (e->colour == IR_CLEAR) return decide_clear(c, e, a);
    if (c->options->level == PASS_O2) return set(e, AMP_O2, c->options->low, NULL), COUNT_LOW;
    if (e->colour == IR_GRAY) return decide_gray(c, n, e, a);
    return set(e, AMP_UNLISTED, IR_f32, NULL), COUNT_F32;
}

static count decide(const colour_state *c, const ir_node *n, amp_entry *e)
{
    ir_dtype low = c->options->low;
    arrival a = inspect_operands(c, n);
    if (is_named(e)) return decide_named(e, low);
    const bool black = is_listed_black(e);
    if (c->options->level == PASS_OD && e->colour != IR_WHITE) return set(e, AMP_OD, IR_f32, NULL), COUNT_F32;
    bool inside = black && computes_in_f32(c, n), terminal = c->terminal[n->id] && e->colour != IR_WHITE;
    if (inside && is_last(c, n)) return set(e, AMP_LISTED_BLACK, IR_f32, NULL), COUNT_F32;
    if (inside && (!terminal || is_boundary(c, n))) return decide_inside(c, n, e, &a);
    if (terminal && (inside || !black)) return set(e, AMP_LOSS, IR_f32, NULL), COUNT_F32;
    if (e->colour == IR_WHITE) return set(e, AMP_LISTED_WHITE, low, NULL), COUNT_LOW;
    if (black) return set(e, AMP_LISTED_BLACK, IR_f32, NULL), COUNT_F32;
    return decide_by_rules(c, n, e, &a);
}

/* The type that a coloured cast of the model writes: that of its colour if the model casts to f32, or at level OD to
 * any float type. */
static ir_dtype cast_writes(const colour_state *c, const ir_node *n, const amp_entry *e)
{
    ir_dtype to = n->out[0]->type.dtype;
    bool retyped = to == IR_f32 || (ir_dtype_is_float(to) && c->options->level == PASS_OD);
    return retyped && e->compute_dtype != IR_NO_DTYPE ? e->compute_dtype : to;
}

static void note_results(colour_state *c, const ir_node *n, amp_entry *e, count counts, bool coloured)
{
    if (ir_op_has(n->op, IR_CONVERTS) && coloured) e->result = cast_writes(c, n, e);
    for (int i = 0; i < n->n_out; i++) {
        ir_value *v = n->out[i];
        bool follows = amp_follows_result(n, i) || ir_op_has(n->op, IR_CONVERTS);
        c->type[v->id] = v->type.dtype;
        if (!coloured) continue;
        if (ir_dtype_is_float(v->type.dtype)) {
            if (!follows && e->rule == AMP_F32_COMPUTE) continue;
            if (follows && e->result != IR_NO_DTYPE) c->type[v->id] = e->result;
            if (amp_narrows_result(n, i, e, c->list)) c->type[v->id] = e->result;
        }
        c->counts[v->id] = e->rule == AMP_OPERANDS && !follows ? COUNT_F32 : counts;
    }
}

/* A sum that may not fit into the low type is written in f32, and its users follow it. */
static count widen_result(const colour_state *c, const ir_node *n, amp_entry *e, count counts)
{
    const range_mark *m = c->ranges && n->loc.op ? &c->ranges[n->id] : &(range_mark){0};
    if (!m->overflow || !has_separate_result(c, n) || !ir_dtype_is_low(e->result)) return counts;
    e->result = IR_f32;
    e->line = m->overflow;
    e->overflows = true;
    return COUNT_F32;
}

static void decide_in_order(colour_state *c)
{
    for (ir_node *n = c->graph->first; n && n->phase == IR_FORWARD; n = n->next) {
        amp_entry *e = &c->entries[n->id];
        bool coloured = e->rule >= AMP_UNSUPPORTED && e->colour != IR_KEEP;
        count counts = coloured ? decide(c, n, e) : COUNT_NOT;
        if (coloured) counts = widen_result(c, n, e, counts);
        e->counts = counts != COUNT_NOT;
        if (ir_op_has(n->op, IR_CONVERTS) && !coloured) e->compute_dtype = c->type[ir_in(n, 0)->id];
        note_results(c, n, e, counts, coloured);
    }
}

/* ---- parameters at level O2 ------------------------------------------------------------------ */

/* Whether operand i stays f32 although the level makes parameters low. */
static bool requires_f32(const ir_node *n, int i, const amp_entry *e, const amp_list *l, ir_dtype low)
{
    if (ir_op_has(n->op, IR_DECLARED) && !amp_is_cast_operand(n, i)) return true;
    if (amp_list_is_attribute(l, n, i)) return true;
    if (e->colour == IR_KEEP || !n->loc.op) return false;
    const list_entry *line = amp_list_find_at(l, n, low);
    bool black = line && line->colour == IR_BLACK;
    if (black && l->rule.black_params == BLACK_PARAMS_LOW && !amp_list_black_lifted_at_level(l, n->loc.op))
        return false;
    if (black || (is_named(e) && e->rule != AMP_TENSOR && e->colour == IR_BLACK)) return true;
    bool same = amp_is_cast_operand(n, i) &&
                (!i || !ir_op_has(n->op, IR_DECLARED) || ir_dtype_is_low(e->compute_dtype));
    return !same && (amp_list_inside(l, n) || amp_list_fp32_operands(l, n->loc.op));
}

bool *amp_low_params(const ir_graph *g, const amp_scope *s)
{
    const compile_options *o = s->compile->options;
    bool *low = arena_array(s->arena, g->value_ids + 1, sizeof *low);
    bool *fixed = arena_array(s->arena, g->value_ids + 1, sizeof *fixed);
    for (const ir_node *n = g->first; n && o->level == PASS_O2 && n->phase == IR_FORWARD; n = n->next)
        for (int i = 0; i < n->n_in; i++) {
            const ir_value *v = ir_in(n, i);
            if (!v || v->kind != IR_VALUE_STORAGE || v->storage->kind != IR_PARAM || v->type.dtype != IR_f32) continue;
            fixed[v->id] |= requires_f32(n, i, &s->entries[n->id], s->compile->list, o->low);
            low[v->id] = !fixed[v->id];
        }
    return low;
}

/* ---- subgraphs ------------------------------------------------------------------------------- */

bool amp_lowers_subgraphs(const amp_scope *s)
{
    const int subgraphs = s->compile->list->rule.subgraphs;
    if (s->off || subgraphs == SUBGRAPHS_NO) return false;
    return subgraphs != SUBGRAPHS_O2 || s->compile->options->level == PASS_O2;
}

bool amp_is_free_capture(const amp_scope *s, const ir_node *n, int i)
{
    return n->n_regions && i >= ir_declared_operands(n) && amp_lowers_subgraphs(s);
}

static void note_input(colour_state *c, size_t i)
{
    const ir_value *v = c->graph->inputs.items[i];
    c->type[v->id] = v->type.dtype;
    if (!c->scope->enclosing || !c->scope->counts[i]) return;
    c->counts[v->id] = ir_dtype_is_low(v->type.dtype) ? COUNT_LOW : COUNT_F32;
}

/* ---- the graph ------------------------------------------------------------------------------- */

void amp_colour(ir_graph *g, amp_scope *s)
{
    const amp_list *l = s->compile->list;
    const compile_options *o = s->compile->options;
    arena *a = s->arena;
    const bool evaluates = g->role == IR_GRAPH_eval;
    ir_graph_renumber(g);
    colour_state c = {.graph = g, .scope = s, .list = l, .options = o, .diag = s->compile->diag};
    c.consumer = s->compile->consumer;
    c.inside = arena_array(a, g->node_ids + 1, sizeof *c.inside);
    for (size_t i = 0; i < l->layers.count; i++) c.names_tensors |= l->layers.items[i].tensors.count > 0;
    c.entries = s->entries = arena_array(a, g->node_ids + 1, sizeof *c.entries);
    c.type = arena_array(a, g->value_ids + 1, sizeof *c.type);
    c.counts = arena_array(a, g->value_ids + 1, sizeof *c.counts);
    c.terminal = arena_array(a, g->node_ids + 1, sizeof *c.terminal);
    for (uint32_t i = 0; i < g->node_ids; i++) c.entries[i].colour = IR_KEEP;
    if (s->off) return;
    c.ranges = range_find(g, s);
    if (c.list->rule.attention == ATTENTION_WHOLE) c.attentions = attention_find(g, a);
    for (size_t i = 0; i < g->inputs.count; i++) note_input(&c, i);
    for (ir_node *n = g->first; n; n = n->next) {
        if (ir_op_has(n->op, IR_DECLARED)) operands_resolve(n, s);
        for (int i = 0; i < n->n_in; i++)
            if (ir_in(n, i) && ir_in(n, i)->kind == IR_VALUE_STORAGE) c.type[ir_in(n, i)->id] = ir_in(n, i)->type.dtype;
        colour_node(&c, n);
    }
    const bool *low_params = amp_low_params(g, s);
    for (uint32_t i = 0; i < g->value_ids; i++)
        if (low_params[i]) c.type[i] = o->low;
    if (evaluates) c.samples = samples_find(g, a);
    mark_terminal(&c);
    c.low_moves = amp_low_moves(g, s, c.inside);
    decide_in_order(&c);
}
