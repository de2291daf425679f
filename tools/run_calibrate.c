/* run_calibrate.c - calibrate: statistics of all tensors over many samples, and the list file that follows. */
#include "ir/base/json_writer.h"
#include "passes/amp/list.h"
#include "runtime/files/atomic_file.h"
#include "runtime/inspect/calibrate.h"
#include "tools/calibrate_list.h"
#include "tools/histogram.h"
#include "tools/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DEFAULT_BATCH = 32, MAX_SCALE = 24 };

/* Shares above which bf16 is proposed: of products that would be fp32, and of numbers that would become zero. */
#define MANY_PRODUCTS 0.5
#define MANY_FLUSHED 0.01

/* What the loss scale has to be. */
typedef struct scale_advice {
    bool known;
    int exponent;                   /* the largest power of two with which no gradient overflows, at most MAX_SCALE */
    const rt_calibrated *largest;   /* the gradient that decides */
    double flushed, flushed_scaled; /* shares of all gradients that become zero, without and with it */
} scale_advice;

typedef struct calibrating {
    run_context *c;
    const ir_graph *infer, *grad; /* grad NULL: no loss */
    rt_calibrator *calibrator;
    calibrated_list list;
    scale_advice scale;
    ir_exponents activations;
    ir_dtype proposed;
    const char *reason;
    VEC(const char *) bad; /* what is not finite in fp32 */
} calibrating;

static arena *memory(const calibrating *k) { return k->c->tool->arena; }

/* ---- running ------------------------------------------------------------------------------------ */

static void note_bad(void *user, diag_loc loc, const char *text)
{
    calibrating *k = user;
    diag_warning(k->c->tool->diag, loc, "not finite in fp32 either: %s", text);
    vec_push(memory(k), &k->bad, arena_strdup(memory(k), text));
}

/* The inputs of another graph are a part of these. */
static ampc_status run_on(calibrating *k, const ir_graph *g, const rt_tensor *inputs, int n, const rt_loader *feed)
{
    rt_tensor *own = arena_array(memory(k), (size_t)n + 1, sizeof *own);
    int count = 0;
    for (int i = 0; i < n; i++)
        if (ir_graph_find_input(g, inputs[i].name)) own[count++] = inputs[i];
    return rt_calibrator_run(k->calibrator, g, own, count, feed, k->c->tool->diag);
}

static ampc_status calibrate_file(calibrating *k)
{
    run_inputs in = {.partial = true};
    ampc_status status = run_inputs_read(k->c, k->grad ? k->grad : k->infer, &in);
    if (status == AMPC_OK) status = run_on(k, k->infer, in.tensors, in.count, NULL);
    if (status == AMPC_OK && k->grad) status = run_on(k, k->grad, in.tensors, in.count, NULL);
    run_inputs_clear(&in);
    rt_calibrator_result(k->calibrator)->samples = 1;
    return status;
}

/* All samples, in stored order, or the first --samples of them. */
static ampc_status run_batches(calibrating *k, const ir_graph *g, rt_dataset *data, int64_t *samples)
{
    run_context *c = k->c;
    rt_loader *feed = NULL;
    const int64_t rows = rt_dataset_rows(data), wanted = c->tool->o.samples;
    const int64_t batch = c->tool->o.batch || rt_loader_fixed_batch(g, c->sizes) ? c->tool->o.batch : DEFAULT_BATCH;
    ampc_status status = rt_loader_open(g, data, c->sizes, batch, c->tool->diag, &feed);
    *samples = wanted && wanted < rows ? wanted : rows;
    for (int64_t i = 0, n; i < *samples && status == AMPC_OK; i += n) {
        n = *samples - i < rt_loader_batch(feed) ? *samples - i : rt_loader_batch(feed);
        status = rt_loader_slice(feed, i, n, c->tool->diag);
        if (status == AMPC_OK)
            status = rt_calibrator_run(k->calibrator, g, rt_loader_inputs(feed), rt_loader_count(feed), feed,
                                       c->tool->diag);
    }
    rt_loader_close(feed);
    return status;
}

static ampc_status calibrate_data(calibrating *k)
{
    rt_dataset *data = NULL;
    int64_t *samples = &rt_calibrator_result(k->calibrator)->samples;
    TRY(run_open_data(k->c, k->c->tool->o.data, RT_TRAIN, k->grad ? k->grad : k->infer, &data));
    ampc_status status = run_batches(k, k->infer, data, samples);
    if (status == AMPC_OK && k->grad) status = run_batches(k, k->grad, data, samples);
    rt_dataset_close(data);
    return status;
}

