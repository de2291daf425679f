/* export_normalize.c - the nodes Sub and Div of a normalised input, and their Constants, as fields of a model file. */
#include "frontend/emit/export_normalize.h"

#include "frontend/read/fields.h"

#include <string.h>

enum { OPSET_BROADCASTS = 7 };

static int64_t default_opset(const Onnx__ModelProto *m)
{
    for (size_t i = 0; i < m->n_opset_import; i++)
        if (onnx_is_default_domain(m->opset_import[i]->domain)) return m->opset_import[i]->version;
    return 0;
}

/* The element type of a graph input; -1: there is no such input. */
static int element_type(const Onnx__GraphProto *g, const char *name)
{
    for (size_t i = 0; i < g->n_input; i++) {
        const Onnx__TypeProto *t = g->input[i]->type;
        if (strcmp(g->input[i]->name, name) == 0 && t && t->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
            return t->tensor_type->elem_type;
    }
    return -1;
}

static const char *new_name(const char *input, const char *part, strmap *names, arena *a)
{
    const char *name = arena_printf(a, "%s.%s", input, part);
    while (strmap_get(names, name)) name = arena_printf(a, "%s_", name);
    return name;
}

/* A Constant, not an initializer: a training of the copy would learn that. */
static void put_constant(const ir_normalization *n, const char *name, const float *values, int type, arena *a,
                         rope *out)
{
    rope tensor = {0}, attribute = {0}, node = {0};
    int64_t dims[IR_MAX_RANK];
    const int rank = ir_normalization_dims(n, dims);
    const size_t count = (size_t)n->count;
    for (int i = 0; i < rank; i++) rope_add_int(a, &tensor, TENSOR_DIMS, (uint64_t)dims[i]);
    rope_add_int(a, &tensor, TENSOR_DATA_TYPE, (uint64_t)type);
    rope_add_header(a, &tensor, TENSOR_RAW_DATA, count * onnx_type_size(type));
    rope_add_elements(a, &tensor, onnx_type_dtype(type), IR_f32, values, count);
    rope_add_text(a, &attribute, ATTRIBUTE_NAME, "value");
    rope_add_message(a, &attribute, ATTRIBUTE_T, &tensor);
    rope_add_int(a, &attribute, ATTRIBUTE_TYPE, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR);
    rope_add_text(a, &node, NODE_OUTPUT, name);
    rope_add_text(a, &node, NODE_NAME, name);
    rope_add_text(a, &node, NODE_OP_TYPE, "Constant");
    rope_add_message(a, &node, NODE_ATTRIBUTE, &attribute);
    rope_add_message(a, out, GRAPH_NODE, &node);
}

static void put_node(const char *op, const char *x, const char *y, const char *result, arena *a, rope *out)
{
    rope node = {0};
    rope_add_text(a, &node, NODE_INPUT, x);
    rope_add_text(a, &node, NODE_INPUT, y);
    rope_add_text(a, &node, NODE_OUTPUT, result);
    rope_add_text(a, &node, NODE_NAME, result);
    rope_add_text(a, &node, NODE_OP_TYPE, op);
    rope_add_message(a, out, GRAPH_NODE, &node);
}

ampc_status export_normalization_make(const onnx_file *file, const ir_normalization *n, strmap *names, arena *a,
                                      diag *d, export_normalization *out)
{
    const int type = element_type(file->model->graph, n->input);
    const int64_t opset = default_opset(file->model);
    if (type < 0 || !ir_dtype_is_float(onnx_type_dtype(type)))
        return diag_error(d, AMPC_REJECTED, DIAG_FILE(file->path),
                          "there is no float input '%s': this is not the model that was compiled", n->input);
    if (opset < OPSET_BROADCASTS)
        return diag_error(d, AMPC_UNSUPPORTED, DIAG_FILE(file->path),
                          "the normalisation of '%s' needs opset %d; the model has %lld", n->input, OPSET_BROADCASTS,
                          (long long)opset);
    const char *shift = new_name(n->input, "shift", names, a), *scale = new_name(n->input, "scale", names, a);
    const char *shifted = new_name(n->input, "shifted", names, a);
    *out = (export_normalization){.input = n->input, .result = new_name(n->input, "normalized", names, a)};
    put_constant(n, shift, n->shift, type, a, &out->fields);
    put_constant(n, scale, n->scale, type, a, &out->fields);
    put_node("Sub", n->input, shift, shifted, a, &out->fields);
    put_node("Div", shifted, scale, out->result, a, &out->fields);
    return AMPC_OK;
}
