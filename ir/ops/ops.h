/* ops.h - the op table in C: op numbers, slots, attributes. */
#ifndef AMPC_OPS_H
#define AMPC_OPS_H

#include "ir/ops/dim.h"
#include "ir/ops/dtype.h"
#include "ir/ops/slots.h"
#include "ir/ops/words.h"

#define IR_MAX_RANK 12 /* of values in the IR; models are limited to 8 */

typedef enum ir_op {
#define OP(name, amp, traits, infer, fold, grad, kernel) IR_OP_##name,
#include "ir/ops/ops.def"
    IR_OP_COUNT
} ir_op;

typedef enum ir_colour { IR_WHITE, IR_BLACK, IR_GRAY, IR_CLEAR, IR_KEEP } ir_colour;
const char *ir_colour_name(ir_colour c);

/* The traits of traits.def, as bits. */
enum {
#define TRAIT(name, sentence) IR_TRAIT_##name,
#include "ir/ops/traits.def"
};
enum ir_trait {
#define TRAIT(name, sentence) IR_##name = (int)(1u << IR_TRAIT_##name),
#include "ir/ops/traits.def"
};

/* The axes of operand 0 that the elements of an operand index: see INDEXES in ops.def. */
typedef enum ir_indexed {
    IR_INDEXED_NONE,
    IR_INDEXED_FIRST,
    IR_INDEXED_SECOND,
    IR_INDEXED_GIVEN,
    IR_INDEXED_TUPLE
} ir_indexed;

/* Slot kinds and the dtype groups of ops.def. */
typedef enum ir_slot_kind {
    IR_SLOT_IN,
    IR_SLOT_OPT,
    IR_SLOT_INS,
    IR_SLOT_OUT,
    IR_SLOT_OUTS,
    IR_SLOT_INT,
    IR_SLOT_INTS,
    IR_SLOT_FLOAT,
    IR_SLOT_DOUBLE,
    IR_SLOT_BOOL,
    IR_SLOT_DTYPE,
    IR_SLOT_STR,
    IR_SLOT_ONE_OF,
    IR_SLOT_DIMS,
    IR_SLOT_FIELDS
} ir_slot_kind;
typedef enum ir_group {
    IR_GROUP_NONE,
    IR_GROUP_F,
    IR_GROUP_G,
    IR_GROUP_F32,
    IR_GROUP_N,
    IR_GROUP_I,
    IR_GROUP_W,
    IR_GROUP_B,
    IR_GROUP_T,
    IR_GROUP_U
} ir_group;

/* An attribute of an operator in the model of which ops.def does not have the attributes. */
typedef struct ir_field {
    const char *name;
    char kind; /* i: integer, f: number, s: text; I, F: a list of them */
    int count; /* of a list */
    union {
        int64_t i;
        double f; /* exact in f32 */
        const char *s;
        const int64_t *ints;
        const float *floats;
    };
} ir_field;

/* The value of an attribute. The kind of its slot tells which member is valid. Lists are in the module's arena. */
typedef struct ir_attr {
    union {
        int64_t i;      /* INT, BOOL (0 or 1), ONE_OF (position of the word) */
        double f;       /* FLOAT (exact in f32), DOUBLE */
        ir_dtype dtype; /* DTYPE; IR_NO_DTYPE = SAME */
        const char *s;  /* STR */
        struct {
            const int64_t *items; /* INTS; DIMS (ir_dim in the graph, plain numbers in a kernel call) */
            int count;
        } list;
        struct {
            const ir_field *items; /* FIELDS */
            int count;
        } fields;
    };
} ir_attr;

typedef struct ir_slot {
    const char *name;
    ir_slot_kind kind;
    ir_group group;           /* of operands and results */
    bool stops, fixed;        /* operands: see STOPS and FIXED in ops.def */
    bool scalar;              /* operands: a scalar, whatever the shape of the others */
    bool once;                /* operands: see ONCE in ops.def */
    bool label;               /* operands: the label of a loss */
    ir_indexed indexed;       /* operands: see INDEXES in ops.def */
    ir_attr initial;          /* attributes: default value */
    const char *const *words; /* ONE_OF: NULL-terminated */
} ir_slot;

typedef struct ir_op_info {
    const char *name;
    ir_colour colour;
    unsigned traits;
    int n_in, n_out, n_attr; /* number of slots; a variadic slot counts as one */
    int variadic_in;         /* index of the INS slot, or -1 */
    int variadic_out;        /* index of the OUTS slot, or -1 */
    const ir_slot *in, *out, *attr;
} ir_op_info;

/* The vocabularies of words.def, NULL-terminated. */
#define WORDS(set) extern const char *const ir_words_##set[];
#include "ir/ops/words.def"
/* The position of a word in a vocabulary, or -1. */
int ir_words_find(const char *const *words, const char *word);

/* The operands and results of an ONNX operator by position, those that a node lacks included. A mark is a byte: `t` if
 * the position has the operator's float type, which may be low; `h` the same, but never bf16; `b` the same, but never
 * f16; `x` if it has another type; `_` if the node lacks it. */
typedef struct ir_layout {
    int n_in, n_out;
    const char *marks; /* [n_in + n_out], not terminated; NULL without such an operator */
} ir_layout;

extern const ir_op_info *const ir_op_infos; /* [IR_OP_COUNT] */
static inline const ir_op_info *ir_op_get(ir_op op) { return &ir_op_infos[op]; }
static inline bool ir_op_has(ir_op op, enum ir_trait trait) { return (ir_op_get(op)->traits & (unsigned)trait) != 0; }
/* Whether nodes have a layout: the op has any number of operands and results. */
static inline bool ir_op_has_layout(ir_op op)
{
    const ir_op_info *info = ir_op_get(op);
    return info->n_in == 1 && info->variadic_in == 0 && info->n_out == 1 && info->variadic_out == 0;
}
bool ir_op_find(const char *name, ir_op *out);
/* The slot of operand (result) i of a node that has n of them; NULL if the op cannot have n. */
const ir_slot *ir_op_in_slot(ir_op op, int i, int n);
const ir_slot *ir_op_out_slot(ir_op op, int i, int n);
/* Whether operand i has no gradient although it is a float. All others of an op with a gradient have one. */
bool ir_op_stops(ir_op op, int i);
/* Whether tensors of the model that operand i reads are settings, not parameters: bounds of clip, the value of pad,
 * statistics of batch_norm, class weights. */
bool ir_op_fixes(ir_op op, int i);
/* Whether two attributes of that kind are equal; floats are compared bitwise. */
bool ir_attr_equal(ir_slot_kind kind, const ir_attr *a, const ir_attr *b);
/* The first field with that name, or NULL. */
const ir_field *ir_field_find(const ir_field *fields, int count, const char *name);
/* A copy with names and values of its own. */
const ir_field *ir_fields_copy(arena *a, const ir_field *fields, int count);
/* The index of the operand that is a label, or -1. */
int ir_op_find_label(ir_op op);
/* The index of the operand or attribute slot with that name, or -1. */
int ir_op_find_in(ir_op op, const char *name);
int ir_op_find_attr(ir_op op, const char *name);
/* The index of the attribute `out` (the type of result 0), or -1. */
int ir_op_out_attr(ir_op op);

#endif
