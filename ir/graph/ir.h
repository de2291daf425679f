/* ir.h - the graph: module, storage, entry graphs, nodes, values.
 *
 * A module owns an arena, and everything in the module lives until the module is freed. It holds storage (parameters,
 * states, constants) and the entry graphs that use it (@infer, @eval, @grad, @train_step). A graph is a list of nodes
 * whose order is always a valid execution order. Nodes read and define values, and every value has a list of its uses.
 * Passes keep their own data in side tables indexed by id, never in fields of these structs. The subgraphs of If, Loop
 * and Scan are graphs that the node owns, its regions.
 *
 * Semantics of all ops: tensors are dense and row major. Arithmetic is in f32 (in f64 for f64 operands), integers wrap,
 * and a low-precision result is rounded once, to nearest even. Low-precision sums accumulate in f32. Integer division
 * truncates toward zero; division by zero yields 0. NaN propagates through min, max, relu, clip and pooling. Reading a
 * storage yields its value at the start of the run; `store` takes effect when the run ends. */
#ifndef AMPC_IR_H
#define AMPC_IR_H

#include "ir/base/diag.h"
#include "ir/ops/ops.h"
#include "ir/graph/decisions.h"
#include "ir/graph/roles.h"
#include "ir/graph/training.h"

typedef struct ir_type {
    ir_dtype dtype; /* IR_NO_DTYPE: not inferred yet, or an unused result */
    int rank;
    ir_dim dims[IR_MAX_RANK];
} ir_type;

/* ---- storage ------------------------------------------------------------------------------------------------ */

typedef enum ir_storage_kind { IR_PARAM, IR_STATE, IR_CONST } ir_storage_kind;

/* Where the initial bytes of a storage are. Elements are little-endian, row major, of the storage's dtype. */
typedef enum ir_data_kind {
    IR_DATA_ZERO,   /* all zero */
    IR_DATA_INLINE, /* `bytes`, in the module's arena; also in a file if `path` is set */
    IR_DATA_FILE,   /* `length` bytes at `offset` of file `path` (read when needed) */
    IR_DATA_SIDECAR /* under the storage's name in the module's weights file */
} ir_data_kind;

typedef struct ir_data {
    ir_data_kind kind;
    const void *bytes;
    const char *path;
    int64_t offset, length;
} ir_data;

typedef struct ir_storage {
    uint32_t id; /* dense within the module */
    ir_storage_kind kind;
    const char *name; /* without '@'; unique among the storage of the module */
    ir_type type;     /* always static */
    ir_data data;
    ir_state_role role;    /* only for IR_STATE */
    const char *slot;      /* only for IR_STATE_slot: the optimizer's name for it ("velocity") */
    struct ir_storage *of; /* the parameter or buffer that a state belongs to, if its role says so */
    int64_t shard;         /* of a state that belongs to a parameter: of how many ranks each has a slice
                            * (ir_type_shard) of a tensor with the parameter's shape; 0: it is whole. Of a parameter:
                            * that of its master */
    bool frozen;           /* only for IR_PARAM: not trained */
    uint32_t facts;        /* IR_TENSOR(..) of a float tensor of the model, until pass params has decided */
    ir_rule rule;          /* what pass params decided, and why */
    const char *merged;    /* the initializer that an exporter merged it into; NULL if it is an initializer itself */
    const char *note;
    struct ir_value *reads; /* private to module.c: the values that read it, at most one per graph */
} ir_storage;

/* ---- graph ---------------------------------------------------------------------------------------------------- */

typedef struct ir_module ir_module;
typedef struct ir_graph ir_graph;
typedef struct ir_node ir_node;
typedef struct ir_value ir_value;

typedef enum ir_phase { IR_FORWARD, IR_BACKWARD, IR_UPDATE, IR_PHASE_COUNT } ir_phase;

typedef struct ir_origin {
    const char *op, *node;
} ir_origin;

