/* session_outputs.c - the outputs of the last run; those of a discrete device are copied when they are read. */
#include "runtime/session/session_state.h"

#include <assert.h>
#include <string.h>

void rt_outputs_collect(rt_session *s, const rt_plan *p)
{
    for (int i = 0; i < p->n_outputs; i++) {
        const k_view *v = &p->values[p->outputs[i].value].view;
        rt_tensor *t = &s->outputs[i];
        *t = (rt_tensor){.name = p->outputs[i].name, .dtype = v->dtype, .rank = v->rank};
        if (!s->backend->device_ops)
            t->data = rt_plan_address(p, p->outputs[i].buffer, s->arena, s->storage, s->inputs);
        memcpy(t->dims, v->dims, sizeof t->dims);
    }
    s->n_outputs = p->n_outputs;
}

static ampc_status fetch(rt_session *s, int i)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    const k_view *v = &s->last->values[s->last->outputs[i].value].view;
    rt_staging *to = &s->fetched[i];
    size_t bytes = k_bytes(v) > 0 ? k_bytes(v) : 1;
    const void *from = rt_plan_address(s->last, s->last->outputs[i].buffer, s->arena, s->storage, s->inputs);
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
