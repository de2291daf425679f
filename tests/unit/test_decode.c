/* test_decode.c - model files: reading, large files on demand, bare tensors, memory exhaustion. */
#include "tests/unit/prescan_fixture.h"

#include <ftw.h>
#include <unistd.h>

/* ---- tensors --------------------------------------------------------------------------------- */

TEST_PRESCAN(test_memory_ends_at_any_allocation)
{
    wire bytes = small_model();
    for (uint64_t n = 1;; n++) {
        arena *a = arena_new(0);
        diag *d = diag_new(NULL, NULL);
        ProtobufCMessage *message;
        arena_fail_after(a, n);
        ampc_status status = onnx_decode(a, &onnx__model_proto__descriptor, (onnx_bytes){bytes.bytes, bytes.size, NULL},
                                         "m", d, &message);
        arena_free(a);
        diag_free(d);
        if (status == AMPC_OK) break;
        assert_int_equal(status, AMPC_NO_MEMORY);
        assert_in_range(n, 1, 1000);
    }
    wire_free(&bytes);
}

/* ---- files ----------------------------------------------------------------------------------- */

TEST_PRESCAN(test_bad_files)
{
    static const struct {
        const char *path, *part;
        ampc_status code;
    } rows[] = {
        {"/nonexistent/m.onnx", "/nonexistent/m.onnx: error: cannot open: No such file", AMPC_IO},
        {"/", "a directory; name a file in it", AMPC_IO},
        {"/dev/null", "not a regular file", AMPC_IO},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        onnx_file *f;
        diag_clear(x->d);
        assert_int_equal(onnx_file_open(rows[i].path, x->d, &f), rows[i].code);
        assert_null(f);
        assert_non_null(strstr(diag_first_error(x->d), rows[i].part));
    }
}

static char *temporary_file(const void *bytes, size_t n)
{
    char *path = strdup("/tmp/ampc-test-XXXXXX");
    assert_non_null(path);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_true(write(fd, bytes, n) == (ssize_t)n);
    close(fd);
    return path;
}

enum { LARGE = 1 << 20 }; /* floats: a file above the size limit for reading it completely */

/* Returns a model with one initializer of values 0 .. LARGE - 1. The caller frees both. */
static char *large_model(wire *bytes, float **values)
{
    *values = malloc(LARGE * sizeof **values);
    assert_non_null(*values);
    for (int i = 0; i < LARGE; i++) (*values)[i] = (float)i;
    wire w = tensor_head(ONNX_float32, LARGE), graph = {0};
    wire_bytes(&w, TENSOR_FLOAT_DATA, *values, LARGE * sizeof **values);
    wire_message(&graph, GRAPH_INITIALIZER, &w);
    *bytes = model_of(&graph);
    return temporary_file(bytes->bytes, bytes->size);
}

static void drop_large_model(char *path, wire *bytes, float *values)
{
    unlink(path);
    free(path);
    free(values);
    wire_free(bytes);
}

/* The weights stay in the file and are read correctly. */
TEST_PRESCAN(test_large_file_is_read_in_parts)
{
    float *values;
    wire bytes;
    char *path = large_model(&bytes, &values);
    onnx_file *f;
    onnx_tensor t;
    if (setjmp(x->guard)) fail_msg("out of memory");
    arena_set_guard(x->a, &x->guard);
    assert_int_equal(onnx_file_open(path, x->d, &f), AMPC_OK);
    assert_non_null(f->bytes.image);
    assert_int_equal(onnx_tensor_describe(x->a, f, f->model->graph->initializer[0], x->d, &t), AMPC_OK);
    assert_null(t.bytes);
    assert_string_equal(t.path, path);
    assert_memory_equal(bytes.bytes + t.offset, values, t.size);
    assert_int_equal(onnx_tensor_load(x->a, f, &t, x->d), AMPC_OK);
    assert_null(t.path);
    assert_memory_equal(t.bytes, values, t.size);
    onnx_file_close(f);
    drop_large_model(path, &bytes, values);
}

/* If a file shrinks while it is open, reading fails with an error; a mapping would raise a signal. */
TEST_PRESCAN(test_large_file_is_truncated)
{
    enum { LEFT = 1 << 16 };
    float *values;
    wire bytes;
    char *path = large_model(&bytes, &values);
    onnx_file *f;
    onnx_tensor t;
    if (setjmp(x->guard)) fail_msg("out of memory");
    arena_set_guard(x->a, &x->guard);
    assert_int_equal(onnx_file_open(path, x->d, &f), AMPC_OK);
    assert_int_equal(truncate(path, LEFT), 0);
    assert_int_equal(onnx_tensor_describe(x->a, f, f->model->graph->initializer[0], x->d, &t), AMPC_OK);
    assert_int_equal(onnx_tensor_load(x->a, f, &t, x->d), AMPC_IO);
    assert_non_null(strstr(diag_first_error(x->d), "was truncated"));
    diag_clear(x->d);
    assert_int_equal(onnx_bytes_need(&f->bytes, f->bytes.data + LEFT, 1, x->d), AMPC_IO);
    onnx_file_close(f);
    drop_large_model(path, &bytes, values);
}

static fixture *walking;
static size_t walked, failed;

static int visit(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)where;
    size_t n = strlen(path);
    if (kind != FTW_F || n < 5 || strcmp(path + n - 5, ".onnx") != 0) return 0;
    onnx_file *f;
    walked++;
    diag_clear(walking->d);
    ampc_status status = onnx_file_open(path, walking->d, &f);
    const Onnx__GraphProto *g = status == AMPC_OK ? f->model->graph : NULL;
    for (size_t i = 0; g && status == AMPC_OK && i < g->n_initializer; i++) {
        onnx_tensor t;
        status = onnx_tensor_describe(walking->a, f, g->initializer[i], walking->d, &t);
        if (status == AMPC_OK) status = onnx_tensor_load(walking->a, f, &t, walking->d);
    }
    onnx_file_close(f);
    if (status != AMPC_OK) print_error("%s\n", diag_first_error(walking->d));
    failed += status != AMPC_OK;
    return 0;
}

TEST_PRESCAN(test_every_model_of_the_corpus_decodes)
{
    walking = x;
    if (setjmp(walking->guard)) fail_msg("out of memory");
    arena_set_guard(walking->a, &walking->guard);
    nftw("/usr/share/libonnx-testdata/data", visit, 16, FTW_PHYS);
    if (!walked) skip();
    assert_int_equal(failed, 0);
    assert_true(walked >= 1000);
}

TEST_PRESCAN(test_bare_tensor_file)
{
    wire w = tensor_head(ONNX_float32, 100);
    float values[100] = {3, 2, 1};
    wire_bytes(&w, TENSOR_RAW_DATA, values, sizeof values);
    char *path = temporary_file(w.bytes, w.size);
    onnx_tensor t;
    if (setjmp(x->guard)) fail_msg("out of memory");
    arena_set_guard(x->a, &x->guard);
    assert_int_equal(onnx_tensor_read_file(x->a, path, x->d, &t), AMPC_OK);
    assert_string_equal(t.name, "t");
    assert_memory_equal(t.bytes, values, sizeof values);
    unlink(path);
    free(path);
    wire_free(&w);
}