/* The model node that an IR node comes from. Rewrites copy it, without `parts`, to all nodes that they create. */
typedef struct ir_loc {
    const char *file;
    const char *op;              /* ONNX operator type; NULL for nodes that the compiler added */
    const char *node;            /* ONNX node name, derived from the position if empty; not NULL if op is set */
    const ir_origin *fused_from; /* matched model nodes, terminated by {0}; NULL if not a pattern */
} ir_loc;

typedef struct ir_use { /* operand `index` of `user`, linked into the uses of the value that it reads */
    ir_value *value;    /* NULL: an absent optional operand */
    ir_node *user;
    int index;
    struct ir_use *prev, *next;
} ir_use;

typedef enum ir_value_kind { IR_VALUE_RESULT, IR_VALUE_INPUT, IR_VALUE_STORAGE } ir_value_kind;

struct ir_value {
    uint32_t id; /* dense within the graph */
    ir_value_kind kind;
    const char *name; /* without '%' or '@'; unique among the graph's values (storage: its name) */
    ir_type type;
    ir_graph *graph;
    ir_input_role role;  /* only for IR_VALUE_INPUT */
    ir_node *def;        /* only for IR_VALUE_RESULT */
    int def_index;       /* only for IR_VALUE_RESULT: the index of the result */
    ir_storage *storage; /* only for IR_VALUE_STORAGE */
    ir_value *next_read; /* private to module.c: next value that reads the same storage */
    ir_use *first_use;
};

/* A graph that a node owns. Its inputs are the values that the operator passes to it, followed by the values of the
 * enclosing graph that it captures. Its outputs are its output statements in order. It reads storage like any graph. */
typedef struct ir_region {
    const char *name; /* of the operator's attribute that holds the graph: "then_branch" */
    ir_graph *graph;
    VEC(int) captures; /* by input of the graph: the operand that it reads; -1, or missing: the operator passes it */
} ir_region;

struct ir_node {
    uint32_t id; /* dense within the graph */
    ir_op op;
    ir_output_role role; /* only for output statements */
    ir_value *of;        /* the value whose gradient or new value this is; not counted as a use */
    ir_phase phase;
    ir_loc loc;
    const char *note; /* printed after '#', never interpreted */
    ir_graph *graph;  /* NULL until inserted */
    ir_node *prev, *next;
    int n_in, n_out;
    ir_use *in;       /* [n_in] */
    ir_value **out;   /* [n_out]; an unused optional result has dtype IR_NO_DTYPE or no uses */
    ir_attr *attr;    /* [ir_op_get(op)->n_attr] */
    ir_layout layout; /* see ir_op_has_layout */
    ir_region *regions;
    int n_regions; /* 0 without the trait BODIES */
};

struct ir_graph {
    ir_module *module;
    const char *name; /* without '@' */
    ir_graph_role role;
    ir_node *owner; /* the node that has it as a region; NULL: an entry graph */
    VEC(ir_value *) inputs;
    ir_node *first, *last;
    uint32_t node_ids, value_ids; /* next ids; also the sizes of side tables */
    bool edited;                  /* private to module.c and build.c: changed since ids were last dense */
    strmap *names;                /* private to module.c: current and past names of results and inputs */
    strmap *output_names;         /* likewise of output statements; NULL until ir_graph_name_output needs it */
};

typedef struct ir_meta {
    const char *key, *value;
} ir_meta;

/* A file that exists only in memory: data of kind IR_DATA_FILE with this path are in `bytes`. */
typedef struct ir_image {
    const char *path; /* NULL: there is none */
    const void *bytes;
    size_t size;
    bool has_folder; /* other files of the model are in the folder of `path` */
} ir_image;

struct ir_module {
    arena *arena;
    ir_dim_table *dims;
    VEC(ir_storage *) storage;
    VEC(ir_graph *) graphs;   /* entry graphs; see ir_next_graph */
    bool from_text;           /* files that it names are opened only inside its folder (ir/base/beneath.h) */
    const char *weights_path; /* the sidecar as written in the IR; NULL: none */
    const char *weights_hash; /* XXH3-128 of the file as 32 hex digits; NULL: none */
    ir_image image;           /* of the imported model; its owner keeps the bytes as long as the module */
    strmap *storage_names;    /* private to module.c */
    ir_training training;
    VEC(ir_meta) meta;        /* the `meta "key" "value"` lines */
    const char *hash_for_one; /* rt_module_hash before the module was made one for several ranks; NULL: it was not */
};

