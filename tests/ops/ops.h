/* ops.h - the numeric table of the ops: rows, the cases that a row makes, and the device that they run on.
 *
 * A row names an op, the dtypes that it is checked in, and a function that makes cases for one dtype: operands of many
 * shapes, attributes, results, and an f64 reference written independently of the kernels. The harness runs the
 * kernel on one thread and on three (equal bits), in place where the op allows it (equal bits), checks that operands
 * are left alone, and compares with the reference. The device is a parameter of it all: rows know nothing of it.
 * Neither do they know of layouts: a case always has its values in logical order, and where ops_channels_last is set,
 * they are permuted on the way to the device and back. */
#ifndef TESTS_OPS_H
#define TESTS_OPS_H

#include "runtime/backend/backend.h"

enum { CASE_MAX = 10, CASE_THREADS = 3 };
/* Sizes around which vectors, warps, blocks and the elements of a block end. */
#define OPS_EDGES(X) X(31) X(32) X(33) X(255) X(256) X(257) X(2047) X(2048) X(2049)

typedef struct ops_case ops_case;
typedef void ops_reference(ops_case *c);

struct ops_case {
    ir_op op;
    k_view in[CASE_MAX], out[CASE_MAX];
    double *x[CASE_MAX];    /* operand values, as given, then as the dtype holds them */
    double *want[CASE_MAX]; /* result values, filled by the reference */
    int n_in, n_out;
    ir_attr attr[16]; /* the op's defaults until changed */
    double
        units; /* tolerance in units of the carrier's epsilon, besides half an ulp of storage; -1: none */
    double floor, size; /* the error is relative to max(|want|, floor * largest |want|, size) */
    char error[256];    /* what the kernel said */
};

/* Where kernels run; the processor until changed, before anything runs. */
extern const rt_backend *ops_on;
/* Each case once, and in place, not in bf16: for watchers that see a race at the first sight of it. OPS_BRIEF in the
 * environment. */
extern bool ops_brief;
/* Kernels with the trait SPATIAL get all operands and results of rank 3 and more channels last. */
extern bool ops_channels_last;
/* Setup and teardown of tests that run so. */
int ops_begin_channels_last(void **state);
int ops_end_channels_last(void **state);
bool ops_takes(ir_dtype t); /* whether the device computes in it, and it is to be checked */
/* Brings the operands to the device, prepares, runs `times` times, releases, and brings everything back. Views with
 * equal data share memory there, too. Where `recorded`, and after the first time, a device with a time of its own runs
 * from a recording. Checks that nothing is written beside the workspace and, on the processor, beside operands and
 * results. A fault on the device is AMPC_REJECTED with its sentence. */
ampc_status ops_run(k_args *args, bool recorded, int times);
ampc_status ops_run_kernel(const k_kernel *kernel, const k_args *args, bool recorded, int times);
/* Whether the device takes the call with its tail and what it has beyond the op's slots. */
bool ops_absorbs(const k_args *args);
/* Prepares and releases, no more: what is made once steps have been prepared waits for the next run. */
ampc_status ops_prepare(const k_kernel *kernel, const k_args *args);
/* A program: takes --device=NAME, runs the tests (by rows_run, tests/rows.h), closes the device. The exit code. */
int ops_main(int argc, char **argv, int (*tests)(void));

void case_begin(ops_case *c, ir_op op);
/* An operand with uniform random values in [low, high] (whole numbers for integers); its values may be changed. */
double *case_in(ops_case *c, ir_dtype t, int rank, const int64_t *dims, double low, double high);
void case_absent(ops_case *c);                                         /* an absent operand */
void case_out(ops_case *c, ir_dtype t, int rank, const int64_t *dims); /* IR_NO_DTYPE: not wanted */
void case_list(ops_case *c, int attr, const int64_t *items, int count);
/* Runs and compares; fails the test with op, dtypes, shapes and the first bad element. */
void case_check(ops_case *c, ops_reference *reference);
/* Runs once; the status (for refusals). Results stay in out[].data until case_end. */
ampc_status case_run(ops_case *c);
void case_end(ops_case *c);

int64_t case_count(const k_view *v);
/* Offset in v (shape broadcast against `to`) of the flat position i of `to`. */
int64_t case_broadcast(const k_view *v, const k_view *to, int64_t i);
void case_coordinates(const k_view *v, int64_t i, int64_t *at);
int64_t case_offset(const k_view *v, const int64_t *at);

/* One vector of the table. `groups` of dtypes: F floats, I integers, B bool, 1 once (no dtype). */
typedef struct ops_row {
    ir_op op;
    const char *groups;
    void (*make)(const struct ops_row *row, ir_dtype t);
    double low, high;                     /* range of operand values */
    double (*scalar)(double a, double b); /* for pointwise rows */
    double units, size;                   /* as in a case */
} ops_row;

/* The families: arrays that end with a row without `make`. */
#define OPS_FAMILY_MAP(X) X(pointwise) X(movement) X(reduce) X(norm) X(pool) X(loss) X(training)
#define DECLARE(family) extern const ops_row family##_rows[];
OPS_FAMILY_MAP(DECLARE)
#undef DECLARE

/* Ops whose rows are in test_ops_matmul.c. */
#define OPS_TESTED_APART_MAP(X) X(matmul) X(conv) X(conv_grad_input) X(conv_grad_weight)

#endif
