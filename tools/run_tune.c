/* run_tune.c - tune: the cheapest precision of every operator within a budget of errors. */
#include "ir/base/json_writer.h"
#include "ir/base/philox.h"
#include "passes/amp/cost.h"
#include "passes/amp/list.h"
#include "runtime/data/loader.h"
#include "runtime/files/atomic_file.h"
#include "runtime/inspect/numbers.h"
#include "runtime/inspect/sensitivity.h"
#include "runtime/train/scoring.h"
#include "tools/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 256, BATCH = 32, ANALYSED = 32, VECTORS = 4, ROUNDS = 12, PARTS = 4 };

/* The model, compiled in some way, and its session. */
typedef struct variant {
    tool tool;
    run_context context;
    const ir_graph *graph;
} variant;

/* A change from fp32: on the samples for choosing, with a margin for their spread, and on those held out. */
typedef struct change {
    double chosen, upper, held;
} change;

typedef struct operator_facts {
    const char *name, *op;
    pass_price price; /* squared, of all its nodes */
    double predicted, measured;
    bool low;
} operator_facts;

typedef struct plan {
    bool *low; /* by operator */
    double predicted;
    int64_t cost;
    change change;
} plan;

typedef struct tuning {
    run_context *c;
    char metric[RT_METRIC_NAME];
    double limit;
    rt_metric_choices metrics; /* none: error or loss */
    rt_dataset *data;
    int64_t choosing, held, runs;
    variant f32;
    float **outputs; /* of fp32, by batch and output */
    double *norms;   /* by output: the mean square of a sample's norm */
    int n_outputs;
    double baseline[PARTS + 1];
    VEC(operator_facts) operators;
    strmap *by_name;
    strmap *prices;
    int64_t f32_cost, profile_cost;
    const ir_device *device; /* of the costs */
    bool cheaper;            /* some plan that does not hold the budget costs less than fp32 */
} tuning;

/* ---- variants of the model --------------------------------------------------------------------- */

static void pass_errors_on(void *user, diag_level level, const char *message)
{
    if (level == DIAG_ERROR) diag_repeat(user, AMPC_REJECTED, message);
}

