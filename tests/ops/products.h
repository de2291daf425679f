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

void run_kernel(ir_op op, k_view *in, int n_in, k_view *out, int n_out, const ir_attr *attr);

#endif