/* ---- module.c, node.c; with regions: region.c --------------------------------------------------------------- */

/* Returns NULL if out of memory. The module's arena has no guard until the caller sets one. */
ir_module *ir_module_new(void);
void ir_module_free(ir_module *m); /* NULL allowed */

/* Appends a number to `name` if it is already in use. The data is initially IR_DATA_ZERO. */
ir_storage *ir_storage_new(ir_module *m, ir_storage_kind kind, const char *name, const ir_type *type);
ir_storage *ir_storage_find(const ir_module *m, const char *name);
/* Copies ir_storage_bytes(s) bytes into the arena as inline data. */
void ir_storage_set(ir_module *m, ir_storage *s, const void *bytes);
int64_t ir_storage_bytes(const ir_storage *s);
/* Those that a session needs: none for a parameter of which ranks have slices. */
int64_t ir_storage_held(const ir_storage *s);
/* Whether the storage is in place of a parameter, and has the values of that at first. */
bool ir_storage_is_derived(const ir_storage *s);
/* The state with this role, which has at most one of each parameter; NULL: there is none. */
ir_storage *ir_storage_owned(const ir_module *m, ir_state_role role, const ir_storage *of);
/* The type of the tensor that all ranks have together: that of the storage, unless it is a slice. */
ir_type ir_storage_whole(const ir_storage *s);
/* Whether the data of the storage, of kind IR_DATA_FILE, are in the image of the module. */
bool ir_data_in_image(const ir_module *m, const ir_data *data);
/* Removes storage that no node reads or stores, unless such a one belongs to it, and makes ids dense again. */
void ir_module_remove_dead(ir_module *m);

/* The model file of the first node that has one, or NULL. */
const char *ir_module_source(const ir_module *m);

const char *ir_meta_get(const ir_module *m, const char *key); /* NULL when absent */
void ir_meta_set(ir_module *m, const char *key, const char *value);

ir_graph *ir_graph_new(ir_module *m, const char *name);
ir_graph *ir_graph_find(const ir_module *m, const char *name);
/* All graphs of the module in depth-first order: entry graphs, each followed by those that its nodes own. Nodes of a
 * graph may change before the walk goes on. */
ir_graph *ir_first_graph(const ir_module *m);
ir_graph *ir_next_graph(const ir_graph *g);
ir_graph *ir_next_graph_in(const ir_graph *root, const ir_graph *g); /* the same, of `root` and what its nodes own */
/* Copies a graph with its regions under another name into the same module, with notes and locations; storage is
 * shared. If `map` is not NULL, it is an array of g->value_ids entries that receives the copy of each value. */
ir_graph *ir_graph_clone(ir_module *m, const ir_graph *g, const char *name, ir_value **map);
/* Renumbers nodes and values in list order to make ids dense. */
void ir_graph_renumber(ir_graph *g);

ir_value *ir_graph_input(ir_graph *g, const char *name, const ir_type *type);
ir_value *ir_graph_find_input(const ir_graph *g, const char *name);
void ir_graph_drop_input(ir_graph *g, ir_value *v); /* must be unused */
/* The value that reads the storage, created on first use; there is one per graph and storage. */
ir_value *ir_graph_storage(ir_graph *g, ir_storage *s);
/* The output statement with that name, or NULL. */
ir_node *ir_graph_find_output(const ir_graph *g, const char *name);

/* A name for a new output statement: `name`, with a number appended if it is already in use. */
const char *ir_graph_name_output(ir_graph *g, const char *name);

