/* test_api_import.c - models in memory give the same results as their files; conversion to ONNX through ampc.h equals
 * that of the program. */
#include "tests/unit/api_calls.h"
#include "tests/unit/emit_fixture.h"

#define MNIST AMPC_SOURCE_DIR "/tests/models/mnist.onnx"

typedef struct bytes {
    char *data;
    size_t n;
} bytes;

static bytes load(const char *path)
{
    enum { LIMIT = 1 << 20 };
    bytes b = {.data = malloc(LIMIT)};
    FILE *file = fopen(path, "rbe");
    assert_true(file && b.data);
    b.n = fread(b.data, 1, LIMIT, file);
    fclose(file);
    assert_in_range(b.n, 1, LIMIT - 1);
    return b;
}

static void expect_same_file(const char *a, const char *b)
{
    bytes x = load(a), y = load(b);
    assert_int_equal(x.n, y.n);
    assert_memory_equal(x.data, y.data, x.n);
    free(x.data);
    free(y.data);
}

/* Imports a copy of the file's bytes that is freed before anything else happens. `name` may be NULL. */
static ampc_status import_copy(ampc_context *c, const char *path, const char *name, ampc_module **m)
{
    bytes b = load(path);
    const ampc_import_options o = {.struct_size = sizeof o, .path = name, .bytes = b.data, .n_bytes = b.n};
    ampc_status status = ampc_module_import_with(c, &o, m);
    memset(b.data, 0xaa, b.n);
    free(b.data);
    return status;
}

/* Trains two steps; the trained model goes to `trained`. */
static void train_and_export(ampc_context *c, ampc_module *m, const char *trained)
{
    ampc_session *s;
    const ampc_train_options how = {.struct_size = sizeof how, .data = "synthetic", .batch = 2, .steps = 2, .seed = 3};
    const ampc_session_options one = {.struct_size = sizeof one, .deterministic = 1};
    OK(c, ampc_module_compile(m, &training));
    OK(c, ampc_session_open(m, &one, &s));
    OK(c, ampc_train(s, &how));
    OK(c, ampc_export_onnx(s, trained));
    ampc_session_free(s);
}

/* Weights, training, export and the saved module are those of the file. */
TEST_SCRATCH(test_memory_equals_file)
{
    ampc_context *c;
    ampc_module *of_file, *in_memory;
    assert_int_equal(ampc_context_create(NULL, &c), AMPC_OK);
    OK(c, ampc_module_import(c, MNIST, NULL, 0, &of_file));
    OK(c, import_copy(c, MNIST, MNIST, &in_memory));
    train_and_export(c, of_file, scratch_path(t, "file.onnx"));
    train_and_export(c, in_memory, scratch_path(t, "memory.onnx"));
    expect_same_file(scratch_path(t, "file.onnx"), scratch_path(t, "memory.onnx"));
    OK(c, ampc_module_save(of_file, scratch_path(t, "a.ir")));
    OK(c, ampc_module_save(in_memory, scratch_path(t, "b.ir")));
    expect_same_file(scratch_path(t, "a.safetensors"), scratch_path(t, "b.safetensors"));
    ampc_module_free(of_file);
    ampc_module_free(in_memory);
    ampc_context_free(c);
}

/* A model without a name needs no file system. */
TEST_SCRATCH(test_nameless)
{
    ampc_context *c;
    ampc_module *m;
    assert_int_equal(ampc_context_create(NULL, &c), AMPC_OK);
    OK(c, import_copy(c, MNIST, NULL, &m));
    train_and_export(c, m, scratch_path(t, "memory.onnx"));
    bytes b = load(scratch_path(t, "memory.onnx"));
    assert_true(b.n > 300000);
    free(b.data);
    ampc_module_free(m);
    const ampc_import_options broken = {.struct_size = sizeof broken, .bytes = "not a model", .n_bytes = 11};
    expect_failure(ampc_module_import_with(c, &broken, &m), AMPC_REJECTED, c, "model in memory: error:");
    const ampc_import_options empty = {.struct_size = sizeof empty, .bytes = ""};
    expect_failure(ampc_module_import_with(c, &empty, &m), AMPC_REJECTED, c, "model in memory: error:");
    ampc_context_free(c);
}

