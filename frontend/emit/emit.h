/* emit.h - what the emission families (emit_*.c) share: the writer's state, one ONNX node at a
 * time. The mirror image of lower.h.
 *
 * A rule turns one IR node into one ONNX node, sometimes with a few others around it:
 *
 *     emit_op op = emit_begin(e, n, "Concat");
 *     emit_operands(&op);
 *     emit_int(&op, "axis", axis);
 *     emit_results(&op);
 *     emit_end(&op);
 *
 * Whatever a node reads (casts, constants, shapes that are computed) is written when it is asked
 * for, so before the node itself: ask before emit_end.
 *
 * The graph is written in rounds until nothing new is learnt: which opset the forms need, and in
 * which types each initializer is read. A weight that is only read as fp16 is stored as fp16, one
 * that is read in several types is stored once and cast. */
#ifndef AMPC_FRONTEND_EMIT_H
#define AMPC_FRONTEND_EMIT_H

#include "frontend/onnx.h"
#include "frontend/read/splice.h"
#include "frontend/read/tensor.h"

#include <stdio.h>

typedef struct emitter emitter;
typedef void emit_rule(emitter *e, const ir_node *n);

/* One line of emit.def. */
typedef struct emit_row {
    emit_rule *rule;
    const onnx_operator *onnx; /* that an IR op becomes, or mostly becomes; its name is NULL: none */
} emit_row;

/* An initializer of the new model: values of a storage, or bytes of our own. */
typedef struct emit_tensor {
    const char *name;
    ir_type type;
    const ir_storage *storage; /* NULL: `bytes` */
    const void *bytes;
    splice_source *source; /* when the storage lies in a file */
    size_t size, offset;   /* in bytes; offset in the data part */
    size_t infinities;     /* made by the conversion */
} emit_tensor;

typedef struct emit_storage {
    unsigned asked;   /* learnt: bit mask of the types that it is read in */
    const char *name; /* in this round; NULL: not read yet */
    ir_dtype dtype;   /* as written */
} emit_storage;

typedef struct emit_file { /* an open weights file */
    const char *path;
    FILE *stream;
} emit_file;

/* One graph while its nodes are written: the model's own, or a body inside one of its nodes, which sees the names of
 * the graphs around it. */
typedef struct emit_scope {
    struct emit_scope *outer;
    const ir_graph *graph;
    bool *keeps_name;        /* by node id: it has the name of its location */
    const char **output_of;  /* by value id: the graph output that it is, or NULL */
    const char **output;     /* by node id: the name that an output statement gives */
    const char **value;      /* by value id: name; NULL: not defined yet */
    strmap *made;            /* what several nodes share: key -> name of the value */
    splice nodes, infos;
} emit_scope;

struct emitter {
    const emit_row *rows; /* by op */
    const ir_module *module;
    const ir_graph *graph; /* the model's own */
    const onnx_emit_options *options;
    diag *diag;
    arena *arena;
    /* kept from round to round */
    int opset;             /* written */
    emit_storage *storage; /* by storage id */
    bool learnt;           /* something new in this round */
    VEC(emit_file) files;
    /* one round */
    strmap *names;      /* of values: taken */
    strmap *node_names; /* taken */
    emit_scope *scope;
    int64_t made_count;
    VEC(emit_tensor) tensors;
};

/* ---- emit_graph.c: one graph ------------------------------------------------------------------ */

/* Writes all nodes of a graph into a new scope, which becomes the current one until emit_leave. `inputs`, by position,
 * are the names that its inputs have outside, NULL where they are its own. */
emit_scope *emit_enter(emitter *e, const ir_graph *g, const char *const *inputs);
void emit_leave(emitter *e);
/* The GraphProto of a scope without initializers; with those inputs that are its own. */
splice emit_graph(emitter *e, const emit_scope *s, const char *const *inputs);

/* ---- emit_name.c ----------------------------------------------------------------------------- */

