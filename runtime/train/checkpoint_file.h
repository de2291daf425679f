/* checkpoint_file.h - a checkpoint that was read and verified but not loaded; private to checkpoint*.c. */
#ifndef RT_CHECKPOINT_FILE_H
#define RT_CHECKPOINT_FILE_H

#include "runtime/train/checkpoint.h"

typedef struct rt_checkpoint_file rt_checkpoint_file;

/* Reads the file and verifies its hashes. Fails with AMPC_REJECTED if the content is invalid, AMPC_IO or
 * AMPC_NO_MEMORY if it could not be read, which may succeed later. `d` must outlive the file. */
ampc_status rt_checkpoint_file_open(const char *path, diag *d, rt_checkpoint_file **out);
/* Sends later messages to `d`. */
void rt_checkpoint_file_report_to(rt_checkpoint_file *f, diag *d);
/* Checks that all tensors fit, then copies them; never fails after copying has started. `run` may be NULL. */
ampc_status rt_checkpoint_file_load(rt_checkpoint_file *f, rt_session *s, const ir_module *m, rt_checkpoint_part part,
                                    rt_run_state *run);
void rt_checkpoint_file_free(rt_checkpoint_file *f); /* NULL allowed */

#endif
