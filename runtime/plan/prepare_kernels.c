/* prepare_kernels.c - lets kernels choose algorithms and request workspace. */
#include "runtime/plan/concat_parts.h"
#include "runtime/plan/stages.h"

bool rt_step_computes(const rt_plan *p, const rt_step *s)
{
    if (rt_concat_bytes(p, s) == 0) return false;
    for (int i = 0; i < s->n_out; i++)
        if (s->out_buffer[i] != RT_NO_BUFFER && k_count(&s->out[i]) > 0) return true;
    return false;
}

static ampc_status prepare_step(rt_plan *p, rt_step *s, diag *d)
{
    for (int i = 0; i < s->n_in; i++) s->in[i].data = k_present(&s->in[i]) ? rt_placeholder : NULL;
    for (int i = 0; i < s->n_out; i++) s->out[i].data = s->out_buffer[i] != RT_NO_BUFFER ? rt_placeholder : NULL;
    if (s->control) return rt_control_prepare(p, s, d);
    if (!rt_step_computes(p, s)) s->kernel = &rt_idle_kernel;
    if (!s->kernel->prepare) return AMPC_OK;
    k_args args = rt_step_args(p, s);
    if (p->ctx->error_size) p->ctx->error[0] = '\0';
    ampc_status status = s->kernel->prepare(&args, &s->state, &s->workspace_bytes);
    if (status == AMPC_OK) return AMPC_OK;
    const char *reason = p->ctx->error[0] ? p->ctx->error : ampc_status_sentence(status);
    return diag_error(d, status, ir_diag_loc(s->node), "%s: %s", rt_step_name(s), reason);
}

/* Reports all unsupported steps, not only the first. */
static ampc_status prepare_steps(rt_plan *p, diag *d)
{
    ampc_status first = AMPC_OK;
    for (int i = 0; i < p->n_steps; i++) {
        rt_step *s = p->steps[i];
        ampc_status status = prepare_step(p, s, d);
        if (first == AMPC_OK) first = status;
        if (status == AMPC_NO_MEMORY) break;
        p->reads_host |= s->control != NULL;
        if (s->workspace_bytes)
            s->workspace = rt_plan_add_buffer(
                p, (rt_buffer){
                       .home = RT_ARENA, .bytes = (int64_t)s->workspace_bytes, .first = i, .last = rt_step_ends(p, i)});
    }
    return first;
}

ampc_status rt_stage_prepare_kernels(rt_plan *p, diag *d)
{
    TRY(prepare_steps(p, d));
    if (!p->backend->device_ops || p->ctx->plan_only) return AMPC_OK;
    if (p->ctx->error_size) p->ctx->error[0] = '\0';
    const ampc_status status = p->backend->device_ops->prepared(p->ctx);
    if (status != AMPC_DEVICE) return status;
    return diag_error(d, status, DIAG_USE(DIAG_NOWHERE, OPTION_no_fuse, .purpose = "to run without fused kernels"),
                      "graph @%s: %s", p->graph->name, p->ctx->error);
}
