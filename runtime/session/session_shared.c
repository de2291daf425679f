/* session_shared.c - what the sessions of a module can share: storage, hoisted values and packs.
 *
 * Storage is only written while there is one session, so runs read it without a lock. Hoisted values are computed by
 * the first run that needs them, under the lock; plans of other sessions that are made for the same request have the
 * same hoisted steps at the same offsets, so they read the same block. A pack depends on a storage alone, so plans for
 * other sizes and of other graphs read it, too. Its memory is freed when the storage changes. */
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
        end = next_offset(s, end) + ir_storage_bytes(s->module->storage.items[i]);
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
    bool fuse, no_pack;
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
    head->no_pack = s->no_pack;
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

static ampc_status provide_block(rt_session *s, rt_plan *p, diag *d)
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

/* Returns the shared memory of the pack, which may be new and still empty; NULL: out of memory. */
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

static ampc_status provide_packs(rt_session *s, rt_plan *p, diag *d)
{
    ampc_status status = AMPC_OK;
    if (p->n_packs == 0 || p->packs[p->n_packs - 1].shared) return AMPC_OK;
    pthread_mutex_lock(&s->shared->lock);
    for (int i = 0; i < p->n_packs && status == AMPC_OK; i++) {
        if (p->packs[i].shared) continue;
        rt_packed *k = find_packed(s, &p->packs[i]);
        if (k) k->plans++;
        else status = rt_no_memory(d);
        p->packs[i].shared = k;
    }
    pthread_mutex_unlock(&s->shared->lock);
    return status;
}

ampc_status rt_shared_provide(rt_session *s, rt_plan *p, diag *d)
{
    TRY(provide_block(s, p, d));
    return provide_packs(s, p, d);
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

static void drop_pack(rt_session *s, rt_packed *k)
{
    rt_packed **at = &s->shared->packs[k->key.storage];
    while (*at != k) at = &(*at)->next;
    *at = k->next;
    free_pack(s, k);
    rt_free(k);
}

void rt_shared_release(rt_session *s, rt_plan *p)
{
    if (p->hoisted || p->kept || (p->n_packs && p->packs[0].shared)) {
        pthread_mutex_lock(&s->shared->lock);
        if (p->hoisted && --p->hoisted->plans == 0) drop_block(s, p->hoisted);
        for (int i = 0; i < p->n_packs; i++)
            if (p->packs[i].shared && --p->packs[i].shared->plans == 0) drop_pack(s, p->packs[i].shared);
        rt_resident_release(s, p);
        pthread_mutex_unlock(&s->shared->lock);
    }
    rt_plan_free(p);
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
static ampc_status alloc_packs(rt_session *s, const rt_plan *p, diag *d)
{
    size_t small = 0, at = 0;
    rt_pack_block *b = NULL;
    for (int i = 0; i < p->n_packs; i++) {
        rt_packed *k = p->packs[i].shared;
        const size_t bytes = pack_bytes(s, k);
        if (!k->memory && bytes < RT_HUGE_PAGE) small += bytes;
        if (k->memory || bytes < RT_HUGE_PAGE) continue;
        TRY(make_pack_block(s, bytes, d, &b));
        place_pack(k, b, 0);
    }
    if (small == 0) return AMPC_OK;
    TRY(make_pack_block(s, small, d, &b));
    for (int i = 0; i < p->n_packs; i++) {
        rt_packed *k = p->packs[i].shared;
        if (k->memory) continue;
        place_pack(k, b, at);
        at += pack_bytes(s, k);
    }
    return AMPC_OK;
}

static ampc_status refresh_pack(rt_session *s, const rt_plan *p, int i, rt_compute *compute, diag *d)
{
    rt_packed *k = p->packs[i].shared;
    if (k->at >= s->shared->changed[k->key.storage]) return AMPC_OK;
    TRY(compute(s, p, i, i + 1, d));
    k->at = s->shared->changes;
    return AMPC_OK;
}

static ampc_status refresh_block(rt_session *s, const rt_plan *p, rt_compute *compute, diag *d)
{
    /* Without a block, all hoisted values are empty. */
    if (!p->hoisted || !is_stale(s, p, p->n_packs, p->hoisted->at)) return AMPC_OK;
    TRY(compute(s, p, p->n_packs, p->n_hoisted, d));
    /* Other sessions of a discrete device read the values on streams of their own. */
    if (s->backend->device_ops && s->shared->sessions > 1) RT_DEVICE(s, d, s->backend->device_ops->wait(&s->ctx, NULL));
    return AMPC_OK;
}

/* The block first: the storage that it is computed from may be larger than any that is packed (an embedding). */
static ampc_status refresh(rt_session *s, const rt_plan *p, rt_compute *compute, diag *d)
{
    TRY(refresh_block(s, p, compute, d));
    TRY(alloc_packs(s, p, d));
    for (int i = 0; i < p->n_packs; i++) TRY(refresh_pack(s, p, i, compute, d));
    return AMPC_OK;
}

ampc_status rt_shared_refresh(rt_session *s, rt_plan *p, rt_compute *compute, diag *d)
{
    if (!is_stale(s, p, 0, p->persistent_at)) return AMPC_OK;
    pthread_mutex_lock(&s->shared->lock);
    const ampc_status status = refresh(s, p, compute, d);
    if (status == AMPC_OK) p->persistent_at = s->shared->changes;
    if (status == AMPC_OK && p->hoisted) p->hoisted->at = s->shared->changes;
    pthread_mutex_unlock(&s->shared->lock);
    return status;
}
