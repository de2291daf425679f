/* emit.c - a graph of the IR -> an ONNX model.
 *
 *     opset, names of outputs and nodes
 *       -> rounds over the nodes, until nothing new is learnt (emit.h)
 *       -> graph, model (splice.h) -> data part, model part
 *
 * Inputs, outputs, initializers and nodes keep the names that they came with; what the IR made on
 * the way is named after them. Opset: the model's own, at least 17, at least 22 when something is
 * bfloat16, and more where a form needs it. Weights are never in memory: the model is a list of
 * pieces, and pieces of the source file are converted while they are copied. */
#include "frontend/emit/emit.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ------------------------------------------------------------------------------- */

const emit_row emit_rows[IR_OP_COUNT] = {
#define EMIT(op, rule, type, bf16) [IR_OP_##op] = {emit_##rule, #type, bf16},
#include "frontend/emit/emit.def"
};

/* An op of the IR that has no line in emit.def does not compile here. */
enum {
#define EMIT(op, rule, type, bf16) EMIT_LINE_OF_##op,
#include "frontend/emit/emit.def"
};
enum {
#define OP(name, amp, traits, infer, grad, kernel) EMIT_CHECK_##name = EMIT_LINE_OF_##name,
#include "ir/ops.def"
};

/* Numbers of the fields that are written. */
enum {
    MODEL_IR_VERSION = 1,
    MODEL_PRODUCER_NAME = 2,
    MODEL_PRODUCER_VERSION = 3,
    MODEL_GRAPH = 7,
    MODEL_OPSET_IMPORT = 8,
    OPSET_DOMAIN = 1,
    OPSET_VERSION = 2,
    GRAPH_NAME = 2,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12
};

enum { OPSET_LEAST = 17, OPSET_BF16 = 22 };

/* ---- errors ---------------------------------------------------------------------------------- */

void emit_refuse(emitter *e, const ir_node *n, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    diag_verror(e->diag, AMPC_UNSUPPORTED, ir_diag_loc(n), format, args);
    va_end(args);
}

void emit_none(emitter *e, const ir_node *n)
{
    emit_refuse(e, n, "'%s' is a part of training: an ONNX model cannot hold it", ir_op_get(n->op)->name);
}

void emit_need(emitter *e, int opset)
{
    if (opset <= e->opset) return;
    e->opset = opset;
    e->learnt = true;
}

/* ---- once, before the rounds ----------------------------------------------------------------- */

static bool touches(const ir_node *n, ir_dtype t)
{
    for (int i = 0; i < n->n_in; i++)
        if (ir_in(n, i) && ir_in(n, i)->type.dtype == t) return true;
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i]->type.dtype == t) return true;
    return false;
}

static int first_opset(const emitter *e)
{
    const char *own = ir_meta_get(e->module, "opset");
    int opset = own ? atoi(own) : OPSET_LEAST;
    ir_graph_list graphs = {0};
    if (opset < OPSET_LEAST) opset = OPSET_LEAST;
    ir_graph_family(e->graph, e->arena, &graphs);
    for (size_t i = 0; i < graphs.count; i++)
        for (const ir_node *n = graphs.items[i]->first; n && opset < OPSET_BF16; n = n->next)
            if (touches(n, IR_bf16)) opset = OPSET_BF16;
    return opset;
}

/* Of the nodes that one model node became, the first that still is that operator keeps its name,
 * or else the last. */
static void choose_main_nodes(emitter *e, emit_scope *s)
{
    strmap *chosen = strmap_new(e->arena);
    for (const ir_node *n = s->graph->first; n; n = n->next) {
        if (!n->loc.op) continue;
        const char *key = arena_printf(e->arena, "%s\x1f%s", n->loc.op, n->loc.node);
        const ir_node *before = strmap_get(chosen, key);
        if (before && strcmp(emit_rows[before->op].type, n->loc.op) == 0) continue;
        if (before) s->keeps_name[before->id] = false;
        s->keeps_name[n->id] = true;
        strmap_put(chosen, key, (void *)(uintptr_t)n);
    }
}

/* A result that is an output has the output's name; the first one, if it is several. */
static void claim_output_names(emitter *e, emit_scope *s)
{
    for (const ir_node *n = s->graph->first; n; n = n->next) {
        if (n->op != IR_OP_output) continue;
        const char *own = n->attr[IR_ATTR(output, name)].s;
        const ir_value *v = ir_in(n, 0);
        s->output[n->id] = s->outer ? emit_name(e, own) : own; /* of the model: as it is, even that of an input */
        strmap_put(e->names, own, e);
        if (v->kind == IR_VALUE_RESULT && !s->output_of[v->id]) s->output_of[v->id] = s->output[n->id];
    }
}

