/* operand.c - operands that must be known at compile time: shapes, axes, amounts, switches. */
#include "frontend/lower/lower.h"

#include <string.h>

static const char *operand_name(const onnx_node *n, int i) { return n->proto->input[i]; }

/* A float initializer may be trained, so it only counts as known where the operator cannot be compiled otherwise, for
 * example the ratio of a Dropout. Reading it makes it a constant. Converters to float16 widen it again for operators
 * that want f32. */
static const ir_const_value *const_initializer(onnx_node *n, const ir_value *v)
{
    while (v->kind == IR_VALUE_RESULT && ir_op_has(v->def->op, IR_CONVERTS)) {
        const ir_value *from = ir_in(v->def, 0);
        const ir_dtype wide = v->type.dtype, narrow = from->type.dtype;
        if (!ir_dtype_is_float(wide) || !ir_dtype_is_float(narrow) || ir_dtype_size(wide) <= ir_dtype_size(narrow))
            break;
        v = from;
    }
    if (v->kind != IR_VALUE_STORAGE || v->storage->data.kind != IR_DATA_INLINE) return NULL;
    ir_storage *s = v->storage;
    if (!ir_dtype_is_float(s->type.dtype)) return NULL;
    s->facts |= IR_TENSOR(read);
    ir_const_value *c = arena_alloc(n->importer->scratch, sizeof *c);
    c->type = s->type;
    c->count = ir_storage_bytes(s) / (int64_t)ir_dtype_size(s->type.dtype);
    double *floats = arena_array(n->importer->scratch, (size_t)c->count + 1, sizeof *floats);
    const unsigned char *bytes = s->data.bytes;
    for (int64_t i = 0; i < c->count; i++)
        floats[i] = ir_load_f64(s->type.dtype, bytes + (size_t)i * ir_dtype_size(s->type.dtype));
    c->floats = floats;
    return c;
}

/* A value that depends on sizes may become known once they are. */
static ir_dim last_size(const onnx_node *n)
{
    size_t count = ir_dim_symbol_count(n->dims);
    while (count > 0 && onnx_is_data_dim(n->importer, ir_dim_symbol_name(n->dims, count - 1))) count--;
    return count ? ir_dim_symbol(n->dims, ir_dim_symbol_name(n->dims, count - 1)) : IR_DIM_NONE;
}

static const ir_const_value *const_or_refuse(onnx_node *n, int i, const ir_const_value *c)
{
    if (!c)
        onnx_refuse_dim(n, last_size(n), "input %d ('%s') is computed at run time, but must be known at compile time",
                        i, operand_name(n, i));
    return c;
}

const ir_const_value *onnx_const(onnx_node *n, int i)
{
    const ir_value *v = onnx_in(n, i);
    return v ? const_or_refuse(n, i, ir_const_get(n->importer->consts, v)) : NULL;
}

const ir_const_value *onnx_const_numbers(onnx_node *n, int i)
{
    const ir_value *v = onnx_in(n, i);
    if (!v) return NULL;
    return const_or_refuse(n, i, onnx_known_numbers(n, n->importer->consts, v));
}

const ir_const_value *onnx_known_numbers(onnx_node *n, ir_const_map *consts, const ir_value *v)
{
    const ir_const_value *c = ir_const_get(consts, v);
    return c ? c : const_initializer(n, v);
}

const ir_const_value *onnx_const_sizing(onnx_node *n, int i)
{
    const ir_const_value *c = onnx_known_numbers(n, n->importer->consts, n->in[i]);
    bool is_known = c != NULL;
    for (int64_t k = 0; is_known && c->ints && k < c->count; k++) is_known = !ir_dim_is_symbolic(c->ints[k]);
    return is_known ? c : NULL;
}

onnx_list onnx_const_list(onnx_node *n, int i)
{
    if (!onnx_in(n, i)) return (onnx_list){0};
    const ir_const_value *c = onnx_const(n, i);
    if (c && (!c->ints || c->type.rank > 1 || c->count > (1 << 20))) {
        onnx_reject(n, "input %d ('%s') must be a list of integers", i, operand_name(n, i));
        c = NULL;
    }
    if (!c) return (onnx_list){.present = true};
    return (onnx_list){c->ints, (int)c->count, true};
}

