/* ir.h - the graph: module, storage, entry graphs, nodes, values.
 *
 * A module owns an arena; everything in it lives and dies with the module. It holds storage (parameters,
 * states, constants) and entry graphs over that storage (@infer, @eval, @grad, @train_step). A graph is a list
 * of nodes whose order is always a valid execution order; a node reads values and defines values; a value
 * knows its uses. Pass-local facts are side tables by id, never fields. A graph inside a foreign node (of If, Loop,
 * Scan) is a body: a graph of the same module that the node names.
 *
 * Semantics, once for all rooms: tensors are dense, row major. Arithmetic is in f32 (f64 for f64 operands,
 * integers wrap); a low-precision result is rounded once to nearest even. Sums of low precision accumulate in f32.
 * Integer division truncates toward zero, division by zero gives 0. NaN propagates through min, max, relu,
 * clip, pooling.
 * Reading a storage gives its value at the start of the run; `store` commits when the run ends. */
#ifndef AMPC_IR_H
#define AMPC_IR_H

#include "ir/diag.h"
#include "ir/ops.h"
#include "ir/roles.h"

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
    IR_DATA_INLINE, /* `bytes`, in the module's arena */
    IR_DATA_FILE,   /* `length` bytes at `offset` of file `path` (read when needed) */
    IR_DATA_SIDECAR /* under the storage's name in the module's weights file */
} ir_data_kind;

typedef struct ir_data {
    ir_data_kind kind;
    const void *bytes;
    const char *path;
    int64_t offset, length;
} ir_data;

/* Why training leaves a float tensor of the model alone unless --train names it. Set by the importer for pass params,
 * which decides and clears it. */
typedef enum ir_held {
    IR_NOT_HELD,
    IR_HELD_NODE,     /* value of a Constant node, or computed from such values */
    IR_HELD_NAME,     /* one element whose name an exporter generated */
    IR_HELD_DECLARED, /* the exporter declares that it is a buffer or a constant */
    IR_HELD_MASK,     /* masks the operand of a softmax */
    IR_HELD_READ,     /* read while compiling: --train cannot name it */
    IR_HELD_APART     /* no output depends on it by a derivative: --train cannot name it either */
} ir_held;

typedef struct ir_storage {
    uint32_t id;         /* dense in the module */
    ir_storage_kind kind;
    const char *name;    /* without '@'; unique among all storage of the module */
    ir_type type;        /* never symbolic */
    ir_data data;
    ir_state_role role;  /* IR_STATE */
    const char *slot;    /* IR_STATE_slot: which of the optimizer's ("velocity") */
    struct ir_storage *of; /* IR_STATE_slot: the parameter */
    bool frozen;         /* IR_PARAM: not trained */
    ir_held held;        /* a float parameter or constant */
    const char *merged;  /* the initializer as which an exporter wrote it, with others; NULL: it is one itself */
    const char *note;
    struct ir_value *reads; /* private to module.c: the values that read it, at most one a graph */
} ir_storage;

/* ---- graph ---------------------------------------------------------------------------------------------------- */

typedef struct ir_module ir_module;
typedef struct ir_graph ir_graph;
typedef struct ir_node ir_node;
typedef struct ir_value ir_value;

typedef enum ir_phase { IR_FORWARD, IR_BACKWARD, IR_UPDATE, IR_PHASE_COUNT } ir_phase;

typedef struct ir_part {
    const char *op, *node;
} ir_part;

/* The model node that an IR node comes from. Copied to everything that a rewrite makes of it, parts aside. */
typedef struct ir_loc {
    const char *file;
    const char *op;   /* ONNX operator type, NULL for nodes of our own making */
    const char *node; /* ONNX node name (never NULL when op is set; made from the position when empty) */
    const ir_part *parts; /* the model nodes that were recognised as this one, closed by {0}; NULL: it is one itself */
} ir_loc;

typedef struct ir_use { /* operand slot `index` of `user`; linked into the uses of the value it reads */
    ir_value *value;    /* NULL: an absent optional operand */
    ir_node *user;
    int index;
    struct ir_use *prev, *next;
} ir_use;

typedef enum ir_value_kind { IR_VALUE_RESULT, IR_VALUE_INPUT, IR_VALUE_STORAGE } ir_value_kind;

