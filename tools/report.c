/* report.c - -o report.json and -o report.html (docs/report.md). The page is tools/report/page.html with the style, the
 * data and the script in it. */
#include "tools/report.h"

#include "ir/base/json_writer.h"
#include "runtime/backend/memory.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/weights.h"
#include "runtime/inspect/calibration.h"
#include "tools/markup.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const char report_page_html[], report_page_css[], report_page_js[];

/* ---- data ------------------------------------------------------------------------------------ */

static void write_bound(json_writer *w, const ir_exponents *e, double bound)
{
    json_write_real(w, NULL, "%.6g", ir_exponents_finite(e) ? bound : NAN);
}

/* A row of the table of tensors. Of the exponents it has the part that occurs: the first one, then the counts. */
static void write_tensor(json_writer *w, const char *kind, const char *tensor, const char *node, const ir_exponents *e)
{
    int first = 0, end = IR_EXPONENTS;
    while (first < end && !e->bins[first]) first++;
    while (end > first && !e->bins[end - 1]) end--;
    json_begin(w, NULL, '[');
    json_write_string(w, NULL, kind);
    json_write_string(w, NULL, tensor);
    json_write_string(w, NULL, node);
    json_write_integer(w, NULL, e->count);
    json_write_integer(w, NULL, e->zero);
    json_write_integer(w, NULL, e->nan);
    json_write_integer(w, NULL, e->inf);
    write_bound(w, e, e->min);
    write_bound(w, e, e->max);
    json_write_integer(w, NULL, first + IR_EXPONENT_LEAST);
    json_begin(w, NULL, '[');
    for (int i = first; i < end; i++) json_write_integer(w, NULL, e->bins[i]);
    json_end(w, ']');
    json_end(w, ']');
}

static bool is_weight(const ir_storage *s)
{
    const bool one = ir_type_is_static(&s->type) && ir_storage_bytes(s) <= (int64_t)ir_dtype_size(s->type.dtype);
    return ir_dtype_is_float(s->type.dtype) && (s->kind == IR_PARAM || (s->kind == IR_CONST && !one));
}

static ampc_status write_weight(json_writer *w, rt_weights *weights, const ir_storage *s, void *bytes)
{
    ir_exponents e = {.count = 0};
    TRY(rt_weights_read(weights, s, bytes));
    ir_exponents_add(&e, s->type.dtype, bytes, ir_storage_bytes(s) / (int64_t)ir_dtype_size(s->type.dtype), 1);
    write_tensor(w, rt_calibrated_kinds[RT_CALIBRATED_WEIGHT], s->name, "", &e);
    return AMPC_OK;
}

static ampc_status write_weights(tool *t, json_writer *w, rt_weights *weights)
{
    ampc_status status = AMPC_OK;
    size_t largest = 0;
    for (size_t i = 0; i < t->module->storage.count; i++) {
        const ir_storage *s = t->module->storage.items[i];
        const size_t size = is_weight(s) ? (size_t)ir_storage_bytes(s) : 0;
        if (size > largest) largest = size;
    }
    void *bytes = malloc(largest + 8);
    if (!bytes) return rt_no_memory(t->diag);
    for (size_t i = 0; i < t->module->storage.count && status == AMPC_OK; i++) {
        const ir_storage *s = t->module->storage.items[i];
        if (is_weight(s)) status = write_weight(w, weights, s, bytes);
    }
    free(bytes);
    return status;
}

/* The inputs, activations and gradients of a calibration; weights are those of the model. */
static ampc_status write_calibration(tool *t, json_writer *w)
{
    rt_calibration c;
    if (!t->o.calibration) return AMPC_OK;
    TRY(rt_calibration_read(t->o.calibration, t->arena, t->diag, &c));
    for (size_t i = 0; i < c.tensors.count; i++) {
        const rt_calibrated *v = c.tensors.items[i];
        if (v->kind != RT_CALIBRATED_WEIGHT)
            write_tensor(w, rt_calibrated_kinds[v->kind], v->name, v->node, &v->numbers);
    }
    return AMPC_OK;
}

