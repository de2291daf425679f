/* stepper.c - submitting and collecting training steps; see the header. */
#include "runtime/train/stepper.h"

#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/inspect/check.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { FLOOR_SKIPS = 50 };

/* Numbers and shares of skipped steps that are usual although the scale was small enough before. */
#define USUAL_SKIPS 2
#define USUAL_SHARE 0.01

static bool has_f16(const ir_graph *g)
{
    for (const ir_node *n = g->first; n; n = n->next)
        for (int i = 0; i < n->n_out; i++)
            if (n->out[i]->type.dtype == IR_f16) return true;
    return false;
}

ampc_status rt_stepper_open(rt_session *s, const ir_module *m, const rt_stepper_options *o, diag *d, rt_stepper *out)
{
    const ir_graph *g = ir_graph_by_role(m, IR_GRAPH_train_step);
    *out = (rt_stepper){.session = s,
                        .graph = g,
                        .accumulate = ir_graph_by_role(m, IR_GRAPH_accumulate),
                        .apply = ir_graph_by_role(m, IR_GRAPH_apply)};
    if (!g || !ir_output_by_role(g, IR_OUTPUT_loss))
        return diag_error(d, AMPC_UNSUPPORTED, DIAG_USE(DIAG_NOWHERE, OPTION_loss, .value = "KIND"),
                          "the module has no training step, because it has no loss");
    out->floor = fmax(o->scale_floor > 0 ? o->scale_floor : 1, rt_smallest_scale(m)); /* a constant one is there */
    out->floor_skips = o->floor_skips > 0 ? (uint64_t)o->floor_skips : FLOOR_SKIPS;
    out->allow_skips = o->allow_skips;
    out->searches = ir_state_by_role(m, IR_STATE_good_steps) != NULL;
    out->has_f16 = has_f16(g);
    return AMPC_OK;
}

/* Whether the update phase reads the output's value, so that computing it is free. */
static bool is_read(const ir_node *output) { return output && ir_in(output, 0)->first_use->next; }

ampc_status rt_stepper_select_of(rt_session *s, const ir_graph *g, const char *const *names, int n, diag *d)
{
    static const ir_output_role needed[] = {IR_OUTPUT_loss, IR_OUTPUT_found_inf, IR_OUTPUT_grad_norm};
    const char **all = rt_alloc((size_t)n + 3, sizeof *all);
    if (!all) return rt_no_memory(d);
    int count = 0;
    for (int i = 0; i < 3 && g; i++) {
        const ir_node *output = ir_output_by_role(g, needed[i]);
        if (output && (needed[i] != IR_OUTPUT_grad_norm || is_read(output))) all[count++] = ir_output_name(output);
    }
    for (int i = 0; i < n; i++) all[count++] = names[i];
    ampc_status status = g ? rt_session_select(s, g->name, all, count, d) : AMPC_OK;
    rt_free(all);
    return status;
}

ampc_status rt_stepper_select(rt_session *s, const ir_module *m, const char *const *names, int n, diag *d)
{
    TRY(rt_stepper_select_of(s, ir_graph_by_role(m, IR_GRAPH_accumulate), NULL, 0, d));
    TRY(rt_stepper_select_of(s, ir_graph_by_role(m, IR_GRAPH_apply), NULL, 0, d));
    return rt_stepper_select_of(s, ir_graph_by_role(m, IR_GRAPH_train_step), names, n, d);
}

static ampc_status set_state(rt_session *s, const ir_storage *state, double value, diag *d)
{
    return state ? rt_session_set_number(s, state->name, value, d) : AMPC_OK;
}

/* Whether the counter of a dynamic scale says that it is off. */
static ampc_status is_off(rt_session *s, const ir_storage *good, diag *d, bool *off)
{
    double steps = 0;
    if (good) TRY(rt_session_get_number(s, good->name, d, &steps));
    *off = steps < 0;
    return AMPC_OK;
}

ampc_status rt_stepper_set_scaling(rt_session *s, const ir_module *m, bool on, diag *d)
{
    const ir_storage *scale = ir_state_by_role(m, IR_STATE_loss_scale);
    const ir_storage *good = ir_state_by_role(m, IR_STATE_good_steps);
    bool off;
    if (!scale || scale->data.kind != IR_DATA_INLINE) return AMPC_OK;
    TRY(is_off(s, good, d, &off));
    if (on && good && !off) return AMPC_OK;
    TRY(set_state(s, ir_state_by_role(m, IR_STATE_bad_steps), 0, d));
    TRY(set_state(s, good, on ? 0 : -1, d));
    return set_state(s, scale, on ? ir_load_f64(scale->type.dtype, scale->data.bytes) : 1, d);
}

