/* session_shared.c - what the sessions of a module can share: storage, hoisted values and packs.
 *
 * Storage is only written while there is one session, so runs read it without a lock. Hoisted values are computed by
 * the first run that needs them, under the lock. A pack depends on a storage alone, so plans for other sizes and of
 * other graphs read it, too. Its memory is freed when the storage changes. */
#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/session/session_state.h"

#include <string.h>

/* ---- storage --------------------------------------------------------------------------------- */

/* The offset of what follows `end` bytes. */
static int64_t next_offset(const rt_session *s, int64_t end)
{
    return (end + s->backend->alignment - 1) & -(int64_t)s->backend->alignment;
}

int64_t rt_storage_bytes(const rt_session *s)
{
    int64_t end = 0;
    for (size_t i = 0; i < s->module->storage.count; i++)
        end = next_offset(s, end) + ir_storage_held(s->module->storage.items[i]);
    return end;
}

/* All storage is in one block, in the order of the module, so tensors of one kind are adjacent. */
static ampc_status alloc_storage(rt_session *s, diag *d)
{
    const ir_module *m = s->module;
    rt_shared *h = s->shared;
    h->storage = rt_alloc(m->storage.count + 1, sizeof *h->storage);
    h->changed = rt_alloc(m->storage.count + 1, sizeof *h->changed);
    h->packs = rt_alloc(m->storage.count + 1, sizeof *h->packs);
    if (!h->storage || !h->changed || !h->packs) return rt_no_memory(d);
    ampc_status status = s->backend->alloc(&s->ctx, (size_t)s->storage_bytes, &h->block);
    if (status != AMPC_OK) return rt_memory_error(s, status, d, "storage", s->storage_bytes);
    int64_t end = 0;
    for (size_t i = 0; i < m->storage.count; i++) {
        const ir_storage *storage = m->storage.items[i];
        const int64_t at = next_offset(s, end);
        h->storage[storage->id] = (char *)h->block + at;
        h->changed[storage->id] = ++h->changes;
        end = at + ir_storage_held(storage);
    }
    return AMPC_OK;
}

/* ---- sessions -------------------------------------------------------------------------------- */

/* The other session's work on the storage must have been done before a stream of its own reads it. */
static ampc_status join(rt_session *s, rt_session *other, diag *d)
{
    if (other->backend->device_ops) RT_DEVICE(s, d, other->backend->device_ops->wait(&other->ctx, NULL));
    s->shared = other->shared;
    pthread_mutex_lock(&s->shared->lock);
    s->shared->sessions++;
    pthread_mutex_unlock(&s->shared->lock);
    return AMPC_OK;
}

ampc_status rt_shared_open(rt_session *s, rt_session *other, diag *d)
{
    s->mirrors = rt_alloc(s->module->storage.count + 1, sizeof *s->mirrors);
    if (!s->mirrors) return rt_no_memory(d);
    if (other) return join(s, other, d);
    s->shared = rt_alloc(1, sizeof *s->shared);
    if (!s->shared) return rt_no_memory(d);
    s->shared->sessions = 1;
    pthread_mutex_init(&s->shared->lock, NULL);
    pthread_cond_init(&s->shared->planned, NULL);
    return s->plan_only ? AMPC_OK : alloc_storage(s, d);
}

static void free_parts(const rt_shared *h, const ir_module *m)
{
    for (size_t i = 0; h->parts && i < m->graphs.count; i++) {
        rt_free(h->parts[i].of_node);
        rt_free(h->parts[i].of_symbol);
        rt_free(h->parts[i].trim_of);
    }
    rt_free(h->parts);
}

void rt_shared_close(rt_session *s)
{
    rt_shared *h = s->shared;
    if (!h) return;
    pthread_mutex_lock(&h->lock);
    const bool last = --h->sessions == 0;
    pthread_mutex_unlock(&h->lock);
    if (!last) return;
    if (h->block) s->backend->free(&s->ctx, h->block);
    rt_resident_close(h);
    free_parts(h, s->module);
    rt_session_free_selections(h);
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->planned);
    rt_free(h->storage);
    rt_free(h->changed);
    rt_free(h->packs);
    rt_free(h);
}

ampc_status rt_shared_require_sole(rt_session *s, const char *what, diag *d)
{
    pthread_mutex_lock(&s->shared->lock);
    const int sessions = s->shared->sessions;
    pthread_mutex_unlock(&s->shared->lock);
    if (sessions == 1) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "@%s cannot be changed while %d sessions share the weights", what,
                      sessions);
}

ampc_status rt_shared_require_stores(rt_session *s, const ir_graph *g, diag *d)
{
    const ir_node *store = ir_first_store(g);
    return store ? rt_shared_require_sole(s, ir_in(store, IR_IN(store, state))->storage->name, d) : AMPC_OK;
}

static void free_pack(rt_session *s, rt_packed *k)
{
    if (k->memory && --k->block->packs == 0) {
        s->backend->free(&s->ctx, k->block->memory);
        rt_free(k->block);
    }
    k->memory = NULL;
    k->at = 0;
}

