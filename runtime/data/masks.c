/* masks.c - pairs the files of two folders by their names without suffixes. */
#include "runtime/data/masks.h"

#include "runtime/backend/memory.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The part of a path that an image and its mask have in common. */
typedef struct base {
    const char *text;
    size_t n;
    const char *path;
    bool used;
} base;

static base base_of(const char *path, const char *folder)
{
    const char *text = path + strlen(folder) + 1, *slash = strrchr(text, '/'), *last = slash ? slash + 1 : text;
    const char *dot = strrchr(last, '.');
    return (base){.text = text, .n = dot && dot > last ? (size_t)(dot - text) : strlen(text), .path = path};
}

static int compare(const void *x, const void *y)
{
    const base *a = x, *b = y;
    const int order = memcmp(a->text, b->text, a->n < b->n ? a->n : b->n);
    return order ? order : (a->n > b->n) - (a->n < b->n);
}

static ampc_status sort_bases(base *all, const rt_names *masks, const char *folder, diag *d)
{
    for (size_t i = 0; i < masks->count; i++) all[i] = base_of(masks->items[i], folder);
    qsort(all, masks->count, sizeof *all, compare);
    for (size_t i = 1; i < masks->count; i++)
        if (compare(&all[i - 1], &all[i]) == 0)
            return diag_error(d, AMPC_REJECTED, DIAG_FILE(all[i].path), "a mask of the same image as %s",
                              all[i - 1].path);
    return AMPC_OK;
}

static void report_unused(const base *all, size_t n, const char *folder, diag *d)
{
    const char *first = NULL;
    size_t unused = 0;
    for (size_t i = 0; i < n; i++) {
        if (all[i].used) continue;
        if (!unused++) first = all[i].path;
    }
    if (unused)
        diag_remark(d, DIAG_FILE(folder), "%zu mask%s no image%s%s", unused, unused == 1 ? " has" : "s have",
                    unused == 1 ? ": " : ", such as ", first);
}

static ampc_status pair(base *all, size_t n, const rt_names *images, const char *image_folder, const char *mask_folder,
                        diag *d, rt_names *out)
{
    for (size_t i = 0; i < images->count; i++) {
        const base key = base_of(images->items[i], image_folder);
        base *found = bsearch(&key, all, n, sizeof *all, compare);
        if (!found)
            return diag_error(d, AMPC_REJECTED, DIAG_FILE(key.path), "the image has no mask %s/%.*s.png", mask_folder,
                              (int)key.n, key.text);
        found->used = true;
        TRY(rt_names_add(out, strdup(found->path), d));
    }
    report_unused(all, n, mask_folder, d);
    return AMPC_OK;
}

ampc_status rt_pair_masks(const rt_names *images, const char *image_folder, const rt_names *masks,
                          const char *mask_folder, diag *d, rt_names *out)
{
    base *all = calloc(masks->count + 1, sizeof *all);
    if (!all) return rt_no_memory(d);
    ampc_status s = sort_bases(all, masks, mask_folder, d);
    if (s == AMPC_OK) s = pair(all, masks->count, images, image_folder, mask_folder, d, out);
    free(all);
    return s;
}
