/* progress.c - the progress line: parts are formatted separately and joined as far as they fit. */
#include "runtime/train/log.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PARTS = 8, PART_BYTES = 40, BAR_MIN = 10, BAR_MAX = 30, SEPARATOR = 2 };

typedef struct line {
    char parts[PARTS][PART_BYTES];
    size_t count;
} line;

#define ADD(l, ...) snprintf((l)->parts[(l)->count++], PART_BYTES, __VA_ARGS__)

static void add_rate(line *l, double rate)
{
    if (!(rate > 0)) return;
    if (rate >= 1e6) ADD(l, "%.1fM/s", rate / 1e6);
    else if (rate >= 1e4) ADD(l, "%.1fk/s", rate / 1e3);
    else ADD(l, "%.*f/s", rate < 10 ? 1 : 0, rate);
}

static void add_time_left(line *l, double seconds)
{
    if (!(seconds >= 0) || seconds > 1e9) return;
    unsigned long s = (unsigned long)(seconds + 0.5);
    if (s >= 3600) ADD(l, "%lu:%02lu:%02lu left", s / 3600, s / 60 % 60, s % 60);
    else ADD(l, "%lu:%02lu left", s / 60, s % 60);
}

/* `epoch` counts completed epochs, so the current one is the next integer. */
static void add_epoch(line *l, const rt_progress *p)
{
    if (!p->epochs) return;
    unsigned long long running = (unsigned long long)p->now.epoch + 1;
    if (running > p->epochs) running = p->epochs;
    ADD(l, "epoch %llu/%llu", running, (unsigned long long)p->epochs);
}

static void collect(line *l, const rt_progress *p)
{
    add_epoch(l, p);
    if (p->steps) ADD(l, "%llu/%llu", (unsigned long long)p->now.step, (unsigned long long)p->steps);
    else ADD(l, "step %llu", (unsigned long long)p->now.step);
    ADD(l, "loss %.4g", p->now.loss);
    if (p->now.scale != 1) ADD(l, "scale %g", p->now.scale);
    if (p->now.skipped || p->now.scale != 1) ADD(l, "skipped %llu", (unsigned long long)p->now.skipped);
    add_rate(l, p->now.samples_s);
    add_time_left(l, p->seconds_left);
}

/* Width of the line without a bar. */
static size_t width(const line *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->count; i++) n += strlen(l->parts[i]) + (i ? SEPARATOR : 0);
    return n;
}

typedef struct output {
    char *at;
    size_t space; /* excluding the terminator */
} output;

/* Writes all of `text` or nothing, so that no UTF-8 character is cut. */
static void put(output *o, const char *text)
{
    size_t n = strlen(text);
    if (n > o->space) {
        o->space = 0;
        return;
    }
    memcpy(o->at, text, n);
    o->at += n;
    o->space -= n;
}

static void put_bar(output *o, double done, size_t columns, bool fine)
{
    size_t inner = columns - 2, full = (size_t)(done * (double)inner + 0.5);
    put(o, fine ? "\xe2\x94\x83" : "[");
    for (size_t i = 0; i < inner; i++) {
        bool head = i + 1 == full && full < inner;
        if (fine) put(o, i < full ? "\xe2\x96\x88" : "\xe2\x94\x80");
        else put(o, i >= full ? " " : head ? ">" : "=");
    }
    put(o, fine ? "\xe2\x94\x83" : "]");
}

static double fraction(const rt_progress *p)
{
    if (!p->steps) return 0;
    return p->now.step >= p->steps ? 1 : (double)p->now.step / (double)p->steps;
}

/* Columns left for the bar; 0 if there are too few. */
static size_t bar_columns(const line *l, const rt_progress *p, rt_progress_style style, size_t columns)
{
    size_t used = width(l) + SEPARATOR;
    if (style == RT_PROGRESS_LINE || !p->steps || used + BAR_MIN > columns) return 0;
    return columns - used < BAR_MAX ? columns - used : BAR_MAX;
}

size_t rt_progress_format(char *dst, size_t n, const rt_progress *p, rt_progress_style style, size_t columns)
{
    line l = {.count = 0};
    output o = {dst, n ? n - 1 : 0};
    if (!n) return 0;
    collect(&l, p);
    if (style != RT_PROGRESS_LINE)
        while (l.count > 1 && width(&l) > columns) l.count--;
    size_t bar = bar_columns(&l, p, style, columns), before = p->epochs ? 1 : 0;
    for (size_t i = 0; i < l.count; i++) {
        if (bar && i == before) {
            if (i) put(&o, " ");
            put_bar(&o, fraction(p), bar, style == RT_PROGRESS_FINE);
            put(&o, " ");
        } else if (i) put(&o, "  ");
        put(&o, l.parts[i]);
    }
    *o.at = 0;
    return (size_t)(o.at - dst);
}
