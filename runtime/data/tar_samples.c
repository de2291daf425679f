/* tar_samples.c - images and classes in tar archives of the form of WebDataset: adjacent entries with the same key, the
 * path up to the first dot of its last part, are one sample. */
#include "runtime/backend/memory.h"
#include "runtime/data/image_columns.h"
#include "runtime/data/kinds.h"
#include "runtime/data/names.h"
#include "runtime/data/tar.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOTHING = -1 };

/* The entry of an image. */
typedef struct sample {
    uint32_t shard, entry;
} sample;

typedef struct shards {
    rt_tar *tars;
    size_t count;
    sample *samples;
    int64_t *labels; /* moved into their column */
    size_t rows;
} shards;

/* The parts of an entry's name. */
typedef struct entry_name {
    size_t key; /* length */
    const char *suffix;
} entry_name;

static void close_shards(void *user)
{
    shards *s = user;
    for (size_t i = 0; i < s->count; i++) rt_tar_clear(&s->tars[i]);
    free(s->tars);
    free(s->samples);
    free(s->labels);
    free(s);
}

static ampc_status load_sample(void *user, int64_t row, int channels, diag *d, rt_image *out)
{
    const shards *s = user;
    const rt_tar *tar = &s->tars[s->samples[row].shard];
    const rt_tar_entry *e = &tar->entries[s->samples[row].entry];
    void *bytes;
    TRY(rt_tar_read(tar, s->samples[row].entry, d, &bytes));
    ampc_status status = rt_image_decode(diag_named(tar->path, DIAG_ENTRY, e->name), bytes, e->size, channels, d, out);
    free(bytes);
    return status;
}

static void locate(const void *user, int64_t row, char *text, size_t n)
{
    const shards *s = user;
    const rt_tar *tar = &s->tars[s->samples[row].shard];
    snprintf(text, n, "%s: %s", tar->path, tar->entries[s->samples[row].entry].name);
}

/* ---- opening ---- */

/* False for hidden files and names without a dot, which do not belong to samples. */
static bool split_name(const char *name, entry_name *out)
{
    *out = (entry_name){0, ""};
    const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name, *dot = strchr(last, '.');
    if (!dot || dot == last) return false;
    *out = (entry_name){(size_t)(dot - name), dot + 1};
    return true;
}

static bool is_class(const char *name)
{
    entry_name parts;
    return split_name(name, &parts) && strcmp(parts.suffix, "cls") == 0;
}

static ampc_status refuse(const rt_tar *t, size_t entry, const char *what, diag *d)
{
    return diag_error(d, AMPC_REJECTED, diag_named(t->path, DIAG_ENTRY, t->entries[entry].name), "%s", what);
}

static bool parse_class(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return *text >= '0' && *text <= '9' && !errno && !end[strspn(end, " \t\r\n")];
}

static ampc_status add_sample(shards *s, size_t shard, int64_t image, int64_t label, diag *d)
{
    if (s->rows == INT32_MAX) return diag_error(d, AMPC_REJECTED, DIAG_FILE(s->tars[shard].path), "too many samples");
    if (!(s->rows & (s->rows - 1))) { /* a power of two: full */
        const size_t capacity = s->rows ? 2 * s->rows : 1;
        sample *samples = realloc(s->samples, capacity * sizeof *samples);
        if (samples) s->samples = samples;
        int64_t *labels = samples ? realloc(s->labels, capacity * sizeof *labels) : NULL;
        if (!labels) return rt_no_memory(d);
        s->labels = labels;
    }
    s->samples[s->rows] = (sample){(uint32_t)shard, (uint32_t)image};
    s->labels[s->rows++] = label;
    return AMPC_OK;
}

/* Adds the sample of entries first .. end-1, which have the same key. */
static ampc_status read_sample(shards *s, size_t shard, size_t first, size_t end, diag *d)
{
    const rt_tar *t = &s->tars[shard];
    int64_t image = NOTHING, label = NOTHING;
    for (size_t i = first; i < end; i++) {
        entry_name name;
        split_name(t->entries[i].name, &name);
        const bool is_image = rt_is_image_suffix(name.suffix), is_label = strcmp(name.suffix, "cls") == 0;
        if ((is_image && image >= 0) || (is_label && label >= 0))
            return refuse(t, i, "the sample already has an entry of this kind", d);
        if (is_image) image = (int64_t)i;
        if (is_label && !parse_class(t->entries[i].text, &label))
            return refuse(t, i, "the contents are not the number of a class", d);
    }
    if (image < 0) return refuse(t, first, "the sample of this entry has no image (.png, .jpg or .jpeg)", d);
    if (label < 0) return refuse(t, first, "the sample of this entry has no class (.cls)", d);
    return add_sample(s, shard, image, label, d);
}

static ampc_status read_shard(shards *s, size_t shard, diag *d)
{
    const rt_tar *t = &s->tars[shard];
    for (size_t i = 0, end; i < t->count; i = end) {
        entry_name name, next;
        end = i + 1;
        if (!split_name(t->entries[i].name, &name)) continue;
        while (end < t->count && split_name(t->entries[end].name, &next) && next.key == name.key &&
               memcmp(t->entries[end].name, t->entries[i].name, name.key) == 0)
            end++;
        TRY(read_sample(s, shard, i, end, d));
    }
    return AMPC_OK;
}

static ampc_status open_shards(shards *s, const rt_data_spec *spec, diag *d)
{
    rt_names paths = {0};
    ampc_status status = AMPC_OK;
    for (size_t i = 0; status == AMPC_OK && i < spec->n_files; i++)
        status = rt_names_expand(&paths, spec->files[i].value, d);
    s->tars = calloc(paths.count + 1, sizeof *s->tars);
    if (status == AMPC_OK && !s->tars) status = rt_no_memory(d);
    for (size_t i = 0; status == AMPC_OK && i < paths.count; i++) {
        status = rt_tar_open(paths.items[i], is_class, d, &s->tars[i]);
        if (status != AMPC_OK) break;
        s->count++;
        status = read_shard(s, i, d);
    }
    if (status == AMPC_OK && !s->rows)
        status = diag_error(d, AMPC_REJECTED, DIAG_FILE(spec->files[0].value), "no samples");
    rt_names_clear(&paths);
    return status;
}

ampc_status rt_open_tar(const rt_data_spec *spec, const struct rt_dataset_options *o, diag *d, rt_columns *out)
{
    shards *s = calloc(1, sizeof *s);
    if (!s) return rt_no_memory(d);
    ampc_status status = open_shards(s, spec, d);
    if (status != AMPC_OK) {
        close_shards(s);
        return status;
    }
    rt_array labels = {.name = "labels", .dtype = IR_i64, .rank = 1, .dims = {(int64_t)s->rows}, .data = s->labels};
    s->labels = NULL;
    out->rows = (int64_t)s->rows;
    status = rt_columns_add_images(out, spec, o, &(rt_image_files){load_sample, NULL, locate, close_shards, s}, d);
    if (status == AMPC_OK) status = rt_columns_add_array(out, &labels, false, d);
    free(labels.data);
    return status;
}
