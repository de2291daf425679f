/* test_emit.c - emitted models: names, types, opsets, weights, symbolic shapes, and what cannot be emitted. */
#include "tests/unit/emit_fixture.h"

/* ---- compiling and emitting ------------------------------------------------------------------ */

static size_t count_ops(const onnx_file *f, const char *op)
{
    size_t n = 0;
    for (size_t i = 0; i < f->model->graph->n_node; i++) n += strcmp(f->model->graph->node[i]->op_type, op) == 0;
    return n;
}

static int64_t opset_of(const onnx_file *f) { return f->model->opset_import[0]->version; }

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

TEST_SCRATCH(test_names)
{
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

TEST_SCRATCH(test_opsets)
{
    static const struct {
        int imported;
        ir_dtype low;
        int64_t opset, ir_version;
    } cases[] = {{7, IR_f16, 17, 8}, {19, IR_f16, 19, 9}, {13, IR_bf16, 22, 10}, {24, IR_bf16, 24, 12}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        onnx_file *f = emitted(t, small_model(cases[i].imported), PASS_O1, cases[i].low);
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
TEST_SCRATCH(test_patterns)
{
    static const struct {
        int opset;
        ir_dtype low;
        const char *last; /* of the GELU: operator */
        size_t erf;
    } cases[] = {{13, IR_f16, "Mul", 1}, {20, IR_f16, "Gelu", 0}, {13, IR_bf16, "Gelu", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        onnx_file *f = emitted(t, written_out(cases[i].opset), PASS_O1, cases[i].low);
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
TEST_SCRATCH(test_loss_stays)
{
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
TEST_SCRATCH(test_outputs_share_a_value)
{
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
TEST_SCRATCH(test_shared_weight)
{
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

/* Weights that are moved before they are used are stored in the type of their users, and no cast remains. */
TEST_SCRATCH(test_moved_weights)
{
    static const struct {
        const char *reader, *operands; /* of the moved table, besides the product; or NULL */
        int type;                      /* of the table */
        int casts;
    } rows[] = {
        {NULL, NULL, ONNX_float16, 2},         /* of the input and the output */
        {"Neg", "rows", ONNX_float32, 3},      /* moved as well, to an output, which is f32 */
        {"Add", "rows,rows", ONNX_float16, 3}, /* gray */
        {"Exp", "rows", ONNX_float32, 3},      /* black: the moved table is cast for the product */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        model m = model_new(17);
        model_input(&m, "x", ONNX_float32, "2,3");
        model_input(&m, "ids", ONNX_int64, "3");
        model_tensor(&m, TENSOR_FLOATS("table", "4,2", 1, 2, 3, 4, 5, 6, 7, 8));
        model_tensor(&m, TENSOR_FLOATS("w", "5,2", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
        model_node(&m, "Gather", "table,ids", "rows");
        model_node(&m, "Transpose", "w", "wt");
        model_node(&m, "MatMul", "x,rows", "h");
        model_node(&m, "MatMul", "h,wt", "y");
        if (rows[i].reader) model_node(&m, rows[i].reader, rows[i].operands, "z");
        model_output(&m, "y", ONNX_float32, NULL);
        if (rows[i].reader) model_output(&m, "z", ONNX_float32, NULL);
        wire file = model_finish(&m);
        scratch_write(t, "m.onnx", file.bytes, file.size);
        wire_free(&file);
        ir_module *module = compile_model(t, scratch_path(t, "m.onnx"), true, PASS_O1, IR_f16);
        int casts = -1;
        assert_int_equal(rt_emit_onnx(module, "infer", scratch_path(t, "new.onnx"), t->d, &casts), AMPC_OK);
        ir_module_free(module);
        onnx_file *f;
        assert_int_equal(onnx_file_open(scratch_path(t, "new.onnx"), t->d, &f), AMPC_OK);
        assert_int_equal(find_tensor(f, "w")->data_type, ONNX_float16);
        assert_int_equal(find_tensor(f, "table")->data_type, rows[i].type);
        assert_int_equal(count_ops(f, "Cast"), rows[i].casts);
        assert_int_equal(casts, rows[i].casts);
        onnx_file_close(f);
    }
}

TEST_SCRATCH(test_overflow_is_reported)
{
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

/* Above the limit, values are stored in a separate file; reading both files restores them. */
TEST_SCRATCH(test_external_data)
{
    parts out = {0};
    rt_arrays arrays;
    ir_module *m = compile_model(t, GOLDENS "/lenet_bn/model.onnx", true, PASS_O1, IR_f16);
    const onnx_emit_options o = {.data_name = "new.data", .max_model_bytes = 20000, .write = collect, .user = &out};
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
static void check_type(scratch *t, model *m, const char *expected)
{
    onnx_file_close(emitted(t, model_finish(m), PASS_O0, IR_f16));
    ir_module *back = read_back(t);
    arena *a = arena_new(0);
    const ir_node *y = ir_graph_find_output(ir_graph_find(back, "forward"), "y");
    assert_string_equal(ir_type_print(back, &ir_in(y, 0)->type, a), expected);
    arena_free(a);
    ir_module_free(back);
}

TEST_SCRATCH(test_symbolic_shapes)
{
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

TEST_SCRATCH(test_training_is_refused)
{
    parts out = {0};
    ir_module *m;
    const onnx_emit_options o = {.data_name = "new.data", .max_model_bytes = 0, .write = collect, .user = &out};
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

TEST_SCRATCH(test_missing_weights)
{
    parts out = {0};
    const onnx_emit_options o = {.data_name = "new.data", .max_model_bytes = 0, .write = collect, .user = &out};
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
    scratch_expect(t, "cannot open");
    ir_module_free(m);
    wire_free(&bytes);
    wire_free(&out.part[0]);
    wire_free(&out.part[1]);
}
