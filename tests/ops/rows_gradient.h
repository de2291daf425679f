/* rows_gradient.h - the table of test_gradient.c.
 *
 * A row builds y = op(x, ...) for each of its sets of operand shapes. Its values are drawn from intervals without kinks (0
 * for relu, ties of max). */
#ifndef AMPC_TEST_OPS_ROWS_GRADIENT_H
#define AMPC_TEST_OPS_ROWS_GRADIENT_H

#include "ir/graph/ir.h"

enum { GRADIENT_MAX_IN = 6 };

/* The distribution of an operand's elements. */
typedef enum gradient_draw {
    ANY,       /* +-[0.2, 2]: never near 0 */
    POSITIVE,  /* [0.3, 2] */
    FRACTION,  /* +-[0.1, 0.9] */
    ABOVE_ONE, /* [1.2, 3] */
    DISTINCT,  /* a permutation of well separated values, without ties for max */
    INDEX,     /* i64 in [0, limit) */
    TRUTH      /* bool */
} gradient_draw;

typedef struct gradient_row gradient_row;
typedef ir_value *gradient_build(ir_builder *b, const gradient_row *r, ir_value **in, int set);

struct gradient_row {
    const char *name;
    ir_op op;
    gradient_build *build;
    int n_in;
    gradient_draw draws[GRADIENT_MAX_IN];
    int64_t limit; /* of INDEX */
    int64_t p[4];  /* parameters of the builder */
    const char *text;
    const char *sets; /* of the shapes of the operands, such as "3x5 5, 2 ."; .: a scalar */
};

/* rows_control.c */
gradient_build gradient_build_if, gradient_build_loop, gradient_build_scan;

/* Terminated by a row without `build`. Pointwise ops of one operand need none, unless it has a domain. */
extern const gradient_row gradient_rows[];
gradient_row gradient_default(ir_op op); /* of such an op */

#endif
