/* npz.c - .npz: reading with libzip, writing stored members with a minimal writer.
 *
 * The writer emits a local header and the .npy bytes of each member, then the central directory and its end records.
 * ZIP64 fields (APPNOTE 4.3.9 - 4.3.16) are written if a size or offset needs them. */
#include "runtime/data/npz.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/io.h"
#include "runtime/backend/memory.h"
#include "runtime/data/npy.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>
#include <zlib.h>

/* ---- reading ---- */

typedef struct npz_reader {
    const char *path;
    diag *d;
    ir_dtype u2_as;
    zip_t *zip;
    zip_file_t *member;
    const char *name; /* of the current member */
} npz_reader;

static ampc_status refuse(const npz_reader *r, const char *what)
{
    return diag_error(r->d, AMPC_REJECTED, diag_named(r->path, DIAG_ENTRY, r->name), "%s", what);
}

/* Reports memory exhaustion, a system error, or invalid content; `content` describes the latter. */
static ampc_status zip_failed(const npz_reader *r, zip_error_t *e, const char *content)
{
    /* Where libzip reports a failed allocation as a malformed archive, errno is still ENOMEM. */
    if (errno == ENOMEM) return rt_no_memory(r->d);
    switch (zip_error_code_zip(e)) {
    case ZIP_ER_MEMORY: return rt_no_memory(r->d);
    case ZIP_ER_NOENT:
    case ZIP_ER_OPEN:
    case ZIP_ER_READ:
    case ZIP_ER_SEEK:
    case ZIP_ER_TELL:
    case ZIP_ER_EOF: /* shorter than the directory says; libzip does not record why a read was short */
        return diag_error(r->d, AMPC_IO, DIAG_FILE(r->path), "cannot read: %s", zip_error_strerror(e));
    default: return refuse(r, content ? content : zip_error_strerror(e));
    }
}

static ampc_status read_member(void *user, void *dst, size_t n)
{
    npz_reader *r = user;
    for (char *at = dst; n > 0;) {
        zip_int64_t got = zip_fread(r->member, at, n);
        if (got <= 0)
            return zip_failed(r, zip_file_get_error(r->member), "the member cannot be unpacked (damaged or cut)");
        at += got;
        n -= (size_t)got;
    }
    return AMPC_OK;
}

/* libzip checks the CRC at the end of a member, so read one more byte. */
static ampc_status check_end(npz_reader *r)
{
    char more;
    return zip_fread(r->member, &more, 1) == 0
               ? AMPC_OK
               : zip_failed(r, zip_file_get_error(r->member), "the member is damaged (wrong checksum)");
}

/* `text` is set for class names, which are not read. */
static ampc_status load_member(npz_reader *r, zip_uint64_t index, const zip_stat_t *st, bool *text, rt_array *out)
{
    r->member = zip_fopen_index(r->zip, index, 0);
    if (!r->member) return zip_failed(r, zip_get_error(r->zip), NULL);
    const bool may_be_text = strcmp(st->name, RT_NPZ_CLASS_NAMES ".npy") == 0;
    const rt_npy_source source = {diag_named(r->path, DIAG_ENTRY, r->name), st->size, read_member, r,
                                  may_be_text ? text : NULL};
    ampc_status s = rt_npy_load(&source, r->u2_as, r->d, out);
    if (s == AMPC_OK && !*text) s = check_end(r);
    zip_fclose(r->member);
    return s;
}

static ampc_status read_one(npz_reader *r, zip_uint64_t index, rt_arrays *all)
{
    zip_stat_t st;
    r->name = NULL;
    if (zip_stat_index(r->zip, index, 0, &st) != 0) return zip_failed(r, zip_get_error(r->zip), NULL);
    r->name = st.name;
    size_t n = strlen(st.name);
    if (n < 4 || strcmp(st.name + n - 4, ".npy") != 0) return refuse(r, "a member is not a .npy file");
    rt_array a = {0};
    bool text = false;
    ampc_status s = load_member(r, index, &st, &text, &a);
    if (text) return s;
    if (s == AMPC_OK && !(a.name = strndup(st.name, n - 4))) s = rt_no_memory(r->d);
    if (s == AMPC_OK && rt_arrays_find(all, a.name)) s = refuse(r, "two members have the same name");
    if (s == AMPC_OK) all->items[all->count++] = a;
    else rt_array_clear(&a);
    return s;
}

