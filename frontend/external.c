/* external.c - finds, opens and checks external data files; one descriptor per location. */
#include "frontend/external.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* O_NONBLOCK: opening a FIFO must not wait; it is refused afterwards. */
enum { OPEN_FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };

typedef struct onnx_external {
    struct onnx_external *next;
    const char *location, *path;
    int fd;
    int64_t size;
} onnx_external;

/* What the entries of one tensor say. */
typedef struct claim {
    const char *location, *offset, *length;
} claim;

static __attribute__((format(printf, 5, 6))) ampc_status
refuse(const onnx_file *f, const char *tensor, diag *d, ampc_status code, const char *format, ...)
{
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return diag_error(d, code, DIAG_FILE(f->path), "external data of tensor '%.128s': %s", tensor,
                      message);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* NULL when the name may be looked up, else what is wrong with it. */
static const char *location_fault(const char *location)
{
    if (!*location) return "is empty";
    if (*location == '/') return "is an absolute path";
    if (strlen(location) >= PATH_MAX) return "is too long";
    for (const char *p = location; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) return "holds a control character";
    for (const char *p = location; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (!strncmp(p, "..", 2) && (p[2] == '/' || !p[2]))
            return "leads out of the model's folder by '..'";
    }
    return NULL;
}

/* One step of the fallback. A link to a folder is ELOOP, as a link to a file is, not ENOTDIR. */
static int open_component(int dir_fd, const char *name, bool last)
{
    int fd = openat(dir_fd, name, OPEN_FLAGS | O_NOFOLLOW | (last ? 0 : O_DIRECTORY));
    int error = errno;
    struct stat st;
    if (fd < 0 && !fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISLNK(st.st_mode))
        error = ELOOP;
    errno = error;
    return fd;
}

int onnx_open_by_components(int dir_fd, const char *location)
{
    char name[NAME_MAX + 1];
    int fd = dir_fd;
    for (const char *p = location; fd >= 0;) {
        p += strspn(p, "/");
        size_t n = strcspn(p, "/");
        bool last = !p[n + strspn(p + n, "/")];
        int next = -1;
        if (n > NAME_MAX) {
            errno = ENAMETOOLONG;
        } else {
            memcpy(name, p, n);
            name[n] = 0;
            next = open_component(fd, name, last);
        }
        int error = errno;
        if (fd != dir_fd) close(fd);
        errno = error;
        if (last || next < 0) return next;
        fd = next;
        p += n;
    }
    return fd;
}

static int open_beneath(int dir_fd, const char *location)
{
    struct open_how how = {.flags = (uint64_t)OPEN_FLAGS,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    for (int attempt = 0;; attempt++) {
        long fd = syscall(SYS_openat2, dir_fd, location, &how, sizeof how);
        if (fd >= 0) return (int)fd;
        if (errno == EAGAIN && attempt < 8) continue; /* a rename raced with the lookup */
        if (errno != ENOSYS && errno != EPERM) return -1;
        return onnx_open_by_components(dir_fd, location);
    }
}

static ampc_status open_folder(onnx_file *f, const char *tensor, diag *d)
{
    if (f->dir_fd >= 0) return AMPC_OK;
    if (f->in_memory)
        return refuse(f, tensor, d, AMPC_REJECTED,
                      "a model in memory has no folder that the data could lie in");
    const char *slash = strrchr(f->path, '/');
    char *folder = slash ? strndup(f->path, (size_t)(slash - f->path) + 1) : strdup(".");
    if (!folder) return refuse(f, tensor, d, AMPC_NO_MEMORY, "out of memory");
    f->dir_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = errno;
    free(folder);
    if (f->dir_fd >= 0) return AMPC_OK;
    return refuse(f, tensor, d, AMPC_IO, "the model's folder cannot be opened: %s",
                  strerrordesc_np(error));
}

static ampc_status open_data(onnx_file *f, const char *location, const char *tensor, diag *d,
                             int *fd, int64_t *size)
{
    *fd = open_beneath(f->dir_fd, location);
    if (*fd < 0 && (errno == EXDEV || errno == ELOOP))
        return refuse(f, tensor, d, AMPC_REJECTED,
                      "'%.128s' leads out of the model's folder by a link", location);
    if (*fd < 0)
        return refuse(f, tensor, d, AMPC_IO, "'%.128s' cannot be opened: %s", location,
                      strerrordesc_np(errno));
    struct stat st;
    if (fstat(*fd, &st) || !S_ISREG(st.st_mode)) {
        close(*fd);
        return refuse(f, tensor, d, AMPC_REJECTED, "'%.128s' is not a regular file", location);
    }
    *size = st.st_size;
    return AMPC_OK;
}

/* Allocates the record and its strings; NULL when memory is exhausted. */
static onnx_external *external_new(onnx_file *f, const char *location)
{
    jmp_buf guard;
    jmp_buf *before = arena_set_guard(f->arena, &guard);
    onnx_external *volatile e = NULL;
    if (!setjmp(guard)) {
        const char *slash = strrchr(f->path, '/');
        int folder = slash ? (int)(slash - f->path) + 1 : 0;
        onnx_external *made = arena_alloc(f->arena, sizeof *made);
        made->location = arena_strdup(f->arena, location);
        made->path = arena_printf(f->arena, "%.*s%s", folder, f->path, location);
        e = made;
    }
    arena_set_guard(f->arena, before);
    return e;
}

static ampc_status find_data(onnx_file *f, const char *location, const char *tensor, diag *d,
                             onnx_external **out)
{
    for (onnx_external *e = f->externals; e; e = e->next)
        if (!strcmp(e->location, location)) return *out = e, AMPC_OK;
    TRY(open_folder(f, tensor, d));
    onnx_external *e = external_new(f, location);
    if (!e) return refuse(f, tensor, d, AMPC_NO_MEMORY, "out of memory");
    TRY(open_data(f, location, tensor, d, &e->fd, &e->size));
    e->next = f->externals;
    f->externals = e;
    *out = e;
    return AMPC_OK;
}

/* ---- the entries of a tensor ----------------------------------------------------------------- */

/* Where the value of a key goes; NULL for a key that means nothing to us. */
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
        if (slot && *slot)
            return refuse(f, t->name, d, AMPC_REJECTED, "key '%s' is given twice", key);
        if (slot) {
            *slot = t->external_data[i]->value;
        } else if (strcmp(key, "checksum") && strcmp(key, "basepath") && !f->warned_unknown_key) {
            f->warned_unknown_key = true;
            TRY(diag_warning(d, DIAG_FILE(f->path),
                             "external data of tensor '%.128s': unknown key '%.128s' ignored",
                             t->name, key));
        }
    }
    return AMPC_OK;
}

