/* weights.c - initial values of storage: from the module, a range of a file, or the safetensors sidecar.
 *
 * A file is opened when a storage first needs it and stays open while consecutive storages are in it. The sidecar
 * must be the one that was written with the module (by its recorded hash), and each of its tensors is verified when
 * read. */
#include "runtime/files/weights.h"
#include "runtime/backend/alloc.h"
#include "runtime/files/io.h"
#include "runtime/files/safetensors.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct rt_weights {
    const ir_module *module;
    const char *dir;
    diag *diag;
    rt_safetensors *sidecar;
    char *sidecar_path;
    char *path; /* of the open file */
    int fd;     /* -1: none */
    uint64_t size;
};

/* Allocated with rt_alloc; NULL if memory is exhausted. */
static char *resolve(const char *dir, const char *path)
{
    size_t n = strlen(path) + (dir ? strlen(dir) : 0) + 2;
    char *full_path = rt_alloc(n, 1);
    if (!full_path) return NULL;
    if (path[0] == '/' || !dir) snprintf(full_path, n, "%s", path);
    else snprintf(full_path, n, "%s/%s", dir, path);
    return full_path;
}

static ampc_status no_memory(diag *d)
{
    return diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory for reading weights");
}

/* ---- ranges of files ------------------------------------------------------------------------- */

static void close_file(rt_weights *w)
{
    if (w->fd >= 0) rt_io_close(w->fd);
    w->fd = -1;
    rt_free(w->path);
    w->path = NULL;
}

static ampc_status io_error(const rt_weights *w, const char *what)
{
    return diag_errno(w->diag, DIAG_FILE(w->path), what);
}

/* Opens a file that the module names. A file named by a module text must be in the text's folder; the import has
 * already checked the paths of an imported model. */
static ampc_status open_named(const rt_weights *w, const char *name, const char *path, int *fd)
{
    const char *why;
    *fd = -1;
    if (!w->module->from_text) {
        uint64_t size;
        return rt_io_open_input(path, w->diag, fd, &size);
    }
    ampc_status s = rt_io_open_beneath(w->dir, name, fd, &why);
    if (s == AMPC_REJECTED)
        return diag_error(w->diag, s, DIAG_FILE(name), "the name %s; the files of a module must be in its folder", why);
    return s == AMPC_OK ? s : diag_errno(w->diag, DIAG_FILE(path), "cannot open");
}

static ampc_status use_file(rt_weights *w, const char *path)
{
    char *full_path = resolve(w->dir, path);
    if (!full_path) return no_memory(w->diag);
    if (w->fd >= 0 && strcmp(full_path, w->path) == 0) {
        rt_free(full_path);
        return AMPC_OK;
    }
    close_file(w);
    w->path = full_path;
    TRY(open_named(w, path, full_path, &w->fd));
    return rt_io_size(w->fd, &w->size) ? AMPC_OK : io_error(w, "cannot determine the size");
}

static ampc_status read_range(rt_weights *w, const ir_storage *s, uint64_t from, void *dst, size_t n)
{
    if (ir_data_in_image(w->module, &s->data)) {
        if (n) memcpy(dst, (const char *)w->module->image.bytes + (size_t)s->data.offset + from, n);
        return AMPC_OK;
    }
    TRY(use_file(w, s->data.path));
    if (s->data.offset < 0 || (uint64_t)s->data.offset > w->size ||
        (uint64_t)s->data.length > w->size - (uint64_t)s->data.offset)
        return diag_error(w->diag, AMPC_REJECTED, DIAG_FILE(w->path),
                          "'%s' should have %" PRId64 " bytes at offset %" PRId64 ", but the file has %" PRIu64,
                          s->name, s->data.length, s->data.offset, w->size);
    return rt_io_pread(w->fd, dst, n, (uint64_t)s->data.offset + from) ? AMPC_OK : io_error(w, "cannot read");
}

ampc_status rt_weights_read_part(void *weights, const ir_storage *s, uint64_t from, void *dst, size_t n)
{
    rt_weights *w = weights;
    if (s->data.kind == IR_DATA_FILE && from + n <= (uint64_t)s->data.length) return read_range(w, s, from, dst, n);
    return diag_error(w->diag, AMPC_REJECTED, DIAG_FILE(s->data.path),
                      "'%s' has %" PRId64 " bytes in its file, not %zu at %" PRIu64, s->name, s->data.length, n, from);
}

