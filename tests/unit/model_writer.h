/* model_writer.h - writes small ONNX models in a few lines, including ones that no exporter writes.
 *
 *     model m = model_new(17);
 *     model_input(&m, "x", ONNX_float32, "N,3");
 *     node n = node_new("Softmax", "x", "y");
 *     node_int(&n, "axis", -1);
 *     model_add(&m, &n);
 *     model_output(&m, "y", 0, NULL);
 *     wire file = model_finish(&m);                        ... wire_free(&file)
 *
 * Names and dimensions in lists are separated by commas; empty names are preserved. */
#ifndef AMPC_TESTS_MODEL_WRITER_H
#define AMPC_TESTS_MODEL_WRITER_H

#include "tests/unit/wire_writer.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct model {
    wire graph, functions; /* functions: complete fields of the file, of domain "own" */
    int opset, ir_version;
} model;

typedef wire node;

static inline model model_new(int opset)
{
    model m = {.opset = opset, .ir_version = 8};
    wire_text(&m.graph, 2, "g");
    return m;
}

/* Calls `item` for each part of a list ("" has none). */
static inline void model_split(const char *list, wire *w, void (*item)(wire *w, const char *part))
{
    while (list && *list) {
        char part[128];
        size_t n = strcspn(list, ",");
        snprintf(part, sizeof part, "%.*s", (int)n, list);
        item(w, part);
        list += n;
        if (*list == ',' && !*++list) item(w, "");
    }
}

static inline void model_dim(wire *w, const char *part)
{
    wire d = {0};
    if (isdigit((unsigned char)*part) || *part == '-') wire_int(&d, 1, atoll(part));
    else if (strcmp(part, "?") != 0) wire_text(&d, 2, part + (*part == '?'));
    wire_message(w, 1, &d);
}

/* Adds a ValueInfoProto. `dims` NULL: no shape; "?" in it: an unknown dimension, "??" one named "?". `type` 0: no element type. */
static inline void model_value(model *m, uint32_t field, const char *name, int type, const char *dims)
{
    wire shape = {0}, tensor = {0}, proto = {0}, info = {0};
    model_split(dims, &shape, model_dim);
    if (type) wire_int(&tensor, 1, type);
    if (dims) wire_message(&tensor, 2, &shape);
    wire_message(&proto, 1, &tensor);
    wire_text(&info, 1, name);
    wire_message(&info, 2, &proto);
    wire_message(&m->graph, field, &info);
}

static inline void model_input(model *m, const char *name, int type, const char *dims)
{
    model_value(m, 11, name, type, dims);
}

static inline void model_output(model *m, const char *name, int type, const char *dims)
{
    model_value(m, 12, name, type, dims);
}

static inline void tensor_dim(wire *w, const char *part) { wire_int(w, 1, atoll(part)); }

/* Returns a tensor with raw data. */
static inline wire tensor_new(const char *name, int type, const char *dims, const void *data, size_t size)
{
    wire t = {0};
    model_split(dims, &t, tensor_dim);
    wire_int(&t, 2, type);
    wire_text(&t, 8, name);
    wire_bytes(&t, 9, data, size);
    return t;
}

#define TENSOR_FLOATS(name, dims, ...) \
    tensor_new(name, 1, dims, (const float[]){__VA_ARGS__}, sizeof(const float[]){__VA_ARGS__})
#define TENSOR_INTS(name, dims, ...) \
    tensor_new(name, 7, dims, (const int64_t[]){__VA_ARGS__}, sizeof(const int64_t[]){__VA_ARGS__})

static inline void model_tensor(model *m, wire t) { wire_message(&m->graph, 5, &t); }

/* ---- nodes ----------------------------------------------------------------------------------- */

static inline void node_in(wire *w, const char *part) { wire_text(w, 1, part); }
static inline void node_out(wire *w, const char *part) { wire_text(w, 2, part); }

static inline node node_new(const char *op, const char *inputs, const char *outputs)
{
    node n = {0};
    model_split(inputs, &n, node_in);
    model_split(outputs, &n, node_out);
    wire_text(&n, 4, op);
    return n;
}

