/* patterns.c - fuses operators that the model spells out as several smaller ones, before any node is coloured.
 *
 * The list rule `patterns` selects the patterns and the operator that each is treated as. Graphs are scanned from the
 * end, so the largest match is tried first. A match is used only if its intermediate values have no other uses and no
 * list names one of them. The new node has the name of the last matched node and all matched nodes in its location.
 *
 *   before  %m = reduce_mean %x {axes=[1]} : f32[N,1] !ReduceMean "ln/mean"
 *           %d = sub %x, %m                : f32[N,4] !Sub "ln/centre"
 *           %q = mul %d, %d                : f32[N,4] !Mul "ln/square"
 *           %v = reduce_mean %q {axes=[1]} : f32[N,1] !ReduceMean "ln/variance"
 *           %e = add %v, @eps              : f32[N,1] !Add "ln/guard"
 *           %s = sqrt %e                   : f32[N,1] !Sqrt "ln/root"
 *           %n = div %d, %s                : f32[N,4] !Div "ln/div"
 *           %y = mul %n, @w                : f32[N,4] !Mul "ln"
 *   after   %y = layer_norm %x, @w {axis=1} : f32[N,4] !LayerNormalization "ln" (ReduceMean "ln/mean", ..) */
#include "ir/graph/exported.h"
#include "passes/grammar.h"
#include "passes/amp/consumer.h"

#include <string.h>

/* ---- replacements of matches ----------------------------------------------------------------- */

typedef ir_value *make_node(const grammar_match *m, ir_builder *b);

static ir_value *make_norm(const grammar_match *m, ir_builder *b, bool center)
{
    ir_value *x = m->bound[X], *scale = m->bound[SCALE], *bias = m->bound[BIAS];
    const ir_dim *dims = x->type.dims + m->axis;
    int rank = x->type.rank - m->axis;
    if (scale) scale = ir_reshape(b, scale, dims, rank);
    else if (center) scale = ir_expand(b, ir_scalar_like(b, x, 1), dims, rank);
    if (bias) bias = ir_reshape(b, bias, dims, rank);
    ir_node *n = ir_new(b, IR_OP_layer_norm, 3, x, scale, bias);
    ir_set_int(n, IR_ATTR(layer_norm, axis), m->axis);
    ir_set_float(n, IR_ATTR(layer_norm, eps), m->eps);
    ir_set_bool(n, IR_ATTR(layer_norm, center), center);
    return ir_done(b, n);
}

static ir_value *make_layer_norm(const grammar_match *m, ir_builder *b) { return make_norm(m, b, true); }

static ir_value *make_rms_norm(const grammar_match *m, ir_builder *b) { return make_norm(m, b, false); }

static ir_value *make_gelu(const grammar_match *m, ir_builder *b)
{
    ir_node *n = ir_new(b, IR_OP_gelu, 1, m->bound[X]);
    ir_set_bool(n, IR_ATTR(gelu, tanh), m->used[TANH]);
    return ir_done(b, n);
}

static const struct pattern {
    const char *name; /* the NAME of `patterns = OPERATOR(NAME)` */
    grammar_symbol symbol;
    make_node *make;
} patterns[] = {
    {"layer_norm", LAYER_NORM, make_layer_norm},
    {"rms_norm", RMS_NORM, make_rms_norm},
    {"gelu", GELU, make_gelu},
};

enum { PATTERNS = sizeof patterns / sizeof *patterns };

/* ---- conditions of a replacement ------------------------------------------------------------- */

typedef struct search {
    const compile *compile;
    arena *arena;                    /* of the module */
    const char *operators[PATTERNS]; /* the operator each pattern is treated as; NULL: not recognised */
} search;

static bool is_part(const grammar_match *m, const ir_node *n)
{
    for (int i = 0; i < m->count; i++)
        if (m->nodes[i] == n) return true;
    return false;
}

static bool is_private(const search *s, const grammar_match *m, const ir_value *v)
{
    for (const ir_use *u = v->first_use; u; u = u->next)
        if (!is_part(m, u->user)) return false;
    return !amp_list_find_tensor(s->compile->list, v->name);
}

