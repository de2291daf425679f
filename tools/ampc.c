/* ampc.c - the compiler: MODEL.onnx -> a module with entry graphs in mixed precision. */
#include "frontend/onnx.h"
#include "runtime/files/atomic_file.h"
#include "runtime/api/export.h"
#include "runtime/files/module_file.h"
#include "tools/drawing.h"
#include "tools/report.h"
#include "tools/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the output ------------------------------------------------------------------------------ */

static bool writes(const tool_options *o, unsigned kinds) { return (options_output(o) & kinds) != 0; }

static ampc_status check_output(const tool_options *o, diag *d)
{
    const bool reference = o->weights == WEIGHTS_REFERENCE;
    const bool inspects = o->pass.explain || o->pass.print_stats || o->pass.pipeline.dump_after ||
                          o->pass.pipeline.dump_changed || o->pass.pipeline.timing || o->emit_list;
    if (!o->output && !inspects) return diag_error(d, AMPC_USAGE, DIAG_FILE("ampc"), "no output; use -o FILE");
    if (writes(o, OUTPUT_STDOUT) && !reference)
        return diag_error(d, AMPC_USAGE, DIAG_FILE("ampc"), "-o - requires --weights=reference");
    if (reference && o->pass.init && strcmp(o->pass.init, "file") != 0)
        return diag_error(d, AMPC_USAGE, DIAG_FILE("ampc"),
                          "--init creates new weights, which --weights=reference does not write");
    return AMPC_OK;
}

/* ---- weights by reference: paths relative to the directory of the output ----------------------- */

/* Constants that were loaded to fold them, but are in a file. */
static void refer_to_loaded(tool *t)
{
    for (size_t i = 0; i < t->module->storage.count; i++) {
        ir_data *data = &t->module->storage.items[i]->data;
        if (data->kind == IR_DATA_INLINE && data->path) data->kind = IR_DATA_FILE;
    }
}

static const char *real(const char *path, arena *a)
{
    char *resolved = realpath(path, NULL);
    const char *copy = resolved ? arena_strdup(a, resolved) : NULL;
    free(resolved);
    return copy;
}

/* The path relative to the folder; NULL if it is not inside it. */
static const char *relative_to(const char *path, const char *folder, arena *a)
{
    const char *resolved = real(path, a), *base = real(folder, a);
    size_t n = base ? strlen(base) : 0;
    if (!resolved || !base || strncmp(resolved, base, n) != 0) return NULL;
    if (n == 1) return resolved + 1; /* the root directory */
    return resolved[n] == '/' ? resolved + n + 1 : NULL;
}

