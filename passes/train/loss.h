/* loss.h - the parts of pass loss: the terms of --loss, their formulas and the class axis of scores. */
#ifndef AMPC_LOSS_H
#define AMPC_LOSS_H

#include "passes/pass.h"

/* What the second operand of a loss is. */
typedef enum loss_target {
    LOSS_CLASSES,  /* class indices, shaped like the scores without the class axis */
    LOSS_VALUES,   /* floats with the shape of the output */
    LOSS_PAIR,     /* the same, but [M,D] for an output [N,D]; may be omitted */
    LOSS_SEQUENCE, /* class indices [N,S] for scores [T,N,C] or [N,T,C] */
    LOSS_NONE      /* none: the output itself is the loss */
} loss_target;

typedef struct loss_term loss_term;
/* Returns the loss. A rule whose loss is another thing than a mean over the samples reports its parts, if they are
 * wanted: each is a sum and its weight. */
typedef ir_value *loss_rule(const loss_term *t);

typedef struct loss_kind {
    const char *name;
    loss_target target;
    loss_rule *make;
    ir_op normalisation;  /* if it produces the output, of_scores on its operand replaces `make` */
    int axis;             /* attribute of `normalisation`: must be the class axis; -1: elementwise */
    loss_rule *of_scores; /* NULL: no replacement */
    bool logarithms;      /* the output has log-probabilities over the class axis */
    ir_compared compared; /* how metrics compare the output with the target */
    const char *keys;     /* of loss_spec.c, besides weight and name, separated by blanks */
} loss_kind;

extern const loss_kind loss_kinds[];
extern const int loss_kind_count;

/* One parsed term "KIND[,KEY=VALUE..][:OUTPUT[,LABEL]]". */
typedef struct loss_spec {
    const loss_kind *kind;
    size_t record;               /* index of the term in the module's losses */
    const char *name;            /* of the term, KIND by default */
    const char *output, *target; /* NULL: by default */
    double weight;
    double axis, ignore_index; /* NaN: by default, none */
    double label_smoothing, z_loss, delta, beta, gamma, temperature;
    double alpha; /* negative: none */
    double blank, zero_infinity;
    double batch_axis;         /* of the scores of sequences; NaN: by the sizes */
    const char *lengths;       /* the input with the number of time steps of each sample; NULL: all */
    const char *class_weights; /* A/B/..; NULL: all 1 */
    const double *weights;     /* the same */
    size_t class_count;        /* number of weights */
    ir_storage *constant;      /* that holds them, NULL until a graph reads them */
} loss_spec;

typedef VEC(loss_spec) loss_specs;

/* An addend of a loss, times `factor`. */
typedef struct loss_part {
    ir_value *value;
    ir_value *weight; /* a mean is value / weight, which are sums over the samples; NULL: value is the mean */
    double factor;
    bool sum;       /* value is a sum over the samples, and not divided */
    bool coupled;   /* value is another function of several samples */
    ir_node *ratio; /* what divides, of loss_find_ratios */
} loss_part;

typedef VEC(loss_part) loss_parts;

/* A loss to be built: x are scores with the class axis 1, if the kind has one, and y is the second operand. */
struct loss_term {
    ir_builder *b;
    loss_spec *spec;
    ir_value *x, *y;
    ir_value *steps;   /* i64[N]: the number of time steps of each sample, or NULL: all */
    loss_parts *parts; /* NULL: not wanted */
};

/* loss_ctc.c: x [T,N,C], y [N,S]. */
loss_rule loss_ctc;

/* loss_parts.c: what evaluations add up, batch after batch. */

/* Appends value / weight, or the mean `value` if weight is NULL. */
void loss_add_part(const ir_graph *g, loss_parts *parts, ir_value *value, ir_value *weight);
/* Appends the parts of a scalar that the model computes, times `factor`: sums, differences, multiples and quotients of
 * means and sums over the samples are looked through. Anything else is a mean over the samples, with a note if it is
 * not linear in such means. */
void loss_find_parts(ir_graph *g, ir_value *v, double factor, diag *d, loss_parts *parts);
/* The same of a graph that has its backward: `value` is what the model computes, `weight` what divides it before it is
 * bounded, and `ratio` the node that divides, or the loss that is a mean over labels. Reports nothing. */
void loss_find_ratios(ir_graph *g, ir_value *v, diag *d, loss_parts *parts);
/* Makes the parts outputs of @eval, those of output `name`, unless they are means over the samples. */
void loss_output_parts(ir_graph *g, const char *name, const loss_parts *parts, diag *d);

/* loss_spec.c: parses "TERM[+TERM..]". */
ampc_status loss_parse(ir_module *m, const char *text, diag *d, loss_specs *out);
/* The same for a term of a recipe. */
ampc_status loss_of_term(ir_module *m, const ir_loss *l, diag *d, loss_spec *out);

/* loss_classes.c */

/* The axis of v along which the op that makes it writes its features: the last one of a matmul, axis 1 of a
 * convolution, followed through ops that keep or move it. -1: unknown. */
int loss_class_axis(ir_graph *g, const ir_value *v);
/* Moves `axis` of x to axis 1, in views of [..,C] as [n,C]; items: x has every axis but that one. */
ir_value *loss_arrange(ir_builder *b, ir_value *x, const ir_type *scores, int axis, bool items);

#endif
