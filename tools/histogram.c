/* histogram.c - exponents of values as SVG (all tensors of a kind together) and CSV (each tensor). */
#include "tools/histogram.h"

#include "tools/markup.h"
#include "tools/tool.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- collecting -------------------------------------------------------------------------------- */

/* False: the value is shown under another name, or is none of the kinds. Those of the update are the gradients again
 * and the weights. */
static bool find_kind(const rt_checked *v, rt_calibrated_kind *kind)
{
    const ir_value *value = v->value;
    if (value->kind == IR_VALUE_STORAGE) *kind = RT_CALIBRATED_WEIGHT;
    else if (value->kind == IR_VALUE_INPUT) *kind = RT_CALIBRATED_INPUT;
    else *kind = v->node && v->node->phase == IR_BACKWARD ? RT_CALIBRATED_GRADIENT : RT_CALIBRATED_ACTIVATION;
    if (value->kind == IR_VALUE_STORAGE) return value->storage->kind == IR_PARAM;
    if (value->kind == IR_VALUE_INPUT) return !value->graph->owner;
    return v->node && v->node->phase != IR_UPDATE && !ir_op_has(v->node->op, IR_CONVERTS);
}

static rt_calibrated *find_row(histogram *h, const rt_checked *v, rt_calibrated_kind kind)
{
    if (!h->by_name) h->by_name = strmap_new(h->arena);
    rt_calibrated *r = strmap_get(h->by_name, v->value->name);
    if (r) return r;
    const ir_loc *loc = v->node ? &v->node->loc : NULL;
    r = arena_alloc(h->arena, sizeof *r);
    *r = (rt_calibrated){.kind = kind,
                         .name = v->value->name,
                         .node = loc && loc->node ? loc->node : "",
                         .op = loc && loc->op ? loc->op
                               : v->node      ? ir_op_get(v->node->op)->name
                                              : ""};
    vec_push(h->arena, &h->values.tensors, r);
    strmap_put(h->by_name, r->name, r);
    return r;
}

void histogram_add(histogram *h, const rt_checked *v, const rt_tensor *data, double run_scale)
{
    rt_calibrated_kind kind;
    if (!find_kind(v, &kind)) return;
    ir_exponents_add(&find_row(h, v, kind)->numbers, data->dtype, data->data, rt_tensor_count(data),
                     kind == RT_CALIBRATED_GRADIENT ? run_scale : 1);
}

/* ---- tables ------------------------------------------------------------------------------------ */

static void add_csv_shares(text_buffer *t, ir_exponent_shares s)
{
    text_add(t, ",%.9g,%.9g,%.9g,%.9g", s.below_subnormal, s.below_normal, s.flushed, s.above);
}

static void add_csv_row(text_buffer *t, const rt_calibration *c, const rt_calibrated *r)
{
    const ir_exponents *e = &r->numbers;
    text_add(t, "%s,", rt_calibrated_kinds[r->kind]);
    markup_quote(t, r->name);
    text_add(t, ",");
    markup_quote(t, r->node);
    text_add(t, ",");
    markup_quote(t, r->op);
    text_add(t, ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64, e->count, e->nan, e->inf, e->zero);
    if (ir_exponents_finite(e)) text_add(t, ",%.9g,%.9g", e->min, e->max);
    else text_add(t, ",,");
    add_csv_shares(t, ir_exponents_in(e, IR_f16, 0));
    add_csv_shares(t, ir_exponents_in(e, IR_bf16, 0));
    add_csv_shares(t, ir_exponents_in(e, IR_f16, rt_calibration_shift(c, r->kind)));
    text_add(t, "\n");
}

static void add_csv_heads(text_buffer *t, const char *type)
{
    text_add(t, ",%s_below_subnormal,%s_below_normal,%s_flushed,%s_above", type, type, type, type);
}