/* ---- advice -------------------------------------------------------------------------------------- */

static void advise_scale(calibrating *k)
{
    const rt_calibration *all = rt_calibrator_result(k->calibrator);
    ir_exponents gradients = {.count = 0};
    scale_advice *s = &k->scale;
    double largest = 0;
    for (size_t i = 0; i < all->tensors.count; i++) {
        const rt_calibrated *r = all->tensors.items[i];
        if (r->kind == RT_CALIBRATED_ACTIVATION) ir_exponents_merge(&k->activations, &r->numbers);
        if (r->kind != RT_CALIBRATED_GRADIENT) continue;
        ir_exponents_merge(&gradients, &r->numbers);
        if (ir_exponents_largest(&r->numbers) <= largest) continue;
        largest = ir_exponents_largest(&r->numbers);
        s->largest = r;
    }
    s->known = s->largest != NULL;
    if (!s->known) return;
    s->exponent = (int)fmin(floor(log2(ir_dtype_largest(IR_f16) / largest)), MAX_SCALE);
    s->flushed = ir_exponents_in(&gradients, IR_f16, 0).flushed;
    s->flushed_scaled = ir_exponents_in(&gradients, IR_f16, s->exponent).flushed;
}

/* Counts the operators, and those that gain by a low type: products of matrices and convolutions. */
static void count_nodes(const calibrating *k, int *nodes, int *white)
{
    *nodes = *white = 0;
    for (const ir_graph *g = k->infer; g; g = ir_next_graph_in(k->infer, g))
        for (const ir_node *n = g->first; n; n = n->next) {
            const bool counts = n->loc.op && n->n_out && ir_dtype_is_float(n->out[0]->type.dtype);
            *nodes += counts;
            *white += counts && ir_op_get(n->op)->colour == IR_WHITE;
        }
}

static void propose(calibrating *k)
{
    int nodes, white;
    count_nodes(k, &nodes, &white);
    const ir_exponent_shares f16 = ir_exponents_in(&k->activations, IR_f16, 0);
    const char *text = NULL;
    k->proposed = IR_bf16;
    if (k->list.white > MANY_PRODUCTS * white)
        text = arena_printf(memory(k), "%d of %d matrix products and convolutions touch numbers above %g",
                            k->list.white, white, k->c->tool->o.data_max);
    else if (f16.flushed > MANY_FLUSHED)
        text = arena_printf(memory(k), "%.2g %% of the activations would become zero in fp16", 100 * f16.flushed);
    else if (k->scale.known && k->scale.flushed_scaled > MANY_FLUSHED)
        text = arena_printf(memory(k), "%.2g %% of the gradients would become zero in fp16 with the largest loss scale",
                            100 * k->scale.flushed_scaled);
    else if (k->scale.known && k->scale.exponent < 0)
        text = arena_printf(memory(k), "gradients of %.4g overflow in fp16 without a loss scale",
                            ir_exponents_largest(&k->scale.largest->numbers));
    k->reason = text;
    if (text) return;
    k->proposed = IR_f16;
    k->reason = arena_printf(memory(k),
                             "%d of %d operators touch numbers above %g, %.2g %% of the activations become zero and "
                             "%.2g %% lose digits; fp16 has 3 bits more than bf16",
                             k->list.lines.count ? k->list.nodes : 0, nodes, k->c->tool->o.data_max, 100 * f16.flushed,
                             100 * (f16.below_normal - f16.flushed));
}

static void find_near(calibrating *k)
{
    const rt_calibration *all = rt_calibrator_result(k->calibrator);
    const double limit = k->c->tool->o.data_max;
    for (size_t i = 0; i < all->tensors.count; i++) {
        const rt_calibrated *r = all->tensors.items[i];
        const double largest = ir_exponents_largest(&r->numbers);
        const bool forward = r->kind == RT_CALIBRATED_ACTIVATION || r->kind == RT_CALIBRATED_INPUT;
        if (forward && largest > limit / 2 && largest <= limit) vec_push(memory(k), &k->list.near, r);
    }
}

/* ---- the list file ------------------------------------------------------------------------------- */

static const char *word_of(ir_dtype t) { return t == IR_f16 ? "fp16" : "bf16"; }

static const char *scale_text(const calibrating *k)
{
    const scale_advice *s = &k->scale;
    return arena_printf(memory(k),
                        "loss scale: at most %g; '%s' has gradients up to %.4g; %.3g %% of all become zero in fp16 "
                        "without it, %.3g %% with it",
                        ldexp(1, s->exponent), s->largest->name, ir_exponents_largest(&s->largest->numbers),
                        100 * s->flushed, 100 * s->flushed_scaled);
}

