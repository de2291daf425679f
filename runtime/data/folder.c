/* folder.c - images in one subfolder per class, or with one mask per image in another folder. */
#include "runtime/backend/memory.h"
#include "runtime/data/data.h"
#include "runtime/data/image_columns.h"
#include "runtime/data/kinds.h"
#include "runtime/data/masks.h"
#include "runtime/data/names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char *join(const char *folder, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

/* What a path is; 0 if nothing of this name exists. */
static ampc_status kind_of(const char *path, diag *d, mode_t *out)
{
    struct stat st;
    const bool exists = stat(path, &st) == 0;
    *out = exists ? st.st_mode & S_IFMT : 0;
    return exists || errno == ENOENT ? AMPC_OK : diag_errno(d, DIAG_FILE(path), "cannot be inspected");
}

static ampc_status is_folder(const char *path, diag *d, bool *out)
{
    mode_t kind;
    TRY(kind_of(path, d, &kind));
    *out = kind == S_IFDIR;
    return AMPC_OK;
}

static const char *last_part(const char *path) { return strrchr(path, '/') + 1; }

/* The subfolders, one per class; if `flat`, there need not be any. */
static ampc_status list_classes(const char *folder, bool flat, diag *d, rt_names *out)
{
    rt_names all = {0};
    ampc_status s = rt_names_list(&all, folder, d);
    for (size_t i = 0; s == AMPC_OK && i < all.count; i++) {
        bool is_class;
        s = is_folder(all.items[i], d, &is_class);
        if (s == AMPC_OK && is_class) s = rt_names_add(out, strdup(all.items[i]), d);
    }
    rt_names_clear(&all);
    if (s != AMPC_OK || out->count || flat) return s;
    return diag_error(d, AMPC_REJECTED, DIAG_FILE(folder), "the folder has no subfolders (one per class)");
}

/* By its name, so that a damaged image is not skipped but refused when it is due, or else by its content. */
static ampc_status is_image(const char *path, diag *d, bool *out)
{
    const char *dot = strrchr(last_part(path), '.');
    mode_t kind;
    *out = false;
    TRY(kind_of(path, d, &kind));
    if (kind == S_IFDIR) return diag_error(d, AMPC_REJECTED, DIAG_FILE(path), "a folder in the folder of a class");
    *out = dot && rt_is_image_suffix(dot + 1);
    return *out || kind != S_IFREG ? AMPC_OK : rt_image_recognise(path, d, out);
}

/* ---- opening ---- */

typedef struct folder_reader {
    rt_names classes, files, masks; /* masks: by file, or none */
    rt_array labels;                /* i64, by file */
    size_t skipped;                 /* files other than images */
    char *first_skipped;            /* one of them */
} folder_reader;

/* What the column keeps: paths by row. */
typedef struct image_paths {
    rt_names files, masks;
} image_paths;

static ampc_status load_file(void *user, int64_t row, int channels, diag *d, rt_image *out)
{
    const image_paths *p = user;
    return rt_image_read(p->files.items[row], channels, d, out);
}

static void find_mask(const void *user, int64_t row, rt_mask_file *out)
{
    const image_paths *p = user;
    *out = (rt_mask_file){p->masks.items[row], p->files.items[row], DIAG_NOWHERE};
}

static void locate(const void *user, int64_t row, char *text, size_t n)
{
    const image_paths *p = user;
    snprintf(text, n, "%s", p->files.items[row]);
}

static void close_files(void *user)
{
    image_paths *p = user;
    rt_names_clear(&p->files);
    rt_names_clear(&p->masks);
    free(p);
}

static ampc_status add_file(folder_reader *r, const char *path, diag *d)
{
    bool image;
    char *copy;
    TRY(is_image(path, d, &image));
    if (!image && r->skipped++) return AMPC_OK;
    if (!(copy = strdup(path))) return rt_no_memory(d);
    if (image) return rt_names_add(&r->files, copy, d);
    r->first_skipped = copy;
    return AMPC_OK;
}

static void report_skipped(const folder_reader *r, const char *folder, diag *d)
{
    if (!r->skipped) return;
    diag_remark(d, DIAG_FILE(folder), "%zu file%s skipped: neither PNG nor JPEG%s%s", r->skipped,
                r->skipped == 1 ? "" : "s", r->skipped == 1 ? ": " : ", such as ", r->first_skipped);
}

