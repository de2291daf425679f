/* run_infer.c - infer and grad: run an entry graph once on inputs from files. */
#include "runtime/inspect/check.h"
#include "tools/run.h"

#include <math.h>
#include <stdlib.h>

static ampc_status infer_on(run_context *c, const ir_graph *g, run_inputs *in)
{
    TRY(run_inputs_read(c, g, in));
    TRY(rt_session_run(c->session, g->name, in->tensors, in->count, c->tool->diag));
    run_results *r = run_results_new(c->tool->arena);
    run_add_model_outputs(c, g, r);
    return run_results_write(r, c);
}

ampc_status run_infer(run_context *c)
{
    const ir_graph *g;
    run_inputs in = {.partial = true};
    TRY(run_need_entry(c, ir_graph_words[IR_GRAPH_infer], &g));
    ampc_status status = infer_on(c, g, &in);
    run_inputs_clear(&in);
    return status;
}

/* ---- grad ------------------------------------------------------------------------------------ */

static bool is_finite(const rt_tensor *t)
{
    size_t size = ir_dtype_size(t->dtype), bytes = 0;
    if (!ir_dtype_is_float(t->dtype) || !rt_array_bytes(t->dtype, t->rank, t->dims, &bytes)) return true;
    for (size_t i = 0; i < bytes; i += size)
        if (!isfinite(ir_load_f64(t->dtype, (const char *)t->data + i))) return false;
    return true;
}

/* The first non-finite gradient of the last run, or NULL. */
static const char *bad_gradient(rt_session *s, const ir_graph *g)
{
    for (const ir_node *n = ir_first_output(g); n; n = ir_next_output(n)) {
        if (n->role != IR_OUTPUT_gradient && n->role != IR_OUTPUT_input_gradient) continue;
        const rt_tensor *t = rt_session_output(s, ir_output_name(n));
        if (t && !is_finite(t)) return t->name;
    }
    return NULL;
}

/* Runs @grad, halving the loss scale until all gradients are finite. *scale: the last loss scale. */
static ampc_status run_until_finite(run_context *c, const ir_graph *g, const run_inputs *in, double *scale)
{
    diag *d = c->tool->diag;
    const ir_storage *state = ir_state_by_role(c->tool->module, IR_STATE_loss_scale);
    *scale = 1;
    if (state) TRY(rt_session_get_number(c->session, state->name, d, scale));
    for (;;) {
        if (state) TRY(rt_session_set_number(c->session, state->name, *scale, d));
        TRY(rt_session_run(c->session, g->name, in->tensors, in->count, c->tool->diag));
        const char *bad = bad_gradient(c->session, g);
        if (!bad) return AMPC_OK;
        if (!state || *scale <= 1)
            return rt_explain_nonfinite(c->session, c->tool->module, g, in->tensors, in->count, NULL, d,
                                        "%s is not finite at loss scale %g", bad, *scale);
        *scale = fmax(*scale / 2, 1);
    }
}

static void collect_gradients(run_context *c, const ir_graph *g, double *scale, run_results *r)
{
    const char *scale_key = ir_state_words[IR_STATE_loss_scale];
    run_add_model_outputs(c, g, r);
    for (const ir_node *n = ir_first_output(g); n; n = ir_next_output(n)) {
        const rt_tensor *t = rt_session_output(c->session, ir_output_name(n));
        if (t && n->role == IR_OUTPUT_loss) run_results_add(r, ir_output_words[n->role], t);
        else if (t && n->of) run_results_add(r, t->name, t);
    }
    run_results_add(r, scale_key, &(rt_tensor){.name = scale_key, .dtype = IR_f64, .data = scale});
}

static ampc_status grad_on(run_context *c, const ir_graph *g, run_inputs *in)
{
    double scale;
    TRY(run_inputs_read(c, g, in));
    TRY(run_until_finite(c, g, in, &scale));
    run_results *r = run_results_new(c->tool->arena);
    collect_gradients(c, g, &scale, r);
    return run_results_write(r, c);
}

ampc_status run_grad(run_context *c)
{
    const ir_graph *g;
    run_inputs in = {0};
    TRY(run_need_entry(c, ir_graph_words[IR_GRAPH_grad], &g));
    ampc_status status = grad_on(c, g, &in);
    run_inputs_clear(&in);
    return status;
}
