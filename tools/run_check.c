/* run_check.c - check: finds the first NaN or infinity of runs on batches of data, or of a training. */
#include "ir/base/json_writer.h"
#include "ir/ops/shape_text.h"
#include "runtime/data/loader.h"
#include "runtime/inspect/check.h"
#include "runtime/train/stepper.h"
#include "runtime/train/trainer.h"
#include "tools/histogram.h"
#include "tools/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DEFAULT_BATCH = 64 };

typedef struct checking {
    run_context *c;
    rt_check *check;
    const ir_graph *graph;
    int64_t values, batches;   /* floats seen, runs */
    int64_t found;             /* findings */
    histogram *histogram;      /* NULL: none is written */
    bool shown, shown_excused; /* --nan-inf=abort has shown the first finding of the kind */
} checking;

/* ---- lines ------------------------------------------------------------------------------------- */

/* "cpu", "gpu:0" */
static const char *paddle_device(const checking *k)
{
    const char *device = k->c->tool->o.device;
    if (!device || strncmp(device, "cuda", 4) != 0) return "cpu";
    return arena_printf(k->c->tool->arena, "gpu:%s", device[4] == ':' ? device + 5 : "0");
}

static const char *paddle_dtype(ir_dtype t)
{
    return t == IR_f16 ? "fp16" : t == IR_f32 ? "fp32" : t == IR_f64 ? "fp64" : ir_dtype_name(t);
}

static const char *paddle_op(const checking *k, const rt_checked *v)
{
    if (!v->node) return v->value->kind == IR_VALUE_INPUT ? "feed" : "parameter";
    const char *op = v->node->loc.op ? v->node->loc.op : ir_op_get(v->node->op)->name;
    return v->node->phase == IR_BACKWARD && v->node->loc.op ? arena_printf(k->c->tool->arena, "%s_grad", op) : op;
}

static void print_paddle(const checking *k, const rt_checked *v)
{
    const rt_numbers *n = &v->numbers;
    const bool bad = !rt_numbers_finite(n);
    diag_print(stdout, "[PRECISION]%s in [device=%s, op=%s, tensor=%s, dtype=%s], numel=%" PRId64,
               bad ? " [ERROR]" : "", paddle_device(k), paddle_op(k, v), v->value->name, paddle_dtype(v->tensor.dtype),
               n->count);
    if (bad) printf(", num_nan=%" PRId64 ", num_inf=%" PRId64, n->nan, n->inf);
    printf(", num_zero=%" PRId64 ", max=%e, min=%e, mean=%e\n", n->zero, rt_numbers_top(n), rt_numbers_bottom(n),
           rt_numbers_mean(n));
}

static void print_row(const char *kind, const rt_checked *v)
{
    const rt_numbers *n = &v->numbers;
    char shape[IR_SHAPE_TEXT];
    ir_shape_text(shape, ir_dtype_name(v->tensor.dtype), v->tensor.rank, v->tensor.dims);
    diag_print(stdout, "%-8s %-24s %-19s %8" PRId64 " %8" PRId64 " %8" PRId64, kind, v->value->name, shape, n->nan,
               n->inf, n->zero);
    if (isfinite(n->max)) printf(" %12.5g %12.5g %12.5g\n", n->min, n->max, n->mean);
    else printf(" %12s %12s %12s\n", "-", "-", "-");
}

static const char *kind_of(const rt_checked *v)
{
    return v->value->kind == IR_VALUE_INPUT ? "input" : v->value->kind == IR_VALUE_STORAGE ? "storage" : "result";
}

static void print_header(void)
{
    printf("%-8s %-24s %-19s %8s %8s %8s %12s %12s %12s\n", "", "tensor", "type", "NaN", "inf", "zero", "min", "max",
           "mean");
}

