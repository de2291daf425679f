/* test_export.c - trained values in a copy of the model file: encodings, external data, refusals, the complete workflow. */
#include "tests/unit/export_fixture.h"

#include <sys/stat.h>

#define MNIST AMPC_SOURCE_DIR "/tests/models/mnist.onnx"

/* ---- running an export, both files into memory ----------------------------------------------- */

static ampc_status refuse_to_write(void *user, onnx_part part, const void *bytes, size_t n)
{
    (void)user, (void)part, (void)bytes, (void)n;
    return AMPC_IO;
}

/* ---- values ---------------------------------------------------------------------------------- */

TEST_SCRATCH(test_nothing_trained)
{
    parts out = {0};
    wire before = add_model(TENSOR_FLOATS("w", "3", 1, 2, 3));
    wire file = add_model(TENSOR_FLOATS("w", "3", 1, 2, 3));
    assert_int_equal(export_file(t, file, NULL, 0, &out), AMPC_OK);
    assert_int_equal(out.part[ONNX_PART_MODEL].size, before.size);
    assert_memory_equal(out.part[ONNX_PART_MODEL].bytes, before.bytes, before.size);
    assert_int_equal(out.part[ONNX_PART_DATA].size, 0);
    wire_free(&before);
    close_export(NULL, &out);
}

static void expect_trained(scratch *t, wire tensor, const void *expected, size_t size)
{
    const onnx_trained trained = values("w", 3, (const float[]){-1, 0.5f, 65504});
    parts out = {0};
    onnx_file *f = exported(t, add_model(tensor), &trained, 1, &out);
    const Onnx__GraphProto *g = f->model->graph;
    assert_int_equal(g->n_initializer, 2);
    assert_string_equal(g->initializer[0]->name, "w");
    assert_int_equal(g->initializer[0]->n_dims, 1);
    assert_int_equal(g->initializer[0]->n_float_data + g->initializer[0]->n_int32_data, 0);
    assert_int_equal(g->initializer[0]->raw_data.len, size);
    assert_memory_equal(g->initializer[0]->raw_data.data, expected, size);
    assert_memory_equal(g->initializer[1]->raw_data.data, ((const float[]){7, 8, 9}), 12);
    close_export(f, &out);
}

/* Trained values are written as raw data of the same type, whichever field the old values used. */
TEST_SCRATCH(test_encodings)
{
    static const float floats[] = {-1, 0.5f, 65504};
    static const uint16_t halves[] = {0xbc00, 0x3800, 0x7bff};
    expect_trained(t, TENSOR_FLOATS("w", "3", 1, 2, 3), floats, sizeof floats);
    wire w = tensor_new("w", ONNX_float32, "3", NULL, 0);
    wire_bytes(&w, 4, floats, sizeof floats); /* float_data */
    expect_trained(t, w, floats, sizeof floats);
    w = (wire){0};
    model_split("3", &w, tensor_dim);
    wire_int(&w, 2, ONNX_float16);
    wire_bytes(&w, 5, (const char[]){1, 2, 3}, 3); /* int32_data */
    wire_text(&w, 8, "w");
    expect_trained(t, w, halves, sizeof halves);
}

/* More values than one buffer holds, converted while writing. */
TEST_SCRATCH(test_many_values)
{
    enum { N = 10001 };
    float *data = calloc(N, sizeof *data);
    uint16_t *old = calloc(N, sizeof *old);
    for (int i = 0; i < N; i++) data[i] = (float)(i % 2048);
    model m = model_new(17);
    model_input(&m, "x", ONNX_float16, "N,10001");
    model_tensor(&m, tensor_new("w", ONNX_float16, "10001", old, N * sizeof *old));
    model_node(&m, "Add", "x,w", "y");
    model_output(&m, "y", 0, NULL);
    const onnx_trained trained = values("w", N, data);
    parts out = {0};
    onnx_file *f = exported(t, model_finish(&m), &trained, 1, &out);
    const Onnx__TensorProto *w = f->model->graph->initializer[0];
    assert_int_equal(w->lifted_length, N * sizeof *old);
    for (size_t i = 0; i < N; i++) {
        uint16_t h;
        memcpy(&h, out.part[ONNX_PART_MODEL].bytes + w->lifted_offset + 2 * i, sizeof h);
        assert_true(ir_f16_to_f32(h) == data[i]);
    }
    close_export(f, &out);
    free(data);
    free(old);
}

