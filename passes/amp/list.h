/* list.h - white, black, gray and clear lists: profiles, list files, command line.
 *
 * The effective list is a stack of layers: the profile, each list file, the command line. A later layer beats an
 * earlier one; inside a layer conditional lines come before unconditional ones; the first that matches wins. */
#ifndef AMPC_LIST_H
#define AMPC_LIST_H

#include "passes/amp/rules.h"
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

typedef struct amp_list {
    arena *arena;
    VEC(list_layer) layers; /* the profile, list files, command line */
    const char *base;     /* name of the profile; NULL while nobody has named one */
    strmap *known;        /* operator names that the profile ampc knows */
    amp_rules rule;
    bool set[RULE_COUNT]; /* by a list file */
    strmap *unsupported;  /* operators of the file that the rule names */
    pass_level level;     /* for conditions */
    bool plain_runtime;   /* ops compute in the type that they read */
    scaling_rules scaling;
} amp_list;

/* Reads profile, files and command-line lists. All syntax errors are reported with line numbers, together. */
ampc_status amp_list_load(const compile_options *o, arena *a, diag *d, amp_list **out);

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

#endif
