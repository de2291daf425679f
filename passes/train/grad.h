/* grad.h - the interface between gradient rules and the autodiff walk.
 *
 * A rule is called with a forward node and the gradients of its results, and computes the gradients of its operands.
 * They may have any float type and the broadcast shape: the walk reduces them over broadcast axes, casts them to the
 * operand's type and accumulates them. A rule may ignore `required`, because DCE removes unused nodes; it needs to
 * check it only where DCE cannot remove the work, such as a second result of one node. */
#ifndef AMPC_GRAD_H
#define AMPC_GRAD_H

#include "ir/graph/ir.h"

/* A subgraph that is differentiated: the gradients of its outputs, and what to compute. */
typedef struct grad_subgraph {
    ir_graph *graph;
    int count;            /* of outputs */
    ir_value **outputs;   /* values of the graph; it has no output statements */
    ir_value *const *dy;  /* by output: a value of the graph; NULL: no gradient */
    const bool *required; /* by input of the graph */
    ir_value **dx;        /* by input, set: the gradient, or NULL if it is zero */
} grad_subgraph;

typedef struct grad {
    ir_builder *b;        /* builds backward nodes with the forward node's location */
    ir_node *n;           /* the forward node */
    ir_value *const *dy;  /* by result; NULL: no gradient */
    const bool *required; /* by operand */
    ir_value **dx;        /* by operand, set by the rule; NULL only if the operand stops gradients or `zero` is set */
    /* Set by a rule that needs the gradients of subgraphs: the walk appends them to the subgraphs and calls the rule
     * again, for which `begun` is. */
    grad_subgraph *subgraphs;
    int n_subgraphs;
    void *begun;
    bool primitives; /* the gradient itself will be differentiated: use only ops that have a gradient */
    bool zero;       /* set by the rule: gradients that it leaves NULL are zero wherever they exist */
} grad;

typedef bool grad_rule(grad *g); /* false: failed, with an error reported */

/* In a rule with parameter g: the first gradient, operands and result under the names that formulas have for them. */
#define D g->dy[0]
#define X ir_in(g->n, 0)
#define A ir_in(g->n, 0)
#define B ir_in(g->n, 1)
#define W ir_in(g->n, 1)
#define Y ir_out(g->n, 0)

/* One rule per word in the gradient column of ops.def; the linker names a missing one. */
#define OP(name, amp, traits, infer, fold, word, kernel) grad_rule grad_##word;
#include "ir/ops/ops.def"

/* ---- autodiff.c ---- */

/* A walk over the forward nodes of a graph, which appends the gradients of one value with respect to others. */
typedef struct grad_walk {
    ir_graph *graph;
    ir_phase phase;     /* of the nodes that it appends */
    const char *prefix; /* of the names of gradients */
    ir_value **of;      /* the scalars whose sum is differentiated */
    int of_count;
    ir_value *seed; /* the gradient of that sum with respect to itself */
    ir_value **wrt; /* parameters and inputs of the graph */
    int count;
    ir_value **gradients;      /* by item of wrt, set: the gradient, or NULL if it is zero */
    const ir_value *unrelated; /* set: one of `of` that depends on none of wrt, or NULL */
    bool second;               /* the gradients will be differentiated: uses primitives, and warns of nothing */
} grad_walk;

/* Values with respect to which a training graph is differentiated: trained parameters that it reads, float inputs. */
typedef VEC(ir_value *) grad_values;
void grad_trained_values(ir_graph *g, arena *a, grad_values *out);
void grad_input_values(ir_graph *g, arena *a, grad_values *out);

/* By value id, in the arena: whether a value depends on a trained parameter or a float input. */
const bool *grad_flow(ir_graph *g, arena *a);
ampc_status grad_walk_run(grad_walk *w, diag *d);
/* Reports the first node from `first` on that a trained value flows through, but no gradient can. */
ampc_status grad_check_second(ir_graph *g, const ir_node *first, diag *d);

/* ---- grad_primitive.c: rules whose results can be differentiated again ---- */

grad_rule grad_batch_norm_primitive, grad_layer_norm_primitive;
/* The gradient of x, the classes without padding, by that of the loss, softmax_cross_entropy or, without the softmax,
 * nll_loss. */
ir_value *grad_cross_entropy_primitive(grad *g, ir_value *x, bool with_softmax);

/* ---- grad_class_weights.c ---- */

/* The gradient of the class weights of a loss by that of the loss. */
ir_value *grad_class_weights(grad *g);

/* ---- grad_control.c ---- */

/* Makes the trained parameters that subgraphs of differentiable nodes read captures, so that their gradients are
 * results of the nodes. */
void lift_params(ir_graph *g);

/* ---- helpers for gradient rules -------------------------------------------------------------- */

/* A node of another op with the attributes of the forward node that have the same name and kind. */
ir_node *grad_node(grad *g, ir_op op, int n_in, ir_value *const *in);
ir_node *grad_node_with(grad *g, ir_op op, int n_in, ir_value *const *in, int n_out); /* of an op with an OUTS slot */
/* Sets the DIMS attribute `shape` of `n` to the dimensions of v. */
ir_node *grad_shaped(ir_node *n, int attr, const ir_value *v);
/* v cast to the dtype of `like`. */
ir_value *grad_cast_like(grad *g, ir_value *v, const ir_value *like);
/* Zeros with the type of v. */
ir_value *grad_zeros(grad *g, const ir_value *v);

#endif