/* The scalars read back from each step, in this order. */
enum { LOSS, GRAD_NORM, FOUND_INF, RATE, SCALE_BEFORE, SCALE_AFTER, KEPT };

static rt_readback keep_output(const ir_graph *g, ir_output_role role)
{
    const char *name = ir_output_name(ir_output_by_role(g, role));
    return (rt_readback){name ? name : "", RT_READBACK_OUTPUT};
}

static ampc_status keep(rt_stepper *t, const ir_graph *g, diag *d)
{
    const char *rate = ir_state_name(t->graph->module, IR_STATE_lr);
    const char *scale = ir_state_name(t->graph->module, IR_STATE_loss_scale);
    const rt_readback values[KEPT] = {
        [LOSS] = keep_output(g, IR_OUTPUT_loss),           [GRAD_NORM] = keep_output(g, IR_OUTPUT_grad_norm),
        [FOUND_INF] = keep_output(g, IR_OUTPUT_found_inf), [RATE] = {rate, RT_READBACK_BEFORE},
        [SCALE_BEFORE] = {scale, RT_READBACK_BEFORE},      [SCALE_AFTER] = {scale, RT_READBACK_AFTER},
    };
    TRY(rt_session_select_scalars(t->session, g->name, values, KEPT, d));
    t->read = g;
    return AMPC_OK;
}

/* The status of a run. If it has failed, the other ranks wait within theirs. */
static ampc_status ran(rt_stepper *t, ampc_status s)
{
    if (s != AMPC_OK) rt_team_lose(t->peers);
    return s;
}

static ampc_status submit(rt_stepper *t, const ir_graph *g, const rt_tensor *inputs, int n, diag *d)
{
    if (t->read != g) TRY(keep(t, g, d));
    TRY(ran(t, rt_session_submit(t->session, g->name, inputs, n, d, &t->submitted)));
    t->pending++;
    return AMPC_OK;
}

ampc_status rt_stepper_submit(rt_stepper *t, const rt_tensor *inputs, int n, diag *d)
{
    return submit(t, t->graph, inputs, n, d);
}

ampc_status rt_stepper_apply(rt_stepper *t, diag *d) { return submit(t, t->apply, NULL, 0, d); }

ampc_status rt_stepper_accumulate(rt_stepper *t, const rt_tensor *inputs, int n, diag *d, double *loss)
{
    static const char no = 0;
    const ir_storage *flag = ir_state_by_role(t->graph->module, IR_STATE_unscaled);
    if (t->stale) TRY(rt_session_write(t->session, (int)flag->id, &no, d));
    t->stale = false;
    TRY(ran(t, rt_session_run(t->session, t->accumulate->name, inputs, n, d)));
    if (!loss) return AMPC_OK;
    const char *name = ir_output_name(ir_output_by_role(t->accumulate, IR_OUTPUT_loss));
    const rt_tensor *value = rt_session_output(t->session, name);
    TRY(rt_session_fetched(t->session, d));
    *loss = value ? ir_load_f64(value->dtype, value->data) : NAN;
    return AMPC_OK;
}

ampc_status rt_stepper_window(rt_stepper *t, diag *d, int64_t *count, bool *unscaled)
{
    static const ir_state_role roles[] = {IR_STATE_micro_batches, IR_STATE_unscaled};
    double values[] = {0, 0};
    for (int i = 0; i < 2 && t->accumulate; i++)
        TRY(rt_session_get_number(t->session, ir_state_name(t->graph->module, roles[i]), d, &values[i]));
    *count = (int64_t)values[0];
    *unscaled = *count && values[1] != 0;
    t->stale = !*count && values[1] != 0;
    return AMPC_OK;
}

bool rt_stepper_ready(const rt_stepper *t)
{
    return t->pending && rt_session_done(t->session, t->submitted - t->pending + 1);
}

static void count_step(rt_stepper *t, bool skipped, double used, double scale)
{
    bool at_floor = scale <= t->floor;
    t->steps++;
    t->unexplained += skipped && used <= t->largest;
    if (!skipped) t->largest = fmax(t->largest, used);
    t->state.step++;
    t->state.skipped += skipped;
    t->state.stuck = skipped && at_floor ? t->state.stuck + 1 : 0;
}

