/* trainer.h - the training loop: data in, steps run, failures seen, state saved.
 *
 * One step: the batch at the data position -> inputs; @lr from the schedule by the number of accepted steps;
 * @train_step; position on. A loss that is not finite is an error (the loss is f32 and unscaled: no smaller loss scale
 * would help), and so are too many skipped steps in a row with the loss scale at its floor. All that decides the
 * future is in rt_run_state and the session, and both are in a checkpoint: a resumed run is bitwise the uninterrupted
 * one. */
#ifndef RT_TRAINER_H
#define RT_TRAINER_H

#include "runtime/train/checkpoint.h"
#include "runtime/train/log.h"

#include <signal.h>

typedef struct rt_trainer rt_trainer;

typedef struct rt_trainer_options {
    int64_t batch;        /* 0: the fixed batch of the model */
    int64_t steps;        /* of the whole run, or */
    int64_t epochs;       /* of the whole run; exactly one of the two is given */
    double lr;            /* negative: the initial @lr of the module */
    const char *schedule; /* rt_schedule_parse; NULL: constant */
    uint64_t seed;        /* order of the data; if not 0 also the key of @rng */
    double scale_floor;   /* 0: 1, or the floor of the model's own scaling if that is higher */
    int floor_skips;      /* skips in a row at the floor that end the run; 0: 50 */
} rt_trainer_options;

/* Session, module and data must outlive the trainer. AMPC_UNSUPPORTED when the module has no @train_step, otherwise as
 * rt_feed_open and rt_schedule_parse; fewer samples than a batch are AMPC_REJECTED. */
ampc_status rt_trainer_open(rt_session *s, const ir_module *m, rt_dataset *data,
                            const rt_trainer_options *o, diag *d, rt_trainer **out);
void rt_trainer_close(rt_trainer *t); /* NULL allowed */

/* One step; *out (may be NULL) says how it went. AMPC_NUMERIC: see above; the session is then as the step left it and
 * should not be saved. */
ampc_status rt_trainer_step(rt_trainer *t, diag *d, rt_step *out);
bool rt_trainer_done(const rt_trainer *t);
int64_t rt_trainer_steps(const rt_trainer *t); /* of the whole run */
const rt_run_state *rt_trainer_state(const rt_trainer *t);

/* Saves and loads as checkpoint.h says. Resuming with another batch size or number of samples is AMPC_USAGE, with
 * another schedule a warning. *path: malloced, NULL when there was nothing to resume from. */
ampc_status rt_trainer_save(rt_trainer *t, const char *folder, int keep, diag *d);
ampc_status rt_trainer_resume(rt_trainer *t, const char *folder, bool allow_fallback, diag *d,
                              char **path);

/* The whole loop. */
typedef struct rt_train_plan {
    const char *folder; /* checkpoints; NULL: none */
    int64_t save_every; /* steps; 0: only at the end */
    int keep;           /* generations, at least 2 */
    bool resume, allow_fallback;
    /* Once, before the first step, with the state resumed and the folder locked; `first` steps were run before.
     * AMPC_OK goes on. May be NULL. */
    ampc_status (*on_begin)(void *user, uint64_t first);
    /* After each step, before the checkpoint that may follow; true stops the run at this point. May be NULL. */
    bool (*on_step)(void *user, const rt_step *step);
    /* Before each checkpoint: what the steps left elsewhere must be as durable. AMPC_OK goes on. May be NULL. */
    ampc_status (*on_save)(void *user);
    /* After each epoch, and its last step and checkpoint. AMPC_OK goes on. May be NULL. */
    ampc_status (*on_epoch)(void *user, uint64_t epoch);
    void *user;
    const volatile sig_atomic_t *stop; /* not 0: finish the step, save, return; may be NULL */
} rt_train_plan;

/* Without `resume` a folder that holds checkpoints is AMPC_USAGE, as is one that another training has locked. At the
 * end, also after a stop, the state is saved. */
ampc_status rt_trainer_run(rt_trainer *t, const rt_train_plan *plan, diag *d);

/* ---- evaluation (evaluate.c) ---- */

typedef struct rt_eval {
    double loss;     /* mean over all samples (all labels, if the loss ignores some); NAN when there is no loss */
    double accuracy; /* share of labels that are the argmax over axis 1; NAN without class labels */
    int64_t samples;
} rt_eval;

/* @eval (or @infer when there is none) over every sample in stored order. A last partial batch is a second binding of
 * the batch symbol. A fixed batch is filled up with copies of one sample, whose loss is measured in a run of its own
 * and taken off again (the loss is a mean over samples). `batch` 0: the fixed batch, or 256. */
const ir_graph *rt_evaluated_graph(const ir_module *m); /* eval, or infer without a loss; NULL: neither */
ampc_status rt_evaluate(rt_session *s, const ir_module *m, rt_dataset *data, int64_t batch, diag *d,
                        rt_eval *out);

#endif
