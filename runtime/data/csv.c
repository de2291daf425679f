/* csv.c - data sets in CSV files: a header, a column per field, a line per sample.
 *
 * csv_table.c reads the columns that are chosen here, and csv_values.c makes them numbers, which are in memory. */
#include "ir/base/text_buffer.h"
#include "runtime/backend/memory.h"
#include "runtime/data/csv_values.h"
#include "runtime/data/data.h"
#include "runtime/data/image_columns.h"
#include "runtime/data/kinds.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- choosing columns ---- */

static ampc_status refuse_column(const rt_csv *t, const char *name, size_t n, diag *d)
{
    char known[256];
    text_buffer names = TEXT_IN(known);
    for (size_t i = 0; i < t->columns; i++) text_add(&names, "%s%s", i ? ", " : "", t->names[i]);
    return diag_error(d, AMPC_REJECTED, DIAG_FILE(t->path), "no column '%.*s', only: %s", (int)n, name, known);
}

/* The index of the column with these n bytes as its name. */
static bool find_column(const rt_csv *t, const char *name, size_t n, size_t *index)
{
    for (*index = 0; *index < t->columns; ++*index)
        if (strlen(t->names[*index]) == n && memcmp(t->names[*index], name, n) == 0) return true;
    return false;
}

typedef struct chooser {
    const rt_data_spec *spec;
    const rt_codebook *given;
    bool trained; /* the codes are those of a training, which has read every other column as numbers */
} chooser;

/* Whether a list A+B+.. has the name. */
static bool is_listed(const char *list, const char *name)
{
    for (size_t n; *list; list += n + (list[n] == '+')) {
        n = strcspn(list, "+");
        if (strlen(name) == n && memcmp(list, name, n) == 0) return true;
    }
    return false;
}

/* The kind that a column must have: that of the training, or what the options say. */
static rt_csv_kind kind_of(const chooser *o, const rt_csv *t, const rt_csv_column *c)
{
    const rt_code *code = rt_codebook_find(o->given, rt_csv_code(t, c));
    const bool label = c->use == RT_CSV_LABEL;
    if (c->use == RT_CSV_FILE) return RT_CSV_TEXTS;
    if (code) return code->names.count ? RT_CSV_TEXTS : RT_CSV_NUMBERS;
    if (!label && is_listed(o->spec->o.categories, t->names[c->index])) return RT_CSV_TEXTS;
    return o->trained && !label ? RT_CSV_NUMBERS : RT_CSV_UNDECIDED;
}

static ampc_status choose_column(const chooser *o, rt_csv *t, size_t index, rt_csv_use use, diag *d)
{
    rt_csv_column *c = &t->chosen[t->n_chosen++];
    *c = (rt_csv_column){.index = index, .use = use};
    c->kind = kind_of(o, t, c);
    if (use == RT_CSV_LABEL || strcmp(t->names[index], RT_CODE_LABEL) != 0 || t->chosen[0].use != RT_CSV_LABEL)
        return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                      "data '%s': the column '%s' is not the label; leave it out with columns=A+B+..", o->spec->spec,
                      RT_CODE_LABEL);
}

/* The column of the label: that of the option, or else one with a usual name; t->columns: none. */
static ampc_status find_label(const chooser *o, const rt_csv *t, diag *d, size_t *index)
{
    const char *name = o->spec->o.label;
    *index = t->columns;
    if (name && !find_column(t, name, strlen(name), index)) return refuse_column(t, name, strlen(name), d);
    for (size_t i = 0; *index == t->columns && rt_label_names[i]; i++)
        find_column(t, rt_label_names[i], strlen(rt_label_names[i]), index);
    return AMPC_OK;
}

/* columns=A+B+.. in that order, or else all but the label and the files. */
static ampc_status choose_features(const chooser *o, rt_csv *t, size_t label, diag *d)
{
    const rt_data_options *s = &o->spec->o;
    const char *list = s->columns, *images = s->images ? s->images : "", *masks = s->masks ? s->masks : "";
    const size_t before = t->n_chosen;
    for (size_t i = 0; !list && i < t->columns; i++)
        if (i != label && strcmp(t->names[i], images) != 0 && strcmp(t->names[i], masks) != 0)
            TRY(choose_column(o, t, i, RT_CSV_FEATURE, d));
    while (list) {
        const size_t n = strcspn(list, "+");
        size_t index;
        if (!find_column(t, list, n, &index)) return refuse_column(t, list, n, d);
        if (t->n_chosen - before == t->columns)
            return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "data '%s': columns has more names than the file",
                              o->spec->spec);
        TRY(choose_column(o, t, index, RT_CSV_FEATURE, d));
        list = list[n] ? list + n + 1 : NULL;
    }
    return AMPC_OK;
}

