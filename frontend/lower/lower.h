/* lower.h - shared by the lowering handlers (lower_*.c): the importer's state and the API for lowering one node.
 *
 * A handler reads attributes and operands of an onnx_node and sets its results. Errors are sticky: an accessor that
 * finds a problem reports it, marks the node failed and returns a harmless default, and the builder returns NULL for
 * everything that depends on NULL. Handlers therefore need no error checks; the caller checks the node once at the
 * end. */
#ifndef AMPC_FRONTEND_LOWER_H
#define AMPC_FRONTEND_LOWER_H

#include "frontend/onnx.h"
#include "frontend/read/tensor.h"
#include "ir/graph/exported.h"

typedef struct onnx_node onnx_node;
typedef struct onnx_ties onnx_ties;

/* A form in onnx.def: an operator from an opset version on; or of other_ops.def, which has letters; or one of the
 * three that no name finds (onnx_importer: opaque, custom, function). graph.c runs handlers only through these rows,
 * which import.c collects, because handlers may lower the nodes of further graphs. */
typedef struct onnx_row {
    const char *op;
    int since;
    int min_in, max_in, max_out;
    void (*lower)(onnx_node *n);
    int arg; /* handler-specific, usually the IR op */
    bool composite;
    bool sequences; /* operands may be sequences; the handler checks which of them, and which are absent */
    const char *domain, *letters; /* of other_ops.def; otherwise NULL */
} onnx_row;

/* What a name of the model stands for: a value or a sequence; neither: absent. */
typedef struct onnx_item {
    ir_value *value;
    const struct onnx_sequence *sequence;
} onnx_item;

/* A sequence whose length is known, or an optional, which is a sequence of at most one item. Exists only in the
 * importer; never changes. */
typedef struct onnx_sequence {
    bool is_optional;
    int count;
    onnx_item *items;
} onnx_sequence;

/* A name of the model and the value it refers to. */
typedef struct onnx_binding {
    ir_value *value; /* NULL: a sequence, an initializer that has not been read yet, `absent` or `failed` */
    const onnx_sequence *sequence;
    onnx_tensor *initializer;
    const char *merged; /* the name under which the file has it, if that is another; "": it does not */
    bool absent;        /* an input of a function for which the call has no operand */
    bool failed;        /* its node failed, which has been reported */
} onnx_binding;

/* A model-local function. */
typedef struct onnx_function {
    const Onnx__FunctionProto *proto;
    Onnx__GraphProto *body;
    size_t index; /* in the model */
    int opset;    /* of the default domain */
    bool checked; /* names and operators of the body */
    bool active;  /* its body is being lowered */
} onnx_function;

typedef struct onnx_call { /* a call of a function whose body is being lowered */
    const onnx_function *function;
    const Onnx__NodeProto *node; /* its attributes are not references */
} onnx_call;

typedef struct onnx_scope { /* a graph; a subgraph sees the names of the enclosing scopes */
    const Onnx__GraphProto *graph;
    const struct onnx_scope *outer;
    strmap *bindings;      /* name -> onnx_binding * */
    size_t node;           /* position of the subgraph's node in the enclosing graph */
    const onnx_call *call; /* the call whose function contains the graph; NULL: none */
    bool made;             /* by the importer: the file does not have it */
    const char *path; /* precedes names in a body that is lowered in place of a node: "call/", "loop/3/"; or NULL */
} onnx_scope;

typedef struct onnx_capture { /* a captured value: the subgraph's input for it, or a view of that input */
    ir_value *outer, *input, *inner;
} onnx_capture;

typedef struct onnx_subgraph {   /* a graph of the module under construction */
    struct onnx_subgraph *outer; /* NULL: this is the main graph */
    ir_graph *graph;
    ir_const_map *consts;
    VEC(onnx_capture) captures;
} onnx_subgraph;

typedef struct onnx_store { /* a state and its value at the end of the run */
    ir_storage *state;
    ir_value *value;
} onnx_store;

typedef struct onnx_order { /* a graph whose nodes were not sorted */
    const Onnx__GraphProto *graph;
    size_t *position; /* [n_node], in the file, of each node of the sorted graph */
} onnx_order;

/* A batch that the export fixed (batch.c). */
typedef struct onnx_batch {
    int64_t size;  /* 0: it is not fixed */
    ir_dim symbol; /* IR_DIM_NONE: it stays fixed */
    strmap *nodes; /* names of the Reshape nodes in which it is the symbol */
    int reshaped;  /* their number */
} onnx_batch;