static inline void node_attr(node *n, const char *name, int type, wire *value)
{
    wire a = {0};
    wire_text(&a, 1, name);
    if (value->size) wire_raw(&a, value->bytes, value->size);
    if (type) wire_int(&a, 20, type);
    wire_free(value);
    wire_message(n, 5, &a);
}

static inline void node_int(node *n, const char *name, int64_t v)
{
    wire w = {0};
    wire_int(&w, 3, v);
    node_attr(n, name, 2, &w);
}

static inline void node_float(node *n, const char *name, float v)
{
    wire w = {0};
    wire_float(&w, 2, v);
    node_attr(n, name, 1, &w);
}

static inline void node_text(node *n, const char *name, const char *v)
{
    wire w = {0};
    wire_text(&w, 4, v);
    node_attr(n, name, 3, &w);
}

static inline void ints_item(wire *w, const char *part) { wire_int(w, 8, atoll(part)); }

static inline void node_ints(node *n, const char *name, const char *list)
{
    wire w = {0};
    model_split(list, &w, ints_item);
    node_attr(n, name, 7, &w);
}

static inline void floats_item(wire *w, const char *part) { wire_float(w, 7, strtof(part, NULL)); }

static inline void node_floats(node *n, const char *name, const char *list)
{
    wire w = {0};
    model_split(list, &w, floats_item);
    node_attr(n, name, 6, &w);
}

/* Adds attributes, "axis=1 pads=[0,1] alpha=0.5 mode=edge": integers, floats if there is a point, lists of
 * these, or text. */
static inline void node_attributes(node *n, const char *text)
{
    for (size_t end; *(text += strspn(text, " ")); text += end) {
        char name[64], value[256];
        const size_t length = strcspn(text, "=");
        end = strcspn(text, " ");
        snprintf(name, sizeof name, "%.*s", (int)length, text);
        snprintf(value, sizeof value, "%.*s", (int)(end - length - 1), text + length + 1);
        const bool list = *value == '[', real = value[strcspn(value, ".")] || strcmp(value, "inf") == 0;
        if (list) value[strlen(value) - 1] = 0;
        if (list && real) node_floats(n, name, value + 1);
        else if (list) node_ints(n, name, value + 1);
        else if (!isdigit((unsigned char)*value) && *value != '-' && strcmp(value, "inf") != 0)
            node_text(n, name, value);
        else if (real) node_float(n, name, strtof(value, NULL));
        else node_int(n, name, atoll(value));
    }
}

static inline void node_tensor(node *n, const char *name, wire t)
{
    wire w = {0};
    wire_message(&w, 5, &t);
    node_attr(n, name, 4, &w);
}

/* Adds the graph of another model as an attribute and frees that model. */
static inline void node_graph(node *n, const char *name, model *subgraph)
{
    wire w = {0};
    wire_message(&w, 6, &subgraph->graph);
    node_attr(n, name, 5, &w);
}

static inline void model_add(model *m, node *n) { wire_message(&m->graph, 1, n); }

/* Adds a node without attributes. */
static inline void model_node(model *m, const char *op, const char *inputs, const char *outputs)
{
    node n = node_new(op, inputs, outputs);
    model_add(m, &n);
}

/* A tensor as the result of a Constant node. */
static inline void model_constant(model *m, const char *name, wire t)
{
    node k = node_new("Constant", "", name);
    node_tensor(&k, "value", t);
    model_add(m, &k);
}

static inline void model_opset(wire *file, const char *domain, int version)
{
    wire set = {0};
    if (domain) wire_text(&set, 1, domain);
    wire_int(&set, 2, version);
    wire_message(file, 8, &set);
}

/* Returns the bytes of the file, which the caller frees with wire_free, and frees the model. */
static inline wire model_finish(model *m)
{
    wire file = {0};
    wire_int(&file, 1, m->ir_version);
    wire_message(&file, 7, &m->graph);
    model_opset(&file, NULL, m->opset);
    if (m->functions.size) {
        model_opset(&file, "own", 1);
        wire_raw(&file, m->functions.bytes, m->functions.size);
        wire_free(&m->functions);
    }
    return file;
}

#endif
