/* interface.c - the inputs and outputs of the model. Each item of a sequence X is an input or output of its own: X.0,
 * X.1, ... An optional is its item, or nothing; the caller binds lengths (X_length) and presence (X_present) like
 * dimensions. A model that is only converted keeps its interface, so it cannot have any. */
#include "frontend/lower/lower.h"

#include <string.h>

static ampc_status refuse(onnx_importer *im, diag_loc loc, const char *what, const char *name, const char *why)
{
    return diag_error(im->diag, AMPC_UNSUPPORTED, loc, "graph %s '%s' is a sequence or optional%s", what, name, why);
}

/* ---- inputs ------------------------------------------------------------------------------------ */

typedef struct interface {
    onnx_importer *im;
    const onnx_scope *scope;
    bool *constants_used; /* by index in the options */
} interface;

/* The constant that the caller has bound to an input, or NULL. */
static ir_value *bound_constant(const interface *f, const char *name)
{
    onnx_importer *im = f->im;
    for (int i = 0; i < im->options->n_constants; i++) {
        const onnx_constant *c = &im->options->constants[i];
        if (strcmp(c->name, name) != 0) continue;
        f->constants_used[i] = true;
        return ir_constant(&im->builder, name, &c->type, c->bytes);
    }
    return NULL;
}

/* The number of items that the caller has bound under the name. */
static ampc_status bound_count(const interface *f, const char *input, const char *suffix, int64_t max, int *out)
{
    onnx_importer *im = f->im;
    const char *name = arena_printf(im->scratch, "%s_%s", input, suffix);
    for (int i = 0; i < im->options->n_dims; i++) {
        const onnx_dim_binding *d = &im->options->dims[i];
        if (strcmp(d->name, name) != 0) continue;
        f->im->dims_used[i] = true;
        if (d->size > max)
            return diag_error(im->diag, AMPC_UNSUPPORTED, DIAG_FILE(im->path), "%s is %lld, at most %lld is supported",
                              name, (long long)d->size, (long long)max);
        *out = (int)d->size;
        return AMPC_OK;
    }
    return refuse(im, DIAG_USE(DIAG_FILE(im->path), OPTION_dims, .key = name, .value = "1"), "input", input, "");
}

static ampc_status make_tensor(const interface *f, const Onnx__ValueInfoProto *info, ir_value **out)
{
    onnx_importer *im = f->im;
    ir_type type;
    *out = bound_constant(f, info->name);
    if (*out) return AMPC_OK;
    const Onnx__TypeProto__Tensor *declared = onnx_tensor_type(info);
    const bool open = declared && !declared->shape;
    const onnx_declaration d = {"graph input", info, open ? onnx_input_rank(im, f->scope, info->name) : -1};
    TRY(onnx_declared_type(im, &d, f->im->dims_used, &type));
    onnx_batch_input(im, &type);
    *out = ir_graph_input(im->graph, info->name, &type);
    return AMPC_OK;
}

/* The type of an item. The items of a sequence may differ in the sizes to which its type assigns a name. */
static Onnx__TypeProto *item_type(arena *a, Onnx__TypeProto *type)
{
    const bool tensor = type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE && type->tensor_type->shape;
    if (!tensor) return type;
    const Onnx__TensorShapeProto *from = type->tensor_type->shape;
    Onnx__TensorShapeProto__Dimension **dims = arena_array(a, from->n_dim + 1, sizeof *dims);
    for (size_t i = 0; i < from->n_dim; i++) {
        dims[i] = arena_alloc(a, sizeof **dims);
        *dims[i] = *from->dim[i];
        if (dims[i]->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE)
            dims[i]->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE__NOT_SET;
    }
    Onnx__TypeProto *copy = arena_alloc(a, sizeof *copy);
    *copy = *type;
    copy->tensor_type = arena_alloc(a, sizeof *copy->tensor_type);
    *copy->tensor_type = *type->tensor_type;
    copy->tensor_type->shape = arena_alloc(a, sizeof *copy->tensor_type->shape);
    *copy->tensor_type->shape = *from;
    copy->tensor_type->shape->dim = dims;
    return copy;
}

static ampc_status make_item(const interface *f, const Onnx__ValueInfoProto *info, onnx_item *out);

static ampc_status make_items(const interface *f, const Onnx__ValueInfoProto *info, Onnx__TypeProto *type,
                              bool is_optional, onnx_item *out)
{
    arena *a = f->im->scratch;
    onnx_sequence *s = arena_alloc(a, sizeof *s);
    s->is_optional = is_optional;
    TRY(bound_count(f, info->name, is_optional ? "present" : "length", is_optional ? 1 : ONNX_MAX_TRIPS, &s->count));
    s->items = arena_array(a, (size_t)s->count + 1, sizeof *s->items);
    for (int i = 0; i < s->count; i++) {
        Onnx__ValueInfoProto item = *info;
        item.type = is_optional ? type : item_type(a, type);
        if (!is_optional) item.name = arena_printf(a, "%s.%d", info->name, i);
        TRY(make_item(f, &item, &s->items[i]));
    }
    out->sequence = s;
    return AMPC_OK;
}

