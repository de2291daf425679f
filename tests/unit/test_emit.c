/* test_emit.c - emitted models: losses, external data, and what cannot be emitted or run. tests/expect/frontend/emit.rows has
 * names, types, opsets, weights and shapes. */
#include "tests/unit/emit_fixture.h"

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

/* A training step is a function of parameters and states, the zeros of moments included. */
TEST_SCRATCH(test_step)
{
    parts out = {0};
    onnx_file *f;
    ir_module *m;
    const onnx_emit_options o = {.data_name = "new.data", .max_model_bytes = 100000, .write = collect, .user = &out};
    compile_options p = compile_options_default();
    size_t own = 0, states = 0;
    p.loss = "ce:logits,label";
    p.optimizer = "adamw";
    assert_int_equal(onnx_import(GOLDENS "/lenet_bn/model.onnx", NULL, t->d, &m), AMPC_OK);
    assert_int_equal(test_compile(m, &p, t->d), AMPC_OK);
    assert_int_equal(onnx_emit(m, "train_step", &o, t->d), AMPC_OK);
    assert_true(out.part[ONNX_PART_DATA].size > 3 * 16000 * sizeof(float)); /* weights and both moments */
    scratch_write(t, "new.onnx", out.part[ONNX_PART_MODEL].bytes, out.part[ONNX_PART_MODEL].size);
    assert_int_equal(onnx_file_open(scratch_path(t, "new.onnx"), t->d, &f), AMPC_OK);
    const Onnx__GraphProto *g = f->model->graph;
    for (size_t i = 0; i < g->n_node; i++) own += g->node[i]->domain && strcmp(g->node[i]->domain, "ai.ampc") == 0;
    for (size_t i = 0; i < m->storage.count; i++) states += m->storage.items[i]->kind != IR_CONST;
    assert_true(own > 10 && own < g->n_node);
    assert_int_equal(g->n_input, 2 + states);
    assert_true(g->n_initializer >= m->storage.count);
    onnx_file_close(f);
    ir_module_free(m);
    wire_free(&out.part[0]);
    wire_free(&out.part[1]);
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
    assert_int_equal(onnx_emit(m, "grad", &o, t->d), AMPC_UNSUPPORTED);
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

/* Opaque operators have no kernels; the error lists all of them. */
TEST_SCRATCH(test_opaque_does_not_run)
{
    static const char text[] = "ampc-ir 3\ngraph @infer(@x : f32[2,2]) as infer {\n"
                               "  %a = opaque @x : f32[2,2] !Foo \"a\"\n"
                               "  %b = opaque %a : f32[2,2] !Bar \"b\"\n"
                               "  %c = opaque %b : f32[2,2] !Foo \"c\"\n"
                               "  output \"c\" = %c\n}\n";
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
