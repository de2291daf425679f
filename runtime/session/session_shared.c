/* session_shared.c - what the sessions of a module can share: storage, and hoisted values.
 *
 * Storage is only written while there is one session, so runs read it without a lock. Hoisted values are computed by
 * the first run that needs them, under the lock; plans of other sessions that are made for the same request have the
 * same hoisted steps at the same offsets, so they read the same block. */
#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/session/session_state.h"

#include <string.h>

/* ---- storage --------------------------------------------------------------------------------- */

/* The offset of a storage that follows `end` bytes. */
static int64_t next_offset(const rt_session *s, const ir_storage *storage, int64_t end)
{
    const int64_t align = rt_resident_alignment(s, storage);
    return (end + align - 1) & -align;
}

int64_t rt_storage_bytes(const rt_session *s)
{
    int64_t end = 0;
    for (size_t i = 0; i < s->module->storage.count; i++) {
        const ir_storage *storage = s->module->storage.items[i];
        end = next_offset(s, storage, end) + ir_storage_bytes(storage);
    }
    return end;
}

/* All storage is in one block, in the order of the module, so tensors of one kind are adjacent. */
static ampc_status alloc_storage(rt_session *s, diag *d)
{
    const ir_module *m = s->module;
    rt_shared *h = s->shared;
    h->storage = rt_alloc(m->storage.count + 1, sizeof *h->storage);
    h->changed = rt_alloc(m->storage.count + 1, sizeof *h->changed);
    if (!h->storage || !h->changed) return rt_no_memory(d);
    ampc_status status = s->backend->alloc(&s->ctx, (size_t)s->storage_bytes, &h->block);
    if (status != AMPC_OK) return rt_memory_error(s, status, d, "storage", s->storage_bytes);
    int64_t end = 0;
    for (size_t i = 0; i < m->storage.count; i++) {
        const ir_storage *storage = m->storage.items[i];
        const int64_t at = next_offset(s, storage, end);
        h->storage[storage->id] = (char *)h->block + at;
        h->changed[storage->id] = ++h->changes;
        end = at + ir_storage_bytes(storage);
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
    return alloc_storage(s, d);
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
    pthread_mutex_destroy(&h->lock);
    rt_free(h->storage);
    rt_free(h->changed);
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

void rt_shared_change(rt_session *s, uint32_t storage)
{
    s->shared->changed[storage] = ++s->shared->changes;
    rt_resident_written(s, storage);
}

void rt_shared_stored(rt_session *s, rt_plan *p)
{
    bool any = false;
    for (int i = 0; i < p->n_effects; i++) {
        const uint32_t state = p->effects[i].state;
        if (state == RT_NO_VALUE) continue;
        rt_shared_change(s, p->values[state].value->storage->id);
        any = true;
    }
    if (any && p->hoisted) p->persistent_at = p->hoisted->at = s->shared->changes;
}

/* ---- hoisted values -------------------------------------------------------------------------- */

/* What determines the hoisted steps of a plan and where their values are, apart from module and device. */
typedef struct hoisted_key {
    const ir_graph *graph;
    int64_t bytes;
    int part, threads, steps, outputs; /* outputs: number of selected ones; -1: all */
    bool fuse;
} hoisted_key;

/* The key, followed by the sizes of all symbols and the names of the selected outputs, which are those of statements.
 * NULL: out of memory. */
static void *make_key(const rt_session *s, const rt_plan *p, size_t *n)
{
    const rt_selection *selected = p->selection;
    const size_t sizes = s->n_symbols * sizeof *p->sizes;
    const size_t names = selected ? (size_t)selected->n * sizeof *selected->names : 0;
    char *key = rt_alloc(1, sizeof(hoisted_key) + sizes + names);
    if (!key) return NULL;
    hoisted_key *head = (hoisted_key *)(void *)key;
    head->graph = p->graph;
    head->bytes = p->persistent_bytes;
    head->part = p->part;
    head->threads = s->ctx.threads;
    head->steps = p->n_hoisted;
    head->outputs = selected ? selected->n : -1;
    head->fuse = s->fuse;
    if (sizes) memcpy(key + sizeof *head, p->sizes, sizes);
    if (names) memcpy(key + sizeof *head + sizes, selected->names, names);
    *n = sizeof *head + sizes + names;
    return key;
}

static rt_hoisted *find_block(const rt_shared *h, const void *key, size_t n)
{
    rt_hoisted *b = h->blocks;
    while (b && (b->key_bytes != n || memcmp(b->key, key, n) != 0)) b = b->next;
    return b;
}

/* A new block, which owns the key if this succeeds. */
static ampc_status make_block(rt_session *s, const rt_plan *p, void *key, size_t n, diag *d, rt_hoisted **out)
{
    rt_hoisted *b = rt_alloc(1, sizeof *b);
    if (!b) return rt_no_memory(d);
    ampc_status status = s->backend->alloc(&s->ctx, (size_t)p->persistent_bytes, &b->memory);
    if (status != AMPC_OK) {
        rt_free(b);
        return rt_memory_error(s, status, d, "the block of hoisted values", p->persistent_bytes);
    }
    b->key = key;
    b->key_bytes = n;
    b->next = s->shared->blocks;
    *out = s->shared->blocks = b;
    return AMPC_OK;
}

ampc_status rt_shared_provide(rt_session *s, rt_plan *p, diag *d)
{
    size_t n;
    if (p->persistent_block || p->persistent_bytes == 0) return AMPC_OK;
    void *key = make_key(s, p, &n);
    if (!key) return rt_no_memory(d);
    pthread_mutex_lock(&s->shared->lock);
    rt_hoisted *b = find_block(s->shared, key, n);
    ampc_status status = b ? AMPC_OK : make_block(s, p, key, n, d, &b);
    if (status == AMPC_OK) b->plans++;
    pthread_mutex_unlock(&s->shared->lock);
    if (status != AMPC_OK || b->key != key) rt_free(key);
    if (status != AMPC_OK) return status;
    p->hoisted = b;
    p->persistent_block = b->memory;
    return AMPC_OK;
}

static void drop_block(rt_session *s, rt_hoisted *b)
{
    rt_hoisted **at = &s->shared->blocks;
    while (*at != b) at = &(*at)->next;
    *at = b->next;
    s->backend->free(&s->ctx, b->memory);
    rt_free(b->key);
    rt_free(b);
}

void rt_shared_release(rt_session *s, rt_plan *p)
{
    rt_hoisted *b = p->hoisted;
    if (b || p->kept) {
        pthread_mutex_lock(&s->shared->lock);
        if (b && --b->plans == 0) drop_block(s, b);
        rt_resident_release(s, p);
        pthread_mutex_unlock(&s->shared->lock);
    }
    rt_plan_free(p);
}

/* ---- computing them -------------------------------------------------------------------------- */

/* Whether storage has changed since change number `at` that a hoisted step reads. */
static bool is_stale(const rt_session *s, const rt_plan *p, int64_t at)
{
    for (int i = 0; i < p->n_hoisted; i++)
        for (int j = 0; j < p->steps[i]->n_in; j++) {
            const int buffer = p->steps[i]->in_buffer[j];
            if (buffer == RT_NO_BUFFER || p->buffers[buffer].home != RT_STORAGE) continue;
            if (s->shared->changed[p->buffers[buffer].index] > at) return true;
        }
    return false;
}

/* Other sessions of a discrete device read the values on streams of their own. */
static ampc_status compute_now(rt_session *s, const rt_plan *p,
                               ampc_status (*compute)(rt_session *, const rt_plan *, diag *), diag *d)
{
    TRY(compute(s, p, d));
    if (s->backend->device_ops && s->shared->sessions > 1) RT_DEVICE(s, d, s->backend->device_ops->wait(&s->ctx, NULL));
    return AMPC_OK;
}

ampc_status rt_shared_refresh(rt_session *s, rt_plan *p, ampc_status (*compute)(rt_session *, const rt_plan *, diag *),
                              diag *d)
{
    /* Without a block, all hoisted values are empty. */
    if (!p->hoisted || !is_stale(s, p, p->persistent_at)) return AMPC_OK;
    pthread_mutex_lock(&s->shared->lock);
    ampc_status status = is_stale(s, p, p->hoisted->at) ? compute_now(s, p, compute, d) : AMPC_OK;
    if (status == AMPC_OK) p->persistent_at = p->hoisted->at = s->shared->changes;
    pthread_mutex_unlock(&s->shared->lock);
    return status;
}
