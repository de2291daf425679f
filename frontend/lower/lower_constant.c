/* lower_constant.c - constant values: Constant, ConstantOfShape, Range. */
#include "frontend/lower/lower.h"

#include <math.h>

/* ---- Constant -------------------------------------------------------------------------------- */

/* The copies of a body share the values of their constants. */
static char *payload_key(const onnx_node *n, const void *values)
{
    return arena_printf(n->importer->scratch, "%p %d", values, n->proto->attribute[0]->type);
}

static ir_value *find_payload(const onnx_node *n, const void *values)
{
    onnx_importer *im = n->importer;
    ir_storage *s = n->scope->path && im->payloads ? strmap_get(im->payloads, payload_key(n, values)) : NULL;
    return s ? ir_graph_storage(im->graph, s) : NULL;
}

static ir_value *note_payload(const onnx_node *n, const void *values, ir_value *v)
{
    onnx_importer *im = n->importer;
    if (!n->scope->path || !v) return v;
    if (!im->payloads) im->payloads = strmap_new(im->scratch);
    strmap_put(im->payloads, payload_key(n, values), v->storage);
    return v;
}

static ir_value *constant(onnx_node *n, ir_dtype dtype, int rank, size_t count, const void *bytes)
{
    ir_type type = ir_type_make(dtype, rank, (ir_dim[]){(ir_dim)count});
    ir_value *v = find_payload(n, bytes);
    return v ? v : note_payload(n, bytes, ir_constant(n->b, n->proto->output[0], &type, bytes));
}

static ir_value *constant_tensor(onnx_node *n, const Onnx__TensorProto *proto)
{
    onnx_importer *im = n->importer;
    onnx_tensor t;
    ir_value *v = find_payload(n, proto);
    if (v) return v;
    if (onnx_tensor_describe(im->arena, im->file, proto, im->diag, &t) != AMPC_OK) {
        n->failed = true;
        return NULL;
    }
    v = onnx_tensor_value(im, IR_CONST, n->proto->output[0], &t, onnx_loc(n));
    n->failed |= !v;
    return note_payload(n, proto, v);
}

void onnx_lower_constant(onnx_node *n)
{
    if (n->proto->n_attribute != 1) {
        onnx_reject(n, "needs exactly one attribute");
        return;
    }
    const Onnx__AttributeProto *a = n->proto->attribute[0];
    n->attr_read[0] = true;
    switch ((int)a->type) {
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR:
        if (onnx_tensor_attr(n, "value")) n->out[0] = constant_tensor(n, a->t);
        break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT: n->out[0] = constant(n, IR_f32, 0, 1, &a->f); break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT: n->out[0] = constant(n, IR_i64, 0, 1, &a->i); break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS:
        n->out[0] = constant(n, IR_f32, 1, a->n_floats, a->floats);
        break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS: n->out[0] = constant(n, IR_i64, 1, a->n_ints, a->ints); break;
    default: onnx_refuse(n, "constants in attribute '%s' are not supported", a->name);
    }
    if (!n->out[0] && !n->failed) onnx_reject(n, "unknown attribute '%s'", a->name);
}

/* ---- ConstantOfShape ------------------------------------------------------------------------- */

static ir_value *fill_value(onnx_node *n)
{
    const Onnx__TensorProto *proto = onnx_tensor_attr(n, "value");
    if (!proto) return ir_scalar(n->b, IR_f32, 0);
    ir_value *v = constant_tensor(n, proto);
    return v ? onnx_scalar_of(n, v) : NULL;
}

void onnx_lower_constant_of_shape(onnx_node *n)
{
    onnx_list shape = onnx_const_shape(n, 0);
    if (!n->failed) n->out[0] = ir_expand(n->b, fill_value(n), shape.items, shape.count);
}

/* ---- Range ----------------------------------------------------------------------------------- */

ir_value *onnx_iota(onnx_node *n, ir_dtype dtype, ir_dim size)
{
    ir_node *node = ir_new(n->b, IR_OP_iota, 0);
    ir_set_list(node, IR_ATTR(iota, size), &size, 1);
    ir_set_dtype(node, IR_ATTR(iota, type), dtype);
    return ir_done(n->b, node);
}

/* start + i * delta */
static ir_value *ramp(onnx_node *n, ir_dtype dtype, ir_dim size, double start, double delta)
{
    ir_dtype counter = ir_dtype_is_float(dtype) ? IR_i64 : dtype;
    ir_value *v = ir_cast(n->b, onnx_iota(n, counter, size), dtype);
    if (delta != 1) v = ir_binary(n->b, IR_OP_mul, v, ir_scalar(n->b, dtype, delta));
    if (start != 0) v = ir_binary(n->b, IR_OP_add, v, ir_scalar(n->b, dtype, start));
    return v;
}

static void range_float(onnx_node *n, ir_dtype dtype)
{
    double start = onnx_const_float(n, 0, 0), limit = onnx_const_float(n, 1, 0), delta = onnx_const_float(n, 2, 1);
    double count = ceil((limit - start) / delta);
    if (!(delta != 0) || !(fabs(count) < 0x1p40))
        onnx_reject(n, "invalid range from %g to %g by %g", start, limit, delta);
    if (!n->failed) n->out[0] = ramp(n, dtype, count > 0 ? (ir_dim)count : 0, start, delta);
}

/* max(ceil((limit - start) / delta), 0) */
static ir_dim range_count(ir_dim_table *t, ir_dim start, ir_dim limit, int64_t delta)
{
    ir_dim span = delta > 0 ? ir_dim_sub(t, limit, start) : ir_dim_sub(t, start, limit);
    ir_dim steps = ir_dim_floordiv(t, ir_dim_sub(t, span, 1), delta > 0 ? delta : -delta);
    return ir_dim_max(t, ir_dim_add(t, steps, 1), 0);
}

static void range_int(onnx_node *n, ir_dtype dtype)
{
    const ir_const_value *start = onnx_const(n, 0), *limit = onnx_const(n, 1);
    int64_t delta = onnx_const_int(n, 2, 1);
    if (n->failed) return;
    if (start->count != 1 || limit->count != 1 || delta == 0 || delta == INT64_MIN) {
        onnx_reject(n, "start and limit must be scalars and delta not 0");
        return;
    }
    ir_dim count = range_count(n->dims, start->ints[0], limit->ints[0], delta);
    bool symbolic = start->ints[0] < IR_DIM_LOWEST;
    ir_value *v = ramp(n, dtype, count, symbolic ? 0 : (double)start->ints[0], (double)delta);
    if (symbolic) {
        ir_value *from = ir_reshape(n->b, onnx_dims_value(n, start->ints, 1), NULL, 0);
        v = ir_binary(n->b, IR_OP_add, v, ir_cast(n->b, from, dtype));
    }
    n->out[0] = v;
}

void onnx_lower_range(onnx_node *n)
{
    ir_dtype dtype = n->in[0]->type.dtype;
    if (n->in[1]->type.dtype != dtype || n->in[2]->type.dtype != dtype)
        onnx_reject(n, "start, limit and delta differ in type");
    else if (ir_dtype_is_float(dtype)) range_float(n, dtype);
    else range_int(n, dtype);
}
