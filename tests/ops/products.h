/* products.h - random operands and expected values of products: matmuls and convolutions. */
#ifndef AMPC_TEST_OPS_PRODUCTS_H
#define AMPC_TEST_OPS_PRODUCTS_H

#include "tests/ops/ops.h"

enum { THREADS = 2 };

/* Types of operands and results. */
typedef struct type_pair {
    ir_dtype in, out;
} type_pair;
enum { N_TYPES = 10 };
extern const type_pair types[N_TYPES];
/* Returns the next row of `types` after t that the device supports, or N_TYPES. */
int next_types(int t);

/* Allocates a view filled with NaN. */
k_view view_make(ir_dtype t, int rank, const int64_t *dims);
/* Fills the view with random numbers in [-1, 1). */
void view_fill(k_view *v);
double *view_values(const k_view *v);
/* Compares with the expected values; `depth` is the number of products per sum. */
void view_check(const char *what, const k_view *v, const double *expected, double depth, ir_dtype in);

/* Runs the statement with each of the algorithms that the device's libraries propose for the call of run_kernel in it,
 * instead of the one that they prefer. view_check then prints what is wrong and goes on. */
#define EACH_CANDIDATE(statement) \
    for (run_candidate = 1; run_candidate > 0; run_candidate = next_candidate()) { \
        statement; \
    }
/* The algorithm that run_kernel uses, from 1; 0: as preferred. run_kernel sets -1 if there are fewer, and then
 * view_check accepts everything. */
extern int run_candidate;
/* The next algorithm, or 0. A call without anything to sum needs no algorithm and accepts each number. */
int next_candidate(void);
/* Whether row i of a table is tried with every algorithm: with OPS_PART=K/N in the environment, each N-th row from K on. */
bool part_has_row(size_t i);
/* Fails if an algorithm was wrong since the last call. */
void check_candidates(void);

/* Runs a kernel, which must succeed. */
void run_kernel(ir_op op, k_view *in, int n_in, k_view *out, int n_out, const ir_attr *attr);

#endif
