/* schedule.c - learning-rate schedules; the header has the formulas. */
#include "runtime/train/schedule.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[] = {"constant", "linear", "cosine", "step"};
enum { KIND_COUNT = sizeof kind_names / sizeof *kind_names };

/* ---- rate ---- */

static double curve(const rt_schedule *s, int64_t t, int64_t left)
{
    double u = left > 0 && t < left ? (double)t / (double)left : 1;
    int64_t every = s->every ? s->every : (left > 3 ? left / 3 : 1);
    switch (s->kind) {
    case RT_SCHEDULE_CONSTANT: return s->lr;
    case RT_SCHEDULE_LINEAR: return s->end + (s->lr - s->end) * (1 - u);
    case RT_SCHEDULE_COSINE: return s->end + (s->lr - s->end) * 0.5 * (1 + cos(3.14159265358979323846 * u));
    case RT_SCHEDULE_STEP: return s->lr * pow(s->factor, (double)(t / every));
    }
    return s->lr;
}

double rt_schedule_rate(const rt_schedule *s, int64_t accepted)
{
    if (accepted < s->warmup) return s->lr * (double)(accepted + 1) / (double)s->warmup;
    return curve(s, accepted - s->warmup, s->steps - s->warmup);
}

/* ---- text ---- */

bool rt_schedule_is_constant(const rt_schedule *s) { return s->kind == RT_SCHEDULE_CONSTANT && !s->warmup; }

void rt_schedule_print(const rt_schedule *s, char text[RT_SCHEDULE_TEXT])
{
    snprintf(text, RT_SCHEDULE_TEXT, "%s,lr=%.17g,end=%.17g,factor=%.17g,every=%lld,warmup=%lld,steps=%lld",
             kind_names[s->kind], s->lr, s->end, s->factor, (long long)s->every, (long long)s->warmup,
             (long long)s->steps);
}

static bool parse_real(const char *text, double *v)
{
    char *end;
    *v = strtod(text, &end);
    return end != text && !*end && isfinite(*v) && *v >= 0;
}

static bool parse_count(const char *text, int64_t *v)
{
    char *end;
    *v = strtoll(text, &end, 10);
    return end != text && !*end && *v >= 0;
}

/* Parses "key=value"; false for an unknown key or bad number. */
static bool set_option(rt_schedule *s, const char *key, const char *value)
{
    if (!value) return false;
    if (strcmp(key, "warmup") == 0) return parse_count(value, &s->warmup);
    if (strcmp(key, "steps") == 0) return parse_count(value, &s->steps);
    if (strcmp(key, "every") == 0) return parse_count(value, &s->every) && s->every > 0;
    if (strcmp(key, "factor") == 0) return parse_real(value, &s->factor);
    if (strcmp(key, "end") == 0) return parse_real(value, &s->end);
    return false;
}

static bool set_kind(rt_schedule *s, const char *name)
{
    for (int i = 0; i < KIND_COUNT; i++) {
        if (strcmp(kind_names[i], name) != 0) continue;
        s->kind = (rt_schedule_kind)i;
        return true;
    }
    return false;
}

static ampc_status parse_parts(char *text, diag *d, rt_schedule *s)
{
    char *rest = NULL, *part = strtok_r(text, ",:", &rest);
    if (!part || !set_kind(s, part))
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                          "unknown schedule '%s': expected constant, linear, cosine or step", part ? part : "");
    while ((part = strtok_r(NULL, ",:", &rest))) {
        char *value = strchr(part, '=');
        if (value) *value++ = 0;
        if (!set_option(s, part, value))
            return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                              "schedule: '%s%s%s' is not warmup=N, steps=N, every=N, factor=X or end=X", part,
                              value ? "=" : "", value ? value : "");
    }
    return AMPC_OK;
}

ampc_status rt_schedule_parse(const char *text, double lr, int64_t steps, diag *d, rt_schedule *out)
{
    *out = (rt_schedule){.kind = RT_SCHEDULE_CONSTANT, .lr = lr, .factor = 0.1, .steps = steps};
    if (!isfinite(lr) || lr < 0)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "the learning rate must be finite and not negative");
    if (!text) return AMPC_OK;
    char *copy = strdup(text);
    if (!copy) return diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory");
    ampc_status s = parse_parts(copy, d, out);
    free(copy);
    return s;
}
