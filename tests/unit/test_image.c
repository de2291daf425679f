/* test_image.c - decoding and resizing against the values of PIL, and damaged files. */
#include "runtime/data/image.h"
#include "runtime/data/npz.h"
#include "tests/unit/scratch.h"

static const char *image_file(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/tests/unit/images/%s", AMPC_SOURCE_DIR, name);
    return path;
}

static char *read_bytes(const char *name, size_t *n)
{
    FILE *f = fopen(image_file(name), "rb");
    assert_non_null(f);
    char *bytes = malloc(1 << 16);
    *n = fread(bytes, 1, 1 << 16, f);
    fclose(f);
    return bytes;
}

/* Makes what the name of an array of pil.npz says (make_images.py). */
static rt_image make_named(scratch *t, const char *name)
{
    char file[64], how[16], size[16];
    int channels, width, height;
    rt_image image, resized;
    assert_int_equal(sscanf(name, "%63s %d %15s %15s", file, &channels, how, size), 4);
    assert_int_equal(rt_image_read(image_file(file), channels, t->d, &image), AMPC_OK);
    if (strcmp(how, "as") == 0) return image;
    assert_int_equal(sscanf(size, "%dx%d", &width, &height), 2);
    rt_image_box box = strcmp(how, "whole") == 0 ? rt_image_whole(&image) : rt_image_centre(&image, width, height);
    const ampc_status s = channels == RT_IMAGE_CLASSES ? rt_image_pick(&image, &box, width, height, t->d, &resized)
                                                       : rt_image_resize(&image, &box, width, height, t->d, &resized);
    assert_int_equal(s, AMPC_OK);
    rt_image_clear(&image);
    return resized;
}

TEST_SCRATCH(test_same_as_pil)
{
    rt_arrays pil;
    assert_int_equal(rt_npz_read(image_file("pil.npz"), IR_NO_DTYPE, t->d, &pil), AMPC_OK);
    assert_true(pil.count > 60);
    for (size_t i = 0; i < pil.count; i++) {
        const rt_array *a = &pil.items[i];
        rt_image image = make_named(t, a->name);
        assert_int_equal(image.channels, a->rank == 3 ? a->dims[2] : 1);
        assert_int_equal(image.height, a->dims[0]);
        assert_int_equal(image.width, a->dims[1]);
        for (size_t k = 0; k < a->bytes; k++)
            if (image.pixels[k] != ((uint8_t *)a->data)[k])
                fail_msg("%s: byte %zu is %d, but %d in PIL", a->name, k, image.pixels[k], ((uint8_t *)a->data)[k]);
        rt_image_clear(&image);
    }
    rt_arrays_clear(&pil);
}

TEST_SCRATCH(test_channels_of_the_file)
{
    static const struct {
        const char *file;
        int channels;
    } rows[] = {{"gray8.png", 1},    {"graya16.png", 1}, {"rgba8.png", 3},
                {"palette8.png", 3}, {"gray.jpg", 1},    {"420.jpg", 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rt_image image;
        assert_int_equal(rt_image_read(image_file(rows[i].file), 0, t->d, &image), AMPC_OK);
        assert_int_equal(image.channels, rows[i].channels);
        rt_image_clear(&image);
    }
}

static void expect_refused(scratch *t, const void *bytes, size_t n, const char *message)
{
    rt_image image;
    diag_clear(t->d);
    assert_int_equal(rt_image_decode(DIAG_FILE("a.png"), bytes, n, 3, t->d, &image), AMPC_REJECTED);
    assert_int_equal(diag_count(t->d, DIAG_ERROR), 1);
    if (!strstr(diag_first_error(t->d), message)) fail_msg("'%s' lacks '%s'", diag_first_error(t->d), message);
}

/* Every prefix of a file is refused: none may look like a smaller picture. */
TEST_SCRATCH(test_truncated)
{
    static const char *const files[] = {"rgb8.png", "interlaced.png", "420.jpg", "progressive.jpg"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t n;
        char *bytes = read_bytes(files[i], &n);
        for (size_t k = 0; k < n; k += k < 64 || k + 64 > n ? 1 : 61) {
            char *cut = malloc(k ? k : 1); /* so that ASan sees reads past its end */
            memcpy(cut, bytes, k);
            expect_refused(t, cut, k, "a.png: error: ");
            free(cut);
        }
        free(bytes);
    }
}

TEST_SCRATCH(test_refused)
{
    size_t n;
    char *bytes = read_bytes("cmyk.jpg", &n);
    expect_refused(t, bytes, n, "CMYK");
    free(bytes);
    expect_refused(t, "", 0, "neither a PNG nor a JPEG");
    expect_refused(t, "GIF89a", 6, "neither a PNG nor a JPEG");
    bytes = read_bytes("rgb8.png", &n);
    bytes[60] ^= 1;
    expect_refused(t, bytes, n, "damaged PNG");
    free(bytes);
}

/* What has no class number per pixel is not a mask; the size alone is read from any image. */
TEST_SCRATCH(test_masks)
{
    static const struct {
        const char *file, *message;
    } rows[] = {{"gray16.png", "mask is 16-bit gray;"},
                {"graya8.png", "mask is gray with alpha;"},
                {"graya16.png", "mask is gray with alpha;"},
                {"rgb8.png", "mask is RGB;"},
                {"rgb16.png", "mask is RGB;"},
                {"rgba8.png", "mask is RGB with alpha;"},
                {"gray.jpg", "mask is a JPEG"},
                {"make_images.py", "neither a PNG nor a JPEG"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rt_image image;
        diag_clear(t->d);
        assert_int_equal(rt_image_read(image_file(rows[i].file), RT_IMAGE_CLASSES, t->d, &image), AMPC_REJECTED);
        assert_int_equal(diag_count(t->d, DIAG_ERROR), 1);
        scratch_expect(t, rows[i].message);
        if (i + 1 == sizeof rows / sizeof *rows) break;
        assert_int_equal(rt_image_measure(image_file(rows[i].file), t->d, &image), AMPC_OK);
        assert_true(image.width == 37 && image.height == 23 && !image.pixels);
    }
}

/* A header of PNG for 65000 x 65000 pixels, with a correct checksum. */
TEST_SCRATCH(test_bomb)
{
    static const unsigned char bomb[] =
        "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\xfd\xe8\0\0\xfd\xe8\x08\x02\0\0\0\x2d\x35\x4e\x5d"
        "\0\0\0\1IDAT";
    expect_refused(t, bomb, sizeof bomb - 1, "65000x65000 pixels");
}

TEST_SCRATCH(test_unreadable)
{
    rt_image image;
    assert_int_equal(rt_image_read("/no/such.png", 3, t->d, &image), AMPC_IO);
    assert_string_equal(diag_first_error(t->d), "/no/such.png: error: cannot open: No such file or directory");
    diag_clear(t->d);
    assert_int_equal(rt_image_read("/", 3, t->d, &image), AMPC_IO);
}
