/* weights.h - reading the initial values of storage.
 *
 * Files stay open, up to RT_WEIGHT_FILES of them: those may be renamed or removed, and are still read. */
#ifndef RT_WEIGHTS_H
#define RT_WEIGHTS_H

#include "ir/graph/ir.h"
#include "runtime/files/atomic_file.h"

typedef struct rt_weights rt_weights;

enum { RT_WEIGHT_FILES = 8 };

/* `dir`: folder that relative paths refer to; NULL: "."; it is copied. The module must outlive the reader, and so must
 * the diag, unless another one replaces it. */
ampc_status rt_weights_open(const ir_module *m, const char *dir, diag *d, rt_weights **out);
/* Reads ir_storage_bytes(s) bytes into dst. */
ampc_status rt_weights_read(rt_weights *w, const ir_storage *s, void *dst);
/* Reads n bytes at offset `from` of a storage whose data is a range of a file; `weights` is the reader. */
ampc_status rt_weights_read_part(void *weights, const ir_storage *s, uint64_t from, void *dst, size_t n);
/* Fails as a read would, except for an error of the disk; keeps nothing. */
ampc_status rt_weights_check(rt_weights *w, const ir_storage *s);
/* Whether the storage can still be read if its file is removed. */
bool rt_weights_hold(const rt_weights *w, const ir_storage *s);
/* Errors are reported here from now on. */
void rt_weights_report_to(rt_weights *w, diag *d);
void rt_weights_close(rt_weights *w); /* NULL allowed */

/* Writes every parameter, state and constant that is neither small nor zero to a safetensors sidecar at `path`, which
 * the caller commits or aborts. `refer`: the module keeps referring to files, so only values in memory are written; if
 * there are none, *out is NULL. `dir` is the folder of the current weight files. Sets m->weights_path (the base name)
 * and m->weights_hash, and changes the data of these storages to IR_DATA_SIDECAR. */
ampc_status rt_weights_write(ir_module *m, const char *dir, const char *path, bool refer, diag *d,
                             rt_atomic_file **out);

#endif
