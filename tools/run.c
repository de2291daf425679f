/* run.c - functions common to the verbs of ampc-run: entry graphs, the batch, weights, data, planned memory. */
#include "tools/run.h"

#include "runtime/train/checkpoint.h"
#include "runtime/data/loader.h"
#include "runtime/data/sizing.h"
#include "runtime/train/stepper.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

ampc_status run_need_entry(run_context *c, const char *entry, const ir_graph **out)
{
    ir_module *m = c->tool->module;
    *out = ir_graph_by_key(m, entry);
    if (*out) return AMPC_OK;
    const char *names = "none";
    for (size_t i = 0; i < m->graphs.count; i++)
        names = arena_printf(c->tool->arena, "%s%s@%s", i ? names : "", i ? ", " : "", m->graphs.items[i]->name);
    return diag_error(c->tool->diag, AMPC_UNSUPPORTED, DIAG_FILE(c->tool->o.operands.items[0]),
                      "no entry graph @%s in the module (it has %s); a training step needs a "
                      "loss: compile with --loss",
                      entry, names);
}

ampc_status run_chosen_entry(run_context *c, const ir_graph **out)
{
    const bool trains = ir_graph_by_role(c->tool->module, IR_GRAPH_train_step);
    const char *usual = ir_graph_words[trains ? IR_GRAPH_train_step : IR_GRAPH_infer];
    return run_need_entry(c, c->tool->o.entry ? c->tool->o.entry : usual, out);
}

ampc_status run_select_outputs(run_context *c, const ir_graph *g)
{
    if (g->role != IR_GRAPH_train_step) return AMPC_OK;
    return rt_stepper_select(c->session, c->tool->module, NULL, 0, c->tool->diag);
}

/* ---- the batch --------------------------------------------------------------------------------- */

int64_t run_choose_batch(const run_context *c, const ir_graph *g)
{
    int64_t fixed = rt_loader_fixed_batch(g, c->sizes);
    if (c->tool->o.batch) return c->tool->o.batch;
    return fixed > 0 ? fixed : 1;
}

ampc_status run_bind_batch(run_context *c)
{
    const ir_graph *g;
    rt_sizing z;
    TRY(run_chosen_entry(c, &g));
    ampc_status status = rt_sizing_open(&z, g, c->sizes, run_choose_batch(c, g), c->tool->diag);
    if (status == AMPC_OK && z.symbol != RT_NO_SYMBOL) c->sizes[z.symbol] = z.batch;
    rt_sizing_close(&z);
    return status;
}

/* ---- weights, data ------------------------------------------------------------------------------ */

static bool is_folder(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

ampc_status run_checkpoint_path(run_context *c, const char **out)
{
    diag *d = c->tool->diag;
    const char *path = c->tool->o.checkpoint;
    char *newest = NULL;
    *out = path;
    if (!path || !is_folder(path)) return AMPC_OK;
    TRY(rt_checkpoint_newest(path, d, &newest));
    if (!newest) return diag_error(d, AMPC_IO, DIAG_FILE(path), "no checkpoint in this directory");
    *out = arena_strdup(c->tool->arena, newest);
    free(newest);
    return AMPC_OK;
}

ampc_status run_load_weights(run_context *c)
{
    const char *path;
    TRY(run_checkpoint_path(c, &path));
    if (!path) return AMPC_OK;
    const pass_strings *reinit = &c->tool->o.reinit;
    const rt_checkpoint_how how = {RT_CHECKPOINT_WEIGHTS, .reinit = reinit->items, .n_reinit = reinit->count};
    return rt_checkpoint_read(c->session, c->tool->module, path, &how, c->tool->diag, NULL);
}

ampc_status run_open_data(run_context *c, const char *spec, rt_split split, const ir_graph *entry, rt_dataset **out)
{
    if (!spec) return diag_error(c->tool->diag, AMPC_USAGE, DIAG_FILE("ampc-run"), "no samples; use --data=SPEC");
    return rt_loader_open_data(c->session, entry, spec, split, c->tool->o.pass.seed, c->tool->diag, out);
}

ampc_status run_planned_memory(run_context *c, const ir_graph *g, rt_dataset *data, int64_t batch, rt_memory *out)
{
    rt_loader *feed;
    TRY(rt_loader_open(g, data, c->sizes, batch, c->tool->diag, &feed));
    ampc_status status = rt_loader_slice(feed, 0, rt_loader_batch(feed), c->tool->diag);
    if (status == AMPC_OK)
        status = rt_session_memory(c->session, g->name, rt_loader_inputs(feed), rt_loader_count(feed), c->tool->diag,
                                   out);
    rt_loader_close(feed);
    return status;
}
