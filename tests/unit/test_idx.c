/* test_idx.c - IDX files: plain and gzipped, in the standard folder layout, malformed, and Fashion-MNIST. */
#include "runtime/data/idx.h"
#include "tests/unit/scratch.h"

#include <zlib.h>

#define FASHION "/usr/share/datasets/fashion-mnist"

static const char small[] = "\0\0\x8\x3\0\0\0\x2\0\0\0\x3\0\0\0\x1"
                            "abcdef";
enum { SMALL = sizeof small - 1 };

static void write_gz(scratch *t, const char *name, const void *bytes, size_t n)
{
    gzFile f = gzopen(scratch_path(t, name), "wb9");
    assert_int_equal(gzwrite(f, bytes, (unsigned)n), n);
    assert_int_equal(gzclose(f), Z_OK);
}

TEST_SCRATCH(test_plain_and_gzip)
{
    rt_array a;
    scratch_write(t, "f", small, SMALL);
    write_gz(t, "g", small, SMALL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rt_idx_read(scratch_path(t, i ? "g" : "f"), 3, t->d, &a), AMPC_OK);
        assert_int_equal(a.dtype, IR_u8);
        assert_int_equal(a.dims[0], 2);
        assert_int_equal(a.dims[1], 3);
        assert_int_equal(a.dims[2], 1);
        assert_memory_equal(a.data, "abcdef", 6);
        rt_array_clear(&a);
    }
    scratch_write(t, "f", "\0\0\x8\x1\0\0\0\0", 8);
    assert_int_equal(rt_idx_read(scratch_path(t, "f"), 1, t->d, &a), AMPC_OK);
    assert_int_equal(a.bytes, 0);
    rt_array_clear(&a);
}

static void expect_refusal(scratch *t, const void *bytes, size_t n, const char *message)
{
    rt_array a;
    scratch_write(t, "bad", bytes, n);
    assert_int_equal(rt_idx_read(scratch_path(t, "bad"), 3, t->d, &a), AMPC_REJECTED);
    assert_non_null(strstr(diag_first_error(t->d), "/bad: "));
    scratch_expect(t, message);
}

TEST_SCRATCH(test_malformed)
{
    char b[64];
    rt_array a;
    expect_refusal(t, "", 0, "too short");
    expect_refusal(t, small, 3, "too short");
    expect_refusal(t, small, 15, "too short");
    expect_refusal(t, small, SMALL - 1, "shorter than its IDX header specifies");
    memcpy(b, small, SMALL);
    b[SMALL] = 0;
    expect_refusal(t, b, SMALL + 1, "longer than its IDX header specifies");
    b[0] = 1;
    expect_refusal(t, b, SMALL, "wrong magic");
    b[0] = 0, b[2] = 0xd;
    expect_refusal(t, b, SMALL, "other than unsigned bytes");
    b[2] = 8, b[3] = 1;
    expect_refusal(t, b, SMALL, "1 dimensions instead of 3");
    b[3] = 3;
    memset(b + 4, 0xff, 12);
    expect_refusal(t, b, SMALL, "overflow");
    memset(b + 4, 0, 12);
    b[4] = 0x7f, b[11] = b[15] = 1;
    expect_refusal(t, b, SMALL, "shorter than its IDX header specifies");
    assert_int_equal(rt_idx_read(scratch_path(t, "absent"), 3, t->d, &a), AMPC_IO);
    assert_int_equal(rt_idx_read(t->folder, 3, t->d, &a), AMPC_IO);
}

/* Every truncation and every flipped bit of a gzip file is rejected or leaves the content unchanged (unused header
 * fields). */
TEST_SCRATCH(test_damaged_gzip)
{
    rt_array a;
    size_t n;
    write_gz(t, "g", small, SMALL);
    char *gz = scratch_read(t, "g", &n);
    for (size_t cut = 0; cut < n; cut++) {
        scratch_write(t, "bad", gz, cut);
        assert_int_equal(rt_idx_read(scratch_path(t, "bad"), 3, t->d, &a), AMPC_REJECTED);
    }
    for (size_t bit = 0; bit < 8 * n; bit++) {
        gz[bit / 8] = (char)(gz[bit / 8] ^ 1 << bit % 8);
        scratch_write(t, "bad", gz, n);
        if (rt_idx_read(scratch_path(t, "bad"), 3, t->d, &a) == AMPC_OK) {
            assert_memory_equal(a.data, "abcdef", 6);
            rt_array_clear(&a);
        }
        gz[bit / 8] = (char)(gz[bit / 8] ^ 1 << bit % 8);
    }
    free(gz);
}

TEST_SCRATCH(test_folder)
{
    rt_array x, y;
    assert_int_equal(rt_idx_read_folder(t->folder, RT_TRAIN, t->d, &x, &y), AMPC_IO);
    scratch_expect(t, "no train-images-idx3-ubyte or train-images-idx3-ubyte.gz in the folder");
    write_gz(t, "t10k-images-idx3-ubyte.gz", small, SMALL);
    scratch_write(t, "t10k-labels-idx1-ubyte", "\0\0\x8\x1\0\0\0\x2\x9\x7", 10);
    assert_int_equal(rt_idx_read_folder(t->folder, RT_TEST, t->d, &x, &y), AMPC_OK);
    assert_string_equal(x.name, "images");
    assert_string_equal(y.name, "labels");
    assert_memory_equal(y.data, "\x9\x7", 2);
    rt_array_clear(&x);
    rt_array_clear(&y);
    scratch_write(t, "t10k-labels-idx1-ubyte", "\0\0\x8\x1\0\0\0\x1\x9", 9);
    assert_int_equal(rt_idx_read_folder(t->folder, RT_TEST, t->d, &x, &y), AMPC_REJECTED);
    scratch_expect(t, "2 t10k images but 1 labels");
}

TEST_SCRATCH(test_fashion_mnist)
{
    rt_array x, y;
    if (access(FASHION, R_OK) != 0) skip();
    assert_int_equal(rt_idx_read_folder(FASHION, RT_TRAIN, t->d, &x, &y), AMPC_OK);
    assert_int_equal(x.dims[0], 60000);
    assert_int_equal(x.dims[1], 28);
    assert_int_equal(x.bytes, 47040000);
    int counts[256] = {0};
    for (size_t i = 0; i < y.bytes; i++) counts[((unsigned char *)y.data)[i]]++;
    for (int i = 0; i < 10; i++) assert_int_equal(counts[i], 6000);
    rt_array_clear(&x);
    rt_array_clear(&y);
}
