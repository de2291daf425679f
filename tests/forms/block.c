/* block.c - the nodes of a block, and bodies made of blocks. */
#include "tests/forms/block.h"
#include "ir/base/wire.h"

enum { MAX_ELEMENTS = 64 };

/* ---- tensors ------------------------------------------------------------------------------------ */

void block_push(block *b, const tensor *t)
{
    b->pool[b->n_pool < BLOCK_POOL ? b->n_pool++ : choose(b->w->c, BLOCK_POOL)] = *t;
}

tensor block_any(const block *b)
{
    const int back = choose(b->w->c, 2) ? choose(b->w->c, b->n_pool) / 2 : choose(b->w->c, b->n_pool);
    return b->pool[b->n_pool - 1 - back];
}

static bool same_shape(const tensor *a, const tensor *b)
{
    return a->type == b->type && a->rank == b->rank && !memcmp(a->dims, b->dims, sizeof *a->dims * (size_t)a->rank) &&
           !memcmp(a->symbol, b->symbol, sizeof *a->symbol * (size_t)a->rank);
}

/* A tensor with the dims of `like`: one of the pool, or a new input of the model. */
tensor block_like(block *b, const tensor *like)
{
    for (int attempt = 0; attempt < 4; attempt++) {
        const tensor t = block_any(b);
        if (same_shape(&t, like)) return t;
    }
    return b->sealed || b->w->n_inputs > FORM_INPUTS - 8 ? *like : new_operand(b->w, b->f, like);
}

/* Adds the node and names its result, which has the type and dims of `like`. */
tensor block_add(block *b, node *n, const char *op, const tensor *like)
{
    tensor made = *like;
    snprintf(made.name, sizeof made.name, "t%d", b->w->made++);
    wire_text(n, 2, made.name);
    wire_text(n, 4, op);
    model_add(b->m, n);
    return made;
}

static tensor apply(block *b, const char *op, const tensor *x, const tensor *y, const tensor *like)
{
    node n = {0};
    node_operand(b->w, &n, x);
    if (y) node_operand(b->w, &n, y);
    return block_add(b, &n, op, like);
}

tensor block_scalar(block *b, int type, double value)
{
    const ir_dtype dtype = onnx_type_dtype(type);
    tensor t = {.type = type};
    char data[8];
    ir_store_f64(dtype, data, value);
    snprintf(t.name, sizeof t.name, "t%d", b->w->made++);
    wire encoded = tensor_new(t.name, type, "", data, ir_dtype_size(dtype));
    if (!b->sealed && choose(b->w->c, 2)) model_tensor(b->m, encoded);
    else model_constant(b->m, t.name, encoded);
    return t;
}

/* ---- plain nodes -------------------------------------------------------------------------------- */

static void add_unary(block *b)
{
    static const char *const smooth[] = {"Tanh", "Sigmoid", "Neg", "Identity"};
    static const char *const ops[] = {"Tanh", "Sigmoid", "Neg", "Identity", "Relu", "Abs"};
    const tensor x = block_any(b),
                 y = apply(b, b->w->exact ? CHOOSE(b->w->c, smooth) : CHOOSE(b->w->c, ops), &x, NULL, &x);
    block_push(b, &y);
}

/* A factor is between -1 and 1, so that no loop overflows. */
static void add_binary(block *b)
{
    static const char *const ops[] = {"Add", "Sub", "Mul"};
    const char *op = CHOOSE(b->w->c, ops);
    const tensor x = block_any(b);
    tensor y = choose(b->w->c, 3) ? block_like(b, &x) : block_scalar(b, b->w->type, (choose(b->w->c, 9) - 4) * 0.25);
    if (*op == 'M') y = apply(b, "Tanh", &y, NULL, &y);
    y = apply(b, op, &x, &y, &x);
    block_push(b, &y);
}

