/* run_tune.c - tune: the cheapest precision of every operator within a budget of errors. */
#include "ir/base/json_writer.h"
#include "ir/base/philox.h"
#include "passes/passes.h"
#include "runtime/data/loader.h"
#include "runtime/files/atomic_file.h"
#include "runtime/inspect/numbers.h"
#include "runtime/inspect/sensitivity.h"
#include "tools/tune.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 512, ANALYSED = 256, VECTORS = 2 };
enum { ROUNDS = 12, BEYOND = 24, CHECKED = 8, UNKNOWN = 16 }; /* plans, plans above the limit, operators measured */

/* ---- plans ------------------------------------------------------------------------------------- */

/* The plan of least cost whose predicted squared error is at most `limit`. */
static ampc_status choose(tuning *t, double limit, tune_plan *out)
{
    run_variant v = {.graph = NULL};
    const pass_budget budget = {t->prices, limit};
    *out = tune_new_plan(t);
    const ampc_status status = tune_compile(t, &v, NULL, &budget, false);
    for (size_t i = 0; status == AMPC_OK && i < v.tool.compile->report.choices.count; i++) {
        const pass_choice *c = &v.tool.compile->report.choices.items[i];
        const uintptr_t at = (uintptr_t)strmap_get(t->by_name, c->node);
        if (at) out->low[at - 1] = c->low;
    }
    if (status == AMPC_OK) {
        out->predicted = sqrt(v.tool.compile->report.error * limit);
        out->cost = v.tool.compile->report.costs.cut;
    }
    run_variant_close(&v);
    return status;
}

static bool same(const tuning *t, const tune_plan *a, const tune_plan *b)
{
    return memcmp(a->low, b->low, t->operators.count * sizeof *a->low) == 0;
}

/* ---- sensitivity ------------------------------------------------------------------------------- */

static ampc_status find_profile_cost(tuning *t)
{
    run_variant v = {.graph = NULL};
    const ampc_status status = tune_compile(t, &v, NULL, NULL, false);
    if (status == AMPC_OK) {
        t->profile_cost = v.tool.compile->report.costs.greedy;
        t->device = v.tool.compile->device;
    }
    run_variant_close(&v);
    return status;
}

/* The operators that a list can name. */
static ampc_status find_operators(tuning *t)
{
    run_variant v = {.graph = NULL};
    const pass_budget budget = {t->prices, 1};
    arena *a = t->c->tool->arena;
    const ampc_status status = tune_compile(t, &v, NULL, &budget, false);
    for (size_t i = 0; status == AMPC_OK && i < v.tool.compile->report.choices.count; i++) {
        const pass_choice *c = &v.tool.compile->report.choices.items[i];
        tune_operator o = {.name = arena_strdup(a, c->node), .op = arena_strdup(a, c->op), .measured = NAN};
        vec_push(a, &t->operators, o);
        strmap_put(t->by_name, o.name, (void *)(uintptr_t)t->operators.count);
    }
    run_variant_close(&v);
    return status;
}

/* Whether effects are measured on the loss; else on the outputs. */
static bool differentiates_loss(const tuning *t)
{
    return !tune_limits_error(t) && ir_output_by_role(t->f32.graph, IR_OUTPUT_loss);
}

typedef struct drawing {
    const tuning *t;
    rt_tensor *seeds;
    int count;
    uint64_t batch;
} drawing;

/* Random signs, each output weighted by its norm. */
static void draw_seeds(void *user, int vector)
{
    const drawing *w = user;
    for (int k = 0; k < w->count; k++) {
        const double norm = sqrt(w->t->norms[k]);
        float *x = w->seeds[k].data;
        const uint64_t stream = ((w->batch * VECTORS + (uint64_t)vector) << 8) + (uint64_t)k;
        for (int64_t i = 0; i < rt_tensor_count(&w->seeds[k]); i++)
            x[i] = (float)((philox_word(7, stream, (uint64_t)i) & 1 ? 1 : -1) / (norm > 0 ? norm : 1));
    }
}

