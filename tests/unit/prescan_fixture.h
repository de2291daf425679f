/* prescan_fixture.h - messages for the tests of frontend/read, and what they share. */
#ifndef TESTS_PRESCAN_FIXTURE_H
#define TESTS_PRESCAN_FIXTURE_H

#include "frontend/read/fields.h"
#include "frontend/read/prescan.h"
#include "frontend/read/tensor.h"

#include "tests/test.h"
#include "tests/unit/wire_writer.h"

enum { MODEL_METADATA = 14, GRAPH_DOC_STRING = 10 };

typedef struct fixture {
    arena *a;
    diag *d;
    jmp_buf guard;
} fixture;

static inline int set_up(void **state)
{
    fixture *x = calloc(1, sizeof *x);
    if (!x) return -1;
    x->a = arena_new(0);
    x->d = diag_new(NULL, NULL);
    *state = x;
    return x->a && x->d ? 0 : -1;
}

static inline int tear_down(void **state)
{
    fixture *x = *state;
    arena_free(x->a);
    diag_free(x->d);
    free(x);
    return 0;
}

/* model { graph { inner } } */
static inline wire model_of(wire *graph)
{
    wire model = {0};
    wire_int(&model, MODEL_IR_VERSION, 8);
    wire_message(&model, MODEL_GRAPH, graph);
    return model;
}

/* Returns a small model with one of everything. */
static inline wire small_model(void)
{
    wire attribute = {0}, node = {0}, weight = {0}, graph = {0}, opset = {0};
    static const float values[100] = {1, 2, 3};
    wire_text(&attribute, ATTRIBUTE_NAME, "axis");
    wire_int(&attribute, ATTRIBUTE_I, -1);
    wire_int(&attribute, ATTRIBUTE_INTS, 3);
    wire_int(&attribute, ATTRIBUTE_INTS, INT64_MIN);
    wire_int(&attribute, ATTRIBUTE_TYPE, 2);
    wire_text(&node, NODE_INPUT, "x");
    wire_text(&node, NODE_INPUT, "");
    wire_text(&node, NODE_OUTPUT, "y\xc3\xa9");
    wire_text(&node, NODE_OP_TYPE, "Softmax");
    wire_message(&node, NODE_ATTRIBUTE, &attribute);
    wire_int(&weight, TENSOR_DIMS, 100);
    wire_int(&weight, TENSOR_DATA_TYPE, 1);
    wire_bytes(&weight, TENSOR_RAW_DATA, values, sizeof values);
    wire_text(&weight, TENSOR_NAME, "w");
    wire_message(&graph, GRAPH_NODE, &node);
    wire_message(&graph, GRAPH_INITIALIZER, &weight);
    wire_text(&graph, GRAPH_DOC_STRING, "two\nlines");
    wire_int(&opset, 2, 17);
    wire model = model_of(&graph);
    wire_message(&model, MODEL_OPSET_IMPORT, &opset);
    return model;
}

static inline wire tensor_head(int type, int64_t n)
{
    wire w = {0};
    if (n >= 0) wire_int(&w, TENSOR_DIMS, n);
    wire_int(&w, TENSOR_DATA_TYPE, type);
    wire_text(&w, TENSOR_NAME, "t");
    return w;
}

#define TEST_PRESCAN(name) TEST_WITH(set_up, tear_down, fixture *x, name)

#endif
