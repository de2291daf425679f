/* ampc_opt.c - named passes over the text of a module: the test and debug tool of the compiler.
 *
 * FILE is parsed and verified, each pass runs through the runner of the compiler (which verifies after it), and what
 * results is printed canonically. Nothing is written unless everything succeeded. */
#include "runtime/files/atomic_file.h"
#include "tools/tool.h"

#include <stdio.h>
#include <string.h>

static const char *const examples[] = {
    "ampc-opt model.ir                          # parse, verify, print canonically",
    "ampc-opt model.ir --pass=cse,dce -o out.ir",
    "ampc-opt model.ir --pass=amp --dtype=bf16 --dump-after=all", NULL};

static const option_program program = {
    .name = "ampc-opt",
    .bit = FOR_OPT,
    .usage = "ampc-opt FILE.ir [-o FILE.ir] [OPTION]..",
    .purpose =
        "Runs named passes over the text of a module ('-': standard input) and prints the result.",
    .examples = examples,
    .operands_min = 1,
    .operands_max = 1,
};

static void print_text(void *user, const char *text)
{
    (void)user;
    fputs(text, stderr);
}

static ampc_status write_module(tool *t)
{
    const char *path = t->o.output;
    if (path && strcmp(path, "-") != 0) {
        const char *text = ir_print_sealed(t->module, t->arena);
        return rt_atomic_save(path, text, strlen(text), t->diag);
    }
    if (fputs(ir_print(t->module, t->arena), stdout) >= 0 && fflush(stdout) == 0) return AMPC_OK;
    return diag_error(t->diag, AMPC_IO, DIAG_NOWHERE, "cannot write to standard output");
}

static ampc_status process(tool *t)
{
    pass_options *o = &t->o.pass;
    TRY(ir_parse_file(t->o.operands.items[0], t->diag, &t->module));
    if (o->verify_each) TRY(ir_verify(t->module, t->diag));
    for (int i = 0; i < t->o.passes.count; i++)
        TRY(pass_run(t->module, t->o.passes.items[i], o, t->diag));
    return write_module(t);
}

static ampc_status run(tool *t, int argc, char **argv)
{
    bool done = false;
    t->o.pass.verify_each = true;
    TRY(tool_parse(t, &program, argc - 1, argv + 1, &done));
    t->o.pass.text_out = print_text;
    if (done) return AMPC_OK;
    if (!t->o.list_passes) return process(t);
    for (const pass_info *p = pass_table; p->name; p++) printf("%-12s %s\n", p->name, p->text);
    return AMPC_OK;
}

int program_ampc_opt(int argc, char **argv) { return tool_main(argc, argv, run); }