static void add_transpose(block *b)
{
    node n = {0};
    const tensor x = block_any(b);
    tensor like = x;
    for (int i = 0; i < x.rank; i++) {
        like.dims[i] = x.dims[x.rank - 1 - i];
        like.symbol[i] = x.symbol[x.rank - 1 - i];
    }
    node_operand(b->w, &n, &x);
    like = block_add(b, &n, "Transpose", &like);
    block_push(b, &like);
}

static void add_concat(block *b)
{
    node n = {0};
    const tensor x = block_any(b), y = block_like(b, &x);
    tensor like = x;
    if (!x.rank || x.symbol[0] || count_of(&x) > MAX_ELEMENTS) return;
    like.dims[0] *= 2;
    node_operand(b->w, &n, &x);
    node_operand(b->w, &n, &y);
    node_int(&n, "axis", choose(b->w->c, 2) ? 0 : -x.rank);
    like = block_add(b, &n, "Concat", &like);
    block_push(b, &like);
}

tensor block_row(const tensor *x)
{
    tensor row = *x;
    row.rank--;
    memmove(row.dims, row.dims + 1, sizeof *row.dims * (size_t)row.rank);
    memmove(row.symbol, row.symbol + 1, sizeof *row.symbol * (size_t)row.rank);
    return row;
}

/* Adds the number of the iteration, or selects a row by it. */
static void add_indexed(block *b)
{
    const tensor x = block_any(b), one = {.type = x.type};
    tensor y;
    if (!b->index.type) return;
    if (choose(b->w->c, 2) && x.rank && !x.symbol[0] && x.dims[0] > 0 && x.dims[0] >= b->trips) {
        const tensor row = block_row(&x);
        y = apply(b, "Gather", &x, &b->index, &row);
    } else {
        node n = {0};
        node_operand(b->w, &n, &b->index);
        node_int(&n, "to", x.type);
        y = block_add(b, &n, "Cast", &one);
        y = apply(b, "Add", &x, &y, &x);
    }
    block_push(b, &y);
}

static void add_any(block *b)
{
    const bool nests = b->depth < BLOCK_DEPTH && b->w->nests;
    switch (choose(b->w->c, nests ? 16 : 9)) {
    case 0:
    case 1:
    case 2: add_unary(b); break;
    case 3:
    case 4:
    case 5: add_binary(b); break;
    case 6: add_transpose(b); break;
    case 7: add_concat(b); break;
    case 8: add_indexed(b); break;
    case 9: block_if(b); break;
    case 10:
    case 11: block_loop(b); break;
    case 12: block_scan(b); break;
    case 13: block_call(b); break;
    default: block_sequence(b, NULL);
    }
}

void block_fill(block *b, int count)
{
    while (count-- > 0) add_any(b);
}

block block_start(drawing *w, const form *f, const tensor *x)
{
    block b = {.w = w, .f = f, .m = &w->m};
    block_push(&b, x);
    return b;
}

/* ---- bodies ------------------------------------------------------------------------------------- */

/* A body within the block, which captures some of its values. */
block block_body(const block *b, model *m)
{
    block inner = *b;
    *m = model_new(b->w->m.opset);
    inner.m = m;
    inner.depth++;
    return inner;
}

/* "2,3"; NULL: some sizes are symbols. */
static const char *dims_text(const tensor *t, char text[64])
{
    text[0] = 0;
    for (int i = 0; i < t->rank; i++) {
        const size_t used = strlen(text);
        if (t->symbol[i]) return NULL;
        snprintf(text + used, 64 - used, "%s%d", i ? "," : "", (int)t->dims[i]);
    }
    return text;
}

void block_output(block *b, const tensor *t)
{
    char text[64];
    model_output(b->m, t->name, t->type, dims_text(t, text));
}

/* A graph may not return a value of an enclosing graph. */
tensor block_own(block *b, const tensor *t) { return apply(b, "Identity", t, NULL, t); }

tensor block_declare(block *b, const tensor *like, bool shape)
{
    char text[64];
    tensor t = *like;
    snprintf(t.name, sizeof t.name, "t%d", b->w->made++);
    model_input(b->m, t.name, t.type, shape ? dims_text(&t, text) : NULL);
    return t;
}

