/* run_plan.c - plan: prints the plan of an entry graph without running it. */
#include "runtime/files/json.h"
#include "runtime/plan/plan.h"
#include "tools/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ampc_status no_text(diag *d)
{
    return diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory for the text of the plan");
}

static ampc_status print_text(const rt_plan *p, diag *d)
{
    char *text = rt_plan_print(p);
    if (!text) return no_text(d);
    fputs(text, stdout);
    free(text);
    return AMPC_OK;
}

/* ---- results --------------------------------------------------------------------------------- */

typedef struct result {
    const char *device;
    const rt_plan *plan;
    rt_plan_totals totals;
    int64_t storage;
} result;

static int64_t planned_bytes(const result *r) { return r->plan->arena_bytes + r->plan->persistent_bytes + r->storage; }

static ampc_status print_table(const result *r, diag *d)
{
    const rt_plan *p = r->plan;
    const rt_plan_totals *sum = &r->totals;
    TRY(print_text(p, d));
    printf("%d steps, %d launches, %" PRId64 " bytes a step, %" PRId64 " FLOPs", p->n_steps, sum->launches, sum->bytes,
           sum->flops);
    if (sum->copies) printf(", %d copies of %" PRId64 " bytes", sum->copies, sum->copy_bytes);
    printf("\narena %" PRId64 ", kept %" PRId64 ", storage %" PRId64 ": %" PRId64 " bytes planned\n", p->arena_bytes,
           p->persistent_bytes, r->storage, planned_bytes(r));
    return AMPC_OK;
}

/* "" if the name is not UTF-8. */
static json_t *name_json(const char *name)
{
    json_t *text = name ? json_string(name) : NULL;
    return text ? text : json_string("");
}

static json_t *steps_json(const rt_plan *p)
{
    json_t *steps = json_array();
    for (int i = 0, launch = -1, next = p->n_hoisted; i < p->n_steps; i++) {
        const rt_step *s = p->steps[i];
        const rt_cost cost = rt_step_cost(p, s);
        if (i == next) {
            launch++;
            next += s->batch;
        }
        json_array_append_new(steps, json_pack("{s:i, s:s, s:o, s:I, s:I, s:I, s:i, s:b}", "step", i, "op",
                                               rt_step_name(s), "onnx", name_json(s->node->loc.node), "bytes",
                                               (json_int_t)cost.bytes, "flops", (json_int_t)cost.flops, "workspace",
                                               (json_int_t)s->workspace_bytes, "launch", launch, "kept", s->hoisted));
    }
    return steps;
}

static json_t *sizes_json(const rt_plan *p)
{
    json_t *sizes = json_object();
    for (size_t i = 0; i < p->n_symbols; i++)
        if (p->sizes[i] >= 0)
            json_object_set_new(sizes, ir_dim_symbol_name(p->graph->module->dims, i), json_integer(p->sizes[i]));
    return sizes;
}

static ampc_status print_json(const result *r, diag *d)
{
    const rt_plan *p = r->plan;
    const rt_plan_totals *sum = &r->totals;
    json_t *root = json_pack("{s:s, s:s, s:o, s:o, s:i, s:I, s:I, s:i, s:I, s:I, s:I, s:I, s:I}", "entry",
                             p->graph->name, "device", r->device, "sizes", sizes_json(p), "steps", steps_json(p),
                             "launches", sum->launches, "bytes", (json_int_t)sum->bytes, "flops",
                             (json_int_t)sum->flops, "copies", sum->copies, "copy_bytes", (json_int_t)sum->copy_bytes,
                             "arena_bytes", (json_int_t)p->arena_bytes, "kept_bytes", (json_int_t)p->persistent_bytes,
                             "storage_bytes", (json_int_t)r->storage, "planned_bytes", (json_int_t)planned_bytes(r));
    size_t n = 0;
    char *text = root ? rt_json_text(root, 1, &n) : NULL;
    json_decref(root);
    if (!text) return no_text(d);
    text[n] = '\n';
    fwrite(text, 1, n + 1, stdout);
    free(text);
    return AMPC_OK;
}

ampc_status run_plan(run_context *c)
{
    tool *t = c->tool;
    const ir_graph *g;
    pipeline_options options = t->o.pass.pipeline;
    result r = {.device = t->o.device ? t->o.device : "cpu"};
    rt_memory memory;
    options.verify_each = true;
    options.dumps = stdout;
    options.times = stderr;
    if ((options.dump_after || options.dump_changed) && !options.dump_dir && t->o.pass.json)
        return diag_error(t->diag, AMPC_USAGE, DIAG_FILE("ampc-run plan"),
                          options.dump_after ? "--dump-after prints text: leave out --json"
                                             : "--dump-changed prints text: leave out --json");
    TRY(run_chosen_entry(c, &g));
    TRY(run_select_outputs(c, g));
    TRY(rt_session_plan(c->session, g->name, NULL, 0, &options, t->diag, &r.plan));
    TRY(rt_session_memory(c->session, g->name, NULL, 0, t->diag, &memory));
    r.totals = rt_plan_sum(r.plan);
    r.storage = memory.storage;
    return t->o.pass.json ? print_json(&r, t->diag) : print_table(&r, t->diag);
}