/* The finding, and the operands that it was computed from. */
static void print_finding(const checking *k, const rt_checked *v)
{
    const ir_node *n = v->node;
    const diag_loc loc = rt_checked_loc(v);
    if (n)
        diag_print(stdout, "%s of @%s, %s%s%s%s%s\n", rt_phase_names[n->phase], n->graph->name, ir_op_get(n->op)->name,
                   loc.name ? " of node '" : "", loc.name ? loc.name : "", loc.name ? "'" : "",
                   v->excused ? ", excused by dynamic loss scaling" : "");
    print_header();
    print_row(kind_of(v), v);
    for (int i = 0; n && i < n->n_in; i++) {
        const rt_checked *o = ir_in(n, i) ? rt_check_value(k->check, ir_in(n, i)) : NULL;
        if (o && ir_dtype_is_float(o->tensor.dtype)) print_row("operand", o);
    }
}

/* ---- values ------------------------------------------------------------------------------------ */

/* Whether an f32 value would be infinite or zero in f16. */
static bool leaves_f16(const rt_checked *v)
{
    const double top = fmax(fabs(v->numbers.min), fabs(v->numbers.max));
    return v->tensor.dtype == IR_f32 && (top > 65504 || (top > 0 && top < 0x1p-25));
}

static bool is_shown(const checking *k, const rt_checked *v)
{
    switch (k->c->tool->o.nan_inf) {
    case CHECK_ABORT: return v->bad && !(v->excused ? k->shown || k->shown_excused : k->shown);
    case CHECK_REPORT: return !rt_numbers_finite(&v->numbers);
    case CHECK_RANGE: return !rt_numbers_finite(&v->numbers) || leaves_f16(v);
    default: return true;
    }
}

static void print_value(checking *k, const rt_checked *v)
{
    if (k->c->tool->o.format == CHECK_PADDLE) print_paddle(k, v);
    else if (k->c->tool->o.nan_inf == CHECK_ABORT) print_finding(k, v);
    else print_row(kind_of(v), v);
}

static ampc_status see_value(void *user, const rt_check *c, const rt_checked *v, const rt_tensor *data, diag *d)
{
    checking *k = user;
    (void)d;
    if (!ir_dtype_is_float(v->tensor.dtype)) return AMPC_OK;
    if (k->histogram) histogram_add(k->histogram, v, data, rt_check_scale(c));
    k->values++;
    k->found += v->bad;
    if (!k->c->tool->o.pass.json && is_shown(k, v)) print_value(k, v);
    k->shown |= v->bad && !v->excused;
    k->shown_excused |= v->bad && v->excused;
    return AMPC_OK;
}

/* ---- the result -------------------------------------------------------------------------------- */

static void write_numbers(json_writer *w, const char *key, const rt_checked *v)
{
    json_begin(w, key, '{');
    json_write_string(w, "tensor", v->value->name);
    json_write_string(w, "dtype", ir_dtype_name(v->tensor.dtype));
    json_write_integer(w, "numel", v->numbers.count);
    json_write_integer(w, "nan", v->numbers.nan);
    json_write_integer(w, "inf", v->numbers.inf);
    json_write_integer(w, "zero", v->numbers.zero);
    json_write_real(w, "min", "%.9g", v->numbers.min);
    json_write_real(w, "max", "%.9g", v->numbers.max);
    json_write_real(w, "mean", "%.9g", v->numbers.mean);
    json_end(w, '}');
}

static void write_finding(json_writer *w, const checking *k, const rt_checked *v)
{
    const diag_loc loc = rt_checked_loc(v);
    json_begin(w, "first", '{');
    json_write_string(w, "node", loc.name ? loc.name : "");
    json_write_string(w, "op", loc.op ? loc.op : v->node ? ir_op_get(v->node->op)->name : "");
    json_write_string(w, "phase", v->node ? rt_phase_names[v->node->phase] : "");
    json_write_bool(w, "excused", v->excused);
    write_numbers(w, kind_of(v), v);
    json_begin(w, "operands", '[');
    for (int i = 0; v->node && i < v->node->n_in; i++) {
        const rt_checked *o = ir_in(v->node, i) ? rt_check_value(k->check, ir_in(v->node, i)) : NULL;
        if (o && ir_dtype_is_float(o->tensor.dtype)) write_numbers(w, NULL, o);
    }
    json_end(w, ']');
    json_end(w, '}');
}

