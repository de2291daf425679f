/* lower.h - what the lowering families (lower_*.c) share: the importer's state, one node at a
 * time.
 *
 * A handler reads attributes and operands of an onnx_node and sets its results. Errors are
 * sticky: an accessor that finds something wrong reports it, marks the node failed and returns a
 * harmless default, and the builder gives NULL for whatever depends on NULL. So a handler is a
 * formula; the caller looks at the node once, afterwards. */
#ifndef AMPC_FRONTEND_LOWER_H
#define AMPC_FRONTEND_LOWER_H

#include "frontend/onnx.h"
#include "frontend/read/tensor.h"

typedef struct onnx_node onnx_node;
typedef struct onnx_ties onnx_ties;

/* One line of onnx_ops.def: an operator from an opset version on. */
typedef struct onnx_row {
    const char *op;
    int since;
    int min_in, max_in, max_out;
    void (*lower)(onnx_node *n);
    int arg; /* meaning is the handler's: mostly the IR op */
} onnx_row;

/* A name of the model and what it stands for. */
typedef struct onnx_binding {
    ir_value *value; /* NULL: an initializer not read yet, or `failed` */
    onnx_tensor *initializer;
    bool failed; /* its node failed; that has been reported */
} onnx_binding;

typedef struct onnx_scope { /* one graph; a graph inside a node sees the names outside */
    const Onnx__GraphProto *graph;
    const struct onnx_scope *outer;
    strmap *bindings;       /* onnx_binding * by name */
    size_t node, attribute; /* where it is in the outer graph */
} onnx_scope;

typedef struct onnx_capture { /* a value outside, as a body reads it: its input, or a view of that */
    ir_value *outside, *input, *inside;
} onnx_capture;

typedef struct onnx_body { /* a graph of the module while it is made */
    struct onnx_body *outer; /* NULL: this is the model's own graph */
    ir_graph *graph;
    ir_knowledge *knowledge;
    VEC(onnx_capture) captures;
} onnx_body;

typedef struct onnx_store { /* a state and what it will be after the run */
    ir_storage *state;
    ir_value *value;
} onnx_store;

typedef struct onnx_importer {
    onnx_file *file;
    const onnx_import_options *options;
    const char *path; /* in the module's arena: locations point to it */
    ir_module *module;
    arena *arena;   /* the module's */
    arena *scratch; /* until the import ends */
    ir_graph *graph;
    ir_builder builder;
    ir_knowledge *knowledge;
    diag *diag;
    diag *trial; /* of attempts to lower a node that else becomes foreign; NULL: no foreign nodes */
    diag *inner; /* of attempts to lower a graph inside a foreign node */
    onnx_body *body; /* what is being lowered: `graph` and `knowledge` are its own */
    int opset;
    int64_t max_bytes;
    strmap *rows;    /* operator -> its first onnx_row */
    const onnx_row *foreign; /* of operators that have none */
    ir_storage *rng; /* made by the first Dropout that drops */
    int streams;     /* Dropout nodes so far */
    int node_index;  /* nodes so far, for the names of nodes without one */
    size_t failures;
    const strmap *declarations; /* of initializers, by the exporter's metadata (exporter.c) */
    onnx_ties *ties;            /* tensors that the exporter merged (ties.c) */
    VEC(onnx_store) stores;
    const Onnx__GraphProto *fields_of;    /* whose nodes lie at `node_fields` in the file */
    const struct wire_field *node_fields;
    const Onnx__GraphProto *declared_of;  /* whose declared types `declared` has by name */
    strmap *declared;
} onnx_importer;

struct onnx_node {
    onnx_importer *importer;
    ir_builder *b;
    ir_dim_table *dims;
    const onnx_scope *scope;
    const Onnx__NodeProto *proto;
    const onnx_row *row;
    size_t index; /* in its graph */
    int opset;
    int arg;
    int n_in, n_out;
    ir_value **in;   /* [n_in]; NULL = absent */
    ir_value **out;  /* [n_out], set by the handler; "" outputs may stay NULL */
    bool *attr_read; /* [proto->n_attribute] */
    bool failed;
};

