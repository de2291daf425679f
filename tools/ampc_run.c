/* ampc_run.c - opens the model and a session for the verbs of ampc-run. */
#include "tools/run.h"

#include "runtime/backend/ranks.h"

#include <string.h>

/* The sizes of --dim by symbol. Those of the inputs of a .onnx file have been bound by the importer, so the module has
 * no symbols for them. */
static ampc_status symbol_sizes(tool *t, int64_t **out)
{
    const ir_dim_table *dims = t->module->dims;
    size_t count = ir_dim_symbol_count(dims);
    *out = arena_array(t->arena, count + 1, sizeof **out);
    for (size_t i = 0; i < count; i++) (*out)[i] = -1;
    const bool imported = tool_ends_with(t->o.operands.items[0], ".onnx");
    for (int i = 0; i < t->o.dims.count; i++) {
        const char *name;
        int64_t size;
        size_t at = 0;
        TRY(tool_parse_dim(t, t->o.dims.items[i], &name, &size));
        while (at < count && strcmp(ir_dim_symbol_name(dims, at), name) != 0) at++;
        if (at == count && !imported)
            return diag_error(t->diag, AMPC_USAGE, DIAG_NOWHERE, "--dim: no dimension '%s' in the module", name);
        if (at < count) (*out)[at] = size;
    }
    return AMPC_OK;
}

static ampc_status open_session(run_context *c, bool plan_only)
{
    tool *t = c->tool;
    rt_session_options o = {.device = t->o.device,
                            .threads = (int)t->o.threads,
                            .deterministic = (int)t->o.deterministic,
                            .sync_launch = t->o.sync_launch,
                            .no_tune = t->o.no_tune,
                            .plan_only = plan_only,
                            .no_pack = t->o.pass.tree, /* @accumulate has the kernels of @train_step */
                            .ranks = rt_team_ranks(c->peers),
                            .custom = t->custom,
                            .weights_dir = t->weights_dir};
    if (c->peers && !o.threads) o.threads = rt_team_threads(c->peers);
    TRY(symbol_sizes(t, &c->sizes));
    if (plan_only) TRY(run_bind_batch(c));
    o.symbol_sizes = c->sizes;
    return rt_session_open(t->module, &o, t->diag, &c->session);
}

static ampc_status run(run_context *c)
{
    tool *t = c->tool;
    const command *v = t->command;
    ampc_status opened = tool_load_operators(t);
    if (opened == AMPC_OK) opened = tool_open_model(t, t->o.operands.items[0]);
    TRY(rt_team_agree(c->peers, opened, NULL, t->diag));
    TRY(tool_note_speed(t));
    TRY(run_distribute(c));
    ampc_status status = open_session(c, v->plan_only);
    if (status == AMPC_OK && !v->plan_only) status = run_load_weights(c);
    if (status == AMPC_OK && !v->plan_only) status = rt_session_seed(c->session, t->o.pass.seed, t->diag);
    if (status == AMPC_OK) status = v->run_session(c);
    rt_session_close(c->session);
    return status;
}

ampc_status run_in_session(tool *t)
{
    run_context c = {.tool = t};
    return rt_ranks_launched() ? run_on_ranks(&c, run) : run(&c);
}
