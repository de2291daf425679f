/* recorder.h - what a training writes while it runs: a step log (log.h) and TensorBoard events (events.h). */
#ifndef RT_RECORDER_H
#define RT_RECORDER_H

#include "runtime/train/events.h"
#include "runtime/train/log.h"
#include "runtime/train/trainer.h"

typedef struct rt_recorder rt_recorder;

typedef struct rt_recorder_options {
#define RECORDER(name, member, kind, ...) RT_OPTION_##kind member;
#include "ir/base/options.def"
    /* Folder of the checkpoints, which identifies the run in the log; NULL: none. */
    const char *checkpoints;
    bool resumed;
    const char *model; /* for the header of the log, like the data; NULL: unknown */
    uint64_t seed;     /* likewise */
} rt_recorder_options;

/* Opens the files of a run of the trainer. `step`: the last step of the checkpoint that it continues, or 0. `d` must
 * outlive the recorder. */
ampc_status rt_recorder_open(const rt_recorder_options *o, const rt_trainer *t, const ir_module *m, uint64_t step,
                             diag *d, rt_recorder **out);
ampc_status rt_recorder_step(rt_recorder *r, const rt_step_record *s);
/* Records the values of an evaluation after that step. */
ampc_status rt_recorder_evaluation(rt_recorder *r, uint64_t step, const rt_eval *eval);
/* Flushes everything to the disk. */
ampc_status rt_recorder_sync(rt_recorder *r);
ampc_status rt_recorder_close(rt_recorder *r); /* NULL allowed */

#endif