/* Output and store statements of a graph in list order; NULL at the end. */
ir_node *ir_first_output(const ir_graph *g);
ir_node *ir_next_output(const ir_node *n);
ir_node *ir_first_store(const ir_graph *g);
ir_node *ir_next_store(const ir_node *n);
static inline const char *ir_output_name(const ir_node *n) { return n ? n->attr[IR_ATTR(output, name)].s : NULL; }

void ir_value_rename(ir_value *v, const char *name); /* made unique */
/* Makes all uses of `from` read `to`. */
void ir_value_replace(ir_value *from, ir_value *to);
static inline bool ir_value_used(const ir_value *v) { return v->first_use != NULL; }

void ir_node_set_input(ir_node *n, int i, ir_value *v);
/* Appends an operand. */
void ir_node_add_input(ir_node *n, ir_value *v);
/* Moves n before `at`, a node of the same graph; the operands of n must be defined there. */
void ir_node_move_before(ir_node *n, ir_node *at);
/* Unlinks the node and drops its operands. Its results must be unused. */
void ir_node_remove(ir_node *n);
static inline ir_value *ir_in(const ir_node *n, int i) { return i < n->n_in ? n->in[i].value : NULL; }
static inline ir_value *ir_out(const ir_node *n, int i) { return i < n->n_out ? n->out[i] : NULL; }
diag_loc ir_diag_loc(const ir_node *n);
diag_loc ir_storage_loc(const ir_module *m, const ir_storage *s);
/* The operand in the slot of that name (ops.def), or NULL. */
static inline ir_value *ir_in_named(const ir_node *n, const char *slot)
{
    int i = ir_op_find_in(n->op, slot);
    return i < 0 ? NULL : ir_in(n, i);
}
/* The label of a loss, or NULL. */
static inline ir_value *ir_label(const ir_node *n)
{
    int i = ir_op_find_label(n->op);
    return i < 0 ? NULL : ir_in(n, i);
}
/* The node that defines v, or NULL. */
static inline ir_node *ir_def(const ir_value *v) { return v->kind == IR_VALUE_RESULT ? v->def : NULL; }

/* ---- roles.c: lookup by role; NULL if not found --------------------------------------------------------------- */

ir_graph *ir_graph_by_role(const ir_module *m, ir_graph_role role);
ir_graph *ir_graph_by_key(const ir_module *m, const char *key); /* by the word of its role, or by name */
void ir_graph_set_role(ir_graph *g, ir_graph_role role);        /* also sets its usual name */
ir_graph *ir_graph_derive(ir_module *m, const ir_graph *g, ir_graph_role role); /* a copy with that role and name */
ir_storage *ir_state_by_role(const ir_module *m, ir_state_role role);
ir_storage *ir_state_new(ir_module *m, ir_state_role role);        /* zero, with its usual name made unique */
const char *ir_state_name(const ir_module *m, ir_state_role role); /* "" if there is none */
ir_type ir_state_role_type(ir_state_role role);                    /* IR_NO_DTYPE: any type is allowed */
bool ir_state_role_allows(ir_state_role role, const ir_type *type);
ir_value *ir_input_by_role(const ir_graph *g, ir_input_role role);
ir_node *ir_output_by_role(const ir_graph *g, ir_output_role role);

/* ---- layout.c: the operands and results of the operator of an opaque node, and its float type, marked t ------- */

/* Sets the marks of operands and results: "t_x", "tx". Without a call, all are present and have mark x. */
void ir_layout_set(ir_node *n, const char *operands, const char *results);
int ir_layout_operands(const ir_node *n); /* the number of those that are present */
int ir_layout_results(const ir_node *n);
bool ir_opaque_operand_is_float(const ir_node *n, int i); /* whether operand i has that type */
bool ir_opaque_result_is_float(const ir_node *n, int i);  /* whether result i has it */
/* Replaces marks h (the operator supports f16 but not bf16) and b (the other way round) by t if it supports `low`, else
 * by x. */
void ir_opaque_resolve_low(ir_node *n, ir_dtype low);
/* The index of the operand or result at a position of the operator, or -1 if it is absent. */
int ir_opaque_operand_at(const ir_node *n, int position);
int ir_opaque_result_at(const ir_node *n, int position);

