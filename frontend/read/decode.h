/* decode.h - reads a model file: bytes -> a checked, decoded ModelProto.
 *
 *     open -> pre-scan (prescan.h) -> stripped copy -> generated parser, in an arena
 *
 * The generated parser has no limits of its own, so it only sees the stripped copy: the same message, checked and
 * bounded, without the large tensor payloads, which stay in the file. Decoding a 512 MiB model reads a few kilobytes
 * of headers.
 *
 * Files above 1 MiB are read on demand (image.h), smaller ones as a whole. */
#ifndef AMPC_FRONTEND_DECODE_H
#define AMPC_FRONTEND_DECODE_H

#include "frontend/read/onnx_schema.pb-c.h"
#include "frontend/read/prescan.h"
#include "ir/base/arena.h"
#include "ir/base/diag.h"

#include <stdint.h>

/* An open model. Everything in it stays valid until onnx_file_close. Every string of `model` is NUL-terminated, valid
 * UTF-8 and never NULL (absent: ""); names contain no control characters. Every `bytes` field is followed by a NUL
 * byte that its length does not include. Message fields may be NULL (absent). Enum fields hold listed values. Nothing
 * else about the content is checked: numbers, counts and names are up to the importer. */
typedef struct onnx_file {
    const char *path; /* as passed; used in messages and as the file that tensors refer to */
    const Onnx__ModelProto *model;
    onnx_bytes bytes; /* of the file */
    /* private to decode.c, tensor.c and external.c */
    bool in_memory;                  /* opened with onnx_file_wrap */
    bool refers;                     /* tensors may refer to `bytes` of a model in memory, as if it were a file */
    bool has_folder;                 /* external data are in the folder of `path`; in memory without it: refused */
    bool warned_unknown_key;         /* of external data; reported once per file */
    struct onnx_external *externals; /* open data files, by location */
    arena *arena;                    /* owns the decoded messages and the lists of this struct */
} onnx_file;

/* Opens and decodes a model. `path` is copied. On failure nothing stays open, *out is NULL and one error describes
 * the problem and its place: AMPC_IO (cannot open or read), AMPC_REJECTED (malformed or over a limit; the place is a
 * path such as graph.node[12].attribute[3]), AMPC_NO_MEMORY. */
ampc_status onnx_file_open(const char *path, diag *d, onnx_file **out);

/* Decodes a model in memory. `data` is not copied and must outlive the file; `name` replaces the path in messages. The
 * caller may set `refers` and `has_folder`; initially the values of tensors are copied, and external data is rejected
 * because there is no folder to search. */
ampc_status onnx_file_wrap(const void *data, size_t size, const char *name, diag *d, onnx_file **out);

void onnx_file_close(onnx_file *f); /* NULL is allowed */

/* A `bytes` field as a string: "" if empty, NULL if it contains a NUL byte. */
const char *onnx_bytes_text(ProtobufCBinaryData b);

/* Decodes bytes into a message of any type of the schema, allocated in `a`: runs the pre-scan, then the generated
 * parser. `what` names the data in messages. Used for models and for bare TensorProto files. The message is freed
 * with the arena. */
ampc_status onnx_decode(arena *a, const ProtobufCMessageDescriptor *root, onnx_bytes in, const char *what, diag *d,
                        ProtobufCMessage **out);

/* Reads a regular file of at most ONNX_FILE_MAX bytes into `a`. With `in_parts`, a large file becomes an image
 * instead, which the caller closes; `path` must outlive it. */
#define ONNX_FILE_MAX ((size_t)0x7fffffff) /* limit of the format: lengths have 31 bits */
ampc_status onnx_bytes_load(arena *a, const char *path, bool in_parts, diag *d, onnx_bytes *out);

#endif
