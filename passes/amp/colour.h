/* colour.h - the side table between colouring and cast insertion: for every node of a graph its colour, the type that
 * it computes in, the rule that decided and what caused it. That table is also what --explain prints. */
#ifndef AMPC_COLOUR_H
#define AMPC_COLOUR_H

#include "passes/amp/casts.h"
#include "passes/amp/list.h"

/*        name            sentence; %s is the cause */
#define AMP_RULE_MAP(X)                                                                            \
    X(AMP_OFF,           "mixed precision is off")                                                 \
    X(AMP_NO_FLOAT,      "no float operand or result")                                             \
    X(AMP_STATEMENT,     "edge of the graph")                                                      \
    X(AMP_USER_CAST,     "a cast of the model is honoured")                                        \
    X(AMP_F64,           "computes in f64")                                                        \
    X(AMP_FOREIGN,       "carried along as the model has it: f32")                                \
    X(AMP_FIXED,         "its type is an attribute of the model: untouched")                       \
    X(AMP_UNSUPPORTED,   "the target has no low-precision kernel for it")                          \
    X(AMP_NODE,          "[nodes] names it")                                                       \
    X(AMP_TENSOR,        "[tensors] names a value that it touches")                                \
    X(AMP_NAMED,         "touches a value with a name that stays f32")                             \
    X(AMP_RANGE,         "its values may leave the range of fp16")                                 \
    X(AMP_INITIALIZER,   "reads a tensor that fp16 would lose")                                    \
    X(AMP_LOSS,          "lies between the loss and the last white or f32-inside op")              \
    X(AMP_LISTED_WHITE,  "white")                                                                  \
    X(AMP_LISTED_BLACK,  "black")                                                                  \
    X(AMP_INSIDE,        "black, but computes in f32 inside: reads and writes any type")           \
    X(AMP_INSIDE_MIXED,  "black, computes in f32 inside; operands of both types: f32")             \
    X(AMP_GRAY_F32,      "gray, follows an f32 producer")                                          \
    X(AMP_GRAY_LOW,      "gray, follows a low-precision producer")                                 \
    X(AMP_GRAY_KEEP,     "gray without a coloured producer: keeps what arrives")                   \
    X(AMP_ORPHAN_LOW,    "gray without a coloured producer: low")                                  \
    X(AMP_PROMOTE_F32,   "promoted: an operand is f32")                                            \
    X(AMP_PROMOTE_LOW,   "no operand is f32: low")                                                 \
    X(AMP_O2,            "level O2: low unless black")                                             \
    X(AMP_OD,            "level OD: f32 unless white")                                             \
    X(AMP_CLEAR,         "clear: the type of its operands")                                        \
    X(AMP_CLEAR_MIXED,   "clear with operands of both types: f32")                                 \
    X(AMP_UNLISTED,      "on no list: f32")                                                        \
    X(AMP_ATTENTION,     "between the products of an attention: low like them")                    \
    X(AMP_CUT,           "chosen by minimum cut")

typedef enum amp_rule {
#define AMP_RULE_ENUM(name, text) name,
    AMP_RULE_MAP(AMP_RULE_ENUM)
#undef AMP_RULE_ENUM
} amp_rule;

typedef struct amp_entry {
    ir_colour colour;
    amp_rule rule;
    ir_dtype want;          /* type of its float operands; IR_NO_DTYPE: not touched */
    ir_dtype result;        /* type of its first float result */
    const list_place *line; /* the list line that decided, or NULL */
    const ir_value *cause;  /* the producer that decided, or NULL */
    bool wide;              /* result is f32 because it does not fit the low type */
    const char *flip;       /* what the other type would cost here alone, for --explain, or NULL */
    bool counts;            /* a gray consumer counts it as a producer */
} amp_entry;

/* What a body gets from the graph around it. Its captures have the types that casting outside gave them. */
typedef struct amp_outside {
    const bool *counts;    /* by position of the input: its producer counts as one */
    const ir_dtype *asked; /* by value id: types in the model, which the results of the body keep */
    ir_dtype result;       /* that its f32 results have instead, or IR_NO_DTYPE */
    ir_node *node;         /* whose body it is */
    const cast_table *casts; /* of the node's graph: amp_cast */
    const struct amp_outside *outside; /* of that graph, when it is a body too */
} amp_outside;

/* One entry a node id (the graph is renumbered). Requires types inferred, no inserted casts yet. `low` is IR_f16 or
 * IR_bf16; level O0 gives every node the neutral entry of AMP_OFF. In the arena. */
amp_entry *amp_colour(ir_graph *g, const amp_list *l, const pass_options *o, arena *a, diag *d);

/* Whether operand i is a float of the groups that the node unifies: it is read in the type of the entry. */
bool amp_takes_part(const ir_node *n, int i);
/* Whether result i has the type `result` of the entry (if it is a float). */
bool amp_follows_result(const ir_node *n, int i);
/* Whether result i, which the op computes in f32 whatever it reads, is narrowed behind it: the lists want it low. */
bool amp_narrows_result(const ir_node *n, int i, const amp_entry *e, const amp_list *l);
/* Whether operands of the second float group go low with the first one: not where the list pins them. */
bool amp_second_follows(const ir_node *n, const amp_entry *e, const amp_list *l);
/* Whether v is a constant that is written in the other type while compiling, so that no cast runs. */
bool amp_converts(const ir_value *v);

/* Whether the profile looks into bodies at this level. Then captures arrive in the type that they have. */
bool amp_lowers_bodies(const amp_list *l, const pass_options *o);
/* Whether the node only chooses between bodies and is coloured like any operator, its captures as operands. */
bool amp_is_listed_control(const amp_list *l, const pass_options *o, const ir_node *n);
bool amp_is_free_capture(const amp_list *l, const pass_options *o, const ir_node *n, int i);
/* By value id: the types that statements and foreign nodes ask for, those of the model. */
const ir_dtype *amp_asked(const ir_graph *g, arena *a);

/* Level O2: by value id, the parameters that are low; their f32 storage is the master, of which one cast makes the low
 * copy. All but those that a protected slot reads, or a node that stays f32 for another reason than its list. */
bool *amp_low_params(const ir_graph *g, const amp_list *l, const pass_options *o, const amp_entry *entries, arena *a);

/* Inserts casts so that every node gets the types of its entry, and infers types anew. One cast per (value, type);
 * `casts` takes them, for the bodies of the nodes read them too. */
ampc_status amp_cast(ir_graph *g, const amp_entry *entries, const amp_list *l, const pass_options *o, cast_table *casts,
                     arena *a, diag *d);

/* Adds the model nodes of g with float results to o->stats: low or f32, and why f32. */
void amp_count(const ir_graph *g, const amp_entry *entries, const pass_options *o, arena *a);

const char *amp_rule_sentence(amp_rule r);
/* The answer to --explain: one block (text) or object (JSON) a model node; NULL when the name matches none. */
const char *amp_explain(const ir_graph *g, const amp_entry *entries, const pass_options *o, arena *a);

#endif
