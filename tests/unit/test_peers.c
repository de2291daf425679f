/* test_peers.c - bugs of other mixed-precision converters, one test each. The bug is described above its test.
 *
 * check() converts a model and compares three results: the model in f32, our own run in fp16, and the emitted model,
 * read back and run with the types that it has. */
#include "frontend/onnx.h"
#include "frontend/read/tensor.h"
#include "passes/passes.h"
#include "runtime/api/export.h"
#include "runtime/session/session.h"
#include "runtime/files/weights.h"
#include "tests/unit/model_writer.h"
#include "tests/unit/scratch.h"

#include <math.h>
#include <time.h>

enum { MAX_COUNT = 1 << 12 };

typedef struct result {
    int count;
    double items[MAX_COUNT];
} result;

typedef struct input {
    int64_t rows, columns;
    float value; /* element i is value * (1 + i % 3) */
} input;

/* ---- compiling, running ---------------------------------------------------------------------- */

static compile_options options_at(pass_level level)
{
    compile_options o = compile_options_default();
    o.level = level;
    o.low = IR_f16;
    return o;
}

/* `text`: receives the compiler's explanations; NULL: none. */
static ampc_status run_passes(ir_module *m, const compile_options *o, FILE *text, diag *d)
{
    arena *a = arena_new(0);
    rt_weights *weights;
    compile *c;
    assert_int_equal(rt_weights_open(m, NULL, d, &weights), AMPC_OK);
    ampc_status status = compile_load(o, a, d, &c);
    if (status == AMPC_OK) {
        c->read = rt_weights_read_part;
        c->read_user = weights;
        c->report.text = text;
        status = compile_module(m, c);
    }
    rt_weights_close(weights);
    arena_free(a);
    return status;
}