/* Every name in the option must be a column. */
static ampc_status check_categories(const chooser *o, const rt_csv *t, diag *d)
{
    const char *list = o->spec->o.categories;
    for (size_t n, index; *list; list += n + (list[n] == '+')) {
        n = strcspn(list, "+");
        if (!find_column(t, list, n, &index)) return refuse_column(t, list, n, d);
    }
    return AMPC_OK;
}

/* images=NAME and masks=NAME: paths of files. */
static ampc_status choose_files(const chooser *o, rt_csv *t, const char *name, diag *d)
{
    size_t index;
    if (!name) return AMPC_OK;
    if (!find_column(t, name, strlen(name), &index)) return refuse_column(t, name, strlen(name), d);
    return choose_column(o, t, index, RT_CSV_FILE, d);
}

/* With masks, which are the labels, a column of labels is not read. */
static ampc_status choose_columns(void *user, rt_csv *t, diag *d)
{
    const chooser *o = user;
    size_t label;
    TRY(check_categories(o, t, d));
    TRY(find_label(o, t, d, &label));
    if (label < t->columns && !o->spec->o.masks) TRY(choose_column(o, t, label, RT_CSV_LABEL, d));
    TRY(choose_features(o, t, label, d));
    TRY(choose_files(o, t, o->spec->o.images, d));
    return choose_files(o, t, o->spec->o.masks, d);
}

/* ---- columns ---- */

static bool is_integral(const double *values, int64_t rows)
{
    bool all = true;
    for (int64_t i = 0; all && i < rows; i++) all = values[i] == rint(values[i]) && fabs(values[i]) < 0x1p53;
    return all;
}

/* Adds a column of one value per sample, i64 if all are integers. */
static ampc_status add_values(rt_columns *out, const char *name, const double *values, int64_t rows, diag *d)
{
    const bool whole_numbers = is_integral(values, rows);
    rt_array a = {.name = (char *)(uintptr_t)name, .dtype = IR_f64, .rank = 1, .dims = {rows}};
    if (whole_numbers) a.dtype = IR_i64;
    if (!(a.data = malloc((size_t)rows * sizeof *values))) return rt_no_memory(d);
    for (int64_t i = 0; i < rows; i++)
        if (whole_numbers) ((int64_t *)a.data)[i] = (int64_t)values[i];
        else ((double *)a.data)[i] = values[i];
    ampc_status s = rt_columns_add_array(out, &a, false, d);
    free(a.data);
    return s;
}

/* The elements of x that a column fills: one, or one per category. */
static size_t width_of(const rt_csv *t, const rt_csv_column *c, bool one_hot, const rt_codebook *codes)
{
    const rt_code *code = one_hot && c->kind == RT_CSV_TEXTS ? rt_codebook_find(codes, rt_csv_code(t, c)) : NULL;
    if (c->use != RT_CSV_FEATURE) return 0;
    return code ? code->names.count : 1;
}

/* Stores one column into the rows of x, which are `total` wide. */
static void fill_vector(const rt_csv *t, const rt_csv_column *c, size_t width, size_t total, double *x)
{
    for (int64_t i = 0; i < t->rows; i++, x += total) {
        const double value = c->values[i];
        for (size_t k = 0; k < width; k++) x[k] = width == 1 ? value : (size_t)value == k;
    }
}

/* Adds "x", the vector of all columns. */
static ampc_status add_vector(rt_columns *out, const rt_csv *t, const rt_data_spec *spec, diag *d)
{
    size_t total = 0, at = 0, taken;
    const bool one_hot = spec->o.encode == RT_ENCODE_ONE_HOT;
    for (size_t i = 0; i < t->n_chosen; i++) total += width_of(t, &t->chosen[i], one_hot, &out->codes);
    if (!total || find_column(t, "x", 1, &taken)) return AMPC_OK;
    rt_array a = {.name = (char[]){"x"}, .dtype = IR_f64, .rank = 2, .dims = {t->rows, (int64_t)total}};
    if (!rt_array_bytes(a.dtype, a.rank, a.dims, &a.bytes) || !(a.data = malloc(a.bytes))) return rt_no_memory(d);
    for (size_t i = 0; i < t->n_chosen; i++) {
        const size_t width = width_of(t, &t->chosen[i], one_hot, &out->codes);
        if (width) fill_vector(t, &t->chosen[i], width, total, (double *)a.data + at);
        at += width;
    }
    ampc_status s = rt_columns_add_array(out, &a, false, d);
    free(a.data);
    return s;
}

