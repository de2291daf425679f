/* safetensors_format.h - what the reader and the writer of .safetensors share; private to them. */
#ifndef RT_SAFETENSORS_FORMAT_H
#define RT_SAFETENSORS_FORMAT_H

#include "ir/diag.h"
#include "ir/dtype.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define RT_ST_METADATA "__metadata__"
#define RT_ST_HASH_KEY "xxh3"                /* of the header */
#define RT_ST_HASH_PREFIX RT_ST_HASH_KEY "." /* of tensor NAME: prefix + NAME */
#define RT_ST_NO_HASH "0000000000000000"     /* stands for the header's own hash while hashing it */

enum { RT_ST_LENGTH_BYTES = 8, RT_ST_HEADER_LIMIT = 100000000, RT_ST_HASH_DIGITS = 16 };

typedef struct rt_st_type {
    const char *name;
    unsigned bits;
    ir_dtype dtype; /* IR_NO_DTYPE: can be carried, not computed with */
} rt_st_type;

const rt_st_type *rt_st_type_by_name(const char *name); /* NULL when unknown */
const rt_st_type *rt_st_type_by_dtype(ir_dtype dtype);  /* never NULL for a dtype of ours */

/* The 16 digits inside the header's text that hold its own hash; NULL when it has none in our form. */
char *rt_st_header_hash(char *header, size_t n);

/* XXH3-64 and XXH3-128 as lower-case digits, terminated. */
void rt_st_hash64(uint64_t hash, char dst[17]);
void rt_st_hash128(const void *data, size_t n, char dst[33]);

/* Whether the file open as `fd` holds this table and for each tensor the bytes whose hash the table records.
 * AMPC_REJECTED (not), AMPC_IO, AMPC_NO_MEMORY. */
ampc_status rt_st_check(int fd, const char *path, const json_t *table, diag *d);

#endif