static ampc_status read_file(rt_weights *w, const ir_storage *s, void *dst)
{
    int64_t bytes = ir_storage_bytes(s);
    if (s->data.length != bytes)
        return diag_error(w->diag, AMPC_REJECTED, DIAG_FILE(s->data.path),
                          "'%s' needs %" PRId64 " bytes, its range has %" PRId64, s->name, bytes, s->data.length);
    return read_range(w, s, 0, dst, (size_t)bytes);
}

/* ---- the sidecar ----------------------------------------------------------------------------- */

static ampc_status open_sidecar(rt_weights *w, const ir_storage *s)
{
    const ir_module *m = w->module;
    if (w->sidecar) return AMPC_OK;
    if (!m->weights_path)
        return diag_error(w->diag, AMPC_REJECTED, DIAG_NOWHERE, "the module names no weights file for '%s'", s->name);
    if (!w->sidecar_path) w->sidecar_path = resolve(w->dir, m->weights_path);
    if (!w->sidecar_path) return no_memory(w->diag);
    int fd;
    TRY(open_named(w, m->weights_path, w->sidecar_path, &fd));
    TRY(rt_safetensors_adopt(fd, w->sidecar_path, RT_VERIFY_RECORDED, w->diag, &w->sidecar));
    const char *hash = rt_safetensors_hash(w->sidecar);
    if (!m->weights_hash || strcmp(m->weights_hash, hash) == 0) return AMPC_OK;
    ampc_status status = diag_error(w->diag, AMPC_REJECTED, DIAG_FILE(w->sidecar_path),
                                    "this is not the weights file of the model: its hash is %s, recorded is %s", hash,
                                    m->weights_hash);
    rt_safetensors_close(w->sidecar);
    w->sidecar = NULL;
    return status;
}

static bool same_type(const rt_tensor_entry *e, const ir_type *t)
{
    if (e->dtype != t->dtype || e->rank != t->rank) return false;
    for (int i = 0; i < t->rank; i++)
        if (e->dims[i] != t->dims[i]) return false;
    return true;
}

static ampc_status read_sidecar(rt_weights *w, const ir_storage *s, void *dst)
{
    TRY(open_sidecar(w, s));
    const rt_tensor_entry *e = rt_safetensors_find(w->sidecar, s->name);
    if (!e)
        return diag_error(w->diag, AMPC_REJECTED, DIAG_FILE(w->sidecar_path), "the file has no tensor '%s'", s->name);
    if (!same_type(e, &s->type))
        return diag_error(w->diag, AMPC_REJECTED, DIAG_FILE(w->sidecar_path),
                          "tensor '%s' is not of the model's type: %s of rank %d instead of %s of rank %d", s->name,
                          e->type, e->rank, ir_dtype_name(s->type.dtype), s->type.rank);
    return rt_safetensors_read(w->sidecar, e, dst);
}

/* ---- reading --------------------------------------------------------------------------------- */

ampc_status rt_weights_open(const ir_module *m, const char *dir, diag *d, rt_weights **out)
{
    rt_weights *w = rt_alloc(1, sizeof *w);
    if (!w) return no_memory(d);
    *w = (rt_weights){.module = m, .dir = dir, .diag = d, .fd = -1};
    *out = w;
    return AMPC_OK;
}

void rt_weights_close(rt_weights *w)
{
    if (!w) return;
    close_file(w);
    rt_safetensors_close(w->sidecar);
    rt_free(w->sidecar_path);
    rt_free(w);
}

