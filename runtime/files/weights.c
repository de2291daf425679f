/* weights.c - initial values of storage: from the module, a range of a file, or the safetensors sidecar.
 *
 * A file is opened when a storage first needs it. It stays open, unless too many others are: then each replaces the
 * last one. The sidecar must be the one that was written with the module (by its recorded hash), and each of its
 * tensors is verified when read. */
#include "runtime/files/weights.h"
#include "runtime/backend/alloc.h"
#include "runtime/files/io.h"
#include "runtime/files/safetensors.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct rt_weights {
    const ir_module *module;
    char *dir;
    diag *diag;
    rt_safetensors *sidecar;
    char *sidecar_path;
    struct file {
        char *path;
        int fd;
        uint64_t size;
    } files[RT_WEIGHT_FILES];
    int n_files;
};

typedef struct file file;

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

static void close_last(rt_weights *w)
{
    const file *f = &w->files[--w->n_files];
    rt_io_close(f->fd);
    rt_free(f->path);
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

static const file *find_file(const rt_weights *w, const char *full_path)
{
    for (int i = 0; i < w->n_files; i++)
        if (strcmp(w->files[i].path, full_path) == 0) return &w->files[i];
    return NULL;
}

/* Opens the file, which owns its path on success. */
static ampc_status open_file(rt_weights *w, const char *path, char *full_path, const file **out)
{
    file f = {.path = full_path};
    TRY(open_named(w, path, full_path, &f.fd));
    if (!rt_io_size(f.fd, &f.size)) {
        ampc_status status = diag_errno(w->diag, DIAG_FILE(full_path), "cannot determine the size");
        rt_io_close(f.fd);
        return status;
    }
    if (w->n_files == RT_WEIGHT_FILES) close_last(w);
    w->files[w->n_files] = f;
    *out = &w->files[w->n_files++];
    return AMPC_OK;
}

static ampc_status use_file(rt_weights *w, const char *path, const file **out)
{
    char *full_path = resolve(w->dir, path);
    if (!full_path) return no_memory(w->diag);
    *out = find_file(w, full_path);
    ampc_status status = *out ? AMPC_OK : open_file(w, path, full_path, out);
    if (status != AMPC_OK || (*out)->path != full_path) rt_free(full_path);
    return status;
}

/* Finds the file that the range of the storage is in. */
static ampc_status find_range(rt_weights *w, const ir_storage *s, const file **out)
{
    TRY(use_file(w, s->data.path, out));
    const uint64_t size = (*out)->size, offset = (uint64_t)s->data.offset, length = (uint64_t)s->data.length;
    if (s->data.offset >= 0 && offset <= size && length <= size - offset) return AMPC_OK;
    return diag_error(w->diag, AMPC_REJECTED, DIAG_FILE((*out)->path),
                      "'%s' should have %" PRId64 " bytes at offset %" PRId64 ", but the file has %" PRIu64, s->name,
                      s->data.length, s->data.offset, size);
}

static ampc_status read_range(rt_weights *w, const ir_storage *s, uint64_t from, void *dst, size_t n)
{
    const file *f;
    if (ir_data_in_image(w->module, &s->data)) {
        if (n) memcpy(dst, (const char *)w->module->image.bytes + (size_t)s->data.offset + from, n);
        return AMPC_OK;
    }
    TRY(find_range(w, s, &f));
    if (rt_io_pread(f->fd, dst, n, (uint64_t)s->data.offset + from)) return AMPC_OK;
    return diag_errno(w->diag, DIAG_FILE(f->path), "cannot read");
}

ampc_status rt_weights_read_part(void *weights, const ir_storage *s, uint64_t from, void *dst, size_t n)
{
    rt_weights *w = weights;
    if (s->data.kind == IR_DATA_FILE && from + n <= (uint64_t)s->data.length) return read_range(w, s, from, dst, n);
    return diag_error(w->diag, AMPC_REJECTED, DIAG_FILE(s->data.path),
                      "'%s' has %" PRId64 " bytes in its file, not %zu at %" PRIu64, s->name, s->data.length, n, from);
}

static ampc_status check_length(const rt_weights *w, const ir_storage *s)
{
    const int64_t bytes = ir_storage_bytes(s);
    if (s->data.length == bytes) return AMPC_OK;
    return diag_error(w->diag, AMPC_REJECTED, DIAG_FILE(s->data.path),
                      "'%s' needs %" PRId64 " bytes, its range has %" PRId64, s->name, bytes, s->data.length);
}

static ampc_status read_file(rt_weights *w, const ir_storage *s, void *dst)
{
    TRY(check_length(w, s));
    return read_range(w, s, 0, dst, (size_t)ir_storage_bytes(s));
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

static ampc_status find_in_sidecar(rt_weights *w, const ir_storage *s, const rt_tensor_entry **out)
{
    TRY(open_sidecar(w, s));
    const rt_tensor_entry *e = *out = rt_safetensors_find(w->sidecar, s->name);
    if (!e)
        return diag_error(w->diag, AMPC_REJECTED, DIAG_FILE(w->sidecar_path), "the file has no tensor '%s'", s->name);
    if (!same_type(e, &s->type))
        return diag_error(w->diag, AMPC_REJECTED, DIAG_FILE(w->sidecar_path),
                          "tensor '%s' is not of the model's type: %s of rank %d instead of %s of rank %d", s->name,
                          e->type, e->rank, ir_dtype_name(s->type.dtype), s->type.rank);
    return AMPC_OK;
}

static ampc_status read_sidecar(rt_weights *w, const ir_storage *s, void *dst)
{
    const rt_tensor_entry *e;
    TRY(find_in_sidecar(w, s, &e));
    return rt_safetensors_read(w->sidecar, e, dst);
}

/* ---- reading --------------------------------------------------------------------------------- */

ampc_status rt_weights_open(const ir_module *m, const char *dir, diag *d, rt_weights **out)
{
    rt_weights *w = rt_alloc(1, sizeof *w);
    if (!w) return no_memory(d);
    *w = (rt_weights){.module = m, .dir = dir ? resolve(NULL, dir) : NULL, .diag = d};
    if (dir && !w->dir) {
        rt_free(w);
        return no_memory(d);
    }
    *out = w;
    return AMPC_OK;
}

void rt_weights_close(rt_weights *w)
{
    if (!w) return;
    while (w->n_files) close_last(w);
    rt_safetensors_close(w->sidecar);
    rt_free(w->sidecar_path);
    rt_free(w->dir);
    rt_free(w);
}

void rt_weights_report_to(rt_weights *w, diag *d)
{
    w->diag = d;
    if (w->sidecar) rt_safetensors_report_to(w->sidecar, d);
}

ampc_status rt_weights_check(rt_weights *w, const ir_storage *s)
{
    const rt_tensor_entry *e;
    const file *f;
    if (s->data.kind == IR_DATA_SIDECAR) {
        TRY(find_in_sidecar(w, s, &e));
        return rt_safetensors_verify(w->sidecar, e);
    }
    if (s->data.kind != IR_DATA_FILE) return AMPC_OK;
    TRY(check_length(w, s));
    return ir_data_in_image(w->module, &s->data) ? AMPC_OK : find_range(w, s, &f);
}

bool rt_weights_hold(const rt_weights *w, const ir_storage *s)
{
    const bool by_name = s->data.kind == IR_DATA_FILE && !ir_data_in_image(w->module, &s->data);
    return !by_name || w->n_files < RT_WEIGHT_FILES;
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
typedef struct copied_storage {
    rt_weights *weights;
    const ir_storage *storage;
} copied_storage;

static ampc_status read_piece(void *user, uint64_t offset, void *dst, size_t n)
{
    const copied_storage *s = user;
    return read_range(s->weights, s->storage, offset, dst, n);
}

/* `buffer`: receives the bytes of a tensor of the old sidecar, which can only be read in full. */
static ampc_status add_storage(rt_safetensors_writer *writer, copied_storage *s, void **buffer)
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

static ampc_status add_all(const ir_module *m, bool refer, rt_safetensors_writer *writer, copied_storage *copied,
                           void **buffers)
{
    for (size_t i = 0; i < m->storage.count; i++)
        if (goes_to_sidecar(m->storage.items[i], refer)) TRY(add_storage(writer, &copied[i], &buffers[i]));
    return AMPC_OK;
}

static ampc_status write_file(const ir_module *m, const char *path, bool refer, rt_weights *reader,
                              copied_storage *copied, void **buffers, char *hash, rt_atomic_file **out)
{
    rt_safetensors_writer *writer;
    if (rt_safetensors_create(reader->diag, &writer) != AMPC_OK) return no_memory(reader->diag);
    for (size_t i = 0; i < m->storage.count; i++) copied[i] = (copied_storage){reader, m->storage.items[i]};
    ampc_status status = add_all(m, refer, writer, copied, buffers);
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
    copied_storage *copied = rt_alloc(m->storage.count + 1, sizeof *copied);
    void **buffers = rt_alloc(m->storage.count + 1, sizeof *buffers);
    ampc_status status = copied && buffers ? AMPC_OK : no_memory(d);
    if (status == AMPC_OK) status = write_file(m, path, refer, reader, copied, buffers, hash, out);
    for (size_t i = 0; buffers && i < m->storage.count; i++) rt_free(buffers[i]);
    rt_free(buffers);
    rt_free(copied);
    rt_weights_close(reader);
    if (status == AMPC_OK && !adopt_sidecar(m, path, refer, hash)) {
        rt_atomic_abort(*out);
        *out = NULL;
        status = no_memory(d);
    }
    return status;
}
