/* describe.c - describes a decoded model without lowering it. */
#include "frontend/describe.h"

#include "frontend/importer.h"

#include <string.h>

enum { SHOWN = 8 }; /* refused nodes of an operator */

typedef struct describer {
    onnx_importer im; /* what finding rows and recording the export need */
    onnx_import_options options;
    const strmap *refused;
    strmap *rows; /* name of an operator -> index + 1 */
    arena *arena; /* of the description */
    onnx_description *out;
} describer;

/* ---- types ------------------------------------------------------------------------------------- */

static const char *shape_text(describer *s, const Onnx__TensorShapeProto *shape)
{
    const char *text = "";
    if (!shape) return "..";
    for (size_t i = 0; i < shape->n_dim; i++) {
        const Onnx__TensorShapeProto__Dimension *d = shape->dim[i];
        const char *comma = i ? "," : "";
        if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && d->dim_value >= 0)
            text = arena_printf(s->arena, "%s%s%lld", text, comma, (long long)d->dim_value);
        else if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM && *d->dim_param)
            text = arena_printf(s->arena, "%s%s%s", text, comma, d->dim_param);
        else text = arena_printf(s->arena, "%s%s?", text, comma);
    }
    return text;
}

static const char *type_text(describer *s, const Onnx__TypeProto *t)
{
    const int kind = t ? (int)t->value_case : ONNX__TYPE_PROTO__VALUE__NOT_SET;
    if (kind == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE) {
        const ir_dtype dtype = onnx_type_dtype(t->tensor_type->elem_type);
        return arena_printf(s->arena, "%s[%s]",
                            dtype == IR_NO_DTYPE ? onnx_type_name(t->tensor_type->elem_type) : ir_dtype_name(dtype),
                            shape_text(s, t->tensor_type->shape));
    }
    if (kind == ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE)
        return arena_printf(s->arena, "sequence(%s)", type_text(s, t->sequence_type->elem_type));
    if (kind == ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE)
        return arena_printf(s->arena, "optional(%s)", type_text(s, t->optional_type->elem_type));
    return "unknown";
}

static onnx_described_value value_of(describer *s, const Onnx__ValueInfoProto *v)
{
    return (onnx_described_value){arena_strdup(s->arena, v->name), type_text(s, v->type)};
}

/* An input that is also an initializer only has a default value. */
static void describe_interface(describer *s, const Onnx__GraphProto *g)
{
    strmap *initializers = strmap_new_borrowing(s->im.scratch);
    for (size_t i = 0; i < g->n_initializer; i++) strmap_put(initializers, g->initializer[i]->name, s);
    for (size_t i = 0; i < g->n_input; i++)
        if (!strmap_get(initializers, g->input[i]->name)) vec_push(s->arena, &s->out->inputs, value_of(s, g->input[i]));
    for (size_t i = 0; i < g->n_output; i++) vec_push(s->arena, &s->out->outputs, value_of(s, g->output[i]));
}

/* ---- initializers ------------------------------------------------------------------------------ */

static void describe_tensors(describer *s, const Onnx__GraphProto *g)
{
    for (size_t i = 0; i < g->n_initializer; i++) {
        const Onnx__TensorProto *t = g->initializer[i];
        const ir_dtype dtype = onnx_type_dtype(t->data_type);
        int64_t n = 1, bytes;
        bool fits = dtype != IR_NO_DTYPE && ir_dtype_is_float(dtype);
        for (size_t k = 0; fits && k < t->n_dims; k++) fits = t->dims[k] >= 0 && checked_mul(n, t->dims[k], &n);
        if (!fits || !checked_mul(n, (int64_t)ir_dtype_size(dtype), &bytes)) continue;
        s->out->tensors++;
        if (!checked_add(s->out->elements, n, &s->out->elements)) s->out->elements = INT64_MAX;
        if (!checked_add(s->out->bytes, bytes, &s->out->bytes)) s->out->bytes = INT64_MAX;
    }
}

/* ---- operators --------------------------------------------------------------------------------- */

static onnx_described_operator *operator_of(describer *s, const Onnx__NodeProto *p, bool known)
{
    const bool own = onnx_is_default_domain(p->domain);
    const char *name = arena_printf(s->arena, "%s%s%s", own ? "" : p->domain, own ? "" : ".", p->op_type);
    size_t at = (uintptr_t)strmap_get(s->rows, name);
    if (!at) {
        const onnx_described_operator fresh = {.name = name, .known = known};
        vec_push(s->arena, &s->out->operators, fresh);
        at = s->out->operators.count;
        strmap_put(s->rows, name, (void *)(uintptr_t)at);
    }
    return &s->out->operators.items[at - 1];
}

static void describe_node(describer *s, const onnx_scope *scope, const Onnx__NodeProto *p)
{
    const bool known = onnx_find_row(&s->im, p) != NULL;
    const char *name = onnx_node_name(&s->im, scope, p, s->im.node_index++);
    onnx_described_operator *o = operator_of(s, p, known);
    o->nodes++;
    o->known &= known;
    if (known && !strmap_get(s->refused, name)) return;
    if (o->refused < SHOWN) vec_push(s->arena, &o->where, arena_strdup(s->arena, name));
    o->refused++;
}

