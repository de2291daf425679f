/* trainer.h - the training loop: reads data, runs steps, detects failures, saves checkpoints.
 *
 * One step reads the batch at the data position into the inputs, sets @lr from the schedule by the number of accepted
 * steps, runs @train_step and advances the position. In a module that accumulates gradients (meta "window"), a step is
 * a window of so many batches, also across the end of an epoch; only the last one of a run may be shorter. A non-finite
 * loss is an error (the loss is f32 and unscaled, so no smaller loss scale would help), and so are too many consecutive
 * skipped steps with the loss scale at its floor. The session and rt_run_state determine all later steps, and a
 * checkpoint contains both, so a resumed run is bitwise identical to an uninterrupted one. */
#ifndef RT_TRAINER_H
#define RT_TRAINER_H

#include "runtime/files/trace.h"
#include "runtime/train/checkpoint.h"
#include "runtime/train/log.h"

#include <signal.h>

typedef struct rt_trainer rt_trainer;

typedef struct rt_trainer_options {
    int64_t batch;        /* 0: the fixed batch of the model */
    int64_t steps;        /* of the entire run, or */
    int64_t epochs;       /* of the entire run; exactly one of the two is given */
    double lr;            /* negative: the initial @lr of the module */
    const char *schedule; /* rt_schedule_parse; NULL: constant */
    uint64_t seed;        /* seed of the sample order; if nonzero also the key of @rng */
    double scale_floor;   /* 0: 1, or the floor of the model's own loss scaling if that is higher */
    int floor_skips;      /* consecutive skips at the floor that end the run; 0: 50 */
    int workers;          /* rt_loader_read_ahead */
} rt_trainer_options;

/* Session, module and data must outlive the trainer. Fails with AMPC_UNSUPPORTED if the module has no @train_step,
 * AMPC_REJECTED if there are fewer samples than a batch, otherwise like rt_loader_open and rt_schedule_parse. */
ampc_status rt_trainer_open(rt_session *s, const ir_module *m, rt_dataset *data, const rt_trainer_options *o, diag *d,
                            rt_trainer **out);
void rt_trainer_close(rt_trainer *t); /* NULL allowed */

bool rt_trainer_done(const rt_trainer *t);
int64_t rt_trainer_steps(const rt_trainer *t); /* of the entire run */
const rt_run_state *rt_trainer_state(const rt_trainer *t);

/* Options and callbacks of a training. */
typedef struct rt_train_plan {
    const char *folder; /* of the checkpoints; NULL: none */
    int64_t save_every; /* in steps; 0: only at the end */
    int keep;           /* number of generations, at least 2 */
    bool resume, allow_fallback;
    bool reset_optimizer; /* when resuming: rt_checkpoint_how */
    bool no_scaling;      /* run with the loss scale switched off; see rt_stepper_set_scaling */
    /* Called once before the first step, after resuming and with the folder locked; `first` steps were run before. A
     * status other than AMPC_OK ends the run. May be NULL. */
    ampc_status (*on_begin)(void *user, uint64_t first);
    /* Called after each step, before a checkpoint of this step; true stops the run here. May be NULL. */
    bool (*on_step)(void *user, const rt_step_record *step);
    /* Called before each checkpoint, to make other output of the steps equally durable. A status other than AMPC_OK
     * ends the run. May be NULL. */
    ampc_status (*on_save)(void *user);
    /* Called after the last step and the checkpoint of each epoch. A status other than AMPC_OK ends the run. May be
     * NULL. */
    ampc_status (*on_epoch)(void *user, uint64_t epoch);
    void *user;
    const volatile sig_atomic_t *stop; /* nonzero: finish the step, save, return; may be NULL */
    rt_trace *trace;                   /* receives the times of batches, steps and checkpoints; may be NULL */
} rt_train_plan;

/* Runs the loop and saves the final state, also after a stop. Fails with AMPC_NUMERIC as described above, without
 * saving the state. Fails with AMPC_USAGE if `resume` is false and the folder contains checkpoints, if another
 * training has locked it, or if the resumed run had another batch size or number of samples; another schedule is a
 * warning. */
ampc_status rt_trainer_run(rt_trainer *t, const rt_train_plan *plan, diag *d);

/* ---- evaluation (evaluate.c) ---- */

enum { RT_EVAL_PARTS = 16 };

/* One of several losses: an output loss.NAME. */
typedef struct rt_eval_part {
    const char *name; /* of the output, in the module */
    double loss;      /* mean like that of the whole loss */
} rt_eval_part;

typedef struct rt_eval {
    double loss;     /* mean over all samples (over all labels, if the loss ignores some); NAN without a loss */
    double accuracy; /* fraction of labels that are the argmax over axis 1; NAN without class labels */
    int64_t samples;
    rt_eval_part part[RT_EVAL_PARTS];
    int parts; /* the first ones, if there are more */
} rt_eval;

/* Runs @eval (or @infer if there is none) on every sample in stored order. A last partial batch binds the batch
 * symbol to a smaller size. A fixed batch is padded with copies of one sample, whose loss is measured in a separate
 * run and subtracted (the loss is a mean over samples). `batch` 0: the fixed batch, or 256. */
const ir_graph *rt_evaluated_graph(const ir_module *m); /* eval, or infer if there is no loss; NULL: neither */
ampc_status rt_evaluate(rt_session *s, const ir_module *m, rt_dataset *data, int64_t batch, diag *d, rt_eval *out);

#endif
