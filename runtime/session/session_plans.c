/* session_plans.c - the plans of all sessions that share storage.
 *
 * A request is planned once: sessions that need the plan while another one makes it wait. On a discrete device, the
 * states of kernels belong to the context of one session, so that only hoisted values and packs are shared. */
#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/session/session_state.h"

#include <string.h>

/* What the request of the session asks for; sizes are those of the request. */
static rt_shared_plan describe(const rt_session *s, const rt_plan_request *request)
{
    rt_shared_plan e = {.request = *request,
                        .threads = s->ctx.threads,
                        .tune = s->ctx.tune,
                        .plan_only = s->ctx.plan_only,
                        .custom = s->ctx.custom ? s->ctx.custom->first : NULL,
                        .owner = s->backend->device_ops ? s->ctx.device : NULL};
    e.request.ctx = NULL;
    e.request.pipeline = NULL;
    return e;
}

/* ---- finding and making plans ---------------------------------------------------------------- */

static void free_entry(rt_shared_plan *e)
{
    rt_free((void *)(uintptr_t)e->request.sizes);
    rt_free(e->kept);
    rt_free(e->packs);
    rt_free(e);
}

static rt_shared_plan *new_entry(const rt_session *s, const rt_shared_plan *wanted)
{
    rt_shared_plan *e = rt_alloc(1, sizeof *e);
    int64_t *sizes = rt_alloc(s->n_symbols + 1, sizeof *sizes);
    if (!e || !sizes) {
        rt_free(e);
        rt_free(sizes);
        return NULL;
    }
    memcpy(sizes, wanted->request.sizes, s->n_symbols * sizeof *sizes);
    *e = *wanted;
    e->request.sizes = sizes;
    e->executions = 1;
    return e;
}

static void unlink_entry(rt_shared *h, rt_shared_plan *e)
{
    rt_shared_plan **at = &h->plans;
    while (*at != e) at = &(*at)->next;
    *at = e->next;
}

/* Returns the plan, once it has been made, or a new entry for it; NULL: out of memory. The caller holds the lock. */
static rt_shared_plan *find_entry(rt_session *s, const rt_shared_plan *wanted)
{
    rt_shared *h = s->shared;
    for (;;) {
        rt_shared_plan *e = h->plans;
        while (e && (e->owner != wanted->owner || !rt_shared_agree(e, wanted))) e = e->next;
        if (!e) break;
        if (e->plan) {
            e->executions++;
            return e;
        }
        pthread_cond_wait(&h->planned, &h->lock);
    }
    rt_shared_plan *made = new_entry(s, wanted);
    if (!made) return NULL;
    made->next = h->plans;
    return h->plans = made;
}

/* Makes the plan of a new entry, without the lock. If this fails, a waiting session tries it itself. */
static ampc_status make_plan(rt_session *s, const rt_plan_request *request, rt_shared_plan *e, diag *d)
{
    rt_plan *plan = NULL;
    const ampc_status status = rt_plan_make(request, d, &plan);
    pthread_mutex_lock(&s->shared->lock);
    e->plan = plan;
    if (!plan) unlink_entry(s->shared, e);
    pthread_cond_broadcast(&s->shared->planned);
    pthread_mutex_unlock(&s->shared->lock);
    if (!plan) free_entry(e);
    return status;
}

ampc_status rt_plans_find(rt_session *s, const rt_plan_request *request, diag *d, rt_shared_plan **out)
{
    const rt_shared_plan wanted = describe(s, request);
    pthread_mutex_lock(&s->shared->lock);
    rt_shared_plan *e = find_entry(s, &wanted);
    const bool is_new = e && !e->plan;
    pthread_mutex_unlock(&s->shared->lock);
    if (!e) return rt_no_memory(d);
    if (is_new) TRY(make_plan(s, request, e, d));
    *out = e;
    return AMPC_OK;
}

void rt_plans_release(rt_session *s, rt_shared_plan *e)
{
    pthread_mutex_lock(&s->shared->lock);
    const bool last = --e->executions == 0;
    if (last) {
        unlink_entry(s->shared, e);
        rt_shared_drop(s, e);
        rt_resident_release(s, e);
    }
    pthread_mutex_unlock(&s->shared->lock);
    if (!last) return;
    rt_plan_free(e->plan);
    free_entry(e);
}