static void describe_graph(describer *s, const onnx_scope *scope)
{
    const Onnx__GraphProto *g = scope->graph;
    for (size_t i = 0; i < g->n_node; i++) {
        const Onnx__NodeProto *p = g->node[i];
        describe_node(s, scope, p);
        for (size_t k = 0; k < p->n_attribute; k++) {
            const onnx_scope inner = {.graph = p->attribute[k]->g, .outer = scope, .path = scope->path};
            if (inner.graph) describe_graph(s, &inner);
        }
    }
}

/* The bodies of functions, each once, in its own opset. */
static void describe_functions(describer *s)
{
    const Onnx__ModelProto *m = s->im.file->model;
    for (size_t i = 0; i < m->n_functions; i++) {
        const Onnx__FunctionProto *f = m->functions[i];
        Onnx__GraphProto body = {.node = f->node, .n_node = f->n_node};
        const onnx_scope scope = {.graph = &body, .path = arena_printf(s->im.scratch, "%s/", f->name)};
        s->im.opset = s->im.model_opset;
        for (size_t k = 0; k < f->n_opset_import; k++)
            if (onnx_is_default_domain(f->opset_import[k]->domain)) s->im.opset = (int)f->opset_import[k]->version;
        describe_graph(s, &scope);
    }
    s->im.opset = s->im.model_opset;
}

/* ---- the model --------------------------------------------------------------------------------- */

static void set_opset(describer *s)
{
    const Onnx__ModelProto *m = s->im.file->model;
    for (size_t i = 0; i < m->n_opset_import; i++)
        if (onnx_is_default_domain(m->opset_import[i]->domain)) s->out->opset = m->opset_import[i]->version;
    s->im.opset = s->im.model_opset = (int)(s->out->opset < ONNX_OPSET_LAST ? s->out->opset : ONNX_OPSET_LAST);
    ir_training_set_opset(&s->im.module->training, s->im.module->arena, "", s->out->opset);
}

/* Without the values of tensors if they cannot be read. */
static ampc_status describe_export(describer *s, const Onnx__GraphProto *g)
{
    onnx_importer *im = &s->im;
    ampc_status status = AMPC_REJECTED;
    for (int untie = 1; untie >= 0 && status != AMPC_OK; untie--) {
        im->declarations = onnx_declarations(g, im->scratch);
        status = onnx_ties_find(im->file, untie, im->declarations, im->diag, im->scratch, &im->ties);
    }
    TRY(status);
    onnx_record_export(im);
    return AMPC_OK;
}

static ampc_status describe_model(describer *s)
{
    const Onnx__GraphProto *g = s->im.file->model->graph;
    const onnx_scope scope = {.graph = g};
    if (!g) return diag_error(s->im.diag, AMPC_REJECTED, DIAG_FILE(s->im.path), "the model has no graph");
    set_opset(s);
    onnx_functions_bind(&s->im); /* those that the importer refused are reported */
    TRY(describe_export(s, g));
    describe_interface(s, g);
    describe_tensors(s, g);
    describe_graph(s, &scope);
    describe_functions(s);
    return AMPC_OK;
}

/* Runs under a guard of its own, because the file must be closed. */
static ampc_status describe_file(onnx_file *f, describer *s, diag *d)
{
    ir_module *m = s->im.module;
    diag *quiet = diag_new(NULL, NULL);
    jmp_buf guard, *outer = arena_set_guard(s->arena, &guard);
    ampc_status status = AMPC_NO_MEMORY;
    if (!quiet || !m || !s->im.scratch) status = AMPC_NO_MEMORY;
    else if (!setjmp(guard)) {
        arena_set_guard(m->arena, &guard);
        arena_set_guard(s->im.scratch, &guard);
        s->im.file = f;
        s->im.options = &s->options;
        s->im.path = arena_strdup(m->arena, f->path);
        s->im.arena = m->arena;
        s->im.diag = quiet;
        onnx_importer_rows(&s->im);
        s->rows = strmap_new(s->im.scratch);
        status = describe_model(s);
        arena_set_guard(m->arena, NULL);
    }
    arena_set_guard(s->arena, outer);
    if (status == AMPC_REJECTED) diag_error(d, status, DIAG_FILE(f->path), "the model has no graph");
    if (status == AMPC_NO_MEMORY) diag_error(d, status, DIAG_FILE(f->path), "out of memory");
    diag_free(quiet);
    return status;
}

ampc_status onnx_describe(const char *path, const strmap *refused, custom_ops *custom, arena *a, diag *d,
                          onnx_description *description, ir_module **out)
{
    onnx_file *f;
    *out = NULL;
    *description = (onnx_description){.opset = 0};
    TRY(onnx_file_open(path, d, &f));
    describer s = {.refused = refused, .options = {.custom = custom}, .arena = a, .out = description};
    s.im.module = ir_module_new();
    s.im.scratch = arena_new(0);
    const ampc_status status = describe_file(f, &s, d);
    onnx_file_close(f);
    arena_free(s.im.scratch);
    if (status == AMPC_OK) *out = s.im.module;
    else ir_module_free(s.im.module);
    return status;
}
