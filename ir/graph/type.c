/* type.c - dtype and shape of a value. */
#include "ir/graph/ir.h"
#include "ir/ops/shape_text.h"

#include <assert.h>

bool ir_type_same_shape(const ir_type *a, const ir_type *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

bool ir_type_may_have_shape(ir_dim_table *t, const ir_type *a, const ir_type *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (!ir_dim_may_equal(t, a->dims[i], b->dims[i])) return false;
    return true;
}

bool ir_type_equal(const ir_type *a, const ir_type *b) { return a->dtype == b->dtype && ir_type_same_shape(a, b); }

ir_type ir_type_scalar(ir_dtype t) { return (ir_type){.dtype = t}; }

ir_type ir_type_make(ir_dtype t, int rank, const int64_t *dims)
{
    assert(rank >= 0 && rank <= IR_MAX_RANK); /* the parser and infer reject more dimensions */
    ir_type type = {.dtype = t, .rank = rank};
    for (int i = 0; i < rank; i++) type.dims[i] = dims[i];
    return type;
}

ir_dim ir_type_count(ir_dim_table *t, const ir_type *type) { return ir_dim_product(t, type->dims, type->rank); }

bool ir_type_is_static(const ir_type *type)
{
    for (int i = 0; i < type->rank; i++)
        if (type->dims[i] < 0) return false;
    return true;
}

ir_type ir_type_shard(const ir_type *whole, int64_t ranks)
{
    int64_t count = 1;
    for (int i = 0; i < whole->rank; i++) count *= whole->dims[i];
    return (ir_type){.dtype = whole->dtype, .rank = 1, .dims = {count / ranks + (count % ranks != 0)}};
}

const char *ir_type_print(const ir_module *m, const ir_type *type, arena *a)
{
    text_buffer t = {.arena = a};
    ir_shape_add(&t, ir_dtype_name(type->dtype), m->dims, type->rank, type->dims);
    return text_finish(&t);
}
