/* declared.c - types that the model declares for its values. */
#include "frontend/lower/lower.h"

#include <string.h>

const Onnx__TypeProto__Tensor *onnx_tensor_type(const Onnx__ValueInfoProto *info)
{
    bool tensor = info && info->type && info->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    return tensor ? info->type->tensor_type : NULL;
}

void onnx_check_declared(onnx_importer *im, const onnx_scope *scope, const Onnx__ValueInfoProto *info)
{
    const onnx_binding *b = strmap_get(scope->bindings, info->name);
    const Onnx__TypeProto__Tensor *declared = onnx_tensor_type(info);
    if (!b || !b->value || !declared) return;
    const ir_type *t = &b->value->type;
    diag_loc loc = {.file = im->path};
    if (declared->elem_type && onnx_type_dtype(declared->elem_type) != t->dtype)
        diag_error(im->diag, AMPC_REJECTED, loc, "value '%s' is declared as %s, but is %s", info->name,
                   onnx_type_name(declared->elem_type), ir_dtype_name(t->dtype));
    const Onnx__TensorShapeProto *shape = declared->shape;
    if (!shape) return;
    bool same = (int)shape->n_dim == t->rank;
    for (int i = 0; i < t->rank && same; i++) {
        const Onnx__TensorShapeProto__Dimension *d = shape->dim[i];
        bool number = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        same = !number || ir_dim_is_symbolic(t->dims[i]) || d->dim_value == t->dims[i];
    }
    if (!same)
        diag_error(im->diag, AMPC_REJECTED, loc, "the declared shape of '%s' contradicts the computed one, %s",
                   info->name, ir_type_print(im->module, t, im->scratch));
}

static ir_dim input_dim(onnx_importer *im, const char *input, int i, const Onnx__TensorShapeProto__Dimension *d,
                        bool *used)
{
    if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE)
        return d->dim_value >= 0 ? ir_dim_number(d->dim_value) : IR_DIM_NONE;
    const char *name = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM ? d->dim_param : "";
    if (!*name) name = arena_printf(im->scratch, "%s_dim%d", input, i);
    for (int k = 0; k < im->options->n_dims; k++)
        if (strcmp(im->options->dims[k].name, name) == 0) {
            if (used) used[k] = true;
            return im->options->dims[k].size;
        }
    return ir_dim_symbol(im->module->dims, name);
}

ampc_status onnx_declared_type(onnx_importer *im, const char *what, const Onnx__ValueInfoProto *info, bool *used,
                               ir_type *out)
{
    diag_loc loc = DIAG_FILE(im->path);
    const Onnx__TypeProto__Tensor *t = onnx_tensor_type(info);
    if (!t) return diag_error(im->diag, AMPC_UNSUPPORTED, loc, "%s '%s' is not a tensor", what, info->name);
    if (onnx_type_dtype(t->elem_type) == IR_NO_DTYPE)
        return diag_error(im->diag, AMPC_UNSUPPORTED, loc, "%s '%s' has element type %s, which is not supported", what,
                          info->name, onnx_type_name(t->elem_type));
    if (!t->shape) return diag_error(im->diag, AMPC_UNSUPPORTED, loc, "%s '%s' has no shape", what, info->name);
    if (t->shape->n_dim > ONNX_MAX_RANK)
        return diag_error(im->diag, AMPC_UNSUPPORTED, loc, "%s '%s' has rank %zu, at most %d is supported", what,
                          info->name, t->shape->n_dim, ONNX_MAX_RANK);
    *out = (ir_type){.dtype = onnx_type_dtype(t->elem_type), .rank = (int)t->shape->n_dim};
    for (int i = 0; i < out->rank; i++) {
        out->dims[i] = input_dim(im, info->name, i, t->shape->dim[i], used);
        if (out->dims[i] == IR_DIM_NONE)
            return diag_error(im->diag, AMPC_REJECTED, loc, "dimension %d of %s '%s' is negative", i, what, info->name);
    }
    if (ir_type_count(im->module->dims, out) == IR_DIM_NONE)
        return diag_error(im->diag, AMPC_REJECTED, loc, "%s '%s' is too large", what, info->name);
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