/* ---- external data ---- */

static ampc_status write_file(void *user, onnx_part part, const void *data, size_t n)
{
    FILE **files = user;
    return fwrite(data, 1, n, files[part]) == n ? AMPC_OK : AMPC_IO;
}

/* Writes MNIST with its weights in out.data. */
static void split(scratch *t)
{
    FILE *files[] = {[ONNX_PART_DATA] = fopen(scratch_path(t, "out.data"), "wbe"),
                     [ONNX_PART_MODEL] = fopen(scratch_path(t, "out.onnx"), "wbe")};
    const onnx_emit_options o = {.data_name = "out.data", .max_model_bytes = 20000, .write = write_file, .user = files};
    ir_module *m = compile_model(t, MNIST, true, PASS_O0, IR_f16);
    assert_non_null(m);
    assert_int_equal(onnx_emit(m, "infer", &o, t->d), AMPC_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(fclose(files[i]), 0);
    ir_module_free(m);
}

TEST_SCRATCH(test_external_data)
{
    ampc_context *c;
    ampc_module *m;
    assert_int_equal(ampc_context_create(NULL, &c), AMPC_OK);
    split(t);
    const char *path = scratch_path(t, "out.onnx");
    expect_failure(import_copy(c, path, NULL, &m), AMPC_REJECTED, c, "has no folder");
    expect_failure(import_copy(c, path, "/nowhere/out.onnx", &m), AMPC_IO, c, "out.data");
    OK(c, import_copy(c, path, path, &m));
    assert_int_equal(remove(path), 0); /* only the data are read */
    train_and_export(c, m, scratch_path(t, "trained.onnx"));
    ampc_module_free(m);
    ampc_context_free(c);
}

/* ---- conversion ---- */

static void expect_bytes(const char *path, const void *data, size_t n)
{
    bytes b = load(path);
    assert_int_equal(b.n, n);
    assert_memory_equal(b.data, data, n);
    free(b.data);
}

/* To a file and in memory, from a file and from memory, also of a module that was compiled for training. */
TEST_SCRATCH(test_conversion)
{
    ampc_context *c;
    ampc_module *of_file, *in_memory;
    void *data;
    size_t n;
    const ampc_compile_options bf16 = {.struct_size = sizeof bf16, .dtype = "bf16"};
    ir_module *expected = compile_model(t, MNIST, true, PASS_O1, IR_bf16);
    assert_non_null(expected);
    emit_to(t, expected, "expected.onnx");
    ir_module_free(expected);
    assert_int_equal(ampc_context_create(NULL, &c), AMPC_OK);
    OK(c, ampc_module_import(c, MNIST, NULL, 0, &of_file));
    OK(c, import_copy(c, MNIST, NULL, &in_memory));
    OK(c, ampc_module_convert(of_file, &bf16, scratch_path(t, "a.onnx")));
    expect_same_file(scratch_path(t, "a.onnx"), scratch_path(t, "expected.onnx"));
    OK(c, ampc_module_compile(in_memory, &training));
    OK(c, ampc_module_convert_memory(in_memory, &bf16, &data, &n));
    expect_bytes(scratch_path(t, "expected.onnx"), data, n);
    ampc_free(data);
    ampc_module_free(of_file);
    ampc_module_free(in_memory);
    ampc_context_free(c);
}

/* Summary, explanation and statistics are those of a file in ONNX. */
TEST_SCRATCH(test_described_conversion)
{
    ampc_context *c;
    ampc_module *m;
    char *text, *again;
    const ampc_compile_options bf16 = {.struct_size = sizeof bf16, .dtype = "bf16"};
    const ampc_import_options o = {.struct_size = sizeof o, .path = MNIST, .keep_unknown = 1};
    assert_int_equal(ampc_context_create(NULL, &c), AMPC_OK);
    OK(c, ampc_module_import_with(c, &o, &m));
    assert_string_equal(ampc_module_summary(m), "");
    OK(c, ampc_module_convert(m, &bf16, scratch_path(t, "a.onnx")));
    assert_non_null(strstr(ampc_module_summary(m), "float ops in bf16"));
    assert_null(strstr(ampc_module_summary(m), "removed")); /* as for a file in ONNX */
    OK(c, ampc_module_explain(m, &bf16, "all", 0, &text));
    assert_non_null(strstr(text, "conv1 (Conv): white, bf16\n    rule: "));
    OK(c, ampc_module_explain(m, &bf16, "all", 0, &again));
    assert_string_equal(text, again);
    ampc_free(text);
    ampc_free(again);
    OK(c, ampc_module_explain(m, NULL, "conv1", 1, &text));
    assert_non_null(strstr(text, "{\"name\": \"conv1\", \"op\": \"Conv\", "));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1); /* one line for the one node */
    ampc_free(text);
    OK(c, ampc_module_report(m, &bf16, &text));
    assert_non_null(strstr(text, "\"Conv\": {\"fp16\": 0, \"bf16\": 2, \"fp32\": 0, \"other\": 0}"));
    ampc_free(text);
    ampc_module_free(m);
    ampc_context_free(c);
}

