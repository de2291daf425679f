/* onnx.h - the public header of the ONNX importer and exporter. Imports a model file as a module with one graph,
 * @forward; exports trained values into a copy of the model file; emits a graph as a new model file.
 *
 *     open, check, decode (decode.h) -> names, order, operators -> node by node: lower, infer, fold
 *
 * The importer maps
 *   graph input of the model     to an input of @forward with the same name
 *   float initializer            to a state if it is a running statistic of BatchNormalization; otherwise to a
 *                                parameter, with the facts from which pass params decides (initializer.c)
 *   other initializer, Constant  to a constant, which is removed if only shape arithmetic reads it
 *   dim_param                    to a symbol; an unknown dimension K of input X (-1, "?") becomes the symbol X_dimK
 *   graph output                 to an output statement with the same name
 *   call of a function, Loop and Scan with known iterations   to copies of the body
 *   sequence, optional           to nothing: only their items are values (interface.c about inputs and outputs)
 * Large initializers stay in their file: the module refers to them by path, offset and length.
 *
 * Some exporters merge tensors whose values are equal. The importer separates them again into parameters and states
 * (ties.c), named after the tensors of the exported program, the results of the Identity nodes that replaced them or
 * their BatchNormalization nodes, and says so in the module (`untied`). It restores removed biases and computes
 * copies from their parameters likewise.
 *
 * BatchNormalization in training form stores its new statistics in the update phase. Dropout in training mode reads
 * the state @rng (i64[2]); its `stream` numbers the nodes of the model that draw. */
#ifndef AMPC_FRONTEND_ONNX_H
#define AMPC_FRONTEND_ONNX_H

#include "ir/ops/custom.h"
#include "ir/graph/ir.h"

enum { ONNX_OPSET_FIRST = 1, ONNX_OPSET_LAST = 28, ONNX_IR_VERSION_LAST = 14 };
/* First opset of emitted models, of those with bfloat16, and the one that those for a consumer may need. */
enum { ONNX_OPSET_EMIT = 17, ONNX_OPSET_BF16 = 22, ONNX_OPSET_CONSUMER = 23 };

/* The opset for which a model is imported that will be emitted in mixed precision. `wanted`: by the user; 0: any. */
static inline int onnx_opset_to_emit(ir_dtype low, bool for_consumer, int wanted)
{
    return wanted ? wanted : for_consumer ? ONNX_OPSET_CONSUMER : low == IR_bf16 ? ONNX_OPSET_BF16 : ONNX_OPSET_EMIT;
}

typedef struct onnx_dim_binding {
    const char *name; /* a dim_param, or X_dimK */
    int64_t size;
} onnx_dim_binding;

/* Binds a graph input to a value at compile time. Little-endian, row-major; the importer copies the bytes. */
typedef struct onnx_constant {
    const char *name;
    ir_type type; /* must be static */
    const void *bytes;
} onnx_constant;

typedef struct onnx_import_options {
    const onnx_dim_binding *dims;
    int n_dims;
    const onnx_constant *constants;
    int n_constants;
    int64_t batch;            /* not 0: a batch that the model fixes at another size becomes a symbol (lower/batch.c) */
    int64_t max_tensor_bytes; /* limit for one value of known shape; 0: half of the machine's memory */
    bool tied;                /* keep parameters as an exporter merged, removed or copied them; otherwise undo that */
    custom_ops *custom;       /* operators of the caller; NULL: none */
    bool opaque;              /* import operators without an IR op as opaque nodes */
    /* If not 0, the module is only written as ONNX, in this opset or a later one: an operator that would become several
     * ops stays one opaque node (requires `opaque`) */
    int emit_opset;
    /* Of a model in memory. refers: large values stay in its bytes, which become the module's image and must outlive
     * it; otherwise they are copied. has_folder: the name is a path, and external data are in its folder; otherwise
     * they are refused. */
    bool refers, has_folder;
} onnx_import_options;

/* Imports the model in a file into a new module, which the caller owns and frees with ir_module_free. `o` may be NULL
 * for the defaults. On failure *out is NULL and all problems of the same kind have been reported: AMPC_IO,
 * AMPC_REJECTED (malformed), AMPC_UNSUPPORTED (an operator, a form of it or a type that this importer does not
 * support), AMPC_USAGE (a binding that matches no input or dimension), AMPC_NO_MEMORY. A session opens `path` again
 * to load the weights. */
ampc_status onnx_import(const char *path, const onnx_import_options *o, diag *d, ir_module **out);

