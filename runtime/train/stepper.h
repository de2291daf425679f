/* stepper.h - single training steps on inputs that the caller provides, with error detection.
 *
 * Runs @train_step and counts steps and skips. Two conditions are errors: a non-finite loss (the loss is f32 and
 * unscaled, so no smaller loss scale would help, unless it has a penalty and the step is skipped), and too many
 * consecutive skipped steps with the loss scale at its floor. So is a skipped step without fp16 whose loss scale is
 * constantly 1, unless that is allowed: its gradients have a real NaN or infinity. Where the scale is searched, more
 * skipped steps than the search explains are a warning. A step is submitted and later collected; on an
 * asynchronous device several steps may be pending.
 *
 * In a module with @accumulate, a step may instead be a window: @accumulate for each micro-batch, then @apply. The loss
 * of such a step is the mean of its micro-batches. */
#ifndef RT_STEPPER_H
#define RT_STEPPER_H

#include "runtime/data/loader.h"
#include "runtime/train/checkpoint.h"
#include "runtime/train/team.h"

typedef struct rt_stepper_options {
    double scale_floor; /* 0: 1, or the floor of the model's own loss scaling if that is higher */
    int floor_skips;    /* 0: 50 */
    bool allow_skips;   /* no error or warning for a skipped step by itself */
} rt_stepper_options;

typedef struct rt_stepper {
    rt_session *session;
    const ir_graph *graph;              /* the training step */
    const ir_graph *accumulate, *apply; /* NULL: the module accumulates no gradients */
    bool stale;           /* the state `unscaled` is of a window that has been ended: the next micro-batch clears it */
    const ir_graph *read; /* the graph whose scalars are read back */
    rt_run_state state;
    int64_t submitted;     /* number of the last run that the stepper submitted to the session */
    int pending;           /* steps submitted and not collected */
    const rt_loader *feed; /* of the inputs, for messages; NULL: none */
    rt_team *peers;        /* every run is theirs, too; NULL: none */
    double floor;
    uint64_t floor_skips;
    bool allow_skips;
    bool searches;        /* a dynamic loss scale adapts to overflows */
    bool has_f16;         /* gradients may overflow although their f32 values are finite */
    double largest;       /* largest loss scale of an accepted step */
    uint64_t unexplained; /* skipped steps of this run with a scale that was small enough before */
    uint64_t steps;       /* of this run */
    bool warned;
} rt_stepper;

typedef struct rt_step_result {
    double loss, lr, scale; /* values used in this step */
    double grad_norm;       /* NAN if "grad_norm" is not selected */
    bool skipped;
} rt_step_result;

/* Session and module must outlive the stepper, which needs no closing. Fails with AMPC_UNSUPPORTED if the module has
 * no @train_step. */
ampc_status rt_stepper_open(rt_session *s, const ir_module *m, const rt_stepper_options *o, diag *d, rt_stepper *out);
/* Restricts @train_step, or @apply, to the results that a training loop needs (the loss, found_inf, and the norm of the
 * gradients if clipping computes it), @accumulate to the loss, each with the outputs named here. Does nothing if g is
 * NULL. Fails with AMPC_REJECTED for a name that the graph lacks. Always use these functions to select outputs of a
 * graph that is stepped: without found_inf, a skipped step would not be noticed. */
ampc_status rt_stepper_select_of(rt_session *s, const ir_graph *g, const char *const *names, int n, diag *d);
/* The same for @train_step with these outputs, and the other two without further outputs. */
ampc_status rt_stepper_select(rt_session *s, const ir_module *m, const char *const *names, int n, diag *d);
/* Switches loss scaling off, that is, sets the scale to 1 and keeps it there, or on again, with the module's initial
 * scale. Gradients are checked in both cases, and a step with a non-finite one is skipped. Does nothing if the module
 * has no loss scale or the scaling is on already. A checkpoint contains the switch of a dynamic scale: state/good_steps
 * is -1 if it is off. */
ampc_status rt_stepper_set_scaling(rt_session *s, const ir_module *m, bool on, diag *d);
/* Enqueues a step; at most RT_READBACK_RUNS - 1 steps may be pending. */
ampc_status rt_stepper_submit(rt_stepper *t, const rt_tensor *inputs, int n, diag *d);
bool rt_stepper_ready(const rt_stepper *t); /* a pending step can be collected without waiting */
/* Returns the result of the oldest pending step. `inputs` are those of the step, or of a later one; they are used to
 * explain a non-finite gradient. Fails with AMPC_NUMERIC as described above; *out is set in that case too. */
ampc_status rt_stepper_collect(rt_stepper *t, const rt_tensor *inputs, int n, diag *d, rt_step_result *out);
/* Runs @accumulate on a micro-batch. *loss (may be NULL) is its loss, which is not checked. */
ampc_status rt_stepper_accumulate(rt_stepper *t, const rt_tensor *inputs, int n, diag *d, double *loss);
/* Enqueues @apply, the end of a step; its result is collected like that of rt_stepper_submit. */
ampc_status rt_stepper_apply(rt_stepper *t, diag *d);
/* Fails with AMPC_NUMERIC: runs the last step again and names the value in it that is not finite. */
ampc_status rt_stepper_explain(const rt_stepper *t, const rt_tensor *inputs, int n, diag *d, const char *why);
/* What a window holds: *count micro-batches (0: no window has begun), *unscaled after a run of @unscale. A caller that
 * sets the number to 0 has ended the window, whatever the other states are. */
ampc_status rt_stepper_window(rt_stepper *t, diag *d, int64_t *count, bool *unscaled);
/* Warns of skipped steps that the search of the loss scale does not explain; called at the end of a run. */
ampc_status rt_stepper_end(const rt_stepper *t, diag *d);
/* Submits a step and collects its result. */
ampc_status rt_stepper_run(rt_stepper *t, const rt_tensor *inputs, int n, diag *d, rt_step_result *out);

#endif
