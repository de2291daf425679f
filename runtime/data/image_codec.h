/* image_codec.h - one image being decoded; private to the decoders of image formats. */
#ifndef RT_IMAGE_CODEC_H
#define RT_IMAGE_CODEC_H

#include "runtime/data/image.h"

typedef struct image_source {
    diag_loc where;
    const uint8_t *bytes;
    size_t size;
    bool classes;   /* samples are kept as they are; the image must have one per pixel */
    bool size_only; /* without pixels */
    diag *d;
} image_source;

/* Each decodes to the channels of the file. The caller clears `out` also on failure. */
ampc_status rt_image_decode_png(const image_source *source, rt_image *out);
ampc_status rt_image_decode_jpeg(const image_source *source, rt_image *out);

/* Checks the size against the limits and allocates the pixels, unless only the size is of interest (image_pixels.c). */
ampc_status rt_image_alloc(const image_source *source, uint32_t width, uint32_t height, int channels, rt_image *out);

#endif
