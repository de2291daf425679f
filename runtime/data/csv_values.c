/* csv_values.c - drops or replaces missing values, and numbers classes and categories. */
#include "runtime/data/csv_values.h"

#include "ir/base/text_buffer.h"
#include "runtime/backend/memory.h"
#include "runtime/data/order.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct converter {
    rt_csv *t;
    const rt_data_spec *spec;
    const rt_codebook *given;
    const char *missing; /* of the option; "": none */
    bool means;          /* missing=mean */
    bool keeps;          /* missing numbers stay NaN */
    rt_order training;   /* the part that has the means, also where another one is read */
    rt_codebook *out;
    diag *d;
} converter;

static const char *name_of(const converter *v, const rt_csv_column *c) { return v->t->names[c->index]; }

const char *rt_csv_code(const rt_csv *t, const rt_csv_column *c)
{
    return c->use == RT_CSV_LABEL ? RT_CODE_LABEL : t->names[c->index];
}

/* What was given for the column; NULL: nothing. */
static const rt_code *code_of(const converter *v, const rt_csv_column *c)
{
    return rt_codebook_find(v->given, rt_csv_code(v->t, c));
}

static diag_loc line_of(const converter *v, int64_t row)
{
    return (diag_loc){.file = v->t->path, .line = v->t->lines[row]};
}

static bool is_missing(const rt_csv_column *c, int64_t row)
{
    return c->kind == RT_CSV_TEXTS ? !c->texts[row] : isnan(c->values[row]);
}

/* The first row from `row` on without a value; the number of rows: none. */
static int64_t next_missing(const converter *v, const rt_csv_column *c, int64_t row)
{
    while (row < v->t->rows && !is_missing(c, row)) row++;
    return row;
}

/* ---- rows without a value ---- */

static bool is_complete(const rt_csv *t, int64_t row)
{
    for (size_t i = 0; i < t->n_chosen; i++)
        if (is_missing(&t->chosen[i], row)) return false;
    return true;
}

static void move_row(const rt_csv *t, int64_t from, int64_t to)
{
    t->lines[to] = t->lines[from];
    for (size_t i = 0; i < t->n_chosen; i++) {
        const rt_csv_column *c = &t->chosen[i];
        if (c->kind == RT_CSV_TEXTS) c->texts[to] = c->texts[from];
        else c->values[to] = c->values[from];
    }
}

static void free_row(const rt_csv *t, int64_t row)
{
    for (size_t i = 0; i < t->n_chosen; i++)
        if (t->chosen[i].kind == RT_CSV_TEXTS) free(t->chosen[i].texts[row]);
}

static ampc_status drop_rows(rt_csv *t, diag *d)
{
    const int64_t rows = t->rows;
    int first = 0;
    t->rows = 0;
    for (int64_t i = 0; i < rows; i++) {
        const bool complete = is_complete(t, i);
        if (!complete && !first) first = t->lines[i];
        if (complete) move_row(t, i, t->rows++);
        else free_row(t, i);
    }
    if (!t->rows) return diag_error(d, AMPC_REJECTED, DIAG_FILE(t->path), "every row has a missing value");
    if (first)
        diag_remark(d, DIAG_FILE(t->path), "%lld of %lld rows with missing values are dropped, the first in line %d",
                    (long long)(rows - t->rows), (long long)rows, first);
    return AMPC_OK;
}

static ampc_status check_label(const converter *v, const rt_csv_column *c)
{
    const int64_t missing = c->use == RT_CSV_LABEL && !v->keeps ? next_missing(v, c, 0) : v->t->rows;
    if (missing == v->t->rows) return AMPC_OK;
    return diag_error(v->d, AMPC_REJECTED, line_of(v, missing),
                      "the label is missing; missing=drop leaves out the row");
}

/* ---- numbers ---- */

static ampc_status find_mean(const converter *v, const rt_csv_column *c, double *out)
{
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < v->training.rows; i++) {
        const double value = c->values[rt_order_row(&v->training, i)];
        if (isnan(value)) continue;
        sum += value;
        n++;
    }
    *out = sum / (double)n;
    if (n && isfinite(*out)) return AMPC_OK;
    return diag_error(v->d, AMPC_REJECTED, DIAG_FILE(v->t->path), "column '%s' has no mean: %s", name_of(v, c),
                      n ? "its values are too large" : "the training part has no value of it");
}

static ampc_status fill_means(const converter *v, const rt_csv_column *c)
{
    const rt_code *code = code_of(v, c);
    double mean = code ? code->mean : 0;
    if (!code) TRY(find_mean(v, c, &mean));
    for (int64_t i = next_missing(v, c, 0); i < v->t->rows; i = next_missing(v, c, i)) c->values[i] = mean;
    if (rt_codebook_find(v->out, rt_csv_code(v->t, c))) return AMPC_OK; /* a column chosen twice */
    return rt_codebook_add_mean(v->out, rt_csv_code(v->t, c), mean, v->d);
}

static ampc_status fill_numbers(const converter *v, const rt_csv_column *c)
{
    double value;
    const int64_t first = next_missing(v, c, 0);
    if (c->use == RT_CSV_LABEL || v->keeps) return AMPC_OK;
    if (v->means) return fill_means(v, c);
    if (first == v->t->rows) return AMPC_OK;
    if (!rt_csv_parse_number(v->missing, &value))
        return diag_error(v->d, AMPC_REJECTED, line_of(v, first),
                          "column '%s' has no value, and its values are numbers, unlike missing=%s", name_of(v, c),
                          v->missing);
    for (int64_t i = first; i < v->t->rows; i = next_missing(v, c, i)) c->values[i] = value;
    return AMPC_OK;
}