/* Imports a model from memory; `name` replaces the path in messages. */
ampc_status onnx_import_memory(const void *data, size_t size, const char *name, const onnx_import_options *o, diag *d,
                               ir_module **out);

/* ---- operators.c ----------------------------------------------------------------------------- */

typedef struct onnx_operator {
    const char *name;
    int since;         /* first opset that defines it */
    int bf16;          /* first opset whose schema allows bfloat16; 0: none */
    const char *types; /* operand and result types, encoded as in onnx.def */
} onnx_operator;

/* All operators of ONNX's default domain, sorted by name; the name of the last row is NULL. */
extern const onnx_operator onnx_operators[];
const onnx_operator *onnx_operator_find(const char *name); /* NULL: not an ONNX operator */

#define ONNX_ANY 0x7fffffff

/* Operands [0, required) must be present, operands [required, single) may be absent (""), later ones must be present.
 * `max` and `results` limit the number of operands and results; ONNX_ANY: no limit. */
typedef struct onnx_arity {
    int required, single, max, results;
} onnx_arity;

onnx_arity onnx_schema_arity(const onnx_operator *op);

/* The key of metadata_props for the module's codes. */
#define ONNX_CODES "ampc.codes"

/* ---- export.c -------------------------------------------------------------------------------- */

/* The new values of an initializer or of the result of a Constant. */
typedef struct onnx_trained {
    const char *name;
    ir_type type;     /* must be static; values are converted to the initializer's element type */
    const void *data; /* must stay valid during the export */
} onnx_trained;

typedef enum onnx_part {
    ONNX_PART_DATA, /* the values of external tensors; written first, if there are any */
    ONNX_PART_MODEL
} onnx_part;

/* Appends `n` bytes, possibly none, to a part. A failure ends the export. */
typedef ampc_status onnx_write_fn(void *user, onnx_part part, const void *bytes, size_t n);

typedef struct onnx_export_options {
    const onnx_trained *trained;
    int n_trained;
    const ir_image *image; /* the bytes of the model; NULL: its file is read */
    bool untied;           /* write separated tensors as initializers of their own (`untied` of the module) */
    const char *codes;     /* for the metadata; NULL: as they are */
    const ir_normalization *normalization; /* of an input, added as Sub and Div; NULL: none */
    const char *data_name;                 /* UTF-8 name of the data part's file, in the folder of the new model */
    onnx_write_fn *write;
    void *user;
} onnx_export_options;

/* Writes a copy of a model file for inference, with trained values. Names, opsets, order and all untouched fields are
 * preserved. BatchNormalization and Dropout change to their inference form, and the training information is removed.
 * Values are copied from file to file without being collected in memory, and nothing is written before everything has
 * been checked. AMPC_REJECTED: no initializer has the name and shape of a trained value. AMPC_UNSUPPORTED: the
 * statistics of a batch are read, several tensors share a name, or the result exceeds 2 GiB. Other errors are those
 * of onnx_import. */
ampc_status onnx_export_trained(const char *model, const onnx_export_options *o, diag *d);

/* ---- emit.c ---------------------------------------------------------------------------------- */

typedef struct onnx_emit_options {
    const char *data_name;  /* UTF-8 name of the data part's file, in the folder of the new model */
    size_t max_model_bytes; /* values of a larger model go to the data part; 0: 2 GiB */
    onnx_write_fn *write;
    void *user;
    int *casts;         /* set to the number of Cast nodes that the imported model does not have; may be NULL */
    int opset;          /* the opset to write, from ONNX_OPSET_EMIT to ONNX_OPSET_LAST; 0: as below */
    int max_opset;      /* the highest that `reader` reads; 0: any */
    const char *reader; /* for errors */
} onnx_emit_options;

/* Writes a graph of a module as an ONNX model. Graph inputs and outputs, initializers and nodes keep the names of the
 * imported model; nodes that passes created get names derived from these. The opset is that of the imported model,
 * but at least 17, at least 22 with bfloat16, and higher where an operator form requires it, unless the options name
 * one: a node that needs a higher one is then AMPC_UNSUPPORTED. Weights are copied from
 * their files and converted if they are only used in another type; a warning counts the values that overflow to
 * infinity. If the model is too large for one file, the data part is written first. AMPC_UNSUPPORTED: ops of a
 * training step, types that no schema allows, or sizes that cannot be derived from an input; all of them are reported
 * and nothing is written. */
ampc_status onnx_emit(const ir_module *m, const char *graph, const onnx_emit_options *o, diag *d);

#endif
