/* plan.c - the table of stages, and the pipeline that makes a plan with them. */
#include "ir/base/pipeline.h"
#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/plan/stages.h"

#include <stdlib.h>
#include <string.h>

/* ---- the table ---- */

enum {
#define STAGE(name, when, text, after) STAGE_##name,
#include "runtime/plan/stages.def"
};

#define AFTER(name) (1u << STAGE_##name)
#define STAGE(name, when, text, after) PIPELINE_CHECK_ORDER(name, STAGE_##name, after);
#include "runtime/plan/stages.def"
#undef AFTER

const rt_stage rt_stages[] = {
#define STAGE(name, when, text, after) {#name, text, RT_##when, rt_stage_##name},
#include "runtime/plan/stages.def"
    {0},
};

/* ---- running them ---- */

#ifdef NDEBUG
enum { VERIFY_EACH = false };
#else
enum { VERIFY_EACH = true };
#endif

typedef struct subject {
    rt_plan *plan;
    diag *diag;
    char *text; /* of the last dump */
} subject;

static ampc_status run_stage(void *user, int number)
{
    const subject *s = user;
    rt_plan *p = s->plan;
    if (p->ctx->error_size) p->ctx->error[0] = '\0';
    TRY(rt_stages[number].run(p, s->diag));
    return rt_plan_renumber(p) ? AMPC_OK : AMPC_NO_MEMORY;
}

static ampc_status verify(void *user, const char *stage)
{
    const subject *s = user;
    return rt_plan_verify(s->plan, stage, s->diag);
}

static const char *print(void *user, arena *a)
{
    subject *s = user;
    free(s->text);
    s->text = rt_plan_print(s->plan);
    return s->text ? arena_strdup(a, s->text) : NULL;
}

static ampc_status run_stages(subject *s, const rt_plan_request *r, arena *scratch)
{
    static const pipeline_options defaults = {.verify_each = VERIFY_EACH};
    const pipeline p = {.options = r->pipeline ? r->pipeline : &defaults,
                        .subject = s,
                        .run = run_stage,
                        .verify = verify,
                        .print = print,
                        .extension = "plan",
                        .title = {"after ", ": ", "\n"},
                        .diag = s->diag};
    for (int i = 0; rt_stages[i].name; i++)
        if (r->fuse || rt_stages[i].when == RT_ALWAYS || (r->counted && rt_stages[i].when == RT_COUNTING))
            TRY(pipeline_run_step(&p, i, rt_stages[i].name, scratch));
    return AMPC_OK;
}

/* A failed allocation of the arena, which only holds dumps, returns here. */
static ampc_status run_guarded(subject *s, const rt_plan_request *r)
{
    jmp_buf guard;
    arena *scratch = arena_new(0);
    volatile ampc_status status = AMPC_NO_MEMORY;
    if (!scratch) return status;
    arena_set_guard(scratch, &guard);
    if (setjmp(guard) == 0) status = run_stages(s, r, scratch);
    arena_free(scratch);
    free(s->text);
    return status;
}

/* Reports a failure that the stage has not reported. The device may have left a reason in ctx->error. */
static void report(const rt_plan *p, ampc_status status, diag *d)
{
    const char *reason = p->ctx->error_size && p->ctx->error[0] ? p->ctx->error : ampc_status_sentence(status);
    diag_error(d, status, DIAG_NOWHERE, "graph @%s: %s", p->graph->name, reason);
}

/* ---- making plans ---- */

/* Returns a plan without steps; NULL: out of memory. */
static rt_plan *new_plan(const rt_plan_request *r)
{
    rt_plan *p = rt_alloc(1, sizeof *p);
    const ir_graph *g = r->graph;
    if (!p) return NULL;
    *p = (rt_plan){.graph = g,
                   .selection = r->selection,
                   .parts = r->parts,
                   .part = r->part,
                   .backend = r->backend,
                   .ctx = r->ctx,
                   .fuse = r->fuse,
                   .no_pack = r->no_pack,
                   .nested = r->nested,
                   .observed = r->observed,
                   .counted = r->counted,
                   .n_symbols = ir_dim_symbol_count(g->module->dims),
                   .n_values = g->value_ids,
                   .max_values = g->value_ids};
    p->sizes = rt_alloc(p->n_symbols + 1, sizeof *p->sizes);
    p->values = rt_alloc(g->value_ids, sizeof *p->values);
    if (!p->sizes || !p->values) {
        rt_plan_free(p);
        return NULL;
    }
    memcpy(p->sizes, r->sizes, p->n_symbols * sizeof *p->sizes);
    return p;
}

ampc_status rt_plan_make(const rt_plan_request *r, diag *d, rt_plan **out)
{
    const size_t errors = diag_count(d, DIAG_ERROR);
    rt_plan *p = new_plan(r);
    if (!p) return rt_no_memory(d);
    const ampc_status status = run_guarded(&(subject){.plan = p, .diag = d}, r);
    if (status != AMPC_OK && diag_count(d, DIAG_ERROR) == errors) report(p, status, d);
    p->ctx = NULL;
    if (status == AMPC_OK) *out = p;
    else rt_plan_free(p);
    return status;
}

/* ---- subgraphs ---- */

static ampc_status plan_bodies(rt_plan *p, rt_step *s, diag *d)
{
    TRY(rt_control_open(p, s, d));
    for (int i = 0; i < s->control->n_bodies; i++) {
        const rt_plan_request request = {.graph = s->control->bodies[i].region->graph,
                                         .sizes = p->sizes,
                                         .backend = p->backend,
                                         .ctx = p->ctx,
                                         .fuse = p->fuse,
                                         .nested = true,
                                         .observed = p->observed,
                                         .counted = p->counted};
        TRY(rt_plan_make(&request, d, &s->control->bodies[i].plan));
    }
    return AMPC_OK;
}

/* A step that computes nothing runs none. */
ampc_status rt_stage_plan_subgraphs(rt_plan *p, diag *d)
{
    for (int i = 0; i < p->n_steps; i++) {
        rt_step *s = p->steps[i];
        if (s->kind == RT_STEP_OP && rt_control_runs(s->op) && rt_step_computes(p, s)) TRY(plan_bodies(p, s, d));
    }
    return AMPC_OK;
}
