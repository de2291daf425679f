/* update.h - what the optimizers share: the operands of the ops that update one parameter. */
#ifndef AMPC_TRAIN_UPDATE_H
#define AMPC_TRAIN_UPDATE_H

#include "passes/train/optimizer_options.h"

typedef struct update {
    ir_graph *graph, *network; /* the graph to extend, and the one that has the network */
    ir_builder b;
    const compile_options *options;
    double lr_factor;           /* of the optimizer, relative to the first one */
    ir_value *lr, *step, *skip; /* skip is NULL if every step is accepted */
} update;

/* What the ops of one parameter read. */
typedef struct operands {
    const optimizer *opt;
    ir_storage *state[OPTIMIZER_STATES]; /* the parameter, then its slots */
    ir_value *gradient, *parts, *ratio;
    ir_value *fresh; /* the new parameter */
    optimizer_group group;
} operands;

/* Adds an optimizer op for the parameter; NULL on failure. */
ir_node *update_op(update *u, ir_op op, const operands *x);

/* Each of the following prepares the ops of n parameters. Equal ops follow each other, here and elsewhere, so that a
 * device can run them in one launch. */
/* Sets the ratios of LAMB and LARS. */
bool update_ratios(update *u, operands *all, int n);
/* Replaces the gradients by the directions of Adafactor, and sets their ratios. */
bool update_adafactor(update *u, operands *all, int n);
/* Whether Muon updates this parameter: it is a matrix, and no table of embeddings. */
bool update_takes_muon(update *u, ir_storage *param, const optimizer_group *group);
/* Orthogonalizes the directions of Muon, and sets their ratios. */
bool update_muon(update *u, operands *all, int n);

#endif
