/* describe.h - what a model file contains, also if the importer refuses it. */
#ifndef AMPC_FRONTEND_DESCRIBE_H
#define AMPC_FRONTEND_DESCRIBE_H

#include "ir/graph/ir.h"
#include "ir/ops/custom.h"

typedef struct onnx_described_value {
    const char *name, *type; /* "f32[N,3]", or as the model says: "string[N]", "sequence(f32[..])" */
} onnx_described_value;

/* The nodes of an operator, those of subgraphs and functions included. */
typedef struct onnx_described_operator {
    const char *name; /* "Relu", "my.domain.Relu" */
    bool known;       /* the importer has the operator, in this opset */
    int64_t nodes, refused;
    VEC(const char *) where; /* the names of the first refused nodes */
} onnx_described_operator;

typedef struct onnx_description {
    VEC(onnx_described_value) inputs, outputs;
    VEC(onnx_described_operator) operators; /* in the order of their first nodes */
    int64_t opset;                          /* of the default domain; 0: not imported */
    int64_t tensors, elements, bytes;       /* of float initializers */
} onnx_description;

/* Describes the model in `a`. `refused` has the names of nodes that the importer refused; nodes of operators that it
 * and `custom` do not have are refused as well. *out has no graphs, only the entries about the export (exported.h) and
 * the opset; the caller frees it. Fails with AMPC_IO, AMPC_REJECTED (malformed) or AMPC_NO_MEMORY. */
ampc_status onnx_describe(const char *path, const strmap *refused, custom_ops *custom, arena *a, diag *d,
                          onnx_description *description, ir_module **out);

#endif