static ampc_status refer_to_weights(tool *t)
{
    const char *folder = t->o.weights_dir ? t->o.weights_dir : tool_folder(t->o.output, t->arena);
    for (size_t i = 0; i < t->module->storage.count; i++) {
        ir_storage *s = t->module->storage.items[i];
        if (s->data.kind != IR_DATA_FILE) continue;
        const char *seen = relative_to(s->data.path, folder, t->arena);
        if (!seen)
            return diag_error(t->diag, AMPC_USAGE, DIAG_FILE(t->o.output),
                              "--weights=reference: '%s' is outside the directory '%s'; copy the weights with "
                              "--weights=sidecar, or pass their directory to ampc and ampc-run with --weights-dir",
                              s->data.path, folder);
        s->data.path = seen;
    }
    return AMPC_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

static ampc_status write_files(tool *t)
{
    const char *output = t->o.output;
    const bool refer = t->o.weights == WEIGHTS_REFERENCE;
    size_t base_length = strlen(output) - (tool_ends_with(output, ".ir") ? 3 : 0);
    const char *weights = arena_printf(t->arena, "%.*s.safetensors", (int)base_length, output);
    if (refer) refer_to_loaded(t);
    if (refer) TRY(refer_to_weights(t));
    return rt_module_save(t->module, t->weights_dir, output, weights, refer, t->diag);
}

_Static_assert(ONNX_OPSET_EMIT == 17 && ONNX_OPSET_LAST == 28, "--opset in options.def has these limits");

static ampc_status write_onnx(tool *t)
{
    const onnx_emit_options o = rt_emit_options(t->compile);
    return rt_emit_onnx(t->module, ir_graph_words[IR_GRAPH_infer], t->o.output, &o, t->diag);
}

static ampc_status write_module(tool *t)
{
    if (!t->o.output) return AMPC_OK;
    if (writes(&t->o, OUTPUT_STDOUT)) {
        refer_to_loaded(t);
        return tool_print_module(t);
    }
    if (writes(&t->o, OUTPUT_DRAWING)) return drawing_write(t, writes(&t->o, OUTPUT_SVG));
    if (writes(&t->o, OUTPUT_REPORT)) return report_write(t, writes(&t->o, OUTPUT_HTML));
    if (writes(&t->o, OUTPUT_ONNX)) return write_onnx(t);
    if (writes(&t->o, OUTPUT_ONNX_TRAIN))
        return rt_emit_onnx(t->module, ir_graph_words[IR_GRAPH_train_step], t->o.output, NULL, t->diag);
    return write_files(t);
}

/* --emit=onnx-train needs a training step that is one graph, with initial values for all of it. */
static ampc_status check_step(tool *t)
{
    if (!writes(&t->o, OUTPUT_ONNX_TRAIN)) return AMPC_OK;
    if (t->module->training.window)
        return diag_error(t->diag, AMPC_UNSUPPORTED, DIAG_OPTION(accumulate),
                          "a step that accumulates gradients is several graphs, and --emit=onnx-train writes one");
    for (size_t i = 0; i < t->module->storage.count; i++)
        if (ir_storage_is_derived(t->module->storage.items[i]))
            return diag_error(t->diag, AMPC_UNSUPPORTED, DIAG_OPTION(shard),
                              "each rank has other parameters, and --emit=onnx-train writes one model");
    if (ir_graph_by_role(t->module, IR_GRAPH_train_step)) return AMPC_OK;
    return diag_error(t->diag, AMPC_USAGE, DIAG_FILE("ampc"),
                      "--emit=onnx-train requires a loss: add one with --loss, or select an output with --loss-output");
}

static ampc_status write_list(tool *t)
{
    if (!t->o.emit_list) return AMPC_OK;
    const char *text;
    if (tool_ends_with(t->o.emit_list, ".json")) TRY(pass_print_mixlist(t->compile, t->arena, &text));
    else text = pass_print_list(t->compile, t->arena);
    return rt_atomic_save(t->o.emit_list, text, strlen(text), t->diag);
}

/* ---- the command ----------------------------------------------------------------------------- */

/* An operator computes in f32 where its functions do not accept the low type. */
static const char *custom_colour(const custom_op *op, ir_dtype low)
{
    return ir_colour_name(custom_allows(op, low) ? op->colour : IR_BLACK);
}

static void print_custom(const custom_ops *all, arena *a)
{
    printf("\n%-28s %-6s %-6s %-12s %-8s %-3s  %s\n", "custom operator", "fp16", "bf16", "since", "gradient", "cpu",
           "cuda");
    for (const custom_op *op = all->first; op; op = op->next) {
        const ampc_operator *t = &op->table;
        printf("%-28s %-6s %-6s %-12d %-8s %-3s  %s\n", arena_printf(a, "%s::%s", t->domain, t->name),
               custom_colour(op, IR_f16), custom_colour(op, IR_bf16), t->since, custom_has_gradient(op) ? "yes" : "no",
               t->forward_cpu ? "yes" : "no", t->forward_cuda ? "yes" : "no");
    }
}

/* Prints every ONNX operator with its colours in the lists. */
static ampc_status print_operators(tool *t)
{
    size_t count = 0;
    while (onnx_operators[count].name) count++;
    const char **names = arena_array(t->arena, count, sizeof *names);
    const char *(*colours)[2] = arena_array(t->arena, count, sizeof *colours);
    for (size_t i = 0; i < count; i++) names[i] = onnx_operators[i].name;
    TRY(compile_load(&t->o.pass, t->arena, t->diag, &t->compile));
    pass_operator_colours(t->compile, names, count, colours);
    printf("\n%-28s %-6s %-6s %s\n", "operator", "fp16", "bf16", "since opset");
    for (size_t i = 0; i < count; i++)
        printf("%-28s %-6s %-6s %d\n", names[i], colours[i][0], colours[i][1], onnx_operators[i].since);
    if (t->custom->first) print_custom(t->custom, t->arena);
    return AMPC_OK;
}

static ampc_status print_ops(tool *t)
{
    const bool json = t->o.pass.json || t->o.print_ops == OPS_JSON;
    pass_print_ops(stdout, json, t->arena);
    return json ? AMPC_OK : print_operators(t);
}

static ampc_status compile_model(tool *t)
{
    const char *model = t->o.operands.items[0];
    const compile_options *o = &t->o.pass;
    TRY(check_output(&t->o, t->diag));
    t->accept_opaque = !t->o.output || o->plain_runtime || o->draws || o->reports;
    TRY(tool_compile(t, model));
    TRY(check_step(t));
    if (!ir_graph_by_role(t->module, IR_GRAPH_train_step) && !o->plain_runtime && !o->draws && !o->reports)
        diag_note(t->diag, DIAG_FILE(model),
                  "no loss, so no training step: add a loss with --loss (for example --loss=ce) "
                  "or select an output with --loss-output");
    TRY(write_list(t));
    TRY(write_module(t));
    FILE *out = writes(&t->o, OUTPUT_STDOUT) ? stderr : stdout;
    if (o->print_stats) pass_print_stats(t->module, t->compile, out, t->arena);
    fflush(stdout);
    if (!t->o.quiet) fprintf(stderr, "%s\n", pass_summary(t->compile, t->arena));
    return AMPC_OK;
}

/* The output format affects how the model is compiled; what is told about a consumer is told about its model. */
ampc_status run_ampc(tool *t)
{
    const bool describes = t->o.pass.consumer && (!t->o.output || writes(&t->o, OUTPUT_REPORT));
    t->o.pass.plain_runtime = writes(&t->o, OUTPUT_ONNX) || describes;
    t->o.pass.draws = writes(&t->o, OUTPUT_DRAWING);
    t->o.pass.reports = writes(&t->o, OUTPUT_REPORT);
    TRY(tool_load_operators(t));
    return t->o.print_ops ? print_ops(t) : compile_model(t);
}
