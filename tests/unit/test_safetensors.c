/* test_safetensors.c - round trips, the layout of written files, a specific message for every kind of malformed file,
 * and detection of every flipped bit. */
#include "runtime/files/io.h"
#include "runtime/files/safetensors.h"
#include "tests/unit/scratch.h"

static ampc_status count_up(void *user, uint64_t offset, void *dst, size_t n)
{
    (void)user;
    for (size_t i = 0; i < n; i++) ((unsigned char *)dst)[i] = (unsigned char)(offset + i);
    return AMPC_OK;
}

static const float weights[6] = {0, -1, 2.5f, 3e38f, 1e-40f, 6};
static const int64_t dims_2x3[] = {2, 3}, dims_3m[] = {3000000}, dims_0[] = {4, 0};

static void write_sample(scratch *t, const char *path, char *hash)
{
    uint16_t half[1] = {0x3c00};
    rt_safetensors_writer *w;
    assert_int_equal(rt_safetensors_create(t->d, &w), AMPC_OK);
    rt_safetensors_put_metadata(w, "step", "12");
    assert_int_equal(rt_safetensors_add(w, "h", IR_f16, 0, NULL, half), AMPC_OK);
    assert_int_equal(rt_safetensors_add_source(w, "bytes", IR_u8, 1, dims_3m, count_up, NULL), AMPC_OK);
    assert_int_equal(rt_safetensors_add(w, "param/w \"\xc3\xa4\"", IR_f32, 2, dims_2x3, weights), AMPC_OK);
    assert_int_equal(rt_safetensors_add(w, "empty", IR_bool, 2, dims_0, NULL), AMPC_OK);
    assert_int_equal(rt_safetensors_commit(w, path, hash), AMPC_OK);
}

TEST_SCRATCH(test_round_trip)
{
    rt_safetensors *f;
    char hash[33];
    const char *path = scratch_path(t, "a.safetensors");
    write_sample(t, path, hash);
    assert_int_equal(rt_safetensors_open(path, RT_VERIFY_ALL, t->d, &f), AMPC_OK);
    assert_string_equal(rt_safetensors_hash(f), hash);
    assert_int_equal(rt_safetensors_count(f), 4);
    assert_string_equal(rt_safetensors_metadata(f, "step"), "12");
    assert_null(rt_safetensors_metadata(f, "absent"));
    assert_null(rt_safetensors_find(f, "absent"));
    const rt_tensor_entry *e = rt_safetensors_find(f, "param/w \"\xc3\xa4\"");
    assert_int_equal(e->dtype, IR_f32);
    assert_int_equal(e->rank, 2);
    assert_memory_equal(e->dims, dims_2x3, sizeof dims_2x3);
    assert_int_equal(e->offset % 8, 0);
    assert_ptr_equal(e, rt_safetensors_entry(f, 0)); /* widest first */
    float back[6];
    assert_int_equal(rt_safetensors_read(f, e, back), AMPC_OK);
    assert_memory_equal(back, weights, sizeof weights);
    e = rt_safetensors_find(f, "bytes");
    unsigned char *bytes = malloc(e->bytes);
    assert_int_equal(rt_safetensors_read(f, e, bytes), AMPC_OK);
    for (size_t i = 0; i < e->bytes; i += 997) assert_int_equal(bytes[i], i & 255);
    assert_int_equal(rt_safetensors_read(f, rt_safetensors_find(f, "empty"), bytes), AMPC_OK);
    free(bytes);
    rt_safetensors_close(f);
}

TEST_SCRATCH(test_same_content_same_bytes)
{
    size_t n, m;
    char h[33], g[33];
    write_sample(t, scratch_path(t, "a"), h);
    char *a = scratch_read(t, "a", &n);
    write_sample(t, scratch_path(t, "b"), g);
    char *b = scratch_read(t, "b", &m);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    assert_string_equal(h, g);
    free(a);
    free(b);
}

TEST_SCRATCH(test_writer_refuses)
{
    const int64_t huge[] = {INT64_MAX, 2};
    rt_safetensors_writer *w;
    rt_safetensors_create(t->d, &w);
    assert_int_equal(rt_safetensors_add(w, "a", IR_f32, 2, dims_2x3, weights), AMPC_OK);
    assert_int_equal(rt_safetensors_add(w, "\xff", IR_f32, 0, NULL, weights), AMPC_REJECTED);
    assert_int_equal(rt_safetensors_add(w, "__metadata__", IR_f32, 0, NULL, weights), AMPC_REJECTED);
    assert_int_equal(rt_safetensors_add(w, "big", IR_f32, 2, huge, weights), AMPC_REJECTED);
    assert_int_equal(rt_safetensors_add(w, "b", IR_f32, 0, NULL, weights), AMPC_OK);
    assert_int_equal(rt_safetensors_add(w, "a", IR_u8, 0, NULL, weights), AMPC_OK);
    diag_clear(t->d);
    assert_int_equal(rt_safetensors_commit(w, scratch_path(t, "twice"), NULL), AMPC_REJECTED);
    scratch_expect(t, "tensor 'a': error: two tensors have this name");
    assert_int_not_equal(access(scratch_path(t, "twice"), F_OK), 0);
    rt_safetensors_discard(NULL);
    rt_safetensors_close(NULL);
}

