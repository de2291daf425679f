/* emit.h - shared by the emission rules (emit_*.c): the emitter's state and the API that writes one ONNX node. The
 * counterpart of lower.h.
 *
 * A rule turns one IR node into one ONNX node, sometimes with a few helper nodes:
 *
 *     emit_op op = emit_begin(e, n, "Concat");
 *     emit_operands(&op);
 *     emit_finish(&op);
 *
 * Everything an operand needs (casts, constants, computed shapes) is written when the rule asks for the operand. To
 * keep the nodes sorted, a rule must therefore ask for all operands before it calls emit_end.
 *
 * The graph is emitted repeatedly until a fixed point is reached: which opset the forms require, and in which types
 * each initializer is read. A weight that is only read as fp16 is stored as fp16; a weight that is read in several
 * types is stored once and cast.
 *
 * A training step becomes a pure function of data, parameters and states: these are inputs with their initial values as
 * initializers, and what the step stores in X is the output X.new. It is written exactly: a node that its rule refuses,
 * or cannot express without another rounding, is an operator of our own domain in the next round (emit_own.c). Every
 * value has a type, and every node has its phase and origin in its metadata. */
#ifndef AMPC_FRONTEND_EMIT_H
#define AMPC_FRONTEND_EMIT_H

#include "frontend/onnx.h"
#include "frontend/emit/rope.h"
#include "frontend/read/tensor.h"

#include <stdio.h>

typedef struct emitter emitter;
typedef void emit_rule(emitter *e, const ir_node *n);

/* How an IR op is emitted: a row EMIT or EMIT_NONE of onnx.def. */
typedef struct emit_row {
    emit_rule *rule;
    const onnx_operator *onnx; /* the usual operator for the IR op; its name is NULL if there is none */
} emit_row;

/* An initializer of the new model, with values from a storage or from the emitter itself. */
typedef struct emit_tensor {
    const char *name;
    ir_type type;
    const ir_storage *storage; /* NULL: the values are in `bytes` */
    const void *bytes;
    rope_source *source; /* set if the storage is in a file */
    size_t size, offset; /* in bytes; `offset` is relative to the data part */
    size_t infinities;   /* number of values that overflowed in the conversion */
} emit_tensor;

typedef struct emit_storage {
    unsigned read_types; /* bit mask of the types in which it is read; grows over the rounds */
    const char *name;    /* in this round; NULL: not read yet */
    ir_dtype dtype;      /* in the file written */
} emit_storage;

typedef struct emit_file { /* an open weights file */
    const char *path;
    int fd;
} emit_file;

/* A graph while its nodes are written: the model's main graph, or a subgraph, which sees the names of the enclosing
 * graphs. */
typedef struct emit_scope {
    struct emit_scope *outer;
    const ir_graph *graph;
    bool *has_own_name;     /* by node id: whether the node keeps the name in its location */
    const char **output_of; /* by value id: name of the graph output that the value is, or NULL */
    const char **output;    /* by node id: name that an output statement assigns, or a store */
    const char **value;     /* by value id: name; NULL: not defined yet */
    strmap *made;           /* values that several nodes share: key -> value name */
    rope nodes, infos;
} emit_scope;

struct emitter {
    const emit_row *rows; /* by op */
    emit_rule *own_rule;  /* of nodes that are operators of our own */
    const ir_module *module;
    const ir_graph *graph; /* the main graph */
    const onnx_emit_options *options;
    diag *diag;
    arena *arena;
    /* for all rounds */
    int opset;             /* of the model written */
    emit_storage *storage; /* by storage id */
    bool refused;          /* a node needs more than the highest opset */
    bool changed;          /* this round found new requirements; another round is needed */
    strmap *own;           /* nodes that are operators of our own, by address; NULL: not a training step */
    VEC(emit_file) files;
    /* reset in each round */
    strmap *names;      /* value names in use */
    strmap *node_names; /* node names in use */
    emit_scope *scope;
    const ir_node *node; /* whose rule is applied */
    int64_t made_count;
    int casts; /* nodes of this round that the model does not have */
    VEC(emit_tensor) tensors;
};

/* ---- emit_graph.c: a graph or subgraph -------------------------------------------------------- */

/* Writes all nodes of a graph into a new scope, which becomes the current one until emit_leave. inputs[i] is the name
 * of the value that input i captures from an enclosing graph, or NULL if it is an input in ONNX too. */
