/* declared.c - types that the model declares for its values. */
#include "frontend/lower/lower.h"

#include <string.h>

const Onnx__TypeProto__Tensor *onnx_tensor_type(const Onnx__ValueInfoProto *info)
{
    bool tensor = info && info->type && info->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    return tensor ? info->type->tensor_type : NULL;
}

/* ---- comparison with the inferred types -------------------------------------------------------- */

static bool fits_shape(const Onnx__TensorShapeProto *shape, const ir_type *t)
{
    bool same = (int)shape->n_dim == t->rank;
    for (int i = 0; i < t->rank && same; i++) {
        const Onnx__TensorShapeProto__Dimension *d = shape->dim[i];
        bool number = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && d->dim_value >= 0;
        same = !number || ir_dim_is_symbolic(t->dims[i]) || d->dim_value == t->dims[i];
    }
    return same;
}

/* False: the declared shape contradicts. */
static bool check_declared(onnx_importer *im, const onnx_scope *scope, const Onnx__ValueInfoProto *info)
{
    const onnx_binding *b = strmap_get(scope->bindings, info->name);
    const Onnx__TypeProto__Tensor *declared = onnx_tensor_type(info);
    if (!b || !b->value || !declared) return true;
    const ir_type *t = &b->value->type;
    if (declared->elem_type && onnx_type_holder(declared->elem_type) != t->dtype)
        diag_error(im->diag, AMPC_REJECTED, DIAG_FILE(im->path), "value '%s' is declared as %s, but is %s", info->name,
                   onnx_type_name(declared->elem_type), ir_dtype_name(t->dtype));
    return !declared->shape || fits_shape(declared->shape, t);
}

/* Declared shapes are often left over from another batch size, then all of them: one remark is enough. */
void onnx_check_declared(onnx_importer *im, const onnx_scope *scope, Onnx__ValueInfoProto *const *infos, size_t n)
{
    const char *first = NULL;
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (!check_declared(im, scope, infos[i]) && !count++) first = infos[i]->name;
    if (!count) return;
    const onnx_binding *b = strmap_get(scope->bindings, first);
    diag_remark(im->diag, DIAG_FILE(im->path), "the declared shape of '%s' contradicts the computed one, %s%s", first,
                ir_type_print(im->module, &b->value->type, im->scratch),
                count == 1 ? "" : arena_printf(im->scratch, " (and %zu others do)", count - 1));
}

/* ---- declared types ----------------------------------------------------------------------------- */

/* Exporters mark an unknown size as -1, as a name that is empty or "?", or not at all. */
static const char *name_of_dim(onnx_importer *im, const char *value, int i, const Onnx__TensorShapeProto__Dimension *d)
{
    const bool named = d && d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM && *d->dim_param &&
                       strcmp(d->dim_param, "?") != 0;
    return named ? d->dim_param : arena_printf(im->scratch, "%s_dim%d", value, i);
}

static ir_dim declared_dim(onnx_importer *im, const char *value, int i, const Onnx__TensorShapeProto__Dimension *d,
                           bool *used)
{
    const bool number = d && d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
    if (number && d->dim_value != -1) return d->dim_value >= 0 ? ir_dim_number(d->dim_value) : IR_DIM_NONE;
    const char *name = name_of_dim(im, value, i, d);
    for (int k = 0; k < im->options->n_dims; k++)
        if (strcmp(im->options->dims[k].name, name) == 0) {
            if (used) used[k] = true;
            return im->options->dims[k].size;
        }
    return ir_dim_symbol(im->module->dims, name);
}

