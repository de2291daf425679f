/* augment.c - flips and crops images while they are read, whatever kind of data they come from. */
#include "runtime/data/augment.h"

#include "runtime/backend/memory.h"
#include "runtime/data/image_columns.h"

#include <stdlib.h>
#include <string.h>

/* A column between the data set and the column that it changes. */
typedef struct augmented {
    rt_column inner;
    rt_image_layout layout;
    bool flip_x, flip_y;
    int64_t pad;
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

/* `pixel` is the size of all channels of a pixel that are adjacent. What comes from outside is 0. */
static void move_plane(const rt_image_layout *l, const move *m, size_t pixel, const char *src, char *dst)
{
    for (int64_t y = 0; y < l->height; y++)
        for (int64_t x = 0; x < l->width; x++, dst += pixel) {
            const int64_t from_x = (m->flip_x ? l->width - 1 - x : x) + m->dx;
            const int64_t from_y = (m->flip_y ? l->height - 1 - y : y) + m->dy;
            if (from_x < 0 || from_x >= l->width || from_y < 0 || from_y >= l->height) memset(dst, 0, pixel);
            else memcpy(dst, src + (size_t)(from_y * l->width + from_x) * pixel, pixel);
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
    char *unchanged = malloc(plane * (size_t)l->planes + 1);
    if (!unchanged) return rt_no_memory(d);
    ampc_status s = a->inner.read(&a->inner, row, draw, unchanged, dtype, d);
    for (size_t i = 0; s == AMPC_OK && i < (size_t)l->planes; i++)
        move_plane(l, &m, pixel, unchanged + i * plane, (char *)dst + i * plane);
    free(unchanged);
    return s;
}

static void close_augmented(rt_column *c)
{
    augmented *a = c->state;
    if (a->inner.close) a->inner.close(&a->inner);
    free(a);
}

static rt_column *find_images(rt_columns *all, rt_image_layout *layout)
{
    static const char *const names[] = {"images", "x"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        for (size_t i = 0; i < all->count; i++)
            if (strcmp(all->items[i].field.name, names[k]) == 0 && rt_image_layout_of(&all->items[i].field, layout))
                return &all->items[i];
    return NULL;
}

ampc_status rt_augment(const rt_data_spec *spec, diag *d, rt_columns *all)
{
    const char *flip = rt_spec_text(spec, "flip", "");
    const uint64_t pad = rt_spec_count(spec, "crop", 0);
    rt_image_layout layout;
    if (!*flip && !pad) return AMPC_OK;
    rt_column *c = find_images(all, &layout);
    if (!c)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                          "data '%s': flip and crop need images in a field named images or x", spec->spec);
    if (pad > (uint64_t)layout.height || pad > (uint64_t)layout.width)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "data '%s': crop is larger than the images", spec->spec);
    augmented *a = malloc(sizeof *a);
    if (!a) return rt_no_memory(d);
    const bool both = strcmp(flip, "both") == 0;
    *a = (augmented){*c, layout, both || strcmp(flip, "horizontal") == 0, both || strcmp(flip, "vertical") == 0,
                     (int64_t)pad};
    c->read = read_augmented;
    c->close = close_augmented;
    c->state = a;
    return AMPC_OK;
}