static inline ir_value *onnx_in(const onnx_node *n, int i) { return i < n->n_in ? n->in[i] : NULL; }
/* Whether the node has an output i with a name. */
static inline bool onnx_wants(const onnx_node *n, int i)
{
    return i < n->n_out && *n->proto->output[i];
}

/* ---- node.c ---------------------------------------------------------------------------------- */

diag_loc onnx_loc(const onnx_node *n);
/* Malformed (AMPC_REJECTED); something we do not have (AMPC_UNSUPPORTED). Both mark the node
 * failed. */
void onnx_reject(onnx_node *n, const char *format, ...) __attribute__((format(printf, 2, 3)));
void onnx_refuse(onnx_node *n, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- attribute.c ----------------------------------------------------------------------------- */

/* A list of numbers from an attribute or from an operand known while compiling (then elements may
 * be symbolic). */
typedef struct onnx_list {
    const ir_dim *items;
    int count;
    bool present;
} onnx_list;

bool onnx_has(onnx_node *n, const char *name);
/* The attribute's value, or `otherwise` when the node has none. A wrong type is malformed. */
int64_t onnx_int(onnx_node *n, const char *name, int64_t otherwise);
bool onnx_bool(onnx_node *n, const char *name, bool otherwise);
double onnx_float(onnx_node *n, const char *name, double otherwise);
const char *onnx_text(onnx_node *n, const char *name, const char *otherwise);
onnx_list onnx_ints(onnx_node *n, const char *name);
/* Message attributes; NULL when absent. */
const Onnx__TensorProto *onnx_tensor_attr(onnx_node *n, const char *name);
const Onnx__GraphProto *onnx_graph_attr(onnx_node *n, const char *name);
const Onnx__AttributeProto *onnx_attr(onnx_node *n, const char *name, int type); /* any other */
/* Attributes that mean nothing to us (seed). */
void onnx_ignore(onnx_node *n, const char *name);
/* After the handler: an attribute that it never asked for is not one of the operator's. */
void onnx_check_attributes(onnx_node *n);
/* Before: names given twice, attributes without a type. */
void onnx_check_attribute_names(onnx_node *n);

/* ---- operand.c ------------------------------------------------------------------------------- */

/* The value of operand i, which must be known while compiling; NULL after reporting that it is
 * not. A float initializer is not known: it may be trained. */
const ir_known *onnx_known(onnx_node *n, int i);
/* The same for numbers that say what the operator does (a ratio, scales): a float initializer becomes a constant that
 * training cannot move (IR_HELD_READ). Never for data that a derivative goes through. */
const ir_known *onnx_known_amounts(onnx_node *n, int i);
/* Integers of rank 0 or 1. `present` is false when the operand is absent. */
onnx_list onnx_known_list(onnx_node *n, int i);
/* The same as a shape: at most ONNX_MAX_RANK dimensions, none of them negative. */
onnx_list onnx_known_shape(onnx_node *n, int i);
/* One element, as float or as integer (not symbolic); `otherwise` when absent. */
double onnx_known_float(onnx_node *n, int i, double otherwise);
int64_t onnx_known_int(onnx_node *n, int i, int64_t otherwise);
/* What was an attribute before opset `since` and is operand i from then on. */
onnx_list onnx_list_since(onnx_node *n, const char *attribute, int i, int since);
/* Reports a list with symbolic elements. */
bool onnx_numeric(onnx_node *n, onnx_list list, const char *what);
/* A dimension as a number; reports a symbolic one. */
int64_t onnx_size(onnx_node *n, ir_dim d, const char *what);

/* axis in [-rank, rank) -> [0, rank); out of range is reported and gives 0. */
int onnx_axis(onnx_node *n, ir_dim axis, int rank);
/* Each axis marked in set[rank]; duplicates are malformed. */
void onnx_axes(onnx_node *n, onnx_list axes, int rank, bool *set);
/* Shape of operand i as a dims node's list. */
ir_value *onnx_dims_value(onnx_node *n, const ir_dim *items, int count);
/* A one-element value as a scalar. */
ir_value *onnx_scalar_of(onnx_node *n, ir_value *v);

/* ---- initializer.c --------------------------------------------------------------------------- */

/* A described tensor as a storage value of @forward: small ones inline, big ones by reference to
 * their file; those that shape arithmetic may need are read. NULL after reporting a type that the
 * IR does not have. */
ir_value *onnx_tensor_value(onnx_importer *im, ir_storage_kind kind, const char *name,
                            onnx_tensor *t, diag_loc loc);
/* Describes a tensor of the file into `out`, its lists in the module's arena. */
ampc_status onnx_initializers_bind(onnx_importer *im, onnx_scope *scope);
/* Whether training holds a float initializer that a derivative reaches, as far as its exporter tells. */
ir_held onnx_held(const onnx_importer *im, const ir_storage *s);
/* After lowering: parameters that no output depends on by a derivative become constants; what training should hold is
 * marked. */
void onnx_classify_parameters(onnx_importer *im);

/* ---- exporter.c ------------------------------------------------------------------------------ */

/* A name that an exporter generated for a constant; only one element may be judged by its name. */
bool onnx_is_generated(const char *name);

/* What the metadata of an exporter says about an initializer. */
typedef enum onnx_declared { ONNX_NOT_DECLARED, ONNX_DECLARED_PARAMETER, ONNX_DECLARED_CONSTANT } onnx_declared;
/* const onnx_declared * by name; names about which nothing is said are absent. */
strmap *onnx_declarations(const Onnx__GraphProto *g, arena *a);

/* ---- ties.c ---------------------------------------------------------------------------------- */

/* A tensor of the network that the file does not have by itself: an exporter merged it into an initializer. */
typedef struct onnx_tie {
    const char *name;
    size_t initializer; /* of the graph: what it starts as */
    struct onnx_tie *next; /* of the same initializer */
    ir_value *value;       /* the importer's: what reads it, NULL before it is asked for */
} onnx_tie;

/* Of the model's own graph, in the arena. `untie` false: parameters that are merged through Identity stay one. */
onnx_ties *onnx_ties_find(const Onnx__GraphProto *g, bool untie, const strmap *declarations, arena *a);
/* What stands in the place of operand `operand` of a node (0: of an Identity, 3 and 4: of a BatchNormalization), or
 * NULL: what the file has there. */
onnx_tie *onnx_tie_at(const onnx_ties *t, size_t node, int operand);
const onnx_tie *onnx_ties_of(const onnx_ties *t, size_t initializer); /* the first; NULL: none */

/* ---- check.c --------------------------------------------------------------------------------- */

/* Names, order and operators of one graph, before anything is lowered. Reports all problems. */
ampc_status onnx_check_graph(onnx_importer *im, const onnx_scope *scope);
/* The row for a node, or NULL. */
const onnx_row *onnx_find_row(const onnx_importer *im, const Onnx__NodeProto *p);
const char *onnx_node_name(onnx_importer *im, const Onnx__NodeProto *p, int index);

/* ---- declared.c: types that the model declares ------------------------------------------------- */

const Onnx__TypeProto__Tensor *onnx_tensor_type(const Onnx__ValueInfoProto *info); /* NULL: of no tensor */
/* What the model declares for a value of the node's graph, whole or in part; NULL: nothing. */
const Onnx__ValueInfoProto *onnx_find_declared(const onnx_node *n, const char *name);
/* The type of a declaration; `used` (by dimension binding) may be NULL. `what` is for messages: "graph input". */
ampc_status onnx_declared_type(onnx_importer *im, const char *what,
                               const Onnx__ValueInfoProto *info, bool *used, ir_type *out);
/* Reports a declaration that contradicts the computed type. */
void onnx_check_declared(onnx_importer *im, const onnx_scope *scope, const Onnx__ValueInfoProto *info);
/* A size that nothing tells: a symbol of its own. */
ir_dim onnx_unknown_dim(onnx_node *n, int i, int axis);

/* ---- scope.c --------------------------------------------------------------------------------- */

onnx_binding *onnx_find(const onnx_scope *scope, const char *name);
/* The value of a name as the current graph has it, or NULL (unknown names have been refused before; a failed one is
 * silent). */
ir_value *onnx_value(onnx_importer *im, const onnx_scope *scope, const char *name);
void onnx_bind(onnx_importer *im, onnx_scope *scope, const char *name, ir_value *v);
/* Operand i of an Identity or BatchNormalization: the tensor of its own that it stands for, or n->in[i]. */
ir_value *onnx_separate(onnx_node *n, int i);

/* ---- graph.c --------------------------------------------------------------------------------- */

/* Lowers all nodes of a graph into the current one. False when any failed (reported). */
bool onnx_lower_graph(onnx_importer *im, onnx_scope *scope);
/* Removes nodes whose results nothing reads. */
void onnx_remove_unread(ir_graph *g);

/* ---- window.c: what Conv and the pools have in common ---------------------------------------- */

typedef struct onnx_window {
    int n; /* spatial axes */
    int64_t kernel[ONNX_MAX_RANK], strides[ONNX_MAX_RANK], dilations[ONNX_MAX_RANK];
    int64_t pads[2 * ONNX_MAX_RANK]; /* all begins, then all ends */
} onnx_window;

/* kernel_shape (default: `kernel` when not NULL), strides, dilations, pads and auto_pad of a node
 * whose operand 0 is `x` [N,C,spatial]. */
onnx_window onnx_window_of(onnx_node *n, const ir_value *x, const ir_dim *kernel);
/* Writes all of it but the kernel into the attributes of a node of this op. */
#define ONNX_SET_WINDOW(node, op, w)                                                               \
    (ir_set_list((node), IR_ATTR(op, strides), (w)->strides, (w)->n),                              \
     ir_set_list((node), IR_ATTR(op, pads), (w)->pads, 2 * (w)->n),                                \
     ir_set_list((node), IR_ATTR(op, dilations), (w)->dilations, (w)->n))

/* ---- operators.c: what the table of operators says of a node ---------------------------------- */

/* By the node's row; of a foreign node by the schemas, where the operator is ONNX's own. */
onnx_arity onnx_arity_of(const onnx_node *n);

typedef struct onnx_types {
    const char *letters; /* of operators.def */
    char mark;           /* t or h (ops.def, foreign): what a t there means in the opset that will be written */
} onnx_types;

onnx_types onnx_types_of(const onnx_node *n);
char onnx_operand_mark(const onnx_types *t, int i);
char onnx_result_mark(const onnx_types *t, int i);
bool onnx_is_default_domain(const char *domain);

/* ---- body.c: graphs inside them --------------------------------------------------------------- */

typedef struct onnx_bodies {
    VEC(ir_graph *) graphs;      /* one for each attribute that is a graph, in their order */
    VEC(const char *) attributes;
    VEC(const char *) captures;  /* names that they have for values outside ... */
    VEC(ir_value *) values;      /* ... which are these */
    ir_type *types;              /* [n->n_out] of the results that have a name */
} onnx_bodies;

/* Lowers the graphs of an If, Loop or Scan. False: they stay as they are; a remark says why, if there are any. */
bool onnx_lower_bodies(onnx_node *n, onnx_bodies *out);

/* Handlers, one declaration for each that the table names. */
#define ROW(op, since, min_in, max_in, max_out, handler, arg)                                      \
    void onnx_lower_##handler(onnx_node *n);
#include "frontend/lower/onnx_ops.def"

#endif