ampc_status rt_weights_read(rt_weights *w, const ir_storage *s, void *dst)
{
    size_t bytes = (size_t)ir_storage_bytes(s);
    switch (s->data.kind) {
    case IR_DATA_ZERO: memset(dst, 0, bytes); return AMPC_OK;
    case IR_DATA_INLINE:
        if (bytes) memcpy(dst, s->data.bytes, bytes);
        return AMPC_OK;
    case IR_DATA_FILE: return read_file(w, s, dst);
    case IR_DATA_SIDECAR: return read_sidecar(w, s, dst);
    }
    assert(!"no such data"); /* the parser and the importer create only these kinds */
    return AMPC_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Small tensors stay in the text, where they can be read. */
enum { INLINE_ELEMENTS = 16 };

static bool goes_to_sidecar(const ir_storage *s, bool refer)
{
    const ir_data_kind kind = s->data.kind;
    int64_t elements = ir_storage_bytes(s) / (int64_t)ir_dtype_size(s->type.dtype);
    if (kind == IR_DATA_FILE) return !refer;
    return kind == IR_DATA_SIDECAR || (kind == IR_DATA_INLINE && elements > INLINE_ELEMENTS);
}

/* A storage that is copied from its file in pieces. */
typedef struct source {
    rt_weights *weights;
    const ir_storage *storage;
} source;

static ampc_status read_piece(void *user, uint64_t offset, void *dst, size_t n)
{
    const source *s = user;
    return read_range(s->weights, s->storage, offset, dst, n);
}

/* `buffer`: receives the bytes of a tensor of the old sidecar, which can only be read in full. */
static ampc_status add_storage(rt_safetensors_writer *writer, source *s, void **buffer)
{
    const ir_storage *storage = s->storage;
    const ir_type *t = &storage->type;
    if (storage->data.kind == IR_DATA_FILE) {
        if (storage->data.length != ir_storage_bytes(storage)) return read_file(s->weights, storage, NULL);
        return rt_safetensors_add_source(writer, storage->name, t->dtype, t->rank, t->dims, read_piece, s);
    }
    *buffer = rt_alloc_block((size_t)ir_storage_bytes(storage));
    if (!*buffer) return no_memory(s->weights->diag);
    TRY(rt_weights_read(s->weights, storage, *buffer));
    return rt_safetensors_add(writer, storage->name, t->dtype, t->rank, t->dims, *buffer);
}

static ampc_status add_all(const ir_module *m, bool refer, rt_safetensors_writer *writer, source *sources,
                           void **buffers)
{
    for (size_t i = 0; i < m->storage.count; i++)
        if (goes_to_sidecar(m->storage.items[i], refer)) TRY(add_storage(writer, &sources[i], &buffers[i]));
    return AMPC_OK;
}

static ampc_status write_file(const ir_module *m, const char *path, bool refer, rt_weights *reader, source *sources,
                              void **buffers, char *hash, rt_atomic_file **out)
{
    rt_safetensors_writer *writer;
    if (rt_safetensors_create(reader->diag, &writer) != AMPC_OK) return no_memory(reader->diag);
    for (size_t i = 0; i < m->storage.count; i++) sources[i] = (source){reader, m->storage.items[i]};
    ampc_status status = add_all(m, refer, writer, sources, buffers);
    if (status == AMPC_OK) return rt_safetensors_write(writer, path, hash, out);
    rt_safetensors_discard(writer);
    return status;
}

/* Makes the module refer to the new sidecar. False: out of memory, nothing has changed. */
static bool adopt_sidecar(ir_module *m, const char *path, bool refer, const char *hash)
{
    jmp_buf guard;
    jmp_buf *before = arena_set_guard(m->arena, &guard);
    const char *slash = strrchr(path, '/');
    bool done = false;
    if (!setjmp(guard)) {
        const char *name = arena_strdup(m->arena, slash ? slash + 1 : path);
        m->weights_hash = arena_strdup(m->arena, hash);
        m->weights_path = name;
        for (size_t i = 0; i < m->storage.count; i++)
            if (goes_to_sidecar(m->storage.items[i], refer))
                m->storage.items[i]->data = (ir_data){.kind = IR_DATA_SIDECAR};
        done = true;
    }
    arena_set_guard(m->arena, before);
    return done;
}

ampc_status rt_weights_write(ir_module *m, const char *dir, const char *path, bool refer, diag *d, rt_atomic_file **out)
{
    *out = NULL;
    bool any = !refer;
    for (size_t i = 0; i < m->storage.count; i++) any |= goes_to_sidecar(m->storage.items[i], refer);
    if (!any) return AMPC_OK;
    rt_weights *reader = NULL;
    TRY(rt_weights_open(m, dir, d, &reader));
    char hash[33];
    source *sources = rt_alloc(m->storage.count + 1, sizeof *sources);
    void **buffers = rt_alloc(m->storage.count + 1, sizeof *buffers);
    ampc_status status = sources && buffers ? AMPC_OK : no_memory(d);
    if (status == AMPC_OK) status = write_file(m, path, refer, reader, sources, buffers, hash, out);
    for (size_t i = 0; buffers && i < m->storage.count; i++) rt_free(buffers[i]);
    rt_free(buffers);
    rt_free(sources);
    rt_weights_close(reader);
    if (status == AMPC_OK && !adopt_sidecar(m, path, refer, hash)) {
        rt_atomic_abort(*out);
        *out = NULL;
        status = no_memory(d);
    }
    return status;
}
