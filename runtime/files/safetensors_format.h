/* safetensors_format.h - definitions shared by the reader and the writer of .safetensors; private to them. */
#ifndef RT_SAFETENSORS_FORMAT_H
#define RT_SAFETENSORS_FORMAT_H

#include "ir/base/diag.h"
#include "ir/ops/dtype.h"

#include <stddef.h>
#include <stdint.h>

#define RT_ST_METADATA "__metadata__"
#define RT_ST_HASH_KEY "xxh3"                /* of the header */
#define RT_ST_HASH_PREFIX RT_ST_HASH_KEY "." /* of tensor NAME: prefix + NAME */
#define RT_ST_NO_HASH "0000000000000000"     /* in place of the header's own hash while hashing it */

enum { RT_ST_LENGTH_BYTES = 8, RT_ST_HEADER_LIMIT = 100000000, RT_ST_HASH_DIGITS = 16 };

typedef struct safetensors_type {
    const char *name;
    unsigned bits;
    ir_dtype dtype; /* IR_NO_DTYPE: can be read as bytes only */
} safetensors_type;

const safetensors_type *safetensors_type_by_name(const char *name); /* NULL if unknown */
const safetensors_type *safetensors_type_by_dtype(ir_dtype dtype);  /* never NULL for an IR dtype */

/* Finds the 16 digits of the header's own hash in its text; NULL if it has none in the form that we write. */
char *safetensors_header_hash(char *header, size_t n);

/* XXH3-64 and XXH3-128 as lower-case hexadecimal digits, NUL-terminated. */
void safetensors_hash64(uint64_t hash, char dst[17]);
void safetensors_hash128(const void *data, size_t n, char dst[33]);

/* Checks that the header of the file open as `fd` has this hash (safetensors_hash128), and each tensor the hash that
 * the header records. Fails with AMPC_REJECTED, AMPC_IO or AMPC_NO_MEMORY. */
ampc_status safetensors_check(int fd, const char *path, const char *hash, diag *d);

#endif
