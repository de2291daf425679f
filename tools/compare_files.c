/* compare_files.c - a comparison as CSV and HTML. */
#include "tools/compare_files.h"

#include "runtime/inspect/check.h"
#include "tools/markup.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *op_of(const rt_compared *r)
{
    return r->node->loc.op ? r->node->loc.op : ir_op_get(r->node->op)->name;
}

static const char *dtype_of(ir_dtype t)
{
    return t == IR_f16 ? "fp16" : t == IR_f32 ? "fp32" : t == IR_f64 ? "fp64" : ir_dtype_name(t);
}

static bool is_infinite(const rt_compared *r) { return !rt_numbers_finite(&r->low); }

/* ---- columns ----------------------------------------------------------------------------------- */

/* The columns, in the order of PaddlePaddle; what it lacks comes last. Numbers are empty where they do not exist. */
typedef struct column {
    const char *name;
    const char *(*text)(const rt_compared *r); /* exactly one of the two */
    double (*number)(const rt_compared *r);
} column;

#define NUMBER(name, value) \
    static double name(const rt_compared *r) { return (double)(value); }
NUMBER(numel, r->low.count)
NUMBER(f32_max, rt_numbers_top(&r->f32))
NUMBER(f32_min, rt_numbers_bottom(&r->f32))
NUMBER(f32_mean, rt_numbers_mean(&r->f32))
NUMBER(f32_zero, r->f32.zero)
NUMBER(low_max, rt_numbers_top(&r->low))
NUMBER(low_min, rt_numbers_bottom(&r->low))
NUMBER(low_mean, rt_numbers_mean(&r->low))
NUMBER(low_zero, r->low.zero)
NUMBER(low_inf, r->low.inf)
NUMBER(low_nan, r->low.nan)
NUMBER(max_ratio, r->f32.max != 0 ? r->low.max / r->f32.max : NAN)
NUMBER(min_ratio, r->f32.min != 0 ? r->low.min / r->f32.min : NAN)
NUMBER(mean_ratio, r->f32.mean != 0 ? r->low.mean / r->f32.mean : NAN)
NUMBER(f64_max, rt_numbers_top(&r->f64))
NUMBER(f64_min, rt_numbers_bottom(&r->f64))
NUMBER(f64_mean, rt_numbers_mean(&r->f64))
NUMBER(max_error, r->max_error)
NUMBER(error, r->error)
NUMBER(error_f32, r->error_f32)
NUMBER(f32_error, r->f32_error)
NUMBER(added, r->added)

static const char *tensor(const rt_compared *r) { return r->tensor.name; }
static const char *infinite(const rt_compared *r) { return is_infinite(r) ? "1" : "0"; }
static const char *f32_dtype(const rt_compared *r)
{
    (void)r;
    return "fp32";
}
static const char *low_dtype(const rt_compared *r) { return dtype_of(r->tensor.dtype); }
static const char *node(const rt_compared *r) { return r->node->loc.node ? r->node->loc.node : ""; }
static const char *phase(const rt_compared *r) { return rt_phase_names[r->node->phase]; }
static const char *abnormal(const rt_compared *r) { return rt_compared_is_abnormal(r) ? "1" : "0"; }

static const column columns[] = {
    {"op_type", op_of, NULL},
    {"tensor_name", tensor, NULL},
    {"numel", NULL, numel},
    {"infinite", infinite, NULL},
    {"fp32_dtype", f32_dtype, NULL},
    {"fp32_max", NULL, f32_max},
    {"fp32_min", NULL, f32_min},
    {"fp32_mean", NULL, f32_mean},
    {"fp32_num_zero", NULL, f32_zero},
    {"fp16_dtype", low_dtype, NULL},
    {"fp16_max", NULL, low_max},
    {"fp16_min", NULL, low_min},
    {"fp16_mean", NULL, low_mean},
    {"fp16_num_zero", NULL, low_zero},
    {"fp16_num_inf", NULL, low_inf},
    {"fp16_num_nan", NULL, low_nan},
    {"fp16_max/fp32_max", NULL, max_ratio},
    {"fp16_min/fp32_min", NULL, min_ratio},
    {"fp16_mean/fp32_mean", NULL, mean_ratio},
    {"abnormal", abnormal, NULL},
    {"node", node, NULL},
    {"phase", phase, NULL},
    {"fp64_max", NULL, f64_max},
    {"fp64_min", NULL, f64_min},
    {"fp64_mean", NULL, f64_mean},
    {"max_error", NULL, max_error},
    {"error", NULL, error},
    {"error_fp32", NULL, error_f32},
    {"fp32_error", NULL, f32_error},
    {"added_error", NULL, added},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

/* ---- CSV --------------------------------------------------------------------------------------- */

ampc_status compare_write_csv(const char *path, const rt_compared *const *rows, int count, diag *d)
{
    text_buffer t = {0};
    for (int k = 0; k < COLUMNS; k++) text_add(&t, "%s%s", k ? "," : "", columns[k].name);
    text_add(&t, "\n");
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < COLUMNS; k++) {
            const double number = columns[k].number ? columns[k].number(rows[i]) : NAN;
            if (k) text_add(&t, ",");
            if (columns[k].text) markup_quote(&t, columns[k].text(rows[i]));
            else if (!isnan(number)) text_add(&t, "%.9g", number);
        }
        text_add(&t, "\n");
    }
    return markup_save(&t, path, d);
}