struct ir_value {
    uint32_t id;           /* dense in the graph */
    ir_value_kind kind;
    const char *name;      /* without '%' or '@'; unique in the graph among values (storage: its name) */
    ir_type type;
    ir_graph *graph;
    ir_input_role role;    /* IR_VALUE_INPUT */
    ir_node *def;          /* IR_VALUE_RESULT */
    int def_index;         /* IR_VALUE_RESULT: which result of def */
    ir_storage *storage;   /* IR_VALUE_STORAGE */
    ir_value *next_read;   /* private to module.c: of the same storage */
    ir_use *first_use;
};

struct ir_node {
    uint32_t id;           /* dense in the graph */
    ir_op op;
    ir_output_role role;   /* of an output statement */
    ir_value *of;          /* what it is the gradient or new value of; no use of it */
    ir_phase phase;
    ir_loc loc;
    const char *note;      /* printed after '#', never interpreted */
    ir_graph *graph;       /* NULL while not inserted */
    ir_node *prev, *next;
    int n_in, n_out;
    ir_use *in;            /* [n_in] */
    ir_value **out;        /* [n_out]; an unused optional result has type.dtype IR_NO_DTYPE or no uses */
    ir_attr *attr;         /* [ir_op_get(op)->n_attr] */
};

struct ir_graph {
    ir_module *module;
    const char *name;      /* without '@' */
    ir_graph_role role;
    bool body;             /* read by a foreign node of another graph: no entry (body.c) */
    VEC(ir_value *) inputs;
    ir_node *first, *last;
    uint32_t node_ids, value_ids; /* next ids: sizes of side tables */
    bool edited;                  /* private to module.c and build.c: since ids were last dense */
    strmap *names;                /* private to module.c: names of results and inputs, past ones too */
};

typedef struct ir_meta {
    const char *key, *value;
} ir_meta;

struct ir_module {
    arena *arena;
    ir_dim_table *dims;
    VEC(ir_storage *) storage;
    VEC(ir_graph *) graphs;
    bool from_text;            /* the files that it names are opened beneath its folder only (ir/beneath.h) */
    const char *weights_path;  /* the sidecar as written in the IR, NULL: none */
    const char *weights_hash;  /* 32 hex digits, XXH3-128 of the file, NULL: none */
    strmap *storage_names;     /* private to module.c */
    VEC(ir_meta) meta;         /* `meta "key" "value"` lines */
};

/* ---- module.c, node.c; with bodies: body.c --------------------------------------------------------------------- */

/* NULL when memory is exhausted. The module's arena has no guard until the caller sets one. */
ir_module *ir_module_new(void);
void ir_module_free(ir_module *m); /* NULL allowed */

/* `name` is made unique with a number. Data starts as IR_DATA_ZERO. */
ir_storage *ir_storage_new(ir_module *m, ir_storage_kind kind, const char *name, const ir_type *type);
ir_storage *ir_storage_find(const ir_module *m, const char *name);
/* Copies the bytes of `type` into the arena as inline data. */
void ir_storage_set(ir_module *m, ir_storage *s, const void *bytes);
int64_t ir_storage_bytes(const ir_storage *s);
/* Removes bodies of nodes that are gone and storage that no node reads or stores; ids are dense again. */
void ir_module_sweep(ir_module *m);

/* The model file that the nodes come from: that of the first node that has one, or NULL. */
const char *ir_module_source(const ir_module *m);

const char *ir_meta_get(const ir_module *m, const char *key); /* NULL when absent */
void ir_meta_set(ir_module *m, const char *key, const char *value);

ir_graph *ir_graph_new(ir_module *m, const char *name);
ir_graph *ir_graph_find(const ir_module *m, const char *name);
void ir_graph_remove(ir_module *m, ir_graph *g); /* and its bodies */
/* A deep copy under another name in the same module (same storage, notes and locations kept). `map`, if not
 * NULL, is an array of g->value_ids entries that receives the copy of each value. Bodies are copied too. */
ir_graph *ir_graph_clone(ir_module *m, const ir_graph *g, const char *name, ir_value **map);
/* Numbers nodes and values anew in list order, so that ids are dense. */
void ir_graph_renumber(ir_graph *g);

ir_value *ir_graph_input(ir_graph *g, const char *name, const ir_type *type);
ir_value *ir_graph_find_input(const ir_graph *g, const char *name);
void ir_graph_drop_input(ir_graph *g, ir_value *v); /* which nothing reads */
/* The value that reading the storage gives; made on first use, one per graph and storage. */
ir_value *ir_graph_storage(ir_graph *g, ir_storage *s);
/* The output statement of that name, or NULL. */
ir_node *ir_graph_find_output(const ir_graph *g, const char *name);

