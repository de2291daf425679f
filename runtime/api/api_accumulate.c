/* api_accumulate.c - the training step in three calls: ampc_accumulate, ampc_unscale, ampc_apply. */
#include "runtime/api/api.h"

#include "runtime/backend/memory.h"

#include <inttypes.h>
#include <stdlib.h>

static const ir_graph *unscale_of(const ampc_session *s) { return ir_graph_by_role(s->module->ir, IR_GRAPH_unscale); }

static const char *norm_of(const ir_graph *g) { return ir_output_name(ir_output_by_role(g, IR_OUTPUT_grad_norm)); }

ampc_status api_select_unscaled(const ampc_session *s, diag *d)
{
    const ir_graph *g = unscale_of(s);
    const char *norm = g ? norm_of(g) : NULL;
    return rt_stepper_select_of(s->rt, g, &norm, norm != NULL, d);
}

ampc_status api_refuse_window_graph(const ir_graph *g, diag *d)
{
    if (g->role != IR_GRAPH_accumulate && g->role != IR_GRAPH_unscale && g->role != IR_GRAPH_apply) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "graph '%s' is run by ampc_%s, which keeps track of the window",
                      g->name, ir_graph_words[g->role]);
}

void api_step_result(const rt_stepper *t, const rt_step_result *r, ampc_step_result *result)
{
    const ampc_step_result out = {.step = (int64_t)t->state.step,
                                  .skipped = (int64_t)t->state.skipped,
                                  .loss = r->loss,
                                  .lr = r->lr,
                                  .loss_scale = r->scale,
                                  .grad_norm = r->grad_norm,
                                  .was_skipped = r->skipped};
    api_result(&out, result, sizeof out);
}

ampc_status api_refuse_in_window(ampc_session *s, diag *d)
{
    int64_t count;
    bool unscaled;
    TRY(rt_stepper_window(&s->stepper, d, &count, &unscaled));
    if (count <= 0) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                      "the gradients of %" PRId64 " micro-batches are accumulated; end the window with ampc_apply",
                      count);
}

/* How far the window is. */
static ampc_status read_window(ampc_session *s, diag *d, int64_t *count, bool *unscaled)
{
    if (!s->stepper.session || !s->stepper.accumulate)
        return diag_error(d, AMPC_UNSUPPORTED, DIAG_NOWHERE,
                          "the module accumulates no gradients: compile it with a loss and `accumulate`");
    return rt_stepper_window(&s->stepper, d, count, unscaled);
}

ampc_status ampc_accumulate(ampc_session *session, ampc_tensor *const *inputs, size_t n_inputs, double *loss)
{
    int64_t count;
    bool unscaled;
    diag *d;
    TRY(api_enter_idle(session, &d));
    NEED_ITEMS(inputs, n_inputs);
    TRY(read_window(session, d, &count, &unscaled));
    if (unscaled)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                          "the gradients are unscaled already; end the window with ampc_apply first");
    rt_tensor *views = api_views(inputs, n_inputs);
    if (!views) return rt_no_memory(d);
    ampc_status s = rt_stepper_accumulate(&session->stepper, views, (int)n_inputs, d, loss);
    free(views);
    return s;
}

static ampc_status nothing_accumulated(diag *d)
{
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "no gradients are accumulated; call ampc_accumulate first");
}

/* Reads a scalar result of the last run. */
static ampc_status read_result(ampc_session *s, const char *name, diag *d, double *value)
{
    const rt_tensor *t = rt_session_output(s->rt, name);
    TRY(rt_session_fetched(s->rt, d));
    *value = t ? ir_load_f64(t->dtype, t->data) : 0;
    return AMPC_OK;
}

ampc_status ampc_unscale(ampc_session *session, double *grad_norm, int *found_inf)
{
    int64_t count;
    bool unscaled;
    double norm, found = 0;
    diag *d;
    TRY(api_enter_idle(session, &d));
    TRY(read_window(session, d, &count, &unscaled));
    if (count <= 0) return nothing_accumulated(d);
    if (unscaled) return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "the gradients of this window are unscaled already");
    const ir_graph *g = unscale_of(session);
    const ir_node *flag = ir_output_by_role(g, IR_OUTPUT_found_inf);
    TRY(rt_session_run(session->rt, g->name, NULL, 0, d));
    TRY(read_result(session, norm_of(g), d, &norm));
    if (flag) TRY(read_result(session, ir_output_name(flag), d, &found));
    if (grad_norm) *grad_norm = norm;
    if (found_inf) *found_inf = found != 0;
    return AMPC_OK;
}

ampc_status ampc_apply(ampc_session *session, ampc_step_result *result)
{
    int64_t count;
    bool unscaled;
    rt_step_result r;
    diag *d;
    TRY(api_enter_idle(session, &d));
    TRY(api_result_check(result, d));
    TRY(read_window(session, d, &count, &unscaled));
    if (count <= 0) return nothing_accumulated(d);
    rt_stepper *t = &session->stepper;
    TRY(rt_stepper_apply(t, d));
    ampc_status s = rt_stepper_collect(t, NULL, 0, d, &r);
    if (s == AMPC_OK || s == AMPC_NUMERIC) api_step_result(t, &r, result);
    return s;
}
