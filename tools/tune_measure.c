/* tune_measure.c - what a plan of precisions does to the outputs or a metric, on samples. */
#include "ir/base/text_buffer.h"
#include "passes/amp/list.h"
#include "runtime/data/loader.h"
#include "runtime/inspect/numbers.h"
#include "tools/tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 32 };
static const double MARGIN = 1.3, PART_MARGIN = 2; /* standard errors: of errors by batch, of metrics by part */

/* ---- variants of the model --------------------------------------------------------------------- */

ampc_status tune_compile(const tuning *t, run_variant *v, const char *list, const pass_budget *budget, bool f32)
{
    const tool *base = t->c->tool;
    *v = run_variant_of(base, t->c->sizes);
    compile_options *o = &v->tool.o.pass;
    if (f32) o->level = PASS_O0;
    o->fuse = false;
    o->list_text = list;
    o->budget = budget;
    o->placement = PASS_MINCUT; /* for the predicted costs */
    TRY(run_variant_compile(v, base->diag, false));
    v->graph = rt_evaluated_graph(v->tool.module);
    if (v->graph) return AMPC_OK;
    return diag_error(base->diag, AMPC_UNSUPPORTED, DIAG_NOWHERE, "the module has no entry @eval or @infer");
}

/* ---- measuring --------------------------------------------------------------------------------- */

static int64_t batch_of(const tuning *t, const run_variant *v)
{
    const int64_t fixed = rt_loader_fixed_batch(v->graph, t->c->sizes);
    return fixed > 0 ? fixed : t->c->tool->o.batch ? t->c->tool->o.batch : BATCH;
}

bool tune_limits_error(const tuning *t) { return strcmp(t->metric, "error") == 0; }

/* Of a batch and an output: adds the squares of differences and of the fp32 values. An output whose size depends on
 * values may have another one than in fp32. */
static void compare_output(const rt_tensor *x, const float *y, int64_t count, double *difference, double *norm)
{
    const size_t size = ir_dtype_size(x->dtype);
    if (rt_tensor_count(x) != count) *difference = INFINITY;
    for (int64_t i = 0; i < count && rt_tensor_count(x) == count; i++) {
        const double a = ir_load_f64(x->dtype, (const char *)x->data + (size_t)i * size), b = (double)y[i];
        if (isnan(b) ? isnan(a) : a == b) continue;
        *difference += isfinite(a - b) ? (a - b) * (a - b) : INFINITY;
    }
    for (int64_t i = 0; i < count; i++) *norm += isfinite(y[i]) ? (double)y[i] * (double)y[i] : 0;
}

/* The relative error over sums of batches, and its upper bound. */
static double relative(const double *difference, const double *norm, int64_t count, double *upper)
{
    double d = 0, n = 0, spread = 0;
    for (int64_t i = 0; i < count; i++) {
        d += difference[i];
        n += norm[i];
    }
    const double ratio = d > 0 ? d / n : 0;
    for (int64_t i = 0; i < count; i++) spread += pow(difference[i] - ratio * norm[i], 2);
    *upper = d > 0 ? sqrt(ratio + MARGIN * sqrt(spread * (double)count / (double)(count > 1 ? count - 1 : 1)) / n) : 0;
    return sqrt(ratio);
}

/* Whether an output is one of the model, not a loss or a part of one. */
static bool is_of_model(const ir_graph *g, const char *name)
{
    for (const ir_node *n = ir_first_output(g); n; n = ir_next_output(n))
        if (strcmp(ir_output_name(n), name) == 0) return !ir_output_roles[n->role].name;
    return false;
}

static ampc_status keep_outputs(tuning *t, run_variant *v, int64_t at)
{
    for (int k = 0; k < t->n_outputs; k++) {
        const rt_tensor *x = rt_session_output_at(v->context.session, k);
        if (!x) return rt_session_fetched(v->context.session, t->c->tool->diag);
        if (!ir_dtype_is_float(x->dtype) || !is_of_model(v->graph, x->name)) continue;
        const size_t count = (size_t)rt_tensor_count(x);
        float *copy = arena_array(t->c->tool->arena, count + 1, sizeof *copy);
        ir_convert(IR_f32, copy, x->dtype, x->data, count);
        t->outputs[at * t->n_outputs + k] = copy;
        t->counts[at * t->n_outputs + k] = (int64_t)count;
        for (size_t i = 0; i < count; i++) {
            t->norms[k] += isfinite(copy[i]) ? (double)copy[i] * (double)copy[i] : 0;
            t->not_finite += !isfinite(copy[i]);
        }
    }
    return AMPC_OK;
}

