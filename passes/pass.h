/* pass.h - declarations shared by the passes: pass functions, naming conventions and small queries. */
#ifndef AMPC_PASS_H
#define AMPC_PASS_H

#include "passes/passes.h"

#define PASS(name, function, part, needs, sentence) pass_fn function;
#include "passes/passes.def"
#undef PASS

/* A scratch arena for side tables, with the guard of the module's arena. The caller frees it. Never NULL. */
arena *pass_scratch_new(ir_module *m);

/* Whether to make a training step: the options ask for one or the graph has a loss. *found is set to the loss output if
 * it was recognised by its op, else to NULL. */
bool pass_trains(const ir_module *m, const compile_options *o, ir_node **found);

/* What --explain asks for: "params", "distribution"; any other argument names nodes. */
typedef enum pass_explained { EXPLAINS_NOTHING, EXPLAINS_NODES, EXPLAINS_PARAMS, EXPLAINS_DISTRIBUTION } pass_explained;
pass_explained pass_explains(const compile_options *o);

/* Whether any of the globs matches the name (fnmatch). */
bool pass_match(const pass_strings *globs, const char *name);

/* A builder that inserts after the last node of `phase` in the graph. */
ir_builder pass_builder(ir_graph *g, ir_phase phase, diag *d);
/* Removes every node of g whose results are unused, except stores and outputs. Returns the number of removed nodes. */
int pass_remove_dead(ir_graph *g);
int pass_remove_dead_after(ir_graph *g, const ir_node *node); /* only after this node; NULL: all */
/* The model nodes that nodes in graph order come from, each once, in the arena; NULL if they are one. */
const ir_origin *pass_origins(ir_node *const *nodes, int n, arena *a);
/* Computes what the graphs compute from weights only, for a consumer. */
void pass_fold_weights(ir_module *m, const compile *c);
/* Replaces the results of `detach` by its operands: gradients have been computed, or are not needed. */
void pass_remove_detach(ir_graph *g);

/* The graph that statistics, summary and explanations describe: the training graph if there is one, else the first. */
ir_graph *pass_primary(const ir_module *m);
/* Number of inserted casts in the forward phase (casts without an origin in the model) and the bytes they write.
 * *symbolic tells that some sizes have symbols, which count as 1. */
typedef struct pass_casts {
    int count;
    int64_t bytes;
    bool symbolic;
} pass_casts;
pass_casts pass_count_casts(const ir_graph *g);
bool pass_is_counted_cast(const ir_node *n);

/* Number of elements of a value if every symbol has the size given in `sizes`; and a table with equal sizes. */
double pass_elements(const ir_module *m, const ir_type *type, const int64_t *sizes);
const int64_t *pass_symbol_sizes(const ir_module *m, int64_t size, arena *a);

/* Operator statistics of the forward graph in its present state, allocated in the arena. */
const struct pass_calls *pass_count_calls(const ir_graph *g, arena *a);

/* The scalar state with that role; creates it with the value v if it does not exist. */
ir_storage *pass_state(ir_module *m, ir_state_role role, double v);

/* The state of random numbers; creates it with this key if it does not exist. */
ir_storage *pass_random_state(ir_module *m, uint64_t seed);

/* The state of that role that belongs to a parameter or buffer; creates it with zeros if it does not exist. */
ir_storage *pass_state_of(ir_module *m, ir_state_role role, ir_storage *of);

/* Likewise, the slot of a parameter, of this type. */
ir_storage *pass_slot(ir_module *m, ir_storage *param, const char *slot, const ir_type *type);
/* Appends a store of v, which is renamed to NAME.new. Nothing if v is NULL, which an earlier error has left. */
void pass_store_new(ir_builder *b, ir_storage *s, ir_value *v);
/* Appends a store of the next counter of random numbers, if the module has them. */
void pass_advance_random(ir_builder *b);
/* The norm of all these values, computed in f32. */
ir_value *pass_gradient_norm(ir_builder *b, ir_value **gradients, int n);

/* What the gradients of the graph have to be divided by: the loss scale, times the number of micro-batches in the
 * graphs that read sums. NULL: 1 (accumulate.c). */
ir_value *pass_gradient_divisor(ir_builder *b);
/* Makes @unscale store the gradients and the flag that it outputs. */
void pass_store_unscaled(ir_graph *g, diag *d);

/* The rules of the lists, overridden by the options. */
scaling_rules scaling_resolve(const compile_options *o, scaling_rules of_lists);

#endif
