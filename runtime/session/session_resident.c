/* session_resident.c - which storage is in memory.
 *
 * On a device that works in host memory, a parameter or constant is read from its file when a plan first needs it. If
 * only hoisted steps read it (a cast, or a kernel's own format of it), its pages are returned to the system after they
 * have run: then a weight is in memory once, in the form that the kernels read. It is read again if a plan with other
 * needs, or a caller, asks for it. Storage that has been written since, or that a caller may still read, is never
 * dropped.
 *
 * A page may contain several tensors. It is returned when the last of them is dropped. A huge page would bring up to
 * 2 MiB of neighbours into memory with a tensor, and returning a part of it frees nothing until the system splits it.
 * So only tensors that runs read are on huge pages.
 *
 * The lock of rt_shared protects the table. A plan's storage is counted before its first run, so runs need no lock. */
#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/session/session_state.h"

#include <sys/mman.h>
#include <unistd.h>

static uintptr_t page_size(void) { return (uintptr_t)sysconf(_SC_PAGESIZE); }

static uintptr_t address_of(const rt_session *s, size_t id) { return (uintptr_t)s->shared->storage[id]; }

static uintptr_t end_of(const rt_session *s, size_t id)
{
    return address_of(s, id) + (uintptr_t)ir_storage_held(s->module->storage.items[id]);
}

/* Advises the system about the pages that are wholly in the range. */
static bool advise(uintptr_t from, uintptr_t to, int advice)
{
    const uintptr_t page = page_size(), first = (from + page - 1) & -page, end = to & -page;
    return first >= end || madvise((void *)first, end - first, advice) == 0;
}

/* ---- loading --------------------------------------------------------------------------------- */

static ampc_status load(rt_session *s, uint32_t id, diag *d)
{
    const ir_storage *storage = s->module->storage.items[id];
    rt_residence *r = &s->shared->residence[id];
    if (r->loaded) return AMPC_OK;
    ir_storage source = *(ir_storage_is_derived(storage) ? storage->of : storage);
    source.data = s->shared->residence[source.id].data; /* the module may refer to another file by now */
    rt_weights_report_to(s->shared->weights, d);
    TRY(rt_storage_read(s, s->shared->weights, storage, &source, s->shared->storage[id], d));
    r->loaded = true;
    return AMPC_OK;
}

static bool stays_loaded(const ir_storage *storage)
{
    return storage->type.rank == 0; /* the host may read it after a run (session_readback.c) */
}

static ampc_status open_one(rt_session *s, const ir_storage *storage, diag *d)
{
    s->shared->residence[storage->id].data = storage->data;
    TRY(rt_weights_check(s->shared->weights, storage));
    if (!ir_storage_held(storage)) return AMPC_OK;
    if (!stays_loaded(storage) && rt_weights_hold(s->shared->weights, storage)) return AMPC_OK;
    s->shared->residence[storage->id].exposed = true;
    return load(s, storage->id, d);
}

ampc_status rt_resident_open(rt_session *s, const char *dir, diag *d)
{
    rt_shared *h = s->shared;
    h->residence = rt_alloc(s->module->storage.count + 1, sizeof *h->residence);
    if (!h->residence) return rt_no_memory(d);
    if (s->storage_bytes >= RT_HUGE_PAGE)
        advise((uintptr_t)h->block, (uintptr_t)h->block + (uintptr_t)s->storage_bytes, MADV_NOHUGEPAGE);
    TRY(rt_weights_open(s->module, dir, d, &h->weights));
    for (size_t i = 0; i < s->module->storage.count; i++) TRY(open_one(s, s->module->storage.items[i], d));
    return AMPC_OK;
}

void rt_resident_close(rt_shared *h)
{
    rt_weights_close(h->weights);
    rt_free(h->residence);
}

ampc_status rt_resident_need(rt_session *s, uint32_t id, diag *d)
{
    return s->shared->residence ? load(s, id, d) : AMPC_OK;
}

ampc_status rt_resident_expose(rt_session *s, uint32_t id, diag *d)
{
    if (!s->shared->residence) return AMPC_OK;
    pthread_mutex_lock(&s->shared->lock);
    s->shared->residence[id].exposed = true;
    ampc_status status = load(s, id, d);
    pthread_mutex_unlock(&s->shared->lock);
    return status;
}

void rt_resident_written(rt_session *s, uint32_t id)
{
    if (s->shared->residence) s->shared->residence[id].loaded = s->shared->residence[id].exposed = true;
}

static bool is_loaded(const rt_session *s, size_t id) { return s->shared->residence[id].loaded; }