/* The operands of a `loop` by index; -1: absent. The carried values and, after them, the scanned ones begin at
 * `first`. The inputs of the body that are not captures, and its outputs, are in the same order; `fixed` is the number
 * of inputs, and `fixed_out` that of outputs, before those of the carried values. */
typedef struct ir_loop_form {
    int trip_count, condition, first, states, slices, fixed, fixed_out;
} ir_loop_form;
ir_loop_form ir_loop_form_of(const ir_node *n);

/* ---- infer_opaque.c, infer_custom.c --------------------------------------------------------------------------- */

/* Declares the f32 results to have the given type. */
void ir_opaque_set_result_dtype(ir_node *n, ir_dtype to);
/* ir_op_stops for the op of the node. Which operands of a custom operator have a gradient depends on the node. */
bool ir_node_stops(const ir_node *n, int i);

/* ---- region.c: graphs that nodes own ---------------------------------------------------------------------------
 * A node with regions (trait BODIES) has the operands of its operator, followed by the values that its regions
 * capture. */

enum { IR_MAX_NESTING = 256 }; /* of regions */

ir_graph *ir_body_new(ir_module *m); /* a graph that belongs to no node yet */
ir_graph *ir_body_clone(const ir_graph *g);
void ir_region_add(ir_node *n, const char *name, ir_graph *g);
ir_region *ir_region_find(const ir_node *n, const char *name); /* NULL: there is none */
ir_graph *ir_region_clone(const ir_region *r, ir_node *to);    /* `to` has the captures of r at the same operands */
void ir_regions_name(ir_node *n);                              /* names the graphs after the node, for messages */
/* The number of operands of the operator itself, which precede the captures; for all other ops, all operands. */
int ir_declared_operands(const ir_node *n);
/* The index of the operand that an input captures, or -1 if the operator passes it. */
int ir_capture_of(const ir_region *r, size_t input);
int ir_capture_find(const ir_value *v);
void ir_capture_set(ir_region *r, size_t input, int operand);
/* Lets an input of a region capture v, a value of its owner's graph. */
void ir_capture_bind(ir_graph *g, size_t input, ir_value *v);
/* Returns the input of g, a region, that captures v. Adds the input and the capture if needed. */
ir_value *ir_capture_add(ir_graph *g, ir_value *v);
/* Puts the captured operands of each node in the order in which its regions read them, each value once. */
void ir_captures_order(ir_graph *g);

/* ---- types ----------------------------------------------------------------------------------- */

bool ir_type_equal(const ir_type *a, const ir_type *b);
bool ir_type_same_shape(const ir_type *a, const ir_type *b);
bool ir_type_may_have_shape(ir_dim_table *t, const ir_type *a, const ir_type *b); /* for some sizes of the symbols */
ir_type ir_type_scalar(ir_dtype t);
ir_type ir_type_make(ir_dtype t, int rank, const int64_t *dims);
ir_dim ir_type_count(ir_dim_table *t, const ir_type *type); /* number of elements, possibly symbolic */
bool ir_type_is_static(const ir_type *type);
/* A slice of a tensor of this static type that is cut into `ranks` of them: a vector (docs/distributed.md). */
ir_type ir_type_shard(const ir_type *whole, int64_t ranks);
const char *ir_type_print(const ir_module *m, const ir_type *type, arena *a); /* "f32[N,784]" */

/* ---- node.c, build.c: making nodes --------------------------------------------------------------------------------
 * A builder is a cursor: it inserts new nodes before `before` (NULL: at the end of the graph), with its phase and
 * location.
 *
 *     ir_node *n = ir_new(b, IR_OP_matmul, 3, x, w, bias);
 *     ir_set_bool(n, IR_ATTR(matmul, trans_b), true);
 *     ir_value *y = ir_done(b, n);
 *
 * ir_done infers the result types, inserts the node and returns result 0. If a mandatory operand is NULL or inference
 * fails (which is reported to diag), it returns NULL, and so do all calls that use the result: a sequence of calls
 * needs only one check at its end. */