/* ---- classes and categories ---- */

/* The text of a row. A missing category is the one in the option, or one of its own. */
static const char *text_of(const converter *v, const rt_csv_column *c, int64_t row)
{
    return c->texts[row] ? c->texts[row] : v->means ? "" : v->missing;
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* Collects the different texts, sorted. `names` has an element per row. */
static size_t distinct(const converter *v, const rt_csv_column *c, const char **names)
{
    size_t n = 0;
    for (int64_t i = 0; i < v->t->rows; i++) names[i] = text_of(v, c, i);
    qsort((void *)names, (size_t)v->t->rows, sizeof *names, by_text);
    for (int64_t i = 0; i < v->t->rows; i++)
        if (!n || strcmp(names[n - 1], names[i]) != 0) names[n++] = names[i];
    return n;
}

static const char *kind_of(const rt_csv_column *c) { return c->use == RT_CSV_LABEL ? "classes" : "categories"; }

static void report(const converter *v, const rt_csv_column *c, const char *const *names, size_t n)
{
    char text[256];
    text_buffer t = TEXT_IN(text);
    for (size_t i = 0; i < n; i++) text_add(&t, "%s%zu = %s", i ? ", " : "", i, names[i]);
    diag_remark(v->d, DIAG_FILE(v->t->path), "%zu %s of '%s': %s%s", n, kind_of(c), name_of(v, c), text,
                t.failed ? ".." : "");
}

static ampc_status derive_names(const converter *v, const rt_csv_column *c)
{
    const char **names = malloc((size_t)v->t->rows * sizeof *names);
    if (!names) return rt_no_memory(v->d);
    const size_t n = distinct(v, c, names);
    ampc_status s = rt_codebook_add_names(v->out, rt_csv_code(v->t, c), names, n, v->d);
    if (s == AMPC_OK) report(v, c, names, n);
    free((void *)names);
    return s;
}

static ampc_status number_texts(const converter *v, rt_csv_column *c, const rt_names *names)
{
    rt_code_index index;
    double *values = reallocarray(c->values, (size_t)v->t->rows, sizeof *values);
    if (!values) return rt_no_memory(v->d);
    c->values = values;
    TRY(rt_code_index_open(names, v->d, &index));
    int64_t row = 0;
    for (; row < v->t->rows; row++)
        if ((values[row] = (double)rt_code_number(&index, text_of(v, c, row))) < 0) break;
    rt_code_index_clear(&index);
    if (row == v->t->rows) return AMPC_OK;
    const bool chosen = c->use == RT_CSV_LABEL && v->spec->o.classes;
    return diag_error(v->d, AMPC_REJECTED, line_of(v, row), "column '%s': '%.40s' is not one of the %s %s",
                      name_of(v, c), text_of(v, c, row), kind_of(c), chosen ? "in the option" : "of the training");
}

static ampc_status convert_texts(const converter *v, rt_csv_column *c)
{
    const char *field = rt_csv_code(v->t, c);
    const rt_code *code = code_of(v, c), *known = rt_codebook_find(v->out, field); /* of a column chosen twice */
    if (!known && !code) TRY(derive_names(v, c));
    if (!known && code)
        TRY(rt_codebook_add_names(v->out, field, (const char *const *)code->names.items, code->names.count, v->d));
    return number_texts(v, c, &rt_codebook_find(v->out, field)->names);
}

/* ---- all columns ---- */

static ampc_status convert(const converter *v)
{
    for (size_t i = 0; i < v->t->n_chosen; i++) {
        rt_csv_column *c = &v->t->chosen[i];
        if (c->kind == RT_CSV_UNDECIDED && v->keeps) c->kind = RT_CSV_NUMBERS;
        if (c->kind == RT_CSV_UNDECIDED)
            return diag_error(v->d, AMPC_REJECTED, DIAG_FILE(v->t->path), "column '%s' has no value", name_of(v, c));
        TRY(check_label(v, c));
        if (c->kind == RT_CSV_NUMBERS) TRY(fill_numbers(v, c));
        else if (c->use != RT_CSV_FILE) TRY(convert_texts(v, c));
    }
    return AMPC_OK;
}

void rt_csv_note_missing(const rt_csv *t, diag *d)
{
    for (size_t i = 0; i < t->n_chosen; i++) {
        long long missing = 0;
        int first = 0;
        for (int64_t row = 0; row < t->rows; row++) {
            if (!is_missing(&t->chosen[i], row)) continue;
            if (!missing++) first = t->lines[row];
        }
        if (missing)
            diag_note(d, DIAG_FILE(t->path), "column '%s': %lld of %lld values are missing, the first in line %d",
                      t->names[t->chosen[i].index], missing, (long long)t->rows, first);
    }
}

ampc_status rt_csv_convert(rt_csv *t, const rt_data_spec *spec, const rt_codebook *given, bool describes,
                           rt_codebook *out, diag *d)
{
    const char *missing = spec->o.missing;
    converter v = {.t = t, .spec = spec, .given = given, .missing = missing, .out = out, .d = d};
    v.means = strcmp(missing, "mean") == 0;
    v.keeps = describes && !*missing;
    if (strcmp(missing, "drop") == 0) TRY(drop_rows(t, d));
    if (v.means) TRY(rt_order_open(spec, RT_TRAIN, t->rows, 0, d, &v.training));
    ampc_status s = convert(&v);
    rt_order_clear(&v.training);
    return s;
}