static ampc_status write_tensors(tool *t, json_writer *w)
{
    static const char *const columns[] = {"kind", "tensor", "node", "count", "zero",     "nan",
                                          "inf",  "min",    "max",  "first", "exponents"};
    rt_weights *weights;
    TRY(rt_weights_open(t->module, t->weights_dir, t->diag, &weights));
    json_begin(w, "tensors", '{');
    json_begin(w, "columns", '[');
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) json_write_string(w, NULL, columns[i]);
    json_end(w, ']');
    json_begin(w, "rows", '[');
    ampc_status status = write_weights(t, w, weights);
    rt_weights_close(weights);
    if (status == AMPC_OK) status = write_calibration(t, w);
    json_end(w, ']');
    json_end(w, '}');
    return status;
}

static const char *join(const pass_strings *list, arena *a)
{
    text_buffer t = {.arena = a};
    for (int i = 0; i < list->count; i++) text_add_item(&t, ",", list->items[i]);
    return text_finish(&t);
}

static const char *word_of(const pass_word *words, int value)
{
    while (words->word && words->value != value) words++;
    return words->word;
}

/* The value of an option; NULL: it has none. */
static const char *value_of(const option *row, const void *field, arena *a)
{
    int word;
    switch (row->kind) {
    case OPTION_SET:
    case OPTION_CLEAR: return NULL;
    case OPTION_TEXT:
    case OPTION_ONCE: return *(const char *const *)field;
    case OPTION_WORD: memcpy(&word, field, sizeof word); return word_of(row->words, word);
    case OPTION_INT: return arena_printf(a, "%" PRId64, *(const int64_t *)field);
    case OPTION_REAL: return arena_printf(a, "%.9g", *(const double *)field);
    case OPTION_SEED: return arena_printf(a, "%" PRIu64, *(const uint64_t *)field);
    case OPTION_TEXTS:
    case OPTION_ARRAY:
    case OPTION_LIST: return join(field, a);
    }
    return NULL;
}

/* The options that decide what is compiled, as they are written. */
static void write_options(const tool *t, json_writer *w)
{
    json_begin(w, "options", '[');
    for (const option *row = option_table; row->name; row++) {
        const bool describes = row->group == GROUP_PRECISION || row->group == GROUP_TRAINING ||
                               row->group == GROUP_SHAPES;
        if (!describes || !t->o.given[row - option_table]) continue;
        const char *value = value_of(row, (const char *)&t->o + row->field, t->arena);
        json_write_string(w, NULL, arena_printf(t->arena, "--%s%s%s", row->name, value ? "=" : "", value ? value : ""));
    }
    json_end(w, ']');
}

static ampc_status write_data(tool *t, json_writer *w)
{
    json_begin(w, NULL, '{');
    json_write_string(w, "ampc", AMPC_VERSION);
    json_write_integer(w, "report", 1);
    json_write_string(w, "model", t->o.operands.items[0]);
    write_options(t, w);
    pass_write_report(w, t->module, t->compile, t->arena);
    TRY(write_tensors(t, w));
    json_end(w, '}');
    return AMPC_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Adds the page with these texts in place of its comments "<!-- NAME -->". */
static void add_page(text_buffer *page, const char *title, const char *data)
{
    const struct {
        const char *mark, *text;
    } parts[] = {{"<!-- style -->", report_page_css}, {"<!-- data -->", data}, {"<!-- script -->", report_page_js}};
    const char *at = strstr(report_page_html, "<!-- title -->");
    text_add_bytes(page, report_page_html, (size_t)(at - report_page_html));
    markup_escape(page, title);
    at += strlen("<!-- title -->");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *mark = strstr(at, parts[i].mark);
        text_add_bytes(page, at, (size_t)(mark - at));
        text_put(page, parts[i].text);
        at = mark + strlen(parts[i].mark);
    }
    text_put(page, at);
}

static ampc_status save(tool *t, const char *data, bool page)
{
    text_buffer text = {0};
    const char *model = t->o.operands.items[0], *slash = strrchr(model, '/');
    if (page) add_page(&text, slash ? slash + 1 : model, data);
    else text_add(&text, "%s\n", data);
    return markup_save(&text, t->o.output, t->diag);
}

ampc_status report_write(tool *t, bool page)
{
    json_writer w;
    size_t n;
    if (!json_open_text(&w)) return rt_no_memory(t->diag);
    w.in_markup = page;
    ampc_status status = write_data(t, &w);
    char *data = json_close_text(&w, &n);
    if (status == AMPC_OK) status = data ? save(t, data, page) : rt_no_memory(t->diag);
    free(data);
    return status;
}
