/* grammar.h - operators that models write out in smaller ones, as a grammar of graphs.
 *
 * A symbol is a number, a capture (any value, the same wherever the symbol stands), or derived: a row of the grammar
 * says by which op from which symbols. A value is a symbol if one of its rows fits the node that gives it. Equal parts
 * may be one node or several. */
#ifndef AMPC_GRAMMAR_H
#define AMPC_GRAMMAR_H

#include "passes/pass.h"

typedef enum grammar_symbol {
    NOTHING,
    /* numbers */
    ONE,
    TWO,
    THREE,
    HALF,
    MINUS_HALF,
    ROOT_2,
    ROOT_HALF,
    ROOT_2_PI,
    CUBIC,
    /* captures */
    X,
    SCALE,
    BIAS,
    EPS,
    /* derived: LayerNorm */
    MEAN,
    CENTRED,
    SQUARE,
    VARIANCE,
    GUARDED,
    DEVIATION,
    INVERSE,
    NORMAL,
    WEIGHTED,
    FACTOR,
    SCALED,
    MOVED_X,
    MOVED_MEAN,
    OFFSET,
    LAYER_NORM,
    /* derived: GELU */
    ARGUMENT,
    ERF,
    X_SQUARED,
    X_CUBED,
    CUBE_TERM,
    CUBE_RATIO,
    CUBE_FACTOR,
    X_ROOT,
    ROOT_FACTOR,
    POLYNOMIAL,
    TANH_ARGUMENT,
    TANH,
    ONE_PLUS,
    HALF_SIGN,
    SHARE,
    HALF_X,
    DOUBLE,
    GELU,
    SYMBOLS
} grammar_symbol;

enum { GRAMMAR_MOST = 48 }; /* nodes of a match */

typedef struct grammar_match {
    const compile *compile;
    ir_value *bound[SYMBOLS]; /* captures */
    bool used[SYMBOLS];       /* derived symbols */
    ir_node *nodes[GRAMMAR_MOST];
    int count;                /* by id, ascending */
    int axis;                 /* the first that means are taken over; -1: none */
    double eps;
} grammar_match;

/* Whether v is the derived symbol; the graph's ids are in order. Constants are read by c->read, if in a file. */
bool grammar_derive(grammar_symbol s, ir_value *v, const compile *c, grammar_match *out);

#endif
