/* schedule.c - learning-rate schedules; the header has the formulas. */
#include "runtime/train/schedule.h"

#include "ir/base/limits.h"
#include "ir/base/text_buffer.h"
#include "ir/ops/settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double PI = 3.14159265358979323846;

/* The text of checkpoints has these keys for every kind, because it is compared. */
#define COMMON "lr end factor every warmup steps"

/* By rt_schedule_kind: the name and the keys. */
static const struct schedule_kind {
    const char *name, *keys;
} kinds[] = {
    {"constant", COMMON},
    {"linear", COMMON},
    {"cosine", COMMON},
    {"polynomial", COMMON " power"},
    {"exponential", COMMON},
    {"step", COMMON},
    {"one-cycle", COMMON " rise div final_div anneal"},
    {"plateau", COMMON " patience threshold cooldown"},
};
enum { KIND_COUNT = sizeof kinds / sizeof *kinds };

/* Printed in this order. */
#define NUMBER(key, kind, initial, help, ...) \
    SETTING_FROM(rt_schedule_piece, #key, key, kind, initial, help, __VA_ARGS__)
static const setting keys[] = {
    NUMBER(lr, REAL, NULL, "the rate, instead of that of the optimizer", 0, DBL_MAX),
    NUMBER(end, REAL, "0", "the rate at the end (linear, cosine, polynomial), or the lowest one (plateau)", 0, DBL_MAX),
    NUMBER(factor, REAL, "0.1", "the factor of each change (exponential, step, plateau)", 0, DBL_MAX),
    NUMBER(every, COUNT, NULL, "steps between changes (exponential, step), or in a mean loss (plateau)", LIMITS_STEPS),
    NUMBER(warmup, COUNT, "0", "steps in which the rate rises to its start", 0, LIMITS_MOST_STEPS),
    NUMBER(steps, COUNT, NULL, "the length of a piece", 0, LIMITS_MOST_STEPS),
    NUMBER(power, REAL, "1", "the exponent of polynomial", 0, DBL_MAX),
    NUMBER(rise, REAL, "0.3", "the share of the steps of one-cycle in which the rate rises", LIMITS_SHARE),
    NUMBER(div, REAL, "25", "one-cycle begins with lr divided by X", SETTING_ABOVE_0, DBL_MAX),
    NUMBER(final_div, REAL, "1e4", "one-cycle ends with its first rate divided by X", SETTING_ABOVE_0, DBL_MAX),
    NUMBER(patience, COUNT, "10", "mean losses without improvement before plateau lowers the rate", 0,
           LIMITS_MOST_STEPS),
    NUMBER(threshold, REAL, "1e-4", "the share by which a mean loss must be smaller to improve", LIMITS_SHARE),
    NUMBER(cooldown, COUNT, "0", "mean losses after a change that are not counted", 0, LIMITS_MOST_STEPS),
    SETTING_WORDS_FROM(rt_schedule_piece, "anneal", anneal, "cos|linear", "cos", "the curve of one-cycle"),
};
enum { KEY_COUNT = sizeof keys / sizeof *keys };

const char *rt_schedule_name(int index) { return index < KIND_COUNT ? kinds[index].name : NULL; }
const char *rt_schedule_keys(int index) { return index < KIND_COUNT ? kinds[index].keys : NULL; }
const setting *rt_schedule_key(int index) { return index < KEY_COUNT ? &keys[index] : NULL; }

/* ---- rate ---- */

/* From `from` to `to` while u goes from 0 to 1. */
static double anneal(const rt_schedule_piece *p, double from, double to, double u)
{
    return p->anneal ? (to - from) * u + from : to + (from - to) / 2 * (1 + cos(PI * u));
}

/* The phases end at (possibly fractional) steps, as in PyTorch. */
static double one_cycle(const rt_schedule_piece *p, int64_t t, int64_t steps)
{
    const double top = p->rise * (double)steps - 1, last = (double)steps - 1, at = fmin((double)t, last);
    const double start = p->lr / p->div;
    if (at <= top && top > 0) return anneal(p, start, p->lr, at / top);
    return anneal(p, p->lr, start / p->final_div, last > top ? (at - top) / (last - top) : 1);
}

static double curve(const rt_schedule_piece *p, int64_t t, int64_t left)
{
    const double u = left > 0 && t < left ? (double)t / (double)left : 1;
    const int64_t third = left > 3 ? left / 3 : 1;
    switch (p->kind) {
    case RT_SCHEDULE_CONSTANT:
    case RT_SCHEDULE_PLATEAU: return p->lr;
    case RT_SCHEDULE_LINEAR: return p->end + (p->lr - p->end) * (1 - u);
    case RT_SCHEDULE_COSINE: return p->end + (p->lr - p->end) * 0.5 * (1 + cos(PI * u));
    case RT_SCHEDULE_STEP: return p->lr * pow(p->factor, (double)(t / (p->every ? p->every : third)));
    case RT_SCHEDULE_POLYNOMIAL: return p->end + (p->lr - p->end) * pow(1 - u, p->power);
    case RT_SCHEDULE_EXPONENTIAL: return p->lr * pow(p->factor, p->every ? (double)t / (double)p->every : u);
    case RT_SCHEDULE_ONE_CYCLE: return one_cycle(p, t, left > 1 ? left : 1);
    }
    return p->lr;
}

static double piece_rate(const rt_schedule_piece *p, int64_t step)
{
    if (step < p->warmup) return p->lr * (double)(step + 1) / (double)p->warmup;
    return curve(p, step - p->warmup, p->steps - p->warmup);
}

double rt_schedule_rate(const rt_schedule *s, int64_t accepted)
{
    int i = 0;
    for (; i + 1 < s->count && accepted >= s->pieces[i].steps; i++) accepted -= s->pieces[i].steps;
    return piece_rate(&s->pieces[i], accepted);
}

bool rt_schedule_is_constant(const rt_schedule *s)
{
    return s->count == 1 && s->pieces[0].kind == RT_SCHEDULE_CONSTANT && !s->pieces[0].warmup;
}

/* ---- plateau ---- */

bool rt_schedule_is_plateau(const rt_schedule *s) { return s->pieces[0].kind == RT_SCHEDULE_PLATEAU; }

/* One step of ReduceLROnPlateau with mode min and a relative threshold. */
static void judge(rt_plateau *p, const rt_schedule_piece *s, double mean)
{
    static const double MIN_CHANGE = 1e-8; /* PyTorch's eps */
    const bool better = !p->means || mean < p->best * (1 - s->threshold);
    if (!p->means) p->rate = s->lr;
    if (better) p->best = mean;
    p->bad = better ? 0 : p->bad + 1;
    p->means++;
    if (p->cooldown > 0) {
        p->cooldown--;
        p->bad = 0;
    }
    if (p->bad <= s->patience) return;
    const double rate = fmax(p->rate * s->factor, s->end);
    if (p->rate - rate > MIN_CHANGE) p->rate = rate;
    p->cooldown = s->cooldown;
    p->bad = 0;
}

void rt_plateau_observe(rt_plateau *p, const rt_schedule *s, int64_t epoch, double loss)
{
    const rt_schedule_piece *piece = &s->pieces[0];
    p->sum += loss;
    if (++p->steps < (piece->every ? piece->every : epoch)) return;
    judge(p, piece, p->sum / (double)p->steps);
    p->sum = 0;
    p->steps = 0;
}

double rt_plateau_rate(const rt_plateau *p, const rt_schedule *s, int64_t accepted)
{
    const rt_schedule_piece *piece = &s->pieces[0];
    return p->means && accepted >= piece->warmup ? p->rate : rt_schedule_rate(s, accepted);
}

/* ---- text ---- */

void rt_schedule_print(const rt_schedule *s, char text[RT_SCHEDULE_TEXT])
{
    char value[SETTING_TEXT_SIZE];
    text_buffer t = text_in(text, RT_SCHEDULE_TEXT);
    for (int i = 0; i < s->count; i++) {
        const struct schedule_kind *kind = &kinds[s->pieces[i].kind];
        text_add_item(&t, ";", kind->name);
        for (int k = 0; k < KEY_COUNT; k++)
            if (settings_listed(kind->keys, keys[k].key))
                text_add(&t, ",%s=%s", keys[k].key, setting_print(&keys[k], &s->pieces[i], value));
    }
}

static ampc_status parse_piece(char *text, diag *d, rt_schedule_piece *p)
{
    for (char *c = text; (c = strchr(c, ':'));) *c = ','; /* KIND:KEY=VALUE, as of data */
    const char *name = strsep(&text, ",");
    int kind = 0;
    while (kind < KIND_COUNT && strcmp(kinds[kind].name, name) != 0) kind++;
    if (kind == KIND_COUNT) return settings_unknown(OPTION_none, "schedule", name, rt_schedule_name, NULL, d);
    p->kind = (rt_schedule_kind)kind;
    settings read = {.what = "schedule", .rows = keys, .count = KEY_COUNT, .keys = kinds[kind].keys, .of = name};
    return settings_read(&read, text, p, d);
}

/* A piece that is not the last needs a length; the last has the remaining steps. */
static ampc_status set_lengths(rt_schedule *s, int64_t steps, diag *d)
{
    for (int i = 0; i < s->count; i++) {
        rt_schedule_piece *p = &s->pieces[i];
        const bool last = i + 1 == s->count;
        if (!last && p->steps <= 0)
            return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "schedule: piece %d needs steps=N, its length", i + 1);
        if (s->count > 1 && p->kind == RT_SCHEDULE_PLATEAU)
            return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "schedule: a plateau cannot be one of several pieces");
        if (p->steps < 0) p->steps = steps > 0 ? steps : 0;
        steps -= p->steps;
    }
    return AMPC_OK;
}

static ampc_status parse_pieces(char *text, double lr, int64_t steps, diag *d, rt_schedule *s)
{
    rt_schedule_piece initial = {.lr = lr, .steps = -1};
    settings_defaults(keys, KEY_COUNT, &initial);
    s->count = 0;
    for (char *piece; (piece = strsep(&text, ";"));) {
        if (s->count == RT_SCHEDULE_PIECES)
            return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "schedule: more than %d pieces", RT_SCHEDULE_PIECES);
        s->pieces[s->count] = initial;
        TRY(parse_piece(piece, d, &s->pieces[s->count++]));
    }
    return set_lengths(s, steps, d);
}

ampc_status rt_schedule_parse(const char *text, double lr, int64_t steps, diag *d, rt_schedule *out)
{
    char constant[] = "constant";
    *out = (rt_schedule){0};
    if (!isfinite(lr) || lr < 0)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "the learning rate must be finite and not negative");
    if (!text) return parse_pieces(constant, lr, steps, d, out);
    char *copy = strdup(text);
    if (!copy) return diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory");
    ampc_status s = parse_pieces(copy, lr, steps, d, out);
    free(copy);
    return s;
}
