/* image_columns.c - reads a row of a column of images: decode, choose a box, resize, normalise, arrange. That of a mask
 * has the same box, and its numbers are not changed. */
#include "runtime/data/image_columns.h"

#include "runtime/backend/memory.h"
#include "runtime/data/augment.h"
#include "runtime/data/data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { BOX_ATTEMPTS = 10 };

typedef struct image_column {
    rt_image_files files;
    int channels, height, width;
    bool channels_last, stretch;
    double min_area;                          /* of a random box, as a share of the image; 0: no random boxes */
    float values[RT_MAX_CHANNELS][RT_LEVELS]; /* of the pixels */
    int64_t classes, ignored;                 /* what masks may contain: numbers below (0: any), and this one */
} image_column;

bool rt_is_image_suffix(const char *suffix)
{
    return !strcasecmp(suffix, "png") || !strcasecmp(suffix, "jpg") || !strcasecmp(suffix, "jpeg");
}

static bool is_channels(int64_t n) { return n == 1 || n == 3; }

bool rt_image_layout_of(const rt_field *f, rt_image_layout *out)
{
    const int64_t *dims = f->dims;
    if (f->whole || f->rank < 2 || f->rank > 3) return false;
    if (f->rank == 2) *out = (rt_image_layout){1, dims[0], dims[1], 1};
    else if (!is_channels(dims[0]) && is_channels(dims[2])) *out = (rt_image_layout){1, dims[0], dims[1], dims[2]};
    else *out = (rt_image_layout){dims[0], dims[1], dims[2], 1};
    return true;
}

/* ---- reading ---- */

/* A box of a random area and an aspect ratio between 3/4 and 4/3 at a random position; the centred box if none fits. */
static rt_image_box random_box(const image_column *c, const rt_image *image, const rt_draw *draw, int64_t row)
{
    const double w = image->width, h = image->height;
    for (unsigned i = 0; i < BOX_ATTEMPTS; i++) {
        const philox_words words = rt_draw_block(draw, row, RT_DRAW_BOX + i);
        const double area = w * h * (c->min_area + (1 - c->min_area) * philox_unit(words.v[0]));
        double ratio = 0.75 + 0.25 * philox_unit(words.v[1]);
        if (words.v[1] & 1) ratio = 1 / ratio; /* a bit that philox_unit drops */
        const double width = sqrt(area * ratio), height = sqrt(area / ratio);
        if (width > w || height > h) continue;
        const double left = (w - width) * philox_unit(words.v[2]), top = (h - height) * philox_unit(words.v[3]);
        return (rt_image_box){(float)left, (float)top, fminf((float)(left + width), (float)w),
                              fminf((float)(top + height), (float)h)};
    }
    return rt_image_centre(image, c->width, c->height);
}

static rt_image_box choose_box(const image_column *c, const rt_image *image, const rt_draw *draw, int64_t row)
{
    if (draw && c->min_area > 0) return random_box(c, image, draw, row);
    return c->stretch ? rt_image_whole(image) : rt_image_centre(image, c->width, c->height);
}

/* Where channel k of pixel i belongs. */
static size_t position(const image_column *c, size_t i, size_t k)
{
    return c->channels_last ? i * (size_t)c->channels + k : k * (size_t)c->height * (size_t)c->width + i;
}

static void arrange_values(const image_column *c, const rt_image *image, float *dst)
{
    const size_t channels = (size_t)c->channels, n = (size_t)c->height * (size_t)c->width;
    for (size_t k = 0; k < channels; k++)
        for (size_t i = 0; i < n; i++) dst[position(c, i, k)] = c->values[k][image->pixels[i * channels + k]];
}

static void arrange_pixels(const image_column *c, const rt_image *image, uint8_t *dst)
{
    const size_t channels = (size_t)c->channels, n = (size_t)c->height * (size_t)c->width;
    for (size_t k = 0; k < channels; k++)
        for (size_t i = 0; i < n; i++) dst[position(c, i, k)] = image->pixels[i * channels + k];
}