/* ---- one graph ------------------------------------------------------------------------------- */

const char *emit_made(const emitter *e, const char *key)
{
    const char *name = NULL;
    for (const emit_scope *s = e->scope; s && !name; s = s->outer) name = strmap_get(s->made, key);
    return name;
}

void emit_make(emitter *e, const char *key, const char *name)
{
    strmap_put(e->scope->made, key, (void *)(uintptr_t)name);
}

static emit_scope *new_scope(emitter *e, const ir_graph *g)
{
    emit_scope *s = arena_alloc(e->arena, sizeof *s);
    *s = (emit_scope){.outer = e->scope, .graph = g, .made = strmap_new(e->arena)};
    s->keeps_name = arena_array(e->arena, g->node_ids + 1, sizeof *s->keeps_name);
    s->output = arena_array(e->arena, g->node_ids + 1, sizeof *s->output);
    s->output_of = arena_array(e->arena, g->value_ids + 1, sizeof *s->output_of);
    s->value = arena_array(e->arena, g->value_ids + 1, sizeof *s->value);
    return s;
}

static void check_schema(emitter *e, const ir_node *n);

emit_scope *emit_enter(emitter *e, const ir_graph *g, const char *const *inputs)
{
    emit_scope *s = e->scope = new_scope(e, g);
    for (size_t i = 0; i < g->inputs.count; i++) {
        const ir_value *v = g->inputs.items[i];
        s->value[v->id] = inputs && inputs[i] ? inputs[i] : emit_name(e, v->name);
    }
    choose_main_nodes(e, s);
    claim_output_names(e, s);
    for (const ir_node *n = g->first; n; n = n->next)
        if (n->op == IR_OP_foreign) emit_reserve_foreign(e, n);
    for (const ir_node *n = g->first; n; n = n->next) {
        check_schema(e, n);
        emit_rows[n->op].rule(e, n);
    }
    return s;
}

void emit_leave(emitter *e)
{
    e->scope = e->scope->outer;
}

/* ---- one round ------------------------------------------------------------------------------- */

static void begin_round(emitter *e)
{
    e->learnt = false;
    e->names = strmap_new(e->arena);
    e->node_names = strmap_new(e->arena);
    e->made_count = 0;
    e->tensors.count = 0;
    for (size_t i = 0; i < e->module->storage.count; i++) e->storage[i].name = NULL;
}

/* What the schema of the operator allows. */
static void check_schema(emitter *e, const ir_node *n)
{
    const emit_row *row = &emit_rows[n->op];
    if (row->bf16_since <= e->opset || !touches(n, IR_bf16)) return;
    if (row->bf16_since <= ONNX_OPSET_LAST)
        emit_need(e, row->bf16_since);
    else
        emit_refuse(e, n, "no opset up to %d has %s for bfloat16", ONNX_OPSET_LAST, row->type);
}

/* The scope stays open: it is the model's graph. */
static void emit_round(emitter *e)
{
    begin_round(e);
    e->scope = NULL;
    emit_enter(e, e->graph, NULL);
}

void emit_simple(emitter *e, const ir_node *n)
{
    emit_op op = emit_begin(e, n, emit_rows[n->op].type);
    emit_operands(&op);
    emit_results(&op);
    emit_end(&op);
}

void emit_output(emitter *e, const ir_node *n)
{
    const char *name = e->scope->output[n->id], *value = emit_value(e, ir_in(n, 0));
    if (strcmp(name, value) == 0) return;
    emit_op op = emit_begin(e, n, "Identity");
    emit_in(&op, value);
    emit_out(&op, name);
    emit_end(&op);
}

/* ---- the model ------------------------------------------------------------------------------- */

splice emit_graph(emitter *e, const emit_scope *s, const char *const *inputs)
{
    splice graph = {0};
    arena *a = e->arena;
    splice_add_pieces(a, &graph, &s->nodes);
    splice_add_text(a, &graph, GRAPH_NAME, s->graph->name);
    for (size_t i = 0; i < s->graph->inputs.count; i++) {
        const ir_value *v = s->graph->inputs.items[i];
        if (!inputs || !inputs[i]) emit_put_value_info(e, &graph, GRAPH_INPUT, s->value[v->id], &v->type);
    }
    for (const ir_node *n = s->graph->first; n; n = n->next)
        if (n->op == IR_OP_output)
            emit_put_value_info(e, &graph, GRAPH_OUTPUT, s->output[n->id], &ir_in(n, 0)->type);
    splice_add_pieces(a, &graph, &s->infos);
    return graph;
}

