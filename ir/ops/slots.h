/* slots.h - the positions of slots: IR_IN(matmul, bias), IR_OUT(layer_norm, rstd) and IR_ATTR(conv, pads); a name that
 * is not in ops.def is a compile error. Device code includes this, too. */
#ifndef AMPC_SLOTS_H
#define AMPC_SLOTS_H

#include <stddef.h>

enum { IR_NORM_PARTS = 64 }; /* of an operand of norm_parts */

/* Slot positions are offsets in structs that are never instantiated; member 0 is a dummy. */
#define OP(name, amp, traits, infer, fold, grad, kernel) \
    struct ir_in_##name { \
        char op_;
#define END \
    } \
    ;
#define IN(name, type) char name;
#define OPT(name, type) char name;
#define INS(name, type) char name;
#include "ir/ops/ops.def"

#define OP(name, amp, traits, infer, fold, grad, kernel) \
    struct ir_out_##name { \
        char op_;
#define END \
    } \
    ;
#define OUT(name, type) char name;
#define OUTS(name, type) char name;
#include "ir/ops/ops.def"

#define OP(name, amp, traits, infer, fold, grad, kernel) \
    struct ir_attr_##name { \
        char op_;
#define END \
    } \
    ;
#define INT(name, value) char name;
#define INTS(name) char name;
#define FLOAT(name, value) char name;
#define DOUBLE(name, value) char name;
#define BOOL(name, value) char name;
#define DTYPE(name, value) char name;
#define STR(name, value) char name;
#define ONE_OF(name, set, word) char name;
#define DIMS(name) char name;
#define FIELDS(name) char name;
#include "ir/ops/ops.def"

#define IR_IN(op, slot) ((int)offsetof(struct ir_in_##op, slot) - 1)
#define IR_OUT(op, slot) ((int)offsetof(struct ir_out_##op, slot) - 1)
#define IR_ATTR(op, slot) ((int)offsetof(struct ir_attr_##op, slot) - 1)

#endif