static void print_json(const checking *k, const rt_checked *v, double finite_scale)
{
    json_writer w = {.file = stdout};
    json_begin(&w, NULL, '{');
    json_write_string(&w, "entry", k->graph->name);
    json_write_integer(&w, "runs", k->batches);
    json_write_integer(&w, "values", k->values);
    json_write_integer(&w, "findings", k->found);
    json_write_real(&w, ir_state_words[IR_STATE_loss_scale], "%.9g", rt_check_scale(k->check));
    json_write_real(&w, "finite_at_scale", "%.9g", finite_scale);
    if (v) write_finding(&w, k, v);
    json_end(&w, '}');
    putchar('\n');
}

/* Reports what was found, if anything. `finite_scale` as set by rt_check_run. */
static ampc_status conclude(const checking *k, double finite_scale)
{
    char text[1024];
    const tool_options *o = &k->c->tool->o;
    const rt_checked *v = rt_check_found(k->check);
    const double scale = rt_check_scale(k->check);
    if (o->pass.json) print_json(k, v, finite_scale);
    else if (!v && !o->quiet && o->format == CHECK_TEXT)
        printf("@%s: %" PRId64 " values in %" PRId64 " run%s, all finite%s\n", k->graph->name, k->values, k->batches,
               k->batches == 1 ? "" : "s",
               scale == 1 ? "" : arena_printf(k->c->tool->arena, " (loss scale %g)", scale));
    if (!v) return AMPC_OK;
    rt_check_describe(k->check, v, text, sizeof text);
    const char *advice = "";
    if (finite_scale == 0)
        advice = arena_printf(k->c->tool->arena, "; the loss scale is %g, but 1 overflows too", scale);
    else if (finite_scale > 0)
        advice = arena_printf(k->c->tool->arena, "; the loss scale is %g, with %g everything is finite", scale,
                              finite_scale);
    if (!v->excused) return diag_error(k->c->tool->diag, AMPC_NUMERIC, rt_checked_loc(v), "%s%s", text, advice);
    diag_note(k->c->tool->diag, rt_checked_loc(v), "%s%s: dynamic loss scaling skips the step", text, advice);
    return AMPC_OK;
}

/* ---- batches ----------------------------------------------------------------------------------- */

static ampc_status check_inputs(checking *k, const rt_tensor *inputs, int n, double *finite_scale)
{
    k->batches++;
    return rt_check_run(k->check, k->graph, inputs, n, k->c->tool->diag, finite_scale);
}

static ampc_status check_file(checking *k)
{
    double finite_scale = NAN;
    run_inputs in = {.partial = true};
    ampc_status status = run_inputs_read(k->c, k->graph, &in);
    if (status == AMPC_OK) status = check_inputs(k, in.tensors, in.count, &finite_scale);
    run_inputs_clear(&in);
    return status == AMPC_OK ? conclude(k, finite_scale) : status;
}

/* Checks batches in stored order, until one has a finding that is not excused. */
static ampc_status check_slices(checking *k, rt_dataset *data, rt_loader *feed)
{
    const int64_t rows = rt_dataset_rows(data), batch = rt_loader_batch(feed);
    const int64_t wanted = k->c->tool->o.steps ? k->c->tool->o.steps : 1;
    double finite_scale = NAN;
    for (int64_t i = 0; i < wanted && i * batch < rows; i++) {
        const int64_t left = rows - i * batch;
        TRY(rt_loader_slice(feed, i * batch, left < batch ? left : batch, k->c->tool->diag));
        TRY(check_inputs(k, rt_loader_inputs(feed), rt_loader_count(feed), &finite_scale));
        const rt_checked *found = rt_check_found(k->check);
        if (found && (!found->excused || i + 1 == wanted)) break;
    }
    return conclude(k, finite_scale);
}