/* Floats are normalised, integers are the pixels. */
static ampc_status store(const image_column *c, const rt_image *image, void *dst, ir_dtype dtype, diag *d)
{
    const size_t n = (size_t)c->channels * (size_t)c->height * (size_t)c->width;
    const bool real = ir_dtype_is_float(dtype);
    void *arranged = dtype == IR_f32 ? dst : malloc(n * (real ? sizeof(float) : 1));
    if (!arranged) return rt_no_memory(d);
    if (real) arrange_values(c, image, arranged);
    else arrange_pixels(c, image, arranged);
    if (arranged == dst) return AMPC_OK;
    ir_convert(dtype, dst, real ? IR_f32 : IR_u8, arranged, n);
    free(arranged);
    return AMPC_OK;
}

static ampc_status read_image(const rt_column *column, int64_t row, const rt_draw *draw, void *dst, ir_dtype dtype,
                              diag *d)
{
    const image_column *c = column->state;
    rt_image image, resized = {0};
    TRY(c->files.load(c->files.user, row, c->channels, d, &image));
    const rt_image_box box = choose_box(c, &image, draw, row);
    ampc_status s = rt_image_resize(&image, &box, c->width, c->height, d, &resized);
    if (s == AMPC_OK) s = store(c, &resized, dst, dtype, d);
    rt_image_clear(&image);
    rt_image_clear(&resized);
    return s;
}

static ampc_status measure_image(const rt_column *column, int64_t row, diag *d, int size[3])
{
    const image_column *c = column->state;
    rt_image image;
    TRY(c->files.load(c->files.user, row, 0, d, &image));
    size[0] = image.width;
    size[1] = image.height;
    size[2] = image.channels;
    rt_image_clear(&image);
    return AMPC_OK;
}

/* ---- masks ---- */

static ampc_status check_size(const rt_mask_file *f, const rt_image *mask, diag *d)
{
    rt_image image;
    TRY(rt_image_measure(f->image, d, &image));
    if (mask->width == image.width && mask->height == image.height) return AMPC_OK;
    return diag_error(d, AMPC_REJECTED, DIAG_FILE(f->path), "the mask has %dx%d pixels, but its image %s has %dx%d",
                      mask->width, mask->height, f->image, image.width, image.height);
}

static ampc_status check_classes(const image_column *c, const rt_mask_file *f, const rt_image *mask, diag *d)
{
    const int pixels = c->classes ? mask->width * mask->height : 0;
    for (int i = 0; i < pixels; i++) {
        const int number = mask->pixels[i];
        if (number < c->classes || number == c->ignored) continue;
        const bool ignores = c->ignored != INT64_MIN;
        return diag_error(d, AMPC_REJECTED, DIAG_FILE(f->path),
                          "the mask has class %d at x=%d, y=%d, but the model has %lld classes%s", number,
                          i % mask->width, i / mask->width, (long long)c->classes,
                          ignores ? "" : " (ignore_index=N of the loss leaves pixels out)");
    }
    return AMPC_OK;
}

static ampc_status load_mask(const image_column *c, const rt_mask_file *f, diag *d, rt_image *out)
{
    TRY(rt_image_read(f->path, RT_IMAGE_CLASSES, d, out));
    TRY(check_size(f, out, d));
    return check_classes(c, f, out, d);
}

static ampc_status read_mask(const rt_column *column, int64_t row, const rt_draw *draw, void *dst, ir_dtype dtype,
                             diag *d)
{
    const image_column *c = column->state;
    rt_mask_file file;
    rt_image mask = {0}, picked = {0};
    c->files.find_mask(c->files.user, row, &file);
    ampc_status s = load_mask(c, &file, d, &mask);
    if (s == AMPC_OK) {
        const rt_image_box box = choose_box(c, &mask, draw, row);
        s = rt_image_pick(&mask, &box, c->width, c->height, d, &picked);
    } else if (file.listed.file) diag_note(d, file.listed, "the file is listed here");
    if (s == AMPC_OK) ir_convert(dtype, dst, IR_u8, picked.pixels, (size_t)c->width * (size_t)c->height);
    rt_image_clear(&mask);
    rt_image_clear(&picked);
    return s;
}

static void close_images(rt_column *column)
{
    image_column *c = column->state;
    c->files.close(c->files.user);
    free(c);
}

/* ---- opening ---- */