/* Adds the files of one class to *r. */
static ampc_status add_class(folder_reader *r, const char *folder, diag *d)
{
    const size_t before = r->files.count;
    rt_names found = {0};
    ampc_status s = rt_names_list(&found, folder, d);
    for (size_t i = 0; s == AMPC_OK && i < found.count; i++) s = add_file(r, found.items[i], d);
    rt_names_clear(&found);
    if (s == AMPC_OK && r->files.count == before)
        s = diag_error(d, AMPC_REJECTED, DIAG_FILE(folder), "the folder has no images");
    return s;
}

static ampc_status set_labels(folder_reader *r, size_t from, int64_t label, diag *d)
{
    int64_t *labels = realloc(r->labels.data, r->files.count * sizeof *labels);
    if (!labels) return rt_no_memory(d);
    r->labels.data = labels;
    for (size_t i = from; i < r->files.count; i++) labels[i] = label;
    return AMPC_OK;
}

static ampc_status read_classes(folder_reader *r, const rt_code_index *classes, const rt_names *folders, diag *d)
{
    for (size_t i = 0; i < folders->count; i++) {
        const size_t before = r->files.count;
        const int64_t label = rt_code_number(classes, last_part(folders->items[i]));
        if (label < 0)
            return diag_error(d, AMPC_REJECTED, DIAG_FILE(folders->items[i]),
                              "the training images have no class of this name");
        TRY(add_class(r, folders->items[i], d));
        TRY(set_labels(r, before, label, d));
    }
    if (r->files.count <= INT32_MAX) return AMPC_OK;
    return diag_error(d, AMPC_REJECTED, DIAG_FILE(folders->items[0]), "more than 2147483647 images");
}

/* The folders of the training part and of the chosen one: subfolders if there is one named `train`, in which case the
 * test part is `test` or `val`; otherwise the folder itself. */
typedef struct splits {
    char *train, *test, *val;
    const char *classes, *chosen;
} splits;

static ampc_status find_splits(splits *p, const char *folder, rt_split split, diag *d)
{
    bool has_train, has_test;
    *p = (splits){join(folder, "train"), join(folder, "test"), join(folder, "val"), folder, folder};
    if (!p->train || !p->test || !p->val) return rt_no_memory(d);
    TRY(is_folder(p->train, d, &has_train));
    TRY(is_folder(p->test, d, &has_test));
    if (!has_train) return AMPC_OK;
    p->classes = p->train;
    p->chosen = split == RT_TRAIN ? p->train : has_test ? p->test : p->val;
    return AMPC_OK;
}

static void free_splits(splits *p)
{
    free(p->train);
    free(p->test);
    free(p->val);
}

/* Sets the names of the classes: those of the training, by its codes or else by its folder. */
static ampc_status name_classes(const char *folder, bool flat, const char *codes, diag *d, rt_names *out)
{
    rt_codebook given = {0};
    rt_names folders = {0};
    ampc_status s = codes ? rt_codebook_parse(codes, d, &given) : AMPC_OK;
    const rt_code *known = rt_codebook_find(&given, RT_CODE_LABEL);
    if (s == AMPC_OK && !known) s = list_classes(folder, flat, d, &folders);
    const rt_names *from = known ? &known->names : &folders;
    for (size_t i = 0; s == AMPC_OK && i < from->count; i++)
        s = rt_names_add(out, strdup(known ? from->items[i] : last_part(from->items[i])), d);
    rt_names_clear(&folders);
    rt_codebook_clear(&given);
    return s;
}

/* Adds the files of all classes; without any, those of the folder itself. */
static ampc_status read_part(folder_reader *r, const rt_code_index *classes, const rt_names *used, const char *folder,
                             diag *d)
{
    if (used->count) return read_classes(r, classes, used, d);
    TRY(add_class(r, folder, d));
    return set_labels(r, 0, 0, d);
}

/* The classes are those of training, also in a part that lacks some of them. With target=input they have no use,
 * and there need not be any. */
static ampc_status read_folder(folder_reader *r, const rt_data_spec *spec, rt_split split, const char *codes, diag *d)
{
    const bool flat = spec->o.target == RT_TARGET_INPUT;
    rt_names used = {0};
    rt_code_index index = {0};
    splits p;
    ampc_status s = find_splits(&p, spec->path, split, d);
    if (s == AMPC_OK) s = name_classes(p.classes, flat, codes, d, &r->classes);
    if (s == AMPC_OK) s = list_classes(p.chosen, flat, d, &used);
    if (s == AMPC_OK) s = rt_code_index_open(&r->classes, d, &index);
    if (s == AMPC_OK) s = read_part(r, &index, &used, p.chosen, d);
    if (s == AMPC_OK) report_skipped(r, p.chosen, d);
    rt_code_index_clear(&index);
    rt_names_clear(&used);
    free_splits(&p);
    return s;
}

