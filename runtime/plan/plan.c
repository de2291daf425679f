/* plan.c - the table of stages, and the runner that makes a plan with them. */
#include "runtime/plan/stages.h"
#include "runtime/backend/alloc.h"

#include <string.h>
#include <time.h>

/* ---- the table ---- */

enum {
#define STAGE(name, when, text, after) STAGE_##name,
#include "runtime/plan/stages.def"
};

#define AFTER(name) (1u << STAGE_##name)
#define STAGE(name, when, text, after) _Static_assert((after) < AFTER(name), #name " precedes one that it needs");
#include "runtime/plan/stages.def"
#undef AFTER

enum { ALWAYS = false, FUSING = true };
const rt_stage rt_stages[] = {
#define STAGE(name, when, text, after) {#name, text, when, rt_stage_##name},
#include "runtime/plan/stages.def"
    {0},
};

/* ---- running them ---- */

#ifdef NDEBUG
enum { VERIFY_EACH = false };
#else
enum { VERIFY_EACH = true };
#endif

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static ampc_status no_memory(const ir_graph *g, diag *d)
{
    return diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "graph @%s: out of memory while planning", g->name);
}

/* Reports a failure that the stage has not reported. The device may have left a reason in ctx->error. */
static ampc_status report(const rt_plan *p, ampc_status status, diag *d)
{
    const char *reason = p->ctx->error_size ? p->ctx->error : "";
    if (status == AMPC_NO_MEMORY && !*reason) return no_memory(p->graph, d);
    return diag_error(d, status, DIAG_NOWHERE, "graph @%s: %s", p->graph->name,
                      *reason ? reason : ampc_status_sentence(status));
}

static ampc_status run_stage(rt_plan *p, const rt_stage *s, const rt_plan_watch *watch, diag *d)
{
    const size_t errors = diag_count(d, DIAG_ERROR);
    const double start = watch ? seconds() : 0;
    if (p->ctx->error_size) p->ctx->error[0] = '\0';
    ampc_status status = s->run(p, d);
    if (status == AMPC_OK && !rt_plan_renumber(p)) status = AMPC_NO_MEMORY;
    if (status != AMPC_OK) return diag_count(d, DIAG_ERROR) > errors ? status : report(p, status, d);
    const double ran = watch ? seconds() - start : 0;
    if (watch || VERIFY_EACH) TRY(rt_plan_verify(p, s->name, d));
    return watch ? watch->after(watch->user, s, ran, p) : AMPC_OK;
}

static ampc_status run_stages(rt_plan *p, const rt_plan_request *r, diag *d)
{
    for (const rt_stage *s = rt_stages; s->name; s++)
        if (r->fuse || !s->fuses) TRY(run_stage(p, s, r->watch, d));
    return AMPC_OK;
}

ampc_status rt_plan_make(const rt_plan_request *r, diag *d, rt_plan **out)
{
    rt_plan *p = rt_alloc(1, sizeof *p);
    const ir_graph *g = r->graph;
    if (!p) return no_memory(g, d);
    *p = (rt_plan){.graph = g,
                   .selection = r->selection,
                   .backend = r->backend,
                   .ctx = r->ctx,
                   .n_symbols = ir_dim_symbol_count(g->module->dims),
                   .n_values = g->value_ids,
                   .max_values = g->value_ids};
    p->sizes = rt_alloc(p->n_symbols + 1, sizeof *p->sizes);
    p->values = rt_alloc(g->value_ids, sizeof *p->values);
    ampc_status status = AMPC_NO_MEMORY;
    if (p->sizes && p->values) {
        memcpy(p->sizes, r->sizes, p->n_symbols * sizeof *p->sizes);
        status = run_stages(p, r, d);
    } else {
        no_memory(g, d);
    }
    if (status == AMPC_OK) *out = p;
    else rt_plan_free(p);
    return status;
}
