/* block.h - random graphs for the bodies of If, Loop, Scan, SequenceMap and functions.
 *
 * The importer does not tell the shapes of values inside a body, so a block knows them itself: it adds only operators
 * whose results it can describe. All its tensors have the type of the drawing. */
#ifndef TESTS_FORMS_BLOCK_H
#define TESTS_FORMS_BLOCK_H

#include "tests/forms/form.h"

enum { BLOCK_POOL = 24, BLOCK_DEPTH = 2 };

typedef struct block { /* a graph under construction */
    drawing *w;
    const form *f; /* its range of values */
    model *m;      /* gets the nodes */
    int depth;     /* of the bodies that enclose it */
    bool sealed;   /* in a function, which captures nothing */
    tensor index;  /* the number of the iteration; type 0: none */
    int trips;     /* its end */
    tensor pool[BLOCK_POOL];
    int n_pool;
} block;

/* The main graph as a block that knows x. */
block block_start(drawing *w, const form *f, const tensor *x);
/* Adds up to `count` random nodes. */
void block_fill(block *b, int count);
/* These add an operator with its bodies and put its results into the pool. */
void block_if(block *b);
void block_loop(block *b);
void block_scan(block *b);
void block_call(block *b); /* of a new function */
/* Adds operators on a sequence or optional, among them `must` if that is not NULL. */
void block_sequence(block *b, const char *must);

/* ---- parts ---- */

void block_push(block *b, const tensor *t); /* puts a value into the pool */
tensor block_any(const block *b);
/* A tensor with the dims of `like`: one of the pool, or a new input of the model; in a function, `like` itself. */
tensor block_like(block *b, const tensor *like);
/* Adds the node and names its result, which has the type and dims of `like`. */
tensor block_add(block *b, node *n, const char *op, const tensor *like);
tensor block_scalar(block *b, int type, double value);
tensor block_row(const tensor *x);                            /* the shape of x without axis 0 */
tensor block_stacked(const tensor *row, int trips, int axis); /* the shape of rows along a new axis */

/* A body within the block, which captures some of its values. */
block block_body(const block *b, model *m);
tensor block_declare(block *b, const tensor *like, bool shape); /* an input */
/* A graph may not return a value of an enclosing graph, but a copy of it. */
tensor block_own(block *b, const tensor *t);
void block_output(block *b, const tensor *t);
/* Returns the condition of the next iteration: true, or whether this one is below `end`. */
void block_condition(block *b, const tensor *condition, int end);

#endif