/* The statements of a graph in list order; NULL at the end. */
ir_node *ir_first_output(const ir_graph *g);
ir_node *ir_next_output(const ir_node *n);
ir_node *ir_first_store(const ir_graph *g);
ir_node *ir_next_store(const ir_node *n);
static inline const char *ir_output_name(const ir_node *n) { return n ? n->attr[IR_ATTR(output, name)].s : NULL; }

void ir_value_rename(ir_value *v, const char *name); /* made unique */
/* All uses of `from` read `to` instead. */
void ir_value_replace(ir_value *from, ir_value *to);
static inline bool ir_value_used(const ir_value *v) { return v->first_use != NULL; }

void ir_node_set_input(ir_node *n, int i, ir_value *v);
/* Another operand behind those that the node has. */
void ir_node_add_input(ir_node *n, ir_value *v);
/* To the place before `at`, a node of the same graph; what n reads has to be defined there. */
void ir_node_move_before(ir_node *n, ir_node *at);
/* Unlinks the node and drops its operands. Its results must be unused. */
void ir_node_remove(ir_node *n);
static inline ir_value *ir_in(const ir_node *n, int i) { return i < n->n_in ? n->in[i].value : NULL; }
static inline ir_value *ir_out(const ir_node *n, int i) { return i < n->n_out ? n->out[i] : NULL; }
diag_loc ir_diag_loc(const ir_node *n);
/* The operand of the slot of that name (ops.def); NULL when there is none. */
static inline ir_value *ir_in_named(const ir_node *n, const char *slot)
{
    int i = ir_op_find_in(n->op, slot);
    return i < 0 ? NULL : ir_in(n, i);
}
/* The node that makes v, or NULL. */
static inline ir_node *ir_def(const ir_value *v) { return v->kind == IR_VALUE_RESULT ? v->def : NULL; }

/* ---- roles.c: what has a role; NULL when there is none ----------------------------------------------------------- */

ir_graph *ir_graph_by_role(const ir_module *m, ir_graph_role role);
ir_graph *ir_graph_by_key(const ir_module *m, const char *key); /* a role's word, or the name of another graph */
void ir_graph_set_role(ir_graph *g, ir_graph_role role);        /* and its usual name */
ir_graph *ir_graph_derive(ir_module *m, const ir_graph *g, ir_graph_role role); /* a copy with that role and name */
ir_storage *ir_state_by_role(const ir_module *m, ir_state_role role);
ir_storage *ir_state_new(ir_module *m, ir_state_role role);     /* zero, under its usual name made unique */
const char *ir_state_name(const ir_module *m, ir_state_role role); /* "" when there is none */
ir_type ir_state_role_type(ir_state_role role);                 /* without dtype: any type will do */
bool ir_state_role_allows(ir_state_role role, const ir_type *type);
ir_value *ir_input_by_role(const ir_graph *g, ir_input_role role);
ir_node *ir_output_by_role(const ir_graph *g, ir_output_role role);

/* ---- infer_foreign.c: the float type of a foreign node, whose operands and results its `layout` marks with t ----- */

bool ir_foreign_reads(const ir_node *n, int i); /* operand i has that type */
bool ir_foreign_gives(const ir_node *n, int i); /* result i */
/* Marks of h, where the operator has f16 but not bf16, become t or x. */
void ir_foreign_settle(ir_node *n, bool low);
/* Its f32 results have the given type from the next inference on. */
void ir_foreign_retype(ir_node *n, ir_dtype to);

/* ---- body.c: graphs that a foreign node reads ---------------------------------------------------------------------
 * A foreign node has operands of its own and, after them, captures: values that its bodies read by name. The inputs of
 * a body are what the operator gives it, then the captures that it reads, each by the name that the node has for it;
 * its outputs are the output statements in order. Storage is read in a body as in any graph. */
typedef struct ir_body {
    const char *attribute; /* of the operator, whose value the graph is */
    ir_graph *graph;       /* NULL: the module has no such graph */
} ir_body;

int ir_body_count(const ir_node *n);           /* 0 for any other op */
ir_body ir_body_get(const ir_node *n, int i);  /* the attribute's name is in the module's arena */
void ir_body_add(ir_node *n, const char *attribute, ir_graph *g);
/* Operands of the operator itself; captures follow. All of them for any other op. */
int ir_own_operands(const ir_node *n);
/* The operand that input v of a body of n stands for, or -1: the operator gives it. */
int ir_capture_find(const ir_node *n, const ir_value *v);
/* The input of `body`, which is one of n, that stands for v of n's graph: made, with its capture, if there is none. */
ir_value *ir_capture_add(ir_node *n, ir_graph *body, ir_value *v);
/* g, then its bodies and theirs in order, g's own first. */
typedef VEC(const ir_graph *) ir_graph_list;
void ir_graph_family(const ir_graph *g, arena *a, ir_graph_list *out);

