/* plans.c - the plan of least cost: of all that the lists leave open, or within a budget of errors.
 *
 * With a budget, the minimum cut has a price on errors, found by bisection. Plans between those that a price selects
 * are found near the best one, and in a small network among all. */
#include "passes/amp/problem.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- what the lists leave open --------------------------------------------------------------- */

static void explain_flips(placement *p, const cut_label *labels)
{
    int64_t *flips = arena_array(p->arena, p->greedy.count, sizeof *flips);
    cut_flips(p->cut, labels, flips);
    for (const ir_node *n = p->graph->first; n && n->phase == IR_FORWARD; n = n->next) {
        amp_entry *e = &p->entries[n->id];
        if (e->rule != AMP_CUT) continue;
        int64_t flip = flips[p->computes[n->id]];
        const char *other = labels[p->computes[n->id]] == CUT_HIGH ? ir_dtype_name(p->options->low) : "f32";
        e->alternative_cost = flip == CUT_FORBIDDEN
                                  ? arena_printf(p->arena, "%s instead: not possible for this node alone", other)
                                  : arena_printf(p->arena, "%s instead: %s more", other,
                                                 cost_print(p->cost.device, flip, p->arena));
    }
}

static pass_costs place_freely(ir_graph *g, const amp_scope *s, bool explain)
{
    placement p = placement_problem(g, s, true, 0);
    pass_costs costs = {.greedy = placement_greedy_cost(&p), .f32 = placement_f32_cost(&p)};
    cut_label *labels = arena_array(p.arena, p.greedy.count, sizeof *labels);
    cut_solve(p.cut, labels);
    costs.cut = cut_cost(p.cut, labels);
    assert(costs.cut <= costs.greedy && costs.greedy != CUT_FORBIDDEN);
    placement_apply(&p, labels);
    if (explain) explain_flips(&p, labels);
    return costs;
}

/* ---- within a budget of errors --------------------------------------------------------------- */

enum { WORK = 4000000, STEPS = 48 };
static const double ERROR_UNITS = 1e9; /* of the budget */

/* Plans are judged as a list that names each operator: results have its type, before casts are folded. */
typedef struct search {
    ir_graph *graph;
    placement costs, errors; /* the same problem, with costs or with errors alone */
    size_t count;            /* of operators */
    size_t *operator_of;     /* by node id: its operator, plus 1; 0: none */
    bool *fixed;             /* by operator */
    bool *low, *best;        /* by operator: the plan that is tried, the best one within the budget */
    cut_label *labels;       /* of the plan that was priced last */
    int64_t cost, best_cost;
    double error, best_error; /* as shares of the budget */
    int64_t left;             /* plans that may still be priced to improve one */
} search;

static cut_label pinned_or(const placement *p, uint32_t v, cut_label label)
{
    return cut_is_pinned(p->cut, v, CUT_LOW) ? CUT_LOW : cut_is_pinned(p->cut, v, CUT_HIGH) ? CUT_HIGH : label;
}

static void label_plan(search *s)
{
    placement *p = &s->costs;
    memcpy(s->labels, p->greedy.items, p->greedy.count * sizeof *s->labels);
    for (const ir_node *n = p->graph->first; n && n->phase == IR_FORWARD; n = n->next) {
        const size_t op = s->operator_of[n->id];
        if (!op) continue;
        const cut_label label = s->low[op - 1] ? CUT_LOW : CUT_HIGH;
        const uint32_t reads = p->computes[n->id], writes = p->writes[n->id];
        s->labels[reads] = pinned_or(p, reads, label);
        if (writes != reads) s->labels[writes] = pinned_or(p, writes, label);
    }
    placement_fold(p, s->labels);
}

/* Prices the plan that is tried, and keeps it if it is the best one. Returns whether it is. */
static bool evaluate(search *s)
{
    label_plan(s);
    s->cost = cut_cost(s->costs.cut, s->labels);
    const int64_t error = cut_cost(s->errors.cut, s->labels);
    s->error = error == CUT_FORBIDDEN ? INFINITY : (double)error / ERROR_UNITS;
    if (s->cost == CUT_FORBIDDEN || s->error > 1) return false;
    if (s->cost > s->best_cost || (s->cost == s->best_cost && s->error >= s->best_error)) return false;
    memcpy(s->best, s->low, s->count * sizeof *s->best);
    s->best_cost = s->cost;
    s->best_error = s->error;
    return true;
}

static bool evaluate_again(search *s) { return s->left-- > 0 && evaluate(s); }

/* Tries the minimum cut at a price of errors. Returns whether it is within the budget. */
static bool try_price(search *s, double price)
{
    const placement p = placement_problem(s->graph, s->costs.scope, true, price);
    cut_label *labels = arena_array(p.arena, p.greedy.count, sizeof *labels);
    cut_solve(p.cut, labels);
    for (size_t i = 0; i < s->count; i++) s->low[i] = labels[s->costs.operators.items[i]->vertex] == CUT_LOW;
    evaluate(s);
    return s->error <= 1;
}

