/* image.h - the bytes of a file, in memory as far as somebody looks at them.
 *
 * A model file is walked by its headers, and most of it is weights that nobody looks at. So a large file has an image:
 * address space of its size, into which blocks are read when they are needed. A mapping of the file would do that by
 * itself, but when the file is truncated meanwhile, the kernel ends the process with SIGBUS; a read fails instead. What
 * was read once does not change any more, whatever happens to the file. */
#ifndef AMPC_FRONTEND_IMAGE_H
#define AMPC_FRONTEND_IMAGE_H

#include "ir/diag.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct onnx_image onnx_image;

/* The bytes of a file, or any others. */
typedef struct onnx_bytes {
    const uint8_t *data;
    size_t size;
    onnx_image *image; /* NULL: all of them are in memory */
} onnx_bytes;

/* Takes over `fd`, a regular file of `size` bytes, also on failure. `path` is for messages and stays the caller's.
 * AMPC_NO_MEMORY. */
ampc_status onnx_image_open(int fd, const char *path, size_t size, diag *d, onnx_bytes *out);
void onnx_image_close(onnx_bytes *bytes); /* nothing to do without an image */

/* From now on the n bytes at `at`, which lie within data, can be read. AMPC_IO, also when the file became shorter. */
ampc_status onnx_bytes_need(const onnx_bytes *bytes, const uint8_t *at, size_t n, diag *d);
/* A copy of n bytes from `offset`, past the image. AMPC_IO. */
ampc_status onnx_bytes_copy(const onnx_bytes *bytes, size_t offset, size_t n, diag *d, void *out);
/* Whether `at` points into them. */
bool onnx_bytes_hold(const onnx_bytes *bytes, const void *at);

/* Reads `size` bytes at `offset` of an open file; `path` is for messages. AMPC_IO, also when the file has fewer. */
ampc_status onnx_read(int fd, const char *path, int64_t offset, size_t size, diag *d, void *out);

#endif
