/* external.c - finds and checks external data files; keeps one descriptor per location. */
#include "frontend/read/external.h"

#include "ir/base/beneath.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct onnx_external {
    struct onnx_external *next;
    const char *folder, *location, *path;
    int fd;
    int64_t size;
} onnx_external;

/* The external data entries of a tensor. */
typedef struct claim {
    const char *location, *offset, *length;
} claim;

static __attribute__((format(printf, 5, 6))) ampc_status refuse(const onnx_file *f, const char *tensor, diag *d,
                                                                ampc_status code, const char *format, ...)
{
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return diag_error(d, code, DIAG_FILE(f->path), "external data of tensor '%.128s': %s", tensor, message);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Length of the folder in `path`, including the final '/'; 0 if there is none. */
static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

static ampc_status open_data(onnx_file *f, onnx_external *e, const char *tensor, diag *d)
{
    const char *why;
    ampc_status s = beneath_open(e->folder, e->location, &e->fd, &e->size, &why);
    if (s == AMPC_IO) return refuse(f, tensor, d, s, "'%.128s' %s: %s", e->location, why, strerrordesc_np(errno));
    return s == AMPC_OK ? s : refuse(f, tensor, d, s, "'%.128s' %s", e->location, why);
}

/* Allocates the record and its strings; NULL if out of memory. */
static onnx_external *external_new(onnx_file *f, const char *location)
{
    jmp_buf guard;
    jmp_buf *before = arena_set_guard(f->arena, &guard);
    onnx_external *volatile e = NULL;
    if (!setjmp(guard)) {
        onnx_external *made = arena_alloc(f->arena, sizeof *made);
        made->location = arena_strdup(f->arena, location);
        made->folder = arena_strndup(f->arena, f->path, folder_length(f->path));
        made->path = arena_printf(f->arena, "%s%s", made->folder, location);
        e = made;
    }
    arena_set_guard(f->arena, before);
    return e;
}

static ampc_status find_data(onnx_file *f, const char *location, const char *tensor, diag *d, onnx_external **out)
{
    for (onnx_external *e = f->externals; e; e = e->next)
        if (!strcmp(e->location, location)) return *out = e, AMPC_OK;
    if (f->in_memory && !f->has_folder)
        return refuse(f, tensor, d, AMPC_REJECTED, "a model in memory has no folder to search for it");
    onnx_external *e = external_new(f, location);
    if (!e) return refuse(f, tensor, d, AMPC_NO_MEMORY, "out of memory");
    TRY(open_data(f, e, tensor, d));
    e->next = f->externals;
    f->externals = e;
    *out = e;
    return AMPC_OK;
}

/* ---- the entries of a tensor ----------------------------------------------------------------- */

/* The place for the value of a key; NULL for an unknown key. */
static const char **claim_slot(claim *c, const char *key)
{
    if (!strcmp(key, "location")) return &c->location;
    if (!strcmp(key, "offset")) return &c->offset;
    if (!strcmp(key, "length")) return &c->length;
    return NULL;
}

static ampc_status read_claim(onnx_file *f, const Onnx__TensorProto *t, diag *d, claim *c)
{
    for (size_t i = 0; i < t->n_external_data; i++) {
        const char *key = t->external_data[i]->key;
        const char **slot = claim_slot(c, key);
        if (slot && *slot) return refuse(f, t->name, d, AMPC_REJECTED, "duplicate key '%s'", key);
        if (slot) {
            *slot = t->external_data[i]->value;
        } else if (strcmp(key, "checksum") && strcmp(key, "basepath") && !f->warned_unknown_key) {
            f->warned_unknown_key = true;
            TRY(diag_warning(d, DIAG_FILE(f->path), "external data of tensor '%.128s': unknown key '%.128s' ignored",
                             t->name, key));
        }
    }
    return AMPC_OK;
}

/* Accepts decimal digits only: no sign, no blanks. */
static bool parse_size(const char *text, int64_t *out)
{
    int64_t value = 0;
    if (!*text) return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return false;
        if (!checked_mul(value, 10, &value) || !checked_add(value, *text - '0', &value)) return false;
    }
    *out = value;
    return true;
}

static ampc_status check_range(const onnx_file *f, const Onnx__TensorProto *t, const claim *c, int64_t file_size,
                               int64_t size, diag *d, int64_t *offset)
{
    int64_t length;
    *offset = 0;
    if (c->offset && !parse_size(c->offset, offset))
        return refuse(f, t->name, d, AMPC_REJECTED, "invalid offset '%.32s'", c->offset);
    if (*offset > file_size)
        return refuse(f, t->name, d, AMPC_REJECTED, "offset %lld is beyond the end of '%.128s' (%lld bytes)",
                      (long long)*offset, c->location, (long long)file_size);
    length = file_size - *offset;
    if (c->length && !parse_size(c->length, &length))
        return refuse(f, t->name, d, AMPC_REJECTED, "invalid length '%.32s'", c->length);
    if (length > file_size - *offset)
        return refuse(f, t->name, d, AMPC_REJECTED, "%lld bytes at offset %lld do not fit in '%.128s' (%lld bytes)",
                      (long long)length, (long long)*offset, c->location, (long long)file_size);
    if (length != size)
        return refuse(f, t->name, d, AMPC_REJECTED, "%lld bytes in '%.128s', but type and shape require %lld",
                      (long long)length, c->location, (long long)size);
    return AMPC_OK;
}

ampc_status onnx_external_locate(onnx_file *f, const Onnx__TensorProto *t, int64_t size, diag *d, onnx_range *out)
{
    claim c = {0};
    TRY(read_claim(f, t, d, &c));
    if (!c.location) return refuse(f, t->name, d, AMPC_REJECTED, "the location is missing");
    const char *fault = beneath_name_fault(c.location);
    if (fault) return refuse(f, t->name, d, AMPC_REJECTED, "location '%.128s' %s", c.location, fault);
    onnx_external *e = NULL;
    TRY(find_data(f, c.location, t->name, d, &e));
    out->path = e->path;
    return check_range(f, t, &c, e->size, size, d, &out->offset);
}

ampc_status onnx_external_read(onnx_file *f, onnx_range range, size_t size, diag *d, void *out)
{
    const onnx_external *e = f->externals;
    while (e && strcmp(e->path, range.path) != 0) e = e->next;
    if (!e) return diag_error(d, AMPC_IO, DIAG_FILE(range.path), "is not an external data file of this model");
    return onnx_read(e->fd, e->path, range.offset, size, d, out);
}

void onnx_external_close(onnx_file *f)
{
    for (onnx_external *e = f->externals; e; e = e->next) close(e->fd);
    f->externals = NULL;
}
