/* check_values.c - what a check knows of the values of a run. */
#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/inspect/check_state.h"
#include "runtime/plan/plan.h"

rt_checked *rt_check_values(const rt_check *c, const ir_graph *g)
{
    for (size_t i = 0; i < c->n_graphs; i++)
        if (c->graphs[i].graph == g) return c->graphs[i].values;
    return NULL;
}

const rt_checked *rt_check_value(const rt_check *c, const ir_value *v)
{
    const rt_checked *values = rt_check_values(c, v->graph);
    if (!values) return NULL;
    if (!values[v->id].value) v = rt_plan_source(v);
    return values[v->id].value ? &values[v->id] : NULL;
}

ampc_status rt_check_reserve(rt_check *c, const ir_module *m, diag *d)
{
    size_t count = 0;
    for (const ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g)) count++;
    c->graphs = rt_alloc(count + 1, sizeof *c->graphs);
    if (!c->graphs) return rt_no_memory(d);
    for (const ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g)) {
        rt_checked *values = rt_alloc((size_t)g->value_ids + 1, sizeof *values);
        if (!values) return rt_no_memory(d);
        c->graphs[c->n_graphs++] = (known){g, values};
    }
    return AMPC_OK;
}
