/* image.c - reads each block of a file at most once, into reserved address space. */
#include "frontend/read/image.h"

#include "ir/base/input_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCK = 4 << 10 }; /* a page: small blocks avoid reading the weights between headers */

struct onnx_image {
    int fd;
    const char *path;
    uint8_t *data;
    size_t size;
    bool loaded[]; /* by block */
};

static size_t block_count(size_t size) { return (size + BLOCK - 1) / BLOCK; }

ampc_status onnx_image_open(int fd, const char *path, size_t size, diag *d, onnx_bytes *out)
{
    onnx_image *m = calloc(1, sizeof *m + block_count(size) * sizeof *m->loaded);
    void *data = m ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                   : MAP_FAILED;
    if (data == MAP_FAILED) {
        free(m);
        close(fd);
        return diag_error(d, AMPC_NO_MEMORY, DIAG_FILE(path), "not enough memory to read it");
    }
    m->fd = fd;
    m->path = path;
    m->data = data;
    m->size = size;
    *out = (onnx_bytes){.data = data, .size = size, .image = m};
    return AMPC_OK;
}

void onnx_image_close(onnx_bytes *bytes)
{
    onnx_image *m = bytes->image;
    if (!m) return;
    munmap(m->data, m->size);
    close(m->fd);
    free(m);
    *bytes = (onnx_bytes){0};
}

/* Reads blocks [first, end), none of which is loaded yet. */
static ampc_status load(onnx_image *m, size_t first, size_t end, diag *d)
{
    size_t from = first * BLOCK, to = end * BLOCK < m->size ? end * BLOCK : m->size;
    TRY(onnx_read(m->fd, m->path, (int64_t)from, to - from, d, m->data + from));
    memset(m->loaded + first, true, (end - first) * sizeof *m->loaded);
    return AMPC_OK;
}

ampc_status onnx_bytes_need(const onnx_bytes *bytes, const uint8_t *at, size_t n, diag *d)
{
    onnx_image *m = bytes->image;
    if (!m || !n) return AMPC_OK;
    size_t offset = (size_t)(at - bytes->data), end = block_count(offset + n);
    for (size_t first = offset / BLOCK, last; first < end; first = last) {
        bool loaded = m->loaded[first];
        for (last = first + 1; last < end && m->loaded[last] == loaded;) last++;
        if (!loaded) TRY(load(m, first, last, d));
    }
    return AMPC_OK;
}

ampc_status onnx_bytes_copy(const onnx_bytes *bytes, size_t offset, size_t n, diag *d, void *out)
{
    const onnx_image *m = bytes->image;
    if (m) return onnx_read(m->fd, m->path, (int64_t)offset, n, d, out);
    if (n) memcpy(out, bytes->data + offset, n);
    return AMPC_OK;
}

bool onnx_bytes_hold(const onnx_bytes *bytes, const void *at)
{
    const uint8_t *p = at;
    return p >= bytes->data && p < bytes->data + bytes->size;
}

ampc_status onnx_read(int fd, const char *path, int64_t offset, size_t size, diag *d, void *out)
{
    if (input_read_at(fd, out, size, (uint64_t)offset)) return AMPC_OK;
    if (errno != ENODATA) return diag_errno(d, DIAG_FILE(path), "cannot be read");
    return diag_error(d, AMPC_IO, DIAG_FILE(path), "was truncated while it was read");
}
