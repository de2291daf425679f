/* tool.c - the frame of main, and MODEL -> module. */
#include "tools/tool.h"

#include "frontend/onnx.h"
#include "runtime/session/session.h"
#include "runtime/files/weights.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static ampc_status run_guarded(tool *t, int argc, char **argv,
                               ampc_status (*run)(tool *t, int argc, char **argv))
{
    jmp_buf guard;
    if (setjmp(guard)) return diag_error(t->diag, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory");
    arena_set_guard(t->arena, &guard);
    t->o = options_default(t->arena);
    t->o.pass.stats = &t->stats;
    return run(t, argc, argv);
}

/* A write that fails is an error of ours (exit code 4), also past the limit of file sizes and into a pipe that nobody
 * reads; by default both are signals that end a program in the middle of its work. */
static void ignore_signals_of_writes(void)
{
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
}

int tool_main(int argc, char **argv, ampc_status (*run)(tool *t, int argc, char **argv))
{
    ignore_signals_of_writes();
    tool t = {.console = console_open(), .weights_dir = "."};
    t.diag = diag_new(console_message, &t.console);
    t.arena = arena_new(0);
    ampc_status status = t.diag && t.arena ? run_guarded(&t, argc, argv, run) : AMPC_NO_MEMORY;
    console_end_live(&t.console);
    /* Nobody ends in silence, least of all when there was no memory for a message. */
    if (!t.diag) fputs("error: out of memory\n", stderr);
    else if (status == AMPC_NO_MEMORY && diag_status(t.diag) == AMPC_OK)
        diag_error(t.diag, status, DIAG_NOWHERE, "out of memory");
    if (status == AMPC_OK && (fflush(stdout) != 0 || ferror(stdout)))
        status = diag_error(t.diag, AMPC_IO, DIAG_NOWHERE, "cannot write to standard output");
    ir_module_free(t.module);
    arena_free(t.arena);
    diag_free(t.diag);
    return (int)status;
}

static ampc_status tool_help(tool *t, const option_program *p)
{
    const char *form = t->o.help;
    if (strcmp(form, "man") == 0)
        options_man(p->name, p->purpose, p, 1);
    else if (strcmp(form, "short") == 0 || strcmp(form, "all") == 0)
        options_help(p, *form == 'a');
    else
        return diag_error(t->diag, AMPC_USAGE, DIAG_FILE(p->name),
                          "--help: '%s' is neither 'all' nor 'man'", form);
    return AMPC_OK;
}

ampc_status tool_parse(tool *t, const option_program *p, int argc, char **argv, bool *done)
{
    TRY(options_parse(&t->o, p, argc, argv, t->diag));
    console_set_colour(&t->console, t->o.colour);
    t->console.quiet = t->o.quiet;
    t->console.verbose = t->o.verbose;
    diag_set_strict(t->diag, t->o.strict);
    *done = t->o.help || t->o.version;
    if (t->o.version)
        printf("%.*s " AMPC_VERSION "\nONNX opsets %d to %d, IR text version 1, devices: %s\n",
               (int)strcspn(p->name, " "), p->name, ONNX_OPSET_FIRST, ONNX_OPSET_LAST,
               rt_devices());
    else if (t->o.help)
        return tool_help(t, p);
    return AMPC_OK;
}

/* ---- models ---------------------------------------------------------------------------------- */

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

static void print_text(void *user, const char *text) { fputs(text, user); }

static ampc_status read_dims(tool *t, onnx_dim_binding **dims)
{
    const pass_strings *given = &t->o.dims;
    *dims = arena_array(t->arena, (size_t)given->count + 1, sizeof **dims);
    for (int i = 0; i < given->count; i++) {
        const char *size;
        TRY(options_split(given->items[i], "--dim", t->arena, t->diag, &(*dims)[i].name, &size));
        if (!options_int(size, &(*dims)[i].size) || (*dims)[i].size < 0)
            return diag_error(t->diag, AMPC_USAGE, DIAG_NOWHERE, "--dim: '%s' is no size", size);
    }
    return AMPC_OK;
}

static long peak_kib(void)
{
    struct rusage use;
    return getrusage(RUSAGE_SELF, &use) == 0 ? use.ru_maxrss : 0;
}

static ampc_status compile_passes(tool *t)
{
    rt_weights *weights;
    TRY(rt_weights_open(t->module, NULL, t->diag, &weights));
    t->o.pass.read = rt_weights_read_part;
    t->o.pass.read_user = weights;
    ampc_status status = pass_compile(t->module, &t->o.pass, t->diag);
    rt_weights_close(weights);
    return status;
}

ampc_status tool_compile(tool *t, const char *path)
{
    bool converts = t->o.pass.plain_runtime || t->o.pass.draws;
    onnx_import_options import = {
        .n_dims = t->o.dims.count, .tied = converts || !t->o.untie, .foreign = t->foreign};
    onnx_dim_binding *dims;
    TRY(read_dims(t, &dims));
    import.dims = dims;
    bool answers = t->o.pass.explain && !(t->o.output && strcmp(t->o.output, "-") == 0);
    t->o.pass.text_out = print_text;
    t->o.pass.text_user = answers ? stdout : stderr;
    double start = tool_seconds();
    TRY(onnx_import(path, &import, t->diag, &t->module));
    double imported = tool_seconds();
    if (t->o.pass.timing) fprintf(stderr, "%-12s %8.2f ms\n", "import", (imported - start) * 1e3);
    TRY(compile_passes(t));
    if (t->o.pass.timing)
        fprintf(stderr, "%-12s %8.2f ms  peak resident memory %.1f MiB\n", "passes",
                (tool_seconds() - imported) * 1e3, (double)peak_kib() / 1024);
    return diag_status(t->diag);
}

ampc_status tool_open_model(tool *t, const char *path)
{
    if (tool_ends_with(path, ".onnx")) return tool_compile(t, path);
    if (t->o.compile_option)
        return diag_error(t->diag, AMPC_USAGE, DIAG_FILE(path),
                          "--%s is for .onnx models: this one is compiled", t->o.compile_option);
    t->weights_dir = t->o.weights_dir ? t->o.weights_dir : tool_folder(path, t->arena);
    TRY(ir_parse_file(path, t->diag, &t->module));
    return ir_verify(t->module, t->diag);
}
