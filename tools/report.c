/* report.c - -o report.json and -o report.html (docs/report.md). The page is tools/report/page.html with the style, the
 * data and the script in it. */
#include "tools/report.h"

#include "ir/base/json_writer.h"
#include "ir/ops/exponents.h"
#include "runtime/backend/memory.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/weights.h"
#include "tools/markup.h"

#include <stdlib.h>
#include <string.h>

extern const char report_page_html[], report_page_css[], report_page_js[];

/* ---- data ------------------------------------------------------------------------------------ */

/* The part of the exponents that occurs: the first one, then the counts. */
static void write_exponents(json_writer *w, const ir_exponents *e)
{
    int first = 0, end = IR_EXPONENTS;
    while (first < end && !e->bins[first]) first++;
    while (end > first && !e->bins[end - 1]) end--;
    json_write_integer(w, NULL, first + IR_EXPONENT_LEAST);
    json_begin(w, NULL, '[');
    for (int i = first; i < end; i++) json_write_integer(w, NULL, e->bins[i]);
    json_end(w, ']');
}

static bool is_weight(const ir_storage *s)
{
    const bool one = ir_type_is_static(&s->type) && ir_storage_bytes(s) <= (int64_t)ir_dtype_size(s->type.dtype);
    return ir_dtype_is_float(s->type.dtype) && (s->kind == IR_PARAM || (s->kind == IR_CONST && !one));
}

static ampc_status write_weight(tool *t, json_writer *w, rt_weights *weights, const ir_storage *s, void *bytes)
{
    ir_exponents e = {.count = 0};
    TRY(rt_weights_read(weights, s, bytes));
    ir_exponents_add(&e, s->type.dtype, bytes, ir_storage_bytes(s) / (int64_t)ir_dtype_size(s->type.dtype), 1);
    json_begin(w, NULL, '[');
    json_write_string(w, NULL, "weight");
    json_write_string(w, NULL, s->name);
    json_write_string(w, NULL, "");
    json_write_integer(w, NULL, e.count);
    json_write_integer(w, NULL, e.zero);
    json_write_integer(w, NULL, e.nan + e.inf);
    write_exponents(w, &e);
    json_end(w, ']');
    return diag_status(t->diag);
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
        if (is_weight(s)) status = write_weight(t, w, weights, s, bytes);
    }
    free(bytes);
    return status;
}

static ampc_status write_tensors(tool *t, json_writer *w)
{
    static const char *const columns[] = {"kind", "tensor",     "node",  "count",
                                          "zero", "not_finite", "first", "exponents"};
    rt_weights *weights;
    TRY(rt_weights_open(t->module, t->weights_dir, t->diag, &weights));
    json_begin(w, "tensors", '{');
    json_begin(w, "columns", '[');
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) json_write_string(w, NULL, columns[i]);
    json_end(w, ']');
    json_begin(w, "rows", '[');
    const ampc_status status = write_weights(t, w, weights);
    json_end(w, ']');
    json_end(w, '}');
    rt_weights_close(weights);
    return status;
}

static void write_arguments(const tool *t, json_writer *w)
{
    json_begin(w, "arguments", '[');
    for (int i = 0; i < t->arguments; i++) json_write_string(w, NULL, t->argv[i]);
    json_end(w, ']');
}

static ampc_status write_data(tool *t, json_writer *w)
{
    json_begin(w, NULL, '{');
    json_write_string(w, "ampc", AMPC_VERSION);
    json_write_integer(w, "report", 1);
    json_write_string(w, "model", t->o.operands.items[0]);
    write_arguments(t, w);
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
