/* execution.c - executions of plans: their memory, and the addresses and arguments of a run. */
#include "runtime/session/execution.h"

#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/session/session_state.h"

#include <assert.h>
#include <string.h>

/* ---- memory ---------------------------------------------------------------------------------- */

rt_execution *rt_execution_new(rt_shared_plan *shared)
{
    rt_execution *x = rt_alloc(1, sizeof *x);
    if (!x) return NULL;
    x->plan = shared->plan;
    x->shared = shared;
    return x;
}

static bool alloc_space(rt_execution *x)
{
    const rt_plan *p = x->plan;
    x->bound = rt_alloc((size_t)p->n_steps + 1, sizeof *x->bound);
    x->bodies = rt_alloc(p->reads_host ? (size_t)p->n_steps : 1, sizeof *x->bodies);
    x->calls = rt_alloc((size_t)p->max_batch + 1, sizeof *x->calls);
    x->views = rt_alloc((size_t)p->max_views + 1, sizeof *x->views);
    x->carried = rt_alloc((size_t)p->n_carried + 1, sizeof *x->carried);
    return x->bound && x->bodies && x->calls && x->views && x->carried;
}

static ampc_status bind(rt_session *s, rt_execution *x, int i, diag *d)
{
    const rt_step *step = x->plan->steps[i];
    k_args args = rt_step_args(x->plan, step);
    args.ctx = &s->ctx;
    s->error[0] = '\0';
    const ampc_status status = step->kernel->bind(&args, &x->bound[i]);
    if (status == AMPC_OK) return AMPC_OK;
    return diag_error(d, status, ir_diag_loc(step->node), "%s: %s", rt_step_name(step),
                      s->error[0] ? s->error : ampc_status_sentence(status));
}

static ampc_status open_execution(rt_session *s, rt_execution *x, diag *d);

static ampc_status open_bodies(rt_session *s, rt_execution *x, int step, diag *d)
{
    const rt_control *c = x->plan->steps[step]->control;
    rt_execution *bodies = x->bodies[step] = rt_alloc((size_t)c->n_bodies, sizeof *bodies);
    if (!bodies) return rt_no_memory(d);
    for (int i = 0; i < c->n_bodies; i++) {
        bodies[i].plan = c->bodies[i].plan;
        bodies[i].inputs = rt_alloc(bodies[i].plan->graph->inputs.count + 1, sizeof *bodies[i].inputs);
        if (!bodies[i].inputs) return rt_no_memory(d);
        TRY(open_execution(s, &bodies[i], d));
    }
    return AMPC_OK;
}

static ampc_status open_execution(rt_session *s, rt_execution *x, diag *d)
{
    const rt_plan *p = x->plan;
    if (!alloc_space(x)) return rt_no_memory(d);
    for (int i = 0; i < p->n_steps; i++) {
        if (p->steps[i]->control) TRY(open_bodies(s, x, i, d));
        else if (p->steps[i]->kernel->bind) TRY(bind(s, x, i, d));
    }
    return AMPC_OK;
}

/* Frees everything but the execution itself, which may be open in part. */
static void close_execution(rt_execution *x)
{
    for (int i = 0; x->bound && x->bodies && i < x->plan->n_steps; i++) {
        const rt_step *step = x->plan->steps[i];
        rt_execution *bodies = step->control ? x->bodies[i] : NULL;
        for (int j = 0; bodies && j < step->control->n_bodies; j++)
            if (bodies[j].plan) close_execution(&bodies[j]);
        rt_free(bodies);
        if (x->bound[i]) step->kernel->unbind(step->state, x->bound[i]);
    }
    void *owned[] = {x->bound, x->bodies, x->inputs, x->carried, x->calls, x->views};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) rt_free(owned[i]);
}

ampc_status rt_execution_open(rt_session *s, rt_execution *x, diag *d)
{
    if (x->is_open) return AMPC_OK;
    pthread_mutex_lock(&s->shared->lock);
    ampc_status status = rt_shared_provide(s, x->shared, d);
    if (status == AMPC_OK) status = rt_resident_provide(s, x->shared, d);
    pthread_mutex_unlock(&s->shared->lock);
    if (status == AMPC_OK) status = open_execution(s, x, d);
    x->is_open = status == AMPC_OK;
    if (status == AMPC_OK) return AMPC_OK;
    const rt_execution closed = {.next = x->next, .plan = x->plan, .shared = x->shared};
    close_execution(x);
    *x = closed;
    return status;
}

static void forget(rt_session *s, rt_execution *x)
{
    for (int i = 0; i < RT_SLOTS; i++) {
        s->backend->device_ops->forget(&s->ctx, x->recordings[i]);
        x->recordings[i] = NULL;
    }
}

void rt_executions_forget(rt_session *s)
{
    if (!s->backend->device_ops) return;
    s->backend->device_ops->wait(&s->ctx, NULL); /* a failure shows at the next call */
    for (rt_execution *x = s->executions; x; x = x->next) forget(s, x);
}

void rt_execution_free(rt_session *s, rt_execution *x)
{
    if (s->backend->device_ops) forget(s, x);
    close_execution(x);
    rt_plans_release(s, x->shared);
    rt_free(x);
}

/* ---- a run ----------------------------------------------------------------------------------- */

void *rt_address(const rt_frame *f, int buffer)
{
    const rt_execution *x = f->execution;
    if (buffer == RT_NO_BUFFER) return NULL;
    const rt_buffer *b = &x->plan->buffers[buffer];
    if (b->bytes == 0) return rt_placeholder;
    switch (b->home) {
    case RT_ARENA: return f->arena + b->offset;
    case RT_PERSISTENT: return (char *)x->shared->hoisted->memory + b->offset;
    case RT_STORAGE: return f->session->shared->storage[b->index];
    case RT_INPUT: return f->inputs[b->index];
    case RT_CARRIED: return x->carried[b->index];
    case RT_PACK: return x->shared->packs[b->index]->memory;
    }
    assert(!"no such home"); /* stages set only these homes */
    return NULL;
}

static void *address_in(const rt_frame *f, int buffer, int64_t at)
{
    char *memory = rt_address(f, buffer);
    return memory ? memory + at : NULL;
}

/* The arguments of the kernel of step i, whose views are copied to `views`. */
static k_args call_of(const rt_frame *f, int i, k_view *views)
{
    const rt_plan *p = f->execution->plan;
    const rt_step *step = p->steps[i];
    const int operands = rt_step_operands(step), results = rt_step_results(step);
    k_args args = rt_step_args(p, step);
    memcpy(views, step->in, (size_t)operands * sizeof *views);
    memcpy(views + operands, step->out, (size_t)results * sizeof *views);
    for (int j = 0; j < step->n_in; j++) views[j].data = address_in(f, step->in_buffer[j], step->in_at[j]);
    for (int j = 0; j < step->n_out; j++)
        views[operands + j].data = address_in(f, step->out_buffer[j], step->out_at[j]);
    args.in = views;
    args.out = views + operands;
    args.ctx = &f->session->ctx;
    args.bound = f->execution->bound[i];
    args.workspace = step->workspace == RT_NO_BUFFER ? rt_placeholder : rt_address(f, step->workspace);
    if (f->outer_step >= 0) args.step = f->outer_step;
    return args;
}

const k_args *rt_execution_calls(const rt_frame *f, int first, int n)
{
    const rt_execution *x = f->execution;
    k_view *views = x->views;
    for (int i = 0; i < n; i++) {
        x->calls[i] = call_of(f, first + i, views);
        views += rt_step_views(x->plan->steps[first + i]);
    }
    return x->calls;
}