/* ---- HTML -------------------------------------------------------------------------------------- */

static const char style[] = "body{font:14px system-ui,sans-serif;margin:1.5em;color:#222}\n"
                            "table{border-collapse:collapse;font-variant-numeric:tabular-nums}\n"
                            "th{position:sticky;top:0;background:#eee;text-align:left}\n"
                            "th,td{border:1px solid #ddd;padding:2px 6px;white-space:nowrap}\n"
                            ".n{text-align:right}.range{background:#f4a7a0}.ratio{background:#fbcf8f}"
                            ".low{background:#fdf3a9}.abnormal td:first-child{font-weight:bold}\n";

static bool is_off(double ratio) { return fabs(ratio - 1) > 0.05; }

/* The class of a cell: its colour. */
static const char *class_of(const rt_compared *r, const column *c)
{
    double (*const extremes[])(const rt_compared *) = {f32_max, f32_min, low_max, low_min};
    for (size_t i = 0; i < sizeof extremes / sizeof *extremes; i++)
        if (c->number == extremes[i] && fabs(c->number(r)) > 65504) return " range";
    const bool ratio = c->number == max_ratio || c->number == min_ratio || c->number == mean_ratio;
    if (ratio && is_off(c->number(r))) return " ratio";
    return c->text == low_dtype && ir_dtype_is_low(r->tensor.dtype) ? " low" : "";
}

static void add_row(text_buffer *t, const rt_compared *r)
{
    text_add(t, "<tr%s>", rt_compared_is_abnormal(r) ? " class=\"abnormal\"" : "");
    for (int k = 0; k < COLUMNS; k++) {
        const double number = columns[k].number ? columns[k].number(r) : NAN;
        text_add(t, "<td class=\"%s%s\">", columns[k].number ? "n" : "", class_of(r, &columns[k]));
        if (columns[k].text) markup_escape(t, columns[k].text(r));
        else if (!isnan(number)) text_add(t, "%.6g", number);
        text_add(t, "</td>");
    }
    text_add(t, "</tr>\n");
}

/* Whether an earlier row has an infinity of the same operator. */
static bool was_listed(const rt_compared *const *rows, int at)
{
    for (int i = 0; i < at; i++)
        if (rows[i]->low.inf && strcmp(op_of(rows[i]), op_of(rows[at])) == 0) return true;
    return false;
}

static void add_infinite_ops(text_buffer *t, const rt_compared *const *rows, int count)
{
    const char *before = "<p>Operators that produce infinities: ";
    for (int i = 0; i < count; i++) {
        if (!rows[i]->low.inf || was_listed(rows, i)) continue;
        text_add(t, "%s", before);
        markup_escape(t, op_of(rows[i]));
        before = ", ";
    }
    text_add(t, strcmp(before, ", ") == 0 ? "</p>\n" : "<p>No operator produces infinities.</p>\n");
}

static void add_loss(text_buffer *t, const rt_compared *r)
{
    if (!r) return;
    text_add(t, "<p>The node that loses most is <b>");
    markup_escape(t, node(r));
    text_add(t, "</b> (");
    markup_escape(t, op_of(r));
    text_add(t, ", %s): it adds an error of %.3g to ", phase(r), r->added);
    markup_escape(t, tensor(r));
    text_add(t, ".</p>\n");
}

ampc_status compare_write_html(const char *path, const char *model, const rt_comparison *c,
                               const rt_compared *const *rows, diag *d)
{
    text_buffer t = {0};
    text_add(&t, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>");
    markup_escape(&t, model);
    text_add(&t, "</title>\n<style>\n%s</style></head>\n<body><h1>", style);
    markup_escape(&t, model);
    text_add(&t, "</h1>\n");
    add_loss(&t, c->loses);
    text_add(&t,
             "<p>%d values in mixed precision (columns fp16), in fp32 and in fp64, the largest error first. "
             "Abnormal rows are bold.</p>\n<table><thead><tr>",
             c->count);
    for (int k = 0; k < COLUMNS; k++) text_add(&t, "<th>%s</th>", columns[k].name);
    text_add(&t, "</tr></thead>\n<tbody>\n");
    for (int i = 0; i < c->count; i++) add_row(&t, rows[i]);
    text_add(&t, "</tbody></table>\n");
    add_infinite_ops(&t, rows, c->count);
    text_add(&t, "</body></html>\n");
    return markup_save(&t, path, d);
}