static wire external_tensor(const char *name, const char *offset)
{
    wire t = {0}, entry = {0};
    model_split("3", &t, tensor_dim);
    wire_int(&t, 2, ONNX_float32);
    wire_text(&t, 8, name);
    wire_text(&entry, 1, "location");
    wire_text(&entry, 2, "old.bin");
    wire_message(&t, 13, &entry);
    wire_text(&entry, 1, "offset");
    wire_text(&entry, 2, offset);
    wire_message(&t, 13, &entry);
    wire_text(&entry, 1, "length");
    wire_text(&entry, 2, "12");
    wire_message(&t, 13, &entry);
    wire_int(&t, 14, 1);
    return t;
}

/* External values, trained or not, are all written to the one new data file, including those of a Constant. */
TEST_SCRATCH(test_external)
{
    scratch_write(t, "old.bin", (const float[]){1, 2, 3, 4, 5, 6, 7, 8, 9}, 36);
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "N,3");
    model_tensor(&m, external_tensor("w", "0"));
    model_tensor(&m, external_tensor("kept", "12"));
    node n = node_new("Constant", "", "c");
    node_tensor(&n, "value", external_tensor("", "24"));
    model_add(&m, &n);
    model_node(&m, "Sum", "x,w,kept,c", "y");
    model_output(&m, "y", 0, NULL);
    static const float new_values[] = {10, 20, 30};
    const onnx_trained trained = values("w", 3, new_values);
    parts out = {0};
    onnx_file *f = exported(t, model_finish(&m), &trained, 1, &out);
    close_export(f, &(parts){0});
    scratch_write(t, "new.onnx", out.part[ONNX_PART_MODEL].bytes, out.part[ONNX_PART_MODEL].size);
    scratch_write(t, "new.data", out.part[ONNX_PART_DATA].bytes, out.part[ONNX_PART_DATA].size);
    remove(scratch_path(t, "old.bin"));
    ir_module *again = NULL;
    assert_int_equal(onnx_import(scratch_path(t, "new.onnx"), NULL, t->d, &again), AMPC_OK);
    ir_module_free(again);
    assert_int_equal(out.part[ONNX_PART_DATA].size, 64 + 64 + 12);
    static const float expected[3][3] = {{10, 20, 30}, {4, 5, 6}, {7, 8, 9}};
    for (size_t i = 0; i < 3; i++) assert_memory_equal(out.part[ONNX_PART_DATA].bytes + 64 * i, expected[i], 12);
    close_export(NULL, &out);
}

TEST_SCRATCH(test_constant)
{
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "N,3");
    node n = node_new("Constant", "", "w");
    node_tensor(&n, "value", TENSOR_FLOATS("", "3", 1, 2, 3));
    model_add(&m, &n);
    model_node(&m, "Add", "x,w", "y");
    model_output(&m, "y", 0, NULL);
    static const float new_values[] = {10, 20, 30};
    const onnx_trained trained = values("w", 3, new_values);
    parts out = {0};
    onnx_file *f = exported(t, model_finish(&m), &trained, 1, &out);
    assert_memory_equal(f->model->graph->node[0]->attribute[0]->t->raw_data.data, new_values, 12);
    close_export(f, &out);
}

/* ---- refusals -------------------------------------------------------------------------------- */

