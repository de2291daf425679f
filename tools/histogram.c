/* histogram.c - exponents of values as SVG (all tensors of a kind together), CSV and JSON (each tensor). */
#include "tools/histogram.h"

#include "ir/base/json_writer.h"
#include "runtime/backend/memory.h"
#include "runtime/files/atomic_file.h"
#include "tools/markup.h"
#include "tools/tool.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[HISTOGRAM_KINDS] = {"weights", "activations", "gradients"};

/* ---- collecting -------------------------------------------------------------------------------- */

/* False: the value is shown under another name, or is none of the three kinds. */
static bool find_kind(const rt_checked *v, histogram_kind *kind)
{
    const ir_value *value = v->value;
    if (value->kind == IR_VALUE_STORAGE) *kind = HISTOGRAM_WEIGHT;
    else *kind = v->node && v->node->phase == IR_BACKWARD ? HISTOGRAM_GRADIENT : HISTOGRAM_ACTIVATION;
    if (value->kind == IR_VALUE_STORAGE) return value->storage->kind == IR_PARAM;
    return v->node && v->node->phase != IR_UPDATE && !ir_op_has(v->node->op, IR_CONVERTS);
}

static histogram_row *find_row(histogram *h, const rt_checked *v, histogram_kind kind)
{
    for (size_t i = 0; i < h->rows.count; i++)
        if (strcmp(h->rows.items[i]->tensor, v->value->name) == 0) return h->rows.items[i];
    histogram_row *r = arena_alloc(h->arena, sizeof *r);
    *r = (histogram_row){
        .kind = kind, .tensor = v->value->name, .node = v->node && v->node->loc.node ? v->node->loc.node : ""};
    vec_push(h->arena, &h->rows, r);
    return r;
}

void histogram_add(histogram *h, const rt_checked *v, const rt_tensor *data, double run_scale)
{
    histogram_kind kind;
    if (find_kind(v, &kind))
        rt_exponents_add(&find_row(h, v, kind)->exponents, data, kind == HISTOGRAM_GRADIENT ? run_scale : 1);
}

/* The exponent of the loss scale, which only gradients have. */
static int shift_of(const histogram *h, histogram_kind kind)
{
    return kind == HISTOGRAM_GRADIENT ? ilogb(h->scale) : 0;
}

/* ---- tables ------------------------------------------------------------------------------------ */

static void add_csv_row(text_buffer *t, const histogram *h, const histogram_row *r)
{
    const rt_exponents *e = &r->exponents;
    const rt_f16_shares plain = rt_exponents_in_f16(e, 0), scaled = rt_exponents_in_f16(e, shift_of(h, r->kind));
    text_add(t, "%s,", kind_names[r->kind]);
    markup_quote(t, r->tensor);
    text_add(t, ",");
    markup_quote(t, r->node);
    text_add(t, ",%" PRId64 ",%" PRId64 ",%" PRId64, e->count, e->zero, e->not_finite);
    text_add(t, ",%.6g,%.6g,%.6g,%.6g,%.6g,%.6g\n", plain.flushed, plain.subnormal, plain.above, scaled.flushed,
             scaled.subnormal, scaled.above);
}

static ampc_status write_csv(const histogram *h, const char *path, diag *d)
{
    text_buffer t = {0};
    text_add(&t, "kind,tensor,node,numel,zero,not_finite,flushed,subnormal,above,"
                 "scaled_flushed,scaled_subnormal,scaled_above\n");
    for (size_t i = 0; i < h->rows.count; i++) add_csv_row(&t, h, h->rows.items[i]);
    return markup_save(&t, path, d);
}

static void write_shares(json_writer *w, const char *key, rt_f16_shares s)
{
    json_begin(w, key, '{');
    json_write_real(w, "flushed", "%.6g", s.flushed);
    json_write_real(w, "subnormal", "%.6g", s.subnormal);
    json_write_real(w, "above", "%.6g", s.above);
    json_end(w, '}');
}

/* `exponents` holds a pair for each exponent that occurs. */
static void write_row(json_writer *w, const histogram *h, const histogram_row *r)
{
    const rt_exponents *e = &r->exponents;
    json_begin(w, NULL, '{');
    json_write_string(w, "kind", kind_names[r->kind]);
    json_write_string(w, "tensor", r->tensor);
    json_write_string(w, "node", r->node);
    json_write_integer(w, "numel", e->count);
    json_write_integer(w, "zero", e->zero);
    json_write_integer(w, "not_finite", e->not_finite);
    write_shares(w, "f16", rt_exponents_in_f16(e, 0));
    write_shares(w, "f16_scaled", rt_exponents_in_f16(e, shift_of(h, r->kind)));
    json_begin(w, "exponents", '[');
    for (int i = 0; i < RT_EXPONENTS; i++) {
        if (!e->bins[i]) continue;
        json_begin(w, NULL, '[');
        json_write_integer(w, NULL, i + RT_EXPONENT_LEAST);
        json_write_integer(w, NULL, e->bins[i]);
        json_end(w, ']');
    }
    json_end(w, ']');
    json_end(w, '}');
}