/* ---- types ----------------------------------------------------------------------------------- */

bool ir_type_equal(const ir_type *a, const ir_type *b);
bool ir_type_same_shape(const ir_type *a, const ir_type *b);
ir_type ir_type_scalar(ir_dtype t);
ir_type ir_type_make(ir_dtype t, int rank, const int64_t *dims);
ir_dim ir_type_count(ir_dim_table *t, const ir_type *type); /* number of elements, possibly symbolic */
bool ir_type_is_static(const ir_type *type);
const char *ir_type_print(const ir_module *m, const ir_type *type, arena *a); /* "f32[N,784]" */

/* ---- node.c, build.c: making nodes --------------------------------------------------------------------------------
 * A builder is a cursor: new nodes go before `before` (NULL: at the end of the graph), with its phase and location.
 *
 *     ir_node *n = ir_new(b, IR_OP_matmul, 3, x, w, bias);
 *     ir_set_bool(n, IR_ATTR(matmul, trans_b), true);
 *     ir_value *y = ir_done(b, n);
 *
 * ir_done infers the result types, inserts the node and gives result 0. When a mandatory operand is NULL or inference
 * fails (reported to diag), everything downstream gives NULL, so a formula needs one check at its end. */
typedef struct ir_builder {
    ir_graph *graph;
    ir_node *before;
    ir_phase phase;
    ir_loc loc;
    diag *diag;
    bool nameless; /* results get no name: the caller names them, or calls ir_name_results */
} ir_builder;

ir_builder ir_builder_at_end(ir_graph *g, diag *d);
ir_builder ir_builder_before(ir_node *n, diag *d); /* takes n's phase and location */
ir_builder ir_builder_after(ir_node *n, diag *d);

ir_node *ir_new(ir_builder *b, ir_op op, int n_in, ...);                 /* n_in ir_value *, NULL = absent optional */
/* n_in operands; n_out results, 0 = as many as the op has slots (an OUTS slot needs the number) */
ir_node *ir_new_array(ir_builder *b, ir_op op, int n_in, ir_value *const *in, int n_out);
void ir_set_int(ir_node *n, int attr, int64_t v);
void ir_set_bool(ir_node *n, int attr, bool v);
void ir_set_float(ir_node *n, int attr, double v);
void ir_set_dtype(ir_node *n, int attr, ir_dtype t);
void ir_set_str(ir_node *n, int attr, const char *s);                    /* copied */
void ir_set_list(ir_node *n, int attr, const int64_t *items, int count); /* INTS and DIMS, copied */
ir_value *ir_done(ir_builder *b, ir_node *n);                            /* result 0; NULL on failure */
bool ir_done_all(ir_builder *b, ir_node *n);                             /* for nodes without results, or several */
void ir_node_insert(const ir_builder *b, ir_node *n);                    /* with the types that it has */
void ir_name_results(ir_node *n);                                        /* those without a name: after op and slot */

/* Shorthands: one node (or few) each; they propagate NULL like ir_done. */
ir_value *ir_unary(ir_builder *b, ir_op op, ir_value *x);
ir_value *ir_binary(ir_builder *b, ir_op op, ir_value *x, ir_value *y);
ir_value *ir_cast(ir_builder *b, ir_value *x, ir_dtype to);              /* x itself if it has that type */
ir_value *ir_reshape(ir_builder *b, ir_value *x, const ir_dim *dims, int rank); /* x itself if equal */
ir_value *ir_reshape_like(ir_builder *b, ir_value *x, const ir_type *shape);
ir_value *ir_expand(ir_builder *b, ir_value *x, const ir_dim *dims, int rank);  /* x itself if equal */
ir_value *ir_transpose(ir_builder *b, ir_value *x, const int64_t *perm);        /* x itself if identity */
ir_value *ir_reduce_sum(ir_builder *b, ir_value *x, const int64_t *axes, int n_axes, bool keepdims);
ir_value *ir_matmul(ir_builder *b, ir_value *x, ir_value *y, ir_value *bias, bool trans_a, bool trans_b);
ir_value *ir_scalar(ir_builder *b, ir_dtype t, double v);                /* inline constant, shared by value */
ir_value *ir_scalar_like(ir_builder *b, const ir_value *like, double v);
bool ir_is_scalar(const ir_value *v); /* a constant that ir_scalar made, not one of the model */
ir_value *ir_constant(ir_builder *b, const char *name, const ir_type *type, const void *bytes);
ir_node *ir_output(ir_builder *b, const char *name, ir_value *v);
/* An output of that role under its usual name, made unique; `of` is NULL for one that stands alone. */
ir_node *ir_output_as(ir_builder *b, ir_output_role role, ir_value *of, ir_value *v);
/* The output statement `n` again, at the builder's place and of another value. */
void ir_output_again(ir_builder *b, ir_node *n, ir_value *v);
void ir_store(ir_builder *b, ir_storage *s, ir_value *v);

