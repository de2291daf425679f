/* shape_text.c - prints element types and shapes. */
#include "ir/ops/shape_text.h"

#include <inttypes.h>

void ir_shape_add(text_buffer *t, const char *dtype, const ir_dim_table *table, int rank, const int64_t *dims)
{
    text_add(t, "%s[", dtype);
    for (int i = 0; i < rank; i++) {
        if (i) text_put(t, ",");
        if (table) ir_dim_add_text(t, table, dims[i]);
        else text_add(t, "%" PRId64, dims[i]);
    }
    text_put(t, "]");
}

const char *ir_shape_text(char out[IR_SHAPE_TEXT], const char *dtype, int rank, const int64_t *dims)
{
    text_buffer t = text_in(out, IR_SHAPE_TEXT);
    ir_shape_add(&t, dtype, NULL, rank, dims);
    return out;
}
