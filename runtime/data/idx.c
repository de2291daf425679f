/* idx.c - reads IDX files with zlib, which also reads uncompressed files. */
#include "runtime/data/idx.h"
#include "runtime/files/io.h"
#include "runtime/backend/memory.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { MAX_RANK = 4, READ_PIECE = 1 << 24 };
/* Maximum expansion of deflate; a header that claims more is wrong. */
enum { MAX_EXPANSION = 1032 };

typedef struct idx_reader {
    const char *path;
    diag *d;
    gzFile gz;
    uint64_t file_bytes;
} idx_reader;

static ampc_status refuse(const idx_reader *r, const char *what)
{
    return diag_error(r->d, AMPC_REJECTED, DIAG_FILE(r->path), "%s", what);
}

/* Reads exactly n bytes; reports `what` if the file ends earlier. */
static ampc_status read_bytes(const idx_reader *r, void *dst, size_t n, const char *what)
{
    for (char *at = dst; n > 0;) {
        int got = gzread(r->gz, at, (unsigned)(n < READ_PIECE ? n : READ_PIECE));
        if (got < 0) {
            int code;
            const char *why = gzerror(r->gz, &code);
            if (code == Z_BUF_ERROR) return refuse(r, "the compressed data end too early");
            if (code == Z_MEM_ERROR) return rt_no_memory(r->d);
            if (code == Z_ERRNO) return diag_errno(r->d, DIAG_FILE(r->path), "cannot read");
            return diag_error(r->d, AMPC_REJECTED, DIAG_FILE(r->path), "cannot read: %s", why);
        }
        if (got == 0) return refuse(r, what);
        at += got;
        n -= (size_t)got;
    }
    return AMPC_OK;
}

static ampc_status read_header(const idx_reader *r, int rank, rt_array *a)
{
    unsigned char b[4 + 4 * MAX_RANK];
    TRY(read_bytes(r, b, 4, "too short for an IDX file"));
    if (b[0] || b[1]) return refuse(r, "not an IDX file (wrong magic bytes)");
    if (b[2] != 8) return refuse(r, "IDX elements other than unsigned bytes are not supported");
    if (b[3] != rank)
        return diag_error(r->d, AMPC_REJECTED, DIAG_FILE(r->path), "an IDX file with %d dimensions instead of %d", b[3],
                          rank);
    TRY(read_bytes(r, b + 4, 4 * (size_t)rank, "too short for an IDX file"));
    *a = (rt_array){.dtype = IR_u8, .rank = rank};
    for (int i = 0; i < rank; i++) {
        const unsigned char *p = b + 4 + 4 * i;
        a->dims[i] = (int64_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
    }
    if (!rt_array_bytes(IR_u8, rank, a->dims, &a->bytes)) return refuse(r, "the IDX dimensions overflow");
    if (a->bytes / MAX_EXPANSION > r->file_bytes) return refuse(r, "shorter than its IDX header specifies");
    return AMPC_OK;
}

static ampc_status read_subgraph(const idx_reader *r, rt_array *a)
{
    char more;
    a->data = malloc(a->bytes ? a->bytes : 1);
    if (!a->data) return rt_no_memory(r->d);
    TRY(read_bytes(r, a->data, a->bytes, "shorter than its IDX header specifies"));
    int got = gzread(r->gz, &more, 1), code;
    if (got > 0) return refuse(r, "longer than its IDX header specifies");
    gzerror(r->gz, &code); /* zlib verifies length and checksum at the end of the stream */
    if (code == Z_ERRNO) return diag_errno(r->d, DIAG_FILE(r->path), "cannot read");
    if (got < 0 || code != Z_OK) return refuse(r, "the compressed data are damaged or truncated");
    return AMPC_OK;
}

ampc_status rt_idx_read(const char *path, int rank, diag *d, rt_array *out)
{
    idx_reader r = {.path = path, .d = d};
    int fd;
    TRY(rt_io_open_input(path, d, &fd, &r.file_bytes));
    r.gz = gzdopen(fd, "rb");
    if (!r.gz) {
        rt_io_close(fd);
        return rt_no_memory(d);
    }
    rt_array a = {0};
    ampc_status s = read_header(&r, rank, &a);
    if (s == AMPC_OK) s = read_subgraph(&r, &a);
    gzclose(r.gz);
    if (s == AMPC_OK) *out = a;
    else rt_array_clear(&a);
    return s;
}

/* ---- the standard folder ---- */

static ampc_status read_named(const char *folder, const char *split, const char *kind, int rank, diag *d, rt_array *out)
{
    char path[PATH_MAX];
    for (int gz = 0; gz < 2; gz++) {
        int n = snprintf(path, sizeof path, "%s/%s-%s-idx%d-ubyte%s", folder, split, kind, rank, gz ? ".gz" : "");
        if (n < 0 || n >= PATH_MAX) return diag_error(d, AMPC_IO, DIAG_FILE(folder), "the path is too long");
        if (access(path, F_OK) == 0) return rt_idx_read(path, rank, d, out);
    }
    return diag_error(d, AMPC_IO, DIAG_FILE(folder), "no %s-%s-idx%d-ubyte or %s-%s-idx%d-ubyte.gz in the folder",
                      split, kind, rank, split, kind, rank);
}

ampc_status rt_idx_read_folder(const char *folder, rt_split split, diag *d, rt_array *images, rt_array *labels)
{
    rt_array x = {0}, y = {0};
    const char *prefix = split == RT_TRAIN ? "train" : "t10k";
    ampc_status s = read_named(folder, prefix, "images", 3, d, &x);
    if (s == AMPC_OK) s = read_named(folder, prefix, "labels", 1, d, &y);
    if (s == AMPC_OK && x.dims[0] != y.dims[0])
        s = diag_error(d, AMPC_REJECTED, DIAG_FILE(folder), "%lld %s images but %lld labels", (long long)x.dims[0],
                       prefix, (long long)y.dims[0]);
    if (s == AMPC_OK && (!(x.name = strdup("images")) || !(y.name = strdup("labels")))) s = rt_no_memory(d);
    if (s == AMPC_OK) {
        *images = x;
        *labels = y;
        return AMPC_OK;
    }
    rt_array_clear(&x);
    rt_array_clear(&y);
    return s;
}
