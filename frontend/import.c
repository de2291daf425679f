/* import.c - imports the model as a whole: versions, inputs, nodes (lower/graph.c), outputs. */
#include "frontend/importer.h"
#include "frontend/opaque/opaque.h"

#include <string.h>
#include <unistd.h>

/* ---- the table ------------------------------------------------------------------------------- */

static const onnx_row row_table[] = {
#define FORM(op, since, min_in, max_in, max_out, handler, arg) \
    {#op, since, min_in, max_in, max_out, onnx_lower_##handler, arg, false, false, NULL, NULL},
#define COMPOSITE(op, since, min_in, max_in, max_out, handler, arg) \
    {#op, since, min_in, max_in, max_out, onnx_lower_##handler, arg, true, false, NULL, NULL},
#define SEQUENCES(op, since, min_in, max_in, max_out, handler, arg) \
    {#op, since, min_in, max_in, max_out, onnx_lower_##handler, arg, false, true, NULL, NULL},
#include "frontend/onnx.def"
#define OTHER(domain, op, letters, colour, handler, arg, limits) \
    {#op, 1, 0, 0, 0, onnx_lower_##handler, arg, true, false, domain, letters},
#include "frontend/lower/other_ops.def"
    {0},
};

static strmap *rows_by_operator(arena *a)
{
    strmap *rows = strmap_new(a);
    for (const onnx_row *r = row_table; r->op; r++)
        strmap_enter(rows, r->domain && *r->domain ? arena_printf(a, "%s:%s", r->domain, r->op) : r->op,
                     (void *)(uintptr_t)r);
    return rows;
}

/* The composite operators whose form in the model is still that of the opset that will be written. */
static const strmap *composites_kept(const onnx_importer *im)
{
    const int written = im->options->emit_opset;
    strmap *kept = strmap_new(im->scratch);
    if (!written || !im->trial) return NULL;
    for (const onnx_row *r = row_table; r->op; r++) {
        const opaque_change *c = opaque_changed(r->op, im->opset, written, NULL);
        while (c && c->attribute) c = opaque_changed(r->op, im->opset, written, c);
        if (r->composite && !r->domain && !c) strmap_put(kept, r->op, (void *)(uintptr_t)r);
    }
    return kept;
}

static const onnx_row opaque_row = {.op = "", .lower = onnx_lower_opaque};
static const onnx_row custom_row = {.op = "", .lower = onnx_lower_custom};
static const onnx_row function_row = {
    .op = "function", .max_in = ONNX_ANY, .max_out = ONNX_ANY, .lower = onnx_lower_function, .sequences = true};

void onnx_importer_rows(onnx_importer *im)
{
    im->rows = rows_by_operator(im->scratch);
    im->opaque = &opaque_row;
    im->custom = &custom_row;
    im->function = &function_row;
}

/* ---- the model ------------------------------------------------------------------------------- */

static ampc_status check_versions(onnx_importer *im, const Onnx__ModelProto *m)
{
    diag_loc loc = DIAG_FILE(im->path);
    if (!m->graph) return diag_error(im->diag, AMPC_REJECTED, loc, "the model has no graph");
    if (m->ir_version <= 0)
        return diag_error(im->diag, AMPC_REJECTED, loc, "invalid ir_version %lld", (long long)m->ir_version);
    if (m->ir_version > ONNX_IR_VERSION_LAST)
        TRY(diag_warning(im->diag, loc, "IR version %lld is newer than this importer (%d)", (long long)m->ir_version,
                         ONNX_IR_VERSION_LAST));
    int64_t opset = 0;
    for (size_t i = 0; i < m->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *import = m->opset_import[i];
        if (import->version <= 0)
            return diag_error(im->diag, AMPC_REJECTED, loc, "invalid opset version %lld", (long long)import->version);
        if (!onnx_is_default_domain(import->domain)) continue;
        if (opset && opset != import->version)
            return diag_error(im->diag, AMPC_REJECTED, loc,
                              "the default domain is imported twice, as opset %lld and %lld", (long long)opset,
                              (long long)import->version);
        opset = import->version;
    }
    if (!opset) return diag_error(im->diag, AMPC_REJECTED, loc, "no opset import of the default domain");
    if (opset < ONNX_OPSET_FIRST || opset > ONNX_OPSET_LAST)
        return diag_error(im->diag, AMPC_UNSUPPORTED, loc, "opset %lld is not supported (%d to %d)", (long long)opset,
                          ONNX_OPSET_FIRST, ONNX_OPSET_LAST);
    if (m->n_training_info) diag_remark(im->diag, loc, "the training information of the model is ignored");
    im->opset = im->model_opset = (int)opset;
    ir_training_set_opset(&im->module->training, im->module->arena, "", im->opset);
    return AMPC_OK;
}

static ampc_status emit_outputs(onnx_importer *im, const onnx_scope *scope)
{
    TRY(onnx_put_outputs(im, scope));
    im->builder.phase = IR_UPDATE;
    for (size_t i = 0; i < im->stores.count; i++)
        ir_store(&im->builder, im->stores.items[i].state, im->stores.items[i].value);
    return AMPC_OK;
}

static ampc_status import_model(onnx_importer *im)
{
    const Onnx__ModelProto *m = im->file->model;
    TRY(check_versions(im, m));
    TRY(onnx_functions_bind(im));
    im->composites = composites_kept(im);
    onnx_scope scope = {.graph = m->graph, .bindings = strmap_new_borrowing(im->scratch)};
    strmap_reserve(scope.bindings, m->graph->n_initializer + m->graph->n_node);
    size_t errors = diag_count(im->diag, DIAG_ERROR);
    TRY(onnx_check_graph(im, &scope));
    TRY(onnx_initializers_bind(im, &scope));
    im->declarations = onnx_declarations(m->graph, im->scratch);
    TRY(onnx_ties_find(im->file, !im->options->tied, im->declarations, im->diag, im->scratch, &im->ties));
    onnx_record_export(im);
    onnx_batch_find(im, &scope);
    TRY(onnx_bind_inputs(im, &scope));
    TRY(onnx_ties_bind(im, &scope));
    bool lowered = onnx_lower_graph(im, &scope);
    if (lowered) TRY(emit_outputs(im, &scope));
    else TRY(onnx_batch_check(im, false));
    if (diag_count(im->diag, DIAG_ERROR) != errors) return diag_status(im->diag);
    TRY(onnx_check_dims_used(im));
    if (!lowered) return diag_error(im->diag, AMPC_UNSUPPORTED, DIAG_FILE(im->path), "the graph cannot be lowered");
    onnx_remove_unread(im->graph); /* first, so that only values that are read become constants */
    ir_fold_commit(im->consts, im->graph, im->diag);
    onnx_remove_unread(im->graph);
    TRY(onnx_batch_check(im, true));
    onnx_record_facts(im);
    ir_module_remove_dead(im->module);
    return AMPC_OK;
}

static int64_t half_of_memory(void)
{
    int64_t pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE), bytes;
    return pages > 0 && checked_mul(pages, size, &bytes) ? bytes / 2 : INT64_MAX;
}

/* Sets up the importer with its two arenas and runs it. Runs under the guard of import_file. */
static ampc_status import_guarded(onnx_file *f, const onnx_import_options *o, diag *d, diag *trial, diag *inner,
                                  ir_module *m, arena *scratch)
{
    static const onnx_import_options defaults = {0};
    onnx_importer im = {.file = f,
                        .options = o ? o : &defaults,
                        .module = m,
                        .arena = m->arena,
                        .scratch = scratch,
                        .diag = d,
                        .trial = trial,
                        .inner = inner ? inner : d};
    im.path = arena_strdup(im.arena, f->path);
    if (f->refers) m->image = (ir_image){im.path, f->bytes.data, f->bytes.size, f->has_folder};
    im.max_bytes = im.options->max_tensor_bytes ? im.options->max_tensor_bytes : half_of_memory();
    im.graph = ir_graph_new(m, ir_graph_words[IR_GRAPH_forward]);
    im.graph->role = IR_GRAPH_forward;
    im.builder = ir_builder_at_end(im.graph, d);
    im.builder.nameless = true;
    im.consts = ir_const_map_new(scratch, im.graph);
    onnx_subgraph own = {.graph = im.graph, .consts = im.consts};
    im.subgraph = &own;
    onnx_importer_rows(&im);
    return import_model(&im);
}

/* Imports an open file and closes it. */
static ampc_status import_file(onnx_file *f, const onnx_import_options *o, diag *d, ir_module **out)
{
    ir_module *m = ir_module_new();
    arena *scratch = arena_new(0);
    bool opaque = o && o->opaque;
    diag *trial = opaque ? diag_new(NULL, NULL) : NULL, *inner = opaque ? diag_new(NULL, NULL) : NULL;
    ampc_status status = AMPC_NO_MEMORY;
    jmp_buf guard;
    if (!m || !scratch || (opaque && (!trial || !inner))) diag_error(d, status, DIAG_FILE(f->path), "out of memory");
    else if (setjmp(guard)) diag_error(d, status, DIAG_FILE(f->path), "out of memory");
    else {
        if (opaque) diag_share_words(trial, d);
        if (opaque) diag_share_words(inner, d);
        arena_set_guard(m->arena, &guard);
        arena_set_guard(scratch, &guard);
        status = import_guarded(f, o, d, trial, inner, m, scratch);
        arena_set_guard(m->arena, NULL);
    }
    onnx_file_close(f);
    arena_free(scratch);
    diag_free(trial);
    diag_free(inner);
    if (status == AMPC_OK) *out = m;
    else ir_module_free(m);
    return status;
}

ampc_status onnx_import(const char *path, const onnx_import_options *o, diag *d, ir_module **out)
{
    *out = NULL;
    onnx_file *f;
    TRY(onnx_file_open(path, d, &f));
    return import_file(f, o, d, out);
}

ampc_status onnx_import_memory(const void *data, size_t size, const char *name, const onnx_import_options *o, diag *d,
                               ir_module **out)
{
    *out = NULL;
    onnx_file *f;
    TRY(onnx_file_wrap(data, size, name, d, &f));
    f->refers = o && o->refers;
    f->has_folder = o && o->has_folder;
    return import_file(f, o, d, out);
}
