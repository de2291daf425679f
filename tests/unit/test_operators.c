/* test_operators.c - every ONNX operator has the colour of frontend/onnx.def in the default profile, or that of the table
 * below. */
#include "frontend/onnx.h"
#include "passes/amp/list.h"
#include "tests/unit/scratch.h"

#include <string.h>

static const struct {
    const char *op;
    ir_colour colour;
} operators[] = {
#define OPERATOR(op, since, bf16, types, colour, operands) {#op, IR_##colour},
#define OPAQUE(op, since, bf16, types, colour) {#op, IR_##colour},
#include "frontend/onnx.def"
};
enum { OPERATORS = sizeof operators / sizeof *operators };

/* Operators, colours for fp16 and bf16, attributes (NULL: none): those whose colour depends on these, or that are not in
 * the table. */
static const struct row {
    const char *operators;
    ir_colour fp16, bf16;
    const char *fields;
} rows[] = {
    {"Mod", IR_GRAY, IR_BLACK, NULL},             /* integers above 256 */
    {"Sqrt Reciprocal", IR_BLACK, IR_GRAY, NULL}, /* an epsilon below 6.1e-5 */
    {"ScatterElements ScatterND", IR_CLEAR, IR_CLEAR, "i64 \"axis\"=0, \"reduction\"=\"max\""},
    {"ScatterElements ScatterND", IR_BLACK, IR_BLACK, "i64 \"axis\"=0, \"reduction\"=\"add\""},
    {"ScatterElements ScatterND", IR_BLACK, IR_BLACK, "\"reduction\"=\"mul\""},
    {"Adam Adagrad Momentum", IR_BLACK, IR_BLACK, NULL},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* Returns the colour of operator `op` in a module that contains only this operator. */
static ir_colour colour_of(scratch *t, const char *op, const char *fields, ir_dtype low)
{
    char text[512];
    ir_module *m;
    amp_list *l;
    compile_options o = compile_options_default();
    o.low = low;
    int n = snprintf(text, sizeof text,
                     "ampc-ir 3\ngraph @infer(@x : f32[4]) as infer {\n  %%y = opaque @x [t:t] {"
                     "fields={%s}} : f32[4] !%s \"n\"\n  output \"y\" = %%y\n}\n",
                     fields ? fields : "", op);
    if (ir_parse(text, (size_t)n, "m.ir", t->d, &m) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    arena *a = arena_new(0);
    assert_int_equal(amp_list_load(&o, a, t->d, &l), AMPC_OK);
    const list_entry *line = amp_list_find(l, op, m->graphs.items[0]->first, low);
    if (!line) fail_msg("%s has no colour", op);
    ir_colour colour = line->colour;
    arena_free(a);
    ir_module_free(m);
    return colour;
}

static void check_colours(scratch *t, const char *op, const char *fields, ir_colour fp16, ir_colour bf16)
{
    if (colour_of(t, op, fields, IR_f16) != fp16) fail_msg("%s in fp16", op);
    if (colour_of(t, op, fields, IR_bf16) != bf16) fail_msg("%s in bf16", op);
}

TEST_SCRATCH(test_colours_with_conditions)
{
    for (int i = 0; i < ROWS; i++) {
        char names[256];
        snprintf(names, sizeof names, "%s", rows[i].operators);
        for (char *at = names, *op; (op = strtok_r(at, " ", &at));)
            check_colours(t, op, rows[i].fields, rows[i].fp16, rows[i].bf16);
    }
}

static bool has_row(const char *op)
{
    for (int i = 0; i < ROWS; i++)
        if (!rows[i].fields && strstr(rows[i].operators, op)) return true;
    return false;
}

TEST_SCRATCH(test_colours_of_the_table)
{
    for (int i = 0; i < OPERATORS; i++)
        if (!has_row(operators[i].op))
            check_colours(t, operators[i].op, NULL, operators[i].colour, operators[i].colour);
}

TEST_SCRATCH(test_operators_are_found)
{
    for (const onnx_operator *o = onnx_operators; o->name; o++) {
        assert_ptr_equal(onnx_operator_find(o->name), o);
        assert_non_null(strchr(o->types, '>'));
        assert_true(!o->bf16 || o->bf16 >= o->since);
    }
    assert_null(onnx_operator_find("Convolution"));
}
