/* decode.h - the front door to a model file: bytes -> a checked, decoded ModelProto.
 *
 *     open -> pre-scan (prescan.h) -> skinny copy -> generated parser, in an arena
 *
 * The generated parser has no limits of its own, so it only ever sees the skinny copy: the same
 * message, checked and bounded, without the big tensor payloads, which stay in the file. A 512 MiB
 * model decodes by reading a few kilobytes of headers.
 *
 * Files above 1 MiB are read where they are looked at (image.h), smaller ones at once. */
#ifndef AMPC_FRONTEND_DECODE_H
#define AMPC_FRONTEND_DECODE_H

#include "frontend/read/onnx_schema.pb-c.h"
#include "frontend/read/prescan.h"
#include "ir/arena.h"
#include "ir/diag.h"

#include <stdint.h>

/* An open model. All of it stays valid until onnx_file_close. Every string of `model` is
 * NUL-terminated, valid UTF-8 and never NULL (absent: ""); names hold no control characters. Every
 * `bytes` field is followed by a NUL byte that its length does not count. Message fields may be
 * NULL (absent). Enum fields hold listed values; nothing else about the content is checked:
 * numbers, counts and names are the importer's business. */
typedef struct onnx_file {
    const char *path; /* as given: for messages, and the file that tensor references name */
    const Onnx__ModelProto *model;
    onnx_bytes bytes; /* of the file */
    /* private to decode.c, tensor.c and external.c */
    bool in_memory;          /* opened with onnx_file_wrap: no directory, so no external data */
    bool warned_unknown_key; /* of external data, reported once a file */
    struct onnx_external *externals; /* files already opened, by location */
    arena *arena;                    /* the decoded messages and this struct's own lists */
} onnx_file;

/* Opens and decodes a model. `path` is copied. On failure nothing stays open, *out is NULL and one
 * error says what is wrong and where: AMPC_IO (cannot open or read), AMPC_REJECTED (malformed, or
 * over a limit; the message names the place as graph.node[12].attribute[3]), AMPC_NO_MEMORY. */
ampc_status onnx_file_open(const char *path, diag *d, onnx_file **out);

/* The same for a model in memory (data is not copied and must outlive the file); `name` stands for
 * the path in messages. External data is refused: there is no folder that it could lie in. */
ampc_status onnx_file_wrap(const void *data, size_t size, const char *name, diag *d,
                           onnx_file **out);

void onnx_file_close(onnx_file *f); /* NULL allowed */

/* A `bytes` field as a string: "" when empty, NULL when it holds a NUL byte. */
const char *onnx_bytes_text(ProtobufCBinaryData b);

/* Bytes to a message of any type of the schema: pre-scan, then the generated parser, into `a`.
 * `what` names the data in messages. Used for the model, and for bare TensorProto files. The result
 * is never freed by itself. */
ampc_status onnx_decode(arena *a, const ProtobufCMessageDescriptor *root, onnx_bytes in,
                        const char *what, diag *d, ProtobufCMessage **out);

/* The whole content of a regular file of at most ONNX_FILE_MAX bytes: read into `a` or, when
 * `in_parts` and the file is large, an image, which the caller closes; `path` must outlive it. */
#define ONNX_FILE_MAX ((size_t)0x7fffffff) /* the format's own limit: lengths are 31 bits */
ampc_status onnx_bytes_load(arena *a, const char *path, bool in_parts, diag *d, onnx_bytes *out);

#endif