onnx_list onnx_const_shape(onnx_node *n, int i)
{
    onnx_list shape = onnx_const_list(n, i);
    if (shape.count > ONNX_MAX_RANK) onnx_refuse(n, "rank %d is not supported", shape.count);
    for (int k = 0; k < shape.count; k++)
        if (shape.items[k] < 0 && !ir_dim_is_symbolic(shape.items[k]))
            onnx_reject(n, "dimension %d is negative (%lld)", k, (long long)shape.items[k]);
    return shape;
}

static const ir_const_value *const_single(onnx_node *n, int i)
{
    const ir_const_value *c = onnx_const_numbers(n, i);
    if (!c || c->count == 1) return c;
    onnx_reject(n, "input %d ('%s') must have one element, not %lld", i, operand_name(n, i), (long long)c->count);
    return NULL;
}

double onnx_const_float(onnx_node *n, int i, double otherwise)
{
    const ir_const_value *c = onnx_in(n, i) ? const_single(n, i) : NULL;
    if (!c) return otherwise;
    if (c->floats) return c->floats[0];
    return (double)onnx_size(n, c->ints[0], operand_name(n, i));
}

int64_t onnx_const_int(onnx_node *n, int i, int64_t otherwise)
{
    const ir_const_value *c = onnx_in(n, i) ? const_single(n, i) : NULL;
    if (!c) return otherwise;
    if (c->ints) return onnx_size(n, c->ints[0], operand_name(n, i));
    onnx_reject(n, "input %d ('%s') must be an integer", i, operand_name(n, i));
    return otherwise;
}

onnx_list onnx_list_since(onnx_node *n, const char *attribute, int i, int since)
{
    if (n->opset < since) return onnx_ints(n, attribute);
    return onnx_const_list(n, i);
}

int64_t onnx_size(onnx_node *n, ir_dim d, const char *what)
{
    if (d >= IR_DIM_LOWEST) return d;
    if (d == IR_DIM_NONE) onnx_refuse(n, "%s is not computable, but must be a number", what);
    else onnx_refuse_dim(n, d, "%s is %s, but must be a number", what, ir_dim_print(n->dims, d, n->importer->scratch));
    return 1;
}

bool onnx_numeric(onnx_node *n, onnx_list list, const char *what)
{
    for (int i = 0; i < list.count; i++)
        if (list.items[i] < IR_DIM_LOWEST) {
            onnx_size(n, list.items[i], what);
            return false;
        }
    return true;
}

int onnx_axis(onnx_node *n, ir_dim axis, int rank)
{
    if (axis >= -rank && axis < rank) return (int)(axis < 0 ? axis + rank : axis);
    if (ir_dim_is_symbolic(axis)) onnx_size(n, axis, "an axis");
    else onnx_reject(n, "axis %lld is out of range for rank %d", (long long)axis, rank);
    return 0;
}

void onnx_axes(onnx_node *n, onnx_list axes, int rank, bool *set)
{
    memset(set, 0, (size_t)rank * sizeof *set);
    for (int i = 0; i < axes.count && !n->failed; i++) {
        int axis = onnx_axis(n, axes.items[i], rank);
        if (n->failed) return;
        if (set[axis]) onnx_reject(n, "duplicate axis %d", axis);
        set[axis] = true;
    }
}

ir_value *onnx_dims_value(onnx_node *n, const ir_dim *items, int count)
{
    ir_node *node = ir_new(n->b, IR_OP_dims, 0);
    ir_set_list(node, IR_ATTR(dims, value), items, count);
    return ir_done(n->b, node);
}

ir_value *onnx_scalar_of(onnx_node *n, ir_value *v)
{
    if (!v || v->type.rank == 0) return v;
    for (int i = 0; i < v->type.rank; i++)
        if (!ir_dim_may_equal(n->dims, v->type.dims[i], 1)) {
            onnx_reject(n, "'%s' must be a scalar", v->name);
            return NULL;
        }
    return ir_reshape(n->b, v, NULL, 0);
}