static ampc_status analyse_batches(tuning *t, run_variant *slopes, run_variant *low, rt_sensitivity *s,
                                   int64_t *batches)
{
    diag *d = t->c->tool->diag;
    arena *a = t->c->tool->arena;
    rt_loader *feed = NULL;
    const int64_t fixed = rt_loader_fixed_batch(low->graph, t->c->sizes), batch = fixed > 0 ? fixed : 1;
    ampc_status status = rt_loader_open(low->graph, t->data, t->c->sizes, batch, d, &feed);
    const int n = status == AMPC_OK ? rt_loader_count(feed) : 0;
    rt_tensor *inputs = arena_array(a, (size_t)(n + t->n_outputs + 1), sizeof *inputs);
    drawing w = {.t = t, .seeds = inputs + n};
    for (*batches = 0; status == AMPC_OK && *batches * batch < t->choosing && *batches < ANALYSED; ++*batches) {
        const int64_t at = *batches * batch;
        status = rt_loader_slice(feed, at, t->choosing - at < batch ? t->choosing - at : batch, d);
        if (status == AMPC_OK && n) memcpy(inputs, rt_loader_inputs(feed), (size_t)n * sizeof *inputs);
        if (status == AMPC_OK && !differentiates_loss(t) && !w.count) {
            status = rt_session_run(low->context.session, low->graph->name, inputs, n, d);
            for (int k = 0; status == AMPC_OK && k < t->n_outputs; k++) {
                const rt_tensor *y = rt_session_output_at(low->context.session, k);
                const char *name = arena_printf(a, PASS_SEED "%s", y->name);
                if (!ir_graph_find_input(slopes->graph, name)) continue;
                w.seeds[w.count] = *y;
                w.seeds[w.count].name = name;
                w.seeds[w.count].dtype = IR_f32;
                w.seeds[w.count++].data = arena_array(a, (size_t)rt_tensor_count(y) + 1, sizeof(float));
            }
        }
        w.batch = (uint64_t)*batches;
        if (status == AMPC_OK)
            status = rt_sensitivity_add(s, slopes->context.session, low->context.session, low->graph->name, inputs, n,
                                        n + w.count, w.count ? VECTORS : 1, draw_seeds, &w, d);
    }
    rt_loader_close(feed);
    return status;
}

/* Prices by node, in units of the mean over batches; the operator's figure is that of it alone. */
static void price_rows(tuning *t, const rt_sensitivity *s, int64_t batches, bool loss)
{
    arena *a = t->c->tool->arena;
    for (int i = 0; i < s->count; i++) {
        const rt_sensitive *r = &s->rows[i];
        const uintptr_t at = (uintptr_t)strmap_get(t->by_name, r->node->loc.node);
        if (!at) continue;
        tune_operator *o = &t->operators.items[at - 1];
        const double n = (double)batches, mean = r->mean / n;
        const double noise = fmin(1, sqrt(2 / n)); /* of a mean of n squares: no difference of two is known better */
        double total = r->total / n, result = r->result / n;
        if (loss) { /* errors of samples cancel in the mean */
            const double share = total > 0 ? (mean * mean + total / n) / total : 0;
            total *= share;
            result *= share;
        }
        pass_price *p = arena_alloc(a, sizeof *p);
        *p = r->overflows ? (pass_price){INFINITY, INFINITY}
             : r->exact   ? (pass_price){0, total}
                          : (pass_price){result, fmax(total - result, total * noise)};
        const bool separate = ir_op_out_attr(r->node->op) >= 0;
        const double alone = separate ? p->operands : p->operands + p->result;
        o->predicted = sqrt(o->predicted * o->predicted + alone);
        vec_push(a, &o->prices, p);
        strmap_put(t->prices, r->node->out[0]->name, p);
    }
}

static ampc_status analyse(tuning *t)
{
    run_variant slopes = {.graph = NULL}, low = {.graph = NULL};
    rt_sensitivity s = {.count = 0};
    tune_plan all = tune_new_plan(t);
    int64_t batches = 0;
    for (size_t i = 0; i < t->operators.count; i++) all.low[i] = true;
    ampc_status status = tune_compile(t, &low, tune_list(t, &all, false), NULL, false);
    if (status == AMPC_OK) status = tune_compile(t, &slopes, NULL, NULL, true);
    if (status == AMPC_OK)
        status = compile_slopes(slopes.tool.module, slopes.graph->name, differentiates_loss(t), t->c->tool->diag);
    if (status == AMPC_OK) status = run_variant_open(&low, "cpu", t->c->tool->diag);
    if (status == AMPC_OK) status = run_variant_open(&slopes, "cpu", t->c->tool->diag);
    if (status == AMPC_OK) {
        rt_sensitivity_open(&s, low.graph, t->c->tool->o.pass.low, PASS_SLOPE, t->c->tool->arena);
        status = analyse_batches(t, &slopes, &low, &s, &batches);
        t->runs += s.runs;
    }
    if (status == AMPC_OK) price_rows(t, &s, batches, differentiates_loss(t));
    rt_sensitivity_close(&s);
    run_variant_close(&slopes);
    run_variant_close(&low);
    return status;
}

