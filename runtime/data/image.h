/* image.h - PNG and JPEG pictures: decoding, cropping and resizing. Every function is thread-safe. */
#ifndef RT_IMAGE_H
#define RT_IMAGE_H

#include "ir/base/diag.h"

#include <stddef.h>
#include <stdint.h>

/* Headers that claim more are rejected before any memory is allocated. */
enum { RT_IMAGE_MAX_SIDE = 65500, RT_IMAGE_MAX_PIXELS = 1 << 27 };
/* Instead of a number of channels: pixels are class numbers, one channel. */
enum { RT_IMAGE_CLASSES = -1 };

/* Pixels are u8 [height, width, channels], malloced; channels is 1 (gray) or 3 (RGB). */
typedef struct rt_image {
    int width, height, channels;
    uint8_t *pixels;
} rt_image;

void rt_image_clear(rt_image *image);

/* Decodes a whole file in memory, recognised by content. `channels` 1 or 3 converts (luma of ITU-R 601 with PIL's
 * rounding, or three equal channels), 0 keeps those of the file. Alpha is dropped, palettes are expanded, the low byte
 * of 16-bit samples is dropped, and the orientation in EXIF is ignored. RT_IMAGE_CLASSES keeps the samples of a PNG as
 * they are: indices of a palette, or gray values of up to 8 bits. Fails with AMPC_REJECTED, at `where`, if the bytes
 * are neither PNG nor JPEG, damaged, truncated, too large, CMYK, or an image without class numbers; or with
 * AMPC_NO_MEMORY. */
ampc_status rt_image_decode(diag_loc where, const void *bytes, size_t n, int channels, diag *d, rt_image *out);
/* The same for a file; fails also with AMPC_IO. */
ampc_status rt_image_read(const char *path, int channels, diag *d, rt_image *out);
/* Reads only width and height of a file; the other members of *out are 0. Fails likewise. */
ampc_status rt_image_measure(const char *path, diag *d, rt_image *out);
/* Whether a file begins like a PNG or JPEG. Fails with AMPC_IO. */
ampc_status rt_image_recognise(const char *path, diag *d, bool *out);

/* A rectangle in pixels; edges may be between pixels. */
typedef struct rt_image_box {
    float left, top, right, bottom;
} rt_image_box;

rt_image_box rt_image_whole(const rt_image *image);
/* The largest centred box with the aspect ratio of width x height. */
rt_image_box rt_image_centre(const rt_image *image, int width, int height);
/* Resizes the box, which is within the image and not empty, to width x height: bilinear with antialiasing, computed
 * like Image.resize(.., BILINEAR, box) of Pillow up to 12 and equal to it bit for bit. AMPC_NO_MEMORY is the only
 * failure. */
ampc_status rt_image_resize(const rt_image *image, const rt_image_box *box, int width, int height, diag *d,
                            rt_image *out);
/* The same without mixing pixels: each is the one in which the centre of the result pixel is. */
ampc_status rt_image_pick(const rt_image *image, const rt_image_box *box, int width, int height, diag *d,
                          rt_image *out);

#endif
