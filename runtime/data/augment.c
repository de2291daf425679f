/* augment.c - flips and crops images while they are read, whatever kind of data they come from. */
#include "runtime/data/augment.h"

#include "runtime/backend/memory.h"
#include "runtime/data/data.h"
#include "runtime/data/image_columns.h"

#include <stdlib.h>
#include <string.h>

/* A column between the data set and the column that it changes. */
typedef struct augmented {
    rt_column inner;
    rt_image_layout layout;
    bool flip_x, flip_y;
    int64_t pad;
    int64_t outside; /* the value of what comes from outside of the image */
} augmented;

/* One change: result pixel (x, y) is source pixel (x + dx, y + dy), counted from the other end if flipped. */
typedef struct move {
    bool flip_x, flip_y;
    int64_t dx, dy;
} move;

static move draw_move(const augmented *a, const rt_draw *draw, int64_t row)
{
    const philox_words words = rt_draw_block(draw, row, RT_DRAW_FLIP_AND_CROP);
    const uint64_t positions = 2 * (uint64_t)a->pad + 1;
    return (move){.flip_x = a->flip_x && words.v[0] & 1,
                  .flip_y = a->flip_y && words.v[0] & 2,
                  .dx = (int64_t)philox_below((uint64_t)words.v[1] << 32, positions) - a->pad,
                  .dy = (int64_t)philox_below((uint64_t)words.v[2] << 32, positions) - a->pad};
}

/* `pixel` is the size of all channels of a pixel that are adjacent. What comes from outside is that at `outside`. */
static void move_plane(const rt_image_layout *l, const move *m, size_t pixel, const char *outside, const char *src,
                       char *dst)
{
    for (int64_t y = 0; y < l->height; y++)
        for (int64_t x = 0; x < l->width; x++, dst += pixel) {
            const int64_t from_x = (m->flip_x ? l->width - 1 - x : x) + m->dx;
            const int64_t from_y = (m->flip_y ? l->height - 1 - y : y) + m->dy;
            const bool inside = from_x >= 0 && from_x < l->width && from_y >= 0 && from_y < l->height;
            memcpy(dst, inside ? src + (size_t)(from_y * l->width + from_x) * pixel : outside, pixel);
        }
}

static ampc_status read_augmented(const rt_column *c, int64_t row, const rt_draw *draw, void *dst, ir_dtype dtype,
                                  diag *d)
{
    const augmented *a = c->state;
    const rt_image_layout *l = &a->layout;
    if (!draw) return a->inner.read(&a->inner, row, draw, dst, dtype, d);
    const size_t pixel = (size_t)l->depth * ir_dtype_size(dtype);
    const size_t plane = (size_t)l->height * (size_t)l->width * pixel;
    const move m = draw_move(a, draw, row);
    char *unchanged = malloc(plane * (size_t)l->planes + pixel);
    if (!unchanged) return rt_no_memory(d);
    char *outside = unchanged + plane * (size_t)l->planes;
    for (int64_t k = 0; k < l->depth; k++)
        ir_convert(dtype, outside + (size_t)k * ir_dtype_size(dtype), IR_i64, &a->outside, 1);
    ampc_status s = a->inner.read(&a->inner, row, draw, unchanged, dtype, d);
    for (size_t i = 0; s == AMPC_OK && i < (size_t)l->planes; i++)
        move_plane(l, &m, pixel, outside, unchanged + i * plane, (char *)dst + i * plane);
    free(unchanged);
    return s;
}

static ampc_status measure_augmented(const rt_column *c, int64_t row, diag *d, int size[3])
{
    const augmented *a = c->state;
    return a->inner.image_size(&a->inner, row, d, size);
}

static void close_augmented(rt_column *c)
{
    augmented *a = c->state;
    if (a->inner.close) a->inner.close(&a->inner);
    free(a);
}

/* The first image among the fields with these names. */
static rt_column *find_images(rt_columns *all, const char *const *names, rt_image_layout *layout)
{
    for (; *names; names++)
        for (size_t i = 0; i < all->count; i++)
            if (strcmp(all->items[i].field.name, *names) == 0 && rt_image_layout_of(&all->items[i].field, layout))
                return &all->items[i];
    return NULL;
}

/* Puts `changes` before the column. */
static ampc_status augment_column(rt_column *c, const augmented *changes, diag *d)
{
    augmented *a = malloc(sizeof *a);
    if (!a) return rt_no_memory(d);
    *a = *changes;
    a->inner = *c;
    *c = (rt_column){.field = c->field, .read = read_augmented, .close = close_augmented, .state = a};
    if (a->inner.image_size) c->image_size = measure_augmented;
    return AMPC_OK;
}

/* Labels with a value for each pixel move with the image. Pixels from outside have the class that the loss leaves out,
 * if there is one, or else 0. */
static ampc_status augment_labels(rt_columns *all, const augmented *image, const rt_dataset_options *o, diag *d)
{
    const rt_field *described = rt_labels_described(o);
    augmented changes = *image;
    rt_column *labels = find_images(all, rt_label_names, &changes.layout);
    if (!labels || changes.layout.height != image->layout.height || changes.layout.width != image->layout.width)
        return AMPC_OK;
    if (described && described->ignored != INT64_MIN && ir_dtype_is_int(labels->field.dtype))
        changes.outside = described->ignored;
    return augment_column(labels, &changes, d);
}

ampc_status rt_augment(const rt_data_spec *spec, const rt_dataset_options *o, diag *d, rt_columns *all)
{
    const int flip = spec->o.flip;
    const int64_t pad = spec->o.crop;
    augmented changes = {.flip_x = flip == RT_FLIP_BOTH || flip == RT_FLIP_HORIZONTAL,
                         .flip_y = flip == RT_FLIP_BOTH || flip == RT_FLIP_VERTICAL,
                         .pad = pad};
    if (flip == RT_FLIP_NONE && !pad) return AMPC_OK;
    rt_column *images = find_images(all, rt_input_names, &changes.layout);
    if (!images)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                          "data '%s': flip and crop need images in a field named images or x", spec->spec);
    if (pad > changes.layout.height || pad > changes.layout.width)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "data '%s': crop is larger than the images", spec->spec);
    TRY(augment_column(images, &changes, d));
    return augment_labels(all, &changes, o, d);
}