/* Names the results of a node and puts them into the pool. */
static void add_results(block *b, node *n, const char *op, tensor *results, int count)
{
    for (int i = 0; i < count; i++) {
        snprintf(results[i].name, sizeof results[i].name, "t%d", b->w->made++);
        wire_text(n, 2, results[i].name);
        block_push(b, &results[i]);
    }
    wire_text(n, 4, op);
    model_add(b->m, n);
}

void block_if(block *b)
{
    const bool known = b->w->exact || b->sealed || choose(b->w->c, 4);
    const tensor flag = {0};
    const tensor chosen = known ? block_scalar(b, ONNX_bool, choose(b->w->c, 2))
                                : new_tensor(b->w, ONNX_bool, (values){0, 2}, &flag, false);
    tensor result = block_any(b);
    node n = {0};
    node_operand(b->w, &n, &chosen);
    for (int i = 0; i < 2; i++) {
        model m;
        block inner = block_body(b, &m);
        block_fill(&inner, 1 + choose(b->w->c, 3));
        const tensor like = block_like(&inner, &result), t = block_own(&inner, &like);
        block_output(&inner, &t);
        node_graph(&n, i ? "then_branch" : "else_branch", &m);
    }
    add_results(b, &n, "If", &result, 1);
}

tensor block_stacked(const tensor *row, int trips, int axis)
{
    tensor t = *row;
    for (int i = t.rank++; i > axis; i--) t.dims[i] = t.dims[i - 1], t.symbol[i] = t.symbol[i - 1];
    t.dims[axis] = trips;
    t.symbol[axis] = 0;
    return t;
}

/* Adds what an iteration returns: carried values, and values to stack. Returns the number of the latter. */
static int add_returns(block *b, const tensor *carried, int n, tensor *rows)
{
    const int stacks = choose(b->w->c, 3);
    block_fill(b, 1 + choose(b->w->c, 4));
    for (int i = 0; i < n; i++) {
        tensor t = block_like(b, &carried[i]);
        t = apply(b, choose(b->w->c, 2) ? "Tanh" : "Identity", &t, NULL, &t);
        block_output(b, &t);
    }
    for (int i = 0; i < stacks; i++) {
        const tensor t = block_any(b);
        rows[i] = t.rank < FORM_MAX_RANK ? t : carried[0];
        rows[i] = block_own(b, &rows[i]);
        block_output(b, &rows[i]);
    }
    return stacks;
}

/* The condition of the next iteration: true, or whether this one is below `end`. */
void block_condition(block *b, const tensor *condition, int end)
{
    const tensor last = end < 0 ? (tensor){0} : block_scalar(b, ONNX_int64, end), flag = {.type = ONNX_bool};
    const tensor t = end < 0 ? apply(b, "Identity", condition, NULL, &flag) : apply(b, "Less", &b->index, &last, &flag);
    block_output(b, &t);
}

void block_loop(block *b)
{
    static const int8_t trip_counts[] = {0, 1, 2, 3, 4, 2, 3};
    const int limit = CHOOSE(b->w->c, trip_counts),
              end = b->w->m.opset >= 9 && rarely(b->w->c, 3) ? choose(b->w->c, 3) : -1;
    const int trips = end >= 0 && end + 1 < limit ? end + 1 : limit, carried = 1 + choose(b->w->c, 2);
    const bool shapes = choose(b->w->c, 2);
    tensor state[2], rows[2], results[4];
    node n = {0};
    model m;
    block inner = block_body(b, &m);
    const tensor count = block_scalar(b, ONNX_int64, limit), index = {.type = ONNX_int64}, flag = {.type = ONNX_bool};
    const tensor condition = block_scalar(b, ONNX_bool, 1);
    node_operand(b->w, &n, &count);
    node_operand(b->w, &n, end < 0 && choose(b->w->c, 2) ? NULL : &condition);
    inner.index = block_declare(&inner, &index, true);
    inner.trips = trips;
    const tensor given = block_declare(&inner, &flag, true);
    for (int i = 0; i < carried; i++) {
        results[i] = block_any(b);
        node_operand(b->w, &n, &results[i]);
        state[i] = block_declare(&inner, &results[i], shapes);
    }
    for (int i = 0; i < carried; i++) block_push(&inner, &state[i]);
    block_condition(&inner, &given, end);
    const int stacks = add_returns(&inner, state, carried, rows);
    for (int i = 0; i < stacks; i++) results[carried + i] = block_stacked(&rows[i], trips, 0);
    node_graph(&n, "body", &m);
    add_results(b, &n, "Loop", results, carried + stacks);
}