static ampc_status read_all(npz_reader *r, rt_arrays *all)
{
    zip_int64_t n = zip_get_num_entries(r->zip, 0);
    all->items = calloc(n > 0 ? (size_t)n : 1, sizeof *all->items);
    if (!all->items) return rt_no_memory(r->d);
    for (zip_int64_t i = 0; i < n; i++) TRY(read_one(r, (zip_uint64_t)i, all));
    return AMPC_OK;
}

ampc_status rt_npz_read(const char *path, ir_dtype u2_as, diag *d, rt_arrays *out)
{
    int code = 0, fd;
    uint64_t size;
    npz_reader r = {.path = path, .d = d, .u2_as = u2_as};
    TRY(rt_io_open_input(path, d, &fd, &size));
    do {
        errno = 0;
        r.zip = zip_fdopen(fd, 0, &code); /* closes fd if it succeeds */
    } while (!r.zip && errno == EINTR);   /* libzip does not try again */
    if (!r.zip) {
        zip_error_t e;
        const int error = errno;
        rt_io_close(fd);
        errno = error;
        zip_error_init_with_code(&e, code);
        ampc_status s = zip_failed(&r, &e, NULL);
        zip_error_fini(&e);
        return s;
    }
    rt_arrays all = {0};
    ampc_status s = read_all(&r, &all);
    zip_discard(r.zip);
    if (s == AMPC_OK) *out = all;
    else rt_arrays_clear(&all);
    return s;
}

/* ---- writing ---- */

enum { LOCAL_SIG = 0x04034b50, CENTRAL_SIG = 0x02014b50, END_SIG = 0x06054b50 };
enum { END64_SIG = 0x06064b50, LOCATOR_SIG = 0x07064b50 };
enum { UTF8_FLAG = 1 << 11, VERSION = 20, VERSION64 = 45, DOS_DATE_1980 = 0x21 };
#define MAX32 0xffffffffu
#define MAX16 0xffffu

typedef struct zip_entry {
    uint64_t offset, size;
    uint32_t crc;
} zip_entry;

/* A record being built: little-endian numbers appended to a small buffer. */
typedef struct record {
    unsigned char bytes[128];
    size_t n;
} record;

static void put(record *r, uint64_t value, size_t bytes)
{
    assert(r->n + bytes <= sizeof r->bytes); /* records have a fixed size and contain no names */
    for (size_t i = 0; i < bytes; i++) r->bytes[r->n++] = (unsigned char)(value >> 8 * i);
}

static uint64_t cap(uint64_t v, uint64_t max) { return v < max ? v : max; }

static bool needs_64(const zip_entry *e) { return e->size >= MAX32; }

/* The fields common to local and central headers: from version needed to length of the name. */
static void put_common(record *r, const zip_entry *e, bool wide, size_t name)
{
    put(r, wide ? VERSION64 : VERSION, 2);
    put(r, UTF8_FLAG, 2);
    put(r, 0, 2); /* stored */
    put(r, 0, 2); /* time */
    put(r, DOS_DATE_1980, 2);
    put(r, e->crc, 4);
    put(r, cap(e->size, MAX32), 4);
    put(r, cap(e->size, MAX32), 4);
    put(r, name, 2);
}

static ampc_status put_record(rt_atomic_file *f, const record *r) { return rt_atomic_write(f, r->bytes, r->n); }

static ampc_status put_name(rt_atomic_file *f, const char *name)
{
    TRY(rt_atomic_write(f, name, strlen(name)));
    return rt_atomic_write(f, ".npy", 4);
}

static uint32_t crc_of(uint32_t crc, const void *data, size_t n)
{
    return n ? (uint32_t)crc32_z(crc, data, n) : crc; /* zlib returns the initial value for NULL */
}

