/* ir_graphs.h - shared by the tests of inference and folding: a module per test, from text.
 *
 * Header only, because every unit test is a single program. */
#ifndef TESTS_IR_GRAPHS_H
#define TESTS_IR_GRAPHS_H

#include "ir/graph/ir.h"
#include "tests/test.h"

static ir_module *module;
static diag *messages;

static inline int open_module(void **state)
{
    (void)state;
    module = ir_module_new();
    messages = diag_new(NULL, NULL);
    return 0;
}

static inline int close_module(void **state)
{
    (void)state;
    ir_module_free(module);
    diag_free(messages);
    return 0;
}

#define TEST_GRAPH(name) TEST_WITH(open_module, close_module, void *unused, name)

/* Parses a module without its first line, in place of the one before. Returns its first graph. */
static inline ir_graph *read_graph(const char *text)
{
    char all[2000] = "ampc-ir 3\n";
    assert_true(strlen(text) < sizeof all - 20);
    ir_module_free(module);
    module = NULL;
    strcat(all, text);
    if (ir_parse(all, strlen(all), "test.ir", messages, &module) != AMPC_OK) fail_msg("%s", diag_first_error(messages));
    return module->graphs.items[0];
}

#endif
