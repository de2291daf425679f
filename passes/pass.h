/* pass.h - what the passes share among themselves: every pass, the conventions of names, small queries. */
#ifndef AMPC_PASS_H
#define AMPC_PASS_H

#include "passes/passes.h"

#define PASS(name, function, part, needs, sentence) pass_fn function;
#include "passes/passes.def"
#undef PASS

/* A scratch arena with the guard of the module's arena, for side tables; the caller frees it. NULL: no memory. */
arena *pass_scratch_new(ir_module *m);

/* Whether the options ask for a training step, or the graph has a loss of its own: then *found is that output. */
bool pass_wants_training(const ir_module *m, const compile_options *o, ir_node **found);

/* --explain=params lists the parameters; other arguments name nodes. */
bool pass_explains_params(const compile_options *o);

/* The text as a string of JSON. */
const char *pass_json_string(const char *s, arena *a);

bool pass_has_gradient(ir_op op);
/* fnmatch over any of the globs. */
bool pass_match(const pass_strings *globs, const char *name);
/* The next "key=value" of a comma-separated option string, copied into the arena; false at the end. A part without
 * '=' gives value NULL. */
bool pass_next_option(const char **text, arena *a, const char **key, const char **value);

/* A builder whose nodes go behind the last node of `phase` in the graph. */
ir_builder pass_builder(ir_graph *g, ir_phase phase, diag *d);
/* Removes every node of g whose results nothing reads, stores and outputs aside. Returns how many. */
int pass_sweep(ir_graph *g);

/* The graph that statistics, summary and explanations speak of: the one that trains, else the first. */
ir_graph *pass_primary(const ir_module *m);
/* Inserted casts (no origin in the model) in the forward phase and the bytes that they write; *symbolic: some
 * size has symbols, which count as 1. */
typedef struct pass_casts {
    int count;
    int64_t bytes;
    bool symbolic;
} pass_casts;
pass_casts pass_count_casts(const ir_graph *g);

/* Elements of a value when every symbol of a dimension has the size that `sizes` gives it; and sizes that are
 * all alike. */
double pass_elements(const ir_module *m, const ir_type *type, const int64_t *sizes);
const int64_t *pass_symbol_sizes(const ir_module *m, int64_t size, arena *a);

/* Operator statistics of the forward graph as it is; in the arena. */
const struct pass_calls *pass_count_calls(const ir_graph *g, arena *a);

/* The scalar state of that role, made on first use with the value v. */
ir_storage *pass_state(ir_module *m, ir_state_role role, double v);

/* The rules that the lists give, with what the options say instead. */
scaling_rules scaling_resolve(const compile_options *o, scaling_rules of_lists);

#endif