emit_scope *emit_enter(emitter *e, const ir_graph *g, const char *const *inputs);
void emit_leave(emitter *e);
/* The GraphProto of a scope, without initializers. Captured inputs are left out. */
rope emit_graph(emitter *e, const emit_scope *s, const char *const *inputs);

/* Writes an Identity unless the value has the name of the output that n is. */
void emit_output_of(emitter *e, const ir_node *n, const ir_value *v);

/* ---- emit_name.c ----------------------------------------------------------------------------- */

/* Reserves a unique value name: `wanted`, with a numeric suffix if that is in use. */
const char *emit_name(emitter *e, const char *wanted);
/* emit_made returns the name of the shared value with this key if one is visible in the current graph, or NULL;
 * emit_make registers one in the current graph. */
const char *emit_made(const emitter *e, const char *key);
void emit_make(emitter *e, const char *key, const char *name);
/* Says that the operator of the current node does not compute exactly what the node does, which matters in a training
 * step alone. True: in the next round, the node is an operator of our own. */
bool emit_inexact(emitter *e);
bool emit_is_own(emitter *e, const ir_node *n);
/* Reports that the node cannot be emitted (AMPC_UNSUPPORTED). */
void emit_refuse(emitter *e, const ir_node *n, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same for a node of a model in training mode. */
void emit_refuse_training(emitter *e, const ir_node *n, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- emit_own.c: operators of our own, in training steps ------------------------------------- */

#define EMIT_OWN_DOMAIN "ai.ampc"
enum { EMIT_OWN_VERSION = 1 };
void emit_own(emitter *e, const ir_node *n);

/* ---- emit_opset.c ---------------------------------------------------------------------------- */

int emit_first_opset(const emitter *e); /* before the first round */
/* Raises the opset of the model to at least `opset`, for the current node. Refuses it if the options forbid that. */
void emit_need(emitter *e, int opset);
/* Checks that the operator's schema allows the node's types; raises the opset if only a later schema does. */
void emit_check_schema(emitter *e, const ir_node *n);
/* The version of the file format that was introduced with the opset, or with what else the model has. */
int emit_ir_version(const emitter *e);

/* ---- emit_node.c: a NodeProto ---------------------------------------------------------------- */

typedef struct emit_op {
    emitter *e;
    const ir_node *n; /* NULL: not made for a node */
    const char *type, *domain, *name;
    rope in, out, attributes;
    struct {
        int result;
        const char *name; /* name before the cast */
        ir_dtype is;
    } casts[4];
    int n_casts;
} emit_op;

/* emit_begin starts the main ONNX node of n, which may keep n's name; emit_helper starts a helper node. */
emit_op emit_begin(emitter *e, const ir_node *n, const char *type);
emit_op emit_helper(emitter *e, const ir_node *n, const char *type);
void emit_in(emit_op *op, const char *name); /* NULL: absent */
void emit_int(emit_op *op, const char *name, int64_t v);
void emit_float(emit_op *op, const char *name, double v);
void emit_double(emit_op *op, const char *name, double v); /* a tensor: attributes are f32 */
void emit_text(emit_op *op, const char *name, const char *v);
void emit_ints(emit_op *op, const char *name, const int64_t *items, int count);
void emit_floats(emit_op *op, const char *name, const double *items, int count);
void emit_texts(emit_op *op, const char *name, const char *const *items, int count);
void emit_out(emit_op *op, const char *name);
/* Writes result i of n, which the ONNX operator produces in type `is`. Adds a cast if the IR type differs. An unused
 * result is left out, unless the schema requires it. */
void emit_result(emit_op *op, int i, ir_dtype is);
/* Writes a result that nothing reads, the operator's i-th: absent, or with a new name if the schema requires it. */
void emit_unread(emit_op *op, int i);
/* Whether the schema of the node's operator requires result i. */
bool emit_requires(const emit_op *op, int i);
bool emit_loses(ir_dtype from, ir_dtype to); /* whether a cast rounds numbers */
void emit_results(emit_op *op);              /* all, in the types of the operator's schema */
void emit_end(emit_op *op);
/* Writes a helper node without attributes for n and returns the name of its only result. emit_size_call: a result of
 * type i64[1]. */
const char *emit_call(emitter *e, const ir_node *n, const char *type, const char *a, const char *b);
const char *emit_size_call(emitter *e, const ir_node *n, const char *type, const char *a, const char *b);
/* `name` cast to another type. Equal casts share one node. */
const char *emit_cast_of(emitter *e, const ir_node *n, const char *name, ir_dtype to);

/* ---- emit_simple.c --------------------------------------------------------------------------- */

void emit_attributes(emit_op *op); /* those of onnx.def */
void emit_finish(emit_op *op);     /* emit_attributes, emit_results, emit_end */

/* ---- emit_value.c: names of operands --------------------------------------------------------- */

/* The name of a value in its own type, or in type `as`: cast unless it is an initializer stored in that type. */
const char *emit_value(emitter *e, const ir_value *v);
const char *emit_value_as(emitter *e, const ir_value *v, ir_dtype as);
/* The name of an initializer with these values, which are copied. Equal constants share one initializer. */
const char *emit_constant(emitter *e, const ir_type *type, const void *bytes);
const char *emit_i64s(emitter *e, const int64_t *items, int count); /* i64[count] */
const char *emit_i64(emitter *e, int64_t v);                        /* i64[] */
/* Defines result i of n as the value `name`, which has type `is`: by a Cast, by an Identity, or as an alias. */
void emit_define(emitter *e, const ir_node *n, int i, const char *name, ir_dtype is);
void emit_operand(emit_op *op, int i); /* ir_in(n, i), or absent */
void emit_operands(emit_op *op);       /* all */

/* ---- emit_dims.c: sizes known at run time ---------------------------------------------------- */

/* An i64[count] value with these dimensions; symbolic ones are computed at run time from the shapes of graph inputs.
 * NULL after reporting a symbol that no input has. */
const char *emit_dims(emitter *e, const ir_node *n, const ir_dim *items, int count);
/* The concatenation of such values, which has `size` elements. */
const char *emit_concat(emitter *e, const ir_node *n, const char *const *parts, int count, int size);
const char *emit_dim_scalar(emitter *e, const ir_node *n, ir_dim d); /* i64[] */

/* ---- emit_opaque.c, emit_opaque_bytes.c: attributes of opaque nodes, which are stored as bytes ----------------- */

/* Adds a region as an attribute. */
void emit_region(emitter *e, const ir_node *n, const ir_region *region, rope *attributes);
void emit_layout_operands(emit_op *op); /* operands and results in the order of the operator */
void emit_layout_results(emit_op *op);

/* Decodes the attributes of an opaque node into a NodeProto in the emitter's arena. NULL after reporting that they
 * are malformed. */
const Onnx__NodeProto *emit_decode_opaque(emitter *e, const ir_node *n, onnx_bytes *bytes);
/* Reserves the names that subgraphs stored as bytes in opaque nodes define, so that graph g does not define them
 * again. */
void emit_reserve_opaque(emitter *e, const ir_graph *g);

/* ---- emit_tensor.c --------------------------------------------------------------------------- */

/* Adds a storage, converted to type `as`, to the initializers of this round. */
void emit_add_storage(emitter *e, const ir_storage *s, const char *name, ir_dtype as);
/* Writes the TensorProtos of all initializers. `external`: large values go to the data part. */
void emit_put_tensors(emitter *e, rope *graph, bool external);
ampc_status emit_write_data(emitter *e);
/* Opens the files that contain initializers; called after the last round. */
ampc_status emit_open_sources(emitter *e);
/* Warns of values that overflowed to infinity in a conversion. */
ampc_status emit_report_overflow(emitter *e);
void emit_close_files(emitter *e);
/* Writes a ValueInfoProto as field `number`. `doc`: a description, or NULL. */
void emit_put_value_info(emitter *e, rope *out, uint32_t number, const char *name, const ir_type *type,
                         const char *doc);
/* Writes the type of a value that is not a result in the IR, if it is one of a training step. */
void emit_declare(emitter *e, const char *name, const ir_type *type);
void emit_declare_sizes(emitter *e, const char *name, int count); /* i64[count] */

#define EMIT_NONE(op, rule) void emit_##rule(emitter *e, const ir_node *n);
#define EMIT(onnx, op, rule) EMIT_NONE(op, rule)
#include "frontend/onnx.def"

#endif