/* ---- Scan --------------------------------------------------------------------------------------- */

typedef struct scan_shape { /* of the scan that is being drawn */
    int trips, batch, inputs, carried;
    int64_t axes[2], backwards[2];
} scan_shape;

static tensor batched(const scan_shape *s, const tensor *t) { return s->batch ? block_stacked(t, s->batch, 0) : *t; }

/* Adds operands: a carried value, and values with slices. The inputs of the body go to its pool. */
static void add_scan_operands(block *b, scan_shape *s, block *inner, node *n, tensor *state)
{
    const int64_t sizes[] = {some_size(b->w), some_size(b->w)};
    const tensor slice = fixed_shape(choose(b->w->c, 3), sizes);
    for (int i = 0; i < s->carried + s->inputs; i++) {
        const int rank = slice.rank + 1, k = i - s->carried;
        const int axis = k < 0 || s->batch ? 0 : choose(b->w->c, rank);
        tensor typed = slice, whole = k < 0 ? slice : block_stacked(&slice, s->trips, axis);
        typed.type = b->w->type;
        whole = batched(s, &whole);
        whole = new_operand(b->w, b->f, &whole);
        node_operand(b->w, n, &whole);
        if (k >= 0) s->axes[k] = either_sign(b->w, axis, rank);
        if (k >= 0) s->backwards[k] = choose(b->w->c, 2);
        typed = block_declare(inner, &typed, choose(b->w->c, 2));
        if (k < 0) state[i] = typed;
        block_push(inner, &typed);
    }
}

void block_scan(block *b)
{
    static const int8_t trip_counts[] = {1, 2, 3, 4, 2, 3};
    if (b->sealed || b->w->m.opset < 8 || b->w->n_inputs > FORM_INPUTS - 8) return;
    scan_shape s = {
        .trips = CHOOSE(b->w->c, trip_counts), .inputs = 1 + choose(b->w->c, 2), .carried = choose(b->w->c, 2)};
    tensor state[1], rows[2], results[3];
    int64_t axes[2] = {0}, backwards[2] = {0};
    node n = {0};
    model m;
    block inner = block_body(b, &m);
    s.batch = b->w->m.opset == 8 ? 1 + choose(b->w->c, 2) : 0;
    if (s.batch) node_operand(b->w, &n, NULL);
    add_scan_operands(b, &s, &inner, &n, state);
    if (!s.carried) state[0] = inner.pool[inner.n_pool - 1];
    const int stacks = add_returns(&inner, state, s.carried, rows);
    for (int i = 0; i < stacks; i++) {
        const int rank = rows[i].rank + 1, axis = s.batch ? 0 : choose(b->w->c, rank);
        axes[i] = either_sign(b->w, axis, rank);
        backwards[i] = choose(b->w->c, 2);
        results[s.carried + i] = block_stacked(&rows[i], s.trips, axis);
    }
    for (int i = 0; i < s.carried; i++) results[i] = state[i];
    for (int i = 0; i < s.carried + stacks; i++) results[i] = batched(&s, &results[i]);
    node_int(&n, "num_scan_inputs", s.inputs);
    if (s.batch) node_list(&n, "directions", s.backwards, s.inputs);
    if (!s.batch) node_list(&n, "scan_input_axes", s.axes, s.inputs);
    if (!s.batch) node_list(&n, "scan_input_directions", s.backwards, s.inputs);
    if (!s.batch && stacks) node_list(&n, "scan_output_axes", axes, stacks);
    if (!s.batch && stacks) node_list(&n, "scan_output_directions", backwards, stacks);
    node_graph(&n, "body", &m);
    if (s.carried + stacks) add_results(b, &n, "Scan", results, s.carried + stacks);
    else wire_free(&n);
}

