/* schedule.c - learning-rate schedules; the header has the formulas. */
#include "runtime/train/schedule.h"

#include "ir/base/limits.h"
#include "ir/base/text_buffer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double PI = 3.14159265358979323846;

/* In the order of rt_schedule_kind. */
static const char *const kind_names[] = {"constant",    "linear", "cosine",    "polynomial",
                                         "exponential", "step",   "one-cycle", "plateau"};
static const char *const anneals[] = {[false] = "cos", [true] = "linear"};
enum { KIND_COUNT = sizeof kind_names / sizeof *kind_names };

const char *rt_schedule_name(int index) { return index < KIND_COUNT ? kind_names[index] : NULL; }

/* ---- rate ---- */

/* From `from` to `to` while u goes from 0 to 1. */
static double anneal(const rt_schedule_piece *p, double from, double to, double u)
{
    return p->linear ? (to - from) * u + from : to + (from - to) / 2 * (1 + cos(PI * u));
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

/* ---- keys ---- */

typedef enum key_range { REAL, COUNT, POSITIVE, ABOVE_ZERO, FRACTION } key_range;
#define KINDS(a) (1u << RT_SCHEDULE_##a)
enum { ALL_KINDS = (1 << KIND_COUNT) - 1 };

/* Printed in this order. The first six rows are for every kind, also for those that do not need them, because the text
 * of older checkpoints has them and is compared. */
static const struct schedule_key {
    const char *name;
    size_t member;
    key_range range;
    unsigned kinds;
} keys[] = {
    {"lr", offsetof(rt_schedule_piece, lr), REAL, ALL_KINDS},
    {"end", offsetof(rt_schedule_piece, end), REAL, ALL_KINDS},
    {"factor", offsetof(rt_schedule_piece, factor), REAL, ALL_KINDS},
    {"every", offsetof(rt_schedule_piece, every), POSITIVE, ALL_KINDS},
    {"warmup", offsetof(rt_schedule_piece, warmup), COUNT, ALL_KINDS},
    {"steps", offsetof(rt_schedule_piece, steps), COUNT, ALL_KINDS},
    {"power", offsetof(rt_schedule_piece, power), REAL, KINDS(POLYNOMIAL)},
    {"rise", offsetof(rt_schedule_piece, rise), FRACTION, KINDS(ONE_CYCLE)},
    {"div", offsetof(rt_schedule_piece, div), ABOVE_ZERO, KINDS(ONE_CYCLE)},
    {"final_div", offsetof(rt_schedule_piece, final_div), ABOVE_ZERO, KINDS(ONE_CYCLE)},
    {"patience", offsetof(rt_schedule_piece, patience), COUNT, KINDS(PLATEAU)},
    {"threshold", offsetof(rt_schedule_piece, threshold), FRACTION, KINDS(PLATEAU)},
    {"cooldown", offsetof(rt_schedule_piece, cooldown), COUNT, KINDS(PLATEAU)},
};
enum { KEY_COUNT = sizeof keys / sizeof *keys };

static bool is_count(const struct schedule_key *k) { return k->range == COUNT || k->range == POSITIVE; }
static double *real_of(rt_schedule_piece *p, const struct schedule_key *k) { return (double *)((char *)p + k->member); }
static int64_t *count_of(rt_schedule_piece *p, const struct schedule_key *k)
{
    return (int64_t *)((char *)p + k->member);
}

/* ---- text ---- */

static void print_piece(rt_schedule_piece p, text_buffer *t)
{
    text_add_item(t, ";", kind_names[p.kind]);
    for (int i = 0; i < KEY_COUNT; i++) {
        const struct schedule_key *k = &keys[i];
        if (!(k->kinds & 1u << p.kind)) continue;
        if (is_count(k)) text_add(t, ",%s=%lld", k->name, (long long)*count_of(&p, k));
        else text_add(t, ",%s=%.17g", k->name, *real_of(&p, k));
    }
    if (p.kind == RT_SCHEDULE_ONE_CYCLE) text_add(t, ",anneal=%s", anneals[p.linear]);
}

void rt_schedule_print(const rt_schedule *s, char text[RT_SCHEDULE_TEXT])
{
    text_buffer t = text_in(text, RT_SCHEDULE_TEXT);
    for (int i = 0; i < s->count; i++) print_piece(s->pieces[i], &t);
}

static bool parse_real(const char *text, key_range range, double *v)
{
    char *end;
    *v = strtod(text, &end);
    if (end == text || *end || !isfinite(*v) || *v < 0) return false;
    return range == ABOVE_ZERO ? *v > 0 : range != FRACTION || *v <= 1;
}

static bool parse_count(const char *text, key_range range, int64_t *v)
{
    char *end;
    *v = strtoll(text, &end, 10);
    return end != text && !*end && *v >= (range == POSITIVE) && is_within((double)*v, 0, LIMITS_MOST_STEPS);
}

/* Parses "key=value"; false for an unknown key or bad number. The kind only matters for the keys of few kinds. */
static bool set_option(rt_schedule_piece *p, const char *key, const char *value)
{
    if (!value) return false;
    if (p->kind == RT_SCHEDULE_ONE_CYCLE && strcmp(key, "anneal") == 0) {
        p->linear = strcmp(value, anneals[true]) == 0;
        return p->linear || strcmp(value, anneals[false]) == 0;
    }
    for (int i = 0; i < KEY_COUNT; i++) {
        const struct schedule_key *k = &keys[i];
        if (strcmp(k->name, key) != 0 || !(k->kinds & 1u << p->kind)) continue;
        return is_count(k) ? parse_count(value, k->range, count_of(p, k)) : parse_real(value, k->range, real_of(p, k));
    }
    return false;
}

static bool set_kind(rt_schedule_piece *p, const char *name)
{
    for (int i = 0; i < KIND_COUNT; i++) {
        if (strcmp(kind_names[i], name) != 0) continue;
        p->kind = (rt_schedule_kind)i;
        return true;
    }
    return false;
}

static ampc_status refuse_key(const rt_schedule_piece *p, const char *key, const char *value, diag *d)
{
    char known[256];
    text_buffer t = TEXT_IN(known);
    for (int i = 0; i < KEY_COUNT; i++)
        if (keys[i].kinds & 1u << p->kind) text_add_item(&t, ", ", keys[i].name);
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                      "schedule: '%s%s%s' is not valid for %s; its keys are %s%s, with values that are not negative",
                      key, value ? "=" : "", value ? value : "", kind_names[p->kind], known,
                      p->kind == RT_SCHEDULE_ONE_CYCLE ? ", anneal" : "");
}

