/* lower_random.c - RandomUniform, RandomNormal, their Like forms, Bernoulli; the state of random numbers. */
#include "frontend/lower/lower.h"

#include <math.h>

ir_value *onnx_random_state(onnx_importer *im)
{
    if (!im->rng) im->rng = ir_state_new(im->module, IR_STATE_rng);
    return ir_graph_storage(im->graph, im->rng);
}

enum { SEEDED = 1 << 30 }; /* streams from here on belong to seeds, those below to nodes without one */

/* Equal seeds draw equal numbers, in all nodes and steps with the same counter. */
static int64_t stream_of(onnx_node *n)
{
    if (!onnx_has(n, "seed")) return n->importer->streams++;
    return SEEDED | (ir_bits_f32((float)onnx_float(n, "seed", 0)) * 0x9e3779b1u) >> 2;
}

static ir_value *draw(onnx_node *n, bool normal, const ir_type *type, double offset, double scale)
{
    if (!ir_dtype_is_float(type->dtype)) onnx_refuse(n, "random numbers of type %s", ir_dtype_name(type->dtype));
    if (!isfinite(offset) || !isfinite((double)(float)scale)) onnx_reject(n, "the distribution is not finite");
    if (n->failed) return NULL;
    ir_node *node = ir_new(n->b, IR_OP_random, 1, onnx_random_state(n->importer));
    ir_set_list(node, IR_ATTR(random, shape), type->dims, type->rank);
    ir_set_bool(node, IR_ATTR(random, normal), normal);
    ir_set_float(node, IR_ATTR(random, offset), offset);
    ir_set_float(node, IR_ATTR(random, scale), scale);
    ir_set_int(node, IR_ATTR(random, stream), stream_of(n));
    ir_set_dtype(node, IR_ATTR(random, type), type->dtype);
    return ir_done(n->b, node);
}

static ir_dtype type_attribute(onnx_node *n, ir_dtype otherwise)
{
    int64_t code = onnx_int(n, "dtype", onnx_type_of(otherwise));
    ir_dtype t = onnx_type_dtype(code);
    if (t == IR_NO_DTYPE) onnx_refuse(n, "element type %s is not supported", onnx_type_name(code));
    return t;
}

/* Argument: whether the distribution is normal. */
static ir_value *draw_by_attributes(onnx_node *n, const ir_type *type)
{
    double mean = onnx_float(n, n->arg ? "mean" : "low", 0), spread = onnx_float(n, n->arg ? "scale" : "high", 1);
    return draw(n, n->arg, type, mean, n->arg ? spread : spread - mean);
}

void onnx_lower_random(onnx_node *n)
{
    onnx_list shape = onnx_ints(n, "shape");
    if (!shape.present) onnx_reject(n, "attribute 'shape' is missing");
    if (shape.count > ONNX_MAX_RANK) onnx_refuse(n, "rank %d is not supported", shape.count);
    for (int i = 0; i < shape.count; i++)
        if (shape.items[i] < 0) onnx_reject(n, "shape[%d] is %lld", i, (long long)shape.items[i]);
    ir_dtype t = type_attribute(n, IR_f32);
    if (n->failed) return;
    ir_type type = ir_type_make(t, shape.count, shape.items);
    n->out[0] = draw_by_attributes(n, &type);
}

void onnx_lower_random_like(onnx_node *n)
{
    ir_type type = n->in[0]->type;
    type.dtype = type_attribute(n, type.dtype);
    n->out[0] = draw_by_attributes(n, &type);
}

/* True where a uniform number is below the probability. */
void onnx_lower_bernoulli(onnx_node *n)
{
    ir_type type = n->in[0]->type;
    ir_dtype to = type_attribute(n, type.dtype);
    type.dtype = IR_f32;
    ir_value *u = draw(n, false, &type, 0, 1);
    n->out[0] = ir_cast(n->b, ir_binary(n->b, IR_OP_less, u, ir_cast(n->b, n->in[0], IR_f32)), to);
}
