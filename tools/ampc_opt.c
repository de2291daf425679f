/* ampc_opt.c - runs named passes on the text of a module: the test and debug tool of the compiler.
 *
 * FILE is parsed and verified, the passes run with verification of the module after each, and the result is printed
 * in canonical form. Nothing is written unless everything succeeds. */
#include "runtime/files/atomic_file.h"
#include "tools/run.h"

#include <stdio.h>
#include <string.h>

static ampc_status write_module(tool *t)
{
    const char *path = t->o.output;
    if (path && strcmp(path, "-") != 0) {
        const char *text = ir_print_sealed(t->module, t->arena);
        return rt_atomic_save(path, text, strlen(text), t->diag);
    }
    return tool_print_module(t);
}

ampc_status run_ampc_opt(tool *t)
{
    t->o.pass.pipeline.verify_each = !t->o.no_verify;
    TRY(tool_load_operators(t));
    TRY(tool_choose_dtype(t, t->o.operands.items[0]));
    t->o.pass.attention = t->o.pass.pad = true;
    TRY(ir_parse_file(t->o.operands.items[0], t->diag, &t->module));
    if (t->o.pass.pipeline.verify_each) TRY(ir_verify(t->module, t->diag));
    TRY(compile_load(&t->o.pass, t->arena, t->diag, &t->compile));
    t->compile->report.text = stderr;
    for (int i = 0; i < t->o.passes.count; i++) TRY(pass_run(t->module, t->o.passes.items[i], t->compile));
    return write_module(t);
}
