/* module_file.h - saving a compiled module as two files: its text, and its weights in a sidecar. */
#ifndef RT_MODULE_FILE_H
#define RT_MODULE_FILE_H

#include "ir/graph/ir.h"

/* Writes the module's text to `path`, and every storage that is neither small nor zero to a sidecar named `weights`,
 * from which the module reads them afterwards. `refer`: ranges of files remain references, and without other storages
 * there is no sidecar. `dir` is the folder of the module's
 * current weight files. Either both files are replaced or neither; on failure the module is unchanged. Fails with
 * AMPC_IO, AMPC_REJECTED (unreadable weights) or AMPC_NO_MEMORY. */
ampc_status rt_module_save(ir_module *m, const char *dir, const char *path, const char *weights, bool refer, diag *d);

#endif
