/* checkpoint.h - the whole state of a training run in one safetensors file, and folders of such files.
 *
 *   key               storage of the session, by its role (ir/roles.def)
 *   param/NAME        parameter NAME (the f32 master)
 *   opt/SLOT/NAME     slot of an optimizer for parameter NAME
 *   rng/state         what dropout draws by
 *   state/ROLE        states of training: lr, step, loss_scale, good_steps, bad_steps
 *   buf/NAME          every other state (BatchNormalization statistics)
 *   data/position     no storage: seed, epoch, batch of the data (i64[3])
 *
 * `__metadata__` repeats step, epoch, loss scale and counters in readable form and holds the schedule, the hash
 * of the model and XXH3 of every tensor. A file is written atomically and only then an older one removed;
 * a reader verifies everything before the first byte of the session changes. */
#ifndef RT_CHECKPOINT_H
#define RT_CHECKPOINT_H

#include "runtime/data/data.h"
#include "runtime/train/schedule.h"
#include "runtime/session/session.h"

/* The part of a run's state that is not in the session. */
typedef struct rt_run_state {
    rt_position position;
    uint64_t step;    /* steps run, skipped ones included; numbers the file */
    uint64_t skipped; /* of them */
    uint64_t stuck;   /* consecutive skips with the loss scale at its floor */
    int64_t batch;    /* samples in a batch, 0: not known */
    int64_t rows;     /* samples of the data set, 0: not known */
    char schedule[RT_SCHEDULE_TEXT];
} rt_run_state;

/* Identity of a compiled module: XXH3-128 of its storage table and the text of all nodes. Initial weights and where
 * they lie do not count. */
ampc_status rt_model_hash(const ir_module *m, diag *d, char hash[33]);
/* The key of a parameter or state, malloced; NULL when memory is exhausted. */
char *rt_checkpoint_key(const ir_storage *s);
/* Whether it is a parameter or buffer of the model. */
bool rt_checkpoint_is_weight(const ir_storage *s);

ampc_status rt_checkpoint_write(rt_session *s, const ir_module *m, const rt_run_state *run,
                                const char *path, diag *d);

typedef enum rt_checkpoint_part {
    RT_CHECKPOINT_ALL, /* to go on training: same model hash, every tensor */
    RT_CHECKPOINT_WEIGHTS /* param/ and buf/ of any module that has these names and types (eval, export) */
} rt_checkpoint_part;

/* On failure nothing has changed. AMPC_REJECTED for a damaged file or one of another model (the message says which,
 * with file and tensor), AMPC_IO, AMPC_NO_MEMORY. `run` may be NULL. */
ampc_status rt_checkpoint_read(rt_session *s, const ir_module *m, const char *path,
                               rt_checkpoint_part part, diag *d, rt_run_state *run);

/* ---- folders: ckpt-<step, 10 digits>.safetensors ---- */

/* Makes the folder if it is absent (not its parents) and removes temporary files of dead writers. */
ampc_status rt_checkpoint_folder(const char *folder, diag *d);
/* Path of the newest file, malloced; NULL in *path when there is none. */
ampc_status rt_checkpoint_newest(const char *folder, diag *d, char **path);
/* Writes ckpt-<run->step>, then removes the oldest files beyond `keep` (at least 2). */
ampc_status rt_checkpoint_put(rt_session *s, const ir_module *m, const rt_run_state *run,
                              const char *folder, int keep, diag *d);
/* Loads the newest file: its malloced path in *path, NULL when the folder holds none (AMPC_OK, nothing loaded). When
 * that file is damaged: AMPC_REJECTED, or with allow_fallback a warning, the file gets the ending ".damaged", and the
 * next older one is tried. When it cannot be read (AMPC_IO, AMPC_NO_MEMORY) no file is renamed and none tried. */
ampc_status rt_checkpoint_resume(rt_session *s, const ir_module *m, const char *folder,
                                 bool allow_fallback, diag *d, rt_run_state *run, char **path);

#endif