static void new_outputs(tuning *t, const run_variant *v, int64_t batches)
{
    arena *a = t->c->tool->arena;
    t->n_outputs = rt_session_output_count(v->context.session);
    t->outputs = arena_array(a, (size_t)(batches * t->n_outputs) + 1, sizeof(float *));
    t->counts = arena_array(a, (size_t)(batches * t->n_outputs) + 1, sizeof(int64_t));
    t->norms = arena_array(a, (size_t)t->n_outputs + 1, sizeof(double));
    t->difference = arena_array(a, (size_t)(batches * t->n_outputs) + 1, sizeof(double));
    t->norm = arena_array(a, (size_t)(batches * t->n_outputs) + 1, sizeof(double));
}

static ampc_status compare_outputs(const tuning *t, const run_variant *v, int64_t at, int64_t batches)
{
    for (int k = 0; k < t->n_outputs; k++) {
        double *difference = &t->difference[k * batches + at], *norm = &t->norm[k * batches + at];
        *difference = *norm = 0;
        const float *y = t->outputs[at * t->n_outputs + k];
        const rt_tensor *x = y ? rt_session_output_at(v->context.session, k) : NULL;
        if (x) compare_output(x, y, t->counts[at * t->n_outputs + k], difference, norm);
        else if (y) return rt_session_fetched(v->context.session, t->c->tool->diag);
    }
    return AMPC_OK;
}

ampc_status tune_run_error(tuning *t, run_variant *v, bool keep, tune_change *out)
{
    diag *d = t->c->tool->diag;
    const int64_t rows = t->choosing + t->held, batch = batch_of(t, v), batches = rows / batch + 2;
    rt_loader *feed = NULL;
    ampc_status status = rt_loader_open(v->graph, t->data, t->c->sizes, batch, d, &feed);
    int64_t chosen = 0, count = 0;
    for (int part = 0; part < 2; part++) {
        const int64_t end = part ? rows : t->choosing;
        for (int64_t at = part ? t->choosing : 0; at < end && status == AMPC_OK; at += batch, count++) {
            status = rt_loader_slice(feed, at, end - at < batch ? end - at : batch, d);
            if (status == AMPC_OK)
                status = rt_session_run(v->context.session, v->graph->name, rt_loader_inputs(feed),
                                        rt_loader_count(feed), d);
            if (status == AMPC_OK && !t->outputs) new_outputs(t, v, batches);
            if (status == AMPC_OK) status = keep ? keep_outputs(t, v, count) : compare_outputs(t, v, count, batches);
        }
        if (!part) chosen = count;
    }
    rt_loader_close(feed);
    *out = (tune_change){0};
    for (int k = 0; k < t->n_outputs && !keep && status == AMPC_OK; k++) {
        const double *difference = &t->difference[k * batches], *norm = &t->norm[k * batches];
        double upper, ignored;
        const double mean = relative(difference, norm, chosen, &ignored);
        const double held = relative(difference + chosen, norm + chosen, count - chosen, &ignored);
        relative(difference, norm, count, &upper);
        out->chosen = fmax(out->chosen, isnan(mean) ? INFINITY : mean);
        out->upper = fmax(out->upper, isnan(upper) ? INFINITY : upper);
        out->held = fmax(out->held, isnan(held) ? INFINITY : held);
    }
    return status;
}

ampc_status tune_run_metric(tuning *t, run_variant *v, double values[TUNE_PARTS + 1])
{
    for (int i = 0; i <= TUNE_PARTS; i++) {
        const int64_t first = i * t->choosing / TUNE_PARTS, end = (i + 1) * t->choosing / TUNE_PARTS;
        const rt_eval_options o = {.batch = batch_of(t, v),
                                   .metrics = t->metrics.count ? &t->metrics : NULL,
                                   .first = i < TUNE_PARTS ? first : t->choosing,
                                   .limit = i < TUNE_PARTS ? end - first : t->held};
        rt_eval e = {0};
        const ampc_status status = rt_evaluate(v->context.session, v->tool.module, t->data, &o, t->c->tool->diag, &e);
        if (status == AMPC_OK) values[i] = rt_eval_number(&e, t->metric);
        rt_eval_clear(&e);
        TRY(status);
    }
    return AMPC_OK;
}

