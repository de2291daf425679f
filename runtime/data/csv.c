/* csv.c - data sets in CSV files: a header, a column per field, a line per sample.
 *
 * libcsv splits the text; a row is collected and converted at its end. All values are in memory as f64. Columns must be
 * numbers, except the label, whose texts become numbers of classes in the order of their bytes. */
#include "runtime/backend/memory.h"
#include "runtime/data/csv_table.h"
#include "runtime/data/data.h"
#include "runtime/data/kinds.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- choosing columns ---- */

static ampc_status refuse_column(const rt_csv *t, const char *name, size_t n, diag *d)
{
    char known[256];
    size_t at = 0;
    for (size_t i = 0; i < t->columns && at < sizeof known; i++)
        at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", t->names[i]);
    return diag_error(d, AMPC_REJECTED, DIAG_FILE(t->path), "no column '%.*s', only: %s", (int)n, name, known);
}

/* The index of the column with these n bytes as its name. */
static bool find_column(const rt_csv *t, const char *name, size_t n, size_t *index)
{
    for (*index = 0; *index < t->columns; ++*index)
        if (strlen(t->names[*index]) == n && memcmp(t->names[*index], name, n) == 0) return true;
    return false;
}

/* The column of the label: that of the option, or else one with a usual name. `t->columns` if there is none. */
static ampc_status choose_label(rt_csv *t, const rt_data_spec *spec, diag *d)
{
    static const char *const usual[] = {"labels", "label", "y"};
    const char *name = rt_spec_text(spec, "label", NULL);
    if (name) return find_column(t, name, strlen(name), &t->label) ? AMPC_OK : refuse_column(t, name, strlen(name), d);
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (find_column(t, usual[i], strlen(usual[i]), &t->label)) return AMPC_OK;
    return AMPC_OK;
}

/* columns=A+B+.. in that order, or else all but the label. */
static ampc_status choose_features(rt_csv *t, const rt_data_spec *spec, diag *d)
{
    const char *list = rt_spec_text(spec, "columns", NULL);
    for (size_t i = 0; !list && i < t->columns; i++)
        if (i != t->label) t->features[t->n_features++] = i;
    while (list) {
        const size_t n = strcspn(list, "+");
        size_t index;
        if (!find_column(t, list, n, &index)) return refuse_column(t, list, n, d);
        if (t->n_features == t->columns)
            return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "data '%s': columns has more names than the file",
                              spec->spec);
        t->features[t->n_features++] = index;
        list = list[n] ? list + n + 1 : NULL;
    }
    return AMPC_OK;
}

static ampc_status choose_columns(void *user, rt_csv *t, diag *d)
{
    const rt_data_spec *spec = user;
    TRY(choose_label(t, spec, d));
    return choose_features(t, spec, d);
}

/* ---- the label ---- */

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Collects the different texts of the label, sorted. */
static size_t distinct(const rt_csv *t, char **classes)
{
    size_t n = 0;
    memcpy(classes, t->texts, (size_t)t->rows * sizeof *classes);
    qsort(classes, (size_t)t->rows, sizeof *classes, by_text);
    for (int64_t i = 0; i < t->rows; i++)
        if (!n || strcmp(classes[n - 1], classes[i]) != 0) classes[n++] = classes[i];
    return n;
}

/* The classes of the option classes=A+B+.., separated in place. Returns their number. */
static size_t listed(char *list, char **classes, size_t room)
{
    size_t n = 0;
    for (char *name; n < room && (name = strsep(&list, "+"));) classes[n++] = name;
    return n;
}