/* Bisects the price; plans between those that a price selects are left to the functions below. */
static void search_prices(search *s)
{
    double too_low = 0, enough = 1;
    if (try_price(s, 0)) return;
    for (int i = 0; i < STEPS && !try_price(s, enough); i++) enough *= 4;
    for (int i = 0; i < STEPS && enough > 1.001 * too_low; i++) {
        const double price = too_low ? sqrt(too_low * enough) : enough / 64;
        *(try_price(s, price) ? &enough : &too_low) = price;
        if (!too_low && enough < 1e-9) return;
    }
}

static bool try_all(search *s)
{
    if (s->count > 30 || (int64_t)1 << s->count > s->left) return false;
    for (uint32_t set = 0; set < (uint32_t)1 << s->count; set++) {
        bool possible = true;
        for (size_t i = 0; i < s->count; i++) {
            s->low[i] = set >> i & 1;
            possible &= !s->fixed[i] || s->low[i] == s->best[i];
        }
        if (possible) evaluate_again(s);
    }
    return true;
}

static void set_run(search *s, size_t first, size_t end, bool low)
{
    memcpy(s->low, s->best, s->count * sizeof *s->low);
    for (size_t i = first; i < end; i++)
        if (!s->fixed[i]) s->low[i] = low;
}

/* Sets a run of operators to the same type; then also each further operator the other one. */
static bool improve_runs(search *s, bool exchange)
{
    bool improved = false;
    for (size_t length = 1; length <= s->count && s->left > 0; length += 1 + length / 8)
        for (size_t first = 0; first + length <= s->count && s->left > 0; first++)
            for (int low = 0; low <= 1; low++) {
                set_run(s, first, first + length, low);
                if (!exchange) improved |= evaluate_again(s);
                for (size_t i = 0; exchange && i < s->count && s->left > 0; i++) {
                    if (s->fixed[i] || (i >= first && i < first + length) || s->low[i] == (bool)!low) continue;
                    set_run(s, first, first + length, low);
                    s->low[i] = !low;
                    improved |= evaluate_again(s);
                }
            }
    return improved;
}

static void improve(search *s)
{
    if (try_all(s)) return;
    for (bool improved = true; improved;) {
        improved = improve_runs(s, false);
        if (!improved) improved = improve_runs(s, true);
    }
}

static void search_new(search *s, ir_graph *g, const amp_scope *scope)
{
    *s = (search){.graph = g, .costs = placement_problem(g, scope, true, 0)};
    s->errors = placement_problem(g, scope, false, ERROR_UNITS);
    placement *p = &s->costs;
    const size_t count = s->count = p->operators.count, nodes = g->node_ids;
    s->operator_of = arena_array(p->arena, nodes + 1, sizeof *s->operator_of);
    s->fixed = arena_array(p->arena, count + 1, sizeof *s->fixed);
    s->low = arena_array(p->arena, count + 1, sizeof *s->low);
    s->best = arena_array(p->arena, count + 1, sizeof *s->best);
    s->labels = arena_array(p->arena, p->greedy.count, sizeof *s->labels);
    s->best_cost = INT64_MAX;
    s->left = WORK / (int64_t)(nodes + g->value_ids + 1);
    for (size_t i = 0; i < count; i++) {
        const priced_operator *op = p->operators.items[i];
        s->fixed[i] = placement_is_pinned(p, op->vertex);
        s->low[i] = s->best[i] = pinned_or(p, op->vertex, CUT_HIGH) == CUT_LOW;
    }
    for (const ir_node *n = g->first; n && n->phase == IR_FORWARD; n = n->next) {
        const priced_operator *op = p->computes[n->id] != NO_VERTEX && placement_is_priced(p, n)
                                        ? strmap_get(p->by_name, n->loc.node)
                                        : NULL;
        if (op) s->operator_of[n->id] = op->index + 1;
    }
}

/* The graph that the costs of a compilation are those of: the one that evaluates the model. */
static bool is_evaluated(const ir_graph *g)
{
    return g->role == (ir_graph_by_role(g->module, IR_GRAPH_eval) ? IR_GRAPH_eval : IR_GRAPH_infer);
}

static void report_choices(const search *s)
{
    compile *c = s->costs.scope->compile;
    if (!is_evaluated(s->costs.graph)) return;
    c->report.error = s->best_error;
    c->report.choices.count = 0;
    for (size_t i = 0; i < s->count; i++) {
        const priced_operator *op = s->costs.operators.items[i];
        const pass_choice choice = {op->node->loc.node, op->node->loc.op, s->best[i], op->low_by_lists};
        vec_push(c->arena, &c->report.choices, choice);
    }
}

static pass_costs place_within(ir_graph *g, const amp_scope *scope)
{
    search s;
    search_new(&s, g, scope);
    evaluate(&s); /* all f32 */
    search_prices(&s);
    improve(&s);
    memcpy(s.low, s.best, s.count * sizeof *s.low);
    label_plan(&s);
    pass_costs costs = {.cut = cut_cost(s.costs.cut, s.labels), .f32 = placement_f32_cost(&s.costs)};
    placement_apply(&s.costs, s.labels);
    costs.greedy = placement_greedy_cost(&s.costs);
    report_choices(&s);
    return costs;
}

/* ---- the choice ------------------------------------------------------------------------------ */

pass_costs amp_place(ir_graph *g, const amp_scope *s, bool explain)
{
    const pass_costs costs = s->compile->options->budget ? place_within(g, s) : place_freely(g, s, explain);
    if (is_evaluated(g)) s->compile->report.costs = costs;
    return costs;
}
