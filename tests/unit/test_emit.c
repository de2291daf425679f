/* test_emit.c - emits an IR graph as an ONNX model: reading it back computes the same, and its names, types and
 * weights are as expected. */
#include "frontend/onnx.h"
#include "frontend/read/tensor.h"
#include "passes/passes.h"
#include "runtime/api/export.h"
#include "runtime/data/npz.h"
#include "runtime/session/session.h"
#include "tests/compile.h"
#include "tests/unit/model_writer.h"
#include "tests/unit/scratch.h"

#include <math.h>

#define GOLDENS AMPC_SOURCE_DIR "/tests/goldens"

/* ---- compiling and emitting ------------------------------------------------------------------ */

/* Returns NULL if an operator is not supported. */
static ir_module *compile_model(scratch *t, const char *path, bool opaque, pass_level level, ir_dtype low)
{
    ir_module *m;
    const onnx_import_options import = {.opaque = opaque};
    ampc_status status = onnx_import(path, &import, t->d, &m);
    if (status == AMPC_UNSUPPORTED) {
        diag_clear(t->d);
        return NULL;
    }
    if (status != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    compile_options o = compile_options_default();
    o.level = level;
    o.low = low;
    o.plain_runtime = true;
    if (test_compile(m, &o, t->d) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    return m;
}

static void emit_to(scratch *t, const ir_module *m, const char *name)
{
    if (rt_emit_onnx(m, "infer", scratch_path(t, name), t->d) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
}

static ir_module *read_back(scratch *t)
{
    ir_module *m;
    if (onnx_import(scratch_path(t, "new.onnx"), NULL, t->d, &m) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    return m;
}

/* Compiles and emits a model written by the test. Returns the decoded result, which the caller closes. */
static onnx_file *emitted(scratch *t, wire file, pass_level level, ir_dtype low)
{
    scratch_write(t, "m.onnx", file.bytes, file.size);
    wire_free(&file);
    ir_module *m = compile_model(t, scratch_path(t, "m.onnx"), true, level, low);
    assert_non_null(m);
    emit_to(t, m, "new.onnx");
    ir_module_free(m);
    onnx_file *f;
    assert_int_equal(onnx_file_open(scratch_path(t, "new.onnx"), t->d, &f), AMPC_OK);
    return f;
}

static const Onnx__NodeProto *find_node(const Onnx__GraphProto *g, const char *op)
{
    for (size_t i = 0; i < g->n_node; i++)
        if (strcmp(g->node[i]->op_type, op) == 0) return g->node[i];
    fail_msg("no %s", op);
    return NULL;
}

static const Onnx__NodeProto *find_op(const onnx_file *f, const char *op) { return find_node(f->model->graph, op); }

static const Onnx__GraphProto *graph_of(const Onnx__NodeProto *n, const char *attribute)
{
    for (size_t i = 0; i < n->n_attribute; i++)
        if (strcmp(n->attribute[i]->name, attribute) == 0) return n->attribute[i]->g;
    fail_msg("no attribute %s", attribute);
    return NULL;
}

static size_t count_ops(const onnx_file *f, const char *op)
{
    size_t n = 0;
    for (size_t i = 0; i < f->model->graph->n_node; i++) n += strcmp(f->model->graph->node[i]->op_type, op) == 0;
    return n;
}

static const Onnx__TensorProto *find_tensor(const onnx_file *f, const char *name)
{
    for (size_t i = 0; i < f->model->graph->n_initializer; i++)
        if (strcmp(f->model->graph->initializer[i]->name, name) == 0) return f->model->graph->initializer[i];
    fail_msg("no initializer %s", name);
    return NULL;
}

static int64_t opset_of(const onnx_file *f) { return f->model->opset_import[0]->version; }

/* ---- complete networks ----------------------------------------------------------------------- */

static int inputs_of(const ir_module *m, const char *graph, const rt_arrays *arrays, rt_tensor *out)
{
    const ir_graph *g = ir_graph_find(m, graph);
    int n = 0;
    for (size_t i = 0; i < g->inputs.count; i++) {
        char key[256];
        snprintf(key, sizeof key, "input/%s", g->inputs.items[i]->name);
        const rt_array *a = rt_arrays_find(arrays, key);
        assert_non_null(a);
        out[n] = (rt_tensor){.name = g->inputs.items[i]->name, .dtype = a->dtype, .rank = a->rank, .data = a->data};
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
    if (status == AMPC_OK) status = rt_session_run(s, graph, inputs, inputs_of(m, graph, arrays, inputs), t->d);
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

/* The emitted model, read back, computes the same as the module. */
static void check_round_trip(scratch *t, const char *name, pass_level level, ir_dtype low, double most)
{
    char path[512];
    rt_arrays arrays;
    snprintf(path, sizeof path, GOLDENS "/%s/model.onnx", name);
    ir_module *m = compile_model(t, path, false, level, low);
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
    rt_arrays_clear(&arrays);
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

static void test_goldens_fp32(void **state) { check_goldens(*state, PASS_O0, IR_f16, 1e-6); }
static void test_goldens_fp16(void **state) { check_goldens(*state, PASS_O1, IR_f16, 5e-3); }
static void test_goldens_bf16(void **state) { check_goldens(*state, PASS_O1, IR_bf16, 4e-2); }

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

static void named(model *m, const char *op, const char *inputs, const char *name)
{
    node n = node_new(op, inputs, name);
    wire_text(&n, 3, name);
    if (strcmp(op, "ReduceMean") == 0 && !strchr(inputs, ',')) node_ints(&n, "axes", "-1");
    model_add(m, &n);
}

/* LayerNorm and GELU in PyTorch's spelling; the exponent is an integer. */
static wire written_out(int opset)
{
    model m = model_new(opset);
    model_input(&m, "x", ONNX_float32, "N,4");
    model_tensor(&m, TENSOR_FLOATS("w", "4,4", 1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1));
    model_tensor(&m, TENSOR_FLOATS("scale", "4", 1, 2, 3, 4));
    model_tensor(&m, TENSOR_FLOATS("bias", "4", 1, -1, 1, -1));
    model_tensor(&m, TENSOR_INTS("two", "", 2));
    model_tensor(&m, TENSOR_FLOATS("eps", "", 1e-5f));
    model_tensor(&m, TENSOR_FLOATS("root", "", 1.41421354f));
    model_tensor(&m, TENSOR_FLOATS("one", "", 1));
    model_tensor(&m, TENSOR_FLOATS("half", "", 0.5f));
    named(&m, "MatMul", "x,w", "fc");
    model_tensor(&m, TENSOR_INTS("last", "1", -1));
    named(&m, "ReduceMean", opset < 18 ? "fc" : "fc,last", "ln/ReduceMean");
    named(&m, "Sub", "fc,ln/ReduceMean", "ln/Sub");
    named(&m, "Pow", "ln/Sub,two", "ln/Pow");
    named(&m, "ReduceMean", opset < 18 ? "ln/Pow" : "ln/Pow,last", "ln/ReduceMean_1");
    named(&m, "Add", "ln/ReduceMean_1,eps", "ln/Add");
    named(&m, "Sqrt", "ln/Add", "ln/Sqrt");
    named(&m, "Div", "ln/Sub,ln/Sqrt", "ln/Div");
    named(&m, "Mul", "ln/Div,scale", "ln/Mul");
    named(&m, "Add", "ln/Mul,bias", "ln/Add_1");
    named(&m, "Div", "ln/Add_1,root", "gelu/Div");
    named(&m, "Erf", "gelu/Div", "gelu/Erf");
    named(&m, "Add", "gelu/Erf,one", "gelu/Add");
    named(&m, "Mul", "ln/Add_1,gelu/Add", "gelu/Mul");
    named(&m, "Mul", "gelu/Mul,half", "gelu/Mul_1");
    named(&m, "MatMul", "gelu/Mul_1,w", "y");
    model_output(&m, "y", ONNX_float32, NULL);
    return model_finish(&m);
}

/* A recognized pattern is emitted as one operator if the opset has it, otherwise as its parts with their original
 * names. */
static void test_patterns(void **state)
{
    scratch *t = *state;
    static const struct {
        int own;
        ir_dtype low;
        const char *last; /* of the GELU: operator */
        size_t erf;
    } cases[] = {{13, IR_f16, "Mul", 1}, {20, IR_f16, "Gelu", 0}, {13, IR_bf16, "Gelu", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        onnx_file *f = emitted(t, written_out(cases[i].own), PASS_O1, cases[i].low);
        assert_string_equal(find_op(f, "LayerNormalization")->name, "ln/Add_1");
        assert_int_equal(count_ops(f, "ReduceMean") + count_ops(f, "Pow") + count_ops(f, "Sqrt"), 0);
        assert_int_equal(count_ops(f, "Cast"), 2); /* of the input and of the output */
        assert_int_equal(count_ops(f, "Erf"), cases[i].erf);
        bool last = false;
        for (size_t k = 0; k < f->model->graph->n_node; k++)
            last |= strcmp(f->model->graph->node[k]->op_type, cases[i].last) == 0 &&
                    strcmp(f->model->graph->node[k]->name, "gelu/Mul_1") == 0;
        assert_true(last);
        if (cases[i].erf) {
            assert_string_equal(find_op(f, "Erf")->name, "gelu/Erf");
            assert_string_equal(find_op(f, "Div")->name, "gelu/Div");
            assert_string_equal(find_op(f, "Add")->name, "gelu/Add");
            assert_string_equal(find_op(f, "Mul")->name, "gelu/Mul");
        }
        onnx_file_close(f);
    }
}

/* A loss in the model is an ordinary output: no training step is generated. */
static void test_loss_stays(void **state)
{
    scratch *t = *state;
    onnx_file *f;
    ir_module *m = compile_model(t, GOLDENS "/bert_mlm/model.onnx", true, PASS_O1, IR_f16);
    assert_int_equal(m->graphs.count, 1);
    emit_to(t, m, "new.onnx");
    ir_module_free(m);
    assert_int_equal(onnx_file_open(scratch_path(t, "new.onnx"), t->d, &f), AMPC_OK);
    assert_int_equal(f->model->graph->n_input, 4);
    assert_int_equal(f->model->graph->n_output, 2);
    onnx_file_close(f);
}

/* A result that is several outputs; an input and an initializer that are outputs. */
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

/* Used by a white and a black operator: stored once and cast for one of them. */
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
    static const char list[] = "[nodes]\n* = fp16\n";
    scratch_write(t, "low.amplist", list, sizeof list - 1);
    const char *path = scratch_path(t, "low.amplist");
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "2,2");
    model_tensor(&m, TENSOR_FLOATS("w", "2,2", 1, -1e6f, 3, 65504));
    model_node(&m, "MatMul", "x,w", "y");
    model_output(&m, "y", ONNX_float32, NULL);
    wire file = model_finish(&m);
    scratch_write(t, "m.onnx", file.bytes, file.size);
    wire_free(&file);
    compile_options o = compile_options_default();
    o.lists = (pass_strings){&path, 1};
    o.plain_runtime = true;
    ir_module *module;
    assert_int_equal(onnx_import(scratch_path(t, "m.onnx"), NULL, t->d, &module), AMPC_OK);
    assert_int_equal(test_compile(module, &o, t->d), AMPC_OK);
    emit_to(t, module, "new.onnx");
    assert_int_equal(diag_count(t->d, DIAG_WARNING), 1);
    ir_module_free(module);
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

/* Above the limit, values are stored in a separate file; reading both files restores them. */
static void test_external_data(void **state)
{
    scratch *t = *state;
    parts out = {0};
    rt_arrays arrays;
    ir_module *m = compile_model(t, GOLDENS "/lenet_bn/model.onnx", true, PASS_O1, IR_f16);
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
    rt_arrays_clear(&arrays);
    rt_session_close(a);
    rt_session_close(b);
    ir_module_free(m);
    ir_module_free(back);
    wire_free(&out.part[0]);
    wire_free(&out.part[1]);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Asserts that the first output of the emitted model, read back, still has its type. */
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

/* ---- opaque operators ------------------------------------------------------------------------ */

static void declare(model *m, const char *name, int type, const char *dims) { model_value(m, 13, name, type, dims); }

/* x -> MatMul -> h -> Foo(h, absent, w) of another domain -> y */
static wire opaque_model(bool declared)
{
    model m = model_new(13);
    model_input(&m, "x", ONNX_float32, "N,2");
    model_tensor(&m, TENSOR_FLOATS("w", "2,2", 1, 2, 3, 4));
    model_node(&m, "MatMul", "x,w", "h");
    node n = node_new("Foo", "h,,w", "f,,i");
    wire_text(&n, 7, "com.acme");
    wire_text(&n, 3, "my/foo");
    node_text(&n, "how", "well");
    model_add(&m, &n);
    model_node(&m, "MatMul", "f,w", "y");
    if (declared) declare(&m, "f", ONNX_float32, "N,2");
    if (declared) declare(&m, "i", ONNX_int64, "K");
    model_output(&m, "y", ONNX_float32, NULL);
    model_output(&m, "i", ONNX_int64, NULL);
    wire file = model_finish(&m);
    model_opset(&file, "com.acme", 3);
    return file;
}

static void test_opaque(void **state)
{
    scratch *t = *state;
    onnx_file *f = emitted(t, opaque_model(true), PASS_O1, IR_f16);
    const Onnx__NodeProto *n = find_op(f, "Foo");
    assert_string_equal(n->domain, "com.acme");
    assert_string_equal(n->name, "my/foo");
    assert_int_equal(n->n_input, 3);
    assert_string_not_equal(n->input[0], "h"); /* which is f16: cast back */
    assert_string_equal(n->input[1], "");
    assert_int_equal(n->n_output, 3);
    assert_string_equal(n->output[0], "f");
    assert_string_equal(n->output[1], "");
    assert_string_equal(n->output[2], "i");
    assert_int_equal(n->n_attribute, 1);
    assert_memory_equal(n->attribute[0]->s.data, "well", 4);
    assert_int_equal(f->model->n_opset_import, 2);
    assert_int_equal(f->model->opset_import[1]->version, 3);
    assert_int_equal(find_tensor(f, "w")->data_type, ONNX_float32); /* Foo reads it unchanged */
    onnx_file_close(f);
}

/* Printing and parsing preserve the node. */
static void test_opaque_in_text(void **state)
{
    scratch *t = *state;
    wire file = opaque_model(true);
    const onnx_import_options o = {.opaque = true};
    ir_module *m, *again;
    assert_int_equal(onnx_import_memory(file.bytes, file.size, "m.onnx", &o, t->d, &m), AMPC_OK);
    arena *a = arena_new(0);
    const char *text = ir_print(m, a);
    assert_int_equal(ir_parse(text, strlen(text), "m.ir", t->d, &again), AMPC_OK);
    assert_string_equal(ir_print(again, a), text);
    assert_int_equal(ir_verify(again, t->d), AMPC_OK);
    arena_free(a);
    ir_module_free(m);
    ir_module_free(again);
    wire_free(&file);
}

static void test_opaque_is_refused(void **state)
{
    scratch *t = *state;
    const onnx_import_options o = {.opaque = true};
    ir_module *m;
    wire file = opaque_model(false);
    assert_int_equal(onnx_import_memory(file.bytes, file.size, "m.onnx", &o, t->d, &m), AMPC_UNSUPPORTED);
    scratch_expect(t, "does not declare the type of its result 'f'");
    wire_free(&file);
    file = opaque_model(true);
    assert_int_equal(onnx_import_memory(file.bytes, file.size, "m.onnx", NULL, t->d, &m), AMPC_UNSUPPORTED);
    scratch_expect(t, "com.acme.Foo is not supported");
    wire_free(&file);
}

/* Opaque operators have no kernels; the error lists all of them. */
static void test_opaque_does_not_run(void **state)
{
    static const char text[] = "ampc-ir 1\ngraph @infer(@x : f32[2,2]) {\n"
                               "  %a = foreign @x {types=\"f32[2,2]\", layout=\"x>x\"} : f32[2,2] !Foo \"a\"\n"
                               "  %b = foreign %a {types=\"f32[2,2]\", layout=\"x>x\"} : f32[2,2] !Bar \"b\"\n"
                               "  %c = foreign %b {types=\"f32[2,2]\", layout=\"x>x\"} : f32[2,2] !Foo \"c\"\n"
                               "  output \"c\" = %c\n}\n";
    scratch *t = *state;
    float x[4] = {0};
    rt_tensor in = {.name = "x", .dtype = IR_f32, .rank = 2, .dims = {2, 2}, .data = x};
    ir_module *m;
    rt_session *s = NULL;
    assert_int_equal(ir_parse(text, sizeof text - 1, "m.ir", t->d, &m), AMPC_OK);
    ampc_status status = rt_session_open(m, &(rt_session_options){.device = "cpu"}, t->d, &s);
    if (status == AMPC_OK) status = rt_session_run(s, "infer", &in, 1, t->d);
    assert_int_equal(status, AMPC_UNSUPPORTED);
    scratch_expect(t, "node 'a' (Foo): error: no kernel on device cpu for: Foo (2 nodes), Bar (1 node)");
    rt_session_close(s);
    ir_module_free(m);
}

static model branch(const char *op, const char *inputs, const char *result)
{
    model b = model_new(13);
    model_node(&b, op, inputs, result);
    model_output(&b, result, ONNX_float32, "2,2");
    return b;
}

/* An If whose branches capture values, one of which has become fp16. */
static void test_captures(void **state)
{
    scratch *t = *state;
    model m = model_new(13), a = branch("Add", "h,x", "a"), b = branch("Mul", "h,w", "b");
    model_input(&m, "c", ONNX_bool, "");
    model_input(&m, "x", ONNX_float32, "2,2");
    model_tensor(&m, TENSOR_FLOATS("w", "2,2", 1, 2, 3, 4));
    model_node(&m, "MatMul", "x,w", "h");
    node n = node_new("If", "c", "f");
    node_graph(&n, "then_branch", &a);
    node_graph(&n, "else_branch", &b);
    model_add(&m, &n);
    model_node(&m, "MatMul", "f,w", "y");
    declare(&m, "f", ONNX_float32, "2,2");
    model_output(&m, "y", ONNX_float32, NULL);
    onnx_file *f = emitted(t, model_finish(&m), PASS_O1, IR_f16);
    const Onnx__NodeProto *branches = find_op(f, "If");
    const Onnx__GraphProto *then_graph = graph_of(branches, "then_branch"),
                           *else_graph = graph_of(branches, "else_branch");
    const Onnx__NodeProto *add = find_node(then_graph, "Add"), *mul = find_node(else_graph, "Mul");
    assert_string_equal(add->input[0], "h"); /* unchanged, without a cast to f32 and back */
    assert_string_equal(mul->input[0], "h");
    const Onnx__NodeProto *cast = find_op(f, "Cast"); /* for the outer matmul, and the Add whose other operand is low */
    assert_string_equal(cast->input[0], "x");
    assert_string_equal(add->input[1], cast->output[0]);
    assert_string_equal(mul->input[1], "w");
    assert_int_equal(find_tensor(f, "w")->data_type, ONNX_float16);
    assert_int_equal(then_graph->output[0]->type->tensor_type->elem_type, ONNX_float32);
    assert_int_equal(else_graph->output[0]->type->tensor_type->elem_type, ONNX_float32);
    onnx_file_close(f);
}

/* Before opset 13 the axes of Unsqueeze were an attribute. In a subgraph they become an operand; if the branches have
 * different shapes, their graphs are passed through in their original form. */
static void check_changed_inside(scratch *t, const char *other, bool lowered)
{
    parts out = {0};
    const onnx_emit_options o = {"new.data", 0, collect, &out};
    model m = model_new(11), a = model_new(11), b = model_new(11);
    model *branches[] = {&a, &b};
    model_input(&m, "c", ONNX_bool, "");
    model_input(&m, "x", ONNX_float32, "2");
    node n = node_new("If", "c", "y");
    for (int i = 0; i < 2; i++) {
        node inner = node_new(i ? other : "Unsqueeze", "x", i ? "p" : "q");
        if (!i || lowered) node_ints(&inner, "axes", "0");
        model_add(branches[i], &inner);
        model_output(branches[i], i ? "p" : "q", ONNX_float32, i && !lowered ? "2" : "1,2");
        node_graph(&n, i ? "else_branch" : "then_branch", branches[i]);
    }
    model_add(&m, &n);
    model_output(&m, "y", ONNX_float32, "1,2");
    wire file = model_finish(&m);
    scratch_write(t, "m.onnx", file.bytes, file.size);
    wire_free(&file);
    ir_module *module = compile_model(t, scratch_path(t, "m.onnx"), true, PASS_O1, IR_f16);
    assert_int_equal(onnx_emit(module, "infer", &o, t->d), lowered ? AMPC_OK : AMPC_UNSUPPORTED);
    ir_module_free(module);
    for (int i = 0; i < 2; i++) free(out.part[i].bytes);
}

static void test_changed_inside(void **state)
{
    check_changed_inside(*state, "Unsqueeze", true);
    check_changed_inside(*state, "Neg", false);
    scratch_expect(*state, "Unsqueeze changed in opset 13");
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void test_training_is_refused(void **state)
{
    scratch *t = *state;
    parts out = {0};
    ir_module *m;
    const onnx_emit_options o = {"new.data", 0, collect, &out};
    compile_options p = compile_options_default();
    p.loss = "ce:logits,label";
    assert_int_equal(onnx_import(GOLDENS "/lenet_bn/model.onnx", NULL, t->d, &m), AMPC_OK);
    assert_int_equal(test_compile(m, &p, t->d), AMPC_OK);
    assert_int_equal(onnx_emit(m, "train_step", &o, t->d), AMPC_UNSUPPORTED);
    assert_int_equal(out.part[0].size + out.part[1].size, 0);
    scratch_expect(t, "in training mode");
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
    ir_module *m = compile_model(t, scratch_path(t, "m.onnx"), true, PASS_O1, IR_f16);
    scratch_write(t, "m.onnx", bytes.bytes, bytes.size / 2);
    assert_int_equal(onnx_emit(m, "infer", &o, t->d), AMPC_IO);
    scratch_expect(t, "the file changed");
    remove(scratch_path(t, "m.onnx"));
    assert_int_equal(onnx_emit(m, "infer", &o, t->d), AMPC_IO);
    scratch_expect(t, "cannot be opened");
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
        SCRATCH_TEST(test_patterns),
        SCRATCH_TEST(test_loss_stays),
        SCRATCH_TEST(test_outputs_share_a_value),
        SCRATCH_TEST(test_shared_weight),
        SCRATCH_TEST(test_overflow_is_told),
        SCRATCH_TEST(test_external_data),
        SCRATCH_TEST(test_symbolic_shapes),
        SCRATCH_TEST(test_opaque),
        SCRATCH_TEST(test_opaque_in_text),
        SCRATCH_TEST(test_opaque_is_refused),
        SCRATCH_TEST(test_opaque_does_not_run),
        SCRATCH_TEST(test_captures),
        SCRATCH_TEST(test_changed_inside),
        SCRATCH_TEST(test_training_is_refused),
        SCRATCH_TEST(test_weights_that_are_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
