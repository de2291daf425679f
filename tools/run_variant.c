/* run_variant.c - the model of a command, compiled again with other options, and a session of it. */
#include "tools/run.h"

/* The first compilation has reported everything else already. */
static void pass_errors_on(void *user, diag_level level, const char *message)
{
    if (user && level == DIAG_ERROR) diag_repeat(user, AMPC_REJECTED, message);
}

run_variant run_variant_of(const tool *base, int64_t *sizes)
{
    run_variant v = {.tool = *base, .context = {.sizes = sizes}};
    v.tool.module = NULL;
    v.tool.compile = NULL;
    v.tool.diag = NULL;
    v.tool.o.pass.explain = NULL;
    return v;
}

ampc_status run_variant_compile(run_variant *v, diag *d, bool quiet)
{
    v->context.tool = &v->tool;
    v->tool.diag = diag_new(pass_errors_on, quiet ? NULL : d);
    if (!v->tool.diag) return diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory");
    diag_share_words(v->tool.diag, d);
    return tool_compile(&v->tool, v->tool.o.operands.items[0]);
}

ampc_status run_variant_open(run_variant *v, const char *device, diag *d)
{
    const rt_session_options o = {.device = device,
                                  .threads = (int)v->tool.o.threads,
                                  .deterministic = (int)v->tool.o.deterministic,
                                  .custom = v->tool.custom,
                                  .weights_dir = v->tool.weights_dir};
    TRY(rt_session_open(v->tool.module, &o, d, &v->context.session));
    TRY(run_load_weights(&v->context));
    return rt_session_seed(v->context.session, v->tool.o.pass.seed, d);
}

void run_variant_close(run_variant *v)
{
    rt_session_close(v->context.session);
    ir_module_free(v->tool.module);
    diag_free(v->context.tool ? v->tool.diag : NULL);
    *v = (run_variant){.graph = NULL};
}