/* In the order of the model, with the names that ampc_select accepts. */
TEST(test_described_results)
{
    ampc_context *c;
    ampc_module *m;
    size_t n;
    const ampc_import_options o = {.struct_size = sizeof o, .path = MNIST, .batch = 8};
    ampc_input_info info = {.struct_size = sizeof info}, again = info;
    assert_int_equal(ampc_context_create(NULL, &c), AMPC_OK);
    OK(c, ampc_module_import_with(c, &o, &m));
    OK(c, ampc_module_compile(m, &training));
    OK(c, ampc_module_output_count(m, "infer", &n));
    assert_int_equal(n, 1);
    OK(c, ampc_module_output(m, "infer", 0, &info));
    assert_string_equal(info.name, "logits");
    assert_int_equal(info.dtype, AMPC_F32);
    assert_int_equal(info.rank, 2);
    assert_int_equal(info.dims[0], -1);
    assert_int_equal(info.dims[1], 10);
    OK(c, ampc_module_output(m, "infer", 0, &again));
    assert_ptr_equal(info.dim_names[0], again.dim_names[0]);
    OK(c, ampc_module_output_count(m, "grad", &n));
    bool has_loss = false;
    for (size_t i = 0; i < n; i++) {
        OK(c, ampc_module_output(m, "grad", i, &info));
        has_loss |= strcmp(info.name, "loss") == 0;
    }
    assert_true(has_loss);
    ampc_module_free(m);
    ampc_context_free(c);
}

TEST_SCRATCH(test_conversion_refused)
{
    ampc_context *c;
    ampc_module *m;
    const ampc_compile_options fp8 = {.struct_size = sizeof fp8, .dtype = "fp8"};
    assert_int_equal(ampc_context_create(NULL, &c), AMPC_OK);
    OK(c, ampc_module_import(c, MLP, NULL, 0, &m));
    expect_failure(ampc_module_convert(m, &fp8, scratch_path(t, "a.onnx")), AMPC_USAGE, c, "fp8");
    expect_failure(ampc_module_convert(m, NULL, "/nowhere/a.onnx"), AMPC_IO, c, "/nowhere/a.onnx");
    OK(c, ampc_module_compile(m, &training));
    OK(c, ampc_module_save(m, scratch_path(t, "m.ir")));
    ampc_module_free(m);
    OK(c, ampc_module_load(c, scratch_path(t, "m.ir"), &m));
    expect_failure(ampc_module_convert(m, NULL, scratch_path(t, "a.onnx")), AMPC_USAGE, c, "only an imported");
    ampc_module_free(m);
    ampc_context_free(c);
}

