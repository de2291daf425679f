/* compile.h - one-call compilation, for tests that pass options and need a module. Header only. */
#ifndef TESTS_COMPILE_H
#define TESTS_COMPILE_H

#include "passes/passes.h"

#include <setjmp.h>

/* Runs the pass of that name, or all passes if `pass` is NULL. */
static inline ampc_status test_pass(ir_module *m, const char *pass, const compile_options *o, diag *d)
{
    jmp_buf guard;
    compile *c;
    arena *a = arena_new(0);
    if (!a || setjmp(guard)) {
        arena_free(a);
        return diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory");
    }
    arena_set_guard(a, &guard);
    ampc_status status = compile_load(o, a, d, &c);
    if (status == AMPC_OK) status = pass ? pass_run(m, pass, c) : compile_module(m, c);
    arena_free(a);
    return status;
}

static inline ampc_status test_compile(ir_module *m, const compile_options *o, diag *d)
{
    return test_pass(m, NULL, o, d);
}

#endif