typedef struct ir_builder {
    ir_graph *graph;
    ir_node *before;
    ir_phase phase;
    ir_loc loc;
    diag *diag;
    bool nameless; /* results are not named: the caller names them or calls ir_name_results */
} ir_builder;

ir_builder ir_builder_at_end(ir_graph *g, diag *d);
ir_builder ir_builder_before(ir_node *n, diag *d); /* with n's phase and location */
ir_builder ir_builder_after(ir_node *n, diag *d);

ir_node *ir_new(ir_builder *b, ir_op op, int n_in, ...); /* n_in ir_value *, NULL = absent optional */
/* n_out = 0: one result per slot of the op; ops with an OUTS slot need the number. */
ir_node *ir_new_array(ir_builder *b, ir_op op, int n_in, ir_value *const *in, int n_out);
void ir_set_int(ir_node *n, int attr, int64_t v);
void ir_set_bool(ir_node *n, int attr, bool v);
void ir_set_float(ir_node *n, int attr, double v); /* FLOAT, rounded to f32, or DOUBLE */
void ir_set_dtype(ir_node *n, int attr, ir_dtype t);
void ir_set_str(ir_node *n, int attr, const char *s); /* copied */
void ir_set_list(ir_node *n, int attr, const int64_t *items, int count);
void ir_set_fields(ir_node *n, int attr, const ir_field *fields, int count); /* INTS and DIMS, copied */
ir_value *ir_done(ir_builder *b, ir_node *n);                                /* result 0; NULL on failure */
bool ir_done_all(ir_builder *b, ir_node *n);                                 /* for nodes with no results or several */
void ir_node_insert(const ir_builder *b, ir_node *n);                        /* without inferring types */
void ir_name_results(ir_node *n); /* names unnamed results after op and slot */

/* Shorthands for one or a few nodes; they return NULL for a NULL operand like ir_done. */
ir_value *ir_unary(ir_builder *b, ir_op op, ir_value *x);
ir_value *ir_binary(ir_builder *b, ir_op op, ir_value *x, ir_value *y);
ir_value *ir_cast(ir_builder *b, ir_value *x, ir_dtype to);                     /* x itself if it has that type */
ir_value *ir_reshape(ir_builder *b, ir_value *x, const ir_dim *dims, int rank); /* x itself if equal */
ir_value *ir_reshape_like(ir_builder *b, ir_value *x, const ir_type *shape);
ir_value *ir_expand(ir_builder *b, ir_value *x, const ir_dim *dims, int rank); /* x itself if equal */
ir_value *ir_transpose(ir_builder *b, ir_value *x, const int64_t *perm);       /* x itself if identity */
/* The first dims[i] elements of each axis, or zeros after its elements up to dims[i]; x itself if equal. */
ir_value *ir_cut(ir_builder *b, ir_value *x, const ir_dim *dims);
ir_value *ir_pad(ir_builder *b, ir_value *x, const ir_dim *dims);
ir_value *ir_reduce_sum(ir_builder *b, ir_value *x, const int64_t *axes, int n_axes, bool keepdims);
ir_value *ir_matmul(ir_builder *b, ir_value *x, ir_value *y, ir_value *bias, bool trans_a, bool trans_b);
ir_value *ir_scalar(ir_builder *b, ir_dtype t, double v); /* inline constant; equal ones shared */
ir_value *ir_scalar_like(ir_builder *b, const ir_value *like, double v);
bool ir_is_scalar(const ir_value *v); /* whether ir_scalar made it */
bool ir_storage_is_scalar(const ir_storage *s);
ir_value *ir_constant(ir_builder *b, const char *name, const ir_type *type, const void *bytes);
ir_node *ir_output(ir_builder *b, const char *name, ir_value *v);
/* An output with that role under its usual name, made unique; `of` is NULL for a role that belongs to no value. */
ir_node *ir_output_as(ir_builder *b, ir_output_role role, ir_value *of, ir_value *v);
/* Adds a copy of output statement `n` at the builder's position that outputs v. */
void ir_output_again(ir_builder *b, ir_node *n, ir_value *v);
void ir_store(ir_builder *b, ir_storage *s, ir_value *v);

