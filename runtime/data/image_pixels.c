/* image_pixels.c - the memory of an image. */
#include "runtime/backend/memory.h"
#include "runtime/data/image.h"
#include "runtime/data/image_codec.h"

#include <stdlib.h>

void rt_image_clear(rt_image *image)
{
    free(image->pixels);
    *image = (rt_image){0};
}

ampc_status rt_image_alloc(const image_source *source, uint32_t width, uint32_t height, int channels, rt_image *out)
{
    if (width < 1 || height < 1 || width > RT_IMAGE_MAX_SIDE || height > RT_IMAGE_MAX_SIDE ||
        (uint64_t)width * height > RT_IMAGE_MAX_PIXELS)
        return diag_error(source->d, AMPC_REJECTED, source->where, "%ux%u pixels (at most %d, and %d per side)", width,
                          height, RT_IMAGE_MAX_PIXELS, RT_IMAGE_MAX_SIDE);
    *out = (rt_image){.width = (int)width, .height = (int)height, .channels = channels};
    if (source->size_only) return AMPC_OK;
    out->pixels = malloc((size_t)width * height * (size_t)channels);
    return out->pixels ? AMPC_OK : rt_no_memory(source->d);
}