typedef struct onnx_importer {
    onnx_file *file;
    const onnx_import_options *options;
    const char *path; /* in the module's arena, because locations refer to it */
    ir_module *module;
    arena *arena;   /* the module's */
    arena *scratch; /* freed at the end of the import */
    ir_graph *graph;
    ir_builder builder;
    ir_const_map *consts;
    diag *diag;
    diag *trial;             /* for trial lowering before a node becomes opaque; NULL: no opaque nodes */
    diag *inner;             /* for trial lowering of the subgraphs of an opaque node; without opaque nodes, `diag` */
    onnx_subgraph *subgraph; /* the graph being lowered; owns `graph` and `consts` */
    int opset;               /* of the graph being lowered */
    int model_opset;         /* of the main graph */
    bool *dims_used;         /* by index in the options */
    int64_t max_bytes;
    strmap *functions;        /* domain, name and overload -> onnx_function *; NULL: none */
    strmap *payloads;         /* values of Constant nodes in bodies, by their address -> ir_storage * */
    int64_t inlined;          /* what the budget of bodies counts */
    int nesting;              /* of bodies that are lowered in place of nodes */
    strmap *rows;             /* operator, after "domain:" if it is not ONNX's, -> its first onnx_row */
    const onnx_row *opaque;   /* row of operators without an IR op */
    const onnx_row *custom;   /* row of custom operators */
    const onnx_row *function; /* row of calls of functions */
    const strmap *composites; /* operators that stay one opaque node unless they fold; NULL: none */
    ir_storage *rng;          /* created by the first node that draws random numbers */
    int streams;              /* number of such nodes without a seed so far */
    int node_index;           /* number of nodes so far, for naming nodes without a name */
    strmap *declarations;     /* exporter metadata about initializers (exporter.c) */
    onnx_ties *ties;          /* tensors that the exporter merged (ties.c) */
    VEC(onnx_store) stores;
    VEC(onnx_order) orders;
    const Onnx__GraphProto *fields_of; /* the graph whose nodes `node_fields` locates in the file */
    const struct wire_field *node_fields;
    const Onnx__GraphProto *declared_of; /* the graph whose declared types `declared` indexes by name */
    strmap *declared;
    onnx_batch batch;
    int channel_block; /* of com.microsoft.nchwc (lower_nchwc.c); 0: not known yet */
    strmap *narrow;    /* the names of tensors of 2- and 4-bit integers -> their bits; NULL: none */
    strmap *data_dims; /* the names of symbols for sizes that depend on data; NULL: none */
} onnx_importer;

struct onnx_node {
    onnx_importer *importer;
    ir_builder *b;
    ir_dim_table *dims;
    const onnx_scope *scope;
    const Onnx__NodeProto *proto;
    const onnx_row *row;
    const char *letters; /* of its row in other_ops.def, also if it has become opaque; otherwise NULL */
    size_t index;        /* in its graph */
    int opset;
    int arg;
    int n_in, n_out;
    ir_value **in;  /* [n_in]; NULL: absent, or a sequence */
    ir_value **out; /* [n_out], set by the handler; may stay NULL for outputs named "" */
    const onnx_sequence **in_sequence, **out_sequence; /* [n_in], [n_out]: operands and results that are sequences */
    ir_type *types;  /* [n_out], of the named results of a composite operator that stays opaque; otherwise NULL */
    bool *attr_read; /* [proto->n_attribute] */
    bool in_parts;   /* the handler's nodes are not replaced by one opaque node */
    bool failed;
};

static inline ir_value *onnx_in(const onnx_node *n, int i) { return i < n->n_in ? n->in[i] : NULL; }
/* Whether output i exists and has a name. */
static inline bool onnx_result_is_used(const onnx_node *n, int i) { return i < n->n_out && *n->proto->output[i]; }

/* ---- node.c ---------------------------------------------------------------------------------- */

