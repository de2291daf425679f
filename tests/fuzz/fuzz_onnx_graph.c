/* fuzz_onnx_graph.c - a random model as ONNX bytes, some of them mutated: imported, compiled, emitted,
 * planned, run. The fuzzer's bytes make all decisions (choices.h).
 *
 * The type and shape of each tensor are tracked to make most operands valid. Some shapes are only guesses;
 * the importer decides whether they are right. */
#include "frontend/onnx.h"
#include "tests/fuzz/pipeline.h"
#include "tests/unit/model_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FLOAT = 1, INT32 = 6, INT64 = 7, BOOL = 9, HALF = 10, DOUBLE = 11, BFLOAT = 16 }; /* ONNX type codes */
enum { MAX_POOL = 48, MAX_NODES = 16, MAX_RANK = 6, SYMBOL_N = -1, SYMBOL_M = -2, UNKNOWN = -3 };

typedef struct tensor {
    char name[12];
    int type, rank;
    int64_t dims[MAX_RANK]; /* negative: a symbol */
} tensor;

typedef struct drawing {
    choices *c;
    model m;
    tensor pool[MAX_POOL];
    int n_pool, made;
} drawing;

/* ---- tensors --------------------------------------------------------------------------------------------------- */

static tensor *keep(drawing *w, const tensor *t)
{
    tensor *to = &w->pool[w->n_pool < MAX_POOL ? w->n_pool++ : choose(w->c, MAX_POOL)];
    *to = *t;
    return to;
}

static tensor fresh(drawing *w, int type, int rank, const int64_t *dims)
{
    tensor t = {.type = type, .rank = rank};
    snprintf(t.name, sizeof t.name, "t%d", w->made++);
    for (int i = 0; i < rank; i++) t.dims[i] = dims[i];
    return t;
}

/* "2,N,3" */
static const char *dims_text(const tensor *t, char text[128])
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < t->rank; i++) {
        const char *comma = i ? "," : "";
        if (t->dims[i] >= 0) used += (size_t)snprintf(text + used, 128 - used, "%s%d", comma, (int)t->dims[i]);
        else used += (size_t)snprintf(text + used, 128 - used, "%s%s", comma, t->dims[i] == SYMBOL_N ? "N" : "M");
    }
    return text;
}

static bool is_fixed(const tensor *t)
{
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] < 0) return false;
    return true;
}

static void add_initializer(drawing *w, const tensor *t)
{
    static const size_t sizes[] = {
        [FLOAT] = 4, [INT32] = 4, [INT64] = 8, [BOOL] = 1, [HALF] = 2, [DOUBLE] = 8, [BFLOAT] = 2};
    char text[128], bytes[4096] = {0};
    const size_t size = sizes[t->type];
    size_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= (size_t)t->dims[i];
    if (n * size > sizeof bytes) n = sizeof bytes / size; /* too few bytes, which the importer must reject */
    for (size_t i = 0; i < n; i++) {
        const int small = (int)(choices_word(w->c) % 5) - 1;
        const int64_t whole = t->type == BOOL ? small & 1 : small;
        const float real = (float)small * 0.5f;
        if (t->type == FLOAT) memcpy(bytes + i * size, &real, size);
        else if (t->type == DOUBLE) memcpy(bytes + i * size, &(double){small * 0.5}, size);
        else if (t->type == HALF || t->type == BFLOAT)
            memcpy(bytes + i * size, &(uint16_t){(uint16_t)(0x3c00 + small * 64)}, size);
        else memcpy(bytes + i * size, &whole, size);
    }
    model_tensor(&w->m, tensor_new(t->name, t->type, dims_text(t, text), bytes, n * size));
}

/* Creates a tensor of that type and shape without operands. */
static tensor source(drawing *w, int type, int rank, const int64_t *dims)
{
    char text[128];
    tensor t = fresh(w, type, rank, dims);
    for (int i = 0; i < rank; i++)
        if (t.dims[i] == UNKNOWN) t.dims[i] = 2;
    if (is_fixed(&t) && choose(w->c, 4)) add_initializer(w, &t);
    else model_input(&w->m, t.name, type, dims_text(&t, text));
    return *keep(w, &t);
}

