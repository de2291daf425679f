/* session_shards.c - tensors of which each rank has a slice (ir_storage.shard): joined on rank 0, and cut on all.
 *
 * Rank 0 asks for one tensor after the other, when it writes it; the others answer until it asks no more. So there is
 * one whole tensor at a time, and no rank waits after an error of rank 0. */
#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/session/session_state.h"

#include <string.h>

enum { NO_MORE = -1 };

static const ir_storage *storage_at(const rt_session *s, int i) { return s->module->storage.items[i]; }

static size_t slice_bytes(const rt_session *s, int i) { return (size_t)ir_storage_bytes(storage_at(s, i)); }

static size_t whole_bytes(const rt_session *s, int i)
{
    const ir_type whole = ir_storage_whole(storage_at(s, i));
    int64_t n = (int64_t)ir_dtype_size(whole.dtype);
    for (int k = 0; k < whole.rank; k++) n *= whole.dims[k];
    return (size_t)n;
}

static bool has_shards(const rt_session *s)
{
    for (size_t i = 0; i < s->module->storage.count; i++)
        if (storage_at(s, (int)i)->shard) return s->ctx.ranks && s->ctx.ranks->count > 1;
    return false;
}

bool rt_session_is_shard(const rt_session *s, int i) { return storage_at(s, i)->shard != 0; }

bool rt_session_is_derived(const rt_session *s, int i) { return ir_storage_is_derived(storage_at(s, i)); }

void rt_session_whole_at(const rt_session *s, int i, rt_tensor *out)
{
    const ir_type whole = ir_storage_whole(storage_at(s, i));
    rt_session_storage_at(s, i, out, NULL);
    out->rank = whole.rank;
    memcpy(out->dims, whole.dims, (size_t)whole.rank * sizeof out->dims[0]);
}

static ampc_status told(const rt_session *s, ampc_status status, diag *d)
{
    return status == AMPC_OK ? AMPC_OK : diag_error(d, status, DIAG_NOWHERE, "%s", s->ctx.ranks->error);
}

/* ---- joining ----------------------------------------------------------------------------------- */

/* Collective: this rank contributes its slice, and has those of all ranks then. */
static ampc_status join(rt_session *s, int i, diag *d)
{
    rt_tensor t;
    k_ranks *r = s->ctx.ranks;
    if (storage_at(s, i)->kind == IR_PARAM) i = (int)ir_storage_owned(s->module, IR_STATE_master, storage_at(s, i))->id;
    const size_t bytes = slice_bytes(s, i);
    rt_free(s->joined);
    s->joined = rt_alloc_block((size_t)r->count * bytes);
    if (!s->joined) return rt_no_memory(d);
    TRY(rt_session_read(s, i, d, &t));
    return told(s, r->all_gather(r, t.data, s->joined, bytes), d);
}

static void forget(rt_session *s)
{
    rt_free(s->joined);
    s->joined = NULL;
}

ampc_status rt_session_read_whole(void *source, uint64_t offset, void *dst, size_t n)
{
    const rt_whole *w = source;
    rt_session *s = w->session;
    int64_t asked = w->storage;
    if (!offset) {
        TRY(told(s, s->ctx.ranks->broadcast(s->ctx.ranks, &asked, sizeof asked, 0), w->diag));
        TRY(join(s, w->storage, w->diag));
    }
    memcpy(dst, (const char *)s->joined + offset, n);
    return AMPC_OK;
}

ampc_status rt_session_end_wholes(rt_session *s, diag *d)
{
    int64_t asked = NO_MORE;
    if (!has_shards(s)) return AMPC_OK;
    forget(s);
    return told(s, s->ctx.ranks->broadcast(s->ctx.ranks, &asked, sizeof asked, 0), d);
}

ampc_status rt_session_serve_wholes(rt_session *s, diag *d)
{
    ampc_status status = AMPC_OK;
    if (!has_shards(s)) return AMPC_OK;
    for (int64_t asked = 0; status == AMPC_OK;) {
        status = told(s, s->ctx.ranks->broadcast(s->ctx.ranks, &asked, sizeof asked, 0), d);
        if (status == AMPC_OK && asked == NO_MORE) break;
        if (status == AMPC_OK) status = join(s, (int)asked, d);
    }
    forget(s);
    return status;
}

/* ---- cutting ----------------------------------------------------------------------------------- */

static ampc_status write_derived(rt_session *s, int i, const void *whole, diag *d)
{
    void *bytes = rt_alloc_block(slice_bytes(s, i));
    if (!bytes) return rt_no_memory(d);
    rt_storage_derive(s, i, whole, bytes);
    ampc_status status = rt_session_write(s, i, bytes, d);
    rt_free(bytes);
    return status;
}

/* Writes the slice of this rank, of a parameter that of its master and the low copy. */
static ampc_status cut(rt_session *s, int i, const void *whole, diag *d)
{
    const ir_storage *storage = storage_at(s, i);
    if (storage->kind != IR_PARAM) return write_derived(s, i, whole, d);
    TRY(write_derived(s, (int)ir_storage_owned(s->module, IR_STATE_master, storage)->id, whole, d));
    return write_derived(s, (int)ir_storage_owned(s->module, IR_STATE_low_copy, storage)->id, whole, d);
}

/* Keeps the tensor until the other ranks get it. */
static ampc_status keep_whole(rt_session *s, int i, const void *bytes, diag *d)
{
    if (!s->wholes) s->wholes = rt_alloc(s->module->storage.count, sizeof *s->wholes);
    if (!s->wholes) return rt_no_memory(d);
    rt_free(s->wholes[i]);
    s->wholes[i] = rt_alloc_block(whole_bytes(s, i));
    if (!s->wholes[i]) return rt_no_memory(d);
    memcpy(s->wholes[i], bytes, whole_bytes(s, i));
    return AMPC_OK;
}

ampc_status rt_session_write_whole(rt_session *s, int i, const void *bytes, diag *d)
{
    if (!storage_at(s, i)->shard) return rt_session_write(s, i, bytes, d);
    TRY(keep_whole(s, i, bytes, d));
    return cut(s, i, bytes, d);
}

static ampc_status receive_whole(rt_session *s, int i, diag *d)
{
    k_ranks *r = s->ctx.ranks;
    void *whole = rt_alloc_block(whole_bytes(s, i));
    if (!whole) return rt_no_memory(d);
    ampc_status status = told(s, r->broadcast(r, whole, whole_bytes(s, i), 0), d);
    if (status == AMPC_OK) status = cut(s, i, whole, d);
    rt_free(whole);
    return status;
}

ampc_status rt_session_share_whole(rt_session *s, int i, diag *d)
{
    k_ranks *r = s->ctx.ranks;
    int64_t written = s->wholes && s->wholes[i];
    TRY(told(s, r->broadcast(r, &written, sizeof written, 0), d));
    if (!written) return AMPC_OK;
    if (r->index) return receive_whole(s, i, d);
    ampc_status status = told(s, r->broadcast(r, s->wholes[i], whole_bytes(s, i), 0), d);
    rt_free(s->wholes[i]);
    s->wholes[i] = NULL;
    return status;
}

void rt_shards_close(rt_session *s)
{
    for (size_t i = 0; s->wholes && i < s->module->storage.count; i++) rt_free(s->wholes[i]);
    rt_free(s->wholes);
    forget(s);
}
