/* test_emit.c - a graph of the IR as an ONNX model: what is read back computes the same, and names,
 * types and weights are what they should be. */
#include "frontend/onnx.h"
#include "frontend/tensor.h"
#include "passes/passes.h"
#include "runtime/export.h"
#include "runtime/npz.h"
#include "runtime/session.h"
#include "tests/unit/model_writer.h"
#include "tests/unit/scratch.h"

#include <math.h>

#define GOLDENS AMPC_SOURCE_DIR "/tests/goldens"

/* ---- compiling, emitting --------------------------------------------------------------------- */

static ir_module *compile(scratch *t, const char *path, pass_level level, ir_dtype low)
{
    ir_module *m;
    ampc_status status = onnx_import(path, NULL, t->d, &m);
    if (status == AMPC_UNSUPPORTED) {
        diag_clear(t->d);
        return NULL;
    }
    if (status != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    pass_options o = pass_options_default();
    o.level = level;
    o.low = low;
    if (pass_compile(m, &o, t->d) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    return m;
}

static void emit_to(scratch *t, const ir_module *m, const char *name)
{
    if (rt_emit_onnx(m, "infer", scratch_path(t, name), t->d) != AMPC_OK)
        fail_msg("%s", diag_first_error(t->d));
}

static ir_module *read_back(scratch *t)
{
    ir_module *m;
    if (onnx_import(scratch_path(t, "new.onnx"), NULL, t->d, &m) != AMPC_OK)
        fail_msg("%s", diag_first_error(t->d));
    return m;
}

/* A model of the test's own, compiled and emitted; the result decoded: close it. */
static onnx_file *emitted(scratch *t, wire file, pass_level level, ir_dtype low)
{
    scratch_write(t, "m.onnx", file.bytes, file.size);
    wire_free(&file);
    ir_module *m = compile(t, scratch_path(t, "m.onnx"), level, low);
    assert_non_null(m);
    emit_to(t, m, "new.onnx");
    ir_module_free(m);
    onnx_file *f;
    assert_int_equal(onnx_file_open(scratch_path(t, "new.onnx"), t->d, &f), AMPC_OK);
    return f;
}

static const Onnx__NodeProto *find_op(const onnx_file *f, const char *op)
{
    for (size_t i = 0; i < f->model->graph->n_node; i++)
        if (strcmp(f->model->graph->node[i]->op_type, op) == 0) return f->model->graph->node[i];
    fail_msg("no %s", op);
    return NULL;
}

static size_t count_ops(const onnx_file *f, const char *op)
{
    size_t n = 0;
    for (size_t i = 0; i < f->model->graph->n_node; i++)
        n += strcmp(f->model->graph->node[i]->op_type, op) == 0;
    return n;
}

static const Onnx__TensorProto *find_tensor(const onnx_file *f, const char *name)
{
    for (size_t i = 0; i < f->model->graph->n_initializer; i++)
        if (strcmp(f->model->graph->initializer[i]->name, name) == 0) return f->model->graph->initializer[i];
    fail_msg("no initializer %s", name);
    return NULL;
}

static int64_t opset_of(const onnx_file *f)
{
    return f->model->opset_import[0]->version;
}

/* ---- whole networks -------------------------------------------------------------------------- */

static int inputs_of(const ir_module *m, const char *graph, const rt_arrays *arrays, rt_tensor *out)
{
    const ir_graph *g = ir_graph_find(m, graph);
    int n = 0;
    for (size_t i = 0; i < g->inputs.count; i++) {
        char key[256];
        snprintf(key, sizeof key, "input/%s", g->inputs.items[i]->name);
        const rt_array *a = rt_arrays_find(arrays, key);
        assert_non_null(a);
        out[n] = (rt_tensor){
            .name = g->inputs.items[i]->name, .dtype = a->dtype, .rank = a->rank, .data = a->data};
        memcpy(out[n].dims, a->dims, (size_t)a->rank * sizeof *a->dims);
        n++;
    }
    return n;
}

static rt_session *run(scratch *t, const ir_module *m, const char *graph, const rt_arrays *arrays)
{
    rt_session *s;
    rt_tensor inputs[8];
    const rt_session_options o = {.device = "cpu"};
    ampc_status status = rt_session_open(m, &o, t->d, &s);
    if (status == AMPC_OK)
        status = rt_session_run(s, graph, inputs, inputs_of(m, graph, arrays, inputs), t->d);
    if (status != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    return s;
}

static double distance(const rt_tensor *a, const rt_tensor *b)
{
    double difference = 0, largest = 0;
    int64_t n = 1;
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->rank, b->rank);
    for (int i = 0; i < a->rank; i++) {
        assert_int_equal(a->dims[i], b->dims[i]);
        n *= a->dims[i];
    }
    for (size_t i = 0, size = ir_dtype_size(a->dtype); i < (size_t)n; i++) {
        double x = ir_load_f64(a->dtype, (char *)a->data + i * size),
               y = ir_load_f64(b->dtype, (char *)b->data + i * size);
        difference = fmax(difference, isnan(x - y) ? INFINITY : fabs(x - y));
        largest = fmax(largest, fabs(y));
    }
    return difference / fmax(largest, 1e-30);
}

/* The emitted model, read back, does what the module does. */
static void check_round_trip(scratch *t, const char *name, pass_level level, ir_dtype low, double most)
{
    char path[512];
    rt_arrays arrays;
    snprintf(path, sizeof path, GOLDENS "/%s/model.onnx", name);
    ir_module *m = compile(t, path, level, low);
    if (!m) return;
    emit_to(t, m, "new.onnx");
    ir_module *back = read_back(t);
    snprintf(path, sizeof path, GOLDENS "/%s/golden.npz", name);
    assert_int_equal(rt_npz_read(path, IR_NO_DTYPE, t->d, &arrays), AMPC_OK);
    rt_session *a = run(t, m, "infer", &arrays), *b = run(t, back, "forward", &arrays);
    assert_int_equal(rt_session_output_count(a), rt_session_output_count(b));
    for (int i = 0; i < rt_session_output_count(a); i++) {
        const rt_tensor *x = rt_session_output_at(a, i), *y = rt_session_output_at(b, i);
        assert_string_equal(x->name, y->name);
        if (!(distance(x, y) <= most)) fail_msg("%s: %s differs by %g", name, x->name, distance(x, y));
    }
    rt_session_close(a);
    rt_session_close(b);
    ir_module_free(m);
    ir_module_free(back);
}

static void check_goldens(scratch *t, pass_level level, ir_dtype low, double most)
{
    DIR *dir = opendir(GOLDENS);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.' && e->d_type == DT_DIR) check_round_trip(t, e->d_name, level, low, most);
    closedir(dir);
}

static void test_goldens_fp32(void **state)
{
    check_goldens(*state, PASS_O0, IR_f16, 1e-6);
}
static void test_goldens_fp16(void **state)
{
    check_goldens(*state, PASS_O1, IR_f16, 5e-3);
}
static void test_goldens_bf16(void **state)
{
    check_goldens(*state, PASS_O1, IR_bf16, 4e-2);
}

/* ---- names and types ------------------------------------------------------------------------- */

static wire small_model(int opset)
{
    model m = model_new(opset);
    model_input(&m, "x in", ONNX_float32, "N,2");
    model_tensor(&m, TENSOR_FLOATS("fc/w", "2,2", 1, 2, 3, 4));
    model_tensor(&m, TENSOR_FLOATS("fc/b", "2", 1, -1));
    node n = node_new("Gemm", "x in,fc/w,fc/b", "h");
    wire_text(&n, 3, "fc/Gemm");
    model_add(&m, &n);
    n = node_new("Relu", "h", "y");
    wire_text(&n, 3, "act");
    model_add(&m, &n);
    model_output(&m, "y", ONNX_float32, NULL);
    return model_finish(&m);
}

static void test_names(void **state)
{
    scratch *t = *state;
    onnx_file *f = emitted(t, small_model(13), PASS_O1, IR_f16);
    const Onnx__GraphProto *g = f->model->graph;
    assert_int_equal(opset_of(f), 17);
    assert_int_equal(f->model->ir_version, 8);
    assert_string_equal(g->input[0]->name, "x in");
    assert_int_equal(g->input[0]->type->tensor_type->elem_type, ONNX_float32);
    assert_string_equal(g->input[0]->type->tensor_type->shape->dim[0]->dim_param, "N");
    assert_string_equal(g->output[0]->name, "y");
    assert_int_equal(g->output[0]->type->tensor_type->elem_type, ONNX_float32);
    assert_string_equal(find_op(f, "Gemm")->name, "fc/Gemm");
    assert_string_equal(find_op(f, "Relu")->name, "act");
    assert_int_equal(find_tensor(f, "fc/w")->data_type, ONNX_float16);
    assert_int_equal(find_tensor(f, "fc/b")->data_type, ONNX_float16);
    assert_int_equal(count_ops(f, "Cast"), 2); /* of the input and of the output */
    onnx_file_close(f);
}

static void test_opsets(void **state)
{
    scratch *t = *state;
    static const struct {
        int own;
        ir_dtype low;
        int64_t opset, ir_version;
    } cases[] = {{7, IR_f16, 17, 8}, {19, IR_f16, 19, 9}, {13, IR_bf16, 22, 10}, {24, IR_bf16, 24, 12}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        onnx_file *f = emitted(t, small_model(cases[i].own), PASS_O1, cases[i].low);
        assert_int_equal(opset_of(f), cases[i].opset);
        assert_int_equal(f->model->ir_version, cases[i].ir_version);
        onnx_file_close(f);
    }
}

/* A result that is several outputs, an input and an initializer that are outputs. */
static void test_outputs_share_a_value(void **state)
{
    scratch *t = *state;
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "2");
    model_tensor(&m, TENSOR_FLOATS("w", "2", 1, 2));
    model_node(&m, "Add", "x,w", "s");
    model_node(&m, "Identity", "s", "a");
    model_node(&m, "Identity", "s", "b");
    model_node(&m, "Identity", "x", "c");
    model_output(&m, "a", ONNX_float32, NULL);
    model_output(&m, "b", ONNX_float32, NULL);
    model_output(&m, "c", ONNX_float32, NULL);
    model_output(&m, "w", ONNX_float32, NULL);
    onnx_file *f = emitted(t, model_finish(&m), PASS_O0, IR_f16);
    assert_int_equal(f->model->graph->n_output, 4);
    assert_string_equal(find_op(f, "Add")->output[0], "a");
    assert_int_equal(count_ops(f, "Identity"), 3);
    onnx_file_close(f);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Read by a white and by a black operator: stored once, cast for the one. */
static void test_shared_weight(void **state)
{
    scratch *t = *state;
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "2,2");
    model_tensor(&m, TENSOR_FLOATS("w", "2,2", 1, 2, 3, 4));
    model_node(&m, "MatMul", "x,w", "y");
    model_node(&m, "Exp", "w", "z");
    model_output(&m, "y", ONNX_float32, NULL);
    model_output(&m, "z", ONNX_float32, NULL);
    onnx_file *f = emitted(t, model_finish(&m), PASS_O1, IR_f16);
    assert_int_equal(f->model->graph->n_initializer, 1);
    assert_int_equal(find_tensor(f, "w")->data_type, ONNX_float32);
    assert_string_equal(find_op(f, "Exp")->input[0], "w");
    assert_string_not_equal(find_op(f, "MatMul")->input[1], "w");
    onnx_file_close(f);
}

static void test_overflow_is_told(void **state)
{
    scratch *t = *state;
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "2,2");
    model_tensor(&m, TENSOR_FLOATS("w", "2,2", 1, -1e6f, 3, 65504));
    model_node(&m, "MatMul", "x,w", "y");
    model_output(&m, "y", ONNX_float32, NULL);
    onnx_file *f = emitted(t, model_finish(&m), PASS_O1, IR_f16);
    assert_int_equal(diag_count(t->d, DIAG_WARNING), 1);
    onnx_file_close(f);
}