static void add_comment(text_buffer *t, const char *what, const rt_calibrated *r)
{
    text_add(t, "# %s: %.6g .. %.6g, ", what, r->numbers.min, r->numbers.max);
    for (const char *p = r->name; *p; p++) text_add(t, "%c", (unsigned char)*p < ' ' ? ' ' : *p);
    text_add(t, "\n");
}

static void add_lines(text_buffer *t, const calibrating *k, bool nodes)
{
    bool any = false;
    for (size_t i = 0; i < k->list.lines.count; i++) {
        const calibrated_line *l = &k->list.lines.items[i];
        if (l->is_node != nodes) continue;
        if (!any) text_add(t, nodes ? "\n[nodes]\n" : "\n[tensors]\n");
        any = true;
        text_add(t, "%s\n",
                 nodes ? amp_list_node_line(l->name, IR_f32, l->reason, memory(k))
                       : amp_list_tensor_line(l->name, l->reason, memory(k)));
    }
}

static ampc_status write_list(const calibrating *k)
{
    const tool_options *o = &k->c->tool->o;
    text_buffer t = {.arena = memory(k)};
    if (!o->output) return AMPC_OK;
    text_add(&t, "# ampc-run calibrate, %" PRId64 " samples\n# proposed: --dtype=%s: %s\n",
             rt_calibrator_result(k->calibrator)->samples, word_of(k->proposed), k->reason);
    if (k->scale.known) add_comment(&t, scale_text(k), k->scale.largest);
    for (size_t i = 0; i < k->list.near.count; i++) add_comment(&t, "within a factor 2", k->list.near.items[i]);
    for (size_t i = 0; i < k->list.safe.count; i++)
        add_comment(&t, "fp32 without a line of its own", k->list.safe.items[i]);
    text_add(&t, "[meta]\nversion = 1\n");
    add_lines(&t, k, false);
    add_lines(&t, k, true);
    const size_t n = t.length;
    return rt_atomic_save(o->output, text_finish(&t), n, k->c->tool->diag);
}

/* ---- the report ---------------------------------------------------------------------------------- */

static void write_numbers(json_writer *w, const rt_calibrated *r)
{
    json_write_string(w, "tensor", r->name);
    json_write_string(w, "node", r->node);
    json_write_string(w, "op", r->op);
    json_write_real(w, "min", "%.9g", r->numbers.min);
    json_write_real(w, "max", "%.9g", r->numbers.max);
    json_write_integer(w, "above", r->numbers.large);
}

static void write_tensors(json_writer *w, const char *key, const rt_calibrated *const *items, size_t n)
{
    json_begin(w, key, '[');
    for (size_t i = 0; i < n; i++) {
        json_begin(w, NULL, '{');
        write_numbers(w, items[i]);
        json_end(w, '}');
    }
    json_end(w, ']');
}

static void write_lines(json_writer *w, const calibrating *k)
{
    json_begin(w, "lines", '[');
    for (size_t i = 0; i < k->list.lines.count; i++) {
        const calibrated_line *l = &k->list.lines.items[i];
        json_begin(w, NULL, '{');
        json_write_string(w, "section", l->is_node ? "nodes" : "tensors");
        json_write_string(w, "name", l->name);
        json_write_string(w, "reason", l->reason);
        write_numbers(w, l->tensor);
        if (l->tensor->place) json_write_string(w, "sample", l->tensor->place);
        json_end(w, '}');
    }
    json_end(w, ']');
}

static void write_scale(json_writer *w, const scale_advice *s)
{
    json_begin(w, "gradients", '{');
    json_write_real(w, "scale", "%.9g", ldexp(1, s->exponent));
    json_write_string(w, "largest", s->largest->name);
    json_write_real(w, "max", "%.9g", ir_exponents_largest(&s->largest->numbers));
    json_write_real(w, "flushed", "%.9g", s->flushed);
    json_write_real(w, "flushed_scaled", "%.9g", s->flushed_scaled);
    json_end(w, '}');
}

