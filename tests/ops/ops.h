/* ops.h - the numeric table of the ops: rows, their test cases, and the device under test.
 *
 * A row names an op, the dtypes to check, and a function that makes cases for one dtype: operands of many
 * shapes, attributes, results, and an f64 reference written independently of the kernels. The harness runs
 * the kernel on one and on three threads (equal bits), in place if the op allows it (equal bits), checks that
 * operands are unchanged, and compares with the reference. Rows are independent of the device, which is a
 * parameter, and of layouts: a case always has its values in logical order. With ops_channels_last they are
 * permuted when copied to the device and back. */
#ifndef TESTS_OPS_H
#define TESTS_OPS_H

#include "runtime/backend/backend.h"

enum { CASE_MAX = 12, CASE_THREADS = 3 };
/* Sizes near the boundaries of vectors, warps, blocks and per-block element counts. */
#define OPS_EDGES(X) X(31) X(32) X(33) X(255) X(256) X(257) X(2047) X(2048) X(2049)

typedef struct ops_case ops_case;
typedef void ops_reference(ops_case *c);

struct ops_case {
    ir_op op;
    k_view in[CASE_MAX], out[CASE_MAX];
    double *x[CASE_MAX];        /* operand values as given, then as rounded to the dtype */
    double *expected[CASE_MAX]; /* result values, filled by the reference */
    int n_in, n_out;
    int n_extra;        /* operands beyond the slots of the op (kernels/extra.def) */
    ir_attr attr[16];   /* initially the op's defaults */
    double units;       /* tolerance in units of the carrier's epsilon, besides half an ulp of storage; -1: none */
    double floor, size; /* errors are relative to max(|expected|, floor * largest |expected|, size) */
    char error[256];    /* the kernel's error message */
};

/* The device under test, the CPU by default. May change only before the first run. */
extern const rt_backend *ops_on;
/* For sanitizers, which need to see an error only once: each case runs once and in place, with the types that OPS_BRIEF
 * in the environment names, such as one of each kind and size of element ("f32,f16,i64,u8,bool"). Below the full tier
 * (tests/tier.h), also with one of the other types of the device, in turn. */
extern bool ops_brief;
/* If true, all operands and results of rank 3 or more of SPATIAL kernels are channels last, except weights if the
 * device leaves them plain. */
extern bool ops_channels_last;
/* If true, operands are packed for which the kernel has a format. */
extern bool ops_packed;
/* Setup and teardown of tests with channels-last layout. */
int ops_begin_channels_last(void **state);
int ops_end_channels_last(void **state);
int ops_begin_packed(void **state);
int ops_end_packed(void **state);
/* The test with packed operands; convolutions are then channels last, as in plans. */
#define OPS_PACKED(test) \
    { \
#test " (packed)", test, ops_begin_packed, ops_end_packed, NULL \
    }
bool ops_takes(ir_dtype t); /* whether the device supports the dtype and it is under test */
/* Copies the operands to the device, prepares the kernel, runs it `times` times, releases it, and copies
 * everything back. Views with equal data pointers also share memory on the device. With `recorded`, a
 * discrete device replays a recording from the second run on. Checks that nothing is written outside the
 * workspace and, on the CPU, outside operands and results. A fault on the device returns AMPC_REJECTED with
 * its message in the context's error buffer. */
ampc_status ops_run(k_args *args, bool recorded, int times);
ampc_status ops_run_kernel(const k_kernel *kernel, const k_args *args, bool recorded, int times);
/* Returns whether the device supports the call with its activation and its operands and results beyond the
 * op's slots. */
bool ops_absorbs(const k_args *args);
/* The CPU's own code for a level of instruction sets (kernels/cpu/isa.h) computes what follows: for a level that is drawn
 * from those of the processor, unless AMPC_CPU_ISA is set. */
void ops_next_isa(void);
/* Only prepares and releases. Work deferred until all steps are prepared waits for the next run. */
ampc_status ops_prepare(const k_kernel *kernel, const k_args *args);
/* Implements main: parses --device=NAME, runs the tests (using rows_run, tests/rows.h), closes the device.
 * Returns the exit code. */
int ops_main(int argc, char **argv, int (*tests)(void));

ops_case case_of(ir_op op);
void case_begin(ops_case *c, ir_op op);
/* The next operand is drawn as the first one. */
void case_restart_draws(void);
/* Adds an operand with uniform random values in [low, high] (whole numbers for integers). The caller may
 * change its values. */
double *case_in(ops_case *c, ir_dtype t, int rank, const int64_t *dims, double low, double high);
void case_absent(ops_case *c); /* an absent operand */
/* An operand that is added to result 0 (kernels/epilogue.h), if the kernel can do that; the reference need not. */
void case_addend(ops_case *c, ir_dtype t, int rank, const int64_t *dims, double low, double high);
void case_out(ops_case *c, ir_dtype t, int rank, const int64_t *dims); /* IR_NO_DTYPE: result not requested */
void case_list(ops_case *c, int attr, const int64_t *items, int count);
/* Stores the operands' values in their types, and rounds the values to them. case_run does this. */
void case_encode(ops_case *c);
/* Runs and compares; fails the test with op, dtypes, shapes and the first wrong element. case_finish also ends the case. */
void case_check(ops_case *c, ops_reference *reference);
void case_finish(ops_case *c, ops_reference *reference);
/* Runs once and returns the status (for refusals). Results stay in out[].data until case_end. */
ampc_status case_run(ops_case *c);
void case_end(ops_case *c);

int64_t case_count(const k_view *v);
/* Returns the offset in v (broadcast to the shape of `to`) of flat position i of `to`. */
int64_t case_broadcast(const k_view *v, const k_view *to, int64_t i);
void case_coordinates(const k_view *v, int64_t i, int64_t *at);
int64_t case_offset(const k_view *v, const int64_t *at);

/* One row of the table. `groups` of dtypes: F floats, I integers, B bool, 1 once (no dtype). */
typedef struct ops_row {
    ir_op op;
    const char *groups;
    void (*make)(const struct ops_row *row, ir_dtype t);
    double low, high;                     /* range of operand values */
    double (*scalar)(double a, double b); /* for pointwise rows */
    double units, size;                   /* as in ops_case */
} ops_row;

/* The families: arrays terminated by a row without `make`. */
#define OPS_FAMILY_MAP(X) \
    X(pointwise) \
    X(movement) \
    X(select) \
    X(sized) \
    X(index) X(reduce) X(scan) X(norm) X(pool) X(resample) X(sample) X(recurrent) X(loss) X(training) X(attention)
#define DECLARE(family) extern const ops_row family##_rows[];
OPS_FAMILY_MAP(DECLARE)
#undef DECLARE

/* Ops whose rows are in test_ops_matmul.c and test_ops_conv.c; custom operators are in tests/unit/test_custom.c. */
#define OPS_TESTED_APART_MAP(X) X(matmul) X(conv) X(conv_grad_input) X(conv_grad_weight) X(custom) X(custom_grad)

#endif