static ir_module *compile_told(scratch *t, const char *name, compile_options o, bool opaque, FILE *text)
{
    ir_module *m;
    const onnx_import_options import = {.opaque = opaque};
    ampc_status status = onnx_import(scratch_path(t, name), &import, t->d, &m);
    if (status == AMPC_OK) status = run_passes(m, &o, text, t->d);
    if (status != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    return m;
}

static ir_module *compile_file(scratch *t, const char *name, compile_options o, bool opaque)
{
    return compile_told(t, name, o, opaque, NULL);
}

/* Runs the graph and concatenates all outputs. */
static void run(scratch *t, const char *name, compile_options o, input in, result *out)
{
    ir_module *m = compile_file(t, name, o, false);
    float *x = calloc((size_t)(in.rows * in.columns), sizeof *x);
    for (int64_t i = 0; i < in.rows * in.columns; i++) x[i] = in.value * (float)(1 + i % 3);
    const rt_tensor tensor = {.name = "x", .dtype = IR_f32, .rank = 2, .dims = {in.rows, in.columns}, .data = x};
    const rt_session_options device = {.device = "cpu"};
    rt_session *s;
    ampc_status status = rt_session_open(m, &device, t->d, &s);
    if (status == AMPC_OK) status = rt_session_run(s, "infer", &tensor, 1, t->d);
    if (status != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    out->count = 0;
    for (int i = 0; i < rt_session_output_count(s); i++) {
        const rt_tensor *y = rt_session_output_at(s, i);
        int64_t n = 1;
        for (int k = 0; k < y->rank; k++) n *= y->dims[k];
        assert_int_equal(y->dtype, IR_f32);
        assert_true(out->count + n <= MAX_COUNT);
        for (int64_t k = 0; k < n; k++) out->items[out->count++] = ((const float *)y->data)[k];
    }
    rt_session_close(s);
    ir_module_free(m);
    free(x);
}

static void save(scratch *t, model *m)
{
    wire file = model_finish(m);
    scratch_write(t, "m.onnx", file.bytes, file.size);
    wire_free(&file);
}

/* Converts m.onnx to new.onnx in fp16. The caller closes the result. */
static onnx_file *convert(scratch *t, bool opaque)
{
    onnx_file *f;
    compile_options o = options_at(PASS_O1);
    o.plain_runtime = true;
    ir_module *m = compile_file(t, "m.onnx", o, opaque);
    if (rt_emit_onnx(m, "infer", scratch_path(t, "new.onnx"), t->d) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    ir_module_free(m);
    assert_int_equal(onnx_file_open(scratch_path(t, "new.onnx"), t->d, &f), AMPC_OK);
    return f;
}

static void compare(const char *what, const result *x, const result *y, double most)
{
    double difference = 0, largest = 1e-30;
    assert_int_equal(x->count, y->count);
    for (int i = 0; i < x->count; i++) {
        bool same = x->items[i] == y->items[i];
        difference = fmax(difference, same                               ? 0
                                      : isnan(x->items[i] - y->items[i]) ? INFINITY
                                                                         : fabs(x->items[i] - y->items[i]));
        if (isfinite(y->items[i])) largest = fmax(largest, fabs(y->items[i]));
    }
    if (!(difference <= most * largest)) fail_msg("%s differs by %g of %g", what, difference, largest);
}

static onnx_file *check(scratch *t, model *m, input in, double most)
{
    static result f32, own, written;
    save(t, m);
    run(t, "m.onnx", options_at(PASS_O0), in, &f32);
    run(t, "m.onnx", options_at(PASS_O1), in, &own);
    compare("the run in fp16", &own, &f32, most);
    onnx_file *f = convert(t, false);
    run(t, "new.onnx", options_at(PASS_O0), in, &written);
    compare("the model written", &written, &f32, most);
    return f;
}

/* ---- inspecting the emitted model ------------------------------------------------------------ */

static const Onnx__NodeProto *find_op(const onnx_file *f, const char *op)
{
    for (size_t i = 0; i < f->model->graph->n_node; i++)
        if (strcmp(f->model->graph->node[i]->op_type, op) == 0) return f->model->graph->node[i];
    fail_msg("no %s", op);
    return NULL;
}

static int count_ops(const onnx_file *f, const char *op)
{
    int n = 0;
    for (size_t i = 0; i < f->model->graph->n_node; i++) n += strcmp(f->model->graph->node[i]->op_type, op) == 0;
    return n;
}

/* Returns 0 if there is no tensor of that name. */
static int type_of_tensor(const onnx_file *f, const char *name)
{
    for (size_t i = 0; i < f->model->graph->n_initializer; i++)
        if (strcmp(f->model->graph->initializer[i]->name, name) == 0) return f->model->graph->initializer[i]->data_type;
    return 0;
}

static int type_of_output(const onnx_file *f, size_t i)
{
    return f->model->graph->output[i]->type->tensor_type->elem_type;
}

/* Returns a model with the input x[N,columns]. */
static model new_model(const char *columns)
{
    char dims[32];
    model m = model_new(17);
    snprintf(dims, sizeof dims, "N,%s", columns);
    model_input(&m, "x", ONNX_float32, dims);
    return m;
}

/* The same with h, a white matmul of x. */
static model new_product(void)
{
    model m = new_model("2");
    model_tensor(&m, TENSOR_FLOATS("w", "2,2", 1, 0.5f, -0.25f, 2));
    model_node(&m, "MatMul", "x,w", "h");
    return m;
}

static void cast_node(model *m, const char *from, const char *to, int type)
{
    node n = node_new("Cast", from, to);
    node_int(&n, "to", type);
    model_add(m, &n);
}

static const input small = {3, 2, 0.5f};

/* ---- A. invalid output models ---------------------------------------------------------------- */

/* onnxconverter-common 320: a Cast(to=float) of the model before a black operator kept a low-precision result. */
static void test_cast_to_float_before_black(void **state)
{
    model m = new_product();
    cast_node(&m, "h", "s", ONNX_float32);
    model_node(&m, "Exp", "s", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    onnx_file *f = check(*state, &m, small, 5e-3);
    assert_int_equal(type_of_output(f, 0), ONNX_float32);
    onnx_file_close(f);
}

/* onnxconverter-common 304: an initializer used by fp16 and fp32 nodes made the model invalid. */
static void test_shared_initializer(void **state)
{
    model m = new_product();
    model_node(&m, "Exp", "w", "e");
    model_node(&m, "MatMul", "h,e", "y");
    model_node(&m, "MatMul", "y,w", "z");
    model_output(&m, "z", ONNX_float32, NULL);
    onnx_file_close(check(*state, &m, (input){2, 2, 0.5f}, 5e-3));
}

/* onnxconverter-common, keep_io_types: a blocked node that produces a graph output changed the output's type. */
static void test_blocked_node_is_output(void **state)
{
    model m = new_product();
    model_node(&m, "Exp", "h", "black");
    model_node(&m, "Identity", "h", "white");
    model_output(&m, "black", ONNX_float32, "N,2");
    model_output(&m, "white", ONNX_float32, "N,2");
    model_output(&m, "h", ONNX_float32, "N,2");
    onnx_file *f = check(*state, &m, small, 5e-3);
    for (size_t i = 0; i < 3; i++) assert_int_equal(type_of_output(f, i), ONNX_float32);
    onnx_file_close(f);
}

/* OneFlow 8746: a tensor used as two operands of one node crashed the pass. */
static void test_same_tensor_twice(void **state)
{
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "2,2");
    model_node(&m, "MatMul", "x,x", "p");
    model_node(&m, "Mul", "p,p", "q");
    model_node(&m, "Exp", "q", "e");
    model_node(&m, "Add", "e,e", "y");
    model_output(&m, "y", ONNX_float32, "2,2");
    onnx_file *f = check(*state, &m, (input){2, 2, 0.25f}, 5e-3);
    assert_string_equal(find_op(f, "MatMul")->input[0], find_op(f, "MatMul")->input[1]);
    onnx_file_close(f);
}

/* onnxconverter-common 326: integer operands of blocked nodes were also cast. */
static void test_integer_operands(void **state)
{
    model m = new_product();
    model_tensor(&m, TENSOR_INTS("i", "2", 1, 0));
    model_node(&m, "Exp", "h", "e");
    node n = node_new("Gather", "e,i", "g");
    node_int(&n, "axis", 1);
    model_add(&m, &n);
    model_node(&m, "Shape", "g", "s");
    model_node(&m, "Reshape", "g,s", "y");
    model_output(&m, "y", ONNX_float32, NULL);
    onnx_file *f = check(*state, &m, small, 5e-3);
    assert_int_equal(count_ops(f, "Cast"), 2); /* of x, and of h before Exp */
    onnx_file_close(f);
}

/* onnxmltools 446: a Concat with operands of both types. */
static void test_concat_of_both_types(void **state)
{
    model m = new_product();
    model_node(&m, "Exp", "h", "e");
    node n = node_new("Concat", "h,e,x", "y");
    node_int(&n, "axis", 1);
    model_add(&m, &n);
    model_output(&m, "y", ONNX_float32, "N,6");
    onnx_file_close(check(*state, &m, small, 5e-3));
}

/* onnxruntime 14827: the scales of Resize were converted to fp16, which its schema does not allow. */
static void test_resize_scales(void **state)
{
    scratch *t = *state;
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "1,1,4,4");
    model_tensor(&m, TENSOR_FLOATS("w", "1,1,1,1", 2));
    model_tensor(&m, TENSOR_FLOATS("scales", "4", 1, 1, 2, 2));
    model_node(&m, "Conv", "x,w", "c");
    model_node(&m, "Resize", "c,,scales", "y");
    model_output(&m, "y", ONNX_float32, NULL);
    save(t, &m);
    onnx_file *f = convert(t, true);
    assert_int_equal(type_of_tensor(f, "w"), ONNX_float16);
    assert_int_equal(type_of_tensor(f, "scales"), ONNX_float32);
    assert_string_equal(find_op(f, "Resize")->input[2], "scales");
    onnx_file_close(f);
}

/* Model-Optimizer 1628, onnxruntime 7981: subgraphs of If and Loop captured values of the enclosing graph in the
 * wrong type. */
static void test_captured_value(void **state)
{
    scratch *t = *state;
    model m = new_product(), yes = model_new(17), no = model_new(17);
    model_input(&m, "c", ONNX_bool, "");
    model_node(&yes, "Sigmoid", "h", "a");
    model_output(&yes, "a", ONNX_float32, "N,2");
    model_node(&no, "Neg", "h", "b");
    model_output(&no, "b", ONNX_float32, "N,2");
    node n = node_new("If", "c", "z");
    node_graph(&n, "then_branch", &yes);
    node_graph(&n, "else_branch", &no);
    model_add(&m, &n);
    model_value(&m, 13, "z", ONNX_float32, "N,2");
    model_node(&m, "MatMul", "z,w", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    save(t, &m);
    onnx_file *f = convert(t, true);
    assert_int_equal(count_ops(f, "If"), 1);
    assert_int_equal(type_of_tensor(f, "w"), ONNX_float16);
    const Onnx__NodeProto *branches = find_op(f, "If");
    for (size_t i = 0; i < branches->n_attribute; i++) {
        const Onnx__GraphProto *g = branches->attribute[i]->g;
        assert_string_equal(g->node[0]->input[0], "h"); /* FLOAT16 in both graphs */
        assert_string_equal(g->node[g->n_node - 1]->op_type, "Cast");
        assert_string_equal(g->node[g->n_node - 1]->output[0], g->output[0]->name);
        assert_int_equal(g->output[0]->type->tensor_type->elem_type, ONNX_float32);
    }
    onnx_file_close(f);
}

/* onnxconverter-common 208: nodes of the result preceded the definitions of their operands. */
static void test_order_of_nodes(void **state)
{
    scratch *t = *state;
    model m = new_product();
    model_node(&m, "Exp", "h", "e");
    model_node(&m, "MatMul", "e,w", "a");
    model_node(&m, "Add", "a,e", "b");
    model_node(&m, "Sinh", "b", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    save(t, &m);
    onnx_file *f = convert(t, true);
    const Onnx__GraphProto *g = f->model->graph;
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i]->n_input; k++)
            for (size_t later = i; later < g->n_node; later++)
                for (size_t o = 0; o < g->node[later]->n_output; o++)
                    assert_string_not_equal(g->node[i]->input[k], g->node[later]->output[o]);
    onnx_file_close(f);
}

/* onnxconverter-common 260, 307: a loop-carried value changed its type in the subgraph. */
static void test_carried_state(void **state)
{
    scratch *t = *state;
    model m = new_product(), subgraph = model_new(17);
    model_input(&subgraph, "i", ONNX_int64, "");
    model_input(&subgraph, "go", ONNX_bool, "");
    model_input(&subgraph, "s", ONNX_float32, "N,2");
    model_node(&subgraph, "MatMul", "s,w", "p");
    model_node(&subgraph, "Add", "p,h", "next");
    model_node(&subgraph, "Identity", "go", "going");
    model_output(&subgraph, "going", ONNX_bool, "");
    model_output(&subgraph, "next", ONNX_float32, "N,2");
    model_output(&subgraph, "p", ONNX_float32, "N,2");
    const int64_t three = 3;
    model_tensor(&m, tensor_new("trips", ONNX_int64, "", &three, sizeof three));
    node n = node_new("Loop", "trips,,x", "last,all");
    node_graph(&n, "body", &subgraph);
    model_add(&m, &n);
    model_node(&m, "MatMul", "last,w", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    model_output(&m, "all", ONNX_float32, "T,N,2");
    save(t, &m);
    onnx_file *f = convert(t, true);
    const Onnx__GraphProto *g = find_op(f, "Loop")->attribute[0]->g;
    assert_int_equal(g->n_input, 3); /* h is not an input but a capture */
    assert_int_equal(g->input[2]->type->tensor_type->elem_type, ONNX_float32);
    for (size_t i = 1; i < 3; i++) assert_int_equal(g->output[i]->type->tensor_type->elem_type, ONNX_float32);
    bool low = false;
    for (size_t i = 0; i < g->n_node; i++)
        low |= strcmp(g->node[i]->op_type, "MatMul") == 0 && strcmp(g->node[i]->input[1], "w") == 0;
    assert_true(low);
    assert_int_equal(type_of_tensor(f, "w"), ONNX_float16);
    onnx_file_close(f);
}

/* onnxconverter-common 268, onnx/ir-py 303: no conversion to bfloat16, whose operators start at opset 22. */
static void test_bfloat16(void **state)
{
    scratch *t = *state;
    model m = new_product();
    model_node(&m, "Tanh", "h", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    save(t, &m);
    compile_options o = options_at(PASS_O1);
    o.low = IR_bf16;
    o.plain_runtime = true;
    onnx_file *f;
    ir_module *module = compile_file(t, "m.onnx", o, true);
    assert_int_equal(rt_emit_onnx(module, "infer", scratch_path(t, "new.onnx"), t->d), AMPC_OK);
    ir_module_free(module);
    assert_int_equal(onnx_file_open(scratch_path(t, "new.onnx"), t->d, &f), AMPC_OK);
    assert_int_equal(f->model->opset_import[0]->version, 22);
    assert_int_equal(type_of_tensor(f, "w"), ONNX_bfloat16);
    assert_int_equal(type_of_output(f, 0), ONNX_float32);
    onnx_file_close(f);
}

/* ---- B. too slow or too large ---------------------------------------------------------------- */

typedef struct parts {
    size_t model, data;
} parts;

static ampc_status count_bytes(void *user, onnx_part part, const void *bytes, size_t n)
{
    (void)bytes;
    parts *p = user;
    (part == ONNX_PART_DATA ? &p->data : &p->model)[0] += n;
    return AMPC_OK;
}

/* onnxconverter-common 215, 308: a model of more than 2 GiB with external values. Here the limit is small. */
static void test_values_beside_the_model(void **state)
{
    enum { N = 64 };
    scratch *t = *state;
    static float values[N * N];
    for (int i = 0; i < N * N; i++) values[i] = (float)(i % 7);
    model m = new_model("64");
    model_tensor(&m, tensor_new("w", ONNX_float32, "64,64", values, sizeof values));
    model_node(&m, "MatMul", "x,w", "y");
    model_output(&m, "y", ONNX_float32, "N,64");
    save(t, &m);
    compile_options o = options_at(PASS_O1);
    o.plain_runtime = true;
    ir_module *module = compile_file(t, "m.onnx", o, false);
    parts p = {0};
    const onnx_emit_options written = {"new.data", N * N, count_bytes, &p};
    assert_int_equal(onnx_emit(module, "infer", &written, t->d), AMPC_OK);
    assert_int_equal(p.data, sizeof values / 2);
    assert_true(p.model < N * N);
    ir_module_free(module);
}

/* onnxconverter-common 251, 252, 229; Model-Optimizer 459, 469: minutes of search, temporary models that fill the
 * disk, a scan of all nodes per node. */
static void test_many_nodes(void **state)
{
    enum { LAYERS = 500, SECONDS = 20 }; /* 20 ms on an idle machine */
    scratch *t = *state;
    model m = new_product();
    char from[16] = "h", to[16], exp_of[16];
    for (int i = 0; i < LAYERS; i++) {
        snprintf(exp_of, sizeof exp_of, "e%d", i);
        snprintf(to, sizeof to, "p%d", i);
        char operands[40];
        model_node(&m, "Exp", from, exp_of);
        snprintf(operands, sizeof operands, "%s,w", exp_of);
        model_node(&m, "MatMul", operands, to);
        memcpy(from, to, sizeof from);
    }
    model_output(&m, from, ONNX_float32, "N,2");
    save(t, &m);
    size_t before = scratch_count(t);
    clock_t start = clock();
    onnx_file *f = convert(t, false);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < SECONDS);
    assert_int_equal(count_ops(f, "MatMul"), LAYERS + 1);
    assert_int_equal(count_ops(f, "Cast"), 2 * LAYERS + 2);
    assert_int_equal(scratch_count(t), before + 1); /* only the model */
    onnx_file_close(f);
}

/* ---- C. slower after conversion -------------------------------------------------------------- */

/* onnxconverter-common: casts per node and operand; here one per value for all its uses. */
static void test_one_cast_for_all_readers(void **state)
{
    model m = new_product();
    model_node(&m, "Exp", "h", "a");
    model_node(&m, "Tan", "h", "b");
    model_node(&m, "Sinh", "h", "c");
    model_node(&m, "Pow", "h,h", "p");
    scratch *t = *state;
    for (const char *names = "abcp"; *names; names++) model_output(&m, (char[]){*names, 0}, ONNX_float32, "N,2");
    save(t, &m);
    onnx_file *f = convert(t, true);
    int narrow = 0, wide = 0;
    for (size_t i = 0; i < f->model->graph->n_node; i++) {
        const Onnx__NodeProto *n = f->model->graph->node[i];
        if (strcmp(n->op_type, "Cast") != 0) continue;
        (n->attribute[0]->i == ONNX_float16 ? &narrow : &wide)[0]++;
    }
    assert_int_equal(narrow, 1);
    assert_int_equal(wide, 1);
    onnx_file_close(f);
}

/* onnxruntime 11831: casts back to back. onnxruntime 19437: a narrowing cast of the model was removed with them. */
static void test_casts_of_the_model(void **state)
{
    model m = new_model("2");
    cast_node(&m, "x", "n", ONNX_float16);
    cast_node(&m, "n", "s", ONNX_float32);
    cast_node(&m, "s", "d", ONNX_float64);
    cast_node(&m, "d", "f", ONNX_float32);
    model_node(&m, "Exp", "f", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    onnx_file *f = check(*state, &m, (input){3, 2, 0.1f}, 0); /* exp of the rounded values, bit for bit */
    assert_int_equal(count_ops(f, "Cast"), 2);
    onnx_file_close(f);
}

/* tensorflow 28298, onnxruntime 13738: the gradient of a broadcast with a symbolic batch was black, once invalid. */
static void test_broadcast_gradient(void **state)
{
    scratch *t = *state;
    model m = new_product();
    model_tensor(&m, TENSOR_FLOATS("b", "2", 1, -1));
    model_node(&m, "Add", "h,b", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    save(t, &m);
    compile_options o = options_at(PASS_O1);
    o.loss = "ce";
    ir_module *module = compile_file(t, "m.onnx", o, false);
    const ir_graph *g = ir_graph_find(module, "train_step");
    int sums = 0;
    for (const ir_node *n = g->first; n; n = n->next) {
        if (n->phase != IR_BACKWARD || n->op != IR_OP_reduce_sum) continue;
        sums++;
        assert_int_equal(ir_in(n, 0)->type.dtype, IR_f16);
    }
    assert_int_equal(sums, 1);
    ir_module_free(module);
}

/* pytorch 188955: a norm listed as fp32 was surrounded by casts. Here it computes in f32 internally with fp16
 * operands and results. */
static void test_norm_without_casts(void **state)
{
    scratch *t = *state;
    model m = new_product();
    model_tensor(&m, TENSOR_FLOATS("scale", "2", 1, 2));
    model_node(&m, "LayerNormalization", "h,scale", "n");
    model_node(&m, "MatMul", "n,w", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    save(t, &m);
    ir_module *module = compile_file(t, "m.onnx", options_at(PASS_O1), false);
    for (const ir_node *n = ir_graph_find(module, "infer")->first; n; n = n->next) {
        if (n->op != IR_OP_layer_norm) continue;
        assert_int_equal(ir_in(n, 0)->def->op, IR_OP_matmul);
        assert_int_equal(ir_out(n, 0)->first_use->user->op, IR_OP_matmul);
        assert_int_equal(ir_in(n, 0)->type.dtype, IR_f16);
        assert_int_equal(ir_out(n, 0)->type.dtype, IR_f16);
    }
    ir_module_free(module);
}

/* onnxruntime 15490, 16778: slower after conversion, without a warning. */
static void test_loss_of_time_is_told(void **state)
{
    scratch *t = *state;
    model m = new_product();
    model_node(&m, "Exp", "h", "e");
    model_node(&m, "MatMul", "e,w", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    save(t, &m);
    compile_options o = options_at(PASS_O1);
    o.placement = PASS_MINCUT;
    diag_clear(t->d);
    ir_module_free(compile_file(t, "m.onnx", o, false));
    assert_int_equal(diag_count(t->d, DIAG_WARNING), 1); /* "mixed precision is predicted to lose" */
    o.white_soft = true;
    diag_clear(t->d);
    ir_module_free(compile_file(t, "m.onnx", o, false));
    assert_int_equal(diag_count(t->d, DIAG_WARNING), 0); /* unprofitable matmuls stay f32 */
}

/* ---- D. numerics ----------------------------------------------------------------------------- */

/* onnxruntime 21345: with all nodes blocked the result still differed, because constants had been clamped. */
static void test_all_black_is_fp32(void **state)
{
    static result f32, black;
    static const char list[] = "[nodes]\n* = fp32\n";
    scratch *t = *state;
    scratch_write(t, "black.amplist", list, sizeof list - 1);
    const char *path = scratch_path(t, "black.amplist");
    model m = new_product();
    model_tensor(&m, TENSOR_FLOATS("mask", "2", 0, -1e9f));
    model_tensor(&m, TENSOR_FLOATS("large", "2,2", 1e6f, 1e-9f, -1e-9f, 3));
    model_node(&m, "MatMul", "h,large", "g");
    model_node(&m, "Add", "g,mask", "a");
    node n = node_new("Softmax", "a", "s");
    model_add(&m, &n);
    model_node(&m, "Add", "s,h", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    model_output(&m, "a", ONNX_float32, "N,2");
    save(t, &m);
    compile_options o = options_at(PASS_O1);
    o.lists = (pass_strings){&path, 1};
    run(t, "m.onnx", options_at(PASS_O0), small, &f32);
    run(t, "m.onnx", o, small, &black);
    assert_int_equal(f32.count, black.count);
    assert_memory_equal(f32.items, black.items, (size_t)f32.count * sizeof *f32.items);
}

/* Model-Optimizer: a tiny negative weight became the smallest positive number. */
static void test_tiny_negative_weights(void **state)
{
    scratch *t = *state;
    model m = new_model("2");
    model_tensor(&m, TENSOR_FLOATS("subnormal", "2,2", -1e-7f, 1e-7f, -2e-7f, -1e-6f));
    model_node(&m, "MatMul", "x,subnormal", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    save(t, &m);
    onnx_file *f = convert(t, false);
    assert_int_equal(type_of_tensor(f, "subnormal"), ONNX_float16);
    onnx_file_close(f);
    static result written;
    run(t, "new.onnx", options_at(PASS_O0), (input){1, 2, 1000}, &written);
    assert_true(written.items[0] < 0); /* -1e-4 - 4e-4 */
    assert_true(fabs(written.items[0] + 5e-4) < 5e-5);
}

/* pytorch 40497: weights flushed to zero in fp16; onnxconverter-common clamped large ones to 1e4. */
static void test_weights_that_fp16_cannot_hold(void **state)
{
    model m = new_model("2");
    model_tensor(&m, TENSOR_FLOATS("tiny", "2,2", -1e-9f, 2e-9f, 3e-9f, -4e-9f));
    model_tensor(&m, TENSOR_FLOATS("huge", "2,2", 1e9f, -2e9f, 3, 4e9f));
    model_tensor(&m, TENSOR_FLOATS("fine", "2,2", 20000, 1, 2, -30000));
    model_node(&m, "MatMul", "x,tiny", "a");
    model_node(&m, "MatMul", "a,huge", "b");
    model_node(&m, "MatMul", "x,fine", "c");
    model_output(&m, "b", ONNX_float32, "N,2");
    model_output(&m, "c", ONNX_float32, "N,2");
    onnx_file *f = check(*state, &m, (input){3, 2, 0.01f}, 5e-3);
    assert_int_equal(type_of_tensor(f, "tiny"), ONNX_float32);
    assert_int_equal(type_of_tensor(f, "huge"), ONNX_float32);
    assert_int_equal(type_of_tensor(f, "fine"), ONNX_float16);
    onnx_file_close(f);
}

/* onnxconverter-common 323: a mean over many elements became 0 or NaN. */
static void test_mean_of_many(void **state)
{
    model m = new_model("4096");
    node n = node_new("Reshape", "x,shape", "r");
    model_tensor(&m, TENSOR_INTS("shape", "2", -1, 64));
    model_add(&m, &n);
    model_node(&m, "MatMul", "r,r2", "p");
    static float eye[64 * 64];
    for (int i = 0; i < 64; i++) eye[i * 65] = 1;
    model_tensor(&m, tensor_new("r2", 1, "64,64", eye, sizeof eye));
    n = node_new("ReduceMean", "p", "y");
    node_int(&n, "keepdims", 0);
    model_add(&m, &n);
    n = node_new("ReduceSum", "p", "z");
    node_int(&n, "keepdims", 0);
    model_add(&m, &n);
    model_output(&m, "y", ONNX_float32, "");
    model_output(&m, "z", ONNX_float32, "");
    onnx_file_close(check(*state, &m, (input){4, 4096, 0.5f}, 5e-3));
}

/* Model-Optimizer's max_depth_of_reduction, off by default: dot products that exceed fp16 although no term is large. */
static void test_sum_of_many(void **state)
{
    enum { TERMS = 70000 };
    static float w[2 * TERMS];
    for (int i = 0; i < TERMS; i++) w[2 * i] = 1, w[2 * i + 1] = i % 2 ? 0.5f : -0.5f;
    model m = new_model("70000");
    model_tensor(&m, tensor_new("w", 1, "70000,2", w, sizeof w));
    model_tensor(&m, TENSOR_FLOATS("count", "", 70000));
    model_node(&m, "MatMul", "x,w", "h");
    model_node(&m, "Div", "h,count", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    onnx_file *f = check(*state, &m, (input){1, TERMS, 1}, 5e-3);
    assert_int_equal(type_of_tensor(f, "w"), ONNX_float32);
    onnx_file_close(f);
}

/* TensorRT 4493, 2564: the squares and the eps of a LayerNorm written as separate operators. */
static void test_layer_norm_of_large_rows(void **state)
{
    model m = new_model("2");
    model_tensor(&m, TENSOR_FLOATS("w", "2,2", 300, 1, -1, 300));
    model_tensor(&m, TENSOR_FLOATS("two", "", 2));
    model_tensor(&m, TENSOR_FLOATS("eps", "", 1e-12f));
    model_node(&m, "MatMul", "x,w", "h");
    node mean = node_new("ReduceMean", "h", "m"), variance = node_new("ReduceMean", "q", "v");
    node_ints(&mean, "axes", "1");
    node_ints(&variance, "axes", "1");
    model_add(&m, &mean);
    model_node(&m, "Sub", "h,m", "d");
    model_node(&m, "Pow", "d,two", "q");
    model_add(&m, &variance);
    model_node(&m, "Add", "v,eps", "g");
    model_node(&m, "Sqrt", "g", "s");
    model_node(&m, "Div", "d,s", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    onnx_file_close(check(*state, &m, (input){3, 2, 20}, 5e-3));
}

/* transformers 17306, flax 982: masks of -1e9 and of the lowest f32 became infinite, a fully masked row NaN. */
static void test_masked_row(void **state)
{
    model m = new_product();
    model_tensor(&m, TENSOR_FLOATS("mask", "2", -1e9f, -1e9f));
    model_tensor(&m, TENSOR_FLOATS("lowest", "1", -3.4028235e38f));
    model_tensor(&m, TENSOR_FLOATS("one", "2", 1, 1));
    model_node(&m, "Mul", "one,lowest", "extended");
    model_node(&m, "Add", "h,mask", "a");
    node n = node_new("Softmax", "a", "y");
    model_add(&m, &n);
    model_node(&m, "Add", "h,extended", "b");
    n = node_new("Softmax", "b", "z");
    model_add(&m, &n);
    model_output(&m, "y", ONNX_float32, "N,2");
    model_output(&m, "z", ONNX_float32, "N,2");
    static result own;
    scratch *t = *state;
    save(t, &m);
    run(t, "m.onnx", options_at(PASS_O1), small, &own);
    for (int i = 0; i < own.count; i++) assert_true(own.items[i] >= 0 && own.items[i] <= 1);
    onnx_file_close(convert(t, false));
    run(t, "new.onnx", options_at(PASS_O0), small, &own);
    for (int i = 0; i < own.count; i++) assert_true(own.items[i] >= 0 && own.items[i] <= 1);
}

/* TensorRT 2781: a long chain of residual additions. */
static void test_deep_residual(void **state)
{
    model m = new_product();
    char names[64], from[16] = "h", to[16], branch[16];
    model_tensor(&m, TENSOR_FLOATS("r", "2,2", 0.01f, 0.02f, -0.01f, 0.03f));
    for (int i = 0; i < 64; i++) {
        snprintf(names, sizeof names, "%s,r", from);
        snprintf(branch, sizeof branch, "m%d", i);
        model_node(&m, "MatMul", names, branch);
        snprintf(names, sizeof names, "%s,%s", from, branch);
        snprintf(to, sizeof to, i == 63 ? "y" : "a%d", i);
        model_node(&m, "Add", names, to);
        memcpy(from, to, sizeof from);
    }
    model_output(&m, "y", ONNX_float32, "N,2");
    onnx_file *f = check(*state, &m, small, 2e-2);
    assert_int_equal(count_ops(f, "Cast"), 2);
    onnx_file_close(f);
}

/* coreai-torch 54: running statistics beyond the fp16 range. */
static void test_batch_norm_statistics(void **state)
{
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "N,2");
    model_tensor(&m, TENSOR_FLOATS("w", "2,2", 1, 0, 0, 1));
    model_tensor(&m, TENSOR_FLOATS("scale", "2", 1, 2));
    model_tensor(&m, TENSOR_FLOATS("bias", "2", 0, 1));
    model_tensor(&m, TENSOR_FLOATS("mean", "2", 0, 1));
    model_tensor(&m, TENSOR_FLOATS("var", "2", 1e6f, 1e-9f));
    model_node(&m, "MatMul", "x,w", "h");
    model_node(&m, "BatchNormalization", "h,scale,bias,mean,var", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    onnx_file *f = check(*state, &m, small, 5e-3);
    assert_int_equal(type_of_tensor(f, "var"), ONNX_float32);
    onnx_file_close(f);
}

/* TensorRT 4540: LayerNorm was requested in fp32, and the surrounding block became fp32 too. */
static void test_one_node_in_fp32(void **state)
{
    scratch *t = *state;
    static const char *const named[] = {"middle"};
    model m = new_product();
    node n = node_new("Tanh", "h", "a");
    wire_text(&n, 3, "middle");
    model_add(&m, &n);
    model_node(&m, "MatMul", "a,w", "b");
    model_node(&m, "Relu", "b", "y");
    model_output(&m, "y", ONNX_float32, "N,2");
    save(t, &m);
    compile_options o = options_at(PASS_O1);
    o.fp32_nodes = (pass_strings){named, 1};
    ir_module *module = compile_file(t, "m.onnx", o, false);
    for (const ir_node *k = ir_graph_find(module, "infer")->first; k; k = k->next)
        if (k->loc.op && k->n_out == 1)
            assert_int_equal(ir_in(k, 0)->type.dtype, strcmp(k->loc.op, "Tanh") == 0 ? IR_f32 : IR_f16);
    ir_module_free(module);
}

/* TensorRT 4616, 3692: "the first 1301 layers in fp32": messages that name no node of the model. */
static void test_answers_name_nodes(void **state)
{
    scratch *t = *state;
    static char told[4096];
    model m = new_product();
    node n = node_new("Exp", "h", "a");
    wire_text(&n, 3, "block/exp");
    model_add(&m, &n);
    n = node_new("Relu", "a", "y");
    wire_text(&n, 3, "block/relu");
    model_add(&m, &n);
    model_output(&m, "y", ONNX_float32, "N,2");
    save(t, &m);
    compile_options o = options_at(PASS_O1);
    o.explain = "block/relu";
    FILE *text = fmemopen(told, sizeof told, "w");
    ir_module_free(compile_told(t, "m.onnx", o, false, text));
    fclose(text);
    assert_non_null(strstr(told, "block/relu (Relu): clear, fp32"));
    assert_non_null(strstr(told, "cause: block/exp (Exp)"));
}

/* OpenVINO 21238: no way to specify which layers stay in fp32. */
static void test_layers_by_name(void **state)
{
    static const char list[] = "[nodes]\nencoder/* = fp32\n";
    scratch *t = *state;
    scratch_write(t, "layers.amplist", list, sizeof list - 1);
    const char *path = scratch_path(t, "layers.amplist");
    model m = new_model("2");
    model_tensor(&m, TENSOR_FLOATS("w", "2,2", 1, 2, 3, 4));
    for (int i = 0; i < 4; i++) {
        static const char *const values[] = {"x,w", "a", "a,w", "b", "b,w", "c", "c,w", "y"};
        static const char *const names[] = {"encoder/1", "encoder/2", "decoder/1", "decoder/encoder"};
        node n = node_new("MatMul", values[2 * i], values[2 * i + 1]);
        wire_text(&n, 3, names[i]);
        model_add(&m, &n);
    }
    model_output(&m, "y", ONNX_float32, "N,2");
    save(t, &m);
    compile_options o = options_at(PASS_O1);
    o.lists = (pass_strings){&path, 1};
    ir_module *module = compile_file(t, "m.onnx", o, false);
    for (const ir_node *n = ir_graph_find(module, "infer")->first; n; n = n->next)
        if (n->op == IR_OP_matmul)
            assert_int_equal(ir_in(n, 0)->type.dtype, strncmp(n->loc.node, "encoder/", 8) == 0 ? IR_f32 : IR_f16);
    ir_module_free(module);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_TEST(test_cast_to_float_before_black),
        SCRATCH_TEST(test_shared_initializer),
        SCRATCH_TEST(test_blocked_node_is_output),
        SCRATCH_TEST(test_same_tensor_twice),
        SCRATCH_TEST(test_integer_operands),
        SCRATCH_TEST(test_concat_of_both_types),
        SCRATCH_TEST(test_resize_scales),
        SCRATCH_TEST(test_captured_value),
        SCRATCH_TEST(test_order_of_nodes),
        SCRATCH_TEST(test_carried_state),
        SCRATCH_TEST(test_bfloat16),
        SCRATCH_TEST(test_values_beside_the_model),
        SCRATCH_TEST(test_many_nodes),
        SCRATCH_TEST(test_one_cast_for_all_readers),
        SCRATCH_TEST(test_casts_of_the_model),
        SCRATCH_TEST(test_broadcast_gradient),
        SCRATCH_TEST(test_norm_without_casts),
        SCRATCH_TEST(test_loss_of_time_is_told),
        SCRATCH_TEST(test_all_black_is_fp32),
        SCRATCH_TEST(test_tiny_negative_weights),
        SCRATCH_TEST(test_weights_that_fp16_cannot_hold),
        SCRATCH_TEST(test_mean_of_many),
        SCRATCH_TEST(test_sum_of_many),
        SCRATCH_TEST(test_layer_norm_of_large_rows),
        SCRATCH_TEST(test_masked_row),
        SCRATCH_TEST(test_deep_residual),
        SCRATCH_TEST(test_batch_norm_statistics),
        SCRATCH_TEST(test_one_node_in_fp32),
        SCRATCH_TEST(test_answers_name_nodes),
        SCRATCH_TEST(test_layers_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
