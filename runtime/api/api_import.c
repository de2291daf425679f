/* api_import.c - modules from ONNX files and from memory, and back to ONNX in mixed precision. */
#include "runtime/api/api.h"

#include "frontend/recipe.h"
#include "ir/base/limits.h"
#include "runtime/api/export.h"
#include "runtime/backend/memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- sources ---- */

static bool copy_dims(const ampc_import_options *o, api_source *source)
{
    source->dims = calloc(o->n_dims + 1, sizeof *source->dims);
    source->n_dims = source->dims ? o->n_dims : 0;
    for (size_t i = 0; i < source->n_dims; i++) {
        source->dims[i] = (ampc_dim){strdup(o->dims[i].name), o->dims[i].size};
        if (!source->dims[i].name) return false;
    }
    return source->dims != NULL;
}

static ampc_status copy_source(const ampc_import_options *o, diag *d, api_source *source)
{
    *source = (api_source){.path = o->path ? strdup(o->path) : NULL,
                           .bytes = o->bytes ? malloc(o->n_bytes + 1) : NULL,
                           .n_bytes = o->n_bytes,
                           .keep_unknown = o->keep_unknown != 0,
                           .batch = o->batch};
    const bool made = copy_dims(o, source) && !source->path == !o->path && !source->bytes == !o->bytes;
    if (made && source->bytes) memcpy(source->bytes, o->bytes, o->n_bytes);
    if (made) return AMPC_OK;
    api_source_clear(source);
    return rt_no_memory(d);
}

/* ---- importing ---- */

/* Imports the source; `how` says for what. Data of a model in memory stay in the source. */
static ampc_status import_source(ampc_context *c, const api_source *source, onnx_import_options how, ir_module **out)
{
    onnx_dim_binding *dims = calloc(source->n_dims + 1, sizeof *dims);
    if (!dims) return rt_no_memory(c->d);
    for (size_t i = 0; i < source->n_dims; i++)
        dims[i] = (onnx_dim_binding){source->dims[i].name, source->dims[i].size};
    how.dims = dims;
    how.n_dims = (int)source->n_dims;
    how.batch = source->batch;
    how.custom = &c->custom;
    how.refers = true;
    how.has_folder = source->path != NULL;
    const char *path = source->path ? source->path : "model in memory";
    const ampc_status status = source->bytes
                                   ? onnx_import_memory(source->bytes, source->n_bytes, path, &how, c->d, out)
                                   : (recipe_detect(path) ? recipe_import : onnx_import)(path, &how, c->d, out);
    free(dims);
    return status;
}

/* How a model is imported that will be written as ONNX. */
static onnx_import_options for_onnx(const ampc_compile_options *o)
{
    const ir_dtype low = o && o->dtype && strcmp(o->dtype, ir_dtype_name(IR_bf16)) == 0 ? IR_bf16 : IR_f16;
    return (onnx_import_options){
        .tied = true, .opaque = true, .emit_opset = onnx_opset_to_emit(low, o && o->consumer, o ? (int)o->opset : 0)};
}

static ampc_status import_checked(ampc_context *c, const ampc_import_options *o, ampc_module **module)
{
    api_source source;
    ir_module *ir;
    TRY(copy_source(o, c->d, &source));
    const onnx_import_options how = o->keep_unknown ? for_onnx(NULL) : (onnx_import_options){0};
    ampc_status status = import_source(c, &source, how, &ir);
    if (status == AMPC_OK) return api_module_new(c, ir, NULL, &source, module);
    api_source_clear(&source);
    return status;
}

ampc_status ampc_module_import_with(ampc_context *context, const ampc_import_options *options, ampc_module **module)
{
    ampc_import_options o;
    diag *d;
    TRY(api_enter(context, &d));
    NEED(options);
    TRY(api_options(options, &o, sizeof o, d));
    NEED(module);
    if (!o.path && !o.bytes)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "%s: neither a path nor the bytes of a model", __func__);
    if (o.n_bytes && !o.bytes) return api_null(d, __func__, "bytes");
    if (o.n_bytes == SIZE_MAX) return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "%s: too many bytes", __func__);
    TRY(api_dims(d, __func__, o.dims, o.n_dims));
    if (o.batch) TRY(api_number(d, "batch", (double)o.batch, LIMITS_BATCH));
    if (o.batch && !o.bytes && recipe_detect(o.path))
        return diag_error(d, AMPC_USAGE, DIAG_FILE(o.path),
                          "%s: batch is of a model; in a recipe, the types of inputs decide", __func__);
    return import_checked(context, &o, module);
}

ampc_status ampc_module_import(ampc_context *context, const char *path, const ampc_dim *dims, size_t n_dims,
                               ampc_module **module)
{
    const ampc_import_options o = {.struct_size = sizeof o, .path = path, .dims = dims, .n_dims = n_dims};
    diag *d;
    TRY(api_enter(context, &d));
    NEED(path);
    return ampc_module_import_with(context, &o, module);
}

/* ---- converting ---- */

ampc_status api_compile_again(const ampc_module *m, const ampc_compile_options *o, api_compilation *c, diag *d)
{
    if (!m->source.path && !m->source.bytes)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "only an imported model can be compiled again");
    const onnx_import_options how = c->for_onnx ? for_onnx(o) : (onnx_import_options){0};
    TRY(import_source(m->context, &m->source, how, &c->ir));
    ampc_status status = api_compile(c, o, d);
    if (status != AMPC_OK) ir_module_free(c->ir);
    return status;
}

/* Compiles the module's model for ONNX; `finish` writes it to what `user` describes. */
static ampc_status convert(ampc_module *m, const ampc_compile_options *options,
                           ampc_status (*finish)(const api_compilation *c, compile *compiled), void *user, diag *d)
{
    ampc_compile_options o;
    api_compilation c = {.for_onnx = true, .finish = finish, .user = user};
    TRY(api_compile_options(options, d, &o));
    TRY(api_compile_again(m, &o, &c, d));
    ir_module_free(c.ir);
    api_summarize(m, &c);
    return AMPC_OK;
}

static ampc_status write_file(const api_compilation *c, compile *compiled)
{
    const onnx_emit_options o = rt_emit_options(compiled);
    return rt_emit_onnx(c->ir, ir_graph_words[IR_GRAPH_infer], c->user, &o, compiled->diag);
}

ampc_status ampc_module_convert(ampc_module *module, const ampc_compile_options *options, const char *path)
{
    diag *d;
    TRY(api_enter_module(module, &d));
    NEED(path);
    return convert(module, options, write_file, (void *)(uintptr_t)path, d);
}

typedef struct written {
    void *bytes;
    size_t n;
} written;

static ampc_status write_memory(const api_compilation *c, compile *compiled)
{
    written *to = c->user;
    const onnx_emit_options o = rt_emit_options(compiled);
    return rt_emit_onnx_memory(c->ir, ir_graph_words[IR_GRAPH_infer], &o, compiled->diag, &to->bytes, &to->n);
}

ampc_status ampc_module_convert_memory(ampc_module *module, const ampc_compile_options *options, void **bytes,
                                       size_t *n_bytes)
{
    written to = {NULL, 0};
    diag *d;
    TRY(api_enter_module(module, &d));
    NEED(bytes);
    NEED(n_bytes);
    const ampc_status status = convert(module, options, write_memory, &to, d);
    if (status != AMPC_OK) {
        free(to.bytes);
        return status;
    }
    *bytes = to.bytes;
    *n_bytes = to.n;
    return AMPC_OK;
}

void ampc_free(void *memory) { free(memory); }
