/* test_npy.c - .npy and .npz round trips, files in the format of NumPy and zip tools, malformed files. */
#include "runtime/files/io.h"
#include "runtime/data/npz.h"
#include "tests/data.h"
#include "tests/unit/scratch.h"

#include <zip.h>

static const ir_dtype all_types[] = {IR_f64, IR_f32, IR_f16,  IR_i64,  IR_i32, IR_i16,
                                     IR_i8,  IR_u8,  IR_bool, IR_bf16, IR_u32, IR_u64};

static rt_array sample(const char *name, ir_dtype dtype, int rank)
{
    rt_array a = {.name = strdup(name), .dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++) a.dims[i] = i + 2;
    assert_true(rt_array_bytes(dtype, rank, a.dims, &a.bytes));
    a.data = malloc(a.bytes);
    for (size_t i = 0; i < a.bytes; i++)
        ((unsigned char *)a.data)[i] = (unsigned char)(dtype == IR_bool ? i & 1 : i * 37 + 1);
    return a;
}

static void expect_same(const rt_array *a, const rt_array *b)
{
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->rank, b->rank);
    assert_memory_equal(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims);
    assert_int_equal(a->bytes, b->bytes);
    assert_memory_equal(a->data, b->data, a->bytes);
}

TEST_SCRATCH(test_round_trip)
{
    const char *path = scratch_path(t, "a.npy");
    for (size_t i = 0; i < sizeof all_types / sizeof *all_types; i++)
        for (int rank = 0; rank <= 4; rank++) {
            rt_array a = sample("a", all_types[i], rank), b;
            assert_int_equal(npy_write(path, &a, t->d), AMPC_OK);
            assert_int_equal(rt_npy_read(path, IR_bf16, t->d, &b), AMPC_OK);
            expect_same(&a, &b);
            rt_array_clear(&a);
            rt_array_clear(&b);
        }
}

TEST_SCRATCH(test_bytes_are_numpys)
{
    size_t n;
    rt_array a = sample("a", IR_i16, 1);
    assert_int_equal(npy_write(scratch_path(t, "a.npy"), &a, t->d), AMPC_OK);
    char *b = scratch_read(t, "a.npy", &n);
    assert_int_equal(n, 128 + 4);
    static const char start[] = "\x93NUMPY\x01\x00\x76\x00"
                                "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }  ";
    assert_memory_equal(b, start, sizeof start - 1);
    assert_int_equal(b[127], '\n');
    free(b);
    rt_array_clear(&a);
    a = (rt_array){.dtype = IR_u8, .rank = 2, .dims = {0, 3}};
    assert_int_equal(npy_write(scratch_path(t, "a.npy"), &a, t->d), AMPC_OK);
    b = scratch_read(t, "a.npy", &n);
    assert_int_equal(n, 128);
    assert_non_null(strstr(b + 10, "'|u1'"));
    free(b);
    for (a.rank = 0; a.rank < RT_ARRAY_MAX_RANK; a.rank++) a.dims[a.rank] = INT64_MAX;
    unsigned char header[RT_NPY_HEADER_MAX];
    assert_int_equal(rt_npy_header(&a, header) % 64, 0);
}

/* ---- hand-written headers ---- */

#define HEAD(descr, order, shape) "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }\n"

