/* svg_plot.c - two panels over a common step axis: loss (linear) and loss scale (log2); or the loss over the rate.
 *
 * The loss of a long run is drawn as an exponential moving average over a faint band (minimum to maximum of each
 * pixel column), that of a short run directly. The scale is a staircase with a dot for each skipped step. All
 * coordinates are in pixels; the file needs neither scripts nor fonts. */
#include "tools/svg_plot.h"
#include "tools/markup.h"

#include <math.h>

enum { WIDTH = 860, LEFT = 64, RIGHT = 24, TOP = 76, LOSS_HEIGHT = 300, SCALE_HEIGHT = 130 };
enum { GAP = 44, BOTTOM = 52, COLUMNS = WIDTH - LEFT - RIGHT, SMOOTH_FROM = 200, LEGEND_STEP = 190 };

/* The palette of Okabe and Ito, which is safe for colour-blind readers. */
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"};
enum { COLOURS = sizeof colours / sizeof *colours };

/* ---- series ---- */

typedef struct panel {
    double top, height;
    double low, high; /* range of the values */
    double first_step, last_step;
    bool over_rate; /* the x axis is log10 of the learning rate instead of the step */
} panel;

static double place(const panel *p, const rt_step_record *s) { return p->over_rate ? log10(s->lr) : (double)s->step; }

static double x_of(const panel *p, double step)
{
    double span = p->last_step - p->first_step;
    return LEFT + (span > 0 ? (step - p->first_step) / span : 0.5) * COLUMNS;
}

static double y_of(const panel *p, double v)
{
    double y = p->top + p->height * (1 - (v - p->low) / (p->high - p->low));
    return fmin(fmax(y, p->top - 9999), p->top + 9999);
}

/* Values of a diverged loss are dropped, because they would flatten the rest of the curve. */
static double loss_of(const rt_step_record *s) { return fabs(s->loss) < 1e30 ? s->loss : NAN; }
static double scale_of(const rt_step_record *s) { return s->scale > 0 ? log2(s->scale) : NAN; }

/* Moving average over about a hundredth of the run, with bias correction at the start. Steps without a finite loss do
 * not change it. */
typedef struct average {
    double keep, sum, weight;
} average;

static average average_over(size_t count)
{
    return (average){.keep = count < SMOOTH_FROM ? 0 : 1 - 2 / ((double)count / 100 + 1)};
}

static double average_next(average *a, double v)
{
    if (!isfinite(v)) return NAN;
    a->sum = a->keep * a->sum + (1 - a->keep) * v;
    a->weight = a->keep * a->weight + (1 - a->keep);
    return a->sum / a->weight;
}

/* ---- ranges and ticks ---- */

static void widen(panel *p, double v)
{
    if (!isfinite(v)) return;
    p->low = fmin(p->low, v);
    p->high = fmax(p->high, v);
}

static void add_margin(panel *p, double margin)
{
    if (p->low > p->high) p->low = 0, p->high = 1; /* no finite value */
    double pad = p->high > p->low ? (p->high - p->low) * margin : fmax(fabs(p->low) * 0.1, 0.5);
    p->low -= pad;
    p->high += pad;
}

