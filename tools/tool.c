/* tool.c - importing, compiling and parsing models for the commands. */
#include "ir/base/suggest.h"
#include "tools/tool.h"

#include "frontend/recipe.h"
#include "runtime/api/export.h"
#include "runtime/api/operators.h"
#include "runtime/backend/backend.h"
#include "runtime/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

bool tool_ends_with(const char *text, const char *ending)
{
    size_t n = strlen(text), m = strlen(ending);
    return n >= m && strcmp(text + n - m, ending) == 0;
}

const char *tool_folder(const char *path, arena *a)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return ".";
    return slash == path ? "/" : arena_strndup(a, path, (size_t)(slash - path));
}

double tool_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

ampc_status tool_parse_dim(tool *t, const char *text, const char **name, int64_t *size)
{
    const char *digits;
    TRY(options_split(text, "--dim", t->arena, t->diag, name, &digits));
    if (options_int(digits, size) && *size >= 0) return AMPC_OK;
    return diag_error(t->diag, AMPC_USAGE, DIAG_NOWHERE, "--dim: '%s' is not a size", digits);
}

ampc_status tool_print_module(tool *t)
{
    if (fputs(ir_print(t->module, t->arena), stdout) >= 0 && fflush(stdout) == 0) return AMPC_OK;
    return diag_error(t->diag, AMPC_IO, DIAG_NOWHERE, "cannot write to standard output");
}

static ampc_status read_dims(tool *t, onnx_dim_binding **dims)
{
    const pass_strings *texts = &t->o.dims;
    *dims = arena_array(t->arena, (size_t)texts->count + 1, sizeof **dims);
    for (int i = 0; i < texts->count; i++) TRY(tool_parse_dim(t, texts->items[i], &(*dims)[i].name, &(*dims)[i].size));
    return AMPC_OK;
}

static long peak_kib(void)
{
    struct rusage use;
    return getrusage(RUSAGE_SELF, &use) == 0 ? use.ru_maxrss : 0;
}

static ampc_status compile_passes(tool *t)
{
    bool answers = t->o.pass.explain && !(t->o.output && strcmp(t->o.output, "-") == 0);
    compile_options *o = &t->o.pass;
    if (t->command->as_spelled) {
        o = arena_alloc(t->arena, sizeof *o);
        *o = t->o.pass;
        o->level = PASS_O0;
        o->spelled_out = true;
    }
    TRY(compile_load(o, t->arena, t->diag, &t->compile));
    t->compile->report.text = answers ? stdout : stderr;
    return rt_compile_module(t->module, t->compile);
}

/* Whether the module is run, and not examined node by node. */
static bool runs_whole(const tool *t) { return t->command->bit & COMMAND_RUN && !t->command->by_node; }

ampc_status tool_load_operators(tool *t)
{
    for (int i = 0; i < t->o.operators.count; i++) TRY(operators_load(t->custom, t->o.operators.items[i], t->diag));
    return AMPC_OK;
}

ampc_status tool_compile(tool *t, const char *path)
{
    bool converts = t->o.pass.plain_runtime || t->o.pass.draws;
    TRY(tool_choose_dtype(t, path));
    t->o.pass.attention |= runs_whole(t);
    t->o.pass.pad |= runs_whole(t) && rt_device_pads(t->o.device);
    onnx_import_options import = {
        .n_dims = t->o.dims.count, .tied = converts || !t->o.untie, .opaque = t->accept_opaque, .custom = t->custom};
    if (t->o.pass.plain_runtime)
        import.emit_opset = onnx_opset_to_emit(t->o.pass.low, t->o.pass.consumer, (int)t->o.pass.opset);
    onnx_dim_binding *dims;
    TRY(read_dims(t, &dims));
    import.dims = dims;
    import.batch = t->o.batch;
    double start = tool_seconds();
    const bool recipe = recipe_detect(path);
    TRY((recipe ? recipe_import : onnx_import)(path, &import, t->diag, &t->module));
    double imported = tool_seconds();
    if (t->o.pass.pipeline.timing) fprintf(stderr, "%-17s %8.3f ms\n", "import", (imported - start) * 1e3);
    TRY(compile_passes(t));
    TRY(options_check_module(&t->o, t->command, t->module, t->diag));
    if (t->o.pass.pipeline.timing)
        fprintf(stderr, "%-17s %8.3f ms  peak resident memory %.1f MiB\n", "passes", (tool_seconds() - imported) * 1e3,
                (double)peak_kib() / 1024);
    return diag_status(t->diag);
}

/* ---- --dump-after ---------------------------------------------------------------------------- */

static bool is_pass(const char *name)
{
    const pass_info *p = pass_table;
    while (p->name && strcmp(p->name, name) != 0) p++;
    return p->name != NULL;
}

static bool is_stage(const char *name)
{
    const rt_stage *s = rt_stages;
    while (s->name && strcmp(s->name, name) != 0) s++;
    return s->name != NULL;
}

static bool dumps_passes(const tool *t)
{
    const char *name = t->o.pass.pipeline.dump_after;
    return name && is_pass(name);
}

ampc_status tool_check_dump(tool *t)
{
    const char *name = t->o.pass.pipeline.dump_after;
    const bool stages = t->command->plan_only;
    if (!name || strcmp(name, "all") == 0 || is_pass(name) || (stages && is_stage(name))) return AMPC_OK;
    suggestion near = suggest_for(name);
    for (const pass_info *p = pass_table; p->name; p++) suggest_candidate(&near, p->name);
    for (const rt_stage *s = rt_stages; stages && s->name; s++) suggest_candidate(&near, s->name);
    return diag_error(t->diag, AMPC_USAGE, DIAG_FILE(t->command->name), "--dump-after: unknown %s '%s'%s",
                      stages ? "pass or stage" : "pass", name, suggestion_hint(&near, "", t->arena));
}

ampc_status tool_open_model(tool *t, const char *path)
{
    if (tool_ends_with(path, ".onnx") || recipe_detect(path)) return tool_compile(t, path);
    const char *compile_option = dumps_passes(t) ? "dump-after" : t->o.compile_option;
    if (compile_option)
        return diag_error(t->diag, AMPC_USAGE, DIAG_FILE(path), "--%s requires a .onnx model; this one is compiled",
                          compile_option);
    t->weights_dir = t->o.weights_dir ? t->o.weights_dir : tool_folder(path, t->arena);
    TRY(ir_parse_file(path, t->diag, &t->module));
    TRY(ir_verify(t->module, t->diag));
    return options_check_module(&t->o, t->command, t->module, t->diag);
}