/* clang-format off */
static const struct {
    int version;
    const char *header;
    size_t data;
    const char *message; /* NULL: accepted */
} headers[] = {
    {1, HEAD("'<f4'", "False", "(2, 3)"), 24, NULL},
    {2, HEAD("'<f4'", "False", "(2, 3)"), 24, NULL},
    {3, HEAD("'=f4'", "False", "()"), 4, NULL},
    {1, "{\"shape\":(2L,),\"descr\":\"|u1\",\"fortran_order\":False}", 2, NULL},
    {1, HEAD("'>u1'", "False", "(5, 0)"), 0, NULL},
    {1, HEAD("'>f4'", "False", "(2, 3)"), 24, "big-endian"},
    {1, HEAD("'<u2'", "False", "(2,)"), 4, NULL},
    {1, HEAD("'<u8'", "False", "(2,)"), 16, NULL},
    {1, HEAD("'<u3'", "False", "(2,)"), 6, "'<u3' is not supported"},
    {1, HEAD("'<c8'", "False", "(2,)"), 16, "'<c8' is not supported"},
    {1, HEAD("'|O'", "False", "(2,)"), 16, "'|O' is not supported"},
    {1, HEAD("''", "False", "(2,)"), 16, "'' is not supported"},
    {1, HEAD("[('a', '<f4')]", "False", "(2,)"), 8, "structured"},
    {1, HEAD("'<f4'", "0", "(2, 3)"), 24, "neither True nor False"},
    {1, HEAD("'<f4'", "False", "[2]"), 8, "not a tuple"},
    {1, HEAD("'<f4'", "False", "(2 3)"), 8, "not closed"},
    {1, HEAD("'<f4'", "False", "(-2,)"), 8, "invalid size"},
    {1, HEAD("'<f4'", "False", "(99999999999999999999,)"), 8, "invalid size"},
    {1, HEAD("'<f4'", "False", "(9999999999, 9999999999)"), 8, "too large"},
    {1, HEAD("'<f4'", "False", "(0, 9999999999, 9999999999)"), 0, "too large"},
    {1, HEAD("'<f4'", "False", "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)"),
     4, "more than 32"},
    {1, HEAD("'<f4'", "False", "(2,)"), 7, "specifies 8 bytes of data, but the file has 7"},
    {1, HEAD("'<f4'", "False", "(2,)"), 9, "specifies 8 bytes of data, but the file has 9"},
    {1, "{'descr': '<f4', 'descr': '<f4'}", 0, "duplicate key"},
    {1, "{'descr': '<f4', 'x': 1}", 0, "unknown key"},
    {1, "{'descr': '<f4'}", 0, "is missing"},
    {1, "{'descr': '<f4'", 0, "not closed"},
    {1, "{'descr': '<f4", 0, "structured"},
    {1, "{'descr'", 0, "not a dictionary"},
    {1, "", 0, "not a dictionary"},
    {1, "{} x", 0, "text after"},
    {4, "{}", 0, "unknown .npy version"},
};
/* clang-format on */

static size_t build(char *dst, int version, const char *header, size_t data)
{
    size_t n = strlen(header), at = version == 1 ? 10 : 12;
    memcpy(dst, "\x93NUMPY", 6);
    memset(dst + 6, 0, 6);
    dst[6] = (char)version;
    dst[8] = (char)n;
    dst[9] = (char)(n >> 8);
    memcpy(dst + at, header, n);
    memset(dst + at + n, 1, data);
    return at + n + data;
}

TEST_SCRATCH(test_headers)
{
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        rt_array a = {0};
        char bytes[512];
        size_t n = build(bytes, headers[i].version, headers[i].header, headers[i].data);
        scratch_write(t, "bad.npy", bytes, n);
        ampc_status s = rt_npy_read(scratch_path(t, "bad.npy"), IR_NO_DTYPE, t->d, &a);
        if (headers[i].message) {
            assert_int_equal(s, AMPC_REJECTED);
            assert_non_null(strstr(diag_first_error(t->d), "bad.npy: "));
            scratch_expect(t, headers[i].message);
        } else assert_int_equal(s, AMPC_OK);
        rt_array_clear(&a);
    }
}

/* An array in Fortran order as numpy.save writes it: element [i,j,k] is 100*i + 10*j + k. Returns its size. */
static size_t build_transposed(char *bytes)
{
    int16_t stored[24];
    const size_t n = build(bytes, 1, HEAD("'<i2'", "True", "(2, 3, 4)"), sizeof stored);
    for (int i = 0; i < 24; i++) stored[i] = (int16_t)(100 * (i % 2) + 10 * (i / 2 % 3) + i / 6);
    memcpy(bytes + n - sizeof stored, stored, sizeof stored);
    return n;
}

static void expect_rows(const rt_array *a)
{
    assert_int_equal(a->rank, 3);
    for (int i = 0; i < 24; i++) assert_int_equal(((int16_t *)a->data)[i], 100 * (i / 12) + 10 * (i / 4 % 3) + i % 4);
}

/* A transposed array is read as its rows. */
TEST_SCRATCH(test_fortran_order)
{
    char bytes[512];
    rt_array a = {0};
    assert_int_equal(npy_parse("f.npy", bytes, build_transposed(bytes), IR_u16, t->d, &a), AMPC_OK);
    expect_rows(&a);
    rt_array_clear(&a);
}