typedef struct parts {
    wire part[2];
} parts;

static ampc_status collect(void *user, onnx_part part, const void *bytes, size_t n)
{
    parts *p = user;
    wire_raw(&p->part[part], bytes, n);
    return AMPC_OK;
}

/* Above the limit the values go into a file of their own; reading both back gives them. */
static void test_external_data(void **state)
{
    scratch *t = *state;
    parts out = {0};
    rt_arrays arrays;
    ir_module *m = compile(t, GOLDENS "/lenet_bn/model.onnx", PASS_O1, IR_f16);
    const onnx_emit_options o = {"new.data", 20000, collect, &out};
    assert_int_equal(onnx_emit(m, "infer", &o, t->d), AMPC_OK);
    assert_true(out.part[ONNX_PART_MODEL].size < 20000);
    assert_true(out.part[ONNX_PART_DATA].size > 20000);
    scratch_write(t, "new.onnx", out.part[ONNX_PART_MODEL].bytes, out.part[ONNX_PART_MODEL].size);
    scratch_write(t, "new.data", out.part[ONNX_PART_DATA].bytes, out.part[ONNX_PART_DATA].size);
    ir_module *back = read_back(t);
    assert_int_equal(rt_npz_read(GOLDENS "/lenet_bn/golden.npz", IR_NO_DTYPE, t->d, &arrays), AMPC_OK);
    rt_session *a = run(t, m, "infer", &arrays), *b = run(t, back, "forward", &arrays);
    assert_true(distance(rt_session_output_at(a, 0), rt_session_output_at(b, 0)) < 5e-3);
    rt_session_close(a);
    rt_session_close(b);
    ir_module_free(m);
    ir_module_free(back);
    wire_free(&out.part[0]);
    wire_free(&out.part[1]);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* The emitted model has, read back, the type of the first output that it had. */
static void check_type(scratch *t, model *m, const char *want)
{
    onnx_file_close(emitted(t, model_finish(m), PASS_O0, IR_f16));
    ir_module *back = read_back(t);
    arena *a = arena_new(0);
    const ir_node *y = ir_graph_find_output(ir_graph_find(back, "forward"), "y");
    assert_string_equal(ir_type_print(back, &ir_in(y, 0)->type, a), want);
    arena_free(a);
    ir_module_free(back);
}

static void test_symbolic_shapes(void **state)
{
    scratch *t = *state;
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "N,T,4");
    model_tensor(&m, TENSOR_INTS("shape", "2", -1, 4));
    model_node(&m, "Reshape", "x,shape", "y");
    model_output(&m, "y", ONNX_float32, NULL);
    check_type(t, &m, "f32[N*T,4]");

    m = model_new(17); /* [N,T,4] -> [T,2*N,2]: two unknowns */
    model_input(&m, "x", ONNX_float32, "N,T,4");
    model_tensor(&m, TENSOR_INTS("first", "1", 0));
    model_tensor(&m, TENSOR_INTS("second", "1", 1));
    model_tensor(&m, TENSOR_INTS("two", "1", 2));
    model_node(&m, "Shape", "x", "s");
    model_node(&m, "Gather", "s,first", "n");
    model_node(&m, "Gather", "s,second", "k");
    model_node(&m, "Mul", "n,two", "nn");
    node n = node_new("Concat", "k,nn,two", "shape");
    node_int(&n, "axis", 0);
    model_add(&m, &n);
    model_node(&m, "Reshape", "x,shape", "y");
    model_output(&m, "y", ONNX_float32, NULL);
    check_type(t, &m, "f32[T,2*N,2]");

    m = model_new(17); /* the type of an expansion, and positions */
    model_input(&m, "x", ONNX_float32, "N,1");
    model_input(&m, "z", ONNX_float32, "T");
    model_node(&m, "Shape", "z", "s");
    model_node(&m, "Expand", "x,s", "y");
    model_output(&m, "y", ONNX_float32, NULL);
    check_type(t, &m, "f32[N,T]");

    m = model_new(17); /* backwards, every second */
    model_input(&m, "x", ONNX_float32, "N,6");
    model_tensor(&m, TENSOR_INTS("starts", "2", -1, -1));
    model_tensor(&m, TENSOR_INTS("ends", "2", INT64_MIN, INT64_MIN));
    model_tensor(&m, TENSOR_INTS("axes", "2", 0, 1));
    model_tensor(&m, TENSOR_INTS("steps", "2", -1, -2));
    model_node(&m, "Slice", "x,starts,ends,axes,steps", "y");
    model_output(&m, "y", ONNX_float32, NULL);
    check_type(t, &m, "f32[N,3]");
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void test_training_is_refused(void **state)
{
    scratch *t = *state;
    parts out = {0};
    ir_module *m;
    const onnx_emit_options o = {"new.data", 0, collect, &out};
    pass_options p = pass_options_default();
    p.loss = "ce:logits,label";
    assert_int_equal(onnx_import(GOLDENS "/lenet_bn/model.onnx", NULL, t->d, &m), AMPC_OK);
    assert_int_equal(pass_compile(m, &p, t->d), AMPC_OK);
    assert_int_equal(onnx_emit(m, "train_step", &o, t->d), AMPC_UNSUPPORTED);
    assert_int_equal(out.part[0].size + out.part[1].size, 0);
    scratch_expect(t, "in training form");
    assert_int_equal(onnx_emit(m, "nothing", &o, t->d), AMPC_USAGE);
    ir_module_free(m);
}

static void test_weights_that_are_gone(void **state)
{
    scratch *t = *state;
    parts out = {0};
    const onnx_emit_options o = {"new.data", 0, collect, &out};
    float w[64 * 64] = {0};
    model file = model_new(17);
    model_input(&file, "x", ONNX_float32, "2,64");
    model_tensor(&file, tensor_new("w", ONNX_float32, "64,64", w, sizeof w));
    model_node(&file, "MatMul", "x,w", "y");
    model_output(&file, "y", ONNX_float32, NULL);
    wire bytes = model_finish(&file);
    scratch_write(t, "m.onnx", bytes.bytes, bytes.size);
    ir_module *m = compile(t, scratch_path(t, "m.onnx"), PASS_O1, IR_f16);
    scratch_write(t, "m.onnx", bytes.bytes, bytes.size / 2);
    assert_int_equal(onnx_emit(m, "infer", &o, t->d), AMPC_IO);
    scratch_expect(t, "the file changed");
    remove(scratch_path(t, "m.onnx"));
    assert_int_equal(onnx_emit(m, "infer", &o, t->d), AMPC_IO);
    scratch_expect(t, "cannot open");
    ir_module_free(m);
    wire_free(&bytes);
    wire_free(&out.part[0]);
    wire_free(&out.part[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_TEST(test_goldens_fp32),
        SCRATCH_TEST(test_goldens_fp16),
        SCRATCH_TEST(test_goldens_bf16),
        SCRATCH_TEST(test_names),
        SCRATCH_TEST(test_opsets),
        SCRATCH_TEST(test_outputs_share_a_value),
        SCRATCH_TEST(test_shared_weight),
        SCRATCH_TEST(test_overflow_is_told),
        SCRATCH_TEST(test_external_data),
        SCRATCH_TEST(test_symbolic_shapes),
        SCRATCH_TEST(test_training_is_refused),
        SCRATCH_TEST(test_weights_that_are_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
