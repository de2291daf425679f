/* ampc_opt.c - named passes over the text of a module: the test and debug tool of the compiler.
 *
 * FILE is parsed and verified, each pass runs through the compiler's runner, which verifies the module after it, and
 * the result is printed in canonical form. Nothing is written unless everything succeeded. */
#include "runtime/files/atomic_file.h"
#include "tools/run.h"

#include <stdio.h>
#include <string.h>

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
    return tool_print_module(t);
}

ampc_status run_ampc_opt(tool *t)
{
    pass_options *o = &t->o.pass;
    o->verify_each = !t->o.no_verify;
    o->dump_after = t->o.dump_after;
    o->text_out = print_text;
    TRY(ir_parse_file(t->o.operands.items[0], t->diag, &t->module));
    if (o->verify_each) TRY(ir_verify(t->module, t->diag));
    for (int i = 0; i < t->o.passes.count; i++)
        TRY(pass_run(t->module, t->o.passes.items[i], o, t->diag));
    return write_module(t);
}
