/* grammar.h - a graph grammar for operators that models spell out as several smaller ones.
 *
 * A symbol is a number, a capture or derived. A capture matches any value, but the same one wherever the symbol occurs.
 * A derived symbol is defined by rows of the grammar: an op and the symbols of its operands. A value matches a derived
 * symbol if its defining node fits one of the rows. Equal subexpressions may be one node or several. */
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
    /* derived: RMSNorm */
    X_SQUARED,
    MEAN_SQUARE,
    RMS_GUARDED,
    RMS,
    RMS_INVERSE,
    RMS_NORMAL,
    RMS_FACTOR,
    RMS_NORM,
    /* derived: GELU */
    ARGUMENT,
    ERF,
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

enum { GRAMMAR_MAX = 48 }; /* maximum number of nodes in a match */

typedef struct grammar_match {
    const compile *compile;
    ir_value *bound[SYMBOLS]; /* captures */
    bool used[SYMBOLS];       /* derived symbols */
    ir_node *nodes[GRAMMAR_MAX];
    int count; /* in ascending order of ids */
    int axis;  /* first axis of all the means, which extend to the last axis; -1: no mean yet */
    double eps;
} grammar_match;

/* Whether v matches the derived symbol s; fills in *out. Node ids must be in graph order. Constants in files are read
 * with c->read. */
bool grammar_derive(grammar_symbol s, ir_value *v, const compile *c, grammar_match *out);

#endif