static int64_t choose_batch(const run_context *c, const ir_graph *g)
{
    return c->tool->o.batch || rt_loader_fixed_batch(g, c->sizes) ? c->tool->o.batch : DEFAULT_BATCH;
}

static ampc_status check_data(checking *k)
{
    run_context *c = k->c;
    rt_dataset *data = NULL;
    rt_loader *feed = NULL;
    const char *spec = c->tool->o.data ? c->tool->o.data : "synthetic";
    ampc_status status = run_open_data(c, spec, RT_TRAIN, k->graph, &data);
    if (status == AMPC_OK)
        status = rt_loader_open(k->graph, data, c->sizes, choose_batch(c, k->graph), c->tool->diag, &feed);
    if (status == AMPC_OK) {
        rt_check_set_feed(k->check, feed);
        status = check_slices(k, data, feed);
        rt_check_set_feed(k->check, NULL);
    }
    rt_loader_close(feed);
    rt_dataset_close(data);
    return status;
}

/* ---- training ---------------------------------------------------------------------------------- */

/* Notes a step that loss scaling has skipped. */
static bool see_step(void *user, const rt_step_record *step)
{
    checking *k = user;
    char text[1024];
    const rt_checked *v = rt_check_found(k->check);
    k->batches++;
    if (!v) return false;
    rt_check_describe(k->check, v, text, sizeof text);
    diag_note(k->c->tool->diag, rt_checked_loc(v), "step %" PRIu64 " was skipped at loss scale %g: %s", step->step,
              step->scale, text);
    rt_check_clear(k->check);
    return false;
}

static ampc_status train(checking *k, rt_trainer *trainer)
{
    const rt_train_plan plan = {.on_step = see_step, .user = k};
    const ampc_status status = rt_trainer_run(trainer, &plan, k->c->tool->diag);
    const rt_checked *v = rt_check_found(k->check);
    if (status == AMPC_OK) return conclude(k, NAN);
    if (status != AMPC_NUMERIC || !v) return status;
    if (k->c->tool->o.pass.json) print_json(k, v, NAN);
    diag_note(k->c->tool->diag, DIAG_FILE("ampc-run check"), "this is step %" PRIu64 ", at loss scale %g",
              rt_trainer_state(trainer)->step + 1, rt_check_scale(k->check));
    return status;
}

static ampc_status check_training(checking *k)
{
    run_context *c = k->c;
    const tool_options *o = &c->tool->o;
    rt_dataset *data = NULL;
    rt_trainer *trainer = NULL;
    const rt_trainer_options options = {.batch = choose_batch(c, k->graph),
                                        .steps = o->steps ? o->steps : 1,
                                        .lr = o->lr,
                                        .lr_schedule = o->lr_schedule,
                                        .seed = o->pass.seed};
    TRY(rt_stepper_select(c->session, c->tool->module, NULL, 0, c->tool->diag));
    ampc_status status = run_open_data(c, o->data ? o->data : "synthetic", RT_TRAIN, k->graph, &data);
    if (status == AMPC_OK)
        status = rt_trainer_open(c->session, c->tool->module, data, &options, c->tool->diag, &trainer);
    if (status == AMPC_OK) {
        rt_check_set_feed(k->check, rt_trainer_feed(trainer));
        status = train(k, trainer);
        rt_check_set_feed(k->check, NULL);
    }
    rt_trainer_close(trainer);
    rt_dataset_close(data);
    return status;
}

/* ---- the command ------------------------------------------------------------------------------- */

static ampc_status choose_entry(checking *k)
{
    const ir_module *m = k->c->tool->module;
    ir_graph_role usual = ir_graph_by_role(m, IR_GRAPH_grad) ? IR_GRAPH_grad : IR_GRAPH_infer;
    return run_need_entry(k->c, k->c->tool->o.entry ? k->c->tool->o.entry : ir_graph_words[usual], &k->graph);
}

