/* problem.h - the labelling problem of placement, between its construction and what plans are chosen by. */
#ifndef AMPC_PROBLEM_H
#define AMPC_PROBLEM_H

#include "passes/amp/cost.h"
#include "passes/amp/cut.h"
#include "passes/amp/placement.h"

#define NO_VERTEX UINT32_MAX

/* An operator of the model that a budget decides. */
typedef struct priced_operator {
    const ir_node *node; /* its first one */
    size_t index;
    uint32_t vertex; /* of all its nodes */
    bool low_by_lists;
} priced_operator;

typedef struct placement {
    const ir_graph *graph;
    amp_entry *entries;
    const amp_scope *scope;
    const amp_list *list;
    const compile_options *options;
    cost_model cost;
    int64_t most; /* single costs are clamped to this */
    arena *arena;
    cut *cut;
    uint32_t high, low; /* vertices of values with a fixed type */
    uint32_t *computes; /* by node id: the vertex for the operands' type; NO_VERTEX: not modelled */
    uint32_t *writes;   /* by node id: the vertex for the type of results that follow it */
    uint32_t *produced; /* by value id: the vertex for its type; NO_VERTEX: neither f32 nor the low type */
    bool *tainted;      /* by value id: must not be rounded */
    bool *carries;      /* by value id: has a gradient */
    bool trains;
    VEC(cut_label) greedy; /* by vertex: the profile's own plan */
    /* with a budget: */
    VEC(priced_operator *) operators; /* that it decides, in order */
    strmap *by_name;                  /* the same by name */
    double price;                     /* of an error as large as the budget, in units of cost */
} placement;

/* Builds the problem of a coloured graph; without `costs`, that of the errors alone. Its vertices depend on neither
 * that nor the price. */
placement placement_problem(ir_graph *g, const amp_scope *s, bool costs, double price);

bool placement_is_pinned(const placement *p, uint32_t v);
/* Whether the budget decides: a list could name the operator, and none of the user does. */
bool placement_is_priced(const placement *p, const ir_node *n);
/* Anticipates pass fold_casts: an op whose results are only read in the other type writes that type. */
void placement_fold(placement *p, cut_label *labels);
/* Cost of the profile's own plan, and of f32. */
int64_t placement_greedy_cost(placement *p);
int64_t placement_f32_cost(const placement *p);
/* Sets the types of the entries. */
void placement_apply(placement *p, const cut_label *labels);

#endif
