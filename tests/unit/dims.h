/* dims.h - shared by the tests of dimensions: a symbol table per test, conversion between expressions and text.
 *
 * Header only, because every unit test is a single program. */
#ifndef TESTS_DIMS_H
#define TESTS_DIMS_H

#include "ir/ops/dim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static arena *memory;
static ir_dim_table *table;

static inline int open_table(void **state)
{
    (void)state;
    memory = arena_new(0);
    table = ir_dim_table_new(memory);
    return 0;
}

static inline int close_table(void **state)
{
    (void)state;
    arena_free(memory);
    return 0;
}

/* Parses an expression. "?" is the unknown dimension. */
static inline ir_dim dim(const char *text)
{
    const char *end;
    if (!strcmp(text, "?")) return IR_DIM_NONE;
    ir_dim d = ir_dim_parse(table, text, &end);
    assert_true(d != IR_DIM_NONE);
    assert_string_equal(end, "");
    return d;
}

static inline const char *print(ir_dim d) { return ir_dim_print(table, d, memory); }

#endif
