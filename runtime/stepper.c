/* stepper.c - see the header. */
#include "runtime/stepper.h"

#include "runtime/gradient_fault.h"

#include <inttypes.h>
#include <math.h>

enum { FLOOR_SKIPS = 50 };

/* Where update_loss_scaling stops; a scale that nothing moves is always at its floor. */
static double model_floor(const ir_graph *g)
{
    for (const ir_node *n = g->first; n; n = n->next)
        if (n->op == IR_OP_update_loss_scaling) return n->attr[IR_ATTR(update_loss_scaling, min)].f;
    return INFINITY;
}

ampc_status rt_stepper_open(rt_session *s, const ir_module *m, const rt_stepper_options *o, diag *d,
                            rt_stepper *out)
{
    const ir_graph *g = ir_graph_find(m, "train_step");
    *out = (rt_stepper){.session = s, .module = m, .loss = ir_meta_get(m, "loss")};
    if (!g || !out->loss)
        return diag_error(d, AMPC_UNSUPPORTED, DIAG_NOWHERE,
                          "the module has no training step: compile it with a loss (--loss)");
    TRY(rt_session_storage(s, "lr", d, &out->lr));
    TRY(rt_session_storage(s, "step", d, &out->step));
    if (ir_storage_find(m, "loss_scale")) TRY(rt_session_storage(s, "loss_scale", d, &out->scale));
    out->floor = fmax(o->scale_floor > 0 ? o->scale_floor : 1, model_floor(g));
    out->floor_skips = o->floor_skips > 0 ? (uint64_t)o->floor_skips : FLOOR_SKIPS;
    return AMPC_OK;
}

static double scalar(const rt_tensor *t, double absent)
{
    return t && t->data ? ir_load_f64(t->dtype, t->data) : absent;
}

double rt_stepper_rate(const rt_stepper *t) { return scalar(&t->lr, 0); }
void rt_stepper_set_rate(rt_stepper *t, double lr) { ir_store_f64(t->lr.dtype, t->lr.data, lr); }
int64_t rt_stepper_accepted(const rt_stepper *t)
{
    return ir_load_i64(t->step.dtype, t->step.data);
}

static void count_step(rt_stepper *t, bool skipped)
{
    bool at_floor = scalar(&t->scale, 1) <= t->floor;
    t->state.step++;
    t->state.skipped += skipped;
    t->state.stuck = skipped && at_floor ? t->state.stuck + 1 : 0;
}

static ampc_status check(rt_stepper *t, const rt_tensor *inputs, int n, double loss, diag *d)
{
    if (!isfinite(loss))
        return diag_error(d, AMPC_NUMERIC, DIAG_NOWHERE,
                          "step %" PRIu64
                          ": the loss is %g before scaling, which no smaller loss scale can mend",
                          t->state.step, loss);
    if (t->state.stuck < t->floor_skips) return AMPC_OK;
    return rt_gradient_fault(t->session, t->module, inputs, n, d,
                             "step %" PRIu64 ": %" PRIu64
                             " steps in a row were skipped with the loss scale at %g",
                             t->state.step, t->state.stuck, scalar(&t->scale, 1));
}

ampc_status rt_stepper_run(rt_stepper *t, const rt_tensor *inputs, int n, diag *d,
                           rt_step_result *out)
{
    *out = (rt_step_result){
        .loss = NAN, .lr = rt_stepper_rate(t), .scale = scalar(&t->scale, 1), .grad_norm = NAN};
    TRY(rt_session_run(t->session, "train_step", inputs, n, d));
    const rt_tensor *found = rt_session_output(t->session, "found_inf");
    out->loss = scalar(rt_session_output(t->session, t->loss), NAN);
    out->grad_norm = scalar(rt_session_output(t->session, "grad_norm"), NAN);
    out->skipped = found && ir_load_i64(found->dtype, found->data) != 0;
    count_step(t, out->skipped);
    return check(t, inputs, n, out->loss, d);
}
