/* calls.h - calls of single kernels on the double, with or without a cache folder. */
#ifndef AMPC_TEST_CUDA_CALLS_H
#define AMPC_TEST_CUDA_CALLS_H

#include "kernels/cuda/dnn.h"

#include <stdio.h>

enum { MAX_OPERANDS = 3, MAX_RESULTS = 4, ALIGNMENT = 256 };

extern k_context call_ctx;
extern char call_error[512];

void open_context(bool tune);
void close_context(void);

typedef struct call {
    k_args args;
    k_view in[MAX_OPERANDS], out[MAX_RESULTS];
    ir_attr attr[8];
    int64_t lists[3][6];
    size_t workspace;
} call;

/* A used view with a placeholder address. */
k_view view(ir_dtype t, int rank, const int64_t *dims);
ampc_status call_prepare(call *c);
void call_release(call *c);
/* Runs a prepared call and returns its result. */
char *call_run(call *c);
void call_matmul(call *c, const int64_t *a, const int64_t *b, const int64_t *y);

/* ---- convolutions ---- */

typedef struct window_row {
    const char *from;
    int spatial;
    int64_t n, channels, filters, group, x[3], kernel[3];
    int64_t stride, dilation, before, after;
} window_row;

/* Convolutions of well-known networks. */
enum { N_WINDOWS = 19 };
extern const window_row windows[N_WINDOWS];
extern const ir_op convolutions[3]; /* a convolution and its gradients */

/* Sets up the convolution of a row, or one of its gradients. */
void call_convolution(call *c, ir_op op, const window_row *r, ir_dtype in, ir_dtype out);
/* Makes all images and filters of the call NHWC. */
void call_channels_last(call *c);
/* Returns the NHWC result if call number `failing` of the preparation fails; NULL if that is an error. *by_kernels: whether our
 * kernels transposed or cast. */
char *result_if_call_fails(long failing, ir_op op, const window_row *r, ir_dtype out, size_t *bytes, bool *by_kernels);

/* ---- the cache: setup and teardown functions of tests ---- */

/* Makes the cache unusable. */
int no_cache(void **state);
/* Uses an empty cache folder. */
int make_cache(void **state);
int drop_cache(void **state);
/* Reads the file of tuning results or, if `text` is not NULL, writes it. NULL: there is none. */
char *cache_file(const char *mode, const char *text);
extern char cache_folder[64];

#endif
