/* stepper.h - one training step on inputs that somebody else provides, and what goes wrong in it.
 *
 * Runs @train_step, counts steps and skips, and calls two things an error: a loss that is not finite (it is f32 and
 * unscaled: no smaller loss scale would help), and too many skipped steps in a row with the loss scale at its floor. */
#ifndef RT_STEPPER_H
#define RT_STEPPER_H

#include "runtime/checkpoint.h"

typedef struct rt_stepper_options {
    double scale_floor; /* 0: 1, or the floor of the model's own scaling if that is higher */
    int floor_skips;    /* 0: 50 */
} rt_stepper_options;

typedef struct rt_stepper {
    rt_session *session;
    const ir_module *module;
    rt_run_state state;
    const char *loss;          /* output statement */
    rt_tensor lr, step, scale; /* live views; scale.data NULL: no loss scaling */
    double floor;
    uint64_t floor_skips;
} rt_stepper;

typedef struct rt_step_result {
    double loss, lr, scale; /* as they were in the step */
    double grad_norm;       /* NAN when not measured */
    bool skipped;
} rt_step_result;

/* Session and module must outlive it; nothing to close. AMPC_UNSUPPORTED when the module has no @train_step. */
ampc_status rt_stepper_open(rt_session *s, const ir_module *m, const rt_stepper_options *o, diag *d,
                            rt_stepper *out);
double rt_stepper_rate(const rt_stepper *t);
void rt_stepper_set_rate(rt_stepper *t, double lr);
int64_t rt_stepper_accepted(const rt_stepper *t); /* accepted steps */
/* AMPC_NUMERIC: see above; *out is filled in that case too. */
ampc_status rt_stepper_run(rt_stepper *t, const rt_tensor *inputs, int n, diag *d,
                           rt_step_result *out);

#endif
