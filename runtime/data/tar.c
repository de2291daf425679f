/* tar.c - reads tar with libarchive through rt_io; one entry is read by starting an archive at its first header. */
#include "runtime/data/tar.h"
#include "runtime/backend/memory.h"
#include "runtime/data/libarchive.h"
#include "runtime/files/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 512, CHUNK = 1 << 16 };

typedef struct tar_reader {
    const rt_libarchive *lib; /* NULL: not opened yet */
    const char *path, *entry; /* for messages */
    diag *d;
    ampc_status code; /* of a malformed archive */
    const char *malformed;
    int fd;
    uint64_t at, size; /* of the file */
    char *chunk;
    struct archive *archive;
} tar_reader;

static ampc_status refuse(const tar_reader *r, ampc_status code, const char *what)
{
    return diag_error(r->d, code, diag_named(r->path, DIAG_ENTRY, r->entry), "%s", what);
}

/* Reports why libarchive failed. */
static ampc_status failed(const tar_reader *r)
{
    const int error = r->lib->archive_errno(r->archive);
    if (error == ENOMEM) return rt_no_memory(r->d);
    if (error == EIO) return refuse(r, AMPC_IO, "cannot read: Input/output error");
    return refuse(r, r->code, r->malformed);
}

/* ---- the archive as libarchive sees it ---- */

static la_ssize_t deliver(struct archive *a, void *user, const void **bytes)
{
    tar_reader *r = user;
    const size_t n = r->size - r->at < CHUNK ? (size_t)(r->size - r->at) : CHUNK;
    *bytes = r->chunk;
    if (n && !rt_io_pread(r->fd, r->chunk, n, r->at)) {
        r->lib->archive_set_error(a, errno == ENODATA ? ENODATA : EIO, "cannot read");
        return -1;
    }
    r->at += n;
    return (la_ssize_t)n;
}

/* Skipping stops at the end of the file, where libarchive notices that data are missing. */
static la_int64_t skip(struct archive *a, void *user, la_int64_t request)
{
    tar_reader *r = user;
    const uint64_t rest = r->size - r->at, n = (uint64_t)request < rest ? (uint64_t)request : rest;
    (void)a;
    r->at += n;
    return (la_int64_t)n;
}

static ampc_status begin(tar_reader *r, uint64_t at)
{
    TRY(rt_libarchive_open(r->d, &r->lib));
    TRY(rt_io_open_input(r->path, r->d, &r->fd, &r->size));
    r->at = at < r->size ? at : r->size;
    r->chunk = malloc(CHUNK);
    r->archive = r->lib->archive_read_new();
    if (!r->chunk || !r->archive || r->lib->archive_read_support_format_tar(r->archive) != ARCHIVE_OK)
        return rt_no_memory(r->d);
    r->lib->archive_read_set_read_callback(r->archive, deliver);
    r->lib->archive_read_set_skip_callback(r->archive, skip);
    r->lib->archive_read_set_callback_data(r->archive, r);
    if (r->lib->archive_read_open1(r->archive) == ARCHIVE_OK) return AMPC_OK;
    return failed(r);
}

static void end(tar_reader *r)
{
    if (r->archive) r->lib->archive_read_free(r->archive);
    if (r->fd >= 0) rt_io_close(r->fd);
    free(r->chunk);
}

/* ---- the index ---- */

/* In a locale without UTF-8, names of pax headers exist only as UTF-8. */
static const char *name_of(const tar_reader *r, struct archive_entry *e)
{
    const char *name = r->lib->archive_entry_pathname_utf8(e);
    return name ? name : r->lib->archive_entry_pathname(e);
}

static ampc_status read_data(tar_reader *r, void *dst, uint64_t size)
{
    for (uint64_t at = 0; at < size;) {
        la_ssize_t got = r->lib->archive_read_data(r->archive, (char *)dst + at, size - at);
        if (got <= 0) return failed(r);
        at += (uint64_t)got;
    }
    return AMPC_OK;
}

static ampc_status keep_text(tar_reader *r, rt_tar_entry *e)
{
    if (e->size > RT_TAR_MAX_KEPT) return refuse(r, AMPC_REJECTED, "the entry is too long");
    e->text = calloc(1, e->size + 1);
    return e->text ? read_data(r, e->text, e->size) : rt_no_memory(r->d);
}