TEST_SCRATCH(test_refusals)
{
    static const float data[4] = {0};
    const onnx_trained other[] = {values("absent", 3, data), values("nothing", 3, data)};
    const onnx_trained longer = values("w", 4, data), twice = values("w", 3, data);
    expect_failure(t, add_model(TENSOR_FLOATS("w", "3", 1, 2, 3)), other, 2, AMPC_REJECTED,
                   "m.onnx: error: there is no initializer 'absent'");
    expect_failure(t, add_model(TENSOR_FLOATS("w", "3", 1, 2, 3)), &longer, 1, AMPC_REJECTED,
                   "the trained value of initializer 'w' has another type or shape");
    wire file = add_model(TENSOR_FLOATS("w", "3", 1, 2, 3));
    expect_failure(t, (wire){.bytes = file.bytes, .size = file.size - 1}, NULL, 0, AMPC_REJECTED, "m.onnx");
    node n = node_new("If", "x", "y");
    model m = model_new(17), inner = model_new(17);
    model_tensor(&m, TENSOR_FLOATS("w", "3", 1, 2, 3));
    model_tensor(&inner, TENSOR_FLOATS("w", "3", 1, 2, 3));
    node_graph(&n, "then_branch", &inner);
    model_add(&m, &n);
    expect_failure(t, model_finish(&m), &twice, 1, AMPC_UNSUPPORTED, "several tensors are named 'w'");
    onnx_export_options o = {.data_name = "d", .write = collect};
    assert_int_equal(onnx_export_trained(scratch_path(t, "absent"), &o, t->d), AMPC_IO);
    diag_clear(t->d);
    file = add_model(TENSOR_FLOATS("w", "3", 1, 2, 3));
    scratch_write(t, "m.onnx", file.bytes, file.size);
    wire_free(&file);
    o.write = refuse_to_write;
    assert_int_equal(onnx_export_trained(scratch_path(t, "m.onnx"), &o, t->d), AMPC_IO);
}

/* ---- the complete workflow ------------------------------------------------------------------- */

typedef struct run {
    ampc_context *c;
    ampc_module *m;
    ampc_session *s;
} run;

static void expect_ok(const run *r, ampc_status status)
{
    if (status != AMPC_OK) fail_msg("%s", ampc_context_message(r->c));
}

static run open_run(const char *path, const char *dtype, const char *loss)
{
    run r = {0};
    const ampc_compile_options o = {.struct_size = sizeof o, .dtype = dtype, .loss = loss, .amp = loss ? "O1" : "O0"};
    assert_int_equal(ampc_context_create(NULL, &r.c), AMPC_OK);
    expect_ok(&r, ampc_module_import(r.c, path, NULL, 0, &r.m));
    expect_ok(&r, ampc_module_compile(r.m, &o));
    expect_ok(&r, ampc_session_open(r.m, NULL, &r.s));
    return r;
}

static void close_run(run *r)
{
    ampc_session_free(r->s);
    ampc_module_free(r->m);
    ampc_context_free(r->c);
}

static void train_step(const run *r)
{
    enum { N = 4 };
    static float x[N * 28 * 28];
    static const int64_t label[N] = {1, 2, 3, 4}, dims[] = {N, 1, 28, 28};
    ampc_tensor *in[2];
    for (int i = 0; i < N * 28 * 28; i++) x[i] = (float)(i * 37 % 101) / 101;
    expect_ok(r, ampc_tensor_create(r->c, "image", AMPC_F32, 4, dims, x, &in[0]));
    expect_ok(r, ampc_tensor_create(r->c, "label", AMPC_I64, 1, dims, label, &in[1]));
    expect_ok(r, ampc_train_step(r->s, in, 2, NULL));
    ampc_tensor_free(in[0]);
    ampc_tensor_free(in[1]);
}

