/* ampc_opt.c - named passes over the text of a module: the test and debug tool of the compiler.
 *
 * FILE is parsed and verified, each pass runs through the runner of the compiler (which verifies after it), and what
 * results is printed canonically. Nothing is written unless everything succeeded. */
#include "runtime/atomic_file.h"
#include "tools/console.h"
#include "tools/options.h"

#include <stdio.h>
#include <string.h>

static const char *const examples[] = {"ampc-opt model.amp.ir                        # verify, print canonically",
                                       "ampc-opt model.ir --pass=cse,dce -o small.ir", NULL};
static const option_program program = {
    .name = "ampc-opt",
    .bit = FOR_OPT,
    .usage = "ampc-opt [OPTION].. FILE.ir",
    .purpose = "Runs named passes over the text of a module ('-': standard input) and prints the result.",
    .examples = examples,
    .operands_min = 1,
    .operands_max = 1,
};

static void print_text(void *user, const char *text)
{
    (void)user;
    fputs(text, stderr);
}

static int list_passes(void)
{
    for (const pass_info *p = pass_table; p->name; p++) printf("%-12s %s\n", p->name, p->text);
    return AMPC_OK;
}

static ampc_status write_module(const ir_module *m, const char *path, arena *a, diag *d)
{
    const char *text = ir_print(m, a);
    if (path && strcmp(path, "-") != 0) return rt_atomic_save(path, text, strlen(text), d);
    if (fputs(text, stdout) >= 0 && fflush(stdout) == 0) return AMPC_OK;
    return diag_error(d, AMPC_IO, DIAG_NOWHERE, "cannot write to standard output");
}

static ampc_status process(ir_module *m, const tool_options *o, diag *d)
{
    if (o->pass.verify_each) TRY(ir_verify(m, d));
    for (int i = 0; i < o->passes.count; i++) TRY(pass_run(m, o->passes.items[i], &o->pass, d));
    return write_module(m, o->output, o->arena, d);
}

static ampc_status run(int argc, char **argv, arena *a, console *c, diag *d)
{
    tool_options o = options_default(a);
    o.pass.text_out = print_text;
    TRY(options_parse(&o, &program, argc - 1, argv + 1, d));
    console_set_colour(c, o.colour);
    c->quiet = o.quiet;
    c->verbose = o.verbose;
    diag_set_strict(d, o.strict);
    if (o.version) return puts("ampc-opt " AMPC_VERSION) >= 0 ? AMPC_OK : AMPC_IO;
    if (o.list_passes) return list_passes();
    if (o.help) {
        options_help(&program, strcmp(o.help, "all") == 0);
        return AMPC_OK;
    }
    ir_module *m = NULL;
    TRY(ir_parse_file(o.operands.items[0], d, &m));
    ampc_status status = process(m, &o, d);
    ir_module_free(m);
    return status;
}

int main(int argc, char **argv)
{
    console c = console_open();
    diag *d = diag_new(console_message, &c);
    arena *a = arena_new(0);
    ampc_status status = AMPC_NO_MEMORY;
    jmp_buf guard;
    if (d && a && !setjmp(guard)) {
        arena_set_guard(a, &guard);
        status = run(argc, argv, a, &c, d);
    } else {
        fputs("ampc-opt: error: out of memory\n", stderr);
    }
    arena_free(a);
    diag_free(d);
    return status;
}