/* ---- checks of single operators ---------------------------------------------------------------- */

static ampc_status measure_alone(tuning *t, tune_operator *o)
{
    tune_plan alone = tune_new_plan(t);
    alone.low[o - t->operators.items] = true;
    TRY(tune_measure(t, &alone));
    o->measured = alone.change.chosen;
    return AMPC_OK;
}

static bool is_unknown(const tune_operator *o) { return o->predicted == 0 && o->prices.count; }

/* Derivatives do not show what rounding does to a comparison, a choice or a number that is rounded again. */
static ampc_status check_unknown(tuning *t)
{
    tune_plan all = tune_new_plan(t);
    int count = 0;
    for (size_t i = 0; i < t->operators.count; i++) count += all.low[i] = is_unknown(&t->operators.items[i]);
    if (count) TRY(tune_measure(t, &all));
    if (all.change.chosen <= t->limit / 100) return AMPC_OK;
    count = 0;
    for (size_t i = 0; i < t->operators.count; i++) {
        tune_operator *o = &t->operators.items[i];
        if (!all.low[i]) continue;
        if (count++ < UNKNOWN) TRY(measure_alone(t, o));
        const double found = fmax(0, isnan(o->measured) ? all.change.chosen : o->measured);
        for (size_t k = 0; k < o->prices.count; k++)
            o->prices.items[k]->result = o->prices.items[k]->operands = found * found / (double)o->prices.count;
    }
    return AMPC_OK;
}

/* The largest effects that the budget might allow. */
static ampc_status check_largest(tuning *t)
{
    for (int n = 0; n < CHECKED; n++) {
        tune_operator *o = NULL;
        for (size_t i = 0; i < t->operators.count; i++) {
            tune_operator *x = &t->operators.items[i];
            if (isnan(x->measured) && x->predicted > 0 && x->predicted <= 2 * t->limit &&
                (!o || x->predicted > o->predicted))
                o = x;
        }
        if (!o) return AMPC_OK;
        TRY(measure_alone(t, o));
        const double ratio = pow(o->measured / o->predicted, 2), scale = fmin(16, fmax(1.0 / 16, ratio));
        for (size_t k = 0; k < o->prices.count; k++) {
            o->prices.items[k]->result *= scale;
            o->prices.items[k]->operands *= scale;
        }
    }
    return AMPC_OK;
}

/* ---- the search -------------------------------------------------------------------------------- */

/* Measures the cheapest plan within the predicted limit, unless it was tried, or costs at least `below`: then `tried`
 * is NULL. It is the best one if it holds the budget at less cost. */
static ampc_status try_limit(tuning *t, double predicted, int64_t below, tune_plan *best, const tune_plan **tried)
{
    tune_plan p;
    *tried = NULL;
    TRY(choose(t, predicted * predicted, &p));
    for (size_t i = 0; i < t->tried.count && !*tried; i++)
        if (same(t, &p, &t->tried.items[i])) *tried = &t->tried.items[i];
    if (*tried || p.cost >= below) return AMPC_OK;
    TRY(tune_measure(t, &p));
    vec_push(t->c->tool->arena, &t->tried, p);
    *tried = &t->tried.items[t->tried.count - 1];
    if (tune_holds(t, &p.change) && p.cost < best->cost) *best = p;
    return AMPC_OK;
}

/* Raises the prices of what a plan that fails has beyond the best one, at least to what it was measured to add. */
static void blame(const tuning *t, const tune_plan *failed, const tune_plan *best)
{
    double priced = 0;
    const double added = pow(failed->change.upper, 2) - pow(best->change.upper, 2);
    for (int raise = 0; raise <= 1; raise++)
        for (size_t i = 0; i < t->operators.count; i++) {
            const tune_operator *o = &t->operators.items[i];
            for (size_t k = 0; k < o->prices.count && failed->low[i] && !best->low[i]; k++) {
                pass_price *p = o->prices.items[k];
                const double factor = priced > 0 ? fmin(8, fmax(1.3, added / priced)) : 1.3;
                if (!raise) priced += p->result + p->operands;
                else *p = (pass_price){p->result * factor, p->operands * factor};
            }
        }
}