/* Trains briefly, exports, imports: equal weights under the same keys. */
static void expect_weights_kept(scratch *t, const char *dtype)
{
    run trained = open_run(MNIST, dtype, "ce");
    train_step(&trained);
    expect_ok(&trained, ampc_export_onnx(trained.s, scratch_path(t, "new.onnx")));
    run again = open_run(scratch_path(t, "new.onnx"), dtype, NULL);
    int compared = 0;
    for (size_t i = 0;; i++) {
        ampc_tensor *expected, *have;
        const char *key = ampc_session_key(again.s, i);
        if (!key) break;
        expect_ok(&again, ampc_session_get(again.s, key, &have));
        expect_ok(&trained, ampc_session_get(trained.s, key, &expected));
        assert_int_equal(ampc_tensor_bytes(have), ampc_tensor_bytes(expected));
        assert_memory_equal(ampc_tensor_data(have), ampc_tensor_data(expected), ampc_tensor_bytes(expected));
        ampc_tensor_free(expected);
        ampc_tensor_free(have);
        compared++;
    }
    assert_int_equal(compared, 16);
    close_run(&again);
    close_run(&trained);
}

TEST_SCRATCH(test_round_trip)
{
    expect_weights_kept(t, "fp16");
    expect_weights_kept(t, "bf16");
    assert_int_equal(scratch_count(t), 1);
}

/* A failure leaves the old file unchanged and no other file. */
TEST_SCRATCH(test_failed_export)
{
    size_t n;
    FILE *f = fopen(MNIST, "rb");
    char *bytes = malloc(1 << 20);
    assert_non_null(f);
    n = fread(bytes, 1, 1 << 20, f);
    fclose(f);
    scratch_write(t, "m.onnx", bytes, n);
    free(bytes);
    scratch_write(t, "new.onnx", "old", 3);
    run r = open_run(scratch_path(t, "m.onnx"), "bf16", "ce");
    remove(scratch_path(t, "m.onnx"));
    assert_int_equal(ampc_export_onnx(r.s, scratch_path(t, "new.onnx")), AMPC_IO);
    assert_non_null(strstr(ampc_context_message(r.c), "m.onnx: error: No such file"));
    wire other = add_model(TENSOR_FLOATS("w", "3", 1, 2, 3));
    scratch_write(t, "m.onnx", other.bytes, other.size);
    wire_free(&other);
    assert_int_equal(ampc_export_onnx(r.s, scratch_path(t, "new.onnx")), AMPC_REJECTED);
    assert_int_equal(ampc_export_onnx(r.s, scratch_path(t, "absent/new.onnx")), AMPC_REJECTED);
    char *kept = scratch_read(t, "new.onnx", &n);
    assert_string_equal(kept, "old");
    free(kept);
    assert_int_equal(scratch_count(t), 2);
    close_run(&r);
}

/* The name of the data file derives from that of the model: an existing link of that name is replaced, not followed. */
TEST_SCRATCH(test_data_link)
{
    struct stat st;
    size_t n;
    scratch_write(t, "old.bin", (const float[]){1, 2, 3}, 12);
    scratch_write(t, "secret", "secret", 6);
    assert_int_equal(symlink(scratch_path(t, "secret"), scratch_path(t, "new.onnx.data")), 0);
    wire file = add_model(external_tensor("w", "0"));
    scratch_write(t, "m.onnx", file.bytes, file.size);
    wire_free(&file);
    run r = open_run(scratch_path(t, "m.onnx"), NULL, NULL);
    expect_ok(&r, ampc_export_onnx(r.s, scratch_path(t, "new.onnx")));
    close_run(&r);
    assert_int_equal(lstat(scratch_path(t, "new.onnx.data"), &st), 0);
    assert_true(S_ISREG(st.st_mode) && st.st_size == 12);
    char *kept = scratch_read(t, "secret", &n);
    assert_string_equal(kept, "secret");
    free(kept);
    r = open_run(scratch_path(t, "new.onnx"), NULL, NULL);
    close_run(&r);
}
