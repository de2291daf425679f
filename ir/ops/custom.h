/* custom.h - custom operators: those that the caller of the library has registered with a context (ampc_operator.h).
 *
 * A node with the op `custom` or `custom_grad` holds everything that passes need to know of its operator as attributes
 * (ops.def). The functions are looked up when the node is created by the importer, and when a kernel is prepared. */
#ifndef AMPC_CUSTOM_H
#define AMPC_CUSTOM_H

#include "ir/ops/ampc_operator.h"
#include "ir/ops/ops.h"

enum { CUSTOM_MAX = 64 }; /* operands or results of a node; operands have bits in a table */

typedef struct custom_op {
    ampc_operator table; /* with strings of its own; since, float_types and colour are set */
    ir_colour colour;
    struct custom_op *next;
} custom_op;

/* The operators of a context. A function that has one as a parameter accepts NULL: none. */
typedef struct custom_ops {
    custom_op *first;
    bool calls; /* a function of a table is running */
} custom_ops;

/* The operator's form in that version of its domain; NULL: not registered. */
const custom_op *custom_find(const custom_ops *ops, const char *domain, const char *name, int64_t version);
static inline bool custom_allows(const custom_op *op, ir_dtype t) { return op->table.float_types >> t & 1; }
/* Whether the operator has a gradient on some device. */
static inline bool custom_has_gradient(const custom_op *op)
{
    return op->table.gradient_cpu || op->table.gradient_cuda;
}

struct ampc_attributes {
    const ir_field *items;
    int count;
};

/* The types of a node by position. */
typedef struct custom_types {
    const char *node;
    ampc_attributes attributes;
    ir_dim_table *dims; /* NULL: all sizes are numbers */
    int n_in, n_out;
    ampc_type in[CUSTOM_MAX], out[CUSTOM_MAX];
    size_t workspace[2]; /* of forward and gradient */
} custom_types;

/* The message and status of a function of a table that has returned a failure, with a reason of its own. */
ampc_status custom_failed(ampc_status status, const char *function, char *reason, size_t reason_size, char *message,
                          size_t message_size);
/* Sets the types of the results, or writes the reason of a failure into `message`. The sizes of results are valid. */
ampc_status custom_infer(custom_ops *ops, const custom_op *op, custom_types *t, char *message, size_t message_size);

#endif