/* Bisects the predicted limit. Effects of several operators are not quite independent, so plans beyond it are tried
 * too, with what fails at a higher price. */
static ampc_status search(tuning *t, tune_plan *best)
{
    double low = 0, high = 0, predicted = t->limit;
    const tune_plan *tried;
    *best = tune_new_plan(t);
    TRY(tune_measure(t, best));
    vec_push(t->c->tool->arena, &t->tried, *best);
    for (int i = 0; i < ROUNDS; i++) {
        TRY(try_limit(t, predicted, INT64_MAX, best, &tried));
        if (tune_holds(t, &tried->change)) low = predicted;
        else high = predicted;
        predicted = !high ? 4 * low : !low ? high / 4 : sqrt(low * high);
        if (low && high && high < 1.01 * low) break;
    }
    for (int i = 0; i < BEYOND && high; i++) {
        TRY(try_limit(t, high, best->cost, best, &tried));
        if (tried && !tune_holds(t, &tried->change)) blame(t, tried, best);
        else high *= 1.1;
    }
    return AMPC_OK;
}

/* ---- the result -------------------------------------------------------------------------------- */

static ampc_status write_list(const tuning *t, const tune_plan *p)
{
    const char *path = t->c->tool->o.output;
    if (!path) return AMPC_OK;
    const char *head = arena_printf(t->c->tool->arena,
                                    "# ampc-run tune: %s <= %g: %.3g on %" PRId64 " samples, %.3g on %" PRId64
                                    " others\n[meta]\nversion = 1\n\n",
                                    t->metric, t->limit, p->change.chosen, t->choosing, p->change.held, t->held);
    const char *text = arena_printf(t->c->tool->arena, "%s%s", head, tune_list(t, p, true));
    return rt_atomic_save(path, text, strlen(text), t->c->tool->diag);
}

static void print_json(const tuning *t, const tune_plan *p, size_t low)
{
    json_writer w = {.file = stdout};
    json_begin(&w, NULL, '{');
    json_write_string(&w, "metric", t->metric);
    json_write_real(&w, "limit", "%.9g", t->limit);
    json_write_real(&w, "predicted", "%.9g", p->predicted);
    json_write_real(&w, "measured", "%.9g", p->change.chosen);
    json_write_real(&w, "upper", "%.9g", p->change.upper);
    json_write_real(&w, "held_out", "%.9g", p->change.held);
    json_write_integer(&w, "samples", t->choosing);
    json_write_integer(&w, "samples_held_out", t->held);
    json_write_integer(&w, "cost", p->cost);
    json_write_integer(&w, "cost_f32", t->f32_cost);
    json_write_integer(&w, "cost_profile", t->profile_cost);
    json_write_integer(&w, "runs", t->runs);
    json_write_integer(&w, "low", (int64_t)low);
    json_begin(&w, "operators", '[');
    for (size_t i = 0; i < t->operators.count; i++) {
        const tune_operator *o = &t->operators.items[i];
        json_begin(&w, NULL, '{');
        json_write_string(&w, "name", o->name);
        json_write_string(&w, "op", o->op);
        json_write_bool(&w, "low", p->low[i]);
        json_write_real(&w, "predicted", "%.9g", o->predicted);
        if (!isnan(o->measured)) json_write_real(&w, "measured", "%.9g", o->measured);
        json_end(&w, '}');
    }
    json_end(&w, ']');
    json_end(&w, '}');
    putchar('\n');
}

static ampc_status report(const tuning *t, const tune_plan *p)
{
    const ir_device *device = t->device;
    arena *a = t->c->tool->arena;
    size_t low = 0;
    for (size_t i = 0; i < t->operators.count; i++) low += p->low[i];
    TRY(write_list(t, p));
    if (t->c->tool->o.pass.json) print_json(t, p, low);
    else if (!t->c->tool->o.quiet) {
        printf("%zu of %zu operators in %s: %s %.3g predicted, %.3g on %" PRId64 " samples, %.3g on %" PRId64
               " held out, at most %.3g; limit %g\n",
               low, t->operators.count, ir_dtype_name(t->c->tool->o.pass.low), t->metric, p->predicted,
               p->change.chosen, t->choosing, p->change.held, t->held, p->change.upper, t->limit);
        printf("predicted cost: %s, %s in fp32, %s with the profile; %" PRId64 " runs\n",
               cost_print(device, p->cost, a), cost_print(device, t->f32_cost, a),
               cost_print(device, t->profile_cost, a), t->runs);
    }
    return AMPC_OK;
}