static void put_graph(emitter *e, splice *out, bool external)
{
    splice graph = emit_graph(e, e->scope, NULL);
    emit_put_tensors(e, &graph, external);
    splice_add_message(e->arena, out, MODEL_GRAPH, &graph);
}

/* The version of the file format that came with an opset. */
static int ir_version_of(int opset)
{
    static const struct {
        int opset, version;
    } table[] = {{18, 8}, {20, 9}, {22, 10}, {23, 11}, {24, 12}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (opset <= table[i].opset) return table[i].version;
    return ONNX_IR_VERSION_LAST;
}

static void put_opset(emitter *e, splice *out, const char *domain, int version)
{
    splice import = {0};
    splice_add_text(e->arena, &import, OPSET_DOMAIN, domain);
    splice_add_int(e->arena, &import, OPSET_VERSION, (uint64_t)version);
    splice_add_message(e->arena, out, MODEL_OPSET_IMPORT, &import);
}

static splice put_model(emitter *e, bool external)
{
    splice model = {0};
    splice_add_int(e->arena, &model, MODEL_IR_VERSION, (uint64_t)ir_version_of(e->opset));
    splice_add_text(e->arena, &model, MODEL_PRODUCER_NAME, "ampc");
    splice_add_text(e->arena, &model, MODEL_PRODUCER_VERSION, AMPC_VERSION);
    put_graph(e, &model, external);
    put_opset(e, &model, "", e->opset);
    for (size_t i = 0; i < e->module->meta.count; i++) { /* other domains, of foreign nodes */
        const ir_meta *meta = &e->module->meta.items[i];
        if (strncmp(meta->key, "opset.", 6) == 0) put_opset(e, &model, meta->key + 6, atoi(meta->value));
    }
    return model;
}

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct sink {
    const onnx_emit_options *o;
    onnx_part part;
} sink;

static ampc_status sink_write(void *user, const void *bytes, size_t n)
{
    const sink *s = user;
    return s->o->write(s->o->user, s->part, bytes, n);
}

static ampc_status write_model(emitter *e)
{
    size_t most = e->options->max_model_bytes ? e->options->max_model_bytes : ONNX_FILE_MAX;
    diag_loc loc = DIAG_FILE(ir_module_source(e->module));
    sink data = {e->options, ONNX_PART_DATA}, model = {e->options, ONNX_PART_MODEL};
    splice bytes = put_model(e, false);
    bool external = bytes.size > most;
    if (external) bytes = put_model(e, true);
    if (bytes.size > ONNX_FILE_MAX)
        return diag_error(e->diag, AMPC_UNSUPPORTED, loc, "the graph alone is larger than 2 GiB");
    ampc_status status = external ? emit_write_data(e, sink_write, &data) : AMPC_OK;
    if (status == AMPC_OK) status = splice_write(&bytes, sink_write, &model);
    if (status == AMPC_OK) return emit_report_overflow(e);
    if (diag_status(e->diag) == AMPC_OK)
        return diag_error(e->diag, status, loc, "cannot copy the weights: the file changed");
    return status;
}

static ampc_status emit_guarded(emitter *e)
{
    size_t errors = diag_count(e->diag, DIAG_ERROR);
    e->storage = arena_array(e->arena, e->module->storage.count + 1, sizeof *e->storage);
    e->opset = first_opset(e);
    do {
        emit_round(e);
        if (diag_count(e->diag, DIAG_ERROR) != errors) return diag_status(e->diag);
    } while (e->learnt);
    TRY(emit_open_sources(e));
    return write_model(e);
}

ampc_status onnx_emit(const ir_module *m, const char *graph, const onnx_emit_options *o, diag *d)
{
    emitter e = {.module = m, .graph = ir_graph_find(m, graph), .options = o, .diag = d};
    const char *source = ir_module_source(m);
    if (!e.graph) return diag_error(d, AMPC_USAGE, DIAG_FILE(source), "the module has no graph @%s", graph);
    jmp_buf guard;
    ampc_status status;
    jmp_buf *before = arena_set_guard(m->arena, NULL);
    arena *a = arena_new(0);
    if (!a || setjmp(guard)) {
        status = diag_error(d, AMPC_NO_MEMORY, DIAG_FILE(source), "out of memory");
    } else {
        arena_set_guard(a, &guard);
        arena_set_guard(m->arena, &guard); /* new dimensions go there */
        e.arena = a;
        status = emit_guarded(&e);
    }
    arena_set_guard(m->arena, before);
    emit_close_files(&e);
    arena_free(a);
    return status;
}