/* Writes a file from header text and `data` data bytes. */
static void write_raw(scratch *t, const char *header, size_t data)
{
    size_t n = strlen(header);
    unsigned char *b = calloc(1, 8 + n + data);
    for (int i = 0; i < 8; i++) b[i] = (unsigned char)(n >> 8 * i);
    memcpy(b + 8, header, n);
    scratch_write(t, "bad", b, 8 + n + data);
    free(b);
}

#define T(name, type, shape, range) \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":" range "}"

/* clang-format off */
static const struct {
    const char *header;
    size_t data;
    const char *message; /* NULL: accepted */
} raw_files[] = {
    {"{}", 0, NULL},
    {"{}   ", 0, NULL},
    {"{" T("a", "F32", "[2]", "[0,8]") "}", 8, NULL},
    {"{" T("a", "F8_E4M3", "[2]", "[0,2]") "," T("b", "F4", "[4]", "[2,4]") "}", 4, NULL},
    {"{" T("a", "F32", "[]", "[0,4]") "," T("z", "F32", "[0]", "[4,4]") "}", 4, NULL},
    {"{}", 3, "bytes after the last tensor"},
    {"[]", 0, "does not begin with '{'"},
    {" {}", 0, "does not begin with '{'"},
    {"{", 0, "bad header at byte"},
    {"{}x", 0, "bad header at byte"},
    {"{\"\xff\":1}", 0, "bad header at byte"},
    {"{" T("a", "F32", "[1]", "[0,4]") "," T("a", "F32", "[1]", "[4,8]") "}", 8, "duplicate object key"},
    {"{\"a\":1}", 0, "not an object"},
    {"{\"__metadata__\":[]}", 0, "'__metadata__' is not an object"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "metadata 'a': error: the value is not a string"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "'dtype' is missing"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "'shape' is missing"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "'data_offsets' is missing"},
    {"{" T("a", "F33", "[1]", "[0,4]") "}", 4, "unknown element type"},
    {"{" T("a", "F32", "[-1]", "[0,4]") "}", 4, "an entry that is not a size"},
    {"{" T("a", "F32", "[1.0]", "[0,4]") "}", 4, "an entry that is not a size"},
    {"{" T("a", "F32", "[1]", "[0,4,8]") "}", 4, "not a pair of offsets"},
    {"{" T("a", "F32", "[1]", "[-4,0]") "}", 4, "negative data offset"},
    {"{" T("a", "F32", "[1]", "[4,0]") "}", 4, "end before they begin"},
    {"{" T("a", "F32", "[4294967296,4294967296]", "[0,4]") "}", 4, "the shape overflows"},
    {"{" T("a", "F32", "[99999999999999999999]", "[0,4]") "}", 4, "bad header at byte"},
    {"{" T("a", "F4", "[3]", "[0,2]") "}", 2, "does not fill whole bytes"},
    {"{" T("a", "F32", "[2]", "[0,4]") "}", 4, "do not match the size"},
    {"{" T("a", "F32", "[1]", "[4,8]") "}", 8, "do not begin at 0"},
    {"{" T("a", "U8", "[1]", "[0,1]") "," T("b", "U8", "[1]", "[2,3]") "}", 3, "a gap in the data"},
    {"{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[1,3]") "}", 3, "overlap"},
    {"{" T("a", "F32", "[2]", "[0,8]") "}", 7, "tensor data are missing"},
};
/* clang-format on */

TEST_SCRATCH(test_raw_files)
{
    for (size_t i = 0; i < sizeof raw_files / sizeof *raw_files; i++) {
        rt_safetensors *f = NULL;
        write_raw(t, raw_files[i].header, raw_files[i].data);
        ampc_status s = rt_safetensors_open(scratch_path(t, "bad"), RT_VERIFY_RECORDED, t->d, &f);
        if (raw_files[i].message) {
            assert_int_equal(s, AMPC_REJECTED);
            assert_non_null(strstr(diag_first_error(t->d), "/bad: "));
            scratch_expect(t, raw_files[i].message);
        } else assert_int_equal(s, AMPC_OK);
        rt_safetensors_close(f);
    }
}

static void expect_bytes(scratch *t, const char *bytes, size_t n, const char *message)
{
    rt_safetensors *f = NULL;
    scratch_write(t, "bad", bytes, n);
    assert_int_equal(rt_safetensors_open(scratch_path(t, "bad"), RT_VERIFY_NONE, t->d, &f), AMPC_REJECTED);
    scratch_expect(t, message);
}

