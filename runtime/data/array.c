/* array.c - ownership and size arithmetic of host arrays. */
#include "runtime/data/array.h"

#include <stdlib.h>
#include <string.h>

void rt_array_clear(rt_array *a)
{
    free(a->name);
    free(a->data);
    *a = (rt_array){0};
}

bool rt_array_bytes(ir_dtype dtype, int rank, const int64_t *dims, size_t *bytes)
{
    /* A zero dimension makes the array empty, but the other dimensions must still be valid. */
    bool empty = false;
    size_t total = ir_dtype_size(dtype);
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0) return false;
        if (dims[i] == 0) empty = true;
        else if (__builtin_mul_overflow(total, (size_t)dims[i], &total) || total > PTRDIFF_MAX) return false;
    }
    *bytes = empty ? 0 : total;
    return true;
}

void rt_arrays_clear(rt_arrays *a)
{
    for (size_t i = 0; i < a->count; i++) rt_array_clear(&a->items[i]);
    free(a->items);
    *a = (rt_arrays){0};
}

const rt_array *rt_arrays_find(const rt_arrays *a, const char *name)
{
    for (size_t i = 0; i < a->count; i++)
        if (a->items[i].name && strcmp(a->items[i].name, name) == 0) return &a->items[i];
    return NULL;
}
