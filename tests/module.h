/* module.h - modules from text, for tests. */
#ifndef TESTS_MODULE_H
#define TESTS_MODULE_H

#include "ir/graph/ir.h"
#include "tests/test.h"

/* Returns the module of the text, which omits the first line; an error fails the test. */
static inline ir_module *test_module(diag *d, const char *text)
{
    static const char head[] = "ampc-ir 3\n";
    char *whole = malloc(sizeof head + strlen(text));
    ir_module *m = NULL;
    strcat(strcpy(whole, head), text);
    if (ir_parse(whole, strlen(whole), "module.ir", d, &m) != AMPC_OK) fail_msg("%s in\n%s", diag_first_error(d), text);
    free(whole);
    return m;
}

#endif