/* ---- the command ------------------------------------------------------------------------------- */

static ampc_status parse_budget(tuning *t)
{
    const char *text = t->c->tool->o.budget, *at = text ? strstr(text, "<=") : NULL;
    diag *d = t->c->tool->diag;
    char *end = NULL;
    if (at) t->limit = strtod(at + 2, &end);
    if (!at || at == text || end == at + 2 || *end || !(t->limit >= 0 && isfinite(t->limit)) ||
        (size_t)(at - text) >= sizeof t->metric)
        return diag_error(d, AMPC_USAGE, DIAG_OPTION(budget),
                          "expected METRIC<=VALUE, such as error<=0.001, loss<=0.01 or accuracy<=0.005");
    memcpy(t->metric, text, (size_t)(at - text));
    if (tune_limits_error(t)) return AMPC_OK;
    TRY(rt_metrics_parse(t->metric, OPTION_budget, d, &t->metrics));
    if (t->metrics.count == 1) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_OPTION(budget), "'%s' is not one metric", t->metric);
}

static ampc_status tune(tuning *t)
{
    diag *d = t->c->tool->diag;
    tune_plan best;
    if (!t->c->tool->compile)
        return diag_error(d, AMPC_USAGE, DIAG_FILE(t->c->tool->o.operands.items[0]),
                          "tune compiles the model several times, so it requires the .onnx file");
    TRY(parse_budget(t));
    if (t->c->tool->o.pass.level == PASS_O0)
        return diag_error(d, AMPC_USAGE, DIAG_OPTION(amp), "at O0 no operator has a low type to choose");
    TRY(tune_compile(t, &t->f32, NULL, NULL, true));
    TRY(run_open_data(t->c, t->c->tool->o.data, RT_TEST, t->f32.graph, &t->data));
    TRY(rt_dataset_shuffle(t->data, t->c->tool->o.pass.seed, d));
    const int64_t rows = rt_dataset_rows(t->data), wanted = t->c->tool->o.samples ? t->c->tool->o.samples : SAMPLES;
    const int64_t all = rows < wanted ? rows : wanted;
    if (all < 2 * TUNE_PARTS)
        return diag_error(d, AMPC_USAGE, DIAG_OPTION(data), "at least %d samples are needed", 2 * TUNE_PARTS);
    t->held = all / 3;
    t->choosing = all - t->held;
    tune_change none;
    TRY(run_variant_open(&t->f32, t->c->tool->o.device, t->c->tool->diag));
    TRY(tune_run_error(t, &t->f32, true, &none));
    for (int k = 0; k < t->n_outputs; k++) t->norms[k] /= (double)all;
    if (t->not_finite)
        diag_warning(d, DIAG_FILE(t->c->tool->o.operands.items[0]),
                     "%" PRId64 " values of the outputs are not finite in fp32 either, so they have no error",
                     t->not_finite);
    if (!tune_limits_error(t)) TRY(tune_run_metric(t, &t->f32, t->baseline));
    t->by_name = strmap_new(t->c->tool->arena);
    t->prices = strmap_new(t->c->tool->arena);
    TRY(find_profile_cost(t));
    TRY(find_operators(t));
    TRY(analyse(t));
    TRY(check_unknown(t));
    if (tune_limits_error(t)) TRY(check_largest(t));
    TRY(search(t, &best));
    TRY(report(t, &best));
    if (best.cost < t->f32_cost) return AMPC_OK;
    TRY(choose(t, 1e60, &best));
    if (best.cost >= t->f32_cost) return AMPC_OK;
    return diag_error(d, AMPC_NUMERIC, DIAG_OPTION(budget), "no plan that costs less than fp32 holds the budget");
}

ampc_status run_tune(run_context *c)
{
    tuning t = {.c = c};
    const ampc_status status = tune(&t);
    rt_dataset_close(t.data);
    run_variant_close(&t.f32);
    return status;
}
