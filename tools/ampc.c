/* ampc.c - the compiler: MODEL.onnx -> a module with entry graphs in mixed precision. */
#include "frontend/onnx.h"
#include "runtime/files/atomic_file.h"
#include "runtime/api/export.h"
#include "runtime/files/module_file.h"
#include "runtime/session/session.h"
#include "tools/drawing.h"
#include "tools/tool.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const examples[] = {
    "ampc model.onnx -o model.amp.ir                                    # inference in fp16",
    "ampc model.onnx -o model.amp.ir --dtype=bf16 --loss=ce --optimizer=adamw,lr=1e-3",
    "ampc model.onnx -o model.amp.onnx                                  # for another runtime",
    "ampc model.onnx --explain all                                      # why which node has its "
    "precision",
    NULL};

static const option_program program = {
    .name = "ampc",
    .bit = FOR_AMPC,
    .usage = "ampc MODEL.onnx -o MODEL.amp.ir [OPTION]..",
    .purpose = "Compiles a network to mixed precision, with a training step when there is a loss.",
    .examples = examples,
    .operands_min = 1,
    .operands_max = 1,
};

/* ---- the kind of output ---------------------------------------------------------------------- */

static const char *kind_of(const tool_options *o)
{
    if (o->emit) return o->emit;
    const char *dot = strrchr(o->output, '.');
    return strcmp(o->output, "-") == 0 ? "ir" : dot ? dot + 1 : "";
}

static bool writes_onnx(const tool_options *o)
{
    return o->output && strcmp(kind_of(o), "onnx") == 0;
}

static bool is_drawing(const tool_options *o)
{
    return o->output && (strcmp(kind_of(o), "dot") == 0 || strcmp(kind_of(o), "svg") == 0);
}

static ampc_status check_kind(const tool_options *o, diag *d)
{
    static const char *const later[] = {"onnx-train", "html", "json"};
    if (!o->output) return AMPC_OK;
    const char *kind = kind_of(o);
    if (strcmp(kind, "ir") == 0) return AMPC_OK;
    if ((writes_onnx(o) || is_drawing(o)) && strcmp(o->output, "-") != 0) return AMPC_OK;
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        if (strcmp(later[i], kind) == 0)
            return diag_error(d, AMPC_UNSUPPORTED, DIAG_FILE(o->output),
                              "output of kind '%s' is not supported yet", kind);
    return diag_error(d, AMPC_USAGE, DIAG_FILE(o->output),
                      "no kind of output is called '%s': expected .ir or a file .onnx, .dot, .svg", kind);
}

static ampc_status check_output(const tool_options *o, diag *d)
{
    bool to_stdout = o->output && strcmp(o->output, "-") == 0, reference = o->weights == 2;
    bool looks = o->pass.explain || o->pass.print_stats || o->pass.dump_after ||
                 o->pass.dump_changed || o->pass.timing || o->emit_list;
    if (!o->output && !looks)
        return diag_error(d, AMPC_USAGE, DIAG_FILE("ampc"), "no output: name one with -o FILE");
    if (to_stdout && !reference)
        return diag_error(d, AMPC_USAGE, DIAG_FILE("ampc"), "-o - needs --weights=reference");
    if (reference && o->pass.init && strcmp(o->pass.init, "file") != 0)
        return diag_error(d, AMPC_USAGE, DIAG_FILE("ampc"),
                          "--init draws new weights, --weights=reference keeps none");
    return check_kind(o, d);
}

/* ---- weights by reference: paths as seen from the folder of the output ------------------------ */

static const char *real(const char *path, arena *a)
{
    char *whole = realpath(path, NULL);
    const char *kept = whole ? arena_strdup(a, whole) : NULL;
    free(whole);
    return kept;
}

/* What is left of the path below the folder; NULL: it leads elsewhere. */
static const char *seen_from(const char *path, const char *folder, arena *a)
{
    const char *whole = real(path, a), *base = real(folder, a);
    size_t n = base ? strlen(base) : 0;
    if (!whole || !base || strncmp(whole, base, n) != 0) return NULL;
    if (n == 1) return whole + 1; /* the root */
    return whole[n] == '/' ? whole + n + 1 : NULL;
}