static ampc_status compile_variant(const tuning *t, variant *v, const char *list, const pass_budget *budget, bool f32)
{
    const tool *base = t->c->tool;
    v->tool = *base;
    v->tool.module = NULL;
    v->tool.compile = NULL;
    compile_options *o = &v->tool.o.pass;
    if (f32) o->level = PASS_O0;
    o->explain = NULL;
    o->list_text = list;
    o->budget = budget;
    o->placement = PASS_MINCUT; /* for the predicted costs */
    v->context = (run_context){.tool = &v->tool, .sizes = t->c->sizes};
    v->tool.diag = diag_new(pass_errors_on, base->diag);
    if (!v->tool.diag) return diag_error(base->diag, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory");
    diag_share_words(v->tool.diag, base->diag);
    TRY(tool_compile(&v->tool, base->o.operands.items[0]));
    v->graph = rt_evaluated_graph(v->tool.module);
    if (v->graph) return AMPC_OK;
    return diag_error(base->diag, AMPC_UNSUPPORTED, DIAG_NOWHERE, "the module has no entry @eval or @infer");
}

static ampc_status open_variant(const tuning *t, variant *v, const char *device)
{
    const tool *base = t->c->tool;
    const rt_session_options o = {.device = device,
                                  .threads = (int)base->o.threads,
                                  .deterministic = (int)base->o.deterministic,
                                  .custom = base->custom,
                                  .weights_dir = base->weights_dir};
    TRY(rt_session_open(v->tool.module, &o, base->diag, &v->context.session));
    TRY(run_load_weights(&v->context));
    return rt_session_seed(v->context.session, base->o.pass.seed, base->diag);
}

static void close_variant(variant *v)
{
    rt_session_close(v->context.session);
    ir_module_free(v->tool.module);
    diag_free(v->context.tool ? v->tool.diag : NULL);
    *v = (variant){.graph = NULL};
}

/* ---- measuring --------------------------------------------------------------------------------- */

static int64_t batch_of(const tuning *t, const variant *v)
{
    const int64_t fixed = rt_loader_fixed_batch(v->graph, t->c->sizes);
    return fixed > 0 ? fixed : t->c->tool->o.batch ? t->c->tool->o.batch : BATCH;
}

static bool is_error(const tuning *t) { return strcmp(t->metric, "error") == 0; }

/* Of a batch and an output: adds the squares of differences and of the fp32 values. */
static void compare_output(const rt_tensor *x, const float *y, double *difference, double *norm)
{
    const size_t size = ir_dtype_size(x->dtype);
    for (int64_t i = 0; i < rt_tensor_count(x); i++) {
        const double a = ir_load_f64(x->dtype, (const char *)x->data + (size_t)i * size), b = (double)y[i];
        if (isnan(b) ? isnan(a) : a == b) continue;
        *difference += isfinite(a - b) ? (a - b) * (a - b) : INFINITY;
    }
    for (int64_t i = 0; i < rt_tensor_count(x); i++) *norm += isfinite(y[i]) ? (double)y[i] * (double)y[i] : 0;
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
    *upper = d > 0 ? sqrt(ratio + 2 * sqrt(spread * (double)count / (double)(count > 1 ? count - 1 : 1)) / n) : 0;
    return sqrt(ratio);
}

static ampc_status keep_outputs(tuning *t, variant *v, int64_t at)
{
    for (int k = 0; k < t->n_outputs; k++) {
        const rt_tensor *x = rt_session_output_at(v->context.session, k);
        if (!x) return rt_session_fetched(v->context.session, t->c->tool->diag);
        if (!ir_dtype_is_float(x->dtype)) continue;
        const size_t count = (size_t)rt_tensor_count(x);
        float *copy = arena_array(t->c->tool->arena, count + 1, sizeof *copy);
        ir_convert(IR_f32, copy, x->dtype, x->data, count);
        t->outputs[at * t->n_outputs + k] = copy;
        for (size_t i = 0; i < count; i++) t->norms[k] += isfinite(copy[i]) ? (double)copy[i] * (double)copy[i] : 0;
    }
    return AMPC_OK;
}

/* Runs the samples batch by batch; keeps the outputs of fp32, or compares with them. */
static ampc_status run_error(tuning *t, variant *v, bool keep, change *out)
{
    diag *d = t->c->tool->diag;
    const int64_t rows = t->choosing + t->held, batch = batch_of(t, v), batches = rows / batch + 2;
    double *difference = arena_array(t->c->tool->arena, (size_t)batches * 2, sizeof *difference);
    rt_loader *feed = NULL;
    ampc_status status = rt_loader_open(v->graph, t->data, t->c->sizes, batch, d, &feed);
    *out = (change){0};
    int64_t starts[3] = {0}, count = 0;
    for (int k = 0; k < (keep ? 1 : t->n_outputs) && status == AMPC_OK; k++) {
        count = 0;
        for (int part = 0; part < 2 && status == AMPC_OK; part++) {
            const int64_t end = part ? rows : t->choosing;
            starts[part] = count;
            for (int64_t at = part ? t->choosing : 0; at < end && status == AMPC_OK; at += batch, count++) {
                difference[count] = difference[batches + count] = 0;
                status = rt_loader_slice(feed, at, end - at < batch ? end - at : batch, d);
                if (status == AMPC_OK)
                    status = rt_session_run(v->context.session, v->graph->name, rt_loader_inputs(feed),
                                            rt_loader_count(feed), d);
                if (status == AMPC_OK && keep) {
                    if (!t->outputs) {
                        t->n_outputs = rt_session_output_count(v->context.session);
                        t->outputs = arena_array(t->c->tool->arena, (size_t)(batches * t->n_outputs), sizeof(float *));
                        t->norms = arena_array(t->c->tool->arena, (size_t)t->n_outputs + 1, sizeof(double));
                    }
                    status = keep_outputs(t, v, count);
                } else if (status == AMPC_OK && t->outputs[count * t->n_outputs + k]) {
                    const rt_tensor *x = rt_session_output_at(v->context.session, k);
                    if (x)
                        compare_output(x, t->outputs[count * t->n_outputs + k], &difference[count],
                                       &difference[batches + count]);
                    else status = rt_session_fetched(v->context.session, d);
                }
            }
        }
        starts[2] = count;
        if (keep || status != AMPC_OK) continue;
        double upper, ignored;
        const double chosen = relative(difference, difference + batches, starts[1], &upper);
        const double held = relative(difference + starts[1], difference + batches + starts[1], count - starts[1],
                                     &ignored);
        out->chosen = fmax(out->chosen, isnan(chosen) ? INFINITY : chosen);
        out->upper = fmax(out->upper, isnan(upper) ? INFINITY : upper);
        out->held = fmax(out->held, isnan(held) ? INFINITY : held);
    }
    rt_loader_close(feed);
    return status;
}

/* The metric of PARTS parts of the samples for choosing, and of those held out. */
static ampc_status run_metric(tuning *t, variant *v, double values[PARTS + 1])
{
    for (int i = 0; i <= PARTS; i++) {
        const int64_t first = i * t->choosing / PARTS, end = (i + 1) * t->choosing / PARTS;
        const rt_eval_options o = {.batch = batch_of(t, v),
                                   .metrics = t->metrics.count ? &t->metrics : NULL,
                                   .first = i < PARTS ? first : t->choosing,
                                   .limit = i < PARTS ? end - first : t->held};
        rt_eval e = {0};
        const ampc_status status = rt_evaluate(v->context.session, v->tool.module, t->data, &o, t->c->tool->diag, &e);
        if (status == AMPC_OK) values[i] = rt_eval_number(&e, t->metric);
        rt_eval_clear(&e);
        TRY(status);
    }
    return AMPC_OK;
}

static ampc_status measure_metric(tuning *t, variant *v, change *out)
{
    double values[PARTS + 1], changes[PARTS], mean = 0, square = 0;
    const bool higher = t->metrics.count && rt_metric_better(&t->metrics.items[0]) == RT_BETTER_HIGHER;
    TRY(run_metric(t, v, values));
    for (int i = 0; i <= PARTS; i++) {
        double worse = higher ? t->baseline[i] - values[i] : values[i] - t->baseline[i];
        if (isnan(worse)) worse = INFINITY;
        if (i == PARTS) out->held = worse;
        else mean += (changes[i] = worse) / PARTS;
    }
    for (int i = 0; i < PARTS; i++) square += pow(changes[i] - mean, 2) / (PARTS - 1);
    out->chosen = mean;
    out->upper = isfinite(mean) ? mean + 2 * sqrt(square / PARTS) : INFINITY;
    return AMPC_OK;
}

/* ---- plans ------------------------------------------------------------------------------------- */

static const char *list_of(const tuning *t, const plan *p, bool comments)
{
    arena *a = t->c->tool->arena;
    const ir_dtype low = t->c->tool->o.pass.low;
    const char *text = "[nodes]\n";
    for (size_t i = 0; i < t->operators.count; i++) {
        const operator_facts *o = &t->operators.items[i];
        const char *why = NULL;
        if (comments)
            why = isnan(o->measured) ? arena_printf(a, "%s: alone in %s: %s %.3g predicted", o->op, ir_dtype_name(low),
                                                    t->metric, o->predicted)
                                     : arena_printf(a, "%s: alone in %s: %s %.3g predicted, %.3g measured", o->op,
                                                    ir_dtype_name(low), t->metric, o->predicted, o->measured);
        text = arena_printf(a, "%s%s\n", text, amp_list_node_line(o->name, p->low[i] ? low : IR_f32, why, a));
    }
    return text;
}

/* Compiles the plan as a list, runs it, and notes its cost and change. */
static ampc_status measure(tuning *t, plan *p)
{
    variant v = {.graph = NULL};
    ampc_status status = compile_variant(t, &v, list_of(t, p, false), NULL, false);
    if (status == AMPC_OK) {
        p->cost = v.tool.compile->report.costs.greedy;
        t->f32_cost = v.tool.compile->report.costs.f32;
        status = open_variant(t, &v, t->c->tool->o.device);
    }
    if (status == AMPC_OK)
        status = is_error(t) ? run_error(t, &v, false, &p->change) : measure_metric(t, &v, &p->change);
    t->runs++;
    close_variant(&v);
    return status;
}

static plan new_plan(const tuning *t)
{
    return (plan){.low = arena_array(t->c->tool->arena, t->operators.count + 1, sizeof(bool))};
}

/* The plan of least cost whose predicted squared error is at most `limit`. */
static ampc_status choose(tuning *t, double limit, plan *out)
{
    variant v = {.graph = NULL};
    const pass_budget budget = {t->prices, limit};
    *out = new_plan(t);
    const ampc_status status = compile_variant(t, &v, NULL, &budget, false);
    for (size_t i = 0; status == AMPC_OK && i < v.tool.compile->report.choices.count; i++) {
        const pass_choice *c = &v.tool.compile->report.choices.items[i];
        const uintptr_t at = (uintptr_t)strmap_get(t->by_name, c->node);
        if (at) out->low[at - 1] = c->low;
    }
    if (status == AMPC_OK) out->predicted = sqrt(v.tool.compile->report.error * limit);
    close_variant(&v);
    return status;
}

static bool holds(const tuning *t, const plan *p) { return p->change.upper <= t->limit && p->change.held <= t->limit; }

static bool same(const tuning *t, const plan *a, const plan *b)
{
    return memcmp(a->low, b->low, t->operators.count * sizeof *a->low) == 0;
}

/* ---- sensitivity ------------------------------------------------------------------------------- */

static ampc_status find_profile_cost(tuning *t)
{
    variant v = {.graph = NULL};
    const ampc_status status = compile_variant(t, &v, NULL, NULL, false);
    if (status == AMPC_OK) {
        t->profile_cost = v.tool.compile->report.costs.greedy;
        t->device = v.tool.compile->device;
    }
    close_variant(&v);
    return status;
}

/* The operators that a list can name. */
static ampc_status find_operators(tuning *t)
{
    variant v = {.graph = NULL};
    const pass_budget budget = {t->prices, 1};
    arena *a = t->c->tool->arena;
    const ampc_status status = compile_variant(t, &v, NULL, &budget, false);
    for (size_t i = 0; status == AMPC_OK && i < v.tool.compile->report.choices.count; i++) {
        const pass_choice *c = &v.tool.compile->report.choices.items[i];
        operator_facts o = {.name = arena_strdup(a, c->node), .op = arena_strdup(a, c->op), .measured = NAN};
        vec_push(a, &t->operators, o);
        strmap_put(t->by_name, o.name, (void *)(uintptr_t)t->operators.count);
    }
    close_variant(&v);
    return status;
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

static ampc_status analyse_batches(tuning *t, variant *slopes, variant *low, rt_sensitivity *s, int64_t *batches)
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
        if (status == AMPC_OK && !ir_output_by_role(low->graph, IR_OUTPUT_loss) && !w.count) {
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
        operator_facts *o = &t->operators.items[at - 1];
        const double n = (double)batches, mean = r->mean / n;
        double total = r->total / n, result = r->result / n;
        if (loss) { /* errors of samples cancel in the mean */
            const double share = total > 0 ? (mean * mean + total / n) / total : 0;
            total *= share;
            result *= share;
        }
        pass_price *p = arena_alloc(a, sizeof *p);
        *p = r->overflows ? (pass_price){INFINITY, INFINITY}
             : r->exact   ? (pass_price){0, total}
                          : (pass_price){result, fmax(0, total - result)};
        const bool separate = ir_op_out_attr(r->node->op) >= 0;
        const double alone = separate ? p->operands : p->operands + p->result;
        o->predicted = sqrt(o->predicted * o->predicted + alone);
        o->price.result += p->result;
        o->price.operands += p->operands;
        strmap_put(t->prices, r->node->out[0]->name, p);
    }
}

static ampc_status analyse(tuning *t)
{
    variant slopes = {.graph = NULL}, low = {.graph = NULL};
    rt_sensitivity s = {.count = 0};
    plan all = new_plan(t);
    int64_t batches = 0;
    for (size_t i = 0; i < t->operators.count; i++) all.low[i] = true;
    ampc_status status = compile_variant(t, &low, list_of(t, &all, false), NULL, false);
    if (status == AMPC_OK) status = compile_variant(t, &slopes, NULL, NULL, true);
    if (status == AMPC_OK) status = compile_slopes(slopes.tool.module, slopes.graph->name, t->c->tool->diag);
    if (status == AMPC_OK) status = open_variant(t, &low, "cpu");
    if (status == AMPC_OK) status = open_variant(t, &slopes, "cpu");
    if (status == AMPC_OK) {
        rt_sensitivity_open(&s, low.graph, t->c->tool->o.pass.low, PASS_SLOPE, t->c->tool->arena);
        status = analyse_batches(t, &slopes, &low, &s, &batches);
        t->runs += s.runs;
    }
    if (status == AMPC_OK) price_rows(t, &s, batches, ir_output_by_role(low.graph, IR_OUTPUT_loss));
    rt_sensitivity_close(&s);
    close_variant(&slopes);
    close_variant(&low);
    return status;
}

/* ---- the search -------------------------------------------------------------------------------- */

static ampc_status search(tuning *t, plan *best)
{
    plan tried[ROUNDS], f32 = new_plan(t);
    double low = 0, high = 0, predicted = t->limit;
    TRY(measure(t, &f32));
    *best = f32;
    for (int i = 0; i < ROUNDS; i++) {
        TRY(choose(t, predicted * predicted, &tried[i]));
        bool known = same(t, &tried[i], &f32);
        if (known) tried[i].change = f32.change;
        for (int k = 0; k < i && !known; k++)
            if (same(t, &tried[i], &tried[k])) {
                known = true;
                tried[i].change = tried[k].change;
                tried[i].cost = tried[k].cost;
            }
        if (!known) TRY(measure(t, &tried[i]));
        const bool good = holds(t, &tried[i]);
        if (good && !same(t, &tried[i], &f32) && tried[i].cost < best->cost) *best = tried[i];
        t->cheaper |= !good && tried[i].cost < f32.cost;
        if (good) low = predicted;
        else high = predicted;
        predicted = !high ? 4 * low : !low ? high / 4 : sqrt(low * high);
    }
    return AMPC_OK;
}

/* ---- the result -------------------------------------------------------------------------------- */

static ampc_status write_list(const tuning *t, const plan *p)
{
    const char *path = t->c->tool->o.output;
    if (!path) return AMPC_OK;
    const char *head = arena_printf(t->c->tool->arena,
                                    "# ampc-run tune: %s <= %g: %.3g on %" PRId64 " samples, %.3g on %" PRId64
                                    " others\n[meta]\nversion = 1\n\n",
                                    t->metric, t->limit, p->change.chosen, t->choosing, p->change.held, t->held);
    const char *text = arena_printf(t->c->tool->arena, "%s%s", head, list_of(t, p, true));
    return rt_atomic_save(path, text, strlen(text), t->c->tool->diag);
}

static void print_json(const tuning *t, const plan *p, size_t low)
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
        const operator_facts *o = &t->operators.items[i];
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

static ampc_status report(const tuning *t, const plan *p)
{
    const ir_device *device = t->device;
    arena *a = t->c->tool->arena;
    size_t low = 0;
    for (size_t i = 0; i < t->operators.count; i++) low += p->low[i];
    TRY(write_list(t, p));
    if (t->c->tool->o.pass.json) print_json(t, p, low);
    else {
        printf("%zu of %zu operators in %s: %s %.3g predicted, %.3g on %" PRId64
               " samples (at most %.3g), %.3g on %" PRId64 " held out; limit %g\n",
               low, t->operators.count, ir_dtype_name(t->c->tool->o.pass.low), t->metric, p->predicted,
               p->change.chosen, t->choosing, p->change.upper, p->change.held, t->held, t->limit);
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
    if (!at || at == text || end == at + 2 || *end || !(t->limit >= 0) || (size_t)(at - text) >= sizeof t->metric)
        return diag_error(d, AMPC_USAGE, DIAG_OPTION(budget),
                          "expected METRIC<=VALUE, such as error<=0.001, loss<=0.01 or accuracy<=0.005");
    memcpy(t->metric, text, (size_t)(at - text));
    if (is_error(t)) return AMPC_OK;
    return rt_metrics_parse(t->metric, OPTION_budget, d, &t->metrics);
}

static ampc_status tune(tuning *t)
{
    diag *d = t->c->tool->diag;
    plan best;
    if (!t->c->tool->compile)
        return diag_error(d, AMPC_USAGE, DIAG_FILE(t->c->tool->o.operands.items[0]),
                          "tune compiles the model several times, so it requires the .onnx file");
    TRY(parse_budget(t));
    TRY(compile_variant(t, &t->f32, NULL, NULL, true));
    TRY(run_open_data(t->c, t->c->tool->o.data, RT_TEST, t->f32.graph, &t->data));
    TRY(rt_dataset_shuffle(t->data, t->c->tool->o.pass.seed, d));
    const int64_t rows = rt_dataset_rows(t->data), wanted = t->c->tool->o.samples ? t->c->tool->o.samples : SAMPLES;
    const int64_t all = rows < wanted ? rows : wanted;
    if (all < 2 * PARTS)
        return diag_error(d, AMPC_USAGE, DIAG_OPTION(data), "at least %d samples are needed", 2 * PARTS);
    t->held = all / 3;
    t->choosing = all - t->held;
    change none;
    TRY(open_variant(t, &t->f32, t->c->tool->o.device));
    TRY(run_error(t, &t->f32, true, &none));
    for (int k = 0; k < t->n_outputs; k++) t->norms[k] /= (double)all;
    if (!is_error(t)) TRY(run_metric(t, &t->f32, t->baseline));
    t->by_name = strmap_new(t->c->tool->arena);
    t->prices = strmap_new(t->c->tool->arena);
    TRY(find_profile_cost(t));
    TRY(find_operators(t));
    TRY(analyse(t));
    TRY(search(t, &best));
    TRY(report(t, &best));
    if (best.cost < t->f32_cost || !t->cheaper) return AMPC_OK;
    return diag_error(d, AMPC_NUMERIC, DIAG_OPTION(budget), "no plan that costs less than fp32 holds the budget");
}

ampc_status run_tune(run_context *c)
{
    tuning t = {.c = c};
    const ampc_status status = tune(&t);
    rt_dataset_close(t.data);
    close_variant(&t.f32);
    return status;
}
