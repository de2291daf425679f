/* run_plan.c - plan: prints the plan of an entry graph without running it. */
#include "ir/base/json_writer.h"
#include "kernels/matmul.h"
#include "runtime/backend/memory.h"
#include "runtime/plan/plan.h"
#include "tools/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The plan of one part of the graph. */
typedef struct result {
    const char *device;
    const rt_plan *plan;
    rt_plan_totals totals;
    int64_t storage, packs; /* packs: without those of earlier parts */
} result;

static int64_t planned_bytes(const result *r)
{
    return r->plan->arena_bytes + r->plan->persistent_bytes + r->packs + r->storage;
}

static ampc_status print_table(const result *r, diag *d)
{
    const rt_plan *p = r->plan;
    const rt_plan_totals *sum = &r->totals;
    char *text = rt_plan_print(p);
    if (!text) return rt_no_memory(d);
    diag_print(stdout, "%s", text);
    free(text);
    printf("%d steps, %d launches, %" PRId64 " bytes per step, %" PRId64 " FLOPs", p->n_steps, sum->launches,
           sum->bytes, sum->flops);
    if (sum->copies) printf(", %d copies of %" PRId64 " bytes", sum->copies, sum->copy_bytes);
    printf("\narena %" PRId64 ", kept %" PRId64, p->arena_bytes, p->persistent_bytes);
    if (p->n_packs) printf(", packs %" PRId64, r->packs);
    printf(", storage %" PRId64 ": %" PRId64 " bytes planned\n", r->storage, planned_bytes(r));
    return AMPC_OK;
}

static void write_step(json_writer *w, const rt_plan *p, int index, int launch)
{
    const rt_step *s = p->steps[index];
    const rt_cost cost = rt_step_cost(p, s);
    json_begin(w, NULL, '{');
    json_write_integer(w, "step", index);
    json_write_string(w, "op", rt_step_name(s));
    json_write_string(w, "onnx", s->node->loc.node ? s->node->loc.node : "");
    json_write_integer(w, "bytes", cost.bytes);
    json_write_integer(w, "flops", cost.flops);
    json_write_integer(w, "workspace", (int64_t)s->workspace_bytes);
    json_write_integer(w, "launch", launch);
    json_write_bool(w, "kept", s->hoisted);
    json_end(w, '}');
}

static void write_steps(json_writer *w, const rt_plan *p)
{
    json_begin(w, "steps", '[');
    for (int i = 0, launch = -1, next = p->n_hoisted; i < p->n_steps; i++) {
        if (i == next) {
            launch++;
            next += p->steps[i]->batch;
        }
        write_step(w, p, i, launch);
    }
    json_end(w, ']');
}

static void write_sizes(json_writer *w, const rt_plan *p)
{
    json_begin(w, "sizes", '{');
    for (size_t i = 0; i < p->n_symbols; i++)
        if (p->sizes[i] >= 0) json_write_integer(w, ir_dim_symbol_name(p->graph->module->dims, i), p->sizes[i]);
    json_end(w, '}');
}

static void print_json(const result *r)
{
    const rt_plan *p = r->plan;
    const rt_plan_totals *sum = &r->totals;
    json_writer w = {.file = stdout, .compact = true};
    json_begin(&w, NULL, '{');
    json_write_string(&w, "entry", p->graph->name);
    json_write_string(&w, "device", r->device);
    if (p->parts) json_write_integer(&w, "part", p->part + 1);
    write_sizes(&w, p);
    write_steps(&w, p);
    json_write_integer(&w, "launches", sum->launches);
    json_write_integer(&w, "bytes", sum->bytes);
    json_write_integer(&w, "flops", sum->flops);
    json_write_integer(&w, "copies", sum->copies);
    json_write_integer(&w, "copy_bytes", sum->copy_bytes);
    json_write_integer(&w, "arena_bytes", p->arena_bytes);
    json_write_integer(&w, "kept_bytes", p->persistent_bytes);
    json_write_integer(&w, "pack_bytes", r->packs);
    json_write_integer(&w, "storage_bytes", r->storage);
    json_write_integer(&w, "planned_bytes", planned_bytes(r));
    json_end(&w, '}');
    putchar('\n');
}

/* A size of a product in a low type that is not a multiple of 8, and is not 1; else 0. */
static int64_t uneven_size(const rt_plan *p, const rt_step *s)
{
    if (s->kind != RT_STEP_OP || s->op != IR_OP_matmul || !ir_dtype_is_low(s->in[0].dtype)) return 0;
    const k_args args = rt_step_args(p, s);
    const product m = product_of(&args);
    const int64_t sizes[] = {m.m, m.k, m.n};
    for (int i = 0; i < 3; i++)
        if (sizes[i] > 1 && sizes[i] % 8) return sizes[i];
    return 0;
}

/* Notes the products that a device which pads would compute faster with other sizes. */
static void note_uneven(const rt_plan *p, diag *d)
{
    int count = 0;
    int64_t size = 0;
    const rt_step *first = NULL;
    for (int i = 0; p->backend->pads && i < p->n_steps; i++) {
        const int64_t found = uneven_size(p, p->steps[i]);
        if (!found || count++) continue;
        size = found;
        first = p->steps[i];
    }
    if (first)
        diag_note(d, ir_diag_loc(first->node),
                  "%d product%s in a low type %s a size that is not a multiple of 8, such as %" PRId64
                  " here: the tensor cores of the device are fastest with multiples",
                  count, count == 1 ? "" : "s", count == 1 ? "has" : "have", size);
}

static ampc_status print_part(result *r, const tool *t)
{
    r->totals = rt_plan_sum(r->plan);
    if (!t->o.pass.json) return print_table(r, t->diag);
    print_json(r);
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
                          options.dump_after ? "--dump-after prints text and conflicts with --json"
                                             : "--dump-changed prints text and conflicts with --json");
    TRY(run_chosen_entry(c, &g));
    TRY(run_select_outputs(c, g));
    TRY(rt_session_plan(c->session, g->name, NULL, 0, &options, t->diag, &r.plan));
    TRY(rt_session_memory(c->session, g->name, NULL, 0, t->diag, &memory));
    r.storage = memory.storage;
    for (int part = 0; (r.plan = rt_session_planned(c->session, part)); part++) {
        r.packs = rt_session_pack_bytes(c->session, part);
        TRY(print_part(&r, t));
        if (!t->o.quiet && !options.dump_after) note_uneven(r.plan, t->diag);
    }
    return AMPC_OK;
}
