/* explain.c - runs what has failed again under a check, and reports the finding. */
#include "runtime/inspect/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static ampc_status report(const rt_check *c, diag *d, const char *why)
{
    char text[1024];
    const rt_checked *v = rt_check_found(c);
    if (!v) return diag_error(d, AMPC_NUMERIC, DIAG_NOWHERE, "%s", why);
    rt_check_describe(c, v, text, sizeof text);
    const char *stored = v->value->kind != IR_VALUE_STORAGE || v->value->storage->kind == IR_CONST
                             ? ""
                             : "; an update has stored it: a check of the training from its start finds the origin";
    return diag_error(d, AMPC_NUMERIC, rt_checked_loc(v), "%s: %s%s", why, text, stored);
}

/* Moves the counter of random numbers by `by`, if runs of the graph advance it: the run that failed has. */
static void move_random(rt_session *s, const ir_module *m, const ir_graph *g, int64_t by, diag *d)
{
    const ir_storage *rng = ir_state_by_role(m, IR_STATE_rng);
    const ir_node *n = ir_first_store(g);
    while (n && ir_in(n, 0)->storage != rng) n = ir_next_store(n);
    for (int i = 0; n && i < rt_session_storage_count(s); i++) {
        rt_tensor t;
        rt_session_storage_at(s, i, &t, NULL);
        if (strcmp(t.name, rng->name) != 0 || rt_session_read(s, i, d, &t) != AMPC_OK) continue;
        int64_t words[2];
        memcpy(words, t.data, sizeof words);
        words[1] += by;
        rt_session_write(s, i, words, d);
    }
}

ampc_status rt_explain_nonfinite(rt_session *s, const ir_module *m, const ir_graph *graph, const rt_tensor *inputs,
                                 int n, const rt_loader *feed, diag *d, const char *format, ...)
{
    char why[256];
    rt_check *c = NULL;
    const rt_check_options options = {.stops = true, .strict = true, .feed = feed};
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    diag *quiet = diag_new(NULL, NULL);
    ampc_status status = quiet ? rt_check_open(s, m, &options, quiet, &c) : AMPC_NO_MEMORY;
    if (status == AMPC_OK) {
        move_random(s, m, graph, -1, quiet);
        rt_session_keep_storage(s);
        rt_session_run(s, graph->name, inputs, n, quiet);
        move_random(s, m, graph, 1, quiet);
        status = report(c, d, why);
    } else status = diag_error(d, AMPC_NUMERIC, DIAG_NOWHERE, "%s", why);
    rt_check_close(c);
    diag_free(quiet);
    return status;
}