/* 1, 2 or 5 times a power of ten, such that about `count` ticks fit. */
static double nice_step(double span, int count)
{
    double raw = span / count, power = pow(10, floor(log10(raw))), lead = raw / power;
    return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

/* Tick number k; NAN after the last one. */
static double tick(double low, double high, double step, int k)
{
    double v = (ceil(low / step) + k) * step;
    return k < 24 && v <= high ? v : NAN;
}

/* ---- drawing ---- */

static void draw_frame(text_buffer *t, const panel *p, const char *label)
{
    text_add(t, "<rect class=\"frame\" x=\"%d\" y=\"%g\" width=\"%d\" height=\"%g\"/>\n", LEFT, p->top, COLUMNS,
             p->height);
    text_add(t, "<text class=\"label\" x=\"%d\" y=\"%g\">%s</text>\n", LEFT, p->top - 9, label);
}

static void draw_y_tick(text_buffer *t, const panel *p, double v)
{
    text_add(t, "<path class=\"grid\" d=\"M%d %.1fh%d\"/><text class=\"y\" x=\"%d\" y=\"%.1f\">", LEFT, y_of(p, v),
             COLUMNS, LEFT - 8, y_of(p, v) + 4);
}

static void draw_loss_ticks(text_buffer *t, const panel *p)
{
    double step = nice_step(p->high - p->low, 6);
    double v;
    for (int k = 0; isfinite(v = tick(p->low, p->high, step, k)); k++) {
        draw_y_tick(t, p, v);
        text_add(t, "%.6g</text>\n", fabs(v) < step / 2 ? 0 : v);
    }
}

static void draw_scale_ticks(text_buffer *t, const panel *p)
{
    double step = fmax(1, ceil((p->high - p->low) / 5));
    double v;
    for (int k = 0; isfinite(v = tick(p->low, p->high, step, k)); k++) {
        draw_y_tick(t, p, v);
        text_add(t, "2<tspan dy=\"-5\" font-size=\"9\">%g</tspan></text>\n", v);
    }
}

static void draw_x_ticks(text_buffer *t, const panel *p)
{
    double bottom = p->top + p->height, span = p->last_step - p->first_step;
    double step = span > 0 ? fmax(1, nice_step(span, 8)) : 1;
    double v;
    for (int k = 0; isfinite(v = tick(p->first_step, p->last_step, step, k)); k++)
        text_add(t,
                 "<path class=\"frame\" d=\"M%.1f %gv5\"/><text class=\"x\" x=\"%.1f\" "
                 "y=\"%g\">%.10g</text>\n",
                 x_of(p, v), bottom, x_of(p, v), bottom + 19, v);
    text_add(t, "<text class=\"x\" x=\"%d\" y=\"%g\">step</text>\n", LEFT + COLUMNS / 2, bottom + 38);
}

static void draw_rate_ticks(text_buffer *t, const panel *p)
{
    const double bottom = p->top + p->height;
    double v;
    for (int k = 0; isfinite(v = tick(p->first_step, p->last_step, 1, k)); k++)
        text_add(t, "<path class=\"frame\" d=\"M%.1f %gv5\"/><text class=\"x\" x=\"%.1f\" y=\"%g\">1e%g</text>\n",
                 x_of(p, v), bottom, x_of(p, v), bottom + 19, v);
    text_add(t, "<text class=\"x\" x=\"%d\" y=\"%g\">learning rate</text>\n", LEFT + COLUMNS / 2, bottom + 38);
}

static void draw_mark(text_buffer *t, const panel *p, double rate)
{
    if (!(rate > 0)) return;
    text_add(t, "<path stroke=\"#111\" stroke-dasharray=\"4 3\" d=\"M%.1f %gv%g\"/>", x_of(p, log10(rate)), p->top,
             p->height);
    text_add(t, "<text class=\"x\" x=\"%.1f\" y=\"%g\">%.3g</text>\n", x_of(p, log10(rate)), p->top - 9, rate);
}

/* Draws minimum to maximum of each pixel column, as one path of vertical strokes. */
static void draw_band(text_buffer *t, const panel *p, const plot_run *run, const char *colour)
{
    text_add(t, "<path fill=\"none\" stroke=\"%s\" stroke-opacity=\".22\" d=\"", colour);
    for (size_t i = 0; i < run->count;) {
        double column = floor(x_of(p, place(p, &run->steps[i]))), low = INFINITY, high = -INFINITY;
        for (; i < run->count && floor(x_of(p, place(p, &run->steps[i]))) <= column; i++) {
            low = fmin(low, loss_of(&run->steps[i])); /* fmin and fmax ignore NAN */
            high = fmax(high, loss_of(&run->steps[i]));
        }
        if (low <= high) text_add(t, "M%.1f %.1fV%.1f", column + 0.5, y_of(p, low), y_of(p, high) - 0.5);
    }
    text_add(t, "\"/>\n");
}

/* Draws at most one point per pixel column; a non-finite value interrupts the line. */
static void draw_loss(text_buffer *t, const panel *p, const plot_run *run, const char *colour)
{
    average a = average_over(run->count);
    bool down = false;
    double last_x = -1;
    text_add(t, "<path class=\"line\" stroke=\"%s\" d=\"", colour);
    for (size_t i = 0; i < run->count; i++) {
        double v = average_next(&a, loss_of(&run->steps[i])), x = x_of(p, place(p, &run->steps[i]));
        if (isfinite(v) && down && x - last_x < 1 && i + 1 < run->count) continue;
        if (isfinite(v)) text_add(t, "%c%.1f %.1f", down ? 'L' : 'M', x, y_of(p, v)), last_x = x;
        down = isfinite(v);
    }
    text_add(t, "\"/>\n");
}

static void draw_scale(text_buffer *t, const panel *p, const plot_run *run, const char *colour)
{
    double last = NAN;
    text_add(t, "<path class=\"line\" stroke=\"%s\" d=\"", colour);
    for (size_t i = 0; i < run->count; i++) {
        double v = scale_of(&run->steps[i]), x = x_of(p, place(p, &run->steps[i]));
        bool jump = v != last; /* also true for NAN */
        if (isfinite(v) && !isfinite(last)) text_add(t, "M%.1f %.1f", x, y_of(p, v));
        else if (isfinite(v) && (jump || i + 1 == run->count)) text_add(t, "H%.1fV%.1f", x, y_of(p, v));
        last = v;
    }
    text_add(t, "\"/>\n");
    for (size_t i = 0; i < run->count; i++) {
        uint64_t before = i ? run->steps[i - 1].skipped : 0;
        double v = scale_of(&run->steps[i]), x = x_of(p, place(p, &run->steps[i]));
        if (run->steps[i].skipped > before && isfinite(v))
            text_add(t, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\" fill=\"%s\"/>\n", x, y_of(p, v), colour);
    }
}

static void draw_legend(text_buffer *t, const plot_run *runs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        average a = average_over(runs[i].count);
        double last = NAN;
        int x = LEFT + (int)i * LEGEND_STEP;
        for (size_t k = 0; k < runs[i].count; k++) {
            double v = average_next(&a, loss_of(&runs[i].steps[k]));
            if (isfinite(v)) last = v;
        }
        text_add(t,
                 "<path class=\"line\" stroke=\"%s\" d=\"M%d 47h18\"/><text class=\"legend\" x=\"%d\" "
                 "y=\"51\">",
                 colours[i % COLOURS], x, x + 24);
        markup_escape(t, runs[i].name);
        if (isfinite(last)) text_add(t, "<tspan class=\"value\" dx=\"8\">%.4g</tspan>", last);
        text_add(t, "</text>\n");
    }
}

