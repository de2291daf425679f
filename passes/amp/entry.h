/* entry.h - the mixed-precision decision for one node, and how the types of its operands and results follow from it. */
#ifndef AMPC_ENTRY_H
#define AMPC_ENTRY_H

#include "passes/amp/list.h"

/*        name            sentence; %s is the cause */
#define AMP_RULE_MAP(X) \
    X(AMP_OFF, "mixed precision is off") \
    X(AMP_NO_FLOAT, "no float operand or result") \
    X(AMP_STATEMENT, "boundary of the graph") \
    X(AMP_USER_CAST, "a Cast of the model stays as it is") \
    X(AMP_F64, "computes in f64") \
    X(AMP_OPAQUE, "opaque operator, unchanged: f32") \
    X(AMP_FIXED, "its type is an attribute in the model: unchanged") \
    X(AMP_UNSUPPORTED, "the target has no low-precision kernel") \
    X(AMP_NODE, "listed in [nodes]") \
    X(AMP_TENSOR, "reads or writes a value listed in [tensors]") \
    X(AMP_NAMED, "reads or writes a value whose name matches fp32_names") \
    X(AMP_OPERANDS, "copied, with the types of its line in [operands]") \
    X(AMP_RANGE, "its values may leave the range of fp16") \
    X(AMP_INITIALIZER, "reads a tensor that fp16 cannot represent") \
    X(AMP_INIT_MAX, "reads a tensor with an element above the rule init_max") \
    X(AMP_LOSS, "on the path from the last white or f32-internal op to the loss") \
    X(AMP_LISTED_WHITE, "white") \
    X(AMP_LISTED_BLACK, "black") \
    X(AMP_F32_COMPUTE, "black, but computes in f32 internally: operands and results of any type") \
    X(AMP_F32_COMPUTE_MIXED, "black, computes in f32 internally; mixed operand types: f32") \
    X(AMP_GRAY_F32, "gray, follows an f32 producer") \
    X(AMP_GRAY_LOW, "gray, follows a low-precision producer") \
    X(AMP_GRAY_KEEP, "gray without a coloured producer: keeps its operand type") \
    X(AMP_GRAY_DEFAULT_LOW, "gray without a coloured producer: low") \
    X(AMP_PROMOTE_F32, "promoted: an operand is f32") \
    X(AMP_PROMOTE_LOW, "no operand is f32: low") \
    X(AMP_O2, "level O2: low unless black") \
    X(AMP_OD, "level OD: f32 unless white") \
    X(AMP_CLEAR, "clear: the type of its operands") \
    X(AMP_CLEAR_MIXED, "clear with mixed operand types: f32") \
    X(AMP_MOVED_WEIGHT, "moves a weight that only low-precision operators read: low like them") \
    X(AMP_UNLISTED, "unlisted: f32") \
    X(AMP_ATTENTION, "between the matmuls of an attention: low like them") \
    X(AMP_CUT, "chosen by minimum cut")

typedef enum amp_rule {
#define AMP_RULE_ENUM(name, text) name,
    AMP_RULE_MAP(AMP_RULE_ENUM)
#undef AMP_RULE_ENUM
} amp_rule;

typedef struct amp_entry {
    ir_colour colour;
    amp_rule rule;
    ir_dtype compute_dtype;       /* type of its float operands; IR_NO_DTYPE: left unchanged */
    ir_dtype result;              /* type of its first float result */
    const list_place *line;       /* the list line that decided, or NULL */
    const ir_value *cause;        /* the producer that decided, or NULL */
    bool overflows;               /* result is f32 because it may overflow the low type */
    const char *alternative_cost; /* the other type and its extra cost at this node, for --explain, or NULL */
    bool counts;                  /* counts as a producer for gray users */
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

/* Whether the output is the loss or a part of it, which lists do not change. */
static inline bool amp_is_loss(const ir_node *output)
{
    return output->role == IR_OUTPUT_loss || output->role == IR_OUTPUT_loss_part;
}

const char *amp_rule_sentence(amp_rule r);

#endif