/* An operator that ampc lacks stays in the converted model, and cannot be compiled for running. */
TEST_SCRATCH(test_unknown_operator)
{
    ampc_context *c;
    ampc_module *m;
    ampc_import_options o = {.struct_size = sizeof o, .path = AMPC_SOURCE_DIR "/docs/examples/custom.onnx"};
    assert_int_equal(ampc_context_create(NULL, &c), AMPC_OK);
    expect_failure(ampc_module_import_with(c, &o, &m), AMPC_UNSUPPORTED, c, "ScaledTanh");
    o.keep_unknown = 1;
    OK(c, ampc_module_import_with(c, &o, &m));
    expect_failure(ampc_module_compile(m, NULL), AMPC_USAGE, c, "can only be converted");
    OK(c, ampc_module_convert(m, NULL, scratch_path(t, "a.onnx")));
    bytes b = load(scratch_path(t, "a.onnx"));
    assert_non_null(memmem(b.data, b.n, "ScaledTanh", 10));
    free(b.data);
    ampc_module_free(m);
    ampc_context_free(c);
}

#define EXPORTS AMPC_SOURCE_DIR "/tests/models/exports/"

/* Trains with this batch, which the module must accept, or not. */
static ampc_status train_with(ampc_module *m, int64_t batch, const char *path)
{
    ampc_session *s = NULL;
    const ampc_train_options how = {
        .struct_size = sizeof how, .data = "synthetic,rows=8", .batch = batch, .steps = 2, .seed = 3};
    ampc_status status = ampc_module_compile(m, &training);
    if (status == AMPC_OK) status = ampc_session_open(m, NULL, &s);
    if (status == AMPC_OK) status = ampc_train(s, &how);
    if (status == AMPC_OK && path) status = ampc_export_onnx(s, path);
    ampc_session_free(s);
    return status;
}

/* A batch that an export fixed becomes a symbol, of a file and of a model in memory, also when it is converted. */
TEST_SCRATCH(test_fixed_batch)
{
    ampc_context *c;
    ampc_module *m;
    bytes b = load(EXPORTS "fixed-script.onnx");
    ampc_import_options o = {.struct_size = sizeof o, .path = EXPORTS "fixed-script.onnx"};
    assert_int_equal(ampc_context_create(NULL, &c), AMPC_OK);
    OK(c, ampc_module_import_with(c, &o, &m));
    expect_failure(train_with(m, 4, NULL), AMPC_USAGE, c, "; set ampc_import_options.batch to 4 to compile it");
    ampc_module_free(m);
    o.batch = 4;
    OK(c, ampc_module_import_with(c, &o, &m));
    OK(c, train_with(m, 4, scratch_path(t, "a.onnx")));
    OK(c, ampc_module_convert(m, NULL, scratch_path(t, "free.onnx")));
    ampc_module_free(m);
    o = (ampc_import_options){.struct_size = sizeof o, .bytes = b.data, .n_bytes = b.n, .batch = 4};
    OK(c, ampc_module_import_with(c, &o, &m));
    OK(c, train_with(m, 4, scratch_path(t, "b.onnx")));
    expect_same_file(scratch_path(t, "a.onnx"), scratch_path(t, "b.onnx"));
    ampc_module_free(m);
    o = (ampc_import_options){.struct_size = sizeof o, .path = scratch_path(t, "free.onnx")};
    OK(c, ampc_module_import_with(c, &o, &m));
    OK(c, train_with(m, 2, NULL));
    ampc_module_free(m);
    o = (ampc_import_options){.struct_size = sizeof o, .path = EXPORTS "fixed-table.onnx", .batch = 4};
    expect_failure(ampc_module_import_with(c, &o, &m), AMPC_UNSUPPORTED, c, "the result 'y', f32[2,3], has no batch");
    free(b.data);
    ampc_context_free(c);
}
