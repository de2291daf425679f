/* api_inspect.c - the first NaN or infinity of a run in the public API. */
#include "runtime/api/api.h"

#include "runtime/backend/memory.h"
#include "runtime/inspect/check.h"

#include <math.h>
#include <stdlib.h>

static const char *or_empty(const char *text) { return text ? text : ""; }

static ampc_check_result describe(ampc_session *s, const rt_check *c, double finite_scale)
{
    const rt_checked *v = rt_check_found(c);
    if (!v) return (ampc_check_result){.min = NAN, .max = NAN, .finite_scale = NAN};
    const diag_loc loc = rt_checked_loc(v);
    rt_check_describe(c, v, s->found, sizeof s->found);
    return (ampc_check_result){.found = 1,
                               .excused = v->excused,
                               .tensor = v->value->name,
                               .node = or_empty(loc.name),
                               .op = or_empty(loc.op),
                               .text = s->found,
                               .elements = v->numbers.count,
                               .nans = v->numbers.nan,
                               .infinities = v->numbers.inf,
                               .min = v->numbers.min,
                               .max = v->numbers.max,
                               .finite_scale = finite_scale};
}

static ampc_status check(ampc_session *s, const ir_graph *g, const rt_tensor *inputs, int n, diag *d,
                         ampc_check_result *result)
{
    static const rt_check_options all = {.stops = false};
    rt_check *c;
    double finite_scale;
    TRY(rt_check_open(s->rt, s->module->ir, &all, d, &c));
    ampc_status status = rt_check_run(c, g, inputs, n, d, &finite_scale);
    if (status == AMPC_OK) {
        const ampc_check_result out = describe(s, c, finite_scale);
        api_result(&out, result, sizeof out);
    }
    rt_check_close(c);
    return status;
}

ampc_status ampc_check(ampc_session *session, const char *graph, ampc_tensor *const *inputs, size_t n_inputs,
                       ampc_check_result *result)
{
    diag *d;
    const ir_graph *g;
    TRY(api_enter_idle(session, &d));
    NEED(graph);
    NEED_ITEMS(inputs, n_inputs);
    NEED(result);
    TRY(api_result_check(result, d));
    TRY(api_graph(session->module, graph, d, &g));
    TRY(api_refuse_window_graph(g, d));
    rt_tensor *views = api_views(inputs, n_inputs);
    if (!views) return rt_no_memory(d);
    ampc_status status = check(session, g, views, (int)n_inputs, d, result);
    free(views);
    return status;
}