static int float_type(choices *c)
{
    static const int types[] = {FLOAT, FLOAT, FLOAT, FLOAT, FLOAT, HALF, BFLOAT, DOUBLE};
    return CHOOSE(c, types);
}

static bool is_float(int type) { return type == FLOAT || type == HALF || type == BFLOAT || type == DOUBLE; }

static int64_t draw_size(drawing *w)
{
    static const int8_t sizes[] = {1, 2, 3, 4, 2, 3, 5, 1, 0, 6};
    return CHOOSE(w->c, sizes);
}

static int64_t draw_dim(drawing *w) { return rarely(w->c, 4) ? (choose(w->c, 3) ? SYMBOL_N : SYMBOL_M) : draw_size(w); }

static tensor new_float(drawing *w, int rank)
{
    int64_t dims[MAX_RANK];
    for (int i = 0; i < rank; i++) dims[i] = draw_dim(w);
    return source(w, float_type(w->c), rank, dims);
}

/* Returns a float tensor of at least that rank, usually an existing one. */
static tensor pick_float(drawing *w, int rank)
{
    static const int8_t ranks[] = {2, 4, 3, 2, 4, 1, 5, 0};
    for (int attempt = 0; attempt < 5 && w->n_pool; attempt++) {
        const tensor *t =
            &w->pool[choose(w->c, 2) ? w->n_pool - 1 - choose(w->c, w->n_pool) / 3 : choose(w->c, w->n_pool)];
        if (is_float(t->type) && t->rank >= rank) return *t;
    }
    const int drawn = CHOOSE(w->c, ranks);
    return new_float(w, drawn > rank ? drawn : rank);
}

/* Returns a second operand that broadcasts with x. */
static tensor pick_like(drawing *w, const tensor *x)
{
    int64_t dims[MAX_RANK];
    for (int attempt = 0; attempt < 3; attempt++) {
        const tensor *t = &w->pool[choose(w->c, w->n_pool)];
        if (t->type == x->type && t->rank == x->rank && !memcmp(t->dims, x->dims, sizeof *x->dims * (size_t)x->rank))
            return *t;
    }
    const int drop = rarely(w->c, 3) ? choose(w->c, x->rank + 1) : 0;
    for (int i = drop; i < x->rank; i++) dims[i - drop] = rarely(w->c, 4) ? 1 : x->dims[i];
    return source(w, x->type, x->rank - drop, dims);
}

/* Writes numbers as an initializer or a Constant node; the name is "" for none. */
static const char *numbers(drawing *w, const int64_t *items, int n, bool scalar, char name[12])
{
    const int64_t count = n;
    char text[16];
    tensor t = fresh(w, INT64, scalar ? 0 : 1, &count);
    wire value = tensor_new(t.name, INT64, scalar ? "" : (snprintf(text, sizeof text, "%d", n), text), items,
                            (size_t)n * 8);
    memcpy(name, t.name, sizeof t.name);
    if (choose(w->c, 2)) {
        model_tensor(&w->m, value);
    } else {
        node k = node_new("Constant", "", t.name);
        node_tensor(&k, "value", value);
        model_add(&w->m, &k);
    }
    return name;
}

static const char *list_text(const int64_t *items, int n, char text[128])
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < n; i++) used += (size_t)snprintf(text + used, 128 - used, "%s%d", i ? "," : "", (int)items[i]);
    return text;
}

/* Adds a list that is an attribute before opset `since` and an operand from then on, appended to `operands`. */
static void add_list(drawing *w, int since, const char *attribute, const int64_t *items, int n, char operands[128],
                     wire *attributes)
{
    char text[128], name[12];
    if (w->m.opset < since) {
        node k = {0};
        node_ints(&k, attribute, list_text(items, n, text));
        wire_raw(attributes, k.bytes, k.size);
        wire_free(&k);
    } else {
        snprintf(operands + strlen(operands), 128 - strlen(operands), ",%s", numbers(w, items, n, false, name));
    }
}

