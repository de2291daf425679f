/* monitor.c - parsing, observing and storing a watched metric. */
#include "runtime/train/monitor.h"

#include "ir/base/limits.h"
#include "ir/ops/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_PATIENCE = 3, ITEM = 64 };

/* ---- parsing ---- */

static ampc_status parse_key(const char *item, const char *option, bool stops, diag *d, rt_monitor *m)
{
    const size_t key = strcspn(item, "=");
    const bool patience = stops && strncmp(item, "patience=", key + 1) == 0;
    if (!item[key] || (!patience && strncmp(item, "min-delta=", key + 1) != 0))
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "%s: unknown key '%s'; there %s min-delta=X", option, item,
                          stops ? "are patience=N and" : "is");
    double v;
    const bool number = ir_float_parse(item + key + 1, &v);
    const bool valid = number &&
                       (patience ? is_within(v, LIMITS_PATIENCE) && v == floor(v) : is_within(v, LIMITS_MIN_DELTA));
    if (!valid) return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "%s: '%s' is not in range", option, item);
    if (patience) m->patience = (int64_t)v;
    else m->min_delta = v;
    return AMPC_OK;
}

ampc_status rt_monitor_parse(const char *text, const char *option, bool stops, diag *d, rt_monitor *out)
{
    char item[ITEM];
    *out = (rt_monitor){.patience = DEFAULT_PATIENCE};
    snprintf(item, sizeof item, "%.*s", (int)strcspn(text, ","), text);
    TRY(rt_metric_find(item, option, d, &out->metric));
    if (rt_metric_better(&out->metric) == RT_BETTER_NEITHER)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "%s: '%s' is not a number that could improve", option, item);
    for (const char *at = strchr(text, ','); at; at = strchr(at + 1, ',')) {
        snprintf(item, sizeof item, "%.*s", (int)strcspn(at + 1, ","), at + 1);
        TRY(parse_key(item, option, stops, d, out));
    }
    return AMPC_OK;
}

/* ---- observing ---- */

static bool improves(const rt_monitor *m, double value, double best)
{
    if (isnan(value) || isnan(best)) return !isnan(value);
    return rt_metric_better(&m->metric) == RT_BETTER_HIGHER ? value > best + m->min_delta : value < best - m->min_delta;
}

bool rt_monitor_observe(const rt_monitor *m, double value, uint64_t step, rt_monitor_state *state)
{
    if (!state->metric[0]) {
        *state = (rt_monitor_state){.best = NAN};
        memcpy(state->metric, m->metric.name, sizeof state->metric);
    }
    if (!improves(m, value, state->best)) {
        state->bad++;
        return false;
    }
    state->best = value;
    state->step = step;
    state->bad = 0;
    return true;
}

bool rt_monitor_exhausted(const rt_monitor *m, const rt_monitor_state *state) { return state->bad >= m->patience; }

/* ---- storing ---- */

void rt_monitor_print(const rt_monitor_state *state, char text[RT_MONITOR_TEXT])
{
    snprintf(text, RT_MONITOR_TEXT, "%s %a %" PRIu64 " %" PRId64, state->metric, state->best, state->step, state->bad);
}

bool rt_monitor_read(const char *text, rt_monitor_state *state)
{
    char metric[RT_METRIC_NAME];
    int end = 0;
    rt_monitor_state read = {.best = NAN};
    const int n = sscanf(text, "%23s %la %" SCNu64 " %" SCNd64 "%n", metric, &read.best, &read.step, &read.bad, &end);
    if (n != 4 || text[end] || read.bad < 0 || read.bad > INT64_MAX / 2) return false;
    memcpy(read.metric, metric, sizeof read.metric);
    *state = read;
    return true;
}