/* Decimal digits only: no sign, no blanks. */
static bool parse_size(const char *text, int64_t *out)
{
    int64_t value = 0;
    if (!*text) return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return false;
        if (!checked_mul(value, 10, &value) || !checked_add(value, *text - '0', &value))
            return false;
    }
    *out = value;
    return true;
}

static ampc_status check_range(const onnx_file *f, const Onnx__TensorProto *t, const claim *c,
                               int64_t file_size, int64_t size, diag *d, int64_t *offset)
{
    int64_t length;
    *offset = 0;
    if (c->offset && !parse_size(c->offset, offset))
        return refuse(f, t->name, d, AMPC_REJECTED, "offset '%.32s' is no size", c->offset);
    if (*offset > file_size)
        return refuse(f, t->name, d, AMPC_REJECTED,
                      "offset %lld lies beyond the end of '%.128s' (%lld bytes)",
                      (long long)*offset, c->location, (long long)file_size);
    length = file_size - *offset;
    if (c->length && !parse_size(c->length, &length))
        return refuse(f, t->name, d, AMPC_REJECTED, "length '%.32s' is no size", c->length);
    if (length > file_size - *offset)
        return refuse(f, t->name, d, AMPC_REJECTED,
                      "%lld bytes at offset %lld do not fit in '%.128s' (%lld bytes)",
                      (long long)length, (long long)*offset, c->location, (long long)file_size);
    if (length != size)
        return refuse(f, t->name, d, AMPC_REJECTED,
                      "%lld bytes in '%.128s', but type and shape take %lld", (long long)length,
                      c->location, (long long)size);
    return AMPC_OK;
}

ampc_status onnx_external_locate(onnx_file *f, const Onnx__TensorProto *t, int64_t size, diag *d,
                                 onnx_range *out)
{
    claim c = {0};
    TRY(read_claim(f, t, d, &c));
    if (!c.location) return refuse(f, t->name, d, AMPC_REJECTED, "no location is given");
    const char *fault = location_fault(c.location);
    if (fault)
        return refuse(f, t->name, d, AMPC_REJECTED, "location '%.128s' %s", c.location, fault);
    onnx_external *e = NULL;
    TRY(find_data(f, c.location, t->name, d, &e));
    out->path = e->path;
    return check_range(f, t, &c, e->size, size, d, &out->offset);
}

ampc_status onnx_external_read(onnx_file *f, onnx_range range, size_t size, diag *d, void *out)
{
    const onnx_external *e = f->externals;
    while (e && strcmp(e->path, range.path) != 0) e = e->next;
    if (!e) return diag_error(d, AMPC_IO, DIAG_FILE(range.path), "was not opened for this model");
    return onnx_read(e->fd, e->path, range.offset, size, d, out);
}

void onnx_external_close(onnx_file *f)
{
    for (onnx_external *e = f->externals; e; e = e->next) close(e->fd);
    f->externals = NULL;
    if (f->dir_fd >= 0) close(f->dir_fd);
    f->dir_fd = -1;
}
