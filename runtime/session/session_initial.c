/* session_initial.c - the initial values of storage, which that in place of a parameter has from the parameter. */
#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/files/weights.h"
#include "runtime/session/session_state.h"

#include <string.h>

void rt_storage_derive(const rt_session *s, int i, const void *whole, void *to)
{
    const ir_storage *storage = s->module->storage.items[i];
    const size_t bytes = (size_t)ir_storage_bytes(storage);
    if (!storage->shard) {
        ir_convert(storage->type.dtype, to, storage->of->type.dtype, whole, bytes / ir_dtype_size(storage->type.dtype));
        return;
    }
    const size_t all = (size_t)ir_storage_bytes(storage->of) / ir_dtype_size(storage->of->type.dtype) *
                       ir_dtype_size(storage->type.dtype);
    const size_t rank = s->ctx.ranks ? (size_t)s->ctx.ranks->index : 0, first = rank * bytes < all ? rank * bytes : all;
    const size_t own = all - first < bytes ? all - first : bytes;
    memcpy(to, (const char *)whole + first, own);
    memset((char *)to + own, 0, bytes - own);
}

ampc_status rt_storage_read(rt_session *s, rt_weights *w, const ir_storage *storage, const ir_storage *source, void *to,
                            diag *d)
{
    if (!ir_storage_is_derived(storage)) return rt_weights_read(w, source, to);
    void *whole = rt_alloc_block((size_t)ir_storage_bytes(source));
    if (!whole) return rt_memory_error(s, AMPC_NO_MEMORY, d, source->name, ir_storage_bytes(source));
    ampc_status status = rt_weights_read(w, source, whole);
    if (status == AMPC_OK) rt_storage_derive(s, (int)storage->id, whole, to);
    rt_free(whole);
    return status;
}
