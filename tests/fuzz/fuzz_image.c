/* fuzz_image.c - arbitrary bytes as a PNG or JPEG file, resized if it can be decoded. */
#include "runtime/data/image.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int channels[] = {0, 3, RT_IMAGE_CLASSES};
    diag *d = diag_new(NULL, NULL);
    rt_image image = {0}, resized = {0};
    if (d && rt_image_decode(DIAG_FILE("fuzz"), data, size, channels[size % 3], d, &image) == AMPC_OK) {
        rt_image_box box = rt_image_centre(&image, 7, 5);
        if (image.channels != 1 && image.channels != 3) abort();
        if (rt_image_resize(&image, &box, 7, 5, d, &resized) == AMPC_OK && !resized.pixels) abort();
    } else if (d && diag_count(d, DIAG_ERROR) != 1) abort();
    rt_image_clear(&image);
    rt_image_clear(&resized);
    diag_free(d);
    return 0;
}
