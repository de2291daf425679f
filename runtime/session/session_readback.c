/* session_readback.c - asynchronous readback: a ring with the scalars and faults of the last runs. */
#include "runtime/backend/memory.h"
#include "runtime/session/session_state.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

ampc_status rt_readback_open(rt_session *s, diag *d)
{
    void *memory;
    size_t bytes = (RT_READBACK_RUNS + 1) * sizeof *s->reports;
    ampc_status status = rt_host_alloc(s, bytes, &memory);
    if (status != AMPC_OK) return rt_memory_error(s, status, d, "the session", (int64_t)bytes);
    s->reports = memory;
    for (int i = 0; i <= RT_READBACK_RUNS; i++) s->reports[i].fault = K_NO_FAULT;
    return AMPC_OK;
}

static void drop_names(rt_session *s)
{
    for (int i = 0; i < s->n_readback; i++) free((char *)s->readback[i].name);
    s->n_readback = 0;
}

void rt_readback_close(rt_session *s)
{
    const rt_device_ops *device_ops = s->backend ? s->backend->device_ops : NULL;
    drop_names(s);
    for (int i = 0; device_ops && i < RT_READBACK_RUNS; i++) device_ops->unmark(&s->ctx, s->ring[i].mark);
    rt_host_free(s, s->reports);
}

ampc_status rt_session_select_scalars(rt_session *s, const char *graph, const rt_readback *what, int n, diag *d)
{
    assert(n <= RT_READBACK_SCALARS); /* callers select a few fixed scalars */
    drop_names(s);
    s->readback_graph = ir_graph_find(s->module, graph);
    for (int i = 0; i < n; i++) {
        char *name = strdup(what[i].name);
        if (!name) return rt_no_memory(d);
        s->readback[s->n_readback++] = (rt_readback){name, what[i].kind};
    }
    return AMPC_OK;
}

/* ---- reading back ------------------------------------------------------------------------------ */

/* Returns the current address of the scalar, and its type; NULL: the model has none. */
static const void *find_scalar(rt_session *s, const rt_execution *x, const rt_readback *k, ir_dtype *dtype)
{
    const rt_plan *p = x->plan;
    if (k->kind != RT_READBACK_OUTPUT) {
        const ir_storage *storage = ir_storage_find(s->module, k->name);
        if (!storage || storage->type.rank != 0) return NULL;
        *dtype = storage->type.dtype;
        return s->shared->storage[storage->id];
    }
    for (int i = 0; i < p->n_outputs; i++) {
        const k_view *v = &p->values[p->outputs[i].value].view;
        if (!p->outputs[i].name || strcmp(p->outputs[i].name, k->name) != 0 || k_count(v) != 1) continue;
        *dtype = v->dtype;
        return rt_session_address(s, x, p->outputs[i].buffer);
    }
    return NULL;
}

/* Copies the scalars from before or after the run to its report. */
static ampc_status copy_scalars(rt_session *s, const rt_execution *x, bool before, diag *d)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    rt_report *report = &s->reports[s->runs % RT_READBACK_RUNS];
    for (int i = 0; i < s->n_readback; i++) {
        ir_dtype dtype;
        if ((s->readback[i].kind == RT_READBACK_BEFORE) != before) continue;
        const void *from = find_scalar(s, x, &s->readback[i], &dtype);
        if (!from) continue;
        RT_DEVICE(s, d,
                  (device_ops ? device_ops->download : s->backend->copy)(&s->ctx, report->scalars[i], from,
                                                                         ir_dtype_size(dtype)));
    }
    return AMPC_OK;
}

ampc_status rt_readback_begin(rt_session *s, const rt_execution *x, diag *d)
{
    rt_submitted *run = &s->ring[s->runs % RT_READBACK_RUNS];
    run->execution = x;
    run->reads_back = x->plan->graph == s->readback_graph;
    if (s->backend->device_ops) RT_DEVICE(s, d, s->backend->device_ops->clear_fault(&s->ctx));
    return run->reads_back ? copy_scalars(s, x, true, d) : AMPC_OK;
}

ampc_status rt_readback_end(rt_session *s, const rt_execution *x, diag *d)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    int64_t at = s->runs % RT_READBACK_RUNS;
    if (s->ring[at].reads_back) TRY(copy_scalars(s, x, false, d));
    if (!device_ops) return AMPC_OK;
    RT_DEVICE(s, d, device_ops->download_fault(&s->ctx, &s->reports[at].fault));
    RT_DEVICE(s, d, device_ops->mark(&s->ctx, &s->ring[at].mark));
    return AMPC_OK;
}

/* ---- collecting -------------------------------------------------------------------------------- */

bool rt_session_done(const rt_session *s, int64_t run)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    return !device_ops || device_ops->passed(&s->ctx, s->ring[(run - 1) % RT_READBACK_RUNS].mark);
}

ampc_status rt_session_collect(rt_session *s, int64_t run, diag *d, double *scalars)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    int64_t at = (run - 1) % RT_READBACK_RUNS;
    assert(run > 0 && run <= s->runs && run > s->runs - RT_READBACK_RUNS); /* callers collect runs they submitted */
    const rt_submitted *r = &s->ring[at];
    if (device_ops && !device_ops->passed(&s->ctx, r->mark)) RT_DEVICE(s, d, device_ops->wait(&s->ctx, r->mark));
    if (s->reports[at].fault != K_NO_FAULT) return rt_run_fault(r->execution->plan, s->reports[at].fault, d);
    for (int i = 0; scalars && i < s->n_readback; i++) {
        ir_dtype dtype;
        bool exists = r->reads_back && find_scalar(s, r->execution, &s->readback[i], &dtype);
        scalars[i] = exists ? ir_load_f64(dtype, s->reports[at].scalars[i]) : NAN;
    }
    return AMPC_OK;
}