static ampc_status add_columns(rt_columns *out, const rt_csv *t, const rt_data_spec *spec, diag *d)
{
    out->rows = t->rows;
    for (size_t i = 0; i < t->n_chosen; i++)
        if (t->chosen[i].use != RT_CSV_FILE)
            TRY(add_values(out, rt_csv_code(t, &t->chosen[i]), t->chosen[i].values, t->rows, d));
    return add_vector(out, t, spec, d);
}

/* ---- images ---- */

typedef struct listed_files {
    char *table, **paths, **masks; /* masks: NULL, or by row */
    int *lines;
    int64_t rows;
} listed_files;

/* The error of reading names the file, and the note the line that lists it. */
static ampc_status load_listed(void *user, int64_t row, int channels, diag *d, rt_image *out)
{
    const listed_files *f = user;
    ampc_status s = rt_image_read(f->paths[row], channels, d, out);
    if (s != AMPC_OK) diag_note(d, (diag_loc){.file = f->table, .line = f->lines[row]}, "the file is listed here");
    return s;
}

static void find_listed_mask(const void *user, int64_t row, rt_mask_file *out)
{
    const listed_files *f = user;
    *out = (rt_mask_file){f->masks[row], f->paths[row], {.file = f->table, .line = f->lines[row]}};
}

static void locate_listed(const void *user, int64_t row, char *text, size_t n)
{
    const listed_files *f = user;
    snprintf(text, n, "%s:%d: %s", f->table, f->lines[row], f->paths[row]);
}

static void close_listed(void *user)
{
    listed_files *f = user;
    for (int64_t i = 0; f->paths && i < f->rows; i++) free(f->paths[i]);
    for (int64_t i = 0; f->masks && i < f->rows; i++) free(f->masks[i]);
    free(f->paths);
    free(f->masks);
    free(f->table);
    free(f->lines);
    free(f);
}

/* A path in the table is relative to the folder of the table. */
static char *path_of(const char *table, const char *text)
{
    char *path;
    const char *slash = *text == '/' ? NULL : strrchr(table, '/');
    const int folder = slash ? (int)(slash + 1 - table) : 0;
    return asprintf(&path, "%.*s%s", folder, table, text) < 0 ? NULL : path;
}

/* Sets the paths that a column lists. */
static ampc_status list_paths(const rt_csv *t, const rt_csv_column *c, const char *what, diag *d, char ***out)
{
    char **paths = *out = calloc((size_t)t->rows, sizeof *paths);
    if (!paths) return rt_no_memory(d);
    for (int64_t i = 0; i < t->rows; i++) {
        if (!c->texts[i])
            return diag_error(d, AMPC_REJECTED, (diag_loc){.file = t->path, .line = t->lines[i]},
                              "the %s is missing; missing=drop leaves out the row", what);
        if (!(paths[i] = path_of(t->path, c->texts[i]))) return rt_no_memory(d);
    }
    return AMPC_OK;
}

/* `images` is followed by the column of masks, if there is one. */
static ampc_status list_files(const rt_csv *t, const rt_csv_column *images, diag *d, listed_files *f)
{
    f->rows = t->rows;
    f->table = strdup(t->path);
    f->lines = malloc((size_t)t->rows * sizeof *f->lines);
    if (!f->table || !f->lines) return rt_no_memory(d);
    memcpy(f->lines, t->lines, (size_t)t->rows * sizeof *f->lines);
    TRY(list_paths(t, images, "image", d, &f->paths));
    return images + 1 < t->chosen + t->n_chosen ? list_paths(t, images + 1, "mask", d, &f->masks) : AMPC_OK;
}

