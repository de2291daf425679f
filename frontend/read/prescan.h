/* prescan.h - checks and bounds a protobuf message before the generated parser sees it.
 *
 * The generated parser recurses without limit, copies every payload, accepts duplicate fields and does not validate
 * text; 30 KB of input can exhaust its stack and 2 MB can make it allocate 276 MiB. The pre-scan walks the same bytes
 * iteratively, driven by the same descriptors, and writes a copy that is safe to parse. */
#ifndef AMPC_FRONTEND_PRESCAN_H
#define AMPC_FRONTEND_PRESCAN_H

#include "frontend/read/image.h"
#include "ir/base/arena.h"
#include "ir/base/diag.h"

#include <protobuf-c/protobuf-c.h>
#include <stdint.h>

enum {
    ONNX_MAX_DEPTH = 100,          /* nested messages, as in the reference implementation */
    ONNX_MAX_NAME = 1024,          /* bytes of a name */
    ONNX_MAX_DIMS = 64,            /* of a TensorProto; far above the rank of any operator */
    ONNX_MAX_NODES = 1000000,      /* in the whole model, including functions and subgraphs */
    ONNX_MAX_REPEATED = 16 << 20,  /* occurrences of repeated fields in the whole model */
    ONNX_INLINE_MAX = 256,         /* bytes of a tensor payload that stays in the message */
    ONNX_MAX_STRIPPED = 256 << 20, /* bytes of the message without the lifted payloads */
    ONNX_FREE_BUDGET = 64 << 20,   /* decoded bytes that any file may need, ... */
    ONNX_BUDGET_FACTOR = 16        /* ... plus this many for each byte of the stripped message */
};

/* The safe copy: the same fields in the same order, without unknown fields. Large tensor payloads are replaced by the
 * `lifted_*` fields of the schema, whose offsets are relative to the start of the input. */
typedef struct onnx_stripped {
    uint8_t *bytes;
    size_t size;
} onnx_stripped;

/* Checks one message of type `root` (at most 2^31 - 1 bytes) and writes the copy into `a`. Rejects (AMPC_REJECTED,
 * with the place as a path such as graph.node[12].attribute[3]) varints and lengths that do not fit, groups, wire
 * types other than declared, duplicate singular fields or oneofs, enum values and 32-bit integers out of range, text
 * that the schema forbids, and anything over a limit. `what` names the data in messages. AMPC_IO if an image cannot
 * be read. Afterwards all of the image is in memory except the lifted payloads. */
ampc_status onnx_prescan(arena *a, const ProtobufCMessageDescriptor *root, onnx_bytes in, const char *what, diag *d,
                         onnx_stripped *out);

#endif