/* Whether the results of all matched nodes but the last are used only inside the match and are not named by a list. */
static bool is_closed(const search *s, const grammar_match *m, const ir_node *last)
{
    for (int i = 0; i < m->count; i++)
        if (m->nodes[i] != last && !is_private(s, m, m->nodes[i]->out[0])) return false;
    return true;
}

/* ---- the replacement ------------------------------------------------------------------------- */

/* Goes backwards, because a node can be removed only after its users. */
static void remove_parts(const grammar_match *m)
{
    for (int i = m->count; i-- > 0;) ir_node_remove(m->nodes[i]);
}

/* Replaces a match that ends at `last` and returns the new node; NULL if the pattern does not match there. */
static ir_node *replace(const search *s, int pattern, ir_node *last)
{
    grammar_match m;
    ir_value *old = last->out[0];
    if (!grammar_derive(patterns[pattern].symbol, old, s->compile, &m)) return NULL;
    if (!ir_type_equal(&old->type, &m.bound[X]->type) || !is_closed(s, &m, last)) return NULL;
    ir_builder b = ir_builder_before(last, s->compile->diag);
    const ir_origin *parts = pass_origins(m.nodes, m.count, s->arena);
    if (parts && b.loc.op) b.loc.op = s->operators[pattern];
    ir_value *value = patterns[pattern].make(&m, &b);
    if (!value) return NULL;
    value->def->loc.fused_from = b.loc.op ? parts : NULL;
    ir_value_replace(old, value);
    remove_parts(&m);
    value->name = old->name; /* the old value is gone */
    return value->def;
}

static void search_graph(const search *s, ir_graph *g)
{
    ir_graph_renumber(g);
    for (ir_node *n = g->last; n; n = n->prev)
        for (int i = 0; i < PATTERNS && n->phase == IR_FORWARD && n->n_out; i++) {
            ir_node *made = s->operators[i] ? replace(s, i, n) : NULL;
            if (made) n = made;
        }
}

/* ---- casts without effect -------------------------------------------------------------------- */

/* A Cast of the model to the type that its operand has anyway says nothing about precision to a consumer that computes
 * what follows in f32 inside, and separates the parts of patterns. */
static void remove_casts(const search *s, ir_graph *g)
{
    for (ir_node *next, *n = g->first; n; n = next) {
        next = n->next;
        if (!ir_op_has(n->op, IR_CONVERTS) || n->phase != IR_FORWARD) continue;
        ir_value *from = ir_in(n, 0), *to = n->out[0];
        if (!ir_type_equal(&from->type, &to->type) || amp_list_find_tensor(s->compile->list, to->name) ||
            amp_list_find_node(s->compile->list, &n->loc))
            continue;
        ir_value_replace(to, from);
        ir_node_remove(n);
    }
}

/* ---- the pass -------------------------------------------------------------------------------- */

/* The OPERATOR in "OPERATOR(NAME), ..", for a pattern of the table. */
static const char *find_operator(const char *text, const char *name, arena *a)
{
    const char *end = strstr(text, arena_printf(a, "(%s)", name)), *start = end;
    while (end && start > text && !strchr(" ,", start[-1])) start--;
    return end ? arena_strndup(a, start, (size_t)(end - start)) : NULL;
}

enum { OPSET_OF_MORE = 23 }; /* has the operators that descriptions of consumers have besides */

ampc_status pass_patterns(ir_module *m, compile *c)
{
    search s = {.compile = c, .arena = m->arena};
    if (c->options->spelled_out) return AMPC_OK;
    const int64_t opset = c->options->opset ? c->options->opset : c->consumer ? c->consumer->opset : 0;
    const bool newer = c->consumer && (!opset || opset >= OPSET_OF_MORE);
    const char *const rule = c->list->rule.patterns, *more = newer ? c->consumer->patterns : "";
    for (int i = 0; i < PATTERNS; i++) {
        s.operators[i] = find_operator(rule, patterns[i].name, m->arena);
        if (!s.operators[i] && strcmp(rule, "none") != 0)
            s.operators[i] = find_operator(more, patterns[i].name, m->arena);
    }
    if (c->consumer) ir_meta_set(m, IR_CONSUMER, c->consumer->name);
    for (ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g)) {
        if (c->consumer) remove_casts(&s, g);
        search_graph(&s, g);
    }
    if (c->consumer) pass_fold_weights(m, c);
    return diag_status(c->diag);
}
