/* predict_csv.c - predictions as text, written batch by batch. */
#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/files/atomic_file.h"
#include "runtime/train/prediction.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { BUFFER = 1 << 16, CELL = 64 };

typedef struct csv {
    rt_atomic_file *file; /* NULL after commit */
    char text[BUFFER];    /* not yet written */
    size_t n;
    ampc_status status; /* of the first failed write */
    bool in_line;
} csv;

/* ---- text ---- */

static void flush(csv *c)
{
    if (c->status == AMPC_OK && c->n) c->status = rt_atomic_write(c->file, c->text, c->n);
    c->n = 0;
}

static void put_char(csv *c, char x)
{
    if (c->n == BUFFER) flush(c);
    c->text[c->n++] = x;
}

static void put_text(csv *c, const char *text)
{
    for (; *text; text++) put_char(c, *text);
}

__attribute__((format(printf, 2, 3))) static void put_cell(csv *c, const char *format, ...)
{
    char cell[CELL];
    va_list values;
    va_start(values, format);
    vsnprintf(cell, sizeof cell, format, values);
    va_end(values);
    if (c->in_line) put_char(c, ',');
    c->in_line = true;
    put_text(c, cell);
}

static void end_line(csv *c)
{
    put_char(c, '\n');
    c->in_line = false;
}

/* A text and its suffix, quoted if it has a separator. */
static void put_quoted(csv *c, const char *text, const char *suffix)
{
    const bool quoted = strpbrk(text, ",\"\n\r");
    put_cell(c, "%s", quoted ? "\"" : "");
    for (; *text; text++) {
        if (*text == '"') put_char(c, '"');
        put_char(c, *text);
    }
    put_text(c, suffix);
    if (quoted) put_char(c, '"');
}

/* NAME[index] */
static void put_name(csv *c, const char *name, int64_t index)
{
    char suffix[CELL];
    snprintf(suffix, sizeof suffix, "[%" PRId64 "]", index);
    put_quoted(c, name, suffix);
}

/* With as many digits as the type needs to be read back unchanged. */
static void put_element(csv *c, ir_dtype dtype, const void *at)
{
    if (ir_dtype_is_float(dtype)) put_cell(c, "%.*g", dtype == IR_f64 ? 17 : 9, ir_load_f64(dtype, at));
    else put_cell(c, "%" PRId64, ir_load_i64(dtype, at));
}

/* ---- a line per label ---- */

static void put_class_header(csv *c, const rt_scoring *s)
{
    put_cell(c, "sample");
    if (s->per_sample > 1) put_cell(c, "position");
    if (s->label_field >= 0) put_cell(c, "label");
    put_cell(c, "class");
    if (rt_dataset_classes(s->data)) put_cell(c, "class_name");
    for (int64_t i = 0; i < s->subject.classes; i++) put_name(c, "score", i);
    end_line(c);
}

static void put_classes(csv *c, const rt_scoring *s, const rt_tensor *t, int64_t first, int64_t count)
{
    rt_item item;
    const rt_names *names = rt_dataset_classes(s->data);
    for (int64_t i = 0; i < rt_scoring_items(s, count); i++) {
        rt_scoring_item(s, t, i, &item);
        put_cell(c, "%" PRId64, first + i / s->per_sample);
        if (s->per_sample > 1) put_cell(c, "%" PRId64, i % s->per_sample);
        if (s->label_field >= 0) put_cell(c, "%" PRId64, item.label);
        if (item.predicted < 0) put_cell(c, "%s", "");
        else put_cell(c, "%" PRId64, item.predicted);
        const bool named = names && item.predicted >= 0 && (size_t)item.predicted < names->count;
        if (names) put_quoted(c, named ? names->items[item.predicted] : "", "");
        for (int64_t k = 0; k < s->subject.classes; k++)
            put_cell(c, "%.*g", t->dtype == IR_f64 ? 17 : 9, item.scores[k]);
        end_line(c);
    }
}

/* ---- a line per sample ---- */

/* Calls put_name or put_element for the elements of one sample of an output. */
static void put_sample(csv *c, const rt_prediction *p, int index, const rt_tensor *t, int64_t sample, bool header)
{
    const int axis = p->outputs[index].axis;
    const int64_t samples = rt_loader_samples(p->feed),
                  elements = t->dims[axis] / samples * rt_prediction_inner(t, axis);
    const int64_t outer = rt_prediction_outer(t, axis);
    const size_t size = ir_dtype_size(t->dtype);
    for (int64_t i = 0; i < outer * elements; i++) {
        const int64_t at = (i / elements * samples + sample) * elements + i % elements;
        if (header) put_name(c, p->outputs[index].name, i);
        else put_element(c, t->dtype, (const char *)t->data + (size_t)at * size);
    }
}

static void put_labels(csv *c, const rt_scoring *s, int64_t sample, bool header)
{
    for (int64_t i = 0; s->label_field >= 0 && i < s->per_sample; i++)
        if (header && s->per_sample == 1) put_cell(c, "label");
        else if (header) put_name(c, "label", i);
        else if (s->compares == IR_COMPARED_classes) put_cell(c, "%" PRId64, s->labels[sample * s->per_sample + i]);
        else put_cell(c, "%.9g", s->targets[sample * s->per_sample + i]);
}

/* The header is written as if it were a sample. */
static ampc_status put_line(csv *c, const rt_prediction *p, int64_t first, int64_t sample, bool header)
{
    if (header) put_cell(c, "sample");
    else put_cell(c, "%" PRId64, first + sample);
    put_labels(c, &p->scoring, sample, header);
    for (int i = 0; i < p->count; i++) {
        const rt_tensor *t;
        TRY(rt_prediction_output(p, i, &t));
        put_sample(c, p, i, t, sample, header);
    }
    end_line(c);
    return AMPC_OK;
}

/* ---- the file ---- */

static ampc_status open_csv(rt_prediction *p)
{
    csv *c = p->file = rt_alloc(1, sizeof *c);
    return c ? rt_atomic_open(p->path, p->d, &c->file) : rt_no_memory(p->d);
}

static ampc_status add_lines(rt_prediction *p, int64_t first, int64_t count)
{
    csv *c = p->file;
    const rt_scoring *s = &p->scoring;
    const rt_tensor *scores = s->compares == IR_COMPARED_classes && s->scores ? rt_scoring_output(s) : NULL;
    TRY(rt_session_fetched(p->session, p->d));
    if (scores) {
        if (!first) put_class_header(c, s);
        put_classes(c, s, scores, first, count);
        return c->status;
    }
    if (!first) TRY(put_line(c, p, 0, 0, true));
    for (int64_t i = 0; i < count; i++) TRY(put_line(c, p, first, i, false));
    return c->status;
}

static ampc_status commit_csv(rt_prediction *p)
{
    csv *c = p->file;
    flush(c);
    TRY(c->status);
    rt_atomic_file *file = c->file;
    c->file = NULL;
    return rt_atomic_commit(file);
}

static void close_csv(rt_prediction *p)
{
    csv *c = p->file;
    if (c) rt_atomic_abort(c->file);
    rt_free(c);
}

const rt_prediction_format rt_predict_csv = {".csv", open_csv, add_lines, commit_csv, close_csv};
