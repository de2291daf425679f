/* compare.h - the values of a mixed-precision run compared with those of the same network in f32 and f64.
 *
 * Values are matched by name, so the three modules are compiled from one model with the same options except for the
 * precision; a loss scale must be the same in all. The error that a node adds is found by a run in f64 in which every
 * value, once computed, is replaced by that of the mixed-precision run: each node then computes from the operands that
 * it had there, and what remains is its own error, with that of the casts of its operands. */
#ifndef RT_COMPARE_H
#define RT_COMPARE_H

#include "runtime/inspect/numbers.h"

/* A session and its module. */
typedef struct rt_precision {
    rt_session *session;
    const ir_module *module;
} rt_precision;

/* A float result of a node that the modules have in common. Errors are relative: the norm of the difference over that
 * of the reference; INFINITY if the reference is finite and the value is not. */
typedef struct rt_compared {
    const ir_value *value; /* of the mixed-precision module, like `node` */
    const ir_node *node;   /* that has computed it, before a cast of the compiler */
    rt_tensor tensor;      /* name, type, shape; no data */
    rt_numbers low, f32, f64;
    double error;     /* of the value against f64 */
    double error_f32; /* of the value against f32 */
    double f32_error; /* of the f32 value against f64 */
    bool noise;       /* not even f32 has a correct digit: the value is zero but for rounding */
    double max_error; /* largest absolute difference from f64 */
    double added;     /* the error that the node adds; NAN: it is not a node of the f64 module */
    double operands;  /* the largest `error` of its operands; 0: none is compared */
} rt_compared;

typedef struct rt_comparison {
    rt_compared *rows; /* in the order of computation */
    int count;
    int unmatched; /* results of only the mixed-precision module, such as casts */
    /* The rows with the largest `added` and with the largest error / operands, without noise and updates; NULL: none */
    const rt_compared *loses, *amplifies;
} rt_comparison;

/* Runs `graph` in each module on the inputs. f32 and f64 must be on the CPU. Keeps copies of all values of two runs.
 * Call rt_comparison_clear also on failure. */
ampc_status rt_compare(const rt_precision *low, const rt_precision *f32, const rt_precision *f64, const char *graph,
                       const rt_tensor *inputs, int n, diag *d, rt_comparison *out);
void rt_comparison_clear(rt_comparison *c);

/* Writes pointers to the rows to sorted[count], the largest error first, noise last; equal ones in order. */
void rt_comparison_sort(const rt_comparison *c, const rt_compared **sorted);

/* PaddlePaddle's compare_accuracy: an extreme that fp16 cannot represent, a NaN or infinity, more than 2^31 - 1
 * elements, or, of a gradient, extremes that differ from those in f32 by more than 1 % + 0.01. */
bool rt_compared_is_abnormal(const rt_compared *r);

#endif
