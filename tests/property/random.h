/* random.h - random graphs of movement, pooling, reduction and pointwise operators in the form exporters write.
 *
 * A graph is generated without knowing the sizes of its symbolic axes. Parameters are drawn as exporters
 * choose them, so for some sizes a slice is truncated or empty, or a window does not fit. */
#ifndef AMPC_TESTS_PROPERTY_RANDOM_H
#define AMPC_TESTS_PROPERTY_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

enum { MAX_RANK = 6, MAX_STEPS = 10, MAX_VALUES = 40, MAX_INPUTS = 2, SYMBOLS = 3 };

typedef enum kind {
    SLICE,     /* a: starts, b: ends; list: steps; axes */
    PAD,       /* list: before, after for all axes; mode */
    SPLIT,     /* a[0]: the first size; the second is the remainder; axis */
    CHUNK,     /* into two by num_outputs; axis */
    CONCAT,    /* in[0], in[1]; axis */
    TRANSPOSE, /* list: perm */
    MERGE,     /* Reshape of axis and axis+1 into one; infer: as -1 */
    FLATTEN,   /* axis */
    UNSQUEEZE, /* axis */
    SQUEEZE,   /* axis, of one element */
    EXPAND,    /* to the shape of in[1] */
    TILE,      /* list: repeats */
    TRILU,     /* upper, number */
    GATHER,    /* list: indices; axis */
    MAX_POOL,
    AVG_POOL, /* list: kernel, strides, dilations, pads; ceil, count_pad */
    GLOBAL_POOL,
    SUM,
    MEAN,    /* list: axes; keep */
    SOFTMAX, /* axis */
    RANGE,   /* in[0] + 0,1,2,.. along the last axis */
    FILL,    /* in[0] * ConstantOfShape(Shape(in[0])) */
    ADD,
    MUL, /* broadcast */
    NEG,
    RELU,
    SIN,
    KINDS
} kind;

/* A number, or (size of an axis of a value + add) / div, rounded toward zero. */
typedef struct bound {
    int value, axis; /* value -1: use `number` */
    int64_t number, add, div;
} bound;

typedef struct step {
    kind kind;
    int in[2], n_in, out[2], n_out; /* values */
    int axis, count;                /* entries of list, axes, a, b */
    int axes[MAX_RANK];
    bound a[MAX_RANK], b[MAX_RANK];
    int64_t list[4 * MAX_RANK], number, value;
    const char *mode;
    bool upper, ceil, count_pad, keep, infer;
} step;

typedef struct graph {
    int n_inputs, n_steps, n_values, opset;
    bool f64;
    int rank[MAX_VALUES];
    bool one[MAX_VALUES][MAX_RANK]; /* the axis has one element for all sizes */
    bool read[MAX_VALUES];
    int64_t dims[MAX_INPUTS][MAX_RANK]; /* of inputs; -1-k: symbol k */
    step steps[MAX_STEPS];
} graph;

/* ---- random.c ---- */

void random_seed(uint64_t seed);
int64_t random_below(int64_t n); /* in [0,n) */
int64_t random_in(int64_t low, int64_t high);
double random_real(void); /* in [-2,2], far from 0 */
void random_graph(graph *g);

/* ---- oracle.c: the ONNX semantics as plain loops over doubles ---- */

typedef struct array {
    int rank;
    int64_t dims[MAX_RANK], count;
    double *data;
} array;

typedef enum verdict {
    DEFINED,
    REFUSED,   /* the sizes do not fit: nothing may run */
    UNDEFINED, /* ONNX does not define the result: nothing may crash */
    TOO_LARGE  /* for this test */
} verdict;

/* Computes all values of the graph from the inputs values[0..n_inputs). */
verdict oracle_run(const graph *g, array *values);
void oracle_free(const graph *g, array *values); /* all but the inputs */

/* ---- model.c ---- */

typedef struct model_bytes {
    uint8_t *bytes;
    uint64_t size;
} model_bytes;

extern const char *const symbol_names[SYMBOLS];
/* Returns the model as bytes that the caller frees. Every unread value is an output "y<value>"; "loss" is
 * half the sum of their squares. */
model_bytes graph_model(const graph *g);
void graph_print(const graph *g, const int64_t *sizes);

#endif