static ampc_status write_member(rt_atomic_file *f, const rt_array *a, zip_entry *e)
{
    unsigned char header[RT_NPY_HEADER_MAX];
    size_t n = rt_npy_header(a, header);
    *e = (zip_entry){rt_atomic_tell(f), n + a->bytes, crc_of(crc_of(0, header, n), a->data, a->bytes)};
    record r = {.n = 0};
    put(&r, LOCAL_SIG, 4);
    put_common(&r, e, needs_64(e), strlen(a->name) + 4);
    put(&r, needs_64(e) ? 20 : 0, 2); /* length of the extra field */
    TRY(put_record(f, &r));
    TRY(put_name(f, a->name));
    r.n = 0;
    if (needs_64(e)) put(&r, 1, 2), put(&r, 16, 2), put(&r, e->size, 8), put(&r, e->size, 8);
    TRY(put_record(f, &r));
    TRY(rt_atomic_write(f, header, n));
    return rt_atomic_write(f, a->data, a->bytes);
}

static ampc_status write_central(rt_atomic_file *f, const rt_array *a, const zip_entry *e)
{
    bool wide = needs_64(e) || e->offset >= MAX32;
    record r = {.n = 0}, extra = {.n = 0};
    if (needs_64(e)) put(&extra, e->size, 8), put(&extra, e->size, 8);
    if (e->offset >= MAX32) put(&extra, e->offset, 8);
    put(&r, CENTRAL_SIG, 4);
    put(&r, (3 << 8) | VERSION64, 2); /* made by: Unix */
    put_common(&r, e, wide, strlen(a->name) + 4);
    put(&r, wide ? extra.n + 4 : 0, 2);
    put(&r, 0, 2 + 2 + 2); /* comment, disk, internal attributes */
    put(&r, (uint64_t)0100644 << 16, 4);
    put(&r, cap(e->offset, MAX32), 4);
    TRY(put_record(f, &r));
    TRY(put_name(f, a->name));
    r.n = 0;
    if (wide) put(&r, 1, 2), put(&r, extra.n, 2);
    TRY(put_record(f, &r));
    return put_record(f, &extra);
}

static ampc_status write_end(rt_atomic_file *f, size_t count, uint64_t start)
{
    uint64_t end = rt_atomic_tell(f);
    record r = {.n = 0};
    if (count >= MAX16 || end >= MAX32) {
        put(&r, END64_SIG, 4), put(&r, 44, 8), put(&r, VERSION64, 2), put(&r, VERSION64, 2);
        put(&r, 0, 4 + 4);
        put(&r, count, 8), put(&r, count, 8), put(&r, end - start, 8), put(&r, start, 8);
        put(&r, LOCATOR_SIG, 4), put(&r, 0, 4), put(&r, end, 8), put(&r, 1, 4);
    }
    put(&r, END_SIG, 4), put(&r, 0, 2 + 2);
    put(&r, cap(count, MAX16), 2), put(&r, cap(count, MAX16), 2);
    put(&r, cap(end - start, MAX32), 4), put(&r, cap(start, MAX32), 4), put(&r, 0, 2);
    return put_record(f, &r);
}

static ampc_status write_all(rt_atomic_file *f, const rt_array *arrays, size_t count, zip_entry *e)
{
    for (size_t i = 0; i < count; i++) TRY(write_member(f, &arrays[i], &e[i]));
    uint64_t start = rt_atomic_tell(f);
    for (size_t i = 0; i < count; i++) TRY(write_central(f, &arrays[i], &e[i]));
    return write_end(f, count, start);
}

static ampc_status check_names(const char *path, const rt_array *arrays, size_t count, diag *d)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(arrays[i].name) > MAX16 - 4)
            return diag_error(d, AMPC_REJECTED, DIAG_FILE(path), "an array name is too long for .npz");
    return AMPC_OK;
}

ampc_status rt_npz_write(const char *path, const rt_array *arrays, size_t count, diag *d)
{
    rt_atomic_file *f;
    TRY(check_names(path, arrays, count, d));
    zip_entry *entries = calloc(count ? count : 1, sizeof *entries);
    if (!entries) return rt_no_memory(d);
    ampc_status s = rt_atomic_open(path, d, &f);
    if (s == AMPC_OK) {
        s = write_all(f, arrays, count, entries);
        if (s == AMPC_OK) s = rt_atomic_commit(f);
        else rt_atomic_abort(f);
    }
    free(entries);
    return s;
}
