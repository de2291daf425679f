/* prescan.h - checks and bounds a protobuf message before the generated parser may see it.
 *
 * The generated parser recurses without limit, copies every payload, accepts a field given twice
 * and knows nothing about text; 30 KB of input can exhaust its stack and 2 MB can make it allocate
 * 276 MiB. The pre-scan walks the same bytes iteratively, guided by the same descriptors, and
 * writes a copy that is safe to parse. */
#ifndef AMPC_FRONTEND_PRESCAN_H
#define AMPC_FRONTEND_PRESCAN_H

#include "frontend/read/image.h"
#include "ir/arena.h"
#include "ir/diag.h"

#include <protobuf-c/protobuf-c.h>
#include <stdint.h>

enum {
    ONNX_MAX_DEPTH = 100,         /* nested messages, as in the reference implementation */
    ONNX_MAX_NAME = 1024,         /* bytes of a name */
    ONNX_MAX_DIMS = 64,           /* of a TensorProto; far above any operator's rank */
    ONNX_MAX_NODES = 1000000,     /* in the whole model, functions and subgraphs included */
    ONNX_MAX_REPEATED = 16 << 20, /* occurrences of repeated fields in the whole model */
    ONNX_INLINE_MAX = 256,        /* bytes of a tensor payload that stays in the message */
    ONNX_MAX_SKINNY = 256 << 20,  /* bytes of the message without the payloads lifted out */
    ONNX_FREE_BUDGET = 64 << 20,  /* decoded bytes that any file may cost, ... */
    ONNX_BUDGET_FACTOR = 16       /* ... plus so many a byte of the skinny message */
};

/* The safe copy: same fields in the same order, without unknown fields, and with big tensor
 * payloads replaced by the `lifted_*` fields of the schema (offsets count from the start of
 * `data`). */
typedef struct onnx_skinny {
    uint8_t *bytes;
    size_t size;
} onnx_skinny;

/* Checks one message of type `root` (at most 2^31 - 1 bytes) and writes the copy into `a`. Refuses,
 * with AMPC_REJECTED and the place as a path like graph.node[12].attribute[3]: varints and lengths
 * that do not fit, groups, wire types other than declared, a singular field (or oneof) given twice,
 * enum values and 32-bit integers out of range, text that the schema forbids, and anything above a
 * limit. `what` names the data in messages. AMPC_IO when an image cannot be read; afterwards all of
 * it is in memory but the payloads that were lifted out. */
ampc_status onnx_prescan(arena *a, const ProtobufCMessageDescriptor *root, onnx_bytes in,
                         const char *what, diag *d, onnx_skinny *out);

#endif