static void print_json(const calibrating *k)
{
    json_writer w = {.file = stdout};
    json_begin(&w, NULL, '{');
    json_write_string(&w, "model", k->c->tool->o.operands.items[0]);
    json_write_integer(&w, "samples", rt_calibrator_result(k->calibrator)->samples);
    json_write_integer(&w, "tensors", (int64_t)rt_calibrator_result(k->calibrator)->tensors.count);
    json_write_string(&w, "dtype", word_of(k->proposed));
    json_write_string(&w, "reason", k->reason);
    json_write_integer(&w, "places", k->list.places);
    json_write_bool(&w, "heals", k->list.heals);
    write_lines(&w, k);
    write_tensors(&w, "near", k->list.near.items, k->list.near.count);
    write_tensors(&w, "fp32_anyway", k->list.safe.items, k->list.safe.count);
    if (k->scale.known) write_scale(&w, &k->scale);
    json_begin(&w, "not_finite", '[');
    for (size_t i = 0; i < k->bad.count; i++) json_write_string(&w, NULL, k->bad.items[i]);
    json_end(&w, ']');
    json_end(&w, '}');
    putchar('\n');
}

static void print_text(const calibrating *k)
{
    const rt_calibration *all = rt_calibrator_result(k->calibrator);
    printf("%" PRId64 " samples, %zu tensors: ", all->samples, all->tensors.count);
    if (!k->list.lines.count) printf("nothing has to be added to the lists for fp16\n");
    else
        printf("fp16 overflows at %d place%s, healed by %zu line%s\n", k->list.places, k->list.places == 1 ? "" : "s",
               k->list.lines.count, k->list.lines.count == 1 ? "" : "s");
    for (size_t i = 0; i < k->list.lines.count; i++) {
        const calibrated_line *l = &k->list.lines.items[i];
        diag_print(stdout, "  %s %s: %s\n", l->is_node ? "node" : "tensor", l->name, l->reason);
    }
    if (k->list.near.count) printf("%zu tensors are within a factor 2 of the limit\n", k->list.near.count);
    if (k->scale.known) diag_print(stdout, "%s\n", scale_text(k));
    diag_print(stdout, "proposed: --dtype=%s: %s\n", word_of(k->proposed), k->reason);
}

/* ---- the command --------------------------------------------------------------------------------- */

static ampc_status conclude(calibrating *k)
{
    tool *t = k->c->tool;
    rt_calibration *all = rt_calibrator_result(k->calibrator);
    TRY(calibrate_lines(t, k->calibrator, k->infer, t->o.data_max, &k->list));
    if (!k->list.heals)
        diag_warning(t->diag, DIAG_FILE(t->o.operands.items[0]),
                     "a tensor that overflows stays in fp16 in spite of its line: another list or rule has it so");
    find_near(k);
    advise_scale(k);
    propose(k);
    all->model = t->o.operands.items[0];
    all->scale = k->scale.known ? ldexp(1, k->scale.exponent) : 1;
    TRY(write_list(k));
    if (t->o.histogram) TRY(histogram_write(all, t->o.histogram, t->diag));
    if (t->o.pass.json) print_json(k);
    else if (!t->o.quiet) print_text(k);
    return AMPC_OK;
}

static ampc_status calibrate(calibrating *k)
{
    tool *t = k->c->tool;
    const bool from_file = t->o.inputs.count || t->o.inputs_file;
    if (!t->compile)
        return diag_error(t->diag, AMPC_USAGE, DIAG_FILE(t->o.operands.items[0]),
                          "calibrate compiles the model in fp32, so it requires the .onnx file");
    if (t->o.pass.level == PASS_O0)
        return diag_error(t->diag, AMPC_USAGE, DIAG_OPTION(amp), "O0 is all fp32, so no list is needed");
    if (from_file && t->o.data)
        return diag_error(t->diag, AMPC_USAGE, DIAG_FILE("ampc-run calibrate"), "not both --data and --inputs");
    if (t->o.histogram) TRY(histogram_check_path(t->o.histogram, t->diag));
    TRY(run_need_entry(k->c, ir_graph_words[IR_GRAPH_infer], &k->infer));
    k->grad = ir_graph_by_role(t->module, IR_GRAPH_grad);
    const rt_calibrator_options options = {.limit = t->o.data_max, .on_bad = note_bad, .user = k};
    TRY(rt_calibrator_open(k->c->session, t->module, &options, t->arena, t->diag, &k->calibrator));
    TRY(from_file ? calibrate_file(k) : calibrate_data(k));
    TRY(rt_calibrator_weights(k->calibrator, t->diag));
    return conclude(k);
}

ampc_status run_calibrate(run_context *c)
{
    calibrating k = {.c = c};
    const ampc_status status = calibrate(&k);
    rt_calibrator_close(k.calibrator);
    return status;
}
