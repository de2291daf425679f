/* programs.h - random programs (kernels/program.h), with what their ops give one by one on the same device.
 *
 * A program is made from its seed alone: its shape, its operands (dense, broadcast, transposed, single elements, several
 * of one tensor), its instructions over all types that the device takes, its results, some over an operand, some folded
 * over rows. What it should give comes from the kernels of its ops, each on dense operands in a tensor of its own, so
 * that equal bits may be demanded on every device, of folded rows, too. */
#ifndef TESTS_OPS_PROGRAMS_H
#define TESTS_OPS_PROGRAMS_H

#include "kernels/program.h"
#include "tests/ops/ops.h"

enum { OPS_PROGRAM_ATTRS = 2 }; /* of any op in a program */

typedef struct ops_program {
    k_program program;
    k_view shape;                 /* of its positions; no data */
    k_view in[K_MOST_OPERANDS];   /* never changed */
    int n_in;
    bool value[K_MOST_OPERANDS];  /* the operand has an element for each position (not so: rng) */
    k_view want[K_MOST_RESULTS];  /* by ops_program_expect */
    int over[K_MOST_RESULTS];     /* the result lies over this `in`; -1: apart */
    ir_attr attr[K_MOST_CODE][OPS_PROGRAM_ATTRS];
    int64_t counts[K_MOST_CODE];  /* the lists of div_count */
    uint64_t seed, drawn;
} ops_program;

/* Of at most `most` elements and 24 instructions. */
void ops_program_make(ops_program *p, uint64_t seed, int64_t most);
/* Runs its ops one by one on ops_on. */
void ops_program_expect(ops_program *p);
/* Runs it on ops_on; fails the test, with the program and the first bad element, where a result is not as expected or
 * an operand has changed. */
void ops_program_check(const ops_program *p, int threads);
void ops_program_free(ops_program *p);

#endif
