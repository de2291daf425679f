/* safetensors.h - reading and writing .safetensors files: weight sidecars and checkpoints.
 *
 * Layout: N as little-endian u64, N bytes of JSON, data. Every file that we write records in `__metadata__` the
 * XXH3-64 of each tensor under "xxh3.NAME", and that of the header under "xxh3" (computed with zeros in place of its
 * own digits), so any flipped bit is detected. Hashes are 16 hexadecimal digits. Every safetensors library can read
 * the files. */
#ifndef RT_SAFETENSORS_H
#define RT_SAFETENSORS_H

#include "ir/base/diag.h"
#include "ir/ops/dtype.h"
#include "runtime/files/atomic_file.h"

#include <stdint.h>

/* ---- reading: opening checks the complete table; tensor data are read on request ---- */

typedef struct rt_safetensors rt_safetensors;

typedef struct rt_tensor_entry {
    const char *name;
    const char *type; /* type name in the file: "F32" */
    ir_dtype dtype;   /* IR_NO_DTYPE: the IR has no such type; the bytes can still be read */
    int rank;
    const int64_t *dims;
    uint64_t offset; /* from the start of the file */
    uint64_t bytes;
} rt_tensor_entry;

typedef enum rt_verify {
    RT_VERIFY_NONE,     /* bounds and structure only */
    RT_VERIFY_RECORDED, /* the hashes that the file records */
    RT_VERIFY_ALL       /* every tensor and the header must have a hash: checkpoints */
} rt_verify;

/* Opens a file and checks its table. Fails with AMPC_REJECTED, with a specific message, for: short file, header too
 * long or extending past the end, invalid JSON, duplicate key, unknown type, bad shape or offsets, gap, overlap, size
 * overflow or mismatch, trailing bytes, wrong header hash. `path` is copied; `d` must outlive the reader. */
ampc_status rt_safetensors_open(const char *path, rt_verify verify, diag *d, rt_safetensors **out);
/* The same for an open descriptor, of which the reader becomes the owner. fd -1, with errno set: opening failed. */
ampc_status rt_safetensors_adopt(int fd, const char *path, rt_verify verify, diag *d, rt_safetensors **out);
void rt_safetensors_close(rt_safetensors *f); /* NULL allowed */

size_t rt_safetensors_count(const rt_safetensors *f);
const rt_tensor_entry *rt_safetensors_entry(const rt_safetensors *f, size_t index);    /* by offset */
const rt_tensor_entry *rt_safetensors_find(const rt_safetensors *f, const char *name); /* NULL if there is none */
/* NULL if there is no such key. */
const char *rt_safetensors_metadata(const rt_safetensors *f, const char *key);
/* XXH3-128 of the header as 32 digits. It identifies a file that we wrote, because the header contains the hash of
 * every tensor. */
const char *rt_safetensors_hash(const rt_safetensors *f);

/* Errors are reported here from now on. */
void rt_safetensors_report_to(rt_safetensors *f, diag *d);
/* Reads all e->bytes bytes into dst and verifies them as requested at opening. Fails with AMPC_REJECTED or AMPC_IO.
 * Thread-safe. */
ampc_status rt_safetensors_read(const rt_safetensors *f, const rt_tensor_entry *e, void *dst);
/* The same without keeping the bytes. */
ampc_status rt_safetensors_verify(const rt_safetensors *f, const rt_tensor_entry *e);

/* ---- writing: declare everything, then commit ---- */

typedef struct rt_safetensors_writer rt_safetensors_writer;

/* Stores bytes `offset` .. offset+n-1 of a tensor at dst. */
typedef ampc_status rt_tensor_source(void *user, uint64_t offset, void *dst, size_t n);

/* `d` must outlive the writer. AMPC_NO_MEMORY. */
ampc_status rt_safetensors_create(diag *d, rt_safetensors_writer **out);
/* Copies key and value. A duplicate key, or one that begins with "xxh3", is a programming error. */
ampc_status rt_safetensors_put_metadata(rt_safetensors_writer *w, const char *key, const char *value);
/* Adds a tensor. Copies name and dims; `data` must live until commit. Fails with AMPC_REJECTED for a name that is not
 * UTF-8 or is "__metadata__", or a size overflow. */
ampc_status rt_safetensors_add(rt_safetensors_writer *w, const char *name, ir_dtype dtype, int rank,
                               const int64_t *dims, const void *data);
/* The same for data that `source` provides during commit, in order and in chunks. */
ampc_status rt_safetensors_add_source(rt_safetensors_writer *w, const char *name, ir_dtype dtype, int rank,
                                      const int64_t *dims, rt_tensor_source *source, void *user);
/* Writes the file and reads it back; the caller commits or aborts it. Tensors are sorted by descending element size,
 * then by name; a duplicate name is AMPC_REJECTED. `hash` (33 bytes, may be NULL) receives the result of
 * rt_safetensors_hash. Frees w, also on failure. */
ampc_status rt_safetensors_write(rt_safetensors_writer *w, const char *path, char *hash, rt_atomic_file **out);
/* The same, and commits the file. */
ampc_status rt_safetensors_commit(rt_safetensors_writer *w, const char *path, char *hash);
void rt_safetensors_discard(rt_safetensors_writer *w); /* NULL allowed */

#endif