TEST_SCRATCH(test_bad_lengths)
{
    rt_safetensors *f;
    expect_bytes(t, "", 0, "too short");
    expect_bytes(t, "\2\0\0\0\0\0\0", 7, "too short");
    expect_bytes(t, "\0\0\0\0\0\0\0\0", 8, "the header is empty");
    expect_bytes(t, "\3\0\0\0\0\0\0\0{}", 10, "extends past the end");
    expect_bytes(t, "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "longer than 100 MB");
    assert_int_equal(rt_safetensors_open(scratch_path(t, "absent"), RT_VERIFY_NONE, t->d, &f), AMPC_IO);
    assert_int_equal(rt_safetensors_open(t->folder, RT_VERIFY_NONE, t->d, &f), AMPC_IO);
}

TEST_SCRATCH(test_verify_levels)
{
    rt_safetensors *f;
    write_raw(t, "{" T("a", "F32", "[1]", "[0,4]") "}", 4);
    assert_int_equal(rt_safetensors_open(scratch_path(t, "bad"), RT_VERIFY_ALL, t->d, &f), AMPC_REJECTED);
    scratch_expect(t, "no hash of the header");
    write_raw(t, "{\"__metadata__\":{\"xxh3\":\"short\"}}", 0);
    assert_int_equal(rt_safetensors_open(scratch_path(t, "bad"), RT_VERIFY_ALL, t->d, &f), AMPC_REJECTED);
    scratch_expect(t, "no hash of the header");
    write_raw(t, "{\"__metadata__\":{\"xxh3\":\"0123456789abcdef\"}}", 0);
    assert_int_equal(rt_safetensors_open(scratch_path(t, "bad"), RT_VERIFY_RECORDED, t->d, &f), AMPC_REJECTED);
    scratch_expect(t, "hash is wrong");
}

/* Returns whether open or read detects an error. */
static bool detects(scratch *t, const char *path)
{
    rt_safetensors *f = NULL;
    char *buffer = malloc(4 << 20);
    bool found = rt_safetensors_open(path, RT_VERIFY_ALL, t->d, &f) != AMPC_OK;
    for (size_t i = 0; !found && i < rt_safetensors_count(f); i++)
        found = rt_safetensors_read(f, rt_safetensors_entry(f, i), buffer) != AMPC_OK;
    rt_safetensors_close(f);
    free(buffer);
    diag_clear(t->d);
    return found;
}

TEST_SCRATCH(test_every_flipped_bit_is_found)
{
    rt_safetensors_writer *w;
    size_t n;
    rt_safetensors_create(t->d, &w);
    rt_safetensors_put_metadata(w, "step", "12");
    rt_safetensors_add(w, "w", IR_f32, 2, dims_2x3, weights);
    rt_safetensors_add(w, "s", IR_f32, 0, NULL, weights + 2);
    rt_safetensors_commit(w, scratch_path(t, "good"), NULL);
    assert_false(detects(t, scratch_path(t, "good")));
    char *bytes = scratch_read(t, "good", &n);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ 1 << bit % 8);
        scratch_write(t, "flipped", bytes, n);
        assert_true(detects(t, scratch_path(t, "flipped")));
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ 1 << bit % 8);
    }
    for (size_t cut = 0; cut < n; cut++) {
        scratch_write(t, "cut", bytes, cut);
        assert_true(detects(t, scratch_path(t, "cut")));
    }
    free(bytes);
}

TEST_SCRATCH(test_every_failing_call_leaves_the_old_file)
{
    size_t n, m;
    const char *path = scratch_path(t, "ckpt");
    write_sample(t, path, NULL);
    char *before = scratch_read(t, "ckpt", &n);
    rt_io_fail(0, 0, false);
    write_sample(t, path, NULL);
    uint64_t calls = rt_io_calls();
    for (uint64_t k = 1; k <= calls; k++) {
        rt_safetensors_writer *w;
        rt_safetensors_create(t->d, &w);
        rt_safetensors_add(w, "x", IR_f32, 2, dims_2x3, weights);
        rt_safetensors_add_source(w, "bytes", IR_u8, 1, dims_3m, count_up, NULL);
        rt_io_fail(k, ENOSPC, false);
        ampc_status s = rt_safetensors_commit(w, path, NULL);
        rt_io_fail(0, 0, false);
        if (s == AMPC_OK) continue;
        assert_int_equal(s, AMPC_IO);
        char *after = scratch_read(t, "ckpt", &m);
        if (n == m) assert_memory_equal(before, after, n);
        else assert_false(detects(t, path)); /* only the fsync of the folder failed */
        free(after);
        write_sample(t, path, NULL);
    }
    assert_int_equal(scratch_count(t), 1);
    free(before);
}
