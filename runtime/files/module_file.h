/* module_file.h - a compiled module as two files: its text, and its weights in a sidecar. */
#ifndef RT_MODULE_FILE_H
#define RT_MODULE_FILE_H

#include "ir/ir.h"

/* Writes the text to `path`, and unless `weights` is NULL every storage that is neither brief nor zero to a sidecar of
 * that name, where the module finds them from then on (`dir`: where its weights are relative to now). Both files
 * appear or neither, and after a failure the module is as it was. AMPC_IO, AMPC_REJECTED (weights that cannot be
 * read), AMPC_NO_MEMORY. */
ampc_status rt_module_save(ir_module *m, const char *dir, const char *path, const char *weights, diag *d);

#endif
