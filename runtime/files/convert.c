/* convert.c - conversion that refuses numbers beyond the range of the type. */
#include "runtime/files/convert.h"

#include <math.h>

ampc_status rt_convert(ir_dtype to, void *dst, ir_dtype from, const void *src, size_t n, diag_loc loc, const char *what,
                       diag *d)
{
    const size_t size = ir_dtype_size(to), from_size = ir_dtype_size(from);
    ir_convert(to, dst, from, src, n);
    if (to == from || !ir_dtype_is_float(to)) return AMPC_OK;
    for (size_t i = 0; i < n; i++) {
        if (!isinf(ir_load_f64(to, (const char *)dst + i * size))) continue;
        const double number = ir_load_f64(from, (const char *)src + i * from_size);
        if (!isinf(number))
            return diag_error(d, AMPC_REJECTED, loc, "%s: element %zu is %.9g, which is beyond the range of %s", what,
                              i, number, ir_dtype_name(to));
    }
    return AMPC_OK;
}
