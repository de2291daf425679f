/* stepper.h - one training step on inputs that somebody else provides, and what goes wrong in it.
 *
 * Runs @train_step, counts steps and skips, and calls two things an error: a loss that is not finite (it is f32 and
 * unscaled: no smaller loss scale would help), and too many skipped steps in a row with the loss scale at its floor.
 * A step is submitted and collected; on a device that works while the host goes on, several may be under way. */
#ifndef RT_STEPPER_H
#define RT_STEPPER_H

#include "runtime/train/checkpoint.h"

typedef struct rt_stepper_options {
    double scale_floor; /* 0: 1, or the floor of the model's own scaling if that is higher */
    int floor_skips;    /* 0: 50 */
} rt_stepper_options;

typedef struct rt_stepper {
    rt_session *session;
    const ir_graph *graph; /* the training step */
    rt_run_state state;
    int64_t submitted;  /* number of the session's last run that is ours */
    int pending;        /* steps submitted and not collected */
    double floor;
    uint64_t floor_skips;
} rt_stepper;

typedef struct rt_step_result {
    double loss, lr, scale; /* as they were in the step */
    double grad_norm;       /* NAN when not measured: "grad_norm" is not selected */
    bool skipped;
} rt_step_result;

/* Session and module must outlive it; nothing to close. AMPC_UNSUPPORTED when the module has no @train_step. */
ampc_status rt_stepper_open(rt_session *s, const ir_module *m, const rt_stepper_options *o, diag *d,
                            rt_stepper *out);
/* From now on @train_step computes what a training loop reads, the loss and found_inf, and the output statements
 * named here; the other outputs of the model are not computed. A module without @train_step is left alone.
 * AMPC_REJECTED for a name that @train_step lacks. Select the outputs of a graph that is stepped with this function:
 * without found_inf a skipped step would not be noticed. */
ampc_status rt_stepper_select(rt_session *s, const ir_module *m, const char *const *names, int n, diag *d);
/* Enqueues a step; at most RT_KEPT_RUNS - 1 may be pending. */
ampc_status rt_stepper_submit(rt_stepper *t, const rt_tensor *inputs, int n, diag *d);
bool rt_stepper_ready(const rt_stepper *t); /* a step is pending whose result can be collected without waiting */
/* The result of the oldest pending step, in which the inputs were those given (used to explain a fault; of a later step
 * they serve as well). AMPC_NUMERIC: see above; *out is filled in that case too. */
ampc_status rt_stepper_collect(rt_stepper *t, const rt_tensor *inputs, int n, diag *d,
                               rt_step_result *out);
/* Both. */
ampc_status rt_stepper_run(rt_stepper *t, const rt_tensor *inputs, int n, diag *d,
                           rt_step_result *out);

#endif
