/* run_compare.c - compare: a network in mixed precision compared with itself in f32 and f64, value by value. */
#include "ir/base/json_writer.h"
#include "runtime/data/loader.h"
#include "runtime/inspect/check.h"
#include "tools/compare_files.h"
#include "tools/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { DEFAULT_BATCH = 64, ROWS = 20 };

typedef struct comparing {
    run_context *c;
    const ir_graph *graph;
    run_variant f32, f64; /* on the CPU */
    rt_comparison result;
} comparing;

/* ---- the references ---------------------------------------------------------------------------- */

/* The gradients of all three are scaled alike. */
static ampc_status same_scale(const comparing *k, compile_options *o)
{
    const ir_storage *scale = ir_state_by_role(k->c->tool->module, IR_STATE_loss_scale);
    o->scaling = scale ? PASS_SCALE_STATIC : PASS_SCALE_OFF;
    o->preset = PASS_PRESET_NONE;
    o->hysteresis = o->incr_every = o->decr_every = 0;
    return scale ? rt_session_get_number(k->c->session, scale->name, k->c->tool->diag, &o->init_scale) : AMPC_OK;
}

static ampc_status open_reference(const comparing *k, run_variant *r, bool wide)
{
    diag *d = k->c->tool->diag;
    *r = run_variant_of(k->c->tool, k->c->sizes);
    r->tool.o.pass.level = PASS_O0;
    r->tool.o.pass.wide = wide;
    TRY(same_scale(k, &r->tool.o.pass));
    TRY(run_variant_compile(r, d, false));
    return run_variant_open(r, "cpu", d);
}

/* ---- the run ----------------------------------------------------------------------------------- */

static ampc_status compare(comparing *k, const rt_tensor *inputs, int n)
{
    const rt_precision low = {k->c->session, k->c->tool->module};
    const rt_precision f32 = {k->f32.context.session, k->f32.tool.module};
    const rt_precision f64 = {k->f64.context.session, k->f64.tool.module};
    return rt_compare(&low, &f32, &f64, k->graph->name, inputs, n, k->c->tool->diag, &k->result);
}

static ampc_status compare_file(comparing *k)
{
    run_inputs in = {.partial = false};
    ampc_status status = run_inputs_read(k->c, k->graph, &in);
    if (status == AMPC_OK) status = compare(k, in.tensors, in.count);
    run_inputs_clear(&in);
    return status;
}

static ampc_status compare_data(comparing *k)
{
    run_context *c = k->c;
    const tool_options *o = &c->tool->o;
    rt_dataset *data = NULL;
    rt_loader *feed = NULL;
    ampc_status status = run_open_data(c, o->data ? o->data : "synthetic", RT_TRAIN, k->graph, &data);
    const int64_t batch = o->batch || rt_loader_fixed_batch(k->graph, c->sizes) ? o->batch : DEFAULT_BATCH;
    if (status == AMPC_OK) status = rt_loader_open(k->graph, data, c->sizes, batch, c->tool->diag, &feed);
    const int64_t rows = status == AMPC_OK ? rt_dataset_rows(data) : 0;
    if (status == AMPC_OK)
        status = rt_loader_slice(feed, 0, rows < rt_loader_batch(feed) ? rows : rt_loader_batch(feed), c->tool->diag);
    if (status == AMPC_OK) status = compare(k, rt_loader_inputs(feed), rt_loader_count(feed));
    rt_loader_close(feed);
    rt_dataset_close(data);
    return status;
}

/* ---- the result -------------------------------------------------------------------------------- */

static const char *name_of(const rt_compared *r) { return r->node->loc.node ? r->node->loc.node : "-"; }
static const char *op_of(const rt_compared *r)
{
    return r->node->loc.op ? r->node->loc.op : ir_op_get(r->node->op)->name;
}

/* The worst values. */
static void print_rows(const comparing *k, const rt_compared *const *rows)
{
    printf("%-9s %-24s %-20s %-18s %-5s %10s %10s %10s %11s %11s\n", "phase", "tensor", "node", "op", "type", "error",
           "added", "max abs", "min", "max");
    int shown = 0, gradients = 0;
    for (int i = 0; i < k->result.count && shown < ROWS; i++) {
        const rt_compared *r = rows[i];
        gradients += r->node->phase == IR_UPDATE; /* unscaled: the same as those of the backward */
        if (r->node->phase == IR_UPDATE) continue;
        shown++;
        diag_print(stdout, "%-9s %-24s %-20s %-18s %-5s %10.3g %10.3g %10.3g %11.4g %11.4g\n",
                   rt_phase_names[r->node->phase], r->tensor.name, name_of(r), op_of(r), ir_dtype_name(r->tensor.dtype),
                   r->error, r->added, r->max_error, r->low.min, r->low.max);
        if (r->noise) printf("%9s zero but for rounding: f32 has no correct digit either\n", "");
    }
    const int left = k->result.count - shown - gradients;
    if (left > 0) printf("%d more (--csv, --html)\n", left);
}

