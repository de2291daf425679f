/* npy.h - NumPy's .npy files, format versions 1.0, 2.0 and 3.0, little-endian only. Fortran order becomes row-major.
 *
 * dtypes: f8 f4 f2 i8 i4 i2 i1 u1 b1. NumPy has no bf16, so bf16 is written as its bit patterns in <u2
 * (`(a.astype(np.uint32) << 16).view(np.float32)` decodes them), and <u2 is read only if the caller expects bf16.
 * Format: numpy.lib.format. */
#ifndef RT_NPY_H
#define RT_NPY_H

#include "ir/base/diag.h"
#include "runtime/data/array.h"

/* `u2_as`: IR_bf16 to read <u2 as bf16 bit patterns, otherwise it is u16. Fails with AMPC_REJECTED for a
 * malformed, short or long file, AMPC_IO or AMPC_NO_MEMORY; *out is then unchanged. */
ampc_status rt_npy_read(const char *path, ir_dtype u2_as, diag *d, rt_array *out);
/* The same from a stream of `size` bytes. `read` delivers exactly n bytes or reports an error; it is never called for
 * more than `size` bytes in total. `loc` is the place in messages. */
typedef struct rt_npy_source {
    diag_loc loc;
    uint64_t size;
    ampc_status (*read)(void *user, void *dst, size_t n);
    void *user;
    bool *text; /* NULL: strings are refused; else set for them, and *out is unchanged */
} rt_npy_source;

ampc_status rt_npy_load(const rt_npy_source *source, ir_dtype u2_as, diag *d, rt_array *out);

/* Stores the bytes before the data, of version 1.0, at dst, which holds RT_NPY_HEADER_MAX bytes. Returns their number,
 * a multiple of 64. */
enum { RT_NPY_HEADER_MAX = 1024 };
size_t rt_npy_header(const rt_array *a, unsigned char *dst);

#endif
