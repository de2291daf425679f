/* session_outputs.c - the outputs of the last run; those of a discrete device are copied when they are read. */
#include "runtime/session/session_state.h"

#include <assert.h>
#include <string.h>

static void collect_output(rt_session *s, const rt_execution *x, const rt_output *output)
{
    const k_view *v = &x->plan->values[output->value].view;
    rt_tensor *t = &s->outputs[s->n_outputs++];
    *t = (rt_tensor){.name = output->name, .dtype = v->dtype, .rank = v->rank};
    if (!s->backend->device_ops) t->data = rt_session_address(s, x, output->buffer);
    memcpy(t->dims, v->dims, sizeof t->dims);
}

static int find_output(const rt_session *s, const char *name, int first)
{
    for (int i = first; i < s->n_outputs; i++)
        if (s->outputs[i].name == name) return i;
    return -1;
}

/* Outputs of several parts are not in the order of the graph. */
static void sort_outputs(rt_session *s, const ir_graph *g)
{
    int sorted = 0;
    for (const ir_node *n = ir_first_output(g); n; n = ir_next_output(n)) {
        const int at = find_output(s, ir_output_name(n), sorted);
        if (at < 0) continue;
        const rt_tensor output = s->outputs[at];
        s->outputs[at] = s->outputs[sorted];
        s->outputs[sorted++] = output;
    }
}

void rt_outputs_collect(rt_session *s)
{
    s->n_outputs = 0;
    for (int part = 0; part < s->n_run; part++)
        for (int i = 0; i < s->run[part]->plan->n_outputs; i++)
            if (s->run[part]->plan->outputs[i].name) collect_output(s, s->run[part], &s->run[part]->plan->outputs[i]);
    if (s->n_run > 1) sort_outputs(s, s->run[0]->plan->graph);
}

static ampc_status fetch(rt_session *s, int i)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    const rt_plan *p = s->last->plan;
    const k_view *v = &p->values[p->outputs[i].value].view;
    rt_staging *to = &s->fetched[i];
    size_t bytes = k_bytes(v) > 0 ? k_bytes(v) : 1;
    const void *from = rt_session_address(s, s->last, p->outputs[i].buffer);
    if (to->bytes < bytes) {
        rt_host_free(s, to->host);
        *to = (rt_staging){0};
        TRY(rt_host_alloc(s, bytes, &to->host));
        to->bytes = bytes;
    }
    TRY(device_ops->download(&s->ctx, to->host, from, k_bytes(v)));
    TRY(device_ops->wait(&s->ctx, NULL));
    s->outputs[i].data = to->host;
    return AMPC_OK;
}

ampc_status rt_session_fetched(rt_session *s, diag *d)
{
    return s->fetching == AMPC_OK ? AMPC_OK : rt_device_error(s, s->fetching, d);
}

int rt_session_output_count(const rt_session *s) { return s->n_outputs; }

const rt_tensor *rt_session_output_at(rt_session *s, int i)
{
    assert(i >= 0 && i < s->n_outputs); /* the index is the caller's, not from a file */
    if (s->outputs[i].data) return &s->outputs[i];
    const ampc_status status = fetch(s, i);
    if (status != AMPC_OK && s->fetching == AMPC_OK) s->fetching = status;
    return status == AMPC_OK ? &s->outputs[i] : NULL;
}

const rt_tensor *rt_session_output(rt_session *s, const char *name)
{
    for (int i = 0; i < s->n_outputs; i++)
        if (strcmp(s->outputs[i].name, name) == 0) return rt_session_output_at(s, i);
    return NULL;
}
