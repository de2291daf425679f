/* array.h - named dense arrays in host memory: the contents of data files and the source of inputs. */
#ifndef RT_ARRAY_H
#define RT_ARRAY_H

#include "ir/ops/dtype.h"

#include <stddef.h>
#include <stdint.h>

enum { RT_ARRAY_MAX_RANK = 32 };

/* Row-major, packed, little-endian, as in the file. Owns name and data (malloc). */
typedef struct rt_array {
    char *name; /* NULL if the file has no name for it */
    ir_dtype dtype;
    int rank;
    int64_t dims[RT_ARRAY_MAX_RANK];
    size_t bytes;
    void *data; /* never NULL after reading, even for 0 bytes */
    bool text;  /* to be written: u32 characters, and the last dimension is the length of a string */
} rt_array;

void rt_array_clear(rt_array *a); /* frees what `a` owns and zeroes it */

/* Size in bytes of an array with these dims; false on overflow, a negative dim or a size above PTRDIFF_MAX. */
bool rt_array_bytes(ir_dtype dtype, int rank, const int64_t *dims, size_t *bytes);

/* The arrays of a file. */
typedef struct rt_arrays {
    rt_array *items;
    size_t count;
} rt_arrays;

void rt_arrays_clear(rt_arrays *a);
const rt_array *rt_arrays_find(const rt_arrays *a, const char *name); /* NULL if absent */

#endif
