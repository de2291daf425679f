/* ir_rows.h - shared by the tests with tables of IR rows: a module per test, types and attributes parsed from text.
 *
 * Header only, because every unit test is a single program. */
#ifndef TESTS_IR_ROWS_H
#define TESTS_IR_ROWS_H

#include "ir/graph/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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

/* Returns the next blank-separated word and advances `text`. NULL at the end. */
static inline char *next_word(const char **text)
{
    *text += strspn(*text, " ");
    size_t n = strcspn(*text, " ");
    if (!n) return NULL;
    char *word = arena_strndup(module->arena, *text, n);
    *text += n;
    return word;
}

/* Parses a list such as "[1,N]". */
static inline int read_list(const char *text, int64_t *items)
{
    int count = 0;
    assert_true(*text++ == '[');
    while (*text != ']') {
        assert_true(count < 40);
        if (*text == '?') {
            items[count++] = IR_DIM_NONE;
            text++;
        } else {
            items[count] = ir_dim_parse(module->dims, text, &text);
            assert_true(items[count++] != IR_DIM_NONE);
        }
        if (*text == ',') text++;
    }
    return count;
}

static inline ir_type read_type(const char *text)
{
    size_t n = strcspn(text, "[");
    int64_t dims[40];
    int rank = read_list(text + n, dims);
    return ir_type_make(ir_dtype_parse(arena_strndup(module->arena, text, n)), rank, dims);
}

static inline void read_attribute(ir_node *n, const char *word)
{
    const ir_op_info *info = ir_op_get(n->op);
    size_t length = strcspn(word, "=");
    const char *value = word + length + 1;
    int64_t items[40];
    int i = 0;
    while (i < info->n_attr && (strncmp(info->attr[i].name, word, length) || info->attr[i].name[length])) i++;
    assert_true(i < info->n_attr);
    switch (info->attr[i].kind) {
    case IR_SLOT_INT:
    case IR_SLOT_BOOL: ir_set_int(n, i, strtoll(value, NULL, 10)); break;
    case IR_SLOT_FLOAT:
    case IR_SLOT_DOUBLE: ir_set_float(n, i, strtod(value, NULL)); break;
    case IR_SLOT_DTYPE: ir_set_dtype(n, i, ir_dtype_parse(value)); break;
    case IR_SLOT_STR: ir_set_str(n, i, value); break;
    case IR_SLOT_ONE_OF: ir_set_int(n, i, ir_words_find(info->attr[i].words, value)); break;
    default: ir_set_list(n, i, items, read_list(value, items));
    }
}

#endif
