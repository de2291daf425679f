/* safetensors.h - reading and writing .safetensors files: weights sidecars and checkpoints.
 *
 * Layout: u64 little-endian N, N bytes of JSON, data. Every file that we write records XXH3-64 of each
 * tensor in `__metadata__` under "xxh3.NAME", and under "xxh3" that of the header itself (its own value
 * counted as sixteen zeros), so that any flipped bit is found. Values are 16 hexadecimal digits.
 * Readable by every safetensors library. */
#ifndef RT_SAFETENSORS_H
#define RT_SAFETENSORS_H

#include "ir/diag.h"
#include "ir/dtype.h"
#include "runtime/files/atomic_file.h"

#include <stdint.h>

/* ---- reading: open checks the whole table, tensor data stay in the file until asked for ---- */

typedef struct rt_safetensors rt_safetensors;

typedef struct rt_tensor_entry {
    const char *name;
    const char *type; /* the file's word: "F32" */
    ir_dtype dtype; /* IR_NO_DTYPE when ours has no such type; the bytes can be read all the same */
    int rank;
    const int64_t *dims;
    uint64_t offset; /* from the start of the file */
    uint64_t bytes;
} rt_tensor_entry;

typedef enum rt_verify {
    RT_VERIFY_NONE,     /* bounds and structure only */
    RT_VERIFY_RECORDED, /* the hashes that the file records */
    RT_VERIFY_ALL       /* every tensor and the header must have one: checkpoints */
} rt_verify;

/* Refused (AMPC_REJECTED, a message of its own each): short file, header too long or reaching past the
 * end, not JSON, duplicate key, unknown type, bad shape or offsets, hole, overlap, size overflow or
 * mismatch, trailing bytes, wrong header hash. `path` is copied; `d` must outlive the reader. */
ampc_status rt_safetensors_open(const char *path, rt_verify verify, diag *d, rt_safetensors **out);
/* The same for a descriptor, which is the file's from now on; -1, with errno: opening it has failed. */
ampc_status rt_safetensors_adopt(int fd, const char *path, rt_verify verify, diag *d, rt_safetensors **out);
void rt_safetensors_close(rt_safetensors *f); /* NULL allowed */

size_t rt_safetensors_count(const rt_safetensors *f);
const rt_tensor_entry *rt_safetensors_entry(const rt_safetensors *f, size_t index); /* by offset */
const rt_tensor_entry *rt_safetensors_find(const rt_safetensors *f, const char *name); /* or NULL */
/* NULL when absent. */
const char *rt_safetensors_metadata(const rt_safetensors *f, const char *key);
/* XXH3-128 of the header as 32 digits: the identity of a file that we wrote, as the header holds the
 * hash of every tensor. */
const char *rt_safetensors_hash(const rt_safetensors *f);

/* All e->bytes bytes into dst; verified as the file was opened. AMPC_REJECTED, AMPC_IO. Thread-safe. */
ampc_status rt_safetensors_read(const rt_safetensors *f, const rt_tensor_entry *e, void *dst);

/* ---- writing: declare everything, then commit ---- */

typedef struct rt_safetensors_writer rt_safetensors_writer;

/* Puts the next n bytes of a tensor at dst. `offset` counts from the tensor's first byte. */
typedef ampc_status rt_tensor_source(void *user, uint64_t offset, void *dst, size_t n);

/* `d` must outlive the writer. AMPC_NO_MEMORY. */
ampc_status rt_safetensors_create(diag *d, rt_safetensors_writer **out);
/* Key and value are copied; a key given twice or beginning with "xxh3" is a bug of the caller. */
ampc_status rt_safetensors_put_metadata(rt_safetensors_writer *w, const char *key,
                                        const char *value);
/* Name and dims are copied; `data` must live until commit. AMPC_REJECTED for a name given twice or no
 * UTF-8 ("__metadata__" included), and for a size overflow. */
ampc_status rt_safetensors_add(rt_safetensors_writer *w, const char *name, ir_dtype dtype, int rank,
                               const int64_t *dims, const void *data);
/* The same, with the bytes asked for in order during commit, in pieces. */
ampc_status rt_safetensors_add_source(rt_safetensors_writer *w, const char *name, ir_dtype dtype,
                                      int rank, const int64_t *dims, rt_tensor_source *source,
                                      void *user);
/* Writes the file and reads it back; the caller commits or aborts it. Tensors by falling element size, then name.
 * `hash` (33 bytes, may be NULL) gets what rt_safetensors_hash would say. Frees w, also on failure. */
ampc_status rt_safetensors_write(rt_safetensors_writer *w, const char *path, char *hash, rt_atomic_file **out);
/* The same, committed. */
ampc_status rt_safetensors_commit(rt_safetensors_writer *w, const char *path, char *hash);
void rt_safetensors_discard(rt_safetensors_writer *w); /* NULL allowed */

#endif