/* ---- infer.c --------------------------------------------------------------------------------- */

/* Checks operands and attributes of a node and sets the types of its results. Errors name the node and both sides
 * ("inner dimensions differ: 784 and 785"). */
ampc_status ir_infer(ir_node *n, diag *d);
/* Re-infers every node in order (after an edit of types upstream). */
ampc_status ir_graph_infer(ir_graph *g, diag *d);
/* NumPy broadcasting of two shapes; different symbols never broadcast: false. */
bool ir_broadcast(ir_dim_table *t, const ir_type *a, const ir_type *b, ir_type *out);

/* ---- bound.c: nodes under sizes of their symbols --------------------------------------------- */

/* Sizes by symbol, -1: unbound; graph and sizes must outlive the binding. It writes nothing into the module. NULL: out
 * of memory. */
typedef struct ir_binding ir_binding;
ir_binding *ir_binding_new(const ir_graph *g, const int64_t *sizes);
void ir_binding_free(ir_binding *b); /* NULL allowed */
/* Infers a node of the graph with numbers in place of its symbols: refuses (AMPC_REJECTED, naming node and sizes) what
 * inference refuses of such numbers, and results of another shape than their types have. */
ampc_status ir_binding_check(ir_binding *b, const ir_node *n, diag *d);
/* The value of a dimension; reports a symbol without a size, and what is too large. */
ampc_status ir_binding_dim(const ir_graph *g, const int64_t *sizes, ir_dim dim, diag_loc loc, diag *d, int64_t *out);

/* ---- fold.c: values known at compile time ---------------------------------------------------- */

/* Elements of a value that is known while compiling: integers and bools (possibly symbolic) as ir_dim, floats
 * as double. */
typedef struct ir_known {
    ir_type type;       /* static shape */
    int64_t count;
    const ir_dim *ints; /* integer and bool dtypes */
    const double *floats;
} ir_known;

typedef struct ir_knowledge ir_knowledge; /* side table: value -> ir_known */
ir_knowledge *ir_knowledge_new(arena *a, ir_graph *g);
/* Inline constants are known by themselves; results of folded nodes by ir_fold. NULL: not known. */
const ir_known *ir_known_get(ir_knowledge *k, const ir_value *v);
void ir_known_set(ir_knowledge *k, const ir_value *v, const ir_known *known);
/* Evaluates a node whose operands are known (at most `limit` elements) and records its results. The arithmetic
 * is that
 * of the kernels, defined everywhere. False: not foldable. */
bool ir_fold(ir_knowledge *k, const ir_node *n, int64_t limit);
/* Replaces known results that are still read by inline constants (`dims` nodes when symbolic) and removes what is
 * no longer read. Parameters and states are never folded. */
void ir_fold_commit(ir_knowledge *k, ir_graph *g, diag *d);

/* ---- verify.c, print.c, parse.c -------------------------------------------------------------- */

/* All rules of the IR (docs/ir.md). Violations are collected; each is printed under the offending line of the
 * dump. */
ampc_status ir_verify(const ir_module *m, diag *d);

/* Canonical text; the string is in `a`. */
const char *ir_print(const ir_module *m, arena *a);
/* The same for a file: sealed, so that no part of it is taken for the whole. */
const char *ir_print_sealed(const ir_module *m, arena *a);
const char *ir_print_node(const ir_node *n, arena *a); /* one line without newline */

/* Text -> module; errors point at FILE:LINE:COLUMN with a caret. `file` is the name for messages. */
ampc_status ir_parse(const char *text, size_t length, const char *file, diag *d, ir_module **out);
ampc_status ir_parse_file(const char *path, diag *d, ir_module **out); /* "-": standard input */

#endif
