/* image.c - chooses the decoder by the first bytes, and converts channels. */
#include "runtime/data/image.h"
#include "runtime/backend/memory.h"
#include "runtime/data/image_codec.h"
#include "runtime/files/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE_BYTES = 1 << 30 };

/* Luma in 16-bit fixed point, as in PIL. */
static void drop_colour(rt_image *image)
{
    const size_t n = (size_t)image->width * (size_t)image->height;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *p = image->pixels + 3 * i;
        image->pixels[i] = (uint8_t)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16);
    }
    image->channels = 1;
}

static ampc_status repeat_gray(rt_image *image, diag *d)
{
    const size_t n = (size_t)image->width * (size_t)image->height;
    uint8_t *pixels = realloc(image->pixels, 3 * n);
    if (!pixels) return rt_no_memory(d);
    for (size_t i = n; i-- > 0;) pixels[3 * i] = pixels[3 * i + 1] = pixels[3 * i + 2] = pixels[i];
    image->pixels = pixels;
    image->channels = 3;
    return AMPC_OK;
}

static const struct {
    const char *magic;
    size_t length;
    bool lossy;
    ampc_status (*decode)(const image_source *source, rt_image *out);
} formats[] = {
    {"\x89PNG\r\n\x1a\n", 8, false, rt_image_decode_png},
    {"\xff\xd8\xff", 3, true, rt_image_decode_jpeg},
};

enum { FORMATS = sizeof formats / sizeof *formats, MAX_MAGIC = 8 };

/* The format of a file that begins with these bytes; FORMATS: another one. */
static size_t find_format(const void *bytes, size_t n)
{
    size_t i = 0;
    while (i < FORMATS && (n < formats[i].length || memcmp(bytes, formats[i].magic, formats[i].length) != 0)) i++;
    return i;
}

/* Decodes to the channels of the file. */
static ampc_status decode(const image_source *source, rt_image *out)
{
    const size_t i = find_format(source->bytes, source->size);
    if (i == FORMATS)
        return diag_error(source->d, AMPC_REJECTED, source->where, "neither a PNG nor a JPEG file (wrong magic bytes)");
    if (source->classes && formats[i].lossy)
        return diag_error(source->d, AMPC_REJECTED, source->where,
                          "the mask is a JPEG, whose compression changes class numbers; it must be a PNG");
    return formats[i].decode(source, out);
}

ampc_status rt_image_decode(diag_loc where, const void *bytes, size_t n, int channels, diag *d, rt_image *out)
{
    const image_source source = {
        .where = where, .bytes = bytes, .size = n, .classes = channels == RT_IMAGE_CLASSES, .d = d};
    rt_image image = {0};
    ampc_status s = decode(&source, &image);
    if (s == AMPC_OK && channels == 1 && image.channels == 3) drop_colour(&image);
    if (s == AMPC_OK && channels == 3 && image.channels == 1) s = repeat_gray(&image, d);
    if (s == AMPC_OK) *out = image;
    else rt_image_clear(&image);
    return s;
}

static ampc_status read_file(const char *path, int fd, uint64_t size, diag *d, uint8_t **bytes, size_t *n)
{
    if (size > MAX_FILE_BYTES)
        return diag_error(d, AMPC_REJECTED, DIAG_FILE(path), "%llu bytes are too many for an image",
                          (unsigned long long)size);
    *bytes = malloc(size ? size : 1);
    if (!*bytes) return rt_no_memory(d);
    *n = size;
    if (rt_io_pread(fd, *bytes, size, 0)) return AMPC_OK;
    if (errno != ENODATA) return diag_errno(d, DIAG_FILE(path), "cannot read");
    return diag_error(d, AMPC_IO, DIAG_FILE(path), "the file became shorter while it was read");
}

static ampc_status open_and_read(const char *path, diag *d, uint8_t **bytes, size_t *n)
{
    uint64_t size;
    int fd;
    TRY(rt_io_open_input(path, d, &fd, &size));
    const ampc_status s = read_file(path, fd, size, d, bytes, n);
    rt_io_close(fd);
    return s;
}

ampc_status rt_image_read(const char *path, int channels, diag *d, rt_image *out)
{
    uint8_t *bytes = NULL;
    size_t n = 0;
    ampc_status s = open_and_read(path, d, &bytes, &n);
    if (s == AMPC_OK) s = rt_image_decode(DIAG_FILE(path), bytes, n, channels, d, out);
    free(bytes);
    return s;
}

ampc_status rt_image_measure(const char *path, diag *d, rt_image *out)
{
    uint8_t *bytes = NULL;
    size_t n = 0;
    rt_image image = {0};
    ampc_status s = open_and_read(path, d, &bytes, &n);
    const image_source source = {.where = DIAG_FILE(path), .bytes = bytes, .size = n, .size_only = true, .d = d};
    if (s == AMPC_OK) s = decode(&source, &image);
    if (s == AMPC_OK) *out = (rt_image){.width = image.width, .height = image.height};
    free(bytes);
    return s;
}

ampc_status rt_image_recognise(const char *path, diag *d, bool *out)
{
    char start[MAX_MAGIC];
    uint64_t size;
    int fd;
    TRY(rt_io_open_input(path, d, &fd, &size));
    const size_t n = size < MAX_MAGIC ? (size_t)size : MAX_MAGIC;
    const bool ok = rt_io_pread(fd, start, n, 0);
    ampc_status s = ok ? AMPC_OK : diag_errno(d, DIAG_FILE(path), "cannot read");
    *out = ok && find_format(start, n) < FORMATS;
    rt_io_close(fd);
    return s;
}
