/* weights.h - the initial bytes of storage, many at a time: each weights file is opened and checked once. */
#ifndef RT_WEIGHTS_H
#define RT_WEIGHTS_H

#include "ir/ir.h"
#include "runtime/files/atomic_file.h"

typedef struct rt_weights rt_weights;

/* `dir`: folder against which relative paths are taken; NULL: ".". Both and the diag must outlive the reader. */
ampc_status rt_weights_open(const ir_module *m, const char *dir, diag *d, rt_weights **out);
/* ir_storage_bytes(s) bytes into dst. */
ampc_status rt_weights_read(rt_weights *w, const ir_storage *s, void *dst);
/* n bytes at offset `from` of a storage that is a range of a file; `weights` is the reader. */
ampc_status rt_weights_read_part(void *weights, const ir_storage *s, uint64_t from, void *dst,
                                 size_t n);
void rt_weights_close(rt_weights *w); /* NULL allowed */

/* Writes every parameter, state and constant that is neither inline nor zero into a safetensors sidecar at `path`
 * (`dir`: where its bytes are relative to now), to be committed or aborted by the caller, sets m->weights_path (its
 * base name) and m->weights_hash and turns their data into IR_DATA_SIDECAR. */
ampc_status rt_weights_write(ir_module *m, const char *dir, const char *path, diag *d, rt_atomic_file **out);

#endif