/* ---- nodes ----------------------------------------------------------------------------------------------------- */

/* Adds a node with one result to the pool. Consumes `attributes`. */
static tensor emit(drawing *w, const char *op, const char *operands, wire *attributes, int type, int rank,
                   const int64_t *dims)
{
    tensor y = fresh(w, type, rank, dims);
    node n = node_new(op, operands, y.name);
    if (attributes) wire_raw(&n, attributes->bytes, attributes->size);
    if (attributes) wire_free(attributes);
    model_add(&w->m, &n);
    return *keep(w, &y);
}

static int draw_axis(drawing *w, const tensor *x) { return x->rank ? choose(w->c, x->rank) : 0; }

/* Returns the same axis, sometimes counted from the end. */
static int64_t spelled(drawing *w, const tensor *x, int axis) { return choose(w->c, 2) ? axis : axis - x->rank; }

static void draw_unary(drawing *w)
{
    static const char *const ops[] = {"Relu", "Abs",        "Ceil",     "Cos",     "Erf",  "Exp",   "Floor",    "Log",
                                      "Neg",  "Reciprocal", "Round",    "Sigmoid", "Sign", "Sin",   "Softplus", "Sqrt",
                                      "Tanh", "Gelu",       "Identity", "Dropout", "Clip", "Trilu", "Selu"};
    const tensor x = pick_float(w, 0);
    emit(w, CHOOSE(w->c, ops), x.name, NULL, x.type, x.rank, x.dims);
}

