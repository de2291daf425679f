/* onnx.h - the front door of the ONNX room: a model file -> a module with one graph, @forward.
 *
 *     open, check, decode (decode.h) -> names, order, operators -> node by node: lower, infer, fold
 *
 * What is what after an import:
 *   graph input of the model     input of @forward, same name
 *   float initializer            parameter, if a graph output depends on it by a derivative; running
 *                                statistics of BatchNormalization are states; the rest constants
 *   other initializer, Constant  constant; gone when only shape arithmetic reads it
 *   dim_param                    symbol; an unknown dimension K of input X is the symbol X_dimK
 *   graph output                 output statement, same name
 * Big initializers stay in their file: the module refers to them by path, offset and length.
 *
 * BatchNormalization in training form stores its new statistics in the update phase. Dropout that
 * drops reads the state @rng (i64[2]); its `stream` numbers the Dropout nodes of the model. */
#ifndef AMPC_FRONTEND_ONNX_H
#define AMPC_FRONTEND_ONNX_H

#include "ir/ir.h"

enum { ONNX_OPSET_FIRST = 1, ONNX_OPSET_LAST = 27, ONNX_IR_VERSION_LAST = 13 };

typedef struct onnx_dim_binding {
    const char *name; /* a dim_param, or X_dimK */
    int64_t size;
} onnx_dim_binding;

/* A graph input that gets its value while compiling. Little-endian, row major; copied. */
typedef struct onnx_constant {
    const char *name;
    ir_type type; /* static */
    const void *bytes;
} onnx_constant;

typedef struct onnx_import_options {
    const onnx_dim_binding *dims;
    int n_dims;
    const onnx_constant *constants;
    int n_constants;
    int64_t max_tensor_bytes; /* of one value of known shape; 0: half of the machine's memory */
} onnx_import_options;

/* Imports the model of a file; `o` NULL: defaults. On failure *out is NULL and every problem of
 * the same kind has been reported: AMPC_IO, AMPC_REJECTED (malformed), AMPC_UNSUPPORTED
 * (operator, form of it, or type that this importer does not have), AMPC_USAGE (a binding that
 * fits nothing), AMPC_NO_MEMORY. Weights are opened again from `path` when a session loads them. */
ampc_status onnx_import(const char *path, const onnx_import_options *o, diag *d, ir_module **out);

/* The same for a model in memory, for tests: tensors that are not inline cannot be loaded
 * afterwards. */
ampc_status onnx_import_memory(const void *data, size_t size, const char *name,
                               const onnx_import_options *o, diag *d, ir_module **out);

#endif