static ampc_status refer_to_weights(tool *t)
{
    const char *folder = t->o.weights_dir ? t->o.weights_dir : tool_folder(t->o.output, t->arena);
    for (size_t i = 0; i < t->module->storage.count; i++) {
        ir_storage *s = t->module->storage.items[i];
        if (s->data.kind != IR_DATA_FILE) continue;
        const char *seen = seen_from(s->data.path, folder, t->arena);
        if (!seen)
            return diag_error(t->diag, AMPC_USAGE, DIAG_FILE(t->o.output),
                              "--weights=reference: '%s' lies outside the folder '%s'; leave the option out to copy "
                              "the weights, or name their folder here and to ampc-run with --weights-dir",
                              s->data.path, folder);
        s->data.path = seen;
    }
    return AMPC_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* For a person to read: the weights are where the model says. */
static ampc_status write_stdout(tool *t)
{
    if (fputs(ir_print(t->module, t->arena), stdout) >= 0 && fflush(stdout) == 0) return AMPC_OK;
    return diag_error(t->diag, AMPC_IO, DIAG_NOWHERE, "cannot write to standard output");
}

static ampc_status write_files(tool *t)
{
    const char *output = t->o.output, *weights = NULL;
    size_t stem = strlen(output) - (tool_ends_with(output, ".ir") ? 3 : 0);
    if (t->o.weights == 2)
        TRY(refer_to_weights(t));
    else
        weights = arena_printf(t->arena, "%.*s.safetensors", (int)stem, output);
    return rt_module_save(t->module, t->weights_dir, output, weights, t->diag);
}

static ampc_status write_module(tool *t)
{
    if (!t->o.output) return AMPC_OK;
    if (strcmp(t->o.output, "-") == 0) return write_stdout(t);
    if (is_drawing(&t->o)) return drawing_write(t, strcmp(kind_of(&t->o), "svg") == 0);
    if (writes_onnx(&t->o)) return rt_emit_onnx(t->module, "infer", t->o.output, t->diag);
    return write_files(t);
}

static ampc_status write_list(tool *t)
{
    if (!t->o.emit_list) return AMPC_OK;
    const char *text = pass_print_list(&t->o.pass, t->diag, t->arena);
    if (!text) return diag_status(t->diag);
    return rt_atomic_save(t->o.emit_list, text, strlen(text), t->diag);
}

/* ---- the program ----------------------------------------------------------------------------- */

/* All operators of ONNX with the colours that the lists give them. */
static ampc_status print_operators(tool *t)
{
    size_t count = 0;
    while (onnx_operators[count].name) count++;
    const char **names = arena_array(t->arena, count, sizeof *names);
    const char *(*colours)[2] = arena_array(t->arena, count, sizeof *colours);
    for (size_t i = 0; i < count; i++) names[i] = onnx_operators[i].name;
    TRY(pass_operator_colours(&t->o.pass, names, count, t->diag, colours));
    printf("\n%-28s %-6s %-6s %s\n", "operator", "fp16", "bf16", "since opset");
    for (size_t i = 0; i < count; i++)
        printf("%-28s %-6s %-6s %d\n", names[i], colours[i][0], colours[i][1], onnx_operators[i].since);
    return AMPC_OK;
}

static ampc_status print_tables(tool *t)
{
    if (t->o.list_passes)
        for (const pass_info *p = pass_table; p->name; p++) printf("%-12s %s\n", p->name, p->text);
    if (!t->o.print_ops) return AMPC_OK;
    bool json = t->o.pass.json || strcmp(t->o.print_ops, "json") == 0;
    if (!json && strcmp(t->o.print_ops, "text") != 0)
        return diag_error(t->diag, AMPC_USAGE, DIAG_FILE("ampc"), "--print-ops: '%s' is not 'json'",
                          t->o.print_ops);
    fputs(pass_print_ops(json, t->arena), stdout);
    return json ? AMPC_OK : print_operators(t);
}

static ampc_status compile(tool *t)
{
    const char *model = t->o.operands.items[0];
    TRY(check_output(&t->o, t->diag));
    t->foreign = !t->o.output || writes_onnx(&t->o) || is_drawing(&t->o);
    t->o.pass.plain_runtime = writes_onnx(&t->o);
    t->o.pass.draws = is_drawing(&t->o);
    TRY(tool_compile(t, model));
    if (!ir_graph_find(t->module, "train_step") && !writes_onnx(&t->o) && !is_drawing(&t->o))
        diag_note(t->diag, DIAG_FILE(model),
                  "no loss, so no training step: add one with --loss (for example --loss=ce) "
                  "or name an output with --loss-output");
    TRY(write_list(t));
    TRY(write_module(t));
    FILE *out = t->o.output && strcmp(t->o.output, "-") == 0 ? stderr : stdout;
    if (t->o.pass.print_stats) fputs(pass_print_stats(t->module, &t->o.pass, t->arena), out);
    fflush(stdout);
    if (!t->o.quiet) fprintf(stderr, "%s\n", pass_summary(&t->o.pass, t->arena));
    return AMPC_OK;
}

static ampc_status run(tool *t, int argc, char **argv)
{
    bool done = false;
    TRY(tool_parse(t, &program, argc - 1, argv + 1, &done));
    if (done) return AMPC_OK;
    if (t->o.list_passes || t->o.print_ops) return print_tables(t);
    return compile(t);
}

int program_ampc(int argc, char **argv) { return tool_main(argc, argv, run); }