/* Whether a smaller loss scale may make the loss finite: a penalty is computed from the scaled loss. */
static bool may_become_finite(const rt_stepper *t, bool skipped)
{
    return skipped && !t->state.stuck && ir_output_by_role(t->graph, IR_OUTPUT_penalty);
}

/* Fails and names the value that is at fault. Of a window, only the last micro-batch is examined. Each rank
 * examines its own samples, up to another node than the others. */
ampc_status rt_stepper_explain(const rt_stepper *t, const rt_tensor *inputs, int n, diag *d, const char *why)
{
    rt_session_mute(t->session);
    const ir_graph *g = t->read == t->apply ? t->accumulate : t->graph;
    return rt_explain_nonfinite(t->session, t->graph->module, g, inputs, n, t->feed, d, "step %" PRIu64 ": %s",
                                t->state.step, why);
}

/* Whether the skipped step has a NaN or an infinity that no loss scale is the cause of. */
static bool is_real(const rt_stepper *t, const rt_step_result *r)
{
    return !t->allow_skips && !t->searches && !t->has_f16 && r->scale == 1;
}

static bool has_too_many_skips(const rt_stepper *t)
{
    const double usual = fmax(USUAL_SKIPS, USUAL_SHARE * (double)t->steps);
    return !t->allow_skips && (double)t->unexplained > usual;
}

ampc_status rt_stepper_end(const rt_stepper *t, diag *d)
{
    if (!has_too_many_skips(t)) return AMPC_OK;
    return diag_warning(d, DIAG_FILE(ir_module_source(t->graph->module)),
                        "%" PRIu64 " of %" PRIu64
                        " steps were skipped with loss scales that had been small enough before: "
                        "their gradients may be NaN or infinite at any scale (a check of the module finds the node)",
                        t->unexplained, t->steps);
}

/* Warns once in a run. */
static ampc_status warn(rt_stepper *t, diag *d)
{
    if (t->warned || !has_too_many_skips(t)) return AMPC_OK;
    t->warned = true;
    return rt_stepper_end(t, d);
}

static ampc_status check(rt_stepper *t, const rt_tensor *inputs, int n, const rt_step_result *r, double scale, diag *d)
{
    char why[128];
    if (!isfinite(r->loss) && !may_become_finite(t, r->skipped)) {
        snprintf(why, sizeof why, "the loss is %g before scaling, which a smaller loss scale cannot fix",
                 isnan(r->loss) ? NAN : r->loss);
        return rt_stepper_explain(t, inputs, n, d, why);
    }
    if (r->skipped && is_real(t, r))
        return rt_stepper_explain(t, inputs, n, d, "a gradient is not finite and was not scaled");
    if (t->state.stuck < t->floor_skips) return warn(t, d);
    snprintf(why, sizeof why, "%" PRIu64 " steps in a row were skipped with the loss scale at %g", t->state.stuck,
             scale);
    return rt_stepper_explain(t, inputs, n, d, why);
}

static const rt_step_result no_result = {.loss = NAN, .lr = NAN, .scale = 1, .grad_norm = NAN};

ampc_status rt_stepper_collect(rt_stepper *t, const rt_tensor *inputs, int n, diag *d, rt_step_result *out)
{
    double values[KEPT];
    int64_t run = t->submitted - --t->pending;
    *out = no_result;
    TRY(ran(t, rt_session_collect(t->session, run, d, values)));
    double scale = isnan(values[SCALE_AFTER]) ? 1 : values[SCALE_AFTER];
    *out = (rt_step_result){.loss = values[LOSS],
                            .lr = values[RATE],
                            .scale = isnan(values[SCALE_BEFORE]) ? 1 : values[SCALE_BEFORE],
                            .grad_norm = values[GRAD_NORM],
                            .skipped = values[FOUND_INF] > 0};
    count_step(t, out->skipped, out->scale, scale);
    return check(t, inputs, n, out, scale, d);
}

ampc_status rt_stepper_run(rt_stepper *t, const rt_tensor *inputs, int n, diag *d, rt_step_result *out)
{
    *out = no_result;
    TRY(rt_stepper_submit(t, inputs, n, d));
    return rt_stepper_collect(t, inputs, n, d, out);
}