static void draw_binary(drawing *w)
{
    static const char *const ops[] = {"Add", "Sub", "Mul",   "Div",  "Pow",         "Min",     "Max",
                                      "Sum", "Mod", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"};
    char operands[32];
    const int op = choose(w->c, 14);
    const tensor x = pick_float(w, 0), y = pick_like(w, &x);
    const bool swapped = choose(w->c, 2);
    snprintf(operands, sizeof operands, "%s,%s", swapped ? y.name : x.name, swapped ? x.name : y.name);
    const tensor z = emit(w, ops[op], operands, NULL, op < 9 ? x.type : BOOL, x.rank, x.dims);
    if (z.type != BOOL) return;
    char chosen[48];
    snprintf(chosen, sizeof chosen, "%s,%s,%s", z.name, x.name, y.name);
    emit(w, "Where", chosen, NULL, x.type, x.rank, x.dims);
}

static void draw_cast(drawing *w)
{
    static const int types[] = {FLOAT, HALF, BFLOAT, INT64, BOOL, DOUBLE};
    const tensor x = pick_float(w, 0);
    const int to = CHOOSE(w->c, types);
    node a = {0};
    node_int(&a, "to", to);
    emit(w, "Cast", x.name, &a, to, x.rank, x.dims);
}

static void draw_matmul(drawing *w)
{
    char operands[48];
    const tensor x = pick_float(w, 1);
    const int64_t m = draw_size(w), k = x.dims[x.rank - 1];
    const bool is_gemm = x.rank == 2 && choose(w->c, 2), is_transposed = is_gemm && choose(w->c, 2);
    int64_t dims[MAX_RANK];
    node a = {0};
    const tensor y = source(w, x.type, 2, is_transposed ? (int64_t[]){m, k} : (int64_t[]){k, m});
    memcpy(dims, x.dims, sizeof dims);
    dims[x.rank - 1] = m;
    snprintf(operands, sizeof operands, "%s,%s", x.name, y.name);
    if (is_transposed) node_int(&a, "transB", 1);
    if (is_gemm && choose(w->c, 2)) {
        const tensor b = source(w, x.type, 1, &m);
        snprintf(operands, sizeof operands, "%s,%s,%s", x.name, y.name, b.name);
        if (rarely(w->c, 3)) node_float(&a, "alpha", 0.5f);
    }
    emit(w, is_gemm ? "Gemm" : "MatMul", operands, &a, x.type, x.rank, dims);
}

/* Returns the result size of a window; UNKNOWN if the input size is a symbol. */
static int64_t window(int64_t size, int64_t kernel, int64_t stride, int64_t pads)
{
    return size < 0 ? UNKNOWN : size + pads < kernel ? 0 : (size + pads - kernel) / stride + 1;
}

static void draw_window(drawing *w)
{
    static const char *const ops[] = {"Conv", "Conv", "MaxPool", "AveragePool"};
    const char *op = CHOOSE(w->c, ops);
    const tensor x = pick_float(w, 3);
    const int axes = x.rank - 2;
    int64_t dims[MAX_RANK], kernel[MAX_RANK], strides[MAX_RANK], pads[2 * MAX_RANK], weights[MAX_RANK];
    char operands[48], text[128];
    node a = {0};
    memcpy(dims, x.dims, sizeof dims);
    for (int i = 0; i < axes; i++) {
        kernel[i] = 1 + choose(w->c, 3);
        strides[i] = 1 + choose(w->c, 2);
        pads[i] = pads[axes + i] = choose(w->c, 2);
        dims[2 + i] = window(x.dims[2 + i], kernel[i], strides[i], 2 * pads[i]);
    }
    snprintf(operands, sizeof operands, "%s", x.name);
    node_ints(&a, "kernel_shape", list_text(kernel, axes, text));
    node_ints(&a, "strides", list_text(strides, axes, text));
    node_ints(&a, "pads", list_text(pads, 2 * axes, text));
    if (*op == 'C') {
        const bool is_depthwise = x.dims[1] > 0 && rarely(w->c, 3);
        weights[0] = is_depthwise ? x.dims[1] : draw_size(w);
        weights[1] = is_depthwise ? 1 : x.dims[1];
        memcpy(weights + 2, kernel, sizeof *kernel * (size_t)axes);
        const tensor k = source(w, x.type, x.rank, weights);
        snprintf(operands, sizeof operands, "%s,%s", x.name, k.name);
        if (is_depthwise) node_int(&a, "group", x.dims[1]);
        dims[1] = weights[0];
    } else if (rarely(w->c, 3)) {
        node_int(&a, "ceil_mode", 1);
    }
    emit(w, op, operands, &a, x.type, x.rank, dims);
}

static void draw_norm(drawing *w)
{
    char operands[96];
    const tensor x = pick_float(w, 2);
    node a = {0};
    if (choose(w->c, 2)) {
        tensor p[4];
        for (int i = 0; i < 4; i++) p[i] = source(w, x.type, 1, &x.dims[1]);
        snprintf(operands, sizeof operands, "%s,%s,%s,%s,%s", x.name, p[0].name, p[1].name, p[2].name, p[3].name);
        emit(w, "BatchNormalization", operands, NULL, x.type, x.rank, x.dims);
    } else if (choose(w->c, 2)) {
        const int axis = draw_axis(w, &x);
        const tensor s = source(w, x.type, x.rank - axis, &x.dims[axis]);
        snprintf(operands, sizeof operands, "%s,%s", x.name, s.name);
        node_int(&a, "axis", spelled(w, &x, axis));
        emit(w, "LayerNormalization", operands, &a, x.type, x.rank, x.dims);
    } else {
        node_int(&a, "axis", spelled(w, &x, draw_axis(w, &x)));
        emit(w, choose(w->c, 2) ? "Softmax" : "LogSoftmax", x.name, &a, x.type, x.rank, x.dims);
    }
}

static void draw_reduce(drawing *w)
{
    static const char *const ops[] = {"ReduceMean", "ReduceSum", "GlobalAveragePool", "Flatten"};
    const int op = choose(w->c, 4);
    const tensor x = pick_float(w, op == 2 ? 3 : 1);
    char operands[128];
    int64_t dims[MAX_RANK] = {0}, axes[MAX_RANK];
    int n = 0;
    node a = {0};
    snprintf(operands, sizeof operands, "%s", x.name);
    for (int i = 0; i < x.rank; i++) {
        dims[i] = x.dims[i];
        if (op == 2 ? i < 2 : op > 2 || choose(w->c, 2)) continue;
        axes[n++] = spelled(w, &x, i);
        dims[i] = 1;
    }
    if (op < 2) add_list(w, op ? 13 : 18, "axes", axes, n, operands, &a);
    if (op == 3) dims[0] = dims[1] = UNKNOWN;
    emit(w, ops[op], operands, &a, x.type, op == 3 ? 2 : x.rank, dims);
}

/* A node that moves the elements of x. */
typedef struct movement {
    tensor x;
    int axis, rank; /* rank: of the result */
    char operands[128];
    int64_t dims[MAX_RANK + 1], list[2 * MAX_RANK];
    node a;
} movement;

/* Each draw_OP completes a movement whose result has the shape of x; false: x does not allow the op. */
static bool draw_transpose(drawing *w, movement *m)
{
    char text[128];
    (void)w;
    for (int i = 0; i < m->x.rank; i++) {
        m->list[i] = (i + m->axis) % m->x.rank; /* rotates the axes */
        m->dims[i] = m->x.dims[m->list[i]];
    }
    node_ints(&m->a, "perm", list_text(m->list, m->x.rank, text));
    return true;
}

/* Merges two axes. */
static bool draw_reshape(drawing *w, movement *m)
{
    const tensor *x = &m->x;
    const int axis = m->axis;
    char text[128];
    for (int i = 0; i < x->rank; i++) m->list[i] = i == axis ? -1 : 0;
    if (axis + 1 < x->rank) {
        memmove(&m->list[axis + 1], &m->list[axis + 2], sizeof *m->list * (size_t)(x->rank - axis - 2));
        for (int i = axis + 1; i < x->rank - 1; i++) m->list[i] = m->dims[i] = x->dims[i + 1];
        m->dims[axis] = x->dims[axis] >= 0 && x->dims[axis + 1] >= 0 ? x->dims[axis] * x->dims[axis + 1] : UNKNOWN;
        m->rank--;
    }
    for (int i = axis + 1; i < x->rank - 1; i++)
        if (m->list[i] < 0) m->list[i] = 2;
    snprintf(m->operands, sizeof m->operands, "%s,%s", x->name, numbers(w, m->list, m->rank, false, text));
    return true;
}

static bool draw_unsqueeze(drawing *w, movement *m)
{
    if (m->x.rank == MAX_RANK) return false;
    memmove(&m->dims[m->axis + 1], &m->dims[m->axis], sizeof *m->dims * (size_t)(m->x.rank - m->axis));
    m->dims[m->axis] = 1;
    m->rank++;
    add_list(w, 13, "axes", (int64_t[]){m->axis}, 1, m->operands, &m->a);
    return true;
}

static bool draw_squeeze(drawing *w, movement *m)
{
    if (m->x.dims[m->axis] != 1) return false;
    memmove(&m->dims[m->axis], &m->dims[m->axis + 1], sizeof *m->dims * (size_t)(m->x.rank - m->axis - 1));
    m->rank--;
    add_list(w, 13, "axes", (int64_t[]){spelled(w, &m->x, m->axis)}, 1, m->operands, &m->a);
    return true;
}

static bool draw_concat(drawing *w, movement *m)
{
    const tensor *x = &m->x, y = pick_like(w, x);
    snprintf(m->operands, sizeof m->operands, "%s,%s,%s", x->name, y.name, x->name);
    node_int(&m->a, "axis", spelled(w, x, m->axis));
    m->dims[m->axis] = x->dims[m->axis] < 0 ? UNKNOWN : 3 * x->dims[m->axis];
    return true;
}

static bool draw_slice(drawing *w, movement *m)
{
    const int64_t size = m->x.dims[m->axis];
    int64_t *list = m->list;
    char text[128];
    if (size < 0) return false;
    list[0] = choose(w->c, (int)size + 1) - choose(w->c, 2);
    list[1] = choose(w->c, (int)size + 2);
    m->dims[m->axis] = list[0] >= 0 && list[1] > list[0] && list[1] <= size ? list[1] - list[0] : UNKNOWN;
    if (w->m.opset < 10) {
        node_ints(&m->a, "axes", list_text((int64_t[]){m->axis}, 1, text));
        node_ints(&m->a, "starts", list_text(&list[0], 1, text));
        node_ints(&m->a, "ends", list_text(&list[1], 1, text));
    } else {
        for (int i = 0; i < 2; i++) add_list(w, 0, "", &list[i], 1, m->operands, &m->a);
        add_list(w, 0, "", (int64_t[]){spelled(w, &m->x, m->axis)}, 1, m->operands, &m->a);
    }
    return true;
}

static bool draw_pad(drawing *w, movement *m)
{
    const tensor *x = &m->x;
    int64_t *list = m->list;
    for (int i = 0; i < 2 * x->rank; i++) list[i] = rarely(w->c, 3) ? choose(w->c, 4) - 1 : 0;
    for (int i = 0; i < x->rank; i++) m->dims[i] = x->dims[i] < 0 ? UNKNOWN : x->dims[i] + list[i] + list[x->rank + i];
    if (rarely(w->c, 3)) node_text(&m->a, "mode", choose(w->c, 2) ? "reflect" : "edge");
    add_list(w, 11, "pads", list, 2 * x->rank, m->operands, &m->a);
    return true;
}

static bool draw_expand(drawing *w, movement *m)
{
    const tensor *x = &m->x;
    char text[128];
    for (int i = 0; i < x->rank; i++)
        m->list[i] = m->dims[i] = x->dims[i] == 1 ? draw_size(w) : x->dims[i] < 0 ? 1 : x->dims[i];
    snprintf(m->operands, sizeof m->operands, "%s,%s", x->name, numbers(w, m->list, x->rank, false, text));
    for (int i = 0; i < x->rank; i++) m->dims[i] = x->dims[i] < 0 ? x->dims[i] : m->dims[i];
    return true;
}

static bool draw_tile(drawing *w, movement *m)
{
    const tensor *x = &m->x;
    char text[128];
    for (int i = 0; i < x->rank; i++) {
        m->list[i] = rarely(w->c, 3) ? choose(w->c, 3) : 1;
        m->dims[i] = x->dims[i] < 0 && m->list[i] != 1 ? UNKNOWN : x->dims[i] * m->list[i];
    }
    snprintf(m->operands, sizeof m->operands, "%s,%s", x->name, numbers(w, m->list, x->rank, false, text));
    return true;
}

static void draw_movement(drawing *w)
{
    static const struct {
        const char *op;
        bool (*draw)(drawing *w, movement *m);
    } ops[] = {{"Transpose", draw_transpose},
               {"Reshape", draw_reshape},
               {"Unsqueeze", draw_unsqueeze},
               {"Squeeze", draw_squeeze},
               {"Concat", draw_concat},
               {"Slice", draw_slice},
               {"Pad", draw_pad},
               {"Expand", draw_expand},
               {"Tile", draw_tile}};
    movement m = {.x = pick_float(w, 1)};
    m.axis = draw_axis(w, &m.x);
    m.rank = m.x.rank;
    memcpy(m.dims, m.x.dims, sizeof m.x.dims);
    snprintf(m.operands, sizeof m.operands, "%s", m.x.name);
    const int i = choose(w->c, sizeof ops / sizeof *ops);
    if (ops[i].draw(w, &m)) emit(w, ops[i].op, m.operands, &m.a, m.x.type, m.rank, m.dims);
}

static void draw_split(drawing *w)
{
    const tensor x = pick_float(w, 1);
    const int axis = draw_axis(w, &x);
    if (x.dims[axis] < 0) return;
    const int64_t first = choose(w->c, (int)x.dims[axis] + 1), parts[] = {first, x.dims[axis] - first};
    char operands[128], names[32];
    tensor y[2] = {fresh(w, x.type, x.rank, x.dims), fresh(w, x.type, x.rank, x.dims)};
    node a = {0};
    snprintf(operands, sizeof operands, "%s", x.name);
    add_list(w, 13, "split", parts, 2, operands, &a);
    snprintf(names, sizeof names, "%s,%s", y[0].name, y[1].name);
    node n = node_new("Split", operands, names);
    if (a.size) wire_raw(&n, a.bytes, a.size);
    wire_free(&a);
    node_int(&n, "axis", axis);
    model_add(&w->m, &n);
    for (int i = 0; i < 2; i++) {
        y[i].dims[axis] = parts[i];
        keep(w, &y[i]);
    }
}

static void draw_gather(drawing *w)
{
    const tensor x = pick_float(w, 1);
    const int axis = draw_axis(w, &x);
    const int64_t count[] = {draw_dim(w)};
    int64_t dims[MAX_RANK];
    char operands[48];
    node a = {0};
    const tensor at = source(w, INT64, 1, count);
    memcpy(dims, x.dims, sizeof dims);
    dims[axis] = at.dims[0];
    snprintf(operands, sizeof operands, "%s,%s", x.name, at.name);
    node_int(&a, "axis", axis);
    emit(w, "Gather", operands, &a, x.type, x.rank, dims);
}

/* Modifies the shape of x and reshapes x with it. */
static void draw_shape(drawing *w)
{
    const tensor x = pick_float(w, 1);
    char operands[48], name[12];
    const int64_t rank = x.rank, whole = -1;
    const tensor s = emit(w, "Shape", x.name, NULL, INT64, 1, &rank);
    switch (choose(w->c, 3)) {
    case 0:
        snprintf(operands, sizeof operands, "%s,%s", x.name, s.name);
        emit(w, choose(w->c, 2) ? "Reshape" : "Expand", operands, NULL, x.type, x.rank, x.dims);
        return;
    case 1: emit(w, "ConstantOfShape", s.name, NULL, FLOAT, x.rank, x.dims); return;
    default:
        snprintf(operands, sizeof operands, "%s,%s", x.name, numbers(w, &whole, 1, false, name));
        emit(w, "Reshape", operands, NULL, x.type, 1, (int64_t[]){UNKNOWN});
    }
}

static void draw_loss(drawing *w)
{
    static const char *const words[] = {"mean", "sum", "none"};
    const tensor x = pick_float(w, 2);
    char operands[48];
    int64_t dims[MAX_RANK];
    node a = {0};
    for (int i = 0, k = 0; i < x.rank; i++)
        if (i != 1) dims[k++] = x.dims[i];
    const tensor label = source(w, INT64, x.rank - 1, dims);
    const int word = choose(w->c, 3);
    node_text(&a, "reduction", words[word]);
    if (rarely(w->c, 3)) node_int(&a, "ignore_index", choose(w->c, 3) - 1);
    snprintf(operands, sizeof operands, "%s,%s", x.name, label.name);
    emit(w, choose(w->c, 2) ? "SoftmaxCrossEntropyLoss" : "NegativeLogLikelihoodLoss", operands, &a, x.type,
         word == 2 ? x.rank - 1 : 0, dims);
}

static void draw_if(drawing *w)
{
    const tensor x = pick_float(w, 0);
    const tensor chosen = source(w, BOOL, 0, NULL);
    node a = {0};
    for (int i = 0; i < 2; i++) {
        char name[16];
        model subgraph = model_new(w->m.opset);
        snprintf(name, sizeof name, "b%d.%d", i, w->made++);
        model_node(&subgraph, i ? "Relu" : "Neg", x.name, name);
        model_output(&subgraph, name, 0, NULL);
        node_graph(&a, i ? "then_branch" : "else_branch", &subgraph);
    }
    emit(w, "If", chosen.name, &a, x.type, x.rank, x.dims);
}

static void draw_node(drawing *w)
{
    static void (*const draws[])(drawing * w) = {draw_unary,  draw_unary,    draw_binary,   draw_binary,   draw_matmul,
                                                 draw_matmul, draw_window,   draw_window,   draw_norm,     draw_norm,
                                                 draw_reduce, draw_movement, draw_movement, draw_movement, draw_split,
                                                 draw_gather, draw_shape,    draw_cast,     draw_loss,     draw_if};
    CHOOSE(w->c, draws)(w);
}

static wire draw_model(choices *c)
{
    static const int opsets[] = {17, 13, 18, 20, 21, 22, 23, 11, 9, 7};
    static const int8_t ranks[] = {2, 4, 3, 2, 4, 1, 5, 0};
    drawing w = {.c = c, .m = model_new(CHOOSE(c, opsets))};
    new_float(&w, CHOOSE(c, ranks));
    const int count = 1 + choose(c, MAX_NODES), outputs = 1 + choose(c, 3);
    for (int i = 0; i < count; i++) draw_node(&w);
    for (int i = 0; i < outputs && i < w.n_pool; i++) model_output(&w.m, w.pool[w.n_pool - 1 - i].name, 0, NULL);
    return model_finish(&w.m);
}

/* ---- uses of the model ----------------------------------------------------------------------------------------- */

static ampc_status collect(void *user, onnx_part part, const void *bytes, size_t n)
{
    if (part == ONNX_PART_MODEL) wire_raw(user, bytes, n);
    return AMPC_OK;
}

/* Emits a runnable graph as a model, which must import again. */
static void emit_again(const ir_module *m, const onnx_import_options *import)
{
    diag *d = diag_new(NULL, NULL);
    wire file = {0};
    ir_module *again = NULL;
    const onnx_emit_options o = {.data_name = "data", .write = collect, .user = &file};
    if (d && ir_graph_find(m, "infer") && pipeline_accepts(onnx_emit(m, "infer", &o, d), d) &&
        !pipeline_accepts(onnx_import_memory(file.bytes, file.size, "again.onnx", import, d, &again), d)) {
        fprintf(stderr, "what is emitted does not import: %s\n", diag_first_error(d));
        abort();
    }
    ir_module_free(again);
    wire_free(&file);
    diag_free(d);
}

static void show(const ir_module *m)
{
    arena *a = getenv("FUZZ_SHOW") ? arena_new(0) : NULL;
    jmp_buf guard;
    if (a && !setjmp(guard)) {
        arena_set_guard(a, &guard);
        pipeline_show("%s", ir_print(m, a));
    }
    arena_free(a);
}

static void check_model(const wire *file, choices *c)
{
    diag *d = diag_new(NULL, NULL);
    ir_module *m = NULL;
    const onnx_dim_binding dim = {"N", choose(c, 4)};
    const onnx_import_options o = {
        .dims = &dim, .n_dims = rarely(c, 6), .max_tensor_bytes = 1 << 20, .opaque = rarely(c, 8)};
    if (d && pipeline_accepts(onnx_import_memory(file->bytes, file->size, "fuzz.onnx", &o, d, &m), d)) {
        show(m);
        pipeline_round_trip(m, d);
        if (pipeline_compile(m, c, d)) {
            if (rarely(c, 4)) emit_again(m, &(onnx_import_options){.opaque = o.opaque});
            pipeline_run(m, c);
        }
    }
    if (d) pipeline_show("# %s\n", diag_first_error(d));
    ir_module_free(m);
    diag_free(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    choices c = choices_start(data, size);
    wire file = draw_model(&c);
    for (int changes = rarely(&c, 6) ? 1 + choose(&c, 3) : 0; changes; changes--)
        file.bytes[choices_word(&c) % file.size] ^= (uint8_t)(1 << choose(&c, 8));
    check_model(&file, &c);
    wire_free(&file);
    return 0;
}
