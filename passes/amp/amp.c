/* amp.c - pass amp: colours, places, explains, counts and casts each graph, then the subgraphs of its nodes. */
#include "passes/amp/cast.h"
#include "passes/amp/consumer.h"
#include "passes/amp/cost.h"
#include "passes/amp/explain.h"
#include "passes/amp/placement.h"
#include "passes/amp/range.h"

#include <string.h>

static const char *level_name(const compile *c) { return pass_levels[c->options->level].word; }

/* `levels = O1, ...`: the levels of the profile; without this rule, all of them. */
static ampc_status check_level(const compile *c)
{
    const amp_list *l = c->list;
    bool has = !*l->rule.levels || rules_text_has(l->rule.levels, level_name(c));
    if (c->options->level == PASS_O0 || has) return AMPC_OK;
    return diag_error(c->diag, AMPC_UNSUPPORTED, DIAG_NOWHERE, "profile %s has no level %s", l->base ? l->base : "ampc",
                      level_name(c));
}

/* For a consumer, without --placement=mincut: the plan with the fewest casts that the lists allow, in which no pair of
 * casts surrounds a few cheap nodes; of several, that with the fewest roundings, so casts are as late after an input
 * and as early before an output as they can be. The entries of nodes that keep their types are not changed. */
static void join_runs(ir_graph *g, const amp_scope *s)
{
    const consumer *c = s->compile->consumer;
    list_place *place = arena_alloc(s->arena, sizeof *place);
    amp_entry *before = arena_array(s->arena, g->node_ids, sizeof *before);
    memcpy(before, s->entries, g->node_ids * sizeof *before);
    *place = (list_place){c->file, 0};
    amp_place(g, s, false);
    for (uint32_t i = 0; i < g->node_ids; i++) {
        amp_entry *e = &s->entries[i];
        if (e->compute_dtype == before[i].compute_dtype && e->result == before[i].result) *e = before[i];
        else if (e->rule == AMP_CUT) e->line = place;
    }
}

/* Places casts by minimum cut. For the primary graph, reports the predicted costs and warns if f32 would cost less. */
static ampc_status place(ir_graph *g, const amp_scope *s)
{
    const compile_options *o = s->compile->options;
    const ir_device *device = s->compile->device;
    diag *d = s->compile->diag;
    bool primary = g == pass_primary(g->module);
    if (o->budget && s->enclosing) return AMPC_OK; /* of a subgraph, which no list names, the lists decide */
    if (o->placement != PASS_MINCUT && !o->budget) return join_runs(g, s), AMPC_OK;
    pass_costs costs = amp_place(g, s, primary && (o->explain || o->reports));
    if (!primary) return AMPC_OK;
    s->compile->report.predicted = costs;
    const char *cut = cost_print(device, costs.cut, s->arena), *f32 = cost_print(device, costs.f32, s->arena);
    diag_remark(d, DIAG_NOWHERE, "predicted on %s: %s, %s with greedy placement, %s in f32", device->name, cut,
                cost_print(device, costs.greedy, s->arena), f32);
    if (device->measure != DEVICE_TIME || costs.cut <= costs.f32) return AMPC_OK;
    diag_loc loc = DIAG_NOWHERE;
    if (!o->white_soft)
        loc = DIAG_USE(loc, OPTION_white_soft, .purpose = "to keep unprofitable white operators in f32");
    return diag_warning(d, loc, "mixed precision is predicted to be slower on %s: %s instead of %s in f32",
                        device->name, cut, f32);
}

/* ---- graph by graph -------------------------------------------------------------------------- */

static ampc_status lower_graph(ir_graph *g, amp_scope *s);

/* Whether a captured value counts as a producer inside the subgraph: it does if the value it was cast from does. */
static bool counts_in_enclosing(const amp_scope *s, const ir_graph *g, const ir_value *v)
{
    while (v->kind == IR_VALUE_RESULT && v->def->id >= s->nodes) v = ir_in(v->def, 0);
    if (v->kind == IR_VALUE_RESULT) return s->entries[v->def->id].counts;
    for (size_t i = 0; s->enclosing && i < g->inputs.count; i++)
        if (g->inputs.items[i] == v) return s->counts[i];
    return false;
}

static ampc_status lower_region(const amp_scope *around, ir_node *n, const ir_region *region)
{
    ir_graph *subgraph = region->graph;
    ir_graph_renumber(subgraph);
    bool *counts = arena_array(around->arena, subgraph->inputs.count + 1, sizeof *counts);
    amp_scope s = {.enclosing = around,
                   .compile = around->compile,
                   .arena = around->arena,
                   .report = around->report,
                   .off = !amp_lowers_subgraphs(around) || !n->loc.op, /* part of a loss, which is f32 */
                   .node = n,
                   .counts = counts,
                   .model_dtypes = amp_model_dtypes(subgraph, around->arena)};
    for (size_t i = 0; i < subgraph->inputs.count; i++) {
        const int operand = ir_capture_of(region, i);
        if (operand < 0) continue;
        subgraph->inputs.items[i]->type = ir_in(n, operand)->type;
        counts[i] = counts_in_enclosing(around, n->graph, ir_in(n, operand));
    }
    return lower_graph(subgraph, &s);
}

static ampc_status lower_regions(const ir_graph *g, const amp_scope *s)
{
    for (ir_node *n = g->first; n; n = n->next)
        for (int i = 0; i < n->n_regions; i++) TRY(lower_region(s, n, &n->regions[i]));
    return AMPC_OK;
}

static ampc_status lower_graph(ir_graph *g, amp_scope *s)
{
    amp_colour(g, s);
    s->nodes = g->node_ids;
    s->casts = casts_new(s->arena);
    TRY(diag_status(s->compile->diag));
    if (s->compile->device && !s->off) TRY(place(g, s));
    amp_report_nodes(g, s);
    amp_count(g, s);
    if (!s->off) TRY(amp_cast(g, s));
    return lower_regions(g, s);
}

static void report_casts(const ir_graph *g, compile *c)
{
    pass_casts casts = pass_count_casts(g);
    c->report.cast_bytes = casts.bytes;
    c->report.cast_symbolic = casts.symbolic;
    if (c->list->rule.stats == STATS_INSERTED) c->report.inserted = pass_count_calls(g, g->module->arena);
}

static ampc_status run(ir_module *m, compile *c, arena *a)
{
    const compile_options *o = c->options;
    const bool off = o->level == PASS_O0;
    TRY(check_level(c));
    TRY(amp_list_check_used(c->list, m, c->diag));
    m->training.level = level_name(c);
    m->training.low = off ? IR_NO_DTYPE : o->low;
    m->training.profile = off || !c->list->base ? NULL : arena_strdup(m->arena, c->list->base);
    if (!off) c->weights = range_scan_weights(m, c);
    for (size_t i = 0; i < m->graphs.count; i++) {
        ir_graph *g = m->graphs.items[i];
        bool primary = g == pass_primary(m);
        amp_scope s = {.compile = c, .arena = a, .report = primary ? &c->report : NULL, .off = off};
        TRY(lower_graph(g, &s));
        if (primary) report_casts(g, c);
    }
    if (pass_explains(o) == EXPLAINS_NODES && !c->report.explained)
        return diag_error(c->diag, AMPC_USAGE, DIAG_OPTION(explain), "no node is named '%s'", o->explain);
    return AMPC_OK;
}

ampc_status pass_amp(ir_module *m, compile *c)
{
    if (!m->graphs.count) return AMPC_OK;
    arena *a = pass_scratch_new(m);
    ampc_status status = run(m, c, a);
    arena_free(a);
    return status;
}