/* ---- functions ---------------------------------------------------------------------------------- */

/* Multiplies by the attribute `slope` of the call. */
static tensor scaled_by_attribute(block *b, const tensor *x)
{
    node n = {0}, cast = {0};
    wire reference = {0};
    const tensor f32 = {.type = ONNX_float32}, one = {.type = x->type};
    wire_text(&reference, 21, "slope");
    node_attr(&n, b->w->m.opset < 12 ? "alpha" : "value_float", 1, &reference);
    if (b->w->m.opset < 12 && x->type != ONNX_float32) return apply(b, "Identity", x, NULL, x);
    if (b->w->m.opset < 12) {
        node_operand(b->w, &n, x);
        return block_add(b, &n, "LeakyRelu", x);
    }
    const tensor slope = block_add(b, &n, "Constant", &f32);
    node_operand(b->w, &cast, &slope);
    node_int(&cast, "to", x->type);
    const tensor factor = block_add(b, &cast, "Cast", &one);
    return apply(b, "Mul", x, &factor, x);
}

/* Declares the function with the nodes of a graph. */
static void define(drawing *w, const char *name, const tensor *inputs, int n, const tensor *result, const model *m)
{
    wire f = {0}, standard = {0}, own = {0}, slope = {0};
    wire_text(&f, 1, name);
    for (int i = 0; i < n; i++) wire_text(&f, 4, inputs[i].name);
    wire_text(&f, 5, result->name);
    wire_field rest = {.value = m->graph.bytes, .end = m->graph.bytes + m->graph.size};
    for (wire_field at; wire_next_field(&rest, &at);)
        if (at.number == 1) wire_bytes(&f, 7, at.value, (size_t)(at.end - at.value));
    wire_int(&standard, 2, w->m.opset);
    wire_text(&own, 1, "own");
    wire_int(&own, 2, 1);
    wire_message(&f, 9, &standard);
    wire_message(&f, 9, &own);
    wire_text(&f, 10, "own");
    wire_text(&slope, 1, "slope");
    wire_float(&slope, 2, 0.25f);
    wire_int(&slope, 20, 1);
    wire_message(&f, 11, &slope);
    wire_message(&w->m.functions, 25, &f);
}

/* Calls the new function once or twice. An operand may be absent if the body does not read it. */
void block_call(block *b)
{
    char name[16];
    model m;
    block inner = block_body(b, &m);
    tensor inputs[3] = {block_any(b), block_any(b), {.name = "unread"}};
    inner.sealed = true;
    if (b->w->m.opset < 9) inner.depth = BLOCK_DEPTH; /* Constant has only floats */
    inner.n_pool = 0;
    inner.index = (tensor){0};
    for (int i = 0; i < 2; i++) {
        inner.pool[inner.n_pool] = inputs[i];
        snprintf(inner.pool[inner.n_pool++].name, sizeof inputs[i].name, "t%d", b->w->made++);
    }
    tensor formal[3] = {inner.pool[0], inner.pool[1], inputs[2]};
    block_fill(&inner, 1 + choose(b->w->c, 4));
    const tensor last = block_any(&inner);
    const tensor result = scaled_by_attribute(&inner, &last);
    snprintf(name, sizeof name, "F%d", b->w->made++);
    define(b->w, name, formal, 3, &result, &m);
    wire_free(&m.graph);
    for (int i = 0, calls = 1 + choose(b->w->c, 2); i < calls; i++) {
        node n = {0};
        tensor called = result;
        node_operand(b->w, &n, &inputs[0]);
        node_operand(b->w, &n, &inputs[1]);
        if (i) node_float(&n, "slope", 0.5f);
        wire_text(&n, 7, "own");
        add_results(b, &n, name, &called, 1);
        if (same_shape(&called, &inputs[0])) inputs[0] = called;
    }
}