/* A module without a loss scale is shown with the one that training in fp16 would start with. */
static ampc_status open_histogram(checking *k)
{
    const tool_options *o = &k->c->tool->o;
    const ir_storage *scale = ir_state_by_role(k->c->tool->module, IR_STATE_loss_scale);
    TRY(histogram_check_path(o->histogram, k->c->tool->diag));
    k->histogram = arena_alloc(k->c->tool->arena, sizeof *k->histogram);
    *k->histogram = (histogram){
        .arena = k->c->tool->arena,
        .values = {.model = o->operands.items[0], .scale = o->pass.init_scale > 0 ? o->pass.init_scale : 65536}};
    if (!scale || o->pass.init_scale > 0) return AMPC_OK;
    return rt_session_get_number(k->c->session, scale->name, k->c->tool->diag, &k->histogram->values.scale);
}

static ampc_status check_entry(checking *k)
{
    const tool_options *o = &k->c->tool->o;
    const bool from_file = o->inputs.count || o->inputs_file, trains = k->graph->role == IR_GRAPH_train_step;
    if (from_file && (o->data || trains))
        return diag_error(k->c->tool->diag, AMPC_USAGE, DIAG_FILE("ampc-run check"),
                          trains ? "--entry=train_step reads --data, not --inputs" : "not both --data and --inputs");
    const rt_check_options options = {.stops = trains, .each = see_value, .user = k};
    if (o->histogram) TRY(open_histogram(k));
    TRY(rt_check_open(k->c->session, k->c->tool->module, &options, k->c->tool->diag, &k->check));
    const ampc_status status = trains ? check_training(k) : from_file ? check_file(k) : check_data(k);
    if (!k->histogram || (status != AMPC_OK && status != AMPC_NUMERIC)) return status;
    const ampc_status written = histogram_write(&k->histogram->values, o->histogram, k->c->tool->diag);
    return written == AMPC_OK ? status : written;
}

ampc_status run_check(run_context *c)
{
    checking k = {.c = c};
    ampc_status status = choose_entry(&k);
    if (status == AMPC_OK) status = check_entry(&k);
    rt_check_close(k.check);
    return status;
}

/* ---- explaining a result that is not finite ---------------------------------------------------- */

/* Sets *found to whether a batch has a finding, with the loader at that batch. */
static ampc_status find_batch(checking *k, rt_loader *feed, int64_t rows, bool *found)
{
    double finite_scale;
    const int64_t batch = rt_loader_batch(feed);
    for (int64_t i = 0; i < rows && !*found; i += batch) {
        TRY(rt_loader_slice(feed, i, rows - i < batch ? rows - i : batch, k->c->tool->diag));
        TRY(check_inputs(k, rt_loader_inputs(feed), rt_loader_count(feed), &finite_scale));
        *found = rt_check_found(k->check) != NULL;
    }
    return AMPC_OK;
}

ampc_status run_explain(run_context *c, const ir_graph *g, rt_dataset *data, const char *text)
{
    bool found = false;
    rt_loader *feed = NULL;
    checking k = {.c = c, .graph = g};
    const rt_check_options options = {.strict = true};
    ampc_status status = rt_loader_open(g, data, c->sizes, choose_batch(c, g), c->tool->diag, &feed);
    if (status == AMPC_OK) status = rt_check_open(c->session, c->tool->module, &options, c->tool->diag, &k.check);
    if (status == AMPC_OK) status = find_batch(&k, feed, rt_dataset_rows(data), &found);
    rt_check_close(k.check);
    if (status == AMPC_OK && found)
        status = rt_explain_nonfinite(c->session, c->tool->module, g, rt_loader_inputs(feed), rt_loader_count(feed),
                                      feed, c->tool->diag, "%s", text);
    else if (status == AMPC_OK) status = diag_error(c->tool->diag, AMPC_NUMERIC, DIAG_NOWHERE, "%s", text);
    rt_loader_close(feed);
    return status;
}
