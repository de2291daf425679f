/* emit.c - a graph of the IR -> an ONNX model.
 *
 *     opset, names of outputs and nodes
 *       -> rounds over the nodes, until a fixed point is reached (emit.h)
 *       -> graph, model (rope.h) -> data part, model part
 *
 * Inputs, outputs, initializers and nodes keep their original names; nodes that the compiler created get names
 * derived from these. Weights are never loaded as a whole: the model is a list of pieces, and ranges of the source
 * file are converted while they are copied. */
#include "frontend/emit/emit.h"
#include "frontend/read/fields.h"
#include "ir/graph/exported.h"

#include <stdlib.h>
#include <string.h>

/* ---- the table ------------------------------------------------------------------------------- */

/* Operators of onnx.def, used below: one missing there is a compile error. */
enum {
#define OPERATOR(name, since, bf16, types, colour, operands) OPERATOR_##name,
#define OPAQUE(name, since, bf16, types, colour) OPERATOR_##name,
#include "frontend/onnx.def"
    OPERATOR_NONE
};

static const emit_row rows[IR_OP_COUNT] = {
#define EMIT(onnx, op, rule) [IR_OP_##op] = {emit_##rule, &onnx_operators[OPERATOR_##onnx]},
#define EMIT_NONE(op, rule) [IR_OP_##op] = {emit_##rule, &onnx_operators[OPERATOR_NONE]},
#include "frontend/onnx.def"
};

/* Everything that is emitted can be imported again: an operator of EMIT that has no form is a compile error, and so is
 * an IR op without EMIT. */
#define FORM(op, since, min_in, max_in, max_out, handler, arg) typedef char imported_##op;
#include "frontend/onnx.def"
#define EMIT(onnx, op, rule) _Static_assert(sizeof(imported_##onnx) > 0, "");
#include "frontend/onnx.def"
enum {
#define EMIT(onnx, op, rule) EMIT_LINE_OF_##op,
#define EMIT_NONE(op, rule) EMIT_LINE_OF_##op,
#include "frontend/onnx.def"
};
enum {
#define OP(name, amp, traits, infer, fold, grad, kernel) EMIT_CHECK_##name = EMIT_LINE_OF_##name,
#include "ir/ops/ops.def"
};

/* ---- one round ------------------------------------------------------------------------------- */

/* Leaves the scope of the main graph open, because put_model needs it. */
static void emit_round(emitter *e)
{
    e->changed = false;
    e->names = strmap_new(e->arena);
    e->node_names = strmap_new(e->arena);
    e->made_count = e->casts = 0;
    e->tensors.count = 0;
    for (size_t i = 0; i < e->module->storage.count; i++) e->storage[i].name = NULL;
    e->scope = NULL;
    emit_enter(e, e->graph, NULL);
}

/* ---- the model ------------------------------------------------------------------------------- */

static void put_opset(emitter *e, rope *out, const char *domain, int version)
{
    rope import = {0};
    rope_add_text(e->arena, &import, OPSET_DOMAIN, domain);
    rope_add_int(e->arena, &import, OPSET_VERSION, (uint64_t)version);
    rope_add_message(e->arena, out, MODEL_OPSET_IMPORT, &import);
}

/* What the imported file says to other programs, such as the names of classes. */
static void put_metadata(emitter *e, rope *out)
{
    const char *codes = e->module->training.codes;
    if (codes) rope_add_entry(e->arena, out, MODEL_METADATA_PROPS, ONNX_CODES, codes);
    for (size_t i = 0; i < e->module->meta.count; i++) {
        const ir_meta *meta = &e->module->meta.items[i];
        const size_t prefix = strlen(IR_METADATA);
        if (strncmp(meta->key, IR_METADATA, prefix) == 0)
            rope_add_entry(e->arena, out, MODEL_METADATA_PROPS, meta->key + prefix, meta->value);
    }
}

static rope put_model(emitter *e, bool external)
{
    rope model = {0}, graph = emit_graph(e, e->scope, NULL);
    emit_put_tensors(e, &graph, external);
    rope_add_int(e->arena, &model, MODEL_IR_VERSION, (uint64_t)emit_ir_version(e));
    rope_add_text(e->arena, &model, MODEL_PRODUCER_NAME, "ampc");
    rope_add_text(e->arena, &model, MODEL_PRODUCER_VERSION, AMPC_VERSION);
    rope_add_message(e->arena, &model, MODEL_GRAPH, &graph);
    put_opset(e, &model, "", e->opset);
    if (e->own) put_opset(e, &model, EMIT_OWN_DOMAIN, EMIT_OWN_VERSION);
    for (size_t i = 0; i < e->module->training.opsets.count; i++) { /* other domains, used by opaque nodes */
        const ir_opset *o = &e->module->training.opsets.items[i];
        if (*o->domain) put_opset(e, &model, o->domain, (int)o->version);
    }
    put_metadata(e, &model);
    return model;
}

/* ---- writing --------------------------------------------------------------------------------- */

static ampc_status write_model(emitter *e)
{
    const onnx_emit_options *o = e->options;
    size_t max = o->max_model_bytes ? o->max_model_bytes : ONNX_FILE_MAX;
    diag_loc loc = DIAG_FILE(ir_module_source(e->module));
    rope bytes = put_model(e, false);
    bool external = bytes.size > max;
    if (external) bytes = put_model(e, true);
    if (bytes.size > ONNX_FILE_MAX)
        return diag_error(e->diag, AMPC_UNSUPPORTED, loc, "the graph alone is larger than 2 GiB");
    ampc_status status = external ? emit_write_data(e) : AMPC_OK;
    if (status == AMPC_OK) status = rope_write(&bytes, ONNX_PART_MODEL, o->write, o->user);
    if (status == AMPC_OK && o->casts) *o->casts = e->casts;
    if (status == AMPC_OK) return emit_report_overflow(e);
    if (diag_status(e->diag) == AMPC_OK)
        return diag_error(e->diag, status, loc, "cannot copy the weights: the file changed");
    return status;
}

static ampc_status emit_guarded(emitter *e)
{
    size_t errors = diag_count(e->diag, DIAG_ERROR);
    e->storage = arena_array(e->arena, e->module->storage.count + 1, sizeof *e->storage);
    e->opset = emit_first_opset(e);
    if (e->graph->role == IR_GRAPH_train_step) e->own = strmap_new(e->arena);
    do {
        emit_round(e);
        if (diag_count(e->diag, DIAG_ERROR) != errors) return diag_status(e->diag);
    } while (e->changed);
    TRY(emit_open_sources(e));
    return write_model(e);
}

ampc_status onnx_emit(const ir_module *m, const char *graph, const onnx_emit_options *o, diag *d)
{
    emitter e = {
        .rows = rows, .own_rule = emit_own, .module = m, .graph = ir_graph_by_key(m, graph), .options = o, .diag = d};
    const char *source = ir_module_source(m);
    if (!e.graph) return diag_error(d, AMPC_USAGE, DIAG_FILE(source), "the module has no graph @%s", graph);
    jmp_buf guard;
    ampc_status status;
    jmp_buf *before = arena_set_guard(m->arena, &guard); /* new dimensions are allocated there */
    arena *volatile a = NULL;
    if (setjmp(guard)) {
        status = diag_error(d, AMPC_NO_MEMORY, DIAG_FILE(source), "out of memory");
    } else {
        e.arena = a = arena_new_guarded(m->arena);
        status = emit_guarded(&e);
    }
    arena_set_guard(m->arena, before);
    emit_close_files(&e);
    arena_free(a);
    return status;
}
