/* emit_graph.c - emits a graph or subgraph: chooses the names that nodes and outputs keep, applies the rules of
 * onnx.def to the nodes, and writes the GraphProto. */
#include "frontend/emit/emit.h"
#include "frontend/read/fields.h"

#include <string.h>

/* ---- names ----------------------------------------------------------------------------------- */

/* If a model node became several IR nodes, the first one that is still the same operator keeps its name; if there is
 * none, the last one does. */
static void choose_main_nodes(emitter *e, emit_scope *s)
{
    strmap *chosen = strmap_new(e->arena);
    for (const ir_node *n = s->graph->first; n; n = n->next) {
        if (!n->loc.op || n->phase != IR_FORWARD) continue;
        const char *key = arena_printf(e->arena, "%s\x1f%s", n->loc.op, n->loc.node);
        const ir_node *previous = strmap_get(chosen, key);
        const char *type = previous ? e->rows[previous->op].onnx->name : NULL;
        if (type && strcmp(type, n->loc.op) == 0) continue;
        if (previous) s->has_own_name[previous->id] = false;
        s->has_own_name[n->id] = true;
        strmap_put(chosen, key, (void *)(uintptr_t)n);
    }
}

/* What a training step stores in X is the output X.new. */
static void claim_stores(emitter *e, emit_scope *s)
{
    for (const ir_node *n = s->graph->first; n; n = n->next) {
        if (!ir_op_has(n->op, IR_STORES)) continue;
        const ir_value *v = ir_in(n, IR_IN(store, value));
        s->output[n->id] = emit_name(e, arena_printf(e->arena, "%s.new", ir_in(n, IR_IN(store, state))->name));
        if (v->kind == IR_VALUE_RESULT && !s->output_of[v->id]) s->output_of[v->id] = s->output[n->id];
    }
}

/* Names a result that is an output after that output; after the first one, if it is several outputs. */
static void claim_output_names(emitter *e, emit_scope *s)
{
    for (const ir_node *n = ir_first_output(s->graph); n; n = ir_next_output(n)) {
        const char *name = ir_output_name(n);
        const ir_value *v = ir_in(n, 0);
        s->output[n->id] = s->outer ? emit_name(e, name) : name; /* main graph: keep even an input's name */
        strmap_put(e->names, name, e);
        if (v->kind == IR_VALUE_RESULT && !s->output_of[v->id]) s->output_of[v->id] = s->output[n->id];
    }
    if (e->own) claim_stores(e, s);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static emit_scope *new_scope(emitter *e, const ir_graph *g)
{
    emit_scope *s = arena_alloc(e->arena, sizeof *s);
    *s = (emit_scope){.outer = e->scope, .graph = g, .made = strmap_new(e->arena)};
    s->has_own_name = arena_array(e->arena, g->node_ids + 1, sizeof *s->has_own_name);
    s->output = arena_array(e->arena, g->node_ids + 1, sizeof *s->output);
    s->output_of = arena_array(e->arena, g->value_ids + 1, sizeof *s->output_of);
    s->value = arena_array(e->arena, g->value_ids + 1, sizeof *s->value);
    return s;
}

static void apply_rule(emitter *e, const ir_node *n)
{
    const ir_node *outer = e->node;
    e->node = n;
    if (emit_is_own(e, n)) {
        e->own_rule(e, n);
    } else {
        emit_check_schema(e, n);
        e->rows[n->op].rule(e, n);
    }
    e->node = outer;
}

emit_scope *emit_enter(emitter *e, const ir_graph *g, const char *const *inputs)
{
    emit_scope *s = e->scope = new_scope(e, g);
    for (size_t i = 0; i < g->inputs.count; i++) {
        const ir_value *v = g->inputs.items[i];
        s->value[v->id] = inputs && inputs[i] ? inputs[i] : emit_name(e, v->name);
    }
    choose_main_nodes(e, s);
    claim_output_names(e, s);
    emit_reserve_opaque(e, g);
    for (const ir_node *n = g->first; n; n = n->next) apply_rule(e, n);
    return s;
}

void emit_leave(emitter *e) { e->scope = e->scope->outer; }

void emit_output(emitter *e, const ir_node *n) { emit_output_of(e, n, ir_in(n, 0)); }

void emit_output_of(emitter *e, const ir_node *n, const ir_value *v)
{
    const char *name = e->scope->output[n->id], *value = emit_value(e, v);
    if (strcmp(name, value) == 0) return;
    emit_op op = emit_begin(e, n, "Identity");
    emit_in(&op, value);
    emit_out(&op, name);
    emit_end(&op);
}

void emit_store(emitter *e, const ir_node *n)
{
    if (!e->own) {
        emit_none(e, n);
        return;
    }
    emit_value(e, ir_in(n, IR_IN(store, state)));
    emit_output_of(e, n, ir_in(n, IR_IN(store, value)));
}

/* ---- the GraphProto -------------------------------------------------------------------------- */

/* What the text of the IR says of a storage: "state slot velocity of w". */
static const char *describe(emitter *e, const ir_storage *s)
{
    if (s->kind == IR_PARAM) return s->frozen ? "frozen parameter" : "parameter";
    if (!s->role) return "state";
    const char *role = ir_state_words[s->role];
    if (s->slot) role = arena_printf(e->arena, "%s %s", role, s->slot);
    return arena_printf(e->arena, s->of ? "state %s of %s" : "state %s", role, s->of ? s->of->name : "");
}

static void put_parameters(emitter *e, rope *graph)
{
    for (size_t i = 0; i < e->module->storage.count; i++) {
        const ir_storage *storage = e->module->storage.items[i];
        const char *name = e->storage[i].name;
        if (name && storage->kind != IR_CONST)
            emit_put_value_info(e, graph, GRAPH_INPUT, name, &storage->type, describe(e, storage));
    }
}

static void put_new_values(emitter *e, rope *graph, const emit_scope *s)
{
    for (const ir_node *n = s->graph->first; n; n = n->next) {
        if (!ir_op_has(n->op, IR_STORES)) continue;
        const ir_storage *storage = ir_in(n, IR_IN(store, state))->storage;
        emit_put_value_info(e, graph, GRAPH_OUTPUT, s->output[n->id], &storage->type,
                            arena_printf(e->arena, "new value of %s", e->storage[storage->id].name));
    }
}

rope emit_graph(emitter *e, const emit_scope *s, const char *const *inputs)
{
    rope graph = {0};
    arena *a = e->arena;
    rope_add_pieces(a, &graph, &s->nodes);
    rope_add_text(a, &graph, GRAPH_NAME, s->graph->name);
    for (size_t i = 0; i < s->graph->inputs.count; i++) {
        const ir_value *v = s->graph->inputs.items[i];
        const char *role = e->own && v->role ? ir_input_words[v->role] : NULL;
        if (!inputs || !inputs[i]) emit_put_value_info(e, &graph, GRAPH_INPUT, s->value[v->id], &v->type, role);
    }
    if (e->own && !s->outer) put_parameters(e, &graph);
    for (const ir_node *n = ir_first_output(s->graph); n; n = ir_next_output(n)) {
        const char *role = e->own && n->role ? ir_output_words[n->role] : NULL;
        emit_put_value_info(e, &graph, GRAPH_OUTPUT, s->output[n->id], &ir_in(n, 0)->type, role);
    }
    if (e->own) put_new_values(e, &graph, s);
    rope_add_pieces(a, &graph, &s->infos);
    return graph;
}
