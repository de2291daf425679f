/* list.h - white, black, gray and clear lists: profiles, list files, command line.
 *
 * The effective list is a stack of layers: the profile, the list files in order, the command line. Later layers
 * override earlier ones. Within a layer conditional lines precede unconditional ones, and the first match decides. */
#ifndef AMPC_LIST_H
#define AMPC_LIST_H

#include "passes/amp/regex.h"
#include "passes/amp/rules.h"
#include "passes/pass.h"

/* Location of a line: the file as the user named it ("profile ampc", "command line") and the line; 0: none. */
typedef struct list_place {
    const char *file;
    int line;
} list_place;

#define LIST_REGEX "re:" /* starts a [nodes] line whose rest is a regular expression */

/* A test in a condition. It applies to the IR node that the operator was lowered to. */
typedef enum list_test {
    LIST_DEPTHWISE, /* one group per channel */
    LIST_STRIDED,   /* a slice with steps */
    LIST_DTYPE,
    LIST_LEVEL,
    LIST_OUTPUTS,
    LIST_RANK,
    LIST_SCALAR,
    LIST_PARAM,
    LIST_SAME,     /* operands `argument` and `value` are the same value */
    LIST_VALUE,    /* operand `argument` has one element, which equals `number` */
    LIST_ATTRIBUTE /* `attribute` of the node compares with `number` or `word` */
} list_test;
typedef enum list_comparison { LIST_EQ, LIST_NE, LIST_LE, LIST_GE, LIST_LT, LIST_GT } list_comparison;
typedef struct list_condition {
    list_test test;
    bool negated;
    int64_t argument; /* operand position */
    int64_t value;    /* rank, count or second operand */
    int choice;       /* pass_level or ir_dtype */
    list_comparison comparison;
    double number;
    const char *attribute, *word; /* word NULL: compares with `number` */
} list_condition;

typedef struct list_entry { /* "Op if COND and COND" under a colour, or "-Op": hides lower layers */
    const char *op;
    ir_colour colour;
    bool remove;
    const char *text;
    VEC(list_condition) conditions;
    list_place place;
} list_entry;

typedef struct list_pattern { /* [nodes] glob = dtype, [nodes] re:expression = dtype, [tensors] name */
    const char *glob;
    const char *plain; /* the only name that the glob matches, or NULL */
    const regex *regex;
    ir_dtype dtype; /* IR_f32 for [tensors] */
    list_place place;
} list_pattern;

/* By position of the operator; one type is that of all floats. IR_NO_DTYPE: the type of the model. */
typedef VEC(ir_dtype) list_types;
typedef struct list_operands { /* [operands] Op = TYPE, .. -> TYPE, .. */
    const char *op, *text;     /* text: after the '=' */
    list_types operands, results;
    list_place place;
} list_operands;

typedef struct list_layer {
    VEC(list_entry) entries;
    strmap *unconditional; /* by operator: its first unconditional line */
    VEC(list_pattern) nodes, tensors;
    VEC(list_operands) operands;
} list_layer;

typedef struct amp_list {
    arena *arena;
    VEC(list_layer) layers; /* the profile, list files, command line */
    const char *base;       /* name of the profile; NULL: not named yet */
    strmap *known;          /* operator names in profile ampc */
    amp_rules rule;
    bool set[RULE_COUNT]; /* whether a list file sets the rule */
    strmap *unsupported;  /* operators in the file that the rule `unsupported` names */
    pass_level level;     /* for conditions */
    bool plain_runtime;   /* ops compute in the type of their operands */
    scaling_rules scaling;
} amp_list;

/* Reads the profile, the list files and the lists of the command line. Reports all syntax errors with line numbers. */
ampc_status amp_list_load(const compile_options *o, arena *a, diag *d, amp_list **out);

/* The line that colours operator `op` at node n, or NULL. If n is NULL, tests of the node fail. */
const list_entry *amp_list_find(const amp_list *l, const char *op, const ir_node *n, ir_dtype low);
/* The line that colours node n, or NULL. A fused node is coloured by the line of its operator, unless a later layer has
 * an unconditional black line for an operator that it was fused from. */
const list_entry *amp_list_find_at(const amp_list *l, const ir_node *n, ir_dtype low);
/* Whether the line is one of the profile, and not of a list file or the command line. */
bool amp_list_is_of_profile(const amp_list *l, const list_entry *line);
/* The [nodes] line that matches the name of the ONNX node, or of one it was fused from, or NULL. */
const list_pattern *amp_list_find_node(const amp_list *l, const ir_loc *loc);
/* The [tensors] line for a value name, or NULL. */
const list_pattern *amp_list_find_tensor(const amp_list *l, const char *name);
/* Whether the second float group of this operator stays f32 (rule `pins`). */
bool amp_list_fp32_operands(const amp_list *l, const char *op);
/* Whether the target has no low-precision kernel for `op` and the rules apply that at this level. */
bool amp_list_unsupported(const amp_list *l, const char *op);
/* Whether the profile has the operator black at other levels, but not at this one. */
bool amp_list_black_lifted_at_level(const amp_list *l, const char *op);
/* Whether operand i of n is an attribute of its operator instead of a value of the model: a scalar that lowering
 * created, or a constant of an operator that the rule `attributes` names. */
bool amp_list_is_attribute(const amp_list *l, const ir_node *n, int i);
/* Whether n computes in f32 internally, so that its operands and results may be low even if it is black. */
bool amp_list_inside(const amp_list *l, const ir_node *n);
/* The line of [nodes] or [tensors] that means the node or tensor with this name and no other, whatever characters the
 * name has: "NAME = fp32  # reason". reason NULL: without a comment. */
const char *amp_list_glob(const char *name, arena *a); /* of the former, as for --fp32-node */
const char *amp_list_node_line(const char *name, ir_dtype dtype, const char *reason, arena *a);
const char *amp_list_tensor_line(const char *name, const char *reason, arena *a);
/* Warns about operators, globs and tensors that do not occur in the module. */
ampc_status amp_list_check_used(const amp_list *l, const ir_module *m, diag *d);

#endif