static ampc_status write_csv(const rt_calibration *c, const char *path, diag *d)
{
    text_buffer t = {0};
    text_add(&t, "kind,name,node,op,count,nan,inf,zero,min,max");
    add_csv_heads(&t, "fp16");
    add_csv_heads(&t, "bf16");
    add_csv_heads(&t, "fp16_scaled");
    text_add(&t, "\n");
    for (size_t i = 0; i < c->tensors.count; i++) add_csv_row(&t, c, c->tensors.items[i]);
    return markup_save(&t, path, d);
}

/* ---- the plot ---------------------------------------------------------------------------------- */

enum { WIDTH = 860, LEFT = 64, COLUMNS = WIDTH - LEFT - 24, TOP = 84, PANEL = 150, GAP = 66, AXIS_LEAST = -60 };
enum { AXIS_MOST = 20, FLUSHED = -25, NORMAL = -14, ABOVE = 16 };

static double x_of(double exponent)
{
    const double inside = fmin(fmax(exponent, AXIS_LEAST), AXIS_MOST);
    return LEFT + (inside - AXIS_LEAST) / (AXIS_MOST - AXIS_LEAST) * COLUMNS;
}

static void draw_band(text_buffer *t, double top, double from, double to, const char *colour, const char *label)
{
    text_add(t, "<rect x=\"%.1f\" y=\"%g\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>", x_of(from), top,
             x_of(to) - x_of(from), PANEL, colour);
    text_add(t, "<text class=\"band\" x=\"%.1f\" y=\"%g\">%s</text>\n", (x_of(from) + x_of(to)) / 2, top + 14, label);
}

/* The share of the nonzero elements with that exponent; numbers beyond the axis count at its ends. */
static void sum_bins(const ir_exponents *e, int shift, double *shares)
{
    const double total = (double)(ir_exponents_finite(e) - e->zero);
    for (int i = AXIS_LEAST; i < AXIS_MOST; i++) shares[i - AXIS_LEAST] = 0;
    for (int i = 0; i < IR_EXPONENTS && total > 0; i++) {
        const int exponent = (int)fmin(fmax(i + IR_EXPONENT_LEAST + shift, AXIS_LEAST), AXIS_MOST - 1);
        shares[exponent - AXIS_LEAST] += (double)e->bins[i] / total;
    }
}

static double largest_of(const double *shares)
{
    double largest = 0;
    for (int i = 0; i < AXIS_MOST - AXIS_LEAST; i++) largest = fmax(largest, shares[i]);
    return largest > 0 ? largest : 1;
}

static void draw_steps(text_buffer *t, double top, const double *shares, const char *look)
{
    const double largest = largest_of(shares) * 1.25; /* the labels are above the curve */
    text_add(t, "<path %s d=\"M%d %g", look, LEFT, top + PANEL);
    for (int i = 0; i < AXIS_MOST - AXIS_LEAST; i++)
        text_add(t, "V%.1fH%.1f", top + PANEL * (1 - shares[i] / largest), x_of(AXIS_LEAST + i + 1));
    text_add(t, "V%g\"/>\n", top + PANEL);
}

static void draw_axis(text_buffer *t, double bottom)
{
    for (int e = AXIS_LEAST; e <= AXIS_MOST; e += 10)
        text_add(t,
                 "<path class=\"frame\" d=\"M%.1f %gv5\"/><text class=\"x\" x=\"%.1f\" y=\"%g\">2<tspan dy=\"-5\" "
                 "font-size=\"9\">%d</tspan></text>\n",
                 x_of(e), bottom, x_of(e), bottom + 20, e);
}

static void draw_shares(text_buffer *t, ir_exponent_shares s)
{
    text_add(t, "%.3g %% become zero, %.3g %% subnormal, %.3g %% infinite", 100 * s.flushed,
             100 * (s.below_normal - s.flushed), 100 * s.above);
}