/* The number of dimensions; -1 after reporting that it is unknown. */
static int declared_rank(onnx_importer *im, const onnx_declaration *d, const Onnx__TensorShapeProto *shape)
{
    const char *name = d->info->name;
    diag_loc loc = DIAG_FILE(im->path);
    if (!shape && d->rank < 0)
        diag_error(im->diag, AMPC_UNSUPPORTED,
                   DIAG_USE(loc, OPTION_dims, arena_printf(im->scratch, "%s_dim0", name), "SIZE", "and so on"),
                   "%s '%s' has no shape", d->what, name);
    if (shape && shape->n_dim > ONNX_MAX_RANK)
        diag_error(im->diag, AMPC_UNSUPPORTED, loc, "%s '%s' has rank %zu, at most %d is supported", d->what, name,
                   shape->n_dim, ONNX_MAX_RANK);
    return !shape ? d->rank : shape->n_dim > ONNX_MAX_RANK ? -1 : (int)shape->n_dim;
}

ampc_status onnx_declared_type(onnx_importer *im, const onnx_declaration *d, bool *used, ir_type *out)
{
    diag_loc loc = DIAG_FILE(im->path);
    const char *name = d->info->name;
    const Onnx__TypeProto__Tensor *t = onnx_tensor_type(d->info);
    if (!t) return diag_error(im->diag, AMPC_UNSUPPORTED, loc, "%s '%s' is not a tensor", d->what, name);
    if (onnx_type_dtype(t->elem_type) == IR_NO_DTYPE)
        return diag_error(im->diag, AMPC_UNSUPPORTED, loc, "%s '%s' has element type %s, which is not supported",
                          d->what, name, onnx_type_name(t->elem_type));
    *out = (ir_type){.dtype = onnx_type_dtype(t->elem_type), .rank = declared_rank(im, d, t->shape)};
    if (out->rank < 0) return diag_status(im->diag);
    for (int i = 0; i < out->rank; i++) {
        out->dims[i] = declared_dim(im, name, i, t->shape ? t->shape->dim[i] : NULL, used);
        if (out->dims[i] == IR_DIM_NONE)
            return diag_error(im->diag, AMPC_REJECTED, loc, "dimension %d of %s '%s' is negative", i, d->what, name);
    }
    if (ir_type_count(im->module->dims, out) == IR_DIM_NONE)
        return diag_error(im->diag, AMPC_REJECTED, loc, "%s '%s' is too large", d->what, name);
    return AMPC_OK;
}

static void declare(strmap *map, Onnx__ValueInfoProto *const *infos, size_t n)
{
    for (size_t i = 0; i < n; i++) strmap_put(map, infos[i]->name, infos[i]);
}

const Onnx__ValueInfoProto *onnx_find_declared(const onnx_node *n, const char *name)
{
    onnx_importer *im = n->importer;
    const Onnx__GraphProto *g = n->scope->graph;
    if (im->declared_of != g) {
        im->declared = strmap_new(im->scratch);
        declare(im->declared, g->output, g->n_output);
        declare(im->declared, g->value_info, g->n_value_info);
        im->declared_of = g;
    }
    return strmap_get(im->declared, name);
}

ir_dim onnx_unknown_dim(onnx_node *n, int i, int axis)
{
    return ir_dim_symbol(n->dims, arena_printf(n->importer->scratch, "%s_dim%d", n->proto->output[i], axis));
}

static bool is_symbol(const ir_dim_table *t, const char *name)
{
    for (size_t i = 0; i < ir_dim_symbol_count(t); i++)
        if (strcmp(ir_dim_symbol_name(t, i), name) == 0) return true;
    return false;
}

ir_dim onnx_data_dim(onnx_node *n, int i, int axis)
{
    const char *usual = arena_printf(n->importer->scratch, "%s_dim%d", n->proto->output[i], axis), *name = usual;
    for (int k = 1; is_symbol(n->dims, name); k++) name = arena_printf(n->importer->scratch, "%s_%d", usual, k);
    onnx_importer *im = n->importer;
    if (!im->data_dims) im->data_dims = strmap_new(im->scratch);
    strmap_put(im->data_dims, name, im);
    return ir_dim_symbol(n->dims, name);
}

bool onnx_is_data_dim(const onnx_importer *im, const char *name)
{
    return im->data_dims && strmap_get(im->data_dims, name);
}