/* There is no other session that could use the packs. */
void rt_shared_change(rt_session *s, uint32_t storage)
{
    s->shared->changed[storage] = ++s->shared->changes;
    rt_resident_written(s, storage);
    for (rt_packed *k = s->shared->packs[storage]; k; k = k->next) free_pack(s, k);
}

void rt_shared_stored(rt_session *s, rt_execution *x)
{
    const rt_plan *p = x->plan;
    rt_hoisted *hoisted = x->shared->hoisted;
    bool any = false;
    for (int i = 0; i < p->n_effects; i++) {
        const uint32_t state = p->effects[i].state;
        if (state == RT_NO_VALUE) continue;
        rt_shared_change(s, p->values[state].value->storage->id);
        any = true;
    }
    if (any && hoisted) x->persistent_at = hoisted->at = s->shared->changes;
}

/* ---- hoisted values -------------------------------------------------------------------------- */

static bool same_sizes(const rt_plan_request *a, const rt_plan_request *b)
{
    const size_t n = ir_dim_symbol_count(a->graph->module->dims);
    return n == 0 || memcmp(a->sizes, b->sizes, n * sizeof *a->sizes) == 0;
}

bool rt_shared_agree(const rt_shared_plan *a, const rt_shared_plan *b)
{
    const rt_plan_request *r = &a->request, *q = &b->request;
    return r->graph == q->graph && r->part == q->part && r->selection == q->selection && r->fuse == q->fuse &&
           r->no_pack == q->no_pack && r->observed == q->observed && r->counted == q->counted &&
           a->threads == b->threads && a->tune == b->tune && a->plan_only == b->plan_only && a->custom == b->custom &&
           same_sizes(r, q);
}

/* Returns the block of an equal plan, whose hoisted steps are the same, at the same offsets; NULL: there is none. */
static rt_hoisted *find_block(const rt_shared *h, const rt_shared_plan *e)
{
    for (const rt_shared_plan *other = h->plans; other; other = other->next)
        if (other->hoisted && other->plan->persistent_bytes == e->plan->persistent_bytes &&
            other->plan->n_hoisted == e->plan->n_hoisted && rt_shared_agree(other, e))
            return other->hoisted;
    return NULL;
}

static ampc_status make_block(rt_session *s, int64_t bytes, diag *d, rt_hoisted **out)
{
    rt_hoisted *b = rt_alloc(1, sizeof *b);
    if (!b) return rt_no_memory(d);
    ampc_status status = s->backend->alloc(&s->ctx, (size_t)bytes, &b->memory);
    if (status != AMPC_OK) {
        rt_free(b);
        return rt_memory_error(s, status, d, "the block of hoisted values", bytes);
    }
    *out = b;
    return AMPC_OK;
}

static ampc_status provide_block(rt_session *s, rt_shared_plan *e, diag *d)
{
    if (e->hoisted || e->plan->persistent_bytes == 0) return AMPC_OK;
    rt_hoisted *b = find_block(s->shared, e);
    if (!b) TRY(make_block(s, e->plan->persistent_bytes, d, &b));
    b->plans++;
    e->hoisted = b;
    return AMPC_OK;
}

/* Returns the memory of the pack, which may be new and still empty; NULL: out of memory. */
static rt_packed *find_packed(rt_session *s, const rt_pack *key)
{
    rt_packed **list = &s->shared->packs[key->storage], *k = *list;
    while (k && (k->key.type != key->type || k->key.format != key->format)) k = k->next;
    if (k) return k;
    k = rt_alloc(1, sizeof *k);
    if (!k) return NULL;
    k->key = *key;
    k->next = *list;
    return *list = k;
}

static ampc_status provide_packs(rt_session *s, rt_shared_plan *e, diag *d)
{
    const rt_plan *p = e->plan;
    if (!e->packs) e->packs = rt_alloc((size_t)p->n_packs + 1, sizeof *e->packs);
    if (!e->packs) return rt_no_memory(d);
    for (int i = 0; i < p->n_packs; i++) {
        if (e->packs[i]) continue;
        e->packs[i] = find_packed(s, &p->packs[i]);
        if (!e->packs[i]) return rt_no_memory(d);
        e->packs[i]->plans++;
    }
    return AMPC_OK;
}

ampc_status rt_shared_provide(rt_session *s, rt_shared_plan *e, diag *d)
{
    TRY(provide_block(s, e, d));
    return provide_packs(s, e, d);
}

static void drop_block(rt_session *s, rt_hoisted *b)
{
    s->backend->free(&s->ctx, b->memory);
    rt_free(b);
}

static void drop_pack(rt_session *s, rt_packed *k)
{
    rt_packed **at = &s->shared->packs[k->key.storage];
    while (*at != k) at = &(*at)->next;
    *at = k->next;
    free_pack(s, k);
    rt_free(k);
}