/* Moves the paths into the column. */
static ampc_status add_images(folder_reader *r, const rt_data_spec *spec, const rt_dataset_options *o, diag *d,
                              rt_columns *out)
{
    image_paths *p = malloc(sizeof *p);
    if (!p) return rt_no_memory(d);
    *p = (image_paths){r->files, r->masks};
    r->files = r->masks = (rt_names){0};
    out->rows = (int64_t)p->files.count;
    const rt_image_files files = {load_file, p->masks.count ? find_mask : NULL, locate, close_files, p};
    return rt_columns_add_images(out, spec, o, &files, d);
}

static ampc_status add_columns(folder_reader *r, const rt_data_spec *spec, const rt_dataset_options *o, diag *d,
                               rt_columns *out)
{
    TRY(add_images(r, spec, o, d, out));
    r->labels.dtype = IR_i64;
    r->labels.rank = 1;
    r->labels.dims[0] = out->rows;
    if (!(r->labels.name = strdup("labels"))) return rt_no_memory(d);
    return rt_columns_add_array(out, &r->labels, false, d);
}

static ampc_status open_classes(folder_reader *r, const rt_data_spec *spec, rt_split split, const rt_dataset_options *o,
                                diag *d, rt_columns *out)
{
    if (spec->o.classes)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "data '%s': classes needs masks=DIR", spec->spec);
    TRY(read_folder(r, spec, split, o->codes, d));
    if (spec->o.target == RT_TARGET_NONE) TRY(rt_codebook_set_names(&out->codes, RT_CODE_LABEL, &r->classes, d));
    return add_columns(r, spec, o, d, out);
}

/* ---- masks ---- */

/* Adds the images of the folder and of its subfolders. */
static ampc_status add_with_subfolders(folder_reader *r, const char *folder, diag *d)
{
    rt_names found = {0};
    ampc_status s = rt_names_list(&found, folder, d);
    for (size_t i = 0; s == AMPC_OK && i < found.count; i++) {
        bool nested;
        s = is_folder(found.items[i], d, &nested);
        if (s == AMPC_OK) s = nested ? add_class(r, found.items[i], d) : add_file(r, found.items[i], d);
    }
    rt_names_clear(&found);
    if (s == AMPC_OK) report_skipped(r, folder, d);
    if (s != AMPC_OK || r->files.count) return s;
    return diag_error(d, AMPC_REJECTED, DIAG_FILE(folder), "the folder has no images");
}

static void clear(folder_reader *r)
{
    rt_names_clear(&r->classes);
    rt_names_clear(&r->files);
    rt_names_clear(&r->masks);
    free(r->first_skipped);
    rt_array_clear(&r->labels);
}

/* Sets the masks of r->files, which are in `folder`. */
static ampc_status read_masks(folder_reader *r, const char *folder, const char *mask_folder, diag *d)
{
    folder_reader masks = {.files = {0}};
    ampc_status s = add_with_subfolders(&masks, mask_folder, d);
    if (s == AMPC_OK) s = rt_pair_masks(&r->files, folder, &masks.files, mask_folder, d, &r->masks);
    clear(&masks);
    return s;
}

/* The same part of both folders: subfolders `train`, `test` or `val`, or the folders themselves. */
static ampc_status open_masks(folder_reader *r, const rt_data_spec *spec, rt_split split, const rt_dataset_options *o,
                              diag *d, rt_columns *out)
{
    splits images, masks = {0};
    if (spec->o.target == RT_TARGET_INPUT)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "data '%s': masks are the labels; 'target' excludes them",
                          spec->spec);
    ampc_status s = find_splits(&images, spec->path, split, d);
    if (s == AMPC_OK) s = find_splits(&masks, spec->o.masks, split, d);
    if (s == AMPC_OK) s = add_with_subfolders(r, images.chosen, d);
    if (s == AMPC_OK) s = read_masks(r, images.chosen, masks.chosen, d);
    if (s == AMPC_OK) s = add_images(r, spec, o, d, out);
    free_splits(&images);
    free_splits(&masks);
    return s;
}

ampc_status rt_open_folder(const rt_data_spec *spec, const rt_dataset_options *o, diag *d, rt_columns *out)
{
    folder_reader r = {.files = {0}};
    const rt_split split = spec->o.validation > 0 ? RT_TRAIN : o->split; /* as for IDX */
    ampc_status s = spec->o.masks ? open_masks(&r, spec, split, o, d, out) : open_classes(&r, spec, split, o, d, out);
    clear(&r);
    return s;
}