/* ---- the plot ---- */

static bool scales(const plot_run *run)
{
    for (size_t k = 0; k < run->count; k++)
        if (run->steps[k].scale != 1 && isfinite(run->steps[k].scale)) return true;
    return false;
}

/* Both panels have the same step axis. The loss range is that of the averages, so that a single bad step does not
 * flatten the curve; the band is clipped to it. */
static void measure(const plot_run *runs, size_t count, panel *loss, panel *scale)
{
    double first = INFINITY, last = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        average a = average_over(runs[i].count);
        bool scaled = scales(&runs[i]);
        for (size_t k = 0; k < runs[i].count; k++) {
            const rt_step_record *s = &runs[i].steps[k];
            first = fmin(first, place(loss, s));
            last = fmax(last, place(loss, s));
            widen(loss, average_next(&a, loss_of(s)));
            if (scaled) widen(scale, scale_of(s));
        }
    }
    if (first > last) first = 0, last = 1;
    loss->first_step = scale->first_step = first;
    loss->last_step = scale->last_step = last;
    add_margin(loss, 0.06);
    add_margin(scale, 0.12);
}

static void draw_head(text_buffer *t, const char *title, double height, const panel *loss)
{
    text_add(t,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %g\" width=\"%d\" "
             "height=\"%g\" "
             "role=\"img\">\n<title>",
             WIDTH, height, WIDTH, height);
    markup_escape(t, title);
    text_add(t, "</title>\n<style>\n"
                "text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#444}\n"
                ".title{font-size:16px;font-weight:600;fill:#111}.label{font-weight:600}\n"
                ".y{text-anchor:end}.x{text-anchor:middle}.legend{fill:#111}.value{fill:#777}\n"
                ".frame{fill:none;stroke:#999}.grid{fill:none;stroke:#e6e6e6}\n"
                ".line{fill:none;stroke-width:1.8;stroke-linejoin:round}\n</style>\n");
    text_add(t, "<clipPath id=\"loss\"><rect x=\"%d\" y=\"%g\" width=\"%d\" height=\"%g\"/></clipPath>\n", LEFT,
             loss->top, COLUMNS, loss->height);
    text_add(t,
             "<rect width=\"%d\" height=\"%g\" fill=\"#fff\"/>\n<text class=\"title\" x=\"%d\" "
             "y=\"28\">",
             WIDTH, height, LEFT);
    markup_escape(t, title);
    text_add(t, "</text>\n");
}

