/* entry.h - the mixed-precision decision for one node, and how the types of its operands and results follow from it. */
#ifndef AMPC_ENTRY_H
#define AMPC_ENTRY_H

#include "passes/amp/list.h"

/*        name            sentence; %s is the cause */
#define AMP_RULE_MAP(X) \
    X(AMP_OFF, "mixed precision is off") \
    X(AMP_NO_FLOAT, "no float operand or result") \
    X(AMP_STATEMENT, "edge of the graph") \
    X(AMP_USER_CAST, "a cast of the model is honoured") \
    X(AMP_F64, "computes in f64") \
    X(AMP_OPAQUE, "carried along as the model has it: f32") \
    X(AMP_FIXED, "its type is an attribute of the model: untouched") \
    X(AMP_UNSUPPORTED, "the target has no low-precision kernel for it") \
    X(AMP_NODE, "[nodes] names it") \
    X(AMP_TENSOR, "[tensors] names a value that it touches") \
    X(AMP_NAMED, "touches a value with a name that stays f32") \
    X(AMP_RANGE, "its values may leave the range of fp16") \
    X(AMP_INITIALIZER, "reads a tensor that fp16 would lose") \
    X(AMP_LOSS, "lies between the loss and the last white or f32-inside op") \
    X(AMP_LISTED_WHITE, "white") \
    X(AMP_LISTED_BLACK, "black") \
    X(AMP_INSIDE, "black, but computes in f32 inside: reads and writes any type") \
    X(AMP_INSIDE_MIXED, "black, computes in f32 inside; operands of both types: f32") \
    X(AMP_GRAY_F32, "gray, follows an f32 producer") \
    X(AMP_GRAY_LOW, "gray, follows a low-precision producer") \
    X(AMP_GRAY_KEEP, "gray without a coloured producer: keeps what arrives") \
    X(AMP_GRAY_DEFAULT_LOW, "gray without a coloured producer: low") \
    X(AMP_PROMOTE_F32, "promoted: an operand is f32") \
    X(AMP_PROMOTE_LOW, "no operand is f32: low") \
    X(AMP_O2, "level O2: low unless black") \
    X(AMP_OD, "level OD: f32 unless white") \
    X(AMP_CLEAR, "clear: the type of its operands") \
    X(AMP_CLEAR_MIXED, "clear with operands of both types: f32") \
    X(AMP_UNLISTED, "on no list: f32") \
    X(AMP_ATTENTION, "between the products of an attention: low like them") \
    X(AMP_CUT, "chosen by minimum cut")

typedef enum amp_rule {
#define AMP_RULE_ENUM(name, text) name,
    AMP_RULE_MAP(AMP_RULE_ENUM)
#undef AMP_RULE_ENUM
} amp_rule;

typedef struct amp_entry {
    ir_colour colour;
    amp_rule rule;
    ir_dtype want;          /* type of its float operands; IR_NO_DTYPE: left unchanged */
    ir_dtype result;        /* type of its first float result */
    const list_place *line; /* the list line that decided, or NULL */
    const ir_value *cause;  /* the producer that decided, or NULL */
    bool wide;              /* result is f32 because it may overflow the low type */
    const char *flip;       /* cost of the other type at this node alone, for --explain, or NULL */
    bool counts;            /* counts as a producer for gray users */
} amp_entry;

/* Whether operand i is a float of the groups that the node unifies, so that it is read in the type of the entry. */
bool amp_is_cast_operand(const ir_node *n, int i);
/* Whether result i, if it is a float, has the type `result` of the entry. */
bool amp_follows_result(const ir_node *n, int i);
/* Whether result i, which the op computes in f32 regardless of its operands, is cast to low because of the lists. */
bool amp_narrows_result(const ir_node *n, int i, const amp_entry *e, const amp_list *l);
/* Whether operands of the second float group become low with the first group; the lists can pin them to f32. */
bool amp_second_follows(const ir_node *n, const amp_entry *e, const amp_list *l);
/* Whether v is a constant that is converted at compile time, without a cast. */
bool amp_converts(const ir_value *v);
/* Whether n only moves or selects values of its operands. */
bool amp_only_moves(const ir_node *n);

const char *amp_rule_sentence(amp_rule r);

#endif