/* Returns the pages of a storage and those that it shares with neighbours that are not in memory either. */
void rt_resident_drop(rt_session *s, uint32_t id)
{
    rt_residence *r = s->shared->residence ? &s->shared->residence[id] : NULL;
    if (!r || !r->loaded || r->exposed || r->plans) return;
    const uintptr_t page = page_size(), low = address_of(s, id) & -page, high = (end_of(s, id) + page - 1) & -page;
    size_t first = id, last = id;
    while (address_of(s, first) > low && first > 0 && !is_loaded(s, first - 1)) first--;
    while (end_of(s, last) < high && last + 1 < s->module->storage.count && !is_loaded(s, last + 1)) last++;
    r->loaded = !advise(address_of(s, first), end_of(s, last), MADV_DONTNEED);
}

/* ---- what a plan reads in each run ------------------------------------------------------------ */

static void keep_buffer(const rt_plan *p, int buffer, bool *kept)
{
    if (buffer != RT_NO_BUFFER && p->buffers[buffer].home == RT_STORAGE) kept[p->buffers[buffer].index] = true;
}

static void keep_plan(const rt_plan *p, bool *kept);

static void keep_step(const rt_plan *p, const rt_step *step, bool *kept)
{
    for (int j = 0; j < step->n_in; j++) keep_buffer(p, step->in_buffer[j], kept);
    for (int j = 0; j < step->n_out; j++) keep_buffer(p, step->out_buffer[j], kept);
    for (int j = 0; step->control && j < step->control->n_bodies; j++) keep_plan(step->control->bodies[j].plan, kept);
}

static void keep_plan(const rt_plan *p, bool *kept)
{
    for (int i = p->n_hoisted; i < p->n_steps; i++) keep_step(p, p->steps[i], kept);
    for (int i = 0; i < p->n_before; i++) keep_buffer(p, p->before[i].from, kept);
    for (int i = 0; i < p->n_after; i++) {
        keep_buffer(p, p->after[i].from, kept);
        keep_buffer(p, p->after[i].to, kept);
    }
    for (int i = 0; i < p->n_outputs; i++) keep_buffer(p, p->outputs[i].buffer, kept);
}

int64_t rt_resident_bytes(const rt_session *s)
{
    const ir_module *m = s->module;
    bool *kept = s->backend->device_ops ? NULL : rt_alloc(m->storage.count + 1, sizeof *kept);
    int64_t bytes = s->storage_bytes;
    for (int part = 0; kept && part < s->n_planned; part++) keep_plan(s->planned[part], kept);
    for (size_t id = 0; kept && id < m->storage.count; id++) {
        const ir_storage *storage = m->storage.items[id];
        if (!kept[id] && !stays_loaded(storage)) bytes -= ir_storage_held(storage);
    }
    rt_free(kept);
    return bytes;
}

/* Puts adjacent tensors that the plan keeps on huge pages, before they are read. */
static void use_huge_pages(const rt_session *s, const bool *kept)
{
    const size_t count = s->module->storage.count;
    for (size_t first = 0, end; first < count; first = end + 1) {
        for (end = first; end < count && kept[end];) end++;
        if (end == first) continue;
        const uintptr_t from = address_of(s, first), to = end_of(s, end - 1);
        if (to - from >= RT_HUGE_PAGE) advise(from, to, MADV_HUGEPAGE); /* a hint */
    }
}

/* Reads what the plan keeps, and counts it. */
static ampc_status keep_storage(rt_session *s, const bool *kept, diag *d)
{
    const size_t count = s->module->storage.count;
    use_huge_pages(s, kept);
    for (size_t id = 0; id < count; id++)
        if (kept[id]) TRY(load(s, (uint32_t)id, d));
    for (size_t id = 0; id < count; id++) s->shared->residence[id].plans += kept[id];
    return AMPC_OK;
}

ampc_status rt_resident_provide(rt_session *s, rt_shared_plan *e, diag *d)
{
    if (!s->shared->residence || e->kept) return AMPC_OK;
    bool *kept = rt_alloc(s->module->storage.count + 1, sizeof *kept);
    if (!kept) return rt_no_memory(d);
    keep_plan(e->plan, kept);
    const ampc_status status = keep_storage(s, kept, d);
    if (status == AMPC_OK) e->kept = kept;
    else rt_free(kept);
    return status;
}

void rt_resident_release(rt_session *s, const rt_shared_plan *e)
{
    for (size_t id = 0; e->kept && id < s->module->storage.count; id++) s->shared->residence[id].plans -= e->kept[id];
}
