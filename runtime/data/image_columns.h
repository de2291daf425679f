/* image_columns.h - a column of decoded images, for every kind of data that has files of images. */
#ifndef RT_IMAGE_COLUMNS_H
#define RT_IMAGE_COLUMNS_H

#include "runtime/data/column.h"
#include "runtime/data/image.h"

/* Where the axes of a sample are: [planes, height, width, depth], of which planes or depth counts the channels. */
typedef struct rt_image_layout {
    int64_t planes, height, width, depth;
} rt_image_layout;

/* [H,W], [C,H,W], or [H,W,C] if only then C is 1 or 3. False if the field is not an image. */
bool rt_image_layout_of(const rt_field *f, rt_image_layout *out);

/* Whether files with this suffix are images: png, jpg or jpeg, in any case. */
bool rt_is_image_suffix(const char *suffix);

/* The file of a mask: an image of the same size as another one, with a class number per pixel. */
typedef struct rt_mask_file {
    const char *path, *image;
    diag_loc listed; /* where the data name the file, for messages; DIAG_NOWHERE: by its place */
} rt_mask_file;

/* The images of a kind of data, and perhaps their masks. `load` is thread-safe and fails like the `read` of a column.
 */
typedef struct rt_image_files {
    ampc_status (*load)(void *user, int64_t row, int channels, diag *d, rt_image *out);
    void (*find_mask)(const void *user, int64_t row, rt_mask_file *out); /* NULL: no masks */
    void (*locate)(const void *user, int64_t row, char *text, size_t n); /* as in rt_columns */
    void (*close)(void *user); /* called once, when the column is closed or if adding it fails */
    void *user;
} rt_image_files;

/* Adds the column "images", f32, in the size, channels and layout of the first float input in o->fields that is an
 * image, or as the options of the SPEC say (size, channels, fit, resized-crop, divide, mean, std); and, if there are
 * masks, "labels", i64 [height, width], of the same part of the picture. Reading a mask fails with AMPC_REJECTED if its
 * size is not that of the image, or if it has a class that the labels in o->fields cannot have. Fails with AMPC_USAGE
 * if the size is unknown. */
ampc_status rt_columns_add_images(rt_columns *out, const rt_data_spec *spec, const struct rt_dataset_options *o,
                                  const rt_image_files *files, diag *d);

#endif