void rt_shared_drop(rt_session *s, rt_shared_plan *e)
{
    if (e->hoisted && --e->hoisted->plans == 0) drop_block(s, e->hoisted);
    for (int i = 0; e->packs && i < e->plan->n_packs; i++)
        if (e->packs[i] && --e->packs[i]->plans == 0) drop_pack(s, e->packs[i]);
}

/* ---- computing them -------------------------------------------------------------------------- */

/* Whether storage has changed since change number `at` that one of the hoisted steps from `first` on reads. */
static bool is_stale(const rt_session *s, const rt_plan *p, int first, int64_t at)
{
    for (int i = first; i < p->n_hoisted; i++)
        for (int j = 0; j < p->steps[i]->n_in; j++) {
            const int buffer = p->steps[i]->in_buffer[j];
            if (buffer == RT_NO_BUFFER || p->buffers[buffer].home != RT_STORAGE) continue;
            if (s->shared->changed[p->buffers[buffer].index] > at) return true;
        }
    return false;
}

static size_t pack_bytes(const rt_session *s, const rt_packed *k)
{
    return (k->key.format->bytes + (size_t)s->backend->alignment - 1) & -(size_t)s->backend->alignment;
}

static ampc_status make_pack_block(rt_session *s, size_t bytes, diag *d, rt_pack_block **out)
{
    rt_pack_block *b = rt_alloc(1, sizeof *b);
    if (!b) return rt_no_memory(d);
    const ampc_status status = s->backend->alloc(&s->ctx, bytes, &b->memory);
    if (status == AMPC_OK) *out = b;
    else rt_free(b);
    return status == AMPC_OK ? AMPC_OK : rt_memory_error(s, status, d, "packed weights", (int64_t)bytes);
}

static void place_pack(rt_packed *k, rt_pack_block *b, size_t at)
{
    k->memory = (char *)b->memory + at;
    k->block = b;
    b->packs++;
}

/* Packs that are filled together share one block, on large pages, unless they are large themselves. */
static ampc_status alloc_packs(rt_session *s, const rt_shared_plan *e, diag *d)
{
    const int n = e->plan->n_packs;
    size_t small = 0, at = 0;
    rt_pack_block *b = NULL;
    for (int i = 0; i < n; i++) {
        rt_packed *k = e->packs[i];
        const size_t bytes = pack_bytes(s, k);
        if (!k->memory && bytes < RT_HUGE_PAGE) small += bytes;
        if (k->memory || bytes < RT_HUGE_PAGE) continue;
        TRY(make_pack_block(s, bytes, d, &b));
        place_pack(k, b, 0);
    }
    if (small == 0) return AMPC_OK;
    TRY(make_pack_block(s, small, d, &b));
    for (int i = 0; i < n; i++) {
        rt_packed *k = e->packs[i];
        if (k->memory) continue;
        place_pack(k, b, at);
        at += pack_bytes(s, k);
    }
    return AMPC_OK;
}

static ampc_status refresh_pack(rt_session *s, const rt_execution *x, int i, rt_compute *compute, diag *d)
{
    rt_packed *k = x->shared->packs[i];
    if (k->at >= s->shared->changed[k->key.storage]) return AMPC_OK;
    TRY(compute(s, x, i, i + 1, d));
    k->at = s->shared->changes;
    return AMPC_OK;
}

static ampc_status refresh_block(rt_session *s, const rt_execution *x, rt_compute *compute, diag *d)
{
    const rt_plan *p = x->plan;
    const rt_hoisted *hoisted = x->shared->hoisted;
    /* Without a block, all hoisted values are empty. */
    if (!hoisted || !is_stale(s, p, p->n_packs, hoisted->at)) return AMPC_OK;
    TRY(compute(s, x, p->n_packs, p->n_hoisted, d));
    /* Other sessions of a discrete device read the values on streams of their own. */
    if (s->backend->device_ops && s->shared->sessions > 1) RT_DEVICE(s, d, s->backend->device_ops->wait(&s->ctx, NULL));
    return AMPC_OK;
}

/* The block first: the storage that it is computed from may be larger than any that is packed (an embedding). */
static ampc_status refresh(rt_session *s, const rt_execution *x, rt_compute *compute, diag *d)
{
    TRY(refresh_block(s, x, compute, d));
    TRY(alloc_packs(s, x->shared, d));
    for (int i = 0; i < x->plan->n_packs; i++) TRY(refresh_pack(s, x, i, compute, d));
    return AMPC_OK;
}

ampc_status rt_shared_refresh(rt_session *s, rt_execution *x, rt_compute *compute, diag *d)
{
    rt_hoisted *hoisted = x->shared->hoisted;
    if (!is_stale(s, x->plan, 0, x->persistent_at)) return AMPC_OK;
    pthread_mutex_lock(&s->shared->lock);
    const ampc_status status = refresh(s, x, compute, d);
    if (status == AMPC_OK) x->persistent_at = s->shared->changes;
    if (status == AMPC_OK && hoisted) hoisted->at = s->shared->changes;
    pthread_mutex_unlock(&s->shared->lock);
    return status;
}
