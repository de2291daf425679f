/* test_external.c - tensor values in files next to the model: what is read, and all ways to leave the folder that are
 * rejected.
 *
 * Each test uses its own folder:
 *   FOLDER/secret   FOLDER/m/model.onnx   FOLDER/m/w.bin   FOLDER/m/sub/w.bin */
#include "frontend/read/external.h"
#include "frontend/read/tensor.h"
#include "ir/base/beneath.h"

#include "wire_writer.h"
#include "tests/test.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct fixture {
    arena *a;
    diag *d;
    jmp_buf guard;
    char folder[64];
    int old_folder;
} fixture;

static const float values[4] = {1, 2, 3, 4};

static void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static int set_up(void **state)
{
    fixture *x = calloc(1, sizeof *x);
    if (!x) return -1;
    x->a = arena_new(0);
    x->d = diag_new(NULL, NULL);
    x->old_folder = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    strcpy(x->folder, "/tmp/ampc-test-XXXXXX");
    *state = x;
    if (!mkdtemp(x->folder) || chdir(x->folder) || mkdir("m", 0700) || mkdir("m/sub", 0700)) return -1;
    write_file("secret", values, sizeof values);
    write_file("m/w.bin", values, sizeof values);
    write_file("m/sub/w.bin", values, sizeof values);
    return 0;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

static int tear_down(void **state)
{
    fixture *x = *state;
    nftw(x->folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    int back = fchdir(x->old_folder);
    close(x->old_folder);
    arena_free(x->a);
    diag_free(x->d);
    free(x);
    return back;
}

static void add_entry(wire *tensor, const char *key, const char *value)
{
    wire entry = {0};
    if (!value) return;
    wire_text(&entry, 1, key);
    wire_text(&entry, 2, value);
    wire_message(tensor, 13, &entry);
}

/* Returns an external tensor of four float32; offset and length may be NULL. */
static wire tensor_at(const char *location, const char *offset, const char *length)
{
    wire t = {0};
    wire_int(&t, 1, 4);
    wire_int(&t, 2, ONNX_float32);
    wire_text(&t, 8, "w");
    wire_int(&t, 14, 1);
    add_entry(&t, "location", location);
    add_entry(&t, "offset", offset);
    add_entry(&t, "length", length);
    return t;
}

/* Writes m/model.onnx with `t` (freed) as its only initializer, opens it, and describes and loads the tensor. */
static ampc_status describe(fixture *x, wire *t, onnx_tensor *out)
{
    wire graph = {0}, model = {0};
    wire_message(&graph, 5, t);
    wire_message(&model, 7, &graph);
    write_file("m/model.onnx", model.bytes, model.size);
    wire_free(&model);
    onnx_file *f;
    diag_clear(x->d);
    if (setjmp(x->guard)) fail_msg("out of memory");
    arena_set_guard(x->a, &x->guard);
    assert_int_equal(onnx_file_open("m/model.onnx", x->d, &f), AMPC_OK);
    ampc_status status = onnx_tensor_describe(x->a, f, f->model->graph->initializer[0], x->d, out);
    onnx_tensor loaded = *out;
    if (status == AMPC_OK) status = onnx_tensor_load(x->a, f, &loaded, x->d);
    if (status == AMPC_OK) assert_memory_equal(loaded.bytes, values, sizeof values);
    onnx_file_close(f);
    return status;
}

static void assert_refused(fixture *x, wire t, ampc_status code, const char *part)
{
    onnx_tensor out;
    assert_int_equal(describe(x, &t, &out), code);
    assert_int_equal(diag_count(x->d, DIAG_ERROR), 1);
    if (!strstr(diag_first_error(x->d), part)) fail_msg("\"%s\" is not in \"%s\"", part, diag_first_error(x->d));
}

#define TEST_EXTERNAL(name) TEST_WITH(set_up, tear_down, fixture *x, name)

TEST_EXTERNAL(test_beside_the_model)
{
    onnx_tensor t;
    wire w = tensor_at("w.bin", NULL, NULL);
    assert_int_equal(describe(x, &w, &t), AMPC_OK);
    assert_string_equal(t.path, "m/w.bin");
    assert_int_equal(t.offset, 0);
    w = tensor_at("./sub/w.bin", "0", "16");
    assert_int_equal(describe(x, &w, &t), AMPC_OK);
    assert_string_equal(t.path, "m/./sub/w.bin");
}

TEST_EXTERNAL(test_offset_and_length)
{
    char padded[64] = {0};
    memcpy(padded + 32, values, sizeof values);
    write_file("m/padded", padded, sizeof padded);
    onnx_tensor t;
    wire w = tensor_at("padded", "32", "16");
    assert_int_equal(describe(x, &w, &t), AMPC_OK);
    assert_int_equal(t.offset, 32);
    static const struct {
        const char *offset, *length, *part;
    } rows[] = {
        {"32", NULL, "32 bytes in 'padded', but type and shape require 16"},
        {"32", "12", "12 bytes in 'padded', but type and shape require 16"},
        {"56", "16", "16 bytes at offset 56 do not fit in 'padded' (64 bytes)"},
        {"65", "16", "offset 65 is beyond the end"},
        {"-32", "16", "invalid offset '-32'"},
        {"0x20", "16", "invalid offset '0x20'"},
        {"", "16", "invalid offset ''"},
        {"9223372036854775808", "16", "invalid offset"},
        {"9223372036854775807", "16", "beyond the end"},
        {"32", "9223372036854775807", "do not fit"},
        {"32", "16 ", "invalid length '16 '"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_refused(x, tensor_at("padded", rows[i].offset, rows[i].length), AMPC_REJECTED, rows[i].part);
}

TEST_EXTERNAL(test_locations_that_lead_elsewhere)
{
    char absolute[128];
    snprintf(absolute, sizeof absolute, "%s/m/w.bin", x->folder);
    assert_refused(x, tensor_at(absolute, NULL, NULL), AMPC_REJECTED, "is an absolute path");
    static const char *const ways[] = {"..", "../secret", "sub/../../secret", "sub/..", "sub//../w.bin", "a/.."};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        assert_refused(x, tensor_at(ways[i], NULL, NULL), AMPC_REJECTED, "leaves the model's folder through '..'");
    assert_refused(x, tensor_at("", NULL, NULL), AMPC_REJECTED, "location '' is empty");
    assert_refused(x, tensor_at(NULL, NULL, NULL), AMPC_REJECTED, "the location is missing");
    assert_refused(x, tensor_at("w\n.bin", NULL, NULL), AMPC_REJECTED, "contains a control character");
    write_file("m/..w", values, sizeof values); /* only resembles one */
    onnx_tensor t;
    wire w = tensor_at("..w", NULL, NULL);
    assert_int_equal(describe(x, &w, &t), AMPC_OK);
}

TEST_EXTERNAL(test_links)
{
    assert_int_equal(symlink("../secret", "m/file-link"), 0);
    assert_int_equal(symlink("..", "m/folder-link"), 0);
    assert_int_equal(symlink("/proc/self/fd/0", "m/magic"), 0);
    assert_int_equal(symlink("loop", "m/loop"), 0);
    static const char *const out[] = {"file-link", "folder-link/secret", "magic", "loop"};
    for (size_t i = 0; i < sizeof out / sizeof *out; i++)
        assert_refused(x, tensor_at(out[i], NULL, NULL), AMPC_REJECTED, "leaves the model's folder through a link");
}

TEST_EXTERNAL(test_fallback_follows_no_link)
{
    assert_int_equal(symlink("../secret", "m/file-link"), 0);
    assert_int_equal(symlink("sub", "m/folder-link"), 0);
    int dir = open("m", O_RDONLY | O_DIRECTORY);
    static const struct {
        const char *location;
        int error;
    } rows[] = {{"w.bin", 0},
                {"sub/w.bin", 0},
                {".//sub//w.bin", 0},
                {"file-link", ELOOP},
                {"folder-link/w.bin", ELOOP},
                {"w.bin/x", ENOTDIR},
                {"absent", ENOENT},
                {"sub/absent", ENOENT}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        errno = 0;
        int fd = beneath_open_by_components(dir, rows[i].location);
        assert_int_equal(fd < 0 ? errno : 0, rows[i].error);
        if (fd >= 0) close(fd);
    }
    close(dir);
}

TEST_EXTERNAL(test_not_a_regular_file)
{
    assert_int_equal(mkfifo("m/fifo", 0600), 0);
    assert_refused(x, tensor_at("fifo", NULL, NULL), AMPC_REJECTED, "'fifo' is not a regular file");
    assert_refused(x, tensor_at("sub", NULL, NULL), AMPC_REJECTED, "'sub' is not a regular file");
}

TEST_EXTERNAL(test_missing_file)
{
    assert_refused(x, tensor_at("gone.bin", NULL, NULL), AMPC_IO,
                   "external data of tensor 'w': 'gone.bin' cannot be opened: No such file");
}

TEST_EXTERNAL(test_contradictions)
{
    wire t = tensor_at("w.bin", NULL, NULL);
    wire_bytes(&t, 9, values, sizeof values);
    assert_refused(x, t, AMPC_REJECTED, "more than one field has values");
    t = tensor_at("w.bin", NULL, NULL);
    add_entry(&t, "location", "w.bin");
    assert_refused(x, t, AMPC_REJECTED, "duplicate key 'location'");
}

TEST_EXTERNAL(test_unknown_keys_warn_once)
{
    onnx_tensor out;
    wire t = tensor_at("w.bin", NULL, NULL);
    add_entry(&t, "checksum", "00");
    add_entry(&t, "basepath", "/etc");
    assert_int_equal(describe(x, &t, &out), AMPC_OK);
    assert_int_equal(diag_count(x->d, DIAG_WARNING), 0);
    t = tensor_at("w.bin", NULL, NULL);
    add_entry(&t, "__class__", "1");
    add_entry(&t, "other", "2");
    assert_int_equal(describe(x, &t, &out), AMPC_OK);
    assert_int_equal(diag_count(x->d, DIAG_WARNING), 1);
}

TEST_EXTERNAL(test_model_in_memory_has_no_folder)
{
    wire graph = {0}, model = {0}, t = tensor_at("w.bin", NULL, NULL);
    wire_message(&graph, 5, &t);
    wire_message(&model, 7, &graph);
    onnx_file *f;
    onnx_tensor out;
    if (setjmp(x->guard)) fail_msg("out of memory");
    arena_set_guard(x->a, &x->guard);
    assert_int_equal(onnx_file_wrap(model.bytes, model.size, "memory", x->d, &f), AMPC_OK);
    assert_int_equal(onnx_tensor_describe(x->a, f, f->model->graph->initializer[0], x->d, &out), AMPC_REJECTED);
    assert_non_null(strstr(diag_first_error(x->d), "memory: error: external data of tensor 'w'"));
    onnx_file_close(f);
    wire_free(&model);
}

TEST_EXTERNAL(test_file_that_shrinks_is_an_error)
{
    wire graph = {0}, model = {0}, t = tensor_at("w.bin", NULL, NULL);
    wire_message(&graph, 5, &t);
    wire_message(&model, 7, &graph);
    write_file("m/model.onnx", model.bytes, model.size);
    wire_free(&model);
    onnx_file *f;
    onnx_tensor out;
    if (setjmp(x->guard)) fail_msg("out of memory");
    arena_set_guard(x->a, &x->guard);
    assert_int_equal(onnx_file_open("m/model.onnx", x->d, &f), AMPC_OK);
    assert_int_equal(onnx_tensor_describe(x->a, f, f->model->graph->initializer[0], x->d, &out), AMPC_OK);
    assert_int_equal(truncate("m/w.bin", 8), 0);
    assert_int_equal(onnx_tensor_load(x->a, f, &out, x->d), AMPC_IO);
    assert_non_null(strstr(diag_first_error(x->d), "m/w.bin: error: was truncated"));
    onnx_file_close(f);
}
