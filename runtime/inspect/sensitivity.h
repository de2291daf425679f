/* sensitivity.h - what rounding each node to a low type does to the outputs or the loss, to first order.
 *
 * The network runs in f32, with the derivative of every value (compile_slopes), and in the low type. In the low run
 * every value, once computed, is replaced by that of the f32 run, so that each node shows its own error: that of
 * rounding its operands, weights and results. Times the derivative, this is what the error does to the outputs. The
 * derivative of several outputs is that of a sum with random signs, whose expected square is the squared error. */
#ifndef RT_SENSITIVITY_H
#define RT_SENSITIVITY_H

#include "runtime/session/session.h"

typedef struct rt_sensitive {
    const ir_node *node; /* of the low module */
    double total;        /* mean square of the effect of the node alone, its result rounded */
    double result;       /* that of rounding a result that is right */
    double mean;         /* of the effect */
    bool exact;          /* rounds nothing else than its operands: it moves or selects them */
    bool overflows;      /* a result is finite in f32 only */
    bool seen;           /* its derivative is known */
} rt_sensitive;

typedef struct rt_sensitivity {
    rt_sensitive *rows; /* in the order of computation */
    int count;
    int64_t runs;
    /* of the implementation */
    struct rt_slot *slots;
    int n_slots;
    strmap *by_name; /* slot by value, plus 1 */
    ir_dtype low;
    const char *prefix;
} rt_sensitivity;

/* `low`: the module with every node in the low type. `prefix`: of the outputs of the derivatives. The arena holds the
 * rows. */
void rt_sensitivity_open(rt_sensitivity *s, const ir_graph *low, ir_dtype type, const char *prefix, arena *a);
/* Adds a batch. `slopes`: the f32 session, whose inputs begin with those of `low`, both on the CPU, followed by the
 * weights of the outputs; `vectors` (at least 1) draws of these are averaged, and `draw` fills one. */
typedef void rt_draw_fn(void *user, int vector);
ampc_status rt_sensitivity_add(rt_sensitivity *s, rt_session *slopes, rt_session *low, const char *graph,
                               const rt_tensor *inputs, int n_low, int n_slopes, int vectors, rt_draw_fn *draw,
                               void *user, diag *d);
void rt_sensitivity_close(rt_sensitivity *s);

#endif
