/* checkpoint_file.h - a checkpoint read and verified, not yet loaded; private to checkpoint*.c. */
#ifndef RT_CHECKPOINT_FILE_H
#define RT_CHECKPOINT_FILE_H

#include "runtime/train/checkpoint.h"

typedef struct rt_checkpoint_file rt_checkpoint_file;

/* Reads everything and verifies its hashes. AMPC_REJECTED: the content is wrong, whatever the machine's state;
 * AMPC_IO, AMPC_NO_MEMORY: it could not be read now.
 * `d` must outlive the file. */
ampc_status rt_checkpoint_file_open(const char *path, diag *d, rt_checkpoint_file **out);
/* Later messages go to `d` instead. */
void rt_checkpoint_file_report_to(rt_checkpoint_file *f, diag *d);
/* Checks that all of it fits and then copies; fails before the copy only. `run` may be NULL. */
ampc_status rt_checkpoint_file_load(rt_checkpoint_file *f, rt_session *s, const ir_module *m,
                                    rt_checkpoint_part part, rt_run_state *run);
void rt_checkpoint_file_free(rt_checkpoint_file *f); /* NULL allowed */

#endif