/* ---- infer.c --------------------------------------------------------------------------------- */

/* Checks operands and attributes of a node and sets the types of its results. Errors name the node and both values
 * ("inner dimensions differ: 784 and 785"). */
ampc_status ir_infer(ir_node *n, diag *d);
/* NumPy broadcasting of two shapes; false if they do not broadcast. Symbolic dimensions that may be equal or 1 do: the
 * check is repeated when their sizes are known. */
bool ir_broadcast(ir_dim_table *t, const ir_type *a, const ir_type *b, ir_type *out);

/* ---- bound.c: checks with the sizes of symbols known ------------------------------------------ */

/* A binding holds the sizes of all symbols, -1 for unbound ones. Graph and sizes must outlive it. It writes nothing to
 * the module. ir_binding_new returns NULL if out of memory. */
typedef struct ir_binding ir_binding;
ir_binding *ir_binding_new(const ir_graph *g, const int64_t *sizes);
void ir_binding_free(ir_binding *b); /* NULL allowed */
/* Infers a node of the graph with its symbols replaced by their sizes. Returns AMPC_REJECTED, naming node and sizes, if
 * inference rejects these numbers or if the results differ in shape from their inferred types. */
ampc_status ir_binding_check(ir_binding *b, const ir_node *n, diag *d);
/* Evaluates a dimension; reports an error for an unbound symbol or a value that is too large. */
ampc_status ir_binding_dim(const ir_graph *g, const int64_t *sizes, ir_dim dim, diag_loc loc, diag *d, int64_t *out);

/* ---- fold.c: values known at compile time ---------------------------------------------------- */

/* The elements of a value that is known at compile time: integers and bools as ir_dim, possibly symbolic, floats as
 * double. */
typedef struct ir_const_value {
    ir_type type; /* with a static shape */
    int64_t count;
    const ir_dim *ints; /* for integer and bool dtypes */
    const double *floats;
} ir_const_value;

typedef struct ir_const_map ir_const_map; /* side table: value -> ir_const_value */
ir_const_map *ir_const_map_new(arena *a, ir_graph *g);
/* Returns the elements of inline constants and of results that ir_fold has evaluated; NULL if not known. */
const ir_const_value *ir_const_get(ir_const_map *k, const ir_value *v);
void ir_const_set(ir_const_map *k, const ir_value *v, const ir_const_value *constant);
/* Evaluates a node with known operands of at most `limit` elements and records its results. The arithmetic is that of
 * the kernels and defined for all operands. Returns false if the node cannot be folded. */
bool ir_fold(ir_const_map *k, const ir_node *n, int64_t limit);
/* Replaces known results that are still used by inline constants (symbolic ones by `dims` nodes) and removes unused
 * nodes. Parameters and states are never folded. */
void ir_fold_commit(ir_const_map *k, ir_graph *g, diag *d);

/* ---- verify.c, print.c, parse.c -------------------------------------------------------------- */

/* Checks all rules of the IR (docs/ir.md). Reports every violation under the offending line of the printed module. */
ampc_status ir_verify(const ir_module *m, diag *d);

/* Canonical text, allocated in `a`. */
const char *ir_print(const ir_module *m, arena *a);
/* The same with a seal, which lets the reader detect a truncated file. */
const char *ir_print_sealed(const ir_module *m, arena *a);
const char *ir_print_node(const ir_node *n, arena *a); /* one line, without newline */

/* Parses text into a new module, which the caller frees with ir_module_free; *out is NULL on failure. `file` is the
 * name for messages, which point at FILE:LINE:COLUMN with a caret. */
ampc_status ir_parse(const char *text, size_t length, const char *file, diag *d, ir_module **out);
ampc_status ir_parse_file(const char *path, diag *d, ir_module **out); /* "-": standard input */

#endif