static ampc_status write_json(const histogram *h, const char *path, diag *d)
{
    json_writer w;
    size_t n;
    if (!json_open_text(&w)) return rt_no_memory(d);
    json_begin(&w, NULL, '{');
    json_write_real(&w, "scale", "%.9g", h->scale);
    json_begin(&w, "tensors", '[');
    for (size_t i = 0; i < h->rows.count; i++) write_row(&w, h, h->rows.items[i]);
    json_end(&w, ']');
    json_end(&w, '}');
    char *text = json_close_text(&w, &n);
    const ampc_status status = text ? rt_atomic_save(path, text, n, d) : rt_no_memory(d);
    free(text);
    return status;
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
static void sum_bins(const rt_exponents *e, int shift, double *shares)
{
    const double total = (double)(e->count - e->zero - e->not_finite);
    for (int i = AXIS_LEAST; i < AXIS_MOST; i++) shares[i - AXIS_LEAST] = 0;
    for (int i = 0; i < RT_EXPONENTS && total > 0; i++) {
        const int exponent = (int)fmin(fmax(i + RT_EXPONENT_LEAST + shift, AXIS_LEAST), AXIS_MOST - 1);
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

static void draw_shares(text_buffer *t, rt_f16_shares s)
{
    text_add(t, "%.3g %% become zero, %.3g %% subnormal, %.3g %% infinite", 100 * s.flushed, 100 * s.subnormal,
             100 * s.above);
}

static void draw_panel(text_buffer *t, const histogram *h, histogram_kind kind, double top)
{
    double shares[AXIS_MOST - AXIS_LEAST];
    rt_exponents all = {.count = 0};
    const int shift = shift_of(h, kind);
    for (size_t i = 0; i < h->rows.count; i++)
        if (h->rows.items[i]->kind == kind) rt_exponents_merge(&all, &h->rows.items[i]->exponents);
    draw_band(t, top, AXIS_LEAST, FLUSHED, "#f6d5cf", "zero in fp16");
    draw_band(t, top, FLUSHED, NORMAL, "#fdf0c8", "subnormal");
    draw_band(t, top, ABOVE, AXIS_MOST, "#f6d5cf", "inf");
    sum_bins(&all, 0, shares);
    draw_steps(t, top, shares, "fill=\"#0072b2\" fill-opacity=\".55\" stroke=\"#0072b2\"");
    text_add(t, "<text class=\"label\" x=\"%d\" y=\"%g\">%s, %" PRId64 " values, %.3g %% zero: ", LEFT,
             top - (shift ? 25 : 9), kind_names[kind], all.count,
             all.count ? 100 * (double)all.zero / (double)all.count : 0);
    draw_shares(t, rt_exponents_in_f16(&all, 0));
    text_add(t, "</text>\n");
    if (shift) {
        sum_bins(&all, shift, shares);
        draw_steps(t, top, shares, "fill=\"none\" stroke=\"#d55e00\" stroke-width=\"1.8\"");
        text_add(t, "<text class=\"scaled\" x=\"%d\" y=\"%g\">times the loss scale %g: ", LEFT, top - 9, h->scale);
        draw_shares(t, rt_exponents_in_f16(&all, shift));
        text_add(t, "</text>\n");
    }
    text_add(t, "<rect class=\"frame\" x=\"%d\" y=\"%g\" width=\"%d\" height=\"%d\"/>\n", LEFT, top, COLUMNS, PANEL);
    draw_axis(t, top + PANEL);
}

static ampc_status write_svg(const histogram *h, const char *path, const char *title, diag *d)
{
    text_buffer t = {0};
    bool has[HISTOGRAM_KINDS] = {false};
    int panels = 0;
    for (size_t i = 0; i < h->rows.count; i++) has[h->rows.items[i]->kind] = true;
    for (int k = 0; k < HISTOGRAM_KINDS; k++) panels += has[k];
    const int height = TOP + panels * (PANEL + GAP);
    text_add(&t,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
             "role=\"img\">\n<title>",
             WIDTH, height, WIDTH, height);
    markup_escape(&t, title);
    text_add(&t, "</title>\n<style>\ntext{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#444}\n"
                 ".title{font-size:16px;font-weight:600;fill:#111}.label{font-weight:600}\n"
                 ".x,.band{text-anchor:middle}.band{fill:#777;font-size:10px}.scaled{fill:#d55e00}\n"
                 ".frame{fill:none;stroke:#999}\n</style>\n");
    text_add(&t, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n<text class=\"title\" x=\"%d\" y=\"28\">", WIDTH,
             height, LEFT);
    markup_escape(&t, title);
    text_add(&t, "</text>\n");
    double top = TOP;
    for (int k = 0; k < HISTOGRAM_KINDS; k++) {
        if (!has[k]) continue;
        draw_panel(&t, h, (histogram_kind)k, top);
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

ampc_status histogram_write(const histogram *h, const char *path, const char *title, diag *d)
{
    if (tool_ends_with(path, ".csv")) return write_csv(h, path, d);
    return tool_ends_with(path, ".json") ? write_json(h, path, d) : write_svg(h, path, title, d);
}
