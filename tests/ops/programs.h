/* programs.h - random fused kernels (kernels/fused.h), compared with their ops run one by one on the same device.
 *
 * A fused kernel is generated from its seed alone: its shape, its operands (dense, broadcast, transposed,
 * single elements, several per tensor), its instructions over all types that the device supports, and its
 * results, some in place of an operand, some reduced over rows. The expected results come from the kernels of
 * its ops, each run on separate dense operands. Equal bits are therefore required on every device, even for
 * reduced rows. */
#ifndef TESTS_OPS_PROGRAMS_H
#define TESTS_OPS_PROGRAMS_H

#include "kernels/fused.h"
#include "tests/ops/ops.h"

enum { OPS_PROGRAM_ATTRS = 3 }; /* of any op in a fused kernel */

typedef struct ops_program {
    k_fused fused;
    k_view shape;              /* of its positions; without data */
    k_view in[K_MAX_OPERANDS]; /* never modified */
    int n_in;
    bool value[K_MAX_OPERANDS];     /* the operand has one element per position (false for rng) */
    k_view expected[K_MAX_RESULTS]; /* set by ops_program_expect */
    int over[K_MAX_RESULTS];        /* the `in` that the result overwrites; -1: none */
    ir_attr attr[K_MAX_CODE][OPS_PROGRAM_ATTRS];
    int64_t counts[K_MAX_CODE]; /* the lists of div_count */
    uint64_t seed, drawn;
} ops_program;

/* Generates a fused kernel of at most `most` elements and 24 instructions. */
void ops_program_make(ops_program *p, uint64_t seed, int64_t most);
/* Runs its ops one by one on ops_on to compute the expected results. */
void ops_program_expect(ops_program *p);
/* Runs it on ops_on. Fails the test with the fused kernel and the first wrong element if a result differs
 * from the expected one or an operand has changed. */
void ops_program_check(const ops_program *p, int threads);
void ops_program_free(ops_program *p);

#endif
