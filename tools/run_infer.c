/* run_infer.c - infer and grad: run an entry graph once on inputs from files. */
#include "tools/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static ampc_status check_output_name(run_context *c)
{
    const char *path = c->tool->o.output;
    if (!path || tool_ends_with(path, ".npz") || tool_ends_with(path, ".safetensors"))
        return AMPC_OK;
    return diag_error(c->tool->diag, AMPC_USAGE, DIAG_FILE(path),
                      "-o: expected a .npz or .safetensors file");
}

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
    TRY(check_output_name(c));
    TRY(run_need_entry(c, "infer", &g));
    ampc_status status = infer_on(c, g, &in);
    run_inputs_clear(&in);
    return status;
}

/* ---- grad ------------------------------------------------------------------------------------ */

static bool has_prefix(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static bool is_finite(const rt_tensor *t)
{
    size_t size = ir_dtype_size(t->dtype), bytes = 0;
    if (!ir_dtype_is_float(t->dtype) || !rt_array_bytes(t->dtype, t->rank, t->dims, &bytes))
        return true;
    for (size_t i = 0; i < bytes; i += size)
        if (!isfinite(ir_load_f64(t->dtype, (const char *)t->data + i))) return false;
    return true;
}

/* The first gradient of the last run that is not finite, or NULL. */
static const char *bad_gradient(rt_session *s)
{
    for (int i = 0; i < rt_session_output_count(s); i++) {
        const rt_tensor *t = rt_session_output_at(s, i);
        if (t && (has_prefix(t->name, "grad/") || has_prefix(t->name, "gradin/")) && !is_finite(t))
            return t->name;
    }
    return NULL;
}

/* Runs @grad, halving the loss scale until all gradients are finite. *scale: the last loss scale. */
static ampc_status run_until_finite(run_context *c, const ir_graph *g, const run_inputs *in,
                                    double *scale)
{
    diag *d = c->tool->diag;
    bool scales = ir_storage_find(c->tool->module, "loss_scale") != NULL;
    *scale = 1;
    if (scales) TRY(rt_session_get_number(c->session, "loss_scale", d, scale));
    for (;;) {
        if (scales) TRY(rt_session_set_number(c->session, "loss_scale", *scale, d));
        TRY(rt_session_run(c->session, g->name, in->tensors, in->count, c->tool->diag));
        const char *bad = bad_gradient(c->session);
        if (!bad) return AMPC_OK;
        if (!scales || *scale <= 1)
            return diag_error(c->tool->diag, AMPC_NUMERIC, DIAG_NOWHERE,
                              "%s is not finite at loss scale %g", bad, *scale);
        *scale = fmax(*scale / 2, 1);
    }
}

static void collect_gradients(run_context *c, const ir_graph *g, double *scale, run_results *r)
{
    const char *loss = ir_meta_get(c->tool->module, "loss");
    const rt_tensor *value = loss ? rt_session_output(c->session, loss) : NULL;
    run_add_model_outputs(c, g, r);
    if (value) run_results_add(r, "loss", value);
    for (int i = 0; i < rt_session_output_count(c->session); i++) {
        const rt_tensor *t = rt_session_output_at(c->session, i);
        if (t && (has_prefix(t->name, "grad/") || has_prefix(t->name, "gradin/") ||
                  has_prefix(t->name, "buf/")))
            run_results_add(r, t->name, t);
    }
    run_results_add(r, "loss_scale",
                    &(rt_tensor){.name = "loss_scale", .dtype = IR_f64, .data = scale});
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
    TRY(check_output_name(c));
    TRY(run_need_entry(c, "grad", &g));
    ampc_status status = grad_on(c, g, &in);
    run_inputs_clear(&in);
    return status;
}
