/* session_observe.c - shows an observer every value of a run. */
#include "runtime/plan/plan_edit.h"
#include "runtime/session/session_state.h"

#include <assert.h>
#include <string.h>

/* Copies the value of a discrete device to host memory, after the work enqueued so far. */
static ampc_status fetch(rt_session *s, const void *from, size_t bytes, diag *d)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    rt_staging *to = &s->observer.copy;
    if (to->bytes < bytes || !to->host) {
        rt_host_free(s, to->host);
        *to = (rt_staging){0};
        ampc_status status = rt_host_alloc(s, bytes, &to->host);
        if (status != AMPC_OK) return rt_memory_error(s, status, d, "an observed value", (int64_t)bytes);
        to->bytes = bytes;
    }
    if (bytes) RT_DEVICE(s, d, device_ops->download(&s->ctx, to->host, from, bytes));
    RT_DEVICE(s, d, device_ops->wait(&s->ctx, NULL));
    return AMPC_OK;
}

static ampc_status show(const rt_frame *f, uint32_t value, const ir_node *node, int output, int buffer, diag *d)
{
    rt_session *s = f->session;
    const rt_value *v = &f->execution->plan->values[value];
    void *data = rt_address(f, buffer);
    rt_observed o = {.value = v->value, .node = node, .output = output};
    if (s->backend->device_ops) {
        TRY(fetch(s, data, k_bytes(&v->view), d));
        data = s->observer.copy.host;
    }
    o.tensor = (rt_tensor){.name = v->value->name, .dtype = v->view.dtype, .rank = v->view.rank, .data = data};
    memcpy(o.tensor.dims, v->view.dims, sizeof o.tensor.dims);
    return s->observer.fn(s->observer.user, &o, d);
}

/* Shows what the plan reads but no step computes. Carried values were shown in an earlier part. */
static ampc_status show_external(const rt_frame *f, diag *d)
{
    const rt_plan *p = f->execution->plan;
    for (uint32_t i = 0; i < p->n_values; i++) {
        const rt_value *v = &p->values[i];
        if (!v->value || !rt_is_external(v) || v->carried || !v->uses || v->buffer == RT_NO_BUFFER) continue;
        TRY(show(f, i, NULL, 0, v->buffer, d));
    }
    return AMPC_OK;
}

static ampc_status show_results(const rt_frame *f, const rt_step *step, diag *d)
{
    for (int k = 0; k < step->n_out; k++) {
        const rt_value *v = step->out_value[k] == RT_NO_VALUE ? NULL : &f->execution->plan->values[step->out_value[k]];
        if (!v || v->derived || v->counted || step->out_buffer[k] == RT_NO_BUFFER) continue;
        TRY(show(f, step->out_value[k], v->value->def, v->value->def_index, step->out_buffer[k], d));
    }
    return AMPC_OK;
}

static ampc_status observe(const rt_frame *f, int first, int steps, diag *d)
{
    assert(steps <= 1); /* launched alone */
    if (steps == RT_FRAME_BEGINS) return show_external(f, d);
    return steps == RT_COPIES ? AMPC_OK : show_results(f, f->execution->plan->steps[first], d);
}

void rt_session_observe(rt_session *s, rt_observe_fn *fn, void *user)
{
    s->observer.fn = fn;
    s->observer.user = user;
    s->observer.keeps_storage = false;
    s->observer.counts = false;
    s->ctx.count = NULL;
    s->after_launch = fn ? observe : NULL;
}

void rt_session_observe_counts(rt_session *s, rt_observe_fn *fn, k_count_fn *count, void *user)
{
    rt_session_observe(s, fn, user);
    s->observer.counts = s->fuse && !s->backend->device_ops;
    s->ctx.count = count;
    s->ctx.count_user = user;
}

void rt_session_count(const rt_session *s, const rt_tensor *t, int64_t n, ir_exponents *to)
{
    cpu_count_exponents(&s->ctx, t->dtype, t->data, n, to);
}

void rt_session_keep_storage(rt_session *s)
{
    assert(s->observer.fn); /* callers observe first; other plans write storage before the end of the run */
    s->observer.keeps_storage = true;
}

void rt_observer_free(rt_session *s) { rt_host_free(s, s->observer.copy.host); }
