/* list.h - white, black, gray and clear lists: profiles, list files, command line.
 *
 * The effective list is a stack of layers: the profile, each list file, the command line. A later layer beats an
 * earlier one; inside a layer conditional lines come before unconditional ones; the first that matches wins. */
#ifndef AMPC_LIST_H
#define AMPC_LIST_H

#include "passes/pass.h"

/* Where a line stands: the file as the user named it ("profile ampc", "command line") and the line, 0: none. */
typedef struct list_place {
    const char *file;
    int line;
} list_place;

/* One test of a conditional line, on the IR node that the operator became. */
typedef enum list_test {
    LIST_DEPTHWISE, /* one group a channel */
    LIST_STRIDED,   /* a slice that leaves elements out */
    LIST_DTYPE,
    LIST_LEVEL,
    LIST_OUTPUTS,
    LIST_RANK,
    LIST_SCALAR,
    LIST_PARAM,
    LIST_SAME,     /* operands `argument` and `value` are one */
    LIST_VALUE,    /* the one element of operand `argument` is `number` */
    LIST_ATTRIBUTE /* `attribute` of the node compares with `number`, or with `word` */
} list_test;
typedef enum list_comparison { LIST_EQ, LIST_NE, LIST_LE, LIST_GE, LIST_LT, LIST_GT } list_comparison;
typedef struct list_condition {
    list_test test;
    bool negated;
    int64_t argument; /* operand position, dtype, or count */
    int64_t value;    /* rank(A)==value */
    list_comparison comparison;
    double number;
    const char *attribute, *word; /* word: NULL, a number */
} list_condition;

typedef struct list_entry { /* "Op if COND and COND" under a colour, or "-Op": removed from that colour below */
    const char *op;
    ir_colour colour;
    bool remove;
    const char *text;
    VEC(list_condition) conditions;
    list_place place;
} list_entry;

typedef struct list_pattern { /* [nodes] glob = dtype, [tensors] name */
    const char *glob;
    ir_dtype dtype; /* of [nodes]; IR_f32 for [tensors] */
    list_place place;
} list_pattern;

typedef struct list_layer {
    VEC(list_entry) entries;
    strmap *unconditional; /* operator -> its first line without condition */
    VEC(list_pattern) nodes, tensors;
} list_layer;

/* The rules that are a choice of words: the position of the word in the table of list_rules.c. 0 is what profile ampc
 * does. */
typedef struct amp_rules {
    int gray;            /* any f32 producer wins | the last counted one does */
    /* gray without counted producer keeps what arrives | is neutral, which is the same | is low */
    int orphan;
    int unlisted;        /* f32 | an error */
    int f32_inside;      /* ops that compute in f32 inside take any type | are black like others | those that the rule
                            `promises` names do */
    int user_cast;       /* casts of the model are honoured, without colour | take part as listed */
    int fixed_dtype_ops; /* operators with a type as attribute are untouched | coloured as listed */
    int integer_ops;     /* nodes without float operand are untouched | coloured, so that they count as producers */
    int unsupported_at;  /* operators without low kernel are f32 at any level | at O2 | nowhere */
    int subgraphs;
    int control;         /* nodes that choose between bodies keep the types of the model | are coloured as listed */
    int outer_casts;     /* a body reads the casts of the graphs around it | makes its own */
    int promote;     /* off | gray and unlisted nodes are f32 if an operand is, else low */
    int loss;        /* the loss is an f32 terminal | only what we append to the model is */
    int constants;   /* written in the other type while compiling | cast like any value */
    int black_params; /* O2: parameters of black nodes stay f32 | are low */
    int od;          /* OD: lists of the user count | the white list of the profile alone does, for casts too */
    int stats;       /* statistics count what the clean-ups leave | what the pass inserts */
    int counters;    /* of loss scaling fire at n | n+1 steps */
    int attention;   /* between the products of an attention: low like them | as coloured */
    int range;       /* fp16: patterns and weights that leave its range stay f32 | count as listed */
    /* rules that are a number, 0: off */
    int64_t depth;    /* fp16: terms of a sum, more leave its range */
    int64_t residual; /* fp16: additions in a chain, those behind stay f32 */
} amp_rules;

enum {
    INSIDE_PROMISED = 2,
    GRAY_LAST_PRODUCER = 1,
    ORPHAN_LOW = 2,
    UNSUPPORTED_AT_O2 = 1,
    UNSUPPORTED_NEVER = 2,
    RANGE_OFF = 1,
    SUBGRAPHS_O2 = 2
};

typedef struct amp_list {
    arena *arena;
    VEC(list_layer) layers; /* the profile, list files, command line */
    const char *base;     /* name of the profile; NULL while nobody has named one */
    strmap *known;        /* operator names that the profile ampc knows */
    strmap *rules;        /* [rules] key -> text */
    amp_rules rule;
    strmap *unsupported;  /* operators of the file that the rule names */
    pass_level level;     /* for conditions */
    pass_scaling_rules scaling;
} amp_list;

/* Reads profile, files and command-line lists. All syntax errors are reported with line numbers, together. */
ampc_status amp_list_load(const pass_options *o, arena *a, diag *d, amp_list **out);

/* The line that colours operator `op` as it stands at node n, or NULL when none does. Without a node: as far as that
 * can be told. */
const list_entry *amp_list_find(const amp_list *l, const char *op, const ir_node *n, ir_dtype low);
/* The line that colours node n, or NULL. Of an operator that was recognised: its own line, unless a later layer has the
 * operator of one of its parts black; conditional lines speak of operators that stand alone. */
const list_entry *amp_list_find_at(const amp_list *l, const ir_node *n, ir_dtype low);
/* The [nodes] line whose glob matches the ONNX node name, or that of a part, or NULL. */
const list_pattern *amp_list_find_node(const amp_list *l, const ir_loc *loc);
/* The [tensors] line for a value name, or NULL. */
const list_pattern *amp_list_find_tensor(const amp_list *l, const char *name);
/* Whether operand group G of this operator stays f32 (the rule `pins`). */
bool amp_list_pins(const amp_list *l, const char *op);
/* Key number i of [rules], NULL behind the last. */
const char *amp_rule_key(int i);
bool amp_rule_known(const char *key);
/* Its value in this list as a list file has it; "" for a text that nothing has set. */
const char *amp_rule_print(const amp_list *l, int i);
/* False when the rule is a choice and `value` none of its words. */
bool amp_rule_set(amp_list *l, const char *key, const char *value);
/* The text of a rule, "" when nothing has set it. */
const char *amp_list_rule(const amp_list *l, const char *key);
/* Whether the text of a rule, "Word, Word(..), ...", has the word. */
bool amp_list_rule_names(const amp_list *l, const char *key, const char *word);
/* Whether operator `op` has no low-precision kernel on the target and the level asks for one. */
bool amp_list_unsupported(const amp_list *l, const char *op);
/* Whether the profile has the operator black at other levels, but not at this one. */
bool amp_list_spared(const amp_list *l, const char *op);
/* Whether operand i of n is no value of the model but an attribute of its operator: a scalar that lowering made, or
 * one at an operator that the rule `attributes` names. */
bool amp_list_is_attribute(const amp_list *l, const ir_node *n, int i);
/* Whether n computes in f32 inside, so that it may read and write low values although it is black. */
bool amp_list_inside(const amp_list *l, const ir_node *n);
/* Warns of operators, globs and tensors that match nothing in the module. */
ampc_status amp_list_check_used(const amp_list *l, const ir_module *m, diag *d);

const char *ir_colour_name(ir_colour c);

#endif
