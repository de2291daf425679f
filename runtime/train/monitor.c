/* monitor.c - parsing, observing and storing a watched metric. */
#include "runtime/train/monitor.h"

#include "ir/base/limits.h"
#include "ir/ops/settings.h"
#include "runtime/backend/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- parsing ---- */

static const setting keys[] = {
    SETTING_FROM(rt_monitor, "min-delta", min_delta, REAL, "0", "the least improvement that counts", LIMITS_MIN_DELTA),
    SETTING_FROM(rt_monitor, "patience", patience, COUNT, "3", "evaluations without improvement that end the training",
                 LIMITS_PATIENCE),
};

const setting *rt_monitor_key(int index) { return index < 1 ? &keys[index] : NULL; }
const setting *rt_monitor_stop_key(int index) { return index < 2 ? &keys[index] : NULL; }

static ampc_status parse(char *text, option_id option, diag *d, rt_monitor *out)
{
    settings read = {.option = option, .rows = keys, .count = option == OPTION_early_stop ? 2 : 1};
    const char *metric = strsep(&text, ",");
    TRY(rt_metric_find(metric, option, d, &out->metric));
    if (rt_metric_better(&out->metric) == RT_BETTER_NEITHER)
        return diag_error(d, AMPC_USAGE, diag_about(DIAG_NOWHERE, option), "'%s' is not a number that could improve",
                          metric);
    return settings_read(&read, text, out, d);
}

ampc_status rt_monitor_parse(const char *text, option_id option, diag *d, rt_monitor *out)
{
    char *copy = strdup(text);
    *out = (rt_monitor){.patience = 0};
    settings_defaults(keys, 2, out);
    const ampc_status s = copy ? parse(copy, option, d, out) : rt_no_memory(d);
    free(copy);
    return s;
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