/* Adds the entry whose header was read, unless it is a folder. */
static ampc_status add_entry(tar_reader *r, struct archive_entry *header, bool (*keep)(const char *name), rt_tar *out)
{
    const char *name = r->entry = name_of(r, header);
    if (r->lib->archive_entry_filetype(header) == AE_IFDIR) return AMPC_OK;
    if (!name) return refuse(r, AMPC_REJECTED, "an entry has no name");
    if (r->lib->archive_entry_filetype(header) != AE_IFREG || r->lib->archive_entry_hardlink(header))
        return refuse(r, AMPC_REJECTED, "the entry is not a regular file");
    if (r->lib->archive_entry_size(header) > RT_TAR_MAX_ENTRY) return refuse(r, AMPC_REJECTED, "the entry is too long");
    if (!(out->count & (out->count - 1))) { /* a power of two: full */
        rt_tar_entry *more = realloc(out->entries, (out->count ? 2 * out->count : 1) * sizeof *more);
        if (!more) return rt_no_memory(r->d);
        out->entries = more;
    }
    rt_tar_entry *e = &out->entries[out->count];
    *e = (rt_tar_entry){.name = strdup(name),
                        .header = (uint64_t)r->lib->archive_read_header_position(r->archive),
                        .size = (uint64_t)r->lib->archive_entry_size(header)};
    if (!e->name) return rt_no_memory(r->d);
    out->count++;
    return keep(name) ? keep_text(r, e) : AMPC_OK;
}

/* An archive that was cut between two entries lacks the zero blocks at its end. */
static ampc_status check_end(tar_reader *r)
{
    char last[BLOCK] = {0};
    static const char zeros[BLOCK];
    r->entry = NULL;
    if (r->size < BLOCK || !rt_io_pread(r->fd, last, BLOCK, r->size - BLOCK)) return refuse(r, AMPC_IO, "cannot read");
    if (memcmp(last, zeros, BLOCK) == 0) return AMPC_OK;
    return refuse(r, AMPC_REJECTED, "the archive is truncated (no end marker)");
}

static ampc_status index_entries(tar_reader *r, bool (*keep)(const char *name), rt_tar *out)
{
    for (;;) {
        struct archive_entry *header;
        const int got = r->lib->archive_read_next_header(r->archive, &header);
        if (got == ARCHIVE_EOF) return check_end(r);
        if (got != ARCHIVE_OK && got != ARCHIVE_WARN) return failed(r);
        r->malformed = "the archive is damaged or truncated in this entry or after it";
        TRY(add_entry(r, header, keep, out));
        r->entry = out->count ? out->entries[out->count - 1].name : NULL;
    }
}

ampc_status rt_tar_open(const char *path, bool (*keep)(const char *name), diag *d, rt_tar *out)
{
    rt_tar t = {.path = strdup(path)};
    tar_reader r = {.path = path, .d = d, .fd = -1, .code = AMPC_REJECTED};
    r.malformed = "not an uncompressed tar archive (unpack .tar.gz and others first)";
    ampc_status s = t.path ? begin(&r, 0) : rt_no_memory(d);
    if (s == AMPC_OK) s = index_entries(&r, keep, &t);
    end(&r);
    if (s == AMPC_OK) *out = t;
    else rt_tar_clear(&t);
    return s;
}

void rt_tar_clear(rt_tar *t)
{
    for (size_t i = 0; i < t->count; i++) {
        free(t->entries[i].name);
        free(t->entries[i].text);
    }
    free(t->entries);
    free(t->path);
    *t = (rt_tar){0};
}

/* ---- one entry ---- */

static ampc_status read_entry(tar_reader *r, const rt_tar_entry *e, void **bytes)
{
    struct archive_entry *header = NULL;
    TRY(begin(r, e->header));
    const int got = r->lib->archive_read_next_header(r->archive, &header);
    if (got != ARCHIVE_OK && got != ARCHIVE_WARN) return failed(r);
    const char *name = name_of(r, header);
    if (!name || strcmp(name, e->name) != 0 || (uint64_t)r->lib->archive_entry_size(header) != e->size)
        return refuse(r, AMPC_IO, "the archive has changed");
    *bytes = malloc(e->size ? e->size : 1);
    return *bytes ? read_data(r, *bytes, e->size) : rt_no_memory(r->d);
}

ampc_status rt_tar_read(const rt_tar *t, size_t index, diag *d, void **bytes)
{
    tar_reader r = {.path = t->path, .entry = t->entries[index].name, .d = d, .fd = -1, .code = AMPC_IO};
    r.malformed = "the archive became shorter, or has changed";
    *bytes = NULL;
    ampc_status s = read_entry(&r, &t->entries[index], bytes);
    end(&r);
    if (s == AMPC_OK) return s;
    free(*bytes);
    *bytes = NULL;
    return s;
}