static void draw_loss_panel(text_buffer *t, const panel *p, const plot_run *runs, size_t count)
{
    draw_loss_ticks(t, p);
    text_add(t, "<g clip-path=\"url(#loss)\">\n");
    for (size_t i = 0; i < count; i++)
        if (runs[i].count >= SMOOTH_FROM) draw_band(t, p, &runs[i], colours[i % COLOURS]);
    for (size_t i = 0; i < count; i++) draw_loss(t, p, &runs[i], colours[i % COLOURS]);
    text_add(t, "</g>\n");
    draw_frame(t, p, "loss");
}

static void draw_scale_panel(text_buffer *t, const panel *p, const plot_run *runs, size_t count)
{
    draw_scale_ticks(t, p);
    for (size_t i = 0; i < count; i++)
        if (scales(&runs[i])) draw_scale(t, p, &runs[i], colours[i % COLOURS]);
    draw_frame(t, p, "loss scale (dots: skipped steps)");
}

static text_buffer draw(const char *title, const plot_run *runs, size_t count)
{
    text_buffer t = {0};
    panel loss = {.top = TOP, .height = LOSS_HEIGHT, .low = INFINITY, .high = -INFINITY};
    panel scale = {.top = TOP + LOSS_HEIGHT + GAP, .height = SCALE_HEIGHT, .low = INFINITY, .high = -INFINITY};
    bool both = false;
    for (size_t i = 0; i < count; i++) both |= scales(&runs[i]);
    const panel *lowest = both ? &scale : &loss;
    measure(runs, count, &loss, &scale);
    draw_head(&t, title, lowest->top + lowest->height + BOTTOM, &loss);
    draw_legend(&t, runs, count);
    draw_loss_panel(&t, &loss, runs, count);
    if (both) draw_scale_panel(&t, &scale, runs, count);
    draw_x_ticks(&t, lowest);
    text_add(&t, "</svg>\n");
    return t;
}

char *plot_render(const char *title, const plot_run *runs, size_t count)
{
    text_buffer t = draw(title, runs, count);
    return text_finish(&t);
}

ampc_status plot_write(const char *path, const char *title, const plot_run *runs, size_t count, diag *d)
{
    text_buffer t = draw(title, runs, count);
    return markup_save(&t, path, d);
}

ampc_status plot_write_rates(const char *path, const char *title, const plot_run *runs, size_t count, double mark,
                             diag *d)
{
    text_buffer t = {0};
    panel loss = {.top = TOP, .height = LOSS_HEIGHT, .low = INFINITY, .high = -INFINITY, .over_rate = true};
    panel unused = loss;
    measure(runs, count, &loss, &unused);
    draw_head(&t, title, loss.top + loss.height + BOTTOM, &loss);
    draw_legend(&t, runs, count);
    draw_loss_panel(&t, &loss, runs, count);
    draw_mark(&t, &loss, mark);
    draw_rate_ticks(&t, &loss);
    text_add(&t, "</svg>\n");
    return markup_save(&t, path, d);
}