/* Copies size and layout from the model. A size of 1x1 means that the model leaves it open. */
static ampc_status follow_model(image_column *c, const rt_dataset_options *o, diag *d)
{
    rt_image_layout l = {1, 1, 1, 1};
    size_t i = 0;
    while (i < o->n_fields && !(ir_dtype_is_float(o->fields[i].dtype) && rt_image_layout_of(&o->fields[i], &l))) i++;
    if (i == o->n_fields) return AMPC_OK;
    c->channels_last = l.depth > 1;
    c->channels = (int)(c->channels_last ? l.depth : l.planes);
    if (!is_channels(l.planes * l.depth) || l.height > RT_IMAGE_MAX_SIDE || l.width > RT_IMAGE_MAX_SIDE)
        return diag_error(d, AMPC_REJECTED, diag_named(NULL, DIAG_INPUT, o->fields[i].name),
                          "the input is not an image of 1 or 3 channels");
    if (l.height == 1 && l.width == 1) return AMPC_OK;
    c->height = (int)l.height;
    c->width = (int)l.width;
    return AMPC_OK;
}

/* The size of the first image, for a description without a model. */
static ampc_status follow_image(image_column *c, const rt_image_files *files, diag *d)
{
    rt_image image;
    TRY(files->load(files->user, 0, c->channels, d, &image));
    c->height = image.height;
    c->width = image.width;
    rt_image_clear(&image);
    diag_note(d, DIAG_NOWHERE,
              "images get the size of the model's input, or that of size=HEIGHTxWIDTH; here it is %dx%d, that of the "
              "first image",
              c->height, c->width);
    return AMPC_OK;
}

static ampc_status set_form(image_column *c, const rt_data_spec *spec, const rt_dataset_options *o,
                            const rt_image_files *files, diag *d)
{
    c->channels = 3;
    TRY(follow_model(c, o, d));
    if (spec->o.channels != RT_CHANNELS_NONE) c->channels = spec->o.channels == RT_CHANNELS_1 ? 1 : 3;
    const int64_t *size = spec->o.size;
    if (size[0]) {
        c->height = (int)size[0];
        c->width = (int)size[1];
    }
    if (size[0] > RT_IMAGE_MAX_SIDE || size[1] > RT_IMAGE_MAX_SIDE)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "data '%s': size is above %d", spec->spec, RT_IMAGE_MAX_SIDE);
    if (!c->height && o->describes) TRY(follow_image(c, files, d));
    if (!c->height)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                          "data '%s': the model does not determine the size of the images; give size=HEIGHTxWIDTH",
                          spec->spec);
    c->stretch = spec->o.fit == RT_FIT_STRETCH;
    c->min_area = spec->o.resized_crop;
    return AMPC_OK;
}

static rt_field field_of(const image_column *c)
{
    rt_field f = {.name = "images", .dtype = IR_f32, .rank = 3, .dims = {c->channels, c->height, c->width}};
    if (c->channels_last)
        f = (rt_field){.name = f.name, .dtype = IR_f32, .rank = 3, .dims = {c->height, c->width, c->channels}};
    return f;
}

static void set_classes(image_column *c, const rt_dataset_options *o)
{
    const rt_field *labels = rt_labels_described(o);
    c->classes = labels ? labels->bound : 0;
    c->ignored = labels ? labels->ignored : INT64_MIN;
}

/* Adds the columns, of which that of the images closes the state. */
static ampc_status add_columns(rt_columns *out, image_column *c, diag *d)
{
    const rt_column labels = {
        .field = {"labels", IR_i64, .rank = 2, .dims = {c->height, c->width}}, .read = read_mask, .state = c};
    if (c->files.find_mask) TRY(rt_columns_add(out, &labels, d));
    return rt_columns_add(out, &(rt_column){field_of(c), read_image, measure_image, close_images, c}, d);
}

ampc_status rt_columns_add_images(rt_columns *out, const rt_data_spec *spec, const rt_dataset_options *o,
                                  const rt_image_files *files, diag *d)
{
    image_column *c = calloc(1, sizeof *c);
    ampc_status s = c ? AMPC_OK : rt_no_memory(d);
    if (s == AMPC_OK) s = set_form(c, spec, o, files, d);
    if (s == AMPC_OK) s = rt_spec_levels(spec, c->channels, c->values, d);
    if (s == AMPC_OK) {
        c->files = *files;
        set_classes(c, o);
        s = add_columns(out, c, d);
    }
    out->reading = RT_DECODED;
    if (s == AMPC_OK) {
        out->locate = files->locate;
        out->source = files->user;
        return s;
    }
    files->close(files->user);
    free(c);
    return s;
}
