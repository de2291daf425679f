/* convert.h - the conversion of numbers that come from outside: files, arrays of the caller, parameters. */
#ifndef RT_CONVERT_H
#define RT_CONVERT_H

#include "ir/base/diag.h"
#include "ir/ops/dtype.h"

#include <stddef.h>

/* ir_convert of n elements of `what`. AMPC_REJECTED, naming the first one, if a finite number becomes infinite. */
ampc_status rt_convert(ir_dtype to, void *dst, ir_dtype from, const void *src, size_t n, diag_loc loc, const char *what,
                       diag *d);

#endif
