/* test_weights.c - initial bytes of storage: inline, ranges of files, sidecars; rejected files; writing a sidecar. */
#include "scratch.h"

#include "ir/graph/ir.h"
#include "runtime/backend/alloc.h"
#include "runtime/files/io.h"
#include "runtime/files/module_file.h"
#include "runtime/files/weights.h"
#include "tests/module.h"

#include <sys/stat.h>

static ir_module *module;

static void load(scratch *t, const char *text) { module = test_module(t->d, text); }

static int finish(void **state)
{
    ir_module_free(module);
    module = NULL;
    return scratch_teardown(state);
}

static ampc_status read_one(scratch *t, const char *name, void *dst)
{
    rt_weights *w;
    ampc_status status = rt_weights_open(module, t->folder, t->d, &w);
    if (status == AMPC_OK) status = rt_weights_read(w, ir_storage_find(module, name), dst);
    rt_weights_close(w);
    return status;
}

static void expect_bytes(scratch *t, const char *name, const void *bytes, size_t n)
{
    unsigned char read[64];
    memset(read, 0xee, sizeof read);
    if (read_one(t, name, read) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    assert_memory_equal(read, bytes, n);
    assert_int_equal(read[n], 0xee);
}

static const char files[] = "param @a : f32[3] = file(\"data.bin\", 4, 12)\n"
                            "param @b : f16[2] = file(\"data.bin\", 0, 4)\n"
                            "param @c : f32[2] = [1, 2]\nstate @z : i64[2] = zero\nparam @e : f32[0,3] = zero\n";
static const unsigned char data[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

#define TEST_WEIGHTS(name) TEST_WITH(scratch_setup, finish, scratch *t, name)

TEST_WEIGHTS(all_kinds_are_read)
{
    load(t, files);
    scratch_write(t, "data.bin", data, sizeof data);
    expect_bytes(t, "a", data + 4, 12);
    expect_bytes(t, "b", data, 4);
    expect_bytes(t, "c", (float[]){1, 2}, 8);
    expect_bytes(t, "z", (int64_t[]){0, 0}, 16);
    expect_bytes(t, "e", "", 0);
}

TEST_WEIGHTS(short_and_missing_files)
{
    load(t, files);
    unsigned char read[64];
    assert_int_equal(read_one(t, "a", read), AMPC_IO);
    scratch_expect(t, "data.bin: error: cannot open");
    scratch_write(t, "data.bin", data, 15);
    assert_int_equal(read_one(t, "a", read), AMPC_REJECTED);
    scratch_expect(t, "'a' should have 12 bytes at offset 4, but the file has 15");
    ir_storage_find(module, "b")->data.length = 6;
    assert_int_equal(read_one(t, "b", read), AMPC_REJECTED);
    scratch_expect(t, "'b' needs 4 bytes, its range has 6");
}

/* Writes the sidecar of `files` and returns its path. */
static const char *write_sidecar(scratch *t)
{
    const char *path = scratch_path(t, "w.safetensors");
    load(t, files);
    scratch_write(t, "data.bin", data, sizeof data);
    if (rt_module_save(module, t->folder, scratch_path(t, "m.ir"), path, false, t->d) != AMPC_OK)
        fail_msg("%s", diag_first_error(t->d));
    return path;
}

TEST_WEIGHTS(sidecar_is_written_and_read)
{
    write_sidecar(t);
    assert_string_equal(module->weights_path, "w.safetensors");
    assert_int_equal(strlen(module->weights_hash), 32);
    assert_int_equal(ir_storage_find(module, "a")->data.kind, IR_DATA_SIDECAR);
    assert_int_equal(ir_storage_find(module, "c")->data.kind, IR_DATA_INLINE);
    assert_int_equal(ir_storage_find(module, "z")->data.kind, IR_DATA_ZERO);
    remove(scratch_path(t, "data.bin"));
    expect_bytes(t, "a", data + 4, 12);
    expect_bytes(t, "b", data, 4);
    expect_bytes(t, "c", (float[]){1, 2}, 8);
    /* again, from the old sidecar */
    char *hash = strdup(module->weights_hash);
    assert_int_equal(
        rt_module_save(module, t->folder, scratch_path(t, "m.ir"), scratch_path(t, "v.safetensors"), false, t->d),
        AMPC_OK);
    assert_string_equal(hash, module->weights_hash);
    free(hash);
    remove(scratch_path(t, "w.safetensors"));
    expect_bytes(t, "a", data + 4, 12);
}

TEST_WEIGHTS(damaged_sidecars_are_refused)
{
    unsigned char read[64];
    write_sidecar(t);
    size_t n;
    char *bytes = scratch_read(t, "w.safetensors", &n);
    for (size_t i = 0; i < n; i++) { /* some storage detects any flipped bit */
        bytes[i] ^= 4;
        scratch_write(t, "w.safetensors", bytes, n);
        ampc_status a = read_one(t, "a", read), b = read_one(t, "b", read);
        assert_true(a == AMPC_REJECTED || b == AMPC_REJECTED);
        diag_clear(t->d);
        bytes[i] ^= 4;
    }
    scratch_write(t, "w.safetensors", bytes, n - 1);
    assert_int_equal(read_one(t, "a", read), AMPC_REJECTED);
    free(bytes);
}

TEST_WEIGHTS(other_sidecars_are_refused)
{
    unsigned char read[64];
    write_sidecar(t);
    ir_module *first = module;
    load(t, "param @a : f32[1,3] = file(\"data.bin\", 4, 12)\n");
    assert_int_equal(
        rt_module_save(module, t->folder, scratch_path(t, "m.ir"), scratch_path(t, "w.safetensors"), false, t->d),
        AMPC_OK);
    ir_module_free(module);
    module = first;
    assert_int_equal(read_one(t, "a", read), AMPC_REJECTED);
    scratch_expect(t, "this is not the weights file of the model");
    module->weights_hash = NULL;
    assert_int_equal(read_one(t, "a", read), AMPC_REJECTED);
    scratch_expect(t, "tensor 'a' is not of the model's type");
    assert_int_equal(read_one(t, "b", read), AMPC_REJECTED);
    scratch_expect(t, "the file has no tensor 'b'");
}

TEST_WEIGHTS(failed_writing_changes_nothing)
{
    load(t, files);
    scratch_write(t, "data.bin", data, sizeof data);
    const char *path = scratch_path(t, "w.safetensors");
    int n = 1;
    for (; n < 200; n++) {
        rt_io_fail((uint64_t)n, 5 /* EIO */, true);
        ampc_status status = rt_module_save(module, t->folder, scratch_path(t, "m.ir"), path, false, t->d);
        rt_io_fail(0, 0, false);
        if (status == AMPC_OK) break;
        assert_int_equal(status, AMPC_IO);
        assert_null(module->weights_path);
        assert_int_equal(ir_storage_find(module, "a")->data.kind, IR_DATA_FILE);
        diag_clear(t->d);
    }
    assert_in_range(n, 5, 100);
}

TEST_WEIGHTS(each_allocation_may_fail)
{
    write_sidecar(t);
    int n = 1;
    for (; n < 50; n++) {
        rt_alloc_fail((uint64_t)n);
        ampc_status status = rt_module_save(module, t->folder, scratch_path(t, "m.ir"),
                                            scratch_path(t, "v.safetensors"), false, t->d);
        rt_alloc_fail(0);
        if (status == AMPC_OK) break;
        assert_int_equal(status, AMPC_NO_MEMORY);
        diag_clear(t->d);
    }
    assert_in_range(n, 4, 20);
}

/* Tests a storage in the file of that name, and one in the weights file of that name. */
static void expect_elsewhere(scratch *t, const char *name, const char *what)
{
    static const char *const forms[] = {"param @a : u8[4] = file(\"%s\", 0, 4)\n",
                                        "weights \"%s\"\nparam @a : u8[4]\n"};
    char text[256];
    unsigned char read[4];
    for (int i = 0; i < 2; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(text, sizeof text, forms[i], name);
#pragma GCC diagnostic pop
        load(t, text);
        assert_int_equal(read_one(t, "a", read), AMPC_REJECTED);
        scratch_expect(t, what);
        ir_module_free(module);
        module = NULL;
    }
}

TEST_WEIGHTS(a_text_names_files_in_its_folder_only)
{
    scratch_write(t, "data.bin", data, sizeof data);
    char sideways[64];
    snprintf(sideways, sizeof sideways, "../%s/data.bin", strrchr(t->folder, '/') + 1);
    assert_int_equal(symlink("/etc/passwd", scratch_path(t, "link")), 0);
    assert_int_equal(symlink("/proc/self/fd/0", scratch_path(t, "magic")), 0);
    assert_int_equal(mkfifo(scratch_path(t, "fifo"), 0600), 0);
    expect_elsewhere(t, "/etc/passwd", "/etc/passwd: error: the name is an absolute path");
    expect_elsewhere(t, scratch_path(t, "data.bin"), "the name is an absolute path");
    expect_elsewhere(t, sideways, "leaves the model's folder through '..'");
    expect_elsewhere(t, "link", "leaves the model's folder through a link");
    expect_elsewhere(t, "magic", "leaves the model's folder through a link");
    expect_elsewhere(t, "fifo", "is not a regular file"); /* does not wait for a writer */
    expect_elsewhere(t, ".", "is not a regular file");
}
