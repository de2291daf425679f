/* trainer.h - the training loop: reads data, runs steps, detects failures, saves checkpoints.
 *
 * One step reads the batch at the data position into the inputs, sets @lr from the schedule by the number of accepted
 * steps, runs @train_step and advances the position. In a module that accumulates gradients (`window`), a step is
 * a window of so many batches, also across the end of an epoch; only the last one of a run may be shorter. With
 * `tree`, those of an epoch are whole. A non-finite loss is an error (the loss is f32 and unscaled, so no smaller loss
 * scale would help), and so are too many consecutive skipped steps with the loss scale at its floor, or one that no
 * loss scale explains. So is a state that is not finite when it would be saved, or at the end, if steps do not check
 * their gradients (guard.h). The session and rt_run_state determine all later steps, and a checkpoint contains both, so
 * a resumed run is bitwise identical to an uninterrupted one.
 *
 * With other ranks, the batch is that of all of them, of which each reads its share. They stop after the same step, and
 * the first one writes the checkpoints, reads the one that all resume from, and decides by its evaluations. */
#ifndef RT_TRAINER_H
#define RT_TRAINER_H

#include "runtime/data/loader.h"
#include "runtime/files/trace.h"
#include "runtime/train/checkpoint.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/log.h"
#include "runtime/train/team.h"

#include <signal.h>

typedef struct rt_trainer rt_trainer;

/* Types of members that are rows of options.def. */
#define RT_OPTION_SET bool
#define RT_OPTION_INT(...) int64_t
#define RT_OPTION_REAL(...) double
#define RT_OPTION_TEXT(...) const char *
#define RT_OPTION_NAME(...) const char *

/* Of the entire run, either steps or epochs; batch 0: that of the model; lr negative: that of the module. */
typedef struct rt_trainer_options {
#define TRAINER(name, member, kind, ...) RT_OPTION_##kind member;
#include "ir/base/options.def"
    uint64_t seed;      /* seed of the sample order; if nonzero also the key of @rng */
    double scale_floor; /* 0: 1, or the floor of the model's own loss scaling if that is higher */
    int floor_skips;    /* consecutive skips at the floor that end the run; 0: 50 */
    int workers;        /* rt_loader_read_ahead */
    rt_team *peers;     /* NULL: there are no other ranks */
    bool tree;          /* the module has the sums of distribute_tree: an epoch has whole windows only */
} rt_trainer_options;

/* Session, module and data must outlive the trainer. Fails with AMPC_UNSUPPORTED if the module has no @train_step,
 * AMPC_REJECTED if there are fewer samples than a batch, AMPC_USAGE if a batch has fewer samples than there are ranks,
 * or with `tree` unequal shares, otherwise like rt_loader_open and rt_schedule_parse. */
ampc_status rt_trainer_open(rt_session *s, const ir_module *m, rt_dataset *data, const rt_trainer_options *o, diag *d,
                            rt_trainer **out);
void rt_trainer_close(rt_trainer *t); /* NULL allowed */

bool rt_trainer_done(const rt_trainer *t);
const rt_loader *rt_trainer_feed(const rt_trainer *t); /* its inputs are those of the last batch that was read */
int64_t rt_trainer_steps(const rt_trainer *t);         /* of the entire run */
const rt_run_state *rt_trainer_state(const rt_trainer *t);
/* Whether a stopped run ended within an evaluation, whose samples did not arrive or whose loops did not end. Then its
 * last step is not saved, so that a resumed run makes the step and the evaluation. */
bool rt_trainer_lacks_evaluation(const rt_trainer *t);

/* Options and callbacks of a training. */
typedef struct rt_train_plan {
#define PLANNED(name, member, kind, ...) RT_OPTION_##kind member;
#include "ir/base/options.def"
    /* Called once before the first step, after resuming and with the folder locked; `first` steps were run before. A
     * status other than AMPC_OK ends the run. May be NULL. */
    ampc_status (*on_begin)(void *user, uint64_t first);
    /* Called after each step, before a checkpoint of this step; true stops the run here. May be NULL. */
    bool (*on_step)(void *user, const rt_step_record *step);
    /* Called before each checkpoint, to make other output of the steps equally durable. A status other than AMPC_OK
     * ends the run. May be NULL. */
    ampc_status (*on_save)(void *user);
    /* Called after the last step of each epoch and its evaluation, before a checkpoint of this step. `eval` is NULL
     * without eval_data. A status other than AMPC_OK ends the run. May be NULL. */
    ampc_status (*on_epoch)(void *user, uint64_t epoch, const rt_eval *eval);
    /* The same for the evaluation of a run that ends within an epoch, after its last checkpoint. */
    ampc_status (*on_end)(void *user, const rt_eval *eval);
    void *user;
    /* Nonzero: finish the step, save, return; a batch that has not arrived is not waited for, and a step in whose loops
     * it stays longer than half a second is abandoned. May be NULL. */
    const volatile sig_atomic_t *stop;
    rt_trace *trace;       /* receives the times of batches, steps, evaluations and checkpoints; may be NULL */
    rt_dataset *eval_data; /* evaluated after each epoch, and at the end; NULL: no evaluation */
    const rt_metric_choices *metrics; /* rt_eval_options */
    const rt_monitor *best; /* needs eval_data and a folder: saves best.safetensors whenever the metric improves */
    const rt_monitor *early_stop; /* needs eval_data: ends the run with AMPC_OK and a note; NULL: never */
} rt_train_plan;

/* Runs the loop and saves the final state, also after a stop. An evaluation at the end of a run within an epoch can
 * replace best.safetensors, but is not part of the state, so a longer run continues as if there had been no end. Fails
 * with AMPC_NUMERIC as described above, without saving the state. Fails with AMPC_USAGE if `resume` is false and the
 * folder contains checkpoints, if another training has locked it, if the resumed run had another batch size or number
 * of samples, or if a metric has no meaning for the module and eval_data; another schedule or another watched metric
 * is a warning. */
ampc_status rt_trainer_run(rt_trainer *t, const rt_train_plan *plan, diag *d);

#endif