/* Adds the columns of images and masks, if they are chosen. */
static ampc_status add_images(rt_columns *out, const rt_csv *t, const rt_data_spec *spec, const rt_dataset_options *o,
                              diag *d)
{
    size_t images = 0;
    while (images < t->n_chosen && t->chosen[images].use != RT_CSV_FILE) images++;
    if (images == t->n_chosen) return AMPC_OK;
    listed_files *f = calloc(1, sizeof *f);
    if (!f) return rt_no_memory(d);
    ampc_status s = list_files(t, &t->chosen[images], d, f);
    const rt_image_files files = {load_listed, f->masks ? find_listed_mask : NULL, locate_listed, close_listed, f};
    if (s == AMPC_OK) return rt_columns_add_images(out, spec, o, &files, d);
    close_listed(f);
    return s;
}

/* ---- the lines of rows ---- */

typedef struct row_lines {
    char *path;
    int *lines; /* by row */
} row_lines;

static void locate(const void *source, int64_t row, char *text, size_t n)
{
    const row_lines *p = source;
    snprintf(text, n, "%s:%d", p->path, p->lines[row]);
}

static void close_lines(void *source)
{
    row_lines *p = source;
    free(p->path);
    free(p->lines);
    free(p);
}

/* Moves the lines of the table. */
static ampc_status keep_lines(rt_columns *out, rt_csv *t, diag *d)
{
    row_lines *p = malloc(sizeof *p);
    char *path = strdup(t->path);
    if (!p || !path) {
        free(p);
        free(path);
        return rt_no_memory(d);
    }
    *p = (row_lines){path, t->lines};
    t->lines = NULL;
    out->locate = locate;
    out->close_source = close_lines;
    out->source = p;
    return AMPC_OK;
}

static ampc_status choose_delimiter(const rt_data_spec *spec, diag *d, char *out)
{
    static const struct {
        const char *word;
        char delimiter;
    } words[] = {{"comma", ','}, {"semicolon", ';'}, {"tab", '\t'}, {"space", ' '}, {"bar", '|'}};
    const char *text = spec->o.delimiter;
    *out = *text;
    if (!text[1] && *text != '"') return AMPC_OK;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        *out = words[i].delimiter;
        if (strcmp(text, words[i].word) == 0) return AMPC_OK;
    }
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                      "data '%s': delimiter must be a character, comma, semicolon, tab, space or bar, not '%s'",
                      spec->spec, text);
}

/* Options of images have no meaning without images. Masks exclude other labels. */
static ampc_status check_options(const rt_data_spec *spec, diag *d)
{
    static const char *const keys[] = {"size", "channels", "fit", "resized-crop", "divide", "mean", "std", "masks"};
    static const char *const others[] = {"label", "target"};
    for (size_t i = 0; !spec->o.images && i < sizeof keys / sizeof *keys; i++)
        if (rt_spec_has(spec, keys[i]))
            return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "data '%s': %s needs images=COLUMN", spec->spec, keys[i]);
    for (size_t i = 0; spec->o.masks && i < sizeof others / sizeof *others; i++)
        if (rt_spec_has(spec, others[i]))
            return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "data '%s': masks are the labels; '%s' excludes them",
                              spec->spec, others[i]);
    return AMPC_OK;
}

static ampc_status read_table(rt_csv *t, const rt_data_spec *spec, const rt_codebook *given,
                              const rt_dataset_options *options, diag *d, rt_columns *out)
{
    chooser o = {spec, given, options->codes != NULL};
    TRY(rt_csv_read(t, choose_columns, &o, d));
    if (options->describes) rt_csv_note_missing(t, d);
    TRY(rt_csv_convert(t, spec, given, options->describes, &out->codes, d));
    TRY(add_columns(out, t, spec, d));
    TRY(add_images(out, t, spec, options, d));
    return out->locate ? AMPC_OK : keep_lines(out, t, d);
}

ampc_status rt_open_csv(const rt_data_spec *spec, const rt_dataset_options *o, diag *d, rt_columns *out)
{
    rt_csv t = {.path = spec->path, .header = spec->o.header == RT_HEADER_YES};
    rt_codebook given = {0};
    const char *classes = spec->o.classes;
    t.missing = *spec->o.missing || o->describes;
    ampc_status s = check_options(spec, d);
    if (s == AMPC_OK) s = choose_delimiter(spec, d, &t.delimiter);
    if (s == AMPC_OK && o->codes) s = rt_codebook_parse(o->codes, d, &given);
    if (s == AMPC_OK && classes) s = rt_codebook_add_list(&given, RT_CODE_LABEL, classes, d);
    if (s == AMPC_OK) s = read_table(&t, spec, &given, o, d, out);
    rt_csv_clear(&t);
    rt_codebook_clear(&given);
    return s;
}