static void draw_panel(text_buffer *t, const rt_calibration *c, rt_calibrated_kind kind, double top)
{
    static const char *const names[RT_CALIBRATED_KINDS] = {"weights", "inputs", "activations", "gradients"};
    double shares[AXIS_MOST - AXIS_LEAST];
    ir_exponents all = {.count = 0};
    const int shift = rt_calibration_shift(c, kind);
    for (size_t i = 0; i < c->tensors.count; i++)
        if (c->tensors.items[i]->kind == kind) ir_exponents_merge(&all, &c->tensors.items[i]->numbers);
    draw_band(t, top, AXIS_LEAST, FLUSHED, "#f6d5cf", "zero in fp16");
    draw_band(t, top, FLUSHED, NORMAL, "#fdf0c8", "subnormal");
    draw_band(t, top, ABOVE, AXIS_MOST, "#f6d5cf", "inf");
    sum_bins(&all, 0, shares);
    draw_steps(t, top, shares, "fill=\"#0072b2\" fill-opacity=\".55\" stroke=\"#0072b2\"");
    text_add(t, "<text class=\"label\" x=\"%d\" y=\"%g\">%s, %" PRId64 " values, %.3g %% zero: ", LEFT,
             top - (shift ? 25 : 9), names[kind], all.count,
             all.count ? 100 * (double)all.zero / (double)all.count : 0);
    draw_shares(t, ir_exponents_in(&all, IR_f16, 0));
    text_add(t, "</text>\n");
    if (shift) {
        sum_bins(&all, shift, shares);
        draw_steps(t, top, shares, "fill=\"none\" stroke=\"#d55e00\" stroke-width=\"1.8\"");
        text_add(t, "<text class=\"scaled\" x=\"%d\" y=\"%g\">times the loss scale %g: ", LEFT, top - 9, c->scale);
        draw_shares(t, ir_exponents_in(&all, IR_f16, shift));
        text_add(t, "</text>\n");
    }
    text_add(t, "<rect class=\"frame\" x=\"%d\" y=\"%g\" width=\"%d\" height=\"%d\"/>\n", LEFT, top, COLUMNS, PANEL);
    draw_axis(t, top + PANEL);
}

static ampc_status write_svg(const rt_calibration *c, const char *path, diag *d)
{
    text_buffer t = {0};
    bool has[RT_CALIBRATED_KINDS] = {false};
    int panels = 0;
    for (size_t i = 0; i < c->tensors.count; i++) has[c->tensors.items[i]->kind] = true;
    for (int k = 0; k < RT_CALIBRATED_KINDS; k++) panels += has[k];
    const int height = TOP + panels * (PANEL + GAP);
    text_add(&t,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
             "role=\"img\">\n<title>",
             WIDTH, height, WIDTH, height);
    markup_escape(&t, c->model);
    text_add(&t, "</title>\n<style>\ntext{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#444}\n"
                 ".title{font-size:16px;font-weight:600;fill:#111}.label{font-weight:600}\n"
                 ".x,.band{text-anchor:middle}.band{fill:#777;font-size:10px}.scaled{fill:#d55e00}\n"
                 ".frame{fill:none;stroke:#999}\n</style>\n");
    text_add(&t, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n<text class=\"title\" x=\"%d\" y=\"28\">", WIDTH,
             height, LEFT);
    markup_escape(&t, c->model);
    text_add(&t, "</text>\n");
    double top = TOP;
    for (int k = 0; k < RT_CALIBRATED_KINDS; k++) {
        if (!has[k]) continue;
        draw_panel(&t, c, (rt_calibrated_kind)k, top);
        top += PANEL + GAP;
    }
    text_add(&t, "</svg>\n");
    return markup_save(&t, path, d);
}

/* ---- files ------------------------------------------------------------------------------------- */

ampc_status histogram_check_path(const char *path, diag *d)
{
    if (tool_ends_with(path, ".svg") || tool_ends_with(path, ".csv") || tool_ends_with(path, ".json")) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_FILE(path), "--histogram: expected a .svg, .csv or .json file");
}

ampc_status histogram_write(const rt_calibration *c, const char *path, diag *d)
{
    if (tool_ends_with(path, ".csv")) return write_csv(c, path, d);
    return tool_ends_with(path, ".json") ? rt_calibration_write(c, path, d) : write_svg(c, path, d);
}