TEST_SCRATCH(test_cut_anywhere)
{
    char bytes[512];
    rt_array a;
    for (int version = 1; version <= 3; version++) {
        size_t n = build(bytes, version, HEAD("'<f4'", "False", "(2, 3)"), 24);
        for (size_t cut = 0; cut < n; cut++) {
            char *copy = malloc(cut + 1); /* exact size, which makes an overrun detectable */
            memcpy(copy, bytes, cut);
            assert_int_equal(npy_parse("b", copy, cut, IR_NO_DTYPE, t->d, &a), AMPC_REJECTED);
            free(copy);
        }
    }
    assert_int_equal(npy_parse("b", "\x93NUMPX\1\0\0\0", 10, IR_NO_DTYPE, t->d, &a), AMPC_REJECTED);
    assert_int_equal(rt_npy_read(scratch_path(t, "absent"), IR_NO_DTYPE, t->d, &a), AMPC_IO);
    assert_int_equal(rt_npy_read(t->folder, IR_NO_DTYPE, t->d, &a), AMPC_IO);
}

TEST_SCRATCH(test_bools_become_0_and_1)
{
    char bytes[512];
    rt_array a;
    size_t n = build(bytes, 1, HEAD("'|b1'", "False", "(3,)"), 3);
    memcpy(bytes + n - 3, "\xff\x00\x02", 3);
    assert_int_equal(npy_parse("b", bytes, n, IR_NO_DTYPE, t->d, &a), AMPC_OK);
    assert_memory_equal(a.data, "\1\0\1", 3);
    rt_array_clear(&a);
}

/* ---- npz ---- */