static ampc_status refuse_kind(const char *name, diag *d)
{
    char known[128] = "";
    for (size_t i = 0, at = 0; i < KIND_COUNT && at < sizeof known; i++)
        at += (size_t)snprintf(known + at, sizeof known - at, "%s%s",
                               i == 0               ? ""
                               : i + 1 < KIND_COUNT ? ", "
                                                    : " or ",
                               kind_names[i]);
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "unknown schedule '%s': expected %s", name, known);
}

static ampc_status parse_piece(char *text, diag *d, rt_schedule_piece *p)
{
    char *rest = NULL, *part = strtok_r(text, ",:", &rest);
    if (!part || !set_kind(p, part)) return refuse_kind(part ? part : "", d);
    while ((part = strtok_r(NULL, ",:", &rest))) {
        char *value = strchr(part, '=');
        if (value) *value++ = 0;
        if (!set_option(p, part, value)) return refuse_key(p, part, value, d);
    }
    return AMPC_OK;
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
    const rt_schedule_piece initial = {.lr = lr,
                                       .factor = 0.1,
                                       .power = 1,
                                       .rise = 0.3,
                                       .div = 25,
                                       .final_div = 1e4,
                                       .threshold = 1e-4,
                                       .patience = 10,
                                       .steps = -1};
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