static ampc_status make_item(const interface *f, const Onnx__ValueInfoProto *info, onnx_item *out)
{
    const Onnx__TypeProto *t = info->type;
    const bool optional = t && t->value_case == ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE;
    const bool sequence = t && t->value_case == ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE;
    if ((optional || sequence) && f->im->options->emit_opset)
        return refuse(f->im, DIAG_FILE(f->im->path), "input", info->name, ", which cannot be written back");
    if (optional) return make_items(f, info, t->optional_type->elem_type, true, out);
    if (sequence) return make_items(f, info, t->sequence_type->elem_type, false, out);
    return make_tensor(f, info, &out->value);
}

static ampc_status check_constants_used(const interface *f)
{
    const onnx_import_options *o = f->im->options;
    for (int i = 0; i < o->n_constants; i++)
        if (!f->constants_used[i])
            return diag_error(f->im->diag, AMPC_USAGE, DIAG_FILE(f->im->path), "there is no input '%s'",
                              o->constants[i].name);
    return AMPC_OK;
}

/* Whether the name is that of a size that only a run determines: of a result, or the number of iterations of a loop. */
static bool is_run_size(const onnx_importer *im, const char *name)
{
    const ir_dim_table *dims = im->module->dims;
    const char *suffix = strrchr(name, '.');
    bool known = false;
    for (size_t i = 0; i < ir_dim_symbol_count(dims) && !known; i++)
        known = strcmp(ir_dim_symbol_name(dims, i), name) == 0;
    if (!suffix || strcmp(suffix, ".iterations") != 0) return known;
    for (const ir_graph *g = ir_first_graph(im->module); g && !known; g = ir_next_graph(g))
        for (const ir_node *n = g->first; n && !known; n = n->next)
            known = n->n_regions && n->loc.node && strlen(n->loc.node) == (size_t)(suffix - name) &&
                    strncmp(n->loc.node, name, (size_t)(suffix - name)) == 0;
    return known;
}

ampc_status onnx_check_dims_used(const onnx_importer *im)
{
    const onnx_import_options *o = im->options;
    for (int i = 0; i < o->n_dims; i++)
        if (!im->dims_used[i] && !is_run_size(im, o->dims[i].name))
            return diag_error(im->diag, AMPC_USAGE, DIAG_FILE(im->path), "no input has a dimension '%s'",
                              o->dims[i].name);
    return AMPC_OK;
}

/* An initializer takes precedence over an input of the same name: it is the input's default value, and before IR
 * version 4 every initializer had to be listed as an input. */
ampc_status onnx_bind_inputs(onnx_importer *im, onnx_scope *scope)
{
    const onnx_import_options *o = im->options;
    im->dims_used = arena_array(im->scratch, (size_t)o->n_dims + 1, sizeof *im->dims_used);
    const interface f = {
        .im = im, .scope = scope, .constants_used = arena_array(im->scratch, (size_t)o->n_constants + 1, sizeof(bool))};
    for (size_t i = 0; i < scope->graph->n_input; i++) {
        const Onnx__ValueInfoProto *info = scope->graph->input[i];
        onnx_item item = {.value = bound_constant(&f, info->name)};
        if (!item.value && strmap_get(scope->bindings, info->name)) continue;
        if (!item.value) TRY(make_item(&f, info, &item));
        onnx_bind(im, scope, info->name, item);
    }
    return check_constants_used(&f);
}

/* ---- outputs ----------------------------------------------------------------------------------- */

static ampc_status put_output(onnx_importer *im, const char *name, onnx_item item, strmap *seen)
{
    const onnx_sequence *s = item.sequence;
    if (s && im->options->emit_opset)
        return refuse(im, DIAG_FILE(im->path), "output", name, ", which cannot be written back");
    for (int i = 0; s && i < s->count; i++)
        TRY(put_output(im, s->is_optional ? name : arena_printf(im->scratch, "%s.%d", name, i), s->items[i], seen));
    if (s) return AMPC_OK;
    if (!strmap_enter(seen, name, im))
        return diag_error(im->diag, AMPC_REJECTED, DIAG_FILE(im->path), "duplicate graph output '%s'", name);
    ir_output(&im->builder, name, item.value);
    return AMPC_OK;
}

ampc_status onnx_put_outputs(onnx_importer *im, const onnx_scope *scope)
{
    const Onnx__GraphProto *g = scope->graph;
    strmap *seen = strmap_new(im->scratch);
    ampc_status status = AMPC_OK;
    im->builder.loc = (ir_loc){.file = im->path};
    if (!g->n_output) return diag_error(im->diag, AMPC_REJECTED, DIAG_FILE(im->path), "the graph has no output");
    for (size_t i = 0; i < g->n_output; i++) {
        const char *name = g->output[i]->name;
        const onnx_item item = onnx_item_of(im, scope, name);
        const Onnx__TypeProto__Tensor *declared = onnx_tensor_type(g->output[i]);
        if (!item.value && !item.sequence) return diag_status(im->diag);
        if (declared && onnx_type_dtype(declared->elem_type) != onnx_type_holder(declared->elem_type))
            return diag_error(im->diag, AMPC_UNSUPPORTED, DIAG_FILE(im->path),
                              "output '%s' has element type %s, which is not supported", name,
                              onnx_type_name(declared->elem_type));
        const ampc_status added = put_output(im, name, item, seen);
        if (added != AMPC_OK) status = added; /* the others are checked as well */
    }
    if (status == AMPC_OK && !im->graph->last)
        return diag_error(im->diag, AMPC_UNSUPPORTED, DIAG_FILE(im->path), "no output of the graph has an item");
    return status;
}
