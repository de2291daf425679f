/* checkpoint.h - the complete state of a training in one safetensors file, and folders of such files.
 *
 *   key               storage of the session, by its role (ir/graph/roles.def)
 *   param/NAME        parameter NAME (f32 master weights)
 *   opt/SLOT/NAME     optimizer slot SLOT of parameter NAME
 *   rng/state         random number state of dropout
 *   state/ROLE        training states: lr, step, loss_scale, good_steps, bad_steps
 *   buf/NAME          every other state (BatchNormalization statistics)
 *   data/position     not a storage: seed, epoch, batch of the data (i64[3])
 *
 * `__metadata__` repeats step, epoch, loss scale and counters in readable form and contains the schedule, the name of
 * the file that the model was imported from, hashes of the module and its network, the optimizer, what the numbers of
 * the data stand for (rt_session_codes), and the XXH3 hash of every tensor. A file is written atomically, and older
 * ones are removed only afterwards. A reader verifies the complete file before it changes the session. */
#ifndef RT_CHECKPOINT_H
#define RT_CHECKPOINT_H

#include "runtime/data/data.h"
#include "runtime/train/monitor.h"
#include "runtime/train/schedule.h"
#include "runtime/session/session.h"

/* The state of a run that is not in the session. */
typedef struct rt_run_state {
    rt_position position;
    uint64_t step;        /* steps run, including skipped ones; part of the file name */
    uint64_t skipped;     /* how many of them were skipped */
    uint64_t stuck;       /* consecutive skips with the loss scale at its floor */
    int64_t batch;        /* batch size; 0: unknown */
    int64_t rows;         /* number of samples of the data set; 0: unknown */
    int64_t before_reset; /* steps accepted before the optimizer was last reset; the schedule counts them too */
    rt_plateau plateau;   /* of a schedule that depends on the losses */
    rt_monitor_state best, early_stop;
    char schedule[RT_SCHEDULE_TEXT];
} rt_run_state;

/* The key of a parameter or state, malloced; NULL if memory is exhausted. */
char *rt_checkpoint_key(const ir_storage *s);
/* True for a parameter or buffer of the model. */
/* Whether checkpoints have the storage: neither constants nor what is derived of a parameter. */
bool rt_checkpoint_has(const ir_storage *s);
bool rt_checkpoint_is_weight(const ir_storage *s);

/* Writes a checkpoint atomically. Fails with AMPC_IO or AMPC_NO_MEMORY. */
ampc_status rt_checkpoint_write(rt_session *s, const ir_module *m, const rt_run_state *run, const char *path, diag *d);

typedef enum rt_checkpoint_part {
    RT_CHECKPOINT_ALL,    /* to resume */
    RT_CHECKPOINT_WEIGHTS /* param/ and buf/ alone, for any module that has these names and types */
} rt_checkpoint_part;

/* What to load. To resume, the module must be the one that wrote the checkpoint, or the same network compiled with
 * other options, such as another precision: then parameters, buffers and the optimizer's state are loaded, and the loss
 * scaler keeps its state if both modules scale dynamically; otherwise it starts at the module's initial state. Weights
 * may also come from a safetensors file of another program, such as a state_dict of PyTorch, whose tensors have the
 * names of the parameters and buffers; its float types are converted. */
typedef struct rt_checkpoint_how {
    rt_checkpoint_part part;
    bool reset_optimizer; /* RT_CHECKPOINT_ALL: start the optimizer, its step count and rate again */
    const char *const
        *reinit; /* RT_CHECKPOINT_WEIGHTS: globs over the names of parameters and buffers to leave alone */
    int n_reinit;
} rt_checkpoint_how;
extern const rt_checkpoint_how rt_checkpoint_all, rt_checkpoint_weights; /* without further options */

/* On failure the session is unchanged. Fails with AMPC_REJECTED (a damaged file, a checkpoint of another model or
 * another optimizer; the message states which, with file and tensor), AMPC_USAGE (a glob that matches nothing),
 * AMPC_IO or AMPC_NO_MEMORY. `run` may be NULL; it is set only by RT_CHECKPOINT_ALL and for weights of a checkpoint. */
ampc_status rt_checkpoint_read(rt_session *s, const ir_module *m, const char *path, const rt_checkpoint_how *how,
                               diag *d, rt_run_state *run);

/* ---- folders: ckpt-<step, 10 digits>.safetensors, and best.safetensors ---- */

/* Creates the folder if it does not exist (but not its parents) and removes temporary files of dead writers. */
ampc_status rt_checkpoint_folder(const char *folder, diag *d);
/* Paths of all checkpoints in the folder, oldest first, and best.safetensors last. */
ampc_status rt_checkpoint_list(const char *folder, diag *d, rt_names *out);
/* Path of the newest ckpt- file, malloced; *path is NULL if there is none. */
ampc_status rt_checkpoint_newest(const char *folder, diag *d, char **path);
/* Writes ckpt-<run->step>, then removes the oldest files, keeping `keep` (at least 2). */
ampc_status rt_checkpoint_put(rt_session *s, const ir_module *m, const rt_run_state *run, const char *folder, int keep,
                              diag *d);
/* Replaces best.safetensors, which is never removed. */
ampc_status rt_checkpoint_put_best(rt_session *s, const ir_module *m, const rt_run_state *run, const char *folder,
                                   diag *d);
/* Whether the folder has best.safetensors. */
bool rt_checkpoint_has_best(const char *folder);
/* Loads the newest ckpt- file. *path is its malloced path, or NULL if the folder has none (AMPC_OK, nothing loaded). If
 * the file is damaged: without allow_fallback fails with AMPC_REJECTED; with it, warns, renames the file to end in
 * ".damaged" and tries the next older one. If it cannot be read (AMPC_IO, AMPC_NO_MEMORY), no file is renamed and no
 * other file is tried. */
ampc_status rt_checkpoint_resume(rt_session *s, const ir_module *m, const char *folder, const rt_checkpoint_how *how,
                                 bool allow_fallback, diag *d, rt_run_state *run, char **path);

#endif