TEST_SCRATCH(test_npz_round_trip)
{
    rt_array a[3] = {sample("output/x", IR_f32, 3), sample("\xc3\xa4", IR_bf16, 1), sample("", IR_i64, 0)};
    rt_arrays back;
    size_t n, m;
    assert_int_equal(rt_npz_write(scratch_path(t, "a.npz"), a, 3, t->d), AMPC_OK);
    assert_int_equal(rt_npz_read(scratch_path(t, "a.npz"), IR_bf16, t->d, &back), AMPC_OK);
    assert_int_equal(back.count, 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(a[i].name, back.items[i].name);
        expect_same(&a[i], rt_arrays_find(&back, a[i].name));
    }
    assert_null(rt_arrays_find(&back, "absent"));
    rt_arrays_clear(&back);
    assert_int_equal(rt_npz_read(scratch_path(t, "a.npz"), IR_NO_DTYPE, t->d, &back), AMPC_OK);
    assert_int_equal(rt_arrays_find(&back, a[1].name)->dtype, IR_u16);
    rt_arrays_clear(&back);
    assert_int_equal(rt_npz_write(scratch_path(t, "b.npz"), a, 3, t->d), AMPC_OK);
    char *x = scratch_read(t, "a.npz", &n), *y = scratch_read(t, "b.npz", &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
    assert_int_equal(rt_npz_write(scratch_path(t, "e.npz"), NULL, 0, t->d), AMPC_OK);
    assert_int_equal(rt_npz_read(scratch_path(t, "e.npz"), IR_NO_DTYPE, t->d, &back), AMPC_OK);
    assert_int_equal(back.count, 0);
    rt_arrays_clear(&back);
    for (int i = 0; i < 3; i++) rt_array_clear(&a[i]);
}

/* Packs members in the way other tools do. */
static void pack(scratch *t, const char *name, const void *bytes, size_t n, bool deflate, bool twice)
{
    int code;
    zip_t *z = zip_open(scratch_path(t, "z.npz"), ZIP_CREATE | ZIP_TRUNCATE, &code);
    for (int i = 0; i <= twice; i++) {
        zip_source_t *s = zip_source_buffer(z, bytes, n, 0);
        zip_int64_t index = zip_file_add(z, i ? "other.npy" : name, s, 0);
        assert_int_equal(zip_set_file_compression(z, (zip_uint64_t)index, deflate ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0),
                         0);
    }
    assert_int_equal(zip_close(z), 0);
}

TEST_SCRATCH(test_npz_from_others)
{
    char bytes[9000];
    rt_arrays back;
    size_t n = build(bytes, 1, HEAD("'<f4'", "False", "(2000,)"), 8000);
    for (int deflate = 0; deflate < 2; deflate++) {
        pack(t, "a.npy", bytes, n, deflate, true);
        assert_int_equal(rt_npz_read(scratch_path(t, "z.npz"), IR_NO_DTYPE, t->d, &back), AMPC_OK);
        assert_int_equal(back.count, 2);
        assert_memory_equal(rt_arrays_find(&back, "other")->data, bytes + n - 8000, 8000);
        rt_arrays_clear(&back);
    }
}

/* Stored and compressed. */
TEST_SCRATCH(test_npz_in_fortran_order)
{
    char bytes[512];
    rt_arrays back;
    const size_t n = build_transposed(bytes);
    for (int deflate = 0; deflate < 2; deflate++) {
        pack(t, "a.npy", bytes, n, deflate, true);
        assert_int_equal(rt_npz_read(scratch_path(t, "z.npz"), IR_NO_DTYPE, t->d, &back), AMPC_OK);
        assert_int_equal(back.count, 2);
        expect_rows(rt_arrays_find(&back, "a"));
        expect_rows(rt_arrays_find(&back, "other"));
        rt_arrays_clear(&back);
    }
}

static void expect_npz(scratch *t, ampc_status wanted, const char *message)
{
    rt_arrays back;
    assert_int_equal(rt_npz_read(scratch_path(t, "z.npz"), IR_NO_DTYPE, t->d, &back), wanted);
    scratch_expect(t, message);
}

TEST_SCRATCH(test_bad_npz)
{
    char bytes[512];
    size_t n = build(bytes, 1, HEAD("'<f4'", "False", "(8,)"), 32), m;
    expect_npz(t, AMPC_IO, "No such file");
    scratch_write(t, "z.npz", "", 0);
    expect_npz(t, AMPC_REJECTED, "z.npz: ");
    scratch_write(t, "z.npz", bytes, n);
    expect_npz(t, AMPC_REJECTED, "zip archive");
    pack(t, "a.txt", bytes, n, false, false);
    expect_npz(t, AMPC_REJECTED, "'a.txt'");
    pack(t, "a.npy", bytes, n - 1, false, false);
    expect_npz(t, AMPC_REJECTED, "specifies 32 bytes");
    pack(t, "a.npy", bytes, n, false, false);
    char *zip = scratch_read(t, "z.npz", &m);
    zip[30 + 5 + n - 1] ^= 1; /* last byte of the data */
    scratch_write(t, "z.npz", zip, m);
    expect_npz(t, AMPC_REJECTED, "a.npy");
    free(zip);
}

/* Damage is either rejected or harmless; sanitizers detect the rest. */
TEST_SCRATCH(test_damaged_npz)
{
    rt_array a = sample("x", IR_f32, 2);
    size_t n;
    assert_int_equal(rt_npz_write(scratch_path(t, "good"), &a, 1, t->d), AMPC_OK);
    char *zip = scratch_read(t, "good", &n);
    for (size_t bit = 0; bit < 8 * n; bit += 3) {
        rt_arrays back = {0};
        zip[bit / 8] = (char)(zip[bit / 8] ^ 1 << bit % 8);
        scratch_write(t, "z.npz", zip, n);
        rt_npz_read(scratch_path(t, "z.npz"), IR_NO_DTYPE, t->d, &back);
        rt_arrays_clear(&back);
        zip[bit / 8] = (char)(zip[bit / 8] ^ 1 << bit % 8);
    }
    for (size_t cut = 0; cut < n; cut++) {
        rt_arrays back;
        scratch_write(t, "z.npz", zip, cut);
        assert_int_equal(rt_npz_read(scratch_path(t, "z.npz"), IR_NO_DTYPE, t->d, &back), AMPC_REJECTED);
    }
    free(zip);
    rt_array_clear(&a);
}

TEST_SCRATCH(test_failing_writes)
{
    rt_array a = sample("x", IR_f32, 2);
    for (uint64_t k = 1; k < 8; k++) {
        rt_io_fail(k, ENOSPC, false);
        ampc_status s = k % 2 ? rt_npz_write(scratch_path(t, "f"), &a, 1, t->d)
                              : npy_write(scratch_path(t, "f"), &a, t->d);
        rt_io_fail(0, 0, false);
        assert_true(s == AMPC_IO);
    }
    for (uint64_t k = 1; k < 4; k++) {
        rt_array b;
        assert_int_equal(npy_write(scratch_path(t, "f"), &a, t->d), AMPC_OK);
        rt_io_fail(k, EIO, false);
        assert_int_equal(rt_npy_read(scratch_path(t, "f"), IR_NO_DTYPE, t->d, &b), AMPC_IO);
        rt_io_fail(0, 0, false);
    }
    rt_array_clear(&a);
}
