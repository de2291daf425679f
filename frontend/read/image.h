/* image.h - the bytes of a file, loaded into memory on demand.
 *
 * Decoding a model reads its headers; most of the file is weights, which are not needed. A large file therefore gets
 * an image: address space of its size, into which blocks are read on first use. A mapping of the file would do the
 * same, but if the file is truncated in the meantime, the kernel kills the process with SIGBUS, whereas a read
 * returns an error. Blocks that have been read do not change any more, whatever happens to the file. */
#ifndef AMPC_FRONTEND_IMAGE_H
#define AMPC_FRONTEND_IMAGE_H

#include "ir/base/diag.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct onnx_image onnx_image;

/* The bytes of a file, or any others. */
typedef struct onnx_bytes {
    const uint8_t *data;
    size_t size;
    onnx_image *image; /* NULL: all bytes are in memory */
} onnx_bytes;

/* Creates an image of the regular file `fd` with `size` bytes, which owns `fd` from then on; on failure `fd` is
 * closed. `path` is used in messages; it is not copied and must outlive the image. AMPC_NO_MEMORY. */
ampc_status onnx_image_open(int fd, const char *path, size_t size, diag *d, onnx_bytes *out);
void onnx_image_close(onnx_bytes *bytes); /* does nothing without an image */

/* Loads the n bytes at `at`, which must be within `data`. AMPC_IO, also if the file has become shorter. */
ampc_status onnx_bytes_need(const onnx_bytes *bytes, const uint8_t *at, size_t n, diag *d);
/* Copies n bytes at `offset` to `out` without loading them into the image. AMPC_IO. */
ampc_status onnx_bytes_copy(const onnx_bytes *bytes, size_t offset, size_t n, diag *d, void *out);
/* Whether `at` points into the bytes. */
bool onnx_bytes_hold(const onnx_bytes *bytes, const void *at);

/* Reads `size` bytes at `offset` of an open file into `out`; `path` is used in messages. AMPC_IO, also if the file is
 * too short. */
ampc_status onnx_read(int fd, const char *path, int64_t offset, size_t size, diag *d, void *out);

#endif