static void print_row_json(json_writer *w, const char *key, const rt_compared *r)
{
    json_begin(w, key, '{');
    json_write_string(w, "tensor", r->tensor.name);
    json_write_string(w, "node", name_of(r));
    json_write_string(w, "op", op_of(r));
    json_write_string(w, "phase", rt_phase_names[r->node->phase]);
    json_write_string(w, "dtype", ir_dtype_name(r->tensor.dtype));
    json_write_real(w, "error", "%.9g", r->error);
    json_write_real(w, "error_f32", "%.9g", r->error_f32);
    json_write_real(w, "max_error", "%.9g", r->max_error);
    json_write_real(w, "added", "%.9g", r->added);
    json_write_integer(w, "not_finite", r->low.nan + r->low.inf);
    json_write_bool(w, "noise", r->noise);
    json_write_bool(w, "abnormal", rt_compared_is_abnormal(r));
    json_end(w, '}');
}

static void print_json(const comparing *k, const rt_compared *const *rows)
{
    json_writer w = {.file = stdout};
    json_begin(&w, NULL, '{');
    json_write_string(&w, "entry", k->graph->name);
    json_write_integer(&w, "values", k->result.count);
    json_write_integer(&w, "not_compared", k->result.unmatched);
    json_write_integer(&w, "f32_nodes_of_f64", k->f64.tool.compile->report.kept_narrow);
    if (k->result.loses) print_row_json(&w, "loses_most", k->result.loses);
    if (k->result.amplifies) print_row_json(&w, "amplifies_most", k->result.amplifies);
    json_begin(&w, "rows", '[');
    for (int i = 0; i < k->result.count; i++) print_row_json(&w, NULL, rows[i]);
    json_end(&w, ']');
    json_end(&w, '}');
    putchar('\n');
}

static void print_conclusion(const comparing *k)
{
    const rt_compared *l = k->result.loses, *a = k->result.amplifies;
    const int narrow = k->f64.tool.compile->report.kept_narrow;
    printf("@%s: %d values compared, %d only in mixed precision; %d nodes of the f64 run computed in f32\n",
           k->graph->name, k->result.count, k->result.unmatched, narrow);
    if (a)
        diag_print(stdout, "amplifies most: %s '%s' (%s), '%s': its operands are off by %.3g, its result by %.3g\n",
                   rt_phase_names[a->node->phase], name_of(a), op_of(a), a->tensor.name, a->operands, a->error);
    if (l)
        diag_print(stdout, "loses most: %s '%s' (%s), '%s': it adds an error of %.3g\n", rt_phase_names[l->node->phase],
                   name_of(l), op_of(l), l->tensor.name, l->added);
    else printf("no node adds an error\n");
}

static ampc_status report(const comparing *k)
{
    const tool_options *o = &k->c->tool->o;
    const rt_comparison *c = &k->result;
    const rt_compared **rows = arena_array(k->c->tool->arena, (size_t)c->count + 1, sizeof *rows);
    rt_comparison_sort(c, rows);
    if (o->csv) TRY(compare_write_csv(o->csv, rows, c->count, k->c->tool->diag));
    if (o->html) TRY(compare_write_html(o->html, o->operands.items[0], c, rows, k->c->tool->diag));
    if (o->pass.json) {
        print_json(k, rows);
        return AMPC_OK;
    }
    if (!o->quiet) print_rows(k, rows);
    print_conclusion(k);
    return AMPC_OK;
}

/* ---- the command ------------------------------------------------------------------------------- */

static ampc_status choose_entry(comparing *k)
{
    const ir_module *m = k->c->tool->module;
    const ir_graph_role usual = ir_graph_by_role(m, IR_GRAPH_grad) ? IR_GRAPH_grad : IR_GRAPH_infer;
    TRY(run_need_entry(k->c, k->c->tool->o.entry ? k->c->tool->o.entry : ir_graph_words[usual], &k->graph));
    if (!ir_first_store(k->graph)) return AMPC_OK;
    return diag_error(k->c->tool->diag, AMPC_USAGE, DIAG_FILE("ampc-run compare"),
                      "--entry: @%s changes the weights; compare @%s", k->graph->name, ir_graph_words[usual]);
}

static ampc_status compare_entry(comparing *k)
{
    const tool_options *o = &k->c->tool->o;
    const bool from_file = o->inputs.count || o->inputs_file;
    if (k->c->tool->compile == NULL)
        return diag_error(k->c->tool->diag, AMPC_USAGE, DIAG_FILE(o->operands.items[0]),
                          "compare compiles the model in three precisions, so it requires the .onnx file");
    if (from_file && o->data)
        return diag_error(k->c->tool->diag, AMPC_USAGE, DIAG_FILE("ampc-run compare"), "not both --data and --inputs");
    TRY(choose_entry(k));
    TRY(open_reference(k, &k->f32, false));
    TRY(open_reference(k, &k->f64, true));
    TRY(from_file ? compare_file(k) : compare_data(k));
    return report(k);
}

ampc_status run_compare(run_context *c)
{
    comparing k = {.c = c};
    const ampc_status status = compare_entry(&k);
    rt_comparison_clear(&k.result);
    run_variant_close(&k.f32);
    run_variant_close(&k.f64);
    return status;
}
