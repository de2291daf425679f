/* session_storage.c - the storage of a session: loading, reading and writing it. */
#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/files/weights.h"
#include "runtime/session/session_state.h"

#include <assert.h>
#include <string.h>

/* ---- loading --------------------------------------------------------------------------------- */

static ampc_status load_one(rt_session *s, rt_weights *w, const ir_storage *storage, diag *d)
{
    if (!ir_storage_held(storage)) return AMPC_OK;
    void *bytes = rt_alloc_block((size_t)ir_storage_bytes(storage));
    if (!bytes) return rt_memory_error(s, AMPC_NO_MEMORY, d, storage->name, ir_storage_bytes(storage));
    const ir_storage *source = ir_storage_is_derived(storage) ? storage->of : storage;
    ampc_status status = rt_storage_read(s, w, storage, source, bytes, d);
    if (status == AMPC_OK) status = rt_session_write(s, (int)storage->id, bytes, d);
    rt_free(bytes);
    return status;
}

ampc_status rt_storage_load(rt_session *s, const char *dir, diag *d)
{
    rt_weights *w;
    if (!s->backend->device_ops) return rt_resident_open(s, dir, d);
    TRY(rt_weights_open(s->module, dir, d, &w));
    ampc_status status = AMPC_OK;
    for (size_t i = 0; i < s->module->storage.count && status == AMPC_OK; i++)
        status = load_one(s, w, s->module->storage.items[i], d);
    rt_weights_close(w);
    return status;
}

/* ---- reading and writing --------------------------------------------------------------------- */

int rt_session_storage_count(const rt_session *s) { return (int)s->module->storage.count; }

void rt_session_storage_at(const rt_session *s, int i, rt_tensor *out, ir_storage_kind *kind)
{
    assert(i >= 0 && (size_t)i < s->module->storage.count); /* the index is the caller's, not from a file */
    const ir_storage *storage = s->module->storage.items[i];
    *out = (rt_tensor){.name = storage->name, .dtype = storage->type.dtype, .rank = storage->type.rank};
    memcpy(out->dims, storage->type.dims, (size_t)storage->type.rank * sizeof out->dims[0]);
    if (kind) *kind = storage->kind;
}

static size_t storage_bytes(const rt_session *s, int i)
{
    return (size_t)ir_storage_bytes(s->module->storage.items[i]);
}

/* Provides a host copy of a discrete device's storage, whose contents may be overwritten. */
static ampc_status ready_mirror(rt_session *s, int i, diag *d)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    RT_DEVICE(s, d, device_ops->wait(&s->ctx, NULL));
    if (s->mirrors[i]) return AMPC_OK;
    ampc_status status = rt_host_alloc(s, storage_bytes(s, i), &s->mirrors[i]);
    return status == AMPC_OK
               ? AMPC_OK
               : rt_memory_error(s, status, d, s->module->storage.items[i]->name, (int64_t)storage_bytes(s, i));
}

ampc_status rt_session_read(rt_session *s, int i, diag *d, rt_tensor *out)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    TRY(rt_device_require(s, d));
    rt_session_storage_at(s, i, out, NULL);
    out->data = s->shared->storage[i];
    if (!device_ops) return rt_resident_expose(s, (uint32_t)i, d);
    TRY(ready_mirror(s, i, d));
    RT_DEVICE(s, d, device_ops->download(&s->ctx, s->mirrors[i], s->shared->storage[i], storage_bytes(s, i)));
    RT_DEVICE(s, d, device_ops->wait(&s->ctx, NULL));
    out->data = s->mirrors[i];
    return AMPC_OK;
}

ampc_status rt_session_write(rt_session *s, int i, const void *bytes, diag *d)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    TRY(rt_device_require(s, d));
    TRY(rt_shared_require_sole(s, s->module->storage.items[i]->name, d));
    size_t n = storage_bytes(s, i);
    void *to = s->shared->storage[i];
    if (device_ops) {
        TRY(ready_mirror(s, i, d));
        to = s->mirrors[i];
    }
    rt_shared_change(s, (uint32_t)i);
    if (n) memmove(to, bytes, n);
    if (device_ops) RT_DEVICE(s, d, device_ops->upload(&s->ctx, s->shared->storage[i], to, n));
    return AMPC_OK;
}

/* Returns NULL and reports an error if there is no such scalar. */
static const ir_storage *find_scalar(const rt_session *s, const char *name, diag *d)
{
    const ir_storage *storage = ir_storage_find(s->module, name);
    if (storage && storage->type.rank == 0) return storage;
    diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "there is no scalar @%s", name);
    return NULL;
}

ampc_status rt_session_get_number(rt_session *s, const char *name, diag *d, double *value)
{
    rt_tensor t;
    const ir_storage *storage = find_scalar(s, name, d);
    if (!storage) return AMPC_REJECTED;
    TRY(rt_session_read(s, (int)storage->id, d, &t));
    *value = ir_load_f64(t.dtype, t.data);
    return AMPC_OK;
}

ampc_status rt_session_set_number(rt_session *s, const char *name, double value, diag *d)
{
    char bytes[8];
    const ir_storage *storage = find_scalar(s, name, d);
    if (!storage) return AMPC_REJECTED;
    ir_store_f64(storage->type.dtype, bytes, value);
    return rt_session_write(s, (int)storage->id, bytes, d);
}

ampc_status rt_session_seed(rt_session *s, uint64_t seed, diag *d)
{
    rt_tensor rng;
    int64_t key[2];
    const ir_storage *storage = ir_state_by_role(s->module, IR_STATE_rng);
    if (!seed || !storage) return AMPC_OK;
    TRY(rt_session_read(s, (int)storage->id, d, &rng));
    memcpy(key, rng.data, sizeof key);
    key[0] = (int64_t)seed;
    return rt_session_write(s, (int)storage->id, key, d);
}