static void report_classes(const rt_csv *t, char *const *classes, size_t n, diag *d)
{
    char text[256];
    size_t at = 0;
    for (size_t i = 0; i < n && at < sizeof text; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%zu = %s", i ? ", " : "", i, classes[i]);
    diag_remark(d, DIAG_FILE(t->path), "%zu classes of '%s': %s%s", n, t->names[t->label], text,
                at < sizeof text ? "" : "..");
}

static ampc_status number_classes(const rt_csv *t, char *const *classes, size_t n, diag *d)
{
    for (int64_t i = 0; i < t->rows; i++) {
        size_t k = 0;
        while (k < n && strcmp(classes[k], t->texts[i]) != 0) k++;
        if (k == n)
            return diag_error(d, AMPC_REJECTED, (diag_loc){.file = t->path, .line = (int)t->lines[i]},
                              "column '%s': '%s' is not one of the classes in the option", t->names[t->label],
                              t->texts[i]);
        t->labels[i] = (double)k;
    }
    return AMPC_OK;
}

/* Replaces the texts of the label by numbers of classes. */
static ampc_status set_classes(const rt_csv *t, const rt_data_spec *spec, diag *d)
{
    const char *option = rt_spec_text(spec, "classes", NULL);
    char *list = option ? strdup(option) : NULL;
    const size_t room = (size_t)t->rows + (option ? strlen(option) + 1 : 0);
    char **classes = malloc(room * sizeof *classes);
    ampc_status s = classes && (list || !option) ? AMPC_OK : rt_no_memory(d);
    if (s == AMPC_OK) {
        const size_t n = option ? listed(list, classes, room) : distinct(t, classes);
        s = number_classes(t, classes, n, d);
        if (s == AMPC_OK && !option) report_classes(t, classes, n, d);
    }
    free(classes);
    free(list);
    return s;
}

/* ---- columns ---- */

static bool is_integral(const double *from, size_t stride, int64_t rows)
{
    bool all = true;
    for (int64_t i = 0; all && i < rows; i++, from += stride) all = *from == rint(*from) && fabs(*from) < 0x1p53;
    return all;
}

/* Adds a column of one value per sample, i64 if all are integers. */
static ampc_status add_values(rt_columns *out, const char *name, const double *from, size_t stride, int64_t rows,
                              diag *d)
{
    const bool whole_numbers = is_integral(from, stride, rows);
    rt_array a = {.name = (char *)name, .dtype = whole_numbers ? IR_i64 : IR_f64, .rank = 1, .dims = {rows}};
    double *values = a.data = malloc((size_t)rows * sizeof *values);
    if (!values) return rt_no_memory(d);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t integer = whole_numbers ? (int64_t)from[(size_t)i * stride] : 0;
        memcpy(&values[i], whole_numbers ? (const void *)&integer : &from[(size_t)i * stride], sizeof *values);
    }
    ampc_status s = rt_columns_add_array(out, &a, false, d);
    free(a.data);
    return s;
}

/* Adds "x", the vector of all columns. */
static ampc_status add_vector(rt_columns *out, rt_csv *t, diag *d)
{
    size_t taken;
    rt_array a = {.name = (char[]){"x"}, .dtype = IR_f64, .rank = 2, .dims = {t->rows, (int64_t)t->n_features}};
    if (find_column(t, "x", 1, &taken)) return AMPC_OK;
    a.data = t->values;
    ampc_status s = rt_columns_add_array(out, &a, false, d);
    t->values = a.data;
    return s;
}

static ampc_status add_columns(rt_columns *out, rt_csv *t, const rt_data_spec *spec, diag *d)
{
    out->rows = t->rows;
    if (t->label < t->columns) {
        if (t->texts) TRY(set_classes(t, spec, d));
        TRY(add_values(out, "label", t->labels, 1, t->rows, d));
    }
    for (size_t i = 0; i < t->n_features; i++)
        TRY(add_values(out, t->names[t->features[i]], t->values + i, t->n_features, t->rows, d));
    return t->n_features ? add_vector(out, t, d) : AMPC_OK;
}

static ampc_status choose_delimiter(const rt_data_spec *spec, diag *d, char *out)
{
    static const struct {
        const char *word;
        char delimiter;
    } words[] = {{"comma", ','}, {"semicolon", ';'}, {"tab", '\t'}, {"space", ' '}, {"bar", '|'}};
    const char *text = rt_spec_text(spec, "delimiter", "comma");
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

ampc_status rt_open_csv(const rt_data_spec *spec, const rt_dataset_options *o, diag *d, rt_columns *out)
{
    rt_csv t = {.path = spec->path, .header = strcmp(rt_spec_text(spec, "header", "yes"), "yes") == 0};
    (void)o;
    TRY(choose_delimiter(spec, d, &t.delimiter));
    ampc_status s = rt_csv_read(&t, choose_columns, (void *)spec, d);
    if (s == AMPC_OK) s = add_columns(out, &t, spec, d);
    rt_csv_clear(&t);
    return s;
}