/* A name that no other value has: `wanted`, or that with a number. */
const char *emit_name(emitter *e, const char *wanted);
/* The name that was made for the key and is visible here, or NULL; makes one known in the current graph. */
const char *emit_made(const emitter *e, const char *key);
void emit_make(emitter *e, const char *key, const char *name);
/* Reports the node (AMPC_UNSUPPORTED). */
void emit_refuse(emitter *e, const ir_node *n, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- emit_opset.c ---------------------------------------------------------------------------- */

int emit_first_opset(const emitter *e); /* before anything is written */
/* The form needs this opset: it is what the model gets. */
void emit_need(emitter *e, int opset);
/* The node's types are in the schema of its operator: in that of this opset, or in a later one, which it needs. */
void emit_check_schema(emitter *e, const ir_node *n);
/* The version of the file format that came with an opset. */
int emit_ir_version(int opset);

/* ---- emit_node.c: one NodeProto -------------------------------------------------------------- */

typedef struct emit_op {
    emitter *e;
    const ir_node *n; /* NULL: of no node */
    const char *type, *domain, *name;
    splice in, out, attributes;
    struct {
        int result;
        const char *name; /* what it is called before the cast */
        ir_dtype is;
    } casts[4];
    int n_casts;
} emit_op;

/* The main node of n, which may carry n's name; a node beside it. */
emit_op emit_begin(emitter *e, const ir_node *n, const char *type);
emit_op emit_beside(emitter *e, const ir_node *n, const char *type);
void emit_in(emit_op *op, const char *name); /* NULL: absent */
void emit_int(emit_op *op, const char *name, int64_t v);
void emit_float(emit_op *op, const char *name, double v);
void emit_text(emit_op *op, const char *name, const char *v);
void emit_ints(emit_op *op, const char *name, const int64_t *items, int count);
/* The attribute of n at this position, an INTS list. */
void emit_list(emit_op *op, const char *name, int attr);
void emit_out(emit_op *op, const char *name);
/* Result i of n, which ONNX gives in type `is`: a cast follows when the IR's is another. A result
 * that nothing reads is left out. */
void emit_result(emit_op *op, int i, ir_dtype is);
void emit_results(emit_op *op); /* all, in the IR's types */
void emit_end(emit_op *op);
/* A node without attributes that n needs; the name of its one result. */
const char *emit_call(emitter *e, const ir_node *n, const char *type, const char *a, const char *b);
/* `name` cast to another type; shared. */
const char *emit_cast_of(emitter *e, const ir_node *n, const char *name, ir_dtype to);

/* ---- emit_value.c: names of what a node reads ------------------------------------------------ */

/* The value in its own type; in type `as`, by a cast unless it is an initializer in that type. */
const char *emit_value(emitter *e, const ir_value *v);
const char *emit_value_as(emitter *e, const ir_value *v, ir_dtype as);
/* An initializer with these values (copied). Equal ones are one. */
const char *emit_constant(emitter *e, const ir_type *type, const void *bytes);
const char *emit_i64s(emitter *e, const int64_t *items, int count); /* i64[count] */
const char *emit_i64(emitter *e, int64_t v);                        /* i64[] */
/* Result i of n has the value called `name` of type `is`: a Cast, an Identity, or only the name. */
void emit_define(emitter *e, const ir_node *n, int i, const char *name, ir_dtype is);
void emit_operand(emit_op *op, int i); /* ir_in(n, i), or absent */
void emit_operands(emit_op *op);       /* all */

/* ---- emit_dims.c: sizes known at run time ---------------------------------------------------- */

/* i64[count] with these values; computed from the shapes of graph inputs where they are
 * symbolic. NULL after reporting a symbol that is in no input. */
const char *emit_dims(emitter *e, const ir_node *n, const ir_dim *items, int count);
const char *emit_dim_scalar(emitter *e, const ir_node *n, ir_dim d); /* i64[] */

/* ---- emit_foreign_bytes.c: the attributes of a foreign node that were carried along as bytes ---- */

/* The attributes as a node of their own, decoded; NULL after reporting that they are malformed. */
const Onnx__NodeProto *emit_decode_foreign(emitter *e, const ir_node *n, onnx_bytes *bytes);
/* Names that the graphs inside of foreign nodes define are taken: graph g must not define them. */
void emit_reserve_foreign(emitter *e, const ir_graph *g);

/* ---- emit_tensor.c --------------------------------------------------------------------------- */

/* Adds a storage in that type to the initializers of this round. */
void emit_add_storage(emitter *e, const ir_storage *s, const char *name, ir_dtype as);
/* The TensorProtos of all initializers; external: their values are in the data part. */
void emit_put_tensors(emitter *e, splice *graph, bool external);
ampc_status emit_write_data(emitter *e, splice_write_fn *write, void *user);
/* After the rounds: opens the files that initializers lie in. */
ampc_status emit_open_sources(emitter *e);
/* Warns of values that became infinite on the way. */
ampc_status emit_report_overflow(emitter *e);
void emit_close_files(emitter *e);
/* ValueInfoProto as field `number`. */
void emit_put_value_info(emitter *e, splice *out, uint32_t number, const char *name, const ir_type *type);

#define EMIT(op, rule, type) void emit_##rule(emitter *e, const ir_node *n);
#include "frontend/emit/emit.def"

#endif