diag_loc onnx_loc(const onnx_node *n);
/* Reports a problem with the node unless it has failed already, and marks it failed. */
void onnx_fail(onnx_node *n, ampc_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define onnx_reject(n, ...) onnx_fail((n), AMPC_REJECTED, __VA_ARGS__)    /* malformed */
#define onnx_refuse(n, ...) onnx_fail((n), AMPC_UNSUPPORTED, __VA_ARGS__) /* unsupported */
/* Refuses the node because of a dimension: the remedy is a size for its symbol, if that does not depend on data. */
void onnx_refuse_dim(onnx_node *n, ir_dim d, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Counts work on copies of bodies. False after reporting that it exceeds ONNX_MAX_INLINED. */
bool onnx_charge(onnx_node *n, int64_t nodes);

/* ---- attribute.c ----------------------------------------------------------------------------- */

/* A list of numbers from an attribute, or from an operand known at compile time, whose elements may be symbolic. */
typedef struct onnx_list {
    const ir_dim *items;
    int count;
    bool present;
} onnx_list;

bool onnx_has(onnx_node *n, const char *name);
/* The value of an attribute, or `otherwise` if the node does not have it. A wrong type is reported as malformed. */
int64_t onnx_int(onnx_node *n, const char *name, int64_t otherwise);
bool onnx_bool(onnx_node *n, const char *name, bool otherwise);
double onnx_float(onnx_node *n, const char *name, double otherwise);
const char *onnx_text(onnx_node *n, const char *name, const char *otherwise);
/* The position of a text attribute in a NULL-terminated list; `otherwise` if it is absent. Rejects other texts. */
int onnx_word(onnx_node *n, const char *name, const char *const *words, int otherwise);
/* The same among the first `count` words, which are those of the operator's version. */
int onnx_word_of(onnx_node *n, const char *name, const char *const *words, int count, int otherwise);
onnx_list onnx_ints(onnx_node *n, const char *name);
/* A list of floats; NULL and *count 0 if absent. */
const float *onnx_floats(onnx_node *n, const char *name, int *count);
/* Attributes that are messages; NULL if absent. */
const Onnx__TensorProto *onnx_tensor_attr(onnx_node *n, const char *name);
const Onnx__GraphProto *onnx_graph_attr(onnx_node *n, const char *name);
const Onnx__AttributeProto *onnx_attr(onnx_node *n, const char *name, int type); /* of any type */
/* Accepts an attribute without using it (for example seed). */
void onnx_ignore(onnx_node *n, const char *name);
/* Called after the handler: reports attributes that it did not read, since they are not part of the operator. */
void onnx_check_attributes(onnx_node *n);
/* Called before the handler: reports duplicate names and attributes without a type. */
void onnx_check_attribute_names(onnx_node *n);

/* ---- operand.c ------------------------------------------------------------------------------- */

/* The value of operand i, which must be known at compile time; NULL after reporting that it is not. Float
 * initializers do not count as known because they may be trained. */
const ir_const_value *onnx_const(onnx_node *n, int i);
/* Like onnx_const, for numbers that control the operator (a ratio, scales): a float initializer becomes a constant
 * that training leaves alone (fact `read`). Not for data that a derivative passes through. */
const ir_const_value *onnx_const_numbers(onnx_node *n, int i);
/* The same for a value of the graph with this map, without a message: NULL if it is not known. */
const ir_const_value *onnx_known_numbers(onnx_node *n, ir_const_map *consts, const ir_value *v);
/* Like onnx_const_numbers, for a mandatory operand whose values determine the size of the result; never symbolic. NULL
 * without a message if the values are computed at run time. */
const ir_const_value *onnx_const_sizing(onnx_node *n, int i);
/* A list of integers from an operand of rank 0 or 1. `present` is false if the operand is absent. */
onnx_list onnx_const_list(onnx_node *n, int i);
/* Like onnx_const_list, for a shape: at most ONNX_MAX_RANK dimensions, none of them negative. */
onnx_list onnx_const_shape(onnx_node *n, int i);
/* The only element of an operand, float or integer, not symbolic; `otherwise` if the operand is absent. */
double onnx_const_float(onnx_node *n, int i, double otherwise);
int64_t onnx_const_int(onnx_node *n, int i, int64_t otherwise);
/* A list that is an attribute before opset `since` and operand i from then on. */
onnx_list onnx_list_since(onnx_node *n, const char *attribute, int i, int since);
/* Whether no element is symbolic; reports the first that is. */
bool onnx_numeric(onnx_node *n, onnx_list list, const char *what);
/* A dimension as a number; reports a symbolic one and returns 1. */
int64_t onnx_size(onnx_node *n, ir_dim d, const char *what);

/* Maps an axis from [-rank, rank) to [0, rank). Reports an axis out of range and returns 0. */
int onnx_axis(onnx_node *n, ir_dim axis, int rank);
/* Sets set[axis] for each axis and clears the rest of set[rank]; duplicates are malformed. */
void onnx_axes(onnx_node *n, onnx_list axes, int rank, bool *set);
/* An i64[count] value with these dimensions, from a new `dims` node. */
ir_value *onnx_dims_value(onnx_node *n, const ir_dim *items, int count);
/* 0, 1, ... in an integer type. */
ir_value *onnx_iota(onnx_node *n, ir_dtype dtype, ir_dim size);
/* Reshapes a one-element value to a scalar. */
ir_value *onnx_scalar_of(onnx_node *n, ir_value *v);

/* ---- initializer.c --------------------------------------------------------------------------- */

/* Creates a storage for a tensor and returns its value in the current graph. Constants of up to 1 MiB are loaded, so
 * that they fold; other tensors that are not inline are referenced in their file. NULL after reporting an element
 * type that the IR does not have or a read error. */
ir_value *onnx_tensor_value(onnx_importer *im, ir_storage_kind kind, const char *name, onnx_tensor *t, diag_loc loc);
/* The bits of the integers of a tensor that has fewer than 8; otherwise 0. */
int onnx_narrow_bits(const onnx_importer *im, const ir_value *v);
/* Describes the initializers of a graph and binds their names. A storage is created when a node first reads one. */
ampc_status onnx_initializers_bind(onnx_importer *im, onnx_scope *scope);
/* Called after lowering: records what is known of each float tensor (ir/graph/decisions.def). */
void onnx_record_facts(onnx_importer *im);

/* ---- exporter.c ------------------------------------------------------------------------------ */

/* Whether an exporter generated this name for a constant. Only single-element tensors may be judged by their names. */
bool onnx_is_generated(const char *name);

/* What the exporter's metadata says about an initializer. */
typedef enum onnx_declared { ONNX_NOT_DECLARED, ONNX_DECLARED_PARAMETER, ONNX_DECLARED_CONSTANT } onnx_declared;
/* Maps names to const onnx_declared *; initializers without metadata are absent. */
strmap *onnx_declarations(const Onnx__GraphProto *g, arena *a);

/* The value of a key in metadata; NULL if it is absent. */
const char *onnx_metadata(Onnx__StringStringEntryProto *const *entries, size_t n, const char *key);
/* Keys of torch.onnx (dynamo): of a graph, and of a value. */
#define ONNX_SIGNATURE "pkg.torch.export.ExportedProgram.graph_signature"
#define ONNX_FOLDED_FROM "pkg.onnxscript.optimizer.folded_from"
/* Of a node: the rewrite rules that were applied to it. */
#define ONNX_RULES "pkg.onnxscript.rewriter.rule_name"

/* ---- signature.c ----------------------------------------------------------------------------- */

typedef struct onnx_spec { /* a tensor of the exported program */
    const char *argument, *target;
    bool parameter;
    bool present; /* it, or something computed from it, is in the file */
    bool stored;  /* `source` is the initializer with its values; `whole`: that has its name */
    bool whole;
    bool called;    /* it is an argument of a call that has nodes */
    bool explained; /* what happened to it is known */
    size_t source;
} onnx_spec;

typedef struct onnx_reading {     /* by an operand of a node */
    const onnx_spec *spec, *with; /* merged: the operand in the file is that of `with` */
    size_t node;
    int operand;
} onnx_reading;

typedef struct onnx_copy {      /* an initializer computed from a parameter */
    size_t initializer, source; /* source: has the values of the parameter, or others computed from it */
    bool whole;                 /* source is the parameter itself */
    const char *text;
} onnx_copy;

/* What became of the tensors of a program that torch.onnx (dynamo) exported. */
typedef struct onnx_signature {
    const char *text; /* NULL: there is none */
    bool valid;       /* it is about tensors of this file */
    strmap *initializers;
    VEC(onnx_spec *) specs;                 /* in the order of the text */
    VEC(onnx_reading) merged;               /* operands that stand for a tensor that was merged with another */
    VEC(onnx_reading) dropped;              /* operands that are absent because they were zero */
    VEC(onnx_copy) copies;                  /* of parameters that are in the file too */
    VEC(const char *) names[IR_FACT_COUNT]; /* what nothing can be done about */
} onnx_signature;

const onnx_signature *onnx_signature_read(const Onnx__GraphProto *g, arena *a);

/* ---- exported.c ------------------------------------------------------------------------------ */

/* Stores what is known about the export in the module's metadata. */
void onnx_record_export(onnx_importer *im);

/* ---- batch.c --------------------------------------------------------------------------------- */

/* Finds the batch that the export fixed, and creates a symbol for it if the options request it. */
void onnx_batch_find(onnx_importer *im, const onnx_scope *scope);
/* Replaces the batch in the type of a graph input, and in the dimensions of a Reshape. `unknown`: the index of -1, or
 * negative. */
void onnx_batch_input(const onnx_importer *im, ir_type *type);
void onnx_batch_reshape(onnx_node *n, ir_dim *dims, int rank, int unknown);
/* The size of a dimension that is `from` in the operand and specified as `to` in the result: `from` if it is the batch
 * and `to` the number that it had. */
ir_dim onnx_batch_size(const onnx_importer *im, ir_dim from, ir_dim to);
/* The operands of a node that does not broadcast, of rank 1 or more: operands of one sample, which are the same for
 * every sample, are repeated along the batch that others have. `axis`: along which the node computes. */
ir_value **onnx_batch_operands(onnx_node *n, int axis);
/* Checks that the finished graph allows every batch, and notes what has changed. */
ampc_status onnx_batch_check(onnx_importer *im, bool lowered);

/* ---- ties.c ---------------------------------------------------------------------------------- */

/* A tensor of the network that is not in the file because an exporter merged it into an initializer or removed it. */
typedef struct onnx_tie {
    const char *name;
    size_t initializer;       /* index in the graph; its values are the initial values. SIZE_MAX: they are zeros */
    const onnx_tensor *zeros; /* without values; NULL: it was merged */
    struct onnx_tie *next;    /* of the same initializer */
    bool parameter;
} onnx_tie;

/* An initializer that an exporter computed from a parameter that is in the file too. */
typedef struct onnx_derived {
    size_t initializer, source;
    bool transposed; /* a matrix; otherwise of the same elements in the same order */
} onnx_derived;

/* Finds what an exporter merged, removed or copied in the main graph; the result is allocated in `a`. `untie` false:
 * only running statistics are separated. */
ampc_status onnx_ties_find(onnx_file *f, bool untie, strmap *declarations, diag *d, arena *a, onnx_ties **out);
/* The tensor that operand `operand` of a node reads instead of the one in the file; NULL: that one is right. */
const onnx_tie *onnx_tie_at(const onnx_ties *t, size_t node, size_t operand);
/* The number of operands of a node. */
size_t onnx_ties_operands(const onnx_ties *t, size_t node);
/* Whether the node only renames a merged initializer. */
bool onnx_ties_rename(const onnx_ties *t, size_t node);
const onnx_tie *onnx_ties_of(const onnx_ties *t, size_t initializer); /* the first; NULL: none. SIZE_MAX: zeros */
const onnx_derived *onnx_ties_derived(const onnx_ties *t, size_t initializer); /* NULL: an initializer as it is */
/* Binds the names of these tensors in the scope of the main graph. */
ampc_status onnx_ties_bind(onnx_importer *im, onnx_scope *scope);
/* The node as it reads these tensors. */
const Onnx__NodeProto *onnx_ties_node(const onnx_importer *im, size_t node);
/* The signature of the program, and which of its changes are undone. */
const onnx_signature *onnx_ties_signature(const onnx_ties *t);

/* ---- check.c --------------------------------------------------------------------------------- */

/* Checks names, order and operators of a graph before anything is lowered. Reports all problems. */
ampc_status onnx_check_graph(onnx_importer *im, const onnx_scope *scope);
/* The registered operator of the node, or NULL. */
const custom_op *onnx_custom_of(const onnx_importer *im, const Onnx__NodeProto *p);
/* The row for a node, or NULL. */
const onnx_row *onnx_find_row(const onnx_importer *im, const Onnx__NodeProto *p);
const char *onnx_node_name(onnx_importer *im, const onnx_scope *scope, const Onnx__NodeProto *p, int index);

/* ---- order.c ---------------------------------------------------------------------------------- */

/* Sorts the nodes in place such that each follows those it reads. `producers` maps a name to the position of its node
 * + 1, or to more than the number of nodes. Returns a node on a cycle, which leaves the graph as it is, or SIZE_MAX. */
size_t onnx_sort_nodes(onnx_importer *im, const Onnx__GraphProto *g, const strmap *producers, bool *sorted);
size_t onnx_position_in_file(const onnx_importer *im, const Onnx__GraphProto *g, size_t node);

/* ---- declared.c: declared types ---------------------------------------------------------------- */

const Onnx__TypeProto__Tensor *onnx_tensor_type(const Onnx__ValueInfoProto *info); /* NULL: not a tensor */
/* The model's declaration of a value in the node's graph, complete or partial; NULL: none. */
const Onnx__ValueInfoProto *onnx_find_declared(const onnx_node *n, const char *name);
typedef struct onnx_declaration {
    const char *what; /* describes the value in messages, for example "graph input" */
    const Onnx__ValueInfoProto *info;
    int rank; /* if it states no shape; -1: unknown, which is an error */
} onnx_declaration;

/* The type that a declaration states. Sizes that it leaves open are symbols: "x_dim0" for axis 0 of value x. Sets
 * used[i] if dimension binding i applies; `used` may be NULL. */
ampc_status onnx_declared_type(onnx_importer *im, const onnx_declaration *d, bool *used, ir_type *out);
/* Reports an element type that contradicts the inferred one, and remarks on shapes that do. */
void onnx_check_declared(onnx_importer *im, const onnx_scope *scope, Onnx__ValueInfoProto *const *infos, size_t n);
/* A new symbol for a size that cannot be inferred. */
ir_dim onnx_unknown_dim(onnx_node *n, int i, int axis);
/* A symbol that no other value has, for axis `axis` of result i, whose size depends on data. */
ir_dim onnx_data_dim(onnx_node *n, int i, int axis);
/* Whether the symbol was made by onnx_data_dim, so that it cannot be bound. */
bool onnx_is_data_dim(const onnx_importer *im, const char *name);

/* ---- input_rank.c ---------------------------------------------------------------------------- */

/* The rank of a graph input that is declared without a shape, or -1. */
int onnx_input_rank(onnx_importer *im, const onnx_scope *scope, const char *input);

/* ---- interface.c ------------------------------------------------------------------------------- */

/* Binds the inputs of the model; reports constants that the caller has bound without effect. */
ampc_status onnx_bind_inputs(onnx_importer *im, onnx_scope *scope);
/* Once the graph is lowered: reports sizes that the caller has bound without effect. */
ampc_status onnx_check_dims_used(const onnx_importer *im);
/* Adds an output statement for each output of the model. */
ampc_status onnx_put_outputs(onnx_importer *im, const onnx_scope *scope);

/* ---- scope.c --------------------------------------------------------------------------------- */

onnx_binding *onnx_find(const onnx_scope *scope, const char *name);
/* The value of a name in the current graph, captured from an enclosing graph if necessary. NULL if its node failed;
 * onnx_check_graph has already rejected unknown names. */
ir_value *onnx_value(onnx_importer *im, const onnx_scope *scope, const char *name);
/* The same for a name that may also stand for a sequence, whose items are then values of the current graph. */
onnx_item onnx_item_of(onnx_importer *im, const onnx_scope *scope, const char *name);
void onnx_bind(onnx_importer *im, onnx_scope *scope, const char *name, onnx_item item); /* without either: failed */

/* ---- graph.c --------------------------------------------------------------------------------- */

/* Lowers all nodes of an ONNX graph into the current IR graph. False if any of them failed (reported). */
bool onnx_lower_graph(onnx_importer *im, onnx_scope *scope);
/* Lowers a node of a handler in its row as an opaque node instead. */
void onnx_keep_opaque(onnx_node *n);
/* Removes the nodes that follow `before`. */
void onnx_remove_after(onnx_importer *im, const ir_node *before);
/* Removes pure nodes whose results are unused. */
void onnx_remove_unread(ir_graph *g);

/* ---- body.c: graphs that are lowered in place of a node ----------------------------------------- */

enum {
    ONNX_MAX_INLINED = 200000, /* nodes of all bodies; also counts what their nodes compute at compile time */
    ONNX_MAX_NESTING = 50,
    ONNX_MAX_TRIPS = 4096 /* iterations of one loop, items of a sequence */
};

typedef struct onnx_body {
    onnx_node *node;
    onnx_scope scope;
    strmap *initializers; /* their bindings, which all copies share */
    int n_in, n_out;
} onnx_body;

/* Checks a subgraph of the node and binds its initializers. False: the node has failed. */
bool onnx_body_open(onnx_node *n, const Onnx__GraphProto *g, onnx_body *b);
/* Lowers one copy with these inputs [n_in] and stores its outputs [n_out]. `path` names the copy in names. False: the
 * node has failed. */
bool onnx_body_lower(onnx_body *b, const char *path, const onnx_item *in, onnx_item *out);

/* ---- functions.c ------------------------------------------------------------------------------- */

/* Collects the functions of the model. */
ampc_status onnx_functions_bind(onnx_importer *im);
onnx_function *onnx_function_find(const onnx_importer *im, const Onnx__NodeProto *p); /* NULL: not a call */
/* A node of a function as the call means it: references to attributes are replaced, and operands that are absent
 * inputs of the function are "". The node itself if there are none. */
const Onnx__NodeProto *onnx_resolve(onnx_importer *im, const onnx_scope *scope, const Onnx__NodeProto *p);
/* Whether a graph, or a subgraph of its nodes, contains calls or references to attributes. */
bool onnx_needs_functions(const onnx_importer *im, const Onnx__GraphProto *g);

/* ---- lower_random.c -------------------------------------------------------------------------- */

/* The state of random numbers, which the first node that draws some creates. */
ir_value *onnx_random_state(onnx_importer *im);

/* ---- lower_sized.c: results whose size is known only at run time ------------------------------ */

void onnx_sized_nonzero(onnx_node *n);
/* Of slices of x, n->in[0] or that flattened, along the axis. */
void onnx_sized_compress(onnx_node *n, ir_value *x, int axis);
void onnx_sized_unique(onnx_node *n, ir_value *x, int axis, bool sorted);
void onnx_sized_top_k(onnx_node *n, int axis, bool largest);
/* ---- lower_recurrent.c ----------------------------------------------------------------------- */

/* An activation of recurrent networks: how many parameters it has (alpha, beta), and their default values, which are
 * those of ONNX's operators; ScaledTanh has none. */
typedef struct onnx_activation {
    const char *name;
    int parameters;
    double alpha, beta;
} onnx_activation;
onnx_activation onnx_activation_of(int word);
/* The word of the activation of that name, in any case, or -1. */
int onnx_activation_find(const char *name);

/* ---- lower_terms.c --------------------------------------------------------------------------- */

/* An element of a value that is computed at run time (NULL: none), plus a number or a size. */
typedef struct onnx_term {
    const ir_value *from;
    int64_t at;
    ir_dim plus;
} onnx_term;
/* Element `at` of an integer or a list of a known length, which nodes that move integers or add numbers may have
 * made. It may be stored as a float, as tf2onnx compares integers. */
onnx_term onnx_term_of(onnx_node *n, ir_const_map *consts, const ir_value *list, int64_t at);

/* ---- lower_trips.c --------------------------------------------------------------------------- */

/* The number of iterations of a Loop with this body, if it does not depend on data; otherwise IR_DIM_NONE. */
ir_dim onnx_loop_trips(onnx_node *n, const onnx_subgraph *body, const Onnx__GraphProto *g);
/* Whether v, a bool, is known: a constant, or comparisons of known integers. */
bool onnx_is_decided(onnx_node *n, const ir_value *v, bool *truth);

/* ---- lower_slice.c --------------------------------------------------------------------------- */

ir_value *onnx_slice_axis(onnx_node *n, ir_value *v, int axis, ir_dim from,
                          ir_dim count);                         /* v itself if it is all of it */
ir_value *onnx_element(onnx_node *n, ir_value *list, int64_t i); /* as a scalar */

/* ---- lower_matmul.c -------------------------------------------------------------------------- */

ir_value *onnx_matmul(onnx_node *n, ir_value *x, ir_value *y); /* the product of MatMul */

/* ---- lower_quantize.c ------------------------------------------------------------------------ */

/* Operand i, a scale, which is not trained if it is an initializer. */
ir_value *onnx_held_scale(onnx_node *n, int i);
/* Rounds, adds the zero point (NULL: 0) and saturates. */
ir_value *onnx_quantized(onnx_node *n, ir_value *ratio, ir_value *zero, ir_dtype to);
/* v - zero in f32 */
ir_value *onnx_centred(onnx_node *n, ir_value *v, ir_value *zero);
/* A vector of one element per row (or column) of a matrix, in a shape that broadcasts to it. */
ir_value *onnx_per_row(onnx_node *n, ir_value *v, const ir_type *matrix, bool columns);
/* The product of two matrices of bytes as i32. */
ir_value *onnx_multiply_bytes(onnx_node *n, ir_value *a, ir_value *a_zero, ir_value *b, ir_value *b_zero);
/* To uint8, such that the range of x and 0 becomes 0 to 255; the scale of zeros is 1. */
typedef struct onnx_bytes_of_range {
    ir_value *bytes, *scale, *zero;
} onnx_bytes_of_range;
onnx_bytes_of_range onnx_dynamic_quantized(onnx_node *n, ir_value *x);

/* ---- window.c: the sliding window of Conv and the pools -------------------------------------- */

typedef struct onnx_window {
    int n; /* number of spatial axes */
    int64_t kernel[ONNX_MAX_RANK], strides[ONNX_MAX_RANK], dilations[ONNX_MAX_RANK];
    int64_t pads[2 * ONNX_MAX_RANK]; /* all begins, then all ends */
    bool same_upper, same_lower;     /* auto_pad */
} onnx_window;

/* Reads kernel_shape (default: `kernel` if not NULL), strides, dilations, pads and auto_pad of a node with operand 0
 * `x` [N,C,spatial]. */
onnx_window onnx_window_of(onnx_node *n, const ir_value *x, const ir_dim *kernel);
/* Stores the spatial axes of the first operand and returns their number, or 0 after reporting that there are none. */
int onnx_spatial_axes(onnx_node *n, int64_t *axes);
/* The same, but leaves the pads of SAME to the caller. */
onnx_window onnx_window_read(onnx_node *n, const ir_value *x, const ir_dim *kernel);
/* Reads `count` numbers in [min, 2^31); `otherwise` if the attribute is absent. */
void onnx_numbers(onnx_node *n, const char *name, int count, int64_t min, int64_t otherwise, int64_t *out);
/* Sets the attributes strides, pads and dilations of a node of this op. */
#define ONNX_SET_WINDOW(node, op, w) \
    (ir_set_list((node), IR_ATTR(op, strides), (w)->strides, (w)->n), \
     ir_set_list((node), IR_ATTR(op, pads), (w)->pads, 2 * (w)->n), \
     ir_set_list((node), IR_ATTR(op, dilations), (w)->dilations, (w)->n))

/* ---- operators.c: the table of operators ------------------------------------------------------ */

/* The limits in the node's row; for an opaque node of the default domain, those of its schema. */
onnx_arity onnx_arity_of(const onnx_node *n);

typedef struct onnx_types {
    const char *letters; /* encoded as in onnx.def */
    char mark;           /* of 't' in the opset that will be written: t or h (ops.def) */
} onnx_types;

onnx_types onnx_types_of(const onnx_node *n);
/* Whether operand i may be absent although later ones are present. */
bool onnx_is_optional(const onnx_node *n, int i);
char onnx_operand_mark(const onnx_types *t, int i);
char onnx_result_mark(const onnx_types *t, int i);
/* Whether the operator has a result i and every version of its schema requires it. */
bool onnx_is_required_result(const onnx_operator *op, int i);
bool onnx_is_default_domain(const char *domain);

/* ---- subgraph.c ------------------------------------------------------------------------------ */

typedef struct onnx_subgraphs {
    ir_op op;
    VEC(onnx_subgraph) graphs; /* one for each graph attribute, in order */
    VEC(const char *) attributes;
    VEC(ir_value *) values; /* what they capture */
    ir_type *types;         /* [n->n_out], set for named results */
} onnx_subgraphs;

/* Lowers the subgraphs of an If, Loop or Scan. False: they stay stored as bytes; a remark states the reason if there
 * are any. */
bool onnx_lower_subgraphs(onnx_node *n, onnx_subgraphs *out);
/* lower_control.c: makes a node that runs its subgraphs; `reason`: what is computed at run time. */
void onnx_lower_at_run_time(onnx_node *n, const char *reason);
/* Sets the attributes of a `loop`; does nothing for other ops. */
void onnx_set_loop(onnx_node *n, ir_node *loop);

/* Declares all handlers in the table. */
#define FORM(op, since, min_in, max_in, max_out, handler, arg) void onnx_lower_##handler(onnx_node *n);
#include "frontend/onnx.def"
#define OTHER(domain, op, letters, colour, handler, arg, limits) void onnx_lower_##handler(onnx_node *n);
#include "frontend/lower/other_ops.def"
void onnx_lower_function(onnx_node *n);

#endif
