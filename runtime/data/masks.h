/* masks.h - finds the mask of each image by its name. */
#ifndef RT_MASKS_H
#define RT_MASKS_H

#include "runtime/data/names.h"

/* Adds, for each image, the mask with the same path in its folder except for the suffix. `images` and `masks` are paths
 * in the folders of these names. Masks without an image are counted in one remark. Fails with AMPC_REJECTED, naming the
 * file, if an image has no mask, or two. */
ampc_status rt_pair_masks(const rt_names *images, const char *image_folder, const rt_names *masks,
                          const char *mask_folder, diag *d, rt_names *out);

#endif
