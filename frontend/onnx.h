/* onnx.h - the front door of the ONNX room: a model file -> a module with one graph, @forward;
 * trained values -> the same model file with these values; a graph -> a model file.
 *
 *     open, check, decode (decode.h) -> names, order, operators -> node by node: lower, infer, fold
 *
 * What is what after an import:
 *   graph input of the model     input of @forward, same name
 *   float initializer            parameter, if a graph output depends on it by a derivative; running
 *                                statistics of BatchNormalization are states; the rest constants.
 *                                `held` marks those that training should leave alone
 *   other initializer, Constant  constant; gone when only shape arithmetic reads it
 *   dim_param                    symbol; an unknown dimension K of input X is the symbol X_dimK
 *   graph output                 output statement, same name
 * Big initializers stay in their file: the module refers to them by path, offset and length.
 *
 * Tensors that an exporter merged because their values were equal are parameters and states of their own (ties.c),
 * under the names of the Identity nodes that stand for them; the module has the meta "untied" then.
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
    bool tied;    /* parameters that an exporter merged through Identity stay one; else each is one of its own */
    bool foreign; /* what cannot be lowered is carried along, as `foreign` nodes */
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

/* ---- operators.c ----------------------------------------------------------------------------- */

typedef struct onnx_operator {
    const char *name;
    int since; /* first opset that has it */
    int bf16;  /* first opset whose schema has bfloat16, 0: none */
    const char *types; /* its operands and results (operators.def) */
} onnx_operator;

/* All operators of ONNX's own domain, by name; the last row has none. */
extern const onnx_operator onnx_operators[];
const onnx_operator *onnx_operator_find(const char *name); /* NULL: ONNX has none of that name */

#define ONNX_ANY 0x7fffffff

/* Operands [0, required) are there, those up to `single` may be absent (""), later ones may not. `most` operands and
 * results at most; ONNX_ANY: no limit. */
typedef struct onnx_arity {
    int required, single, most, results;
} onnx_arity;

onnx_arity onnx_schema_arity(const onnx_operator *op);

/* ---- export.c -------------------------------------------------------------------------------- */

/* The new values of an initializer (or of the result of a Constant). */
typedef struct onnx_trained {
    const char *name;
    ir_type type;     /* static; values are converted to the initializer's element type */
    const void *data; /* read during the export */
} onnx_trained;

typedef enum onnx_part {
    ONNX_PART_DATA, /* the values of tensors whose values lie in other files; first, if any */
    ONNX_PART_MODEL
} onnx_part;

typedef struct onnx_export_options {
    const onnx_trained *trained;
    int n_trained;
    bool untied; /* what the importer separates is written as tensors of their own (meta "untied" of the module) */
    const char *data_name; /* of the file beside the new model that the data part will be; UTF-8 */
    /* Appends to a part; n may be 0. A failure ends the export. */
    ampc_status (*write)(void *user, onnx_part part, const void *bytes, size_t n);
    void *user;
} onnx_export_options;

/* Writes the model of a file anew for inference, with trained values. Names, opsets, order and all
 * that is not touched stay as they are. BatchNormalization and Dropout lose their training form,
 * the model its training information. Values are copied from file to file, never gathered in
 * memory. Nothing is written before everything has been checked. AMPC_REJECTED: a trained value
 * without an initializer of its name and shape; AMPC_UNSUPPORTED: statistics of a batch that
 * something reads, a name that several tensors have, a result above 2 GiB; otherwise as
 * onnx_import. */
ampc_status onnx_export_trained(const char *model, const onnx_export_options *o, diag *d);

/* ---- emit.c ---------------------------------------------------------------------------------- */

typedef struct onnx_emit_options {
    const char *data_name; /* of the file beside the new model that the data part will be; UTF-8 */
    size_t max_model_bytes; /* a larger model has its values in the data part; 0: 2 GiB */
    /* Appends to a part; n may be 0. A failure ends the emission. */
    ampc_status (*write)(void *user, onnx_part part, const void *bytes, size_t n);
    void *user;
} onnx_emit_options;

/* Writes a graph of a module as an ONNX model: graph inputs and outputs, initializers and nodes
 * keep the names of the model that was imported, what the passes made is named after them. Opset:
 * the model's own, at least 17, for bfloat16 at least 22, more where a form needs it. Weights are
 * copied from their files, converted on the way when they are only read in another type; values
 * that become infinite by that are counted in a warning. The data part is written first, if the
 * model is too large for one file. AMPC_UNSUPPORTED: ops of a training step, types that no schema
 * has, sizes that follow from no input; all of them are reported and nothing is written. */
ampc_status onnx_emit(const ir_module *m, const char *graph, const onnx_emit_options *o, diag *d);

#endif