static ampc_status measure_metric(tuning *t, run_variant *v, tune_change *out)
{
    double values[TUNE_PARTS + 1], changes[TUNE_PARTS], mean = 0, square = 0;
    const bool higher = t->metrics.count && rt_metric_better(&t->metrics.items[0]) == RT_BETTER_HIGHER;
    TRY(tune_run_metric(t, v, values));
    for (int i = 0; i <= TUNE_PARTS; i++) {
        double worse = higher ? t->baseline[i] - values[i] : values[i] - t->baseline[i];
        if (isnan(worse)) worse = INFINITY;
        if (i == TUNE_PARTS) out->held = worse;
        else mean += (changes[i] = worse) / TUNE_PARTS;
    }
    for (int i = 0; i < TUNE_PARTS; i++) square += pow(changes[i] - mean, 2) / (TUNE_PARTS - 1);
    out->chosen = mean;
    out->upper = isfinite(mean) ? mean + PART_MARGIN * sqrt(square / TUNE_PARTS) : INFINITY;
    return AMPC_OK;
}

/* ---- plans ------------------------------------------------------------------------------------- */

const char *tune_list(const tuning *t, const tune_plan *p, bool comments)
{
    arena *a = t->c->tool->arena;
    const ir_dtype low = t->c->tool->o.pass.low;
    text_buffer text = {.arena = a};
    text_put(&text, "[nodes]\n");
    for (size_t i = 0; i < t->operators.count; i++) {
        const tune_operator *o = &t->operators.items[i];
        const char *why = NULL;
        if (comments)
            why = isnan(o->measured) ? arena_printf(a, "%s: alone in %s: %s %.3g predicted", o->op, ir_dtype_name(low),
                                                    t->metric, o->predicted)
                                     : arena_printf(a, "%s: alone in %s: %s %.3g predicted, %.3g measured", o->op,
                                                    ir_dtype_name(low), t->metric, o->predicted, o->measured);
        text_add_item(&text, "", amp_list_node_line(o->name, p->low[i] ? low : IR_f32, why, a));
        text_put(&text, "\n");
    }
    return text_finish(&text);
}

static ampc_status run_change(tuning *t, run_variant *v, tune_change *out)
{
    TRY(run_variant_open(v, t->c->tool->o.device, t->c->tool->diag));
    t->runs++;
    return tune_limits_error(t) ? tune_run_error(t, v, false, out) : measure_metric(t, v, out);
}

bool tune_holds(const tuning *t, const tune_change *c)
{
    return c->upper <= t->limit && c->chosen <= t->limit && c->held <= t->limit;
}

ampc_status tune_measure(tuning *t, tune_plan *p)
{
    run_variant v = {.graph = NULL};
    ampc_status status = tune_compile(t, &v, tune_list(t, p, false), NULL, false);
    if (status == AMPC_OK) {
        p->cost = v.tool.compile->report.costs.greedy;
        t->f32_cost = v.tool.compile->report.costs.f32;
        status = run_change(t, &v, &p->change);
    }
    if (status == AMPC_OK && t->c->tool->o.pass.fuse && tune_holds(t, &p->change)) {
        tune_change fused = {0};
        rt_session_close(v.context.session);
        v.context.session = NULL;
        v.tool.module->training.unfused = false;
        status = run_change(t, &v, &fused);
        if (status == AMPC_OK)
            p->change = (tune_change){fmax(p->change.chosen, fused.chosen), fmax(p->change.upper, fused.upper),
                                      fmax(p->change.held, fused.held)};
    }
    run_variant_close(&v);
    return status;
}

tune_plan tune_new_plan(const tuning *t)
{
    return (tune_plan){.low = arena_array(t->c->tool->arena, t->operators.count + 1, sizeof(bool))};
}
