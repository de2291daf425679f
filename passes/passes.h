/* passes.h - public interface of the passes, which compile an imported module into entry graphs.
 *
 * A compile object holds everything that the options name. It is loaded once, before the first pass, and all passes
 * read it; their findings go into its report. passes.def lists the passes in execution order. Passes know ops by the op
 * table, and ONNX operators only by the list files. */
#ifndef AMPC_PASSES_H
#define AMPC_PASSES_H

#include "ir/graph/ir.h"
#include "ir/base/limits.h"
#include "passes/options.h"

#include <stdio.h>

/* ---- a budget of errors ------------------------------------------------------------------------ */

/* What it costs in accuracy to compute a node in the low type: squared errors of the outputs. Errors of different
 * nodes are independent, so their squares add up. INFINITY: not possible. */
typedef struct pass_price {
    double result;   /* of rounding its results */
    double operands; /* of computing in the low type, with f32 operands rounded first */
} pass_price;

/* Instead of the lists, mixed precision chooses the plan of least predicted cost whose squared errors sum up to at most
 * `limit`. What a list of the user names, or no list can change, is as decided. A node without a price has no error. */
typedef struct pass_budget {
    const strmap *prices; /* pass_price by the name of the node's first result */
    double limit;
} pass_budget;

/* The plan of an operator that a list can change. */
typedef struct pass_choice {
    const char *node, *op; /* of the model */
    bool low, low_by_lists;
} pass_choice;

/* Predicted costs of plans, in units of the device's measure (passes/amp/cost.h). */
typedef struct pass_costs {
    int64_t cut;    /* the chosen plan */
    int64_t greedy; /* as the lists colour the nodes, after cast folding */
    int64_t f32;    /* everything in f32 */
} pass_costs;

struct json_writer;

/* ---- a compilation ----------------------------------------------------------------------------- */

/* What the passes found and did, for the summary line, --stats, --explain and the drawing. */
typedef struct compile_report {
    FILE *text;     /* explanations, timings and dumps are printed here; NULL: not printed */
    bool explained; /* --explain matched a node */
    /* counts of ONNX nodes of the forward graph that have float results */
    int float_ops, low_ops, f32_black, f32_gray, f32_other;
    int casts_inserted, casts_removed; /* after a conversion to ONNX: casts in the file, set by the caller */
    int64_t cast_bytes; /* bytes that the remaining inserted casts write per step, symbolic dims counted as 1 */
    int kept_narrow;    /* with `wide`: nodes that compute in f32, because they do not support f64 */
    bool cast_symbolic; /* some of these casts have symbolic sizes */
    const struct pass_calls *inserted; /* statistics from before the cleanup passes, if the profile counts those */
    VEC(struct node_report *) nodes;   /* the precision of each node, for --explain, drawings and reports */
    strmap *by_node;                   /* of these, the ones of whole nodes by place and name; NULL: not recorded */
    pass_costs predicted;              /* with a device, of the primary graph */
    /* of placement, for the graph that evaluates the model: */
    pass_costs costs;
    VEC(pass_choice) choices; /* with `budget` */
    double error;             /* with `budget`: the squared error of the plan */
    strmap *limits;           /* by value name: range_find_limits, a double; only of values that have one */
} compile_report;

/* Initial value and update rule of the loss scale: command line over list files over profile. */
typedef struct scaling_rules {
    double init, incr_ratio, decr_ratio, min, max; /* max 0: the largest finite number */
    int64_t incr_every, decr_every;
    bool hysteresis; /* past decr_every, each overflow in a row shrinks the scale */
    bool late;       /* counters trigger at n + 1 steps instead of n */
    bool on;         /* gradients are checked and unscaled before the optimizer */
    bool dynamic;    /* overflows change the scale; otherwise it is constant */
} scaling_rules;

typedef struct compile {
    const compile_options *options;
    const struct amp_list *list; /* profile, list files and command line, merged */
    scaling_rules scaling;
    const struct ir_device *device;     /* cost model of the minimum cut; NULL: greedy placement */
    const struct consumer *consumer;    /* the runtime that the model is for; NULL: any */
    const struct weight_stats *weights; /* set by pass amp, because earlier passes initialise and fold weights */
    /* Reads n initial bytes of s, from byte `from`, if they are in a file. NULL: values in files are not inspected. */
    ampc_status (*read)(void *user, const ir_storage *s, uint64_t from, void *to, size_t n);
    void *read_user;
    compile_report report;
    arena *arena;
    diag *diag;
} compile;

/* The names of the kinds of losses and of the optimizers, by index; NULL past the last. */
const char *pass_loss_name(int index);
const char *pass_optimizer_name(int index);
/* The keys that options accept, likewise. */
const struct setting *pass_loss_key(int index), *pass_optimizer_key(int index), *pass_group_key(int index);
const struct setting *pass_penalty_key(int index), *pass_normalize_key(int index);

/* Loads the list files and the device description that the options name. The result is allocated in the arena, which
 * needs a guard against failed allocations. Reports errors. */
ampc_status compile_load(const compile_options *o, arena *a, diag *d, compile **out);

/* Compiles an imported module, whose only graph is @forward, into entry graphs: @infer and, if the options ask for a
 * loss or the graph has one, also @eval, @grad and @train_step. Reports all failures of one kind together. */
ampc_status compile_module(ir_module *m, compile *c);

/* Runs pass distribute on a compiled module. */
ampc_status compile_distribute(ir_module *m, const compile_options *o, diag *d);

/* Adds to a compiled graph the derivative of its loss, or of the sum of the model's outputs weighted by new inputs
 * PASS_SEED "OUTPUT", with respect to each float result of the model's operators, as output PASS_SLOPE "VALUE". */
#define PASS_SEED "seed/"
#define PASS_SLOPE "slope/"
ampc_status compile_slopes(ir_module *m, const char *graph, bool of_loss, diag *d);

/* ---- the passes -------------------------------------------------------------------------------- */

typedef ampc_status pass_fn(ir_module *m, compile *c);

/* Names and one-sentence descriptions in pipeline order, terminated by a NULL name. */
typedef struct pass_info {
    const char *name, *text;
    pass_fn *run;
    bool trains; /* needed only to make a training step */
} pass_info;
extern const pass_info pass_table[];

/* Runs one pass by name, with verification, timing and dumps as in the pipeline (ampc-opt). Returns AMPC_USAGE for an
 * unknown name. */
ampc_status pass_run(ir_module *m, const char *name, compile *c);

/* ---- printed reports; `a` holds returned texts, or temporary ones -------------------------------- */

/* Whether the op has a rule for its gradient. */
bool pass_has_gradient(ir_op op);
/* The op table as text or JSON: op, slots, colour and whether it has a gradient (`ampc --print-ops`). */
void pass_print_ops(FILE *f, bool json, arena *a);
/* The colours that the lists assign to these operators for fp16 and bf16; "-" if only a condition on a node decides. */
void pass_operator_colours(const compile *c, const char *const *operators, size_t count, const char *(*out)[2]);
/* "412/437 float ops in fp16, 25 fp32 (12 black, 9 gray, 4 as written), 31 casts inserted (6.2 MB/step), 6 removed";
 * for another runtime, the text ends with "inserted". */
const char *pass_summary(const compile *c, arena *a);
/* Operator statistics of the forward graph as a table in Paddle's format, or as a JSON object. */
void pass_print_stats(const ir_module *m, const compile *c, FILE *f, arena *a);
/* The members of an object: options, counts, predicted costs, and the nodes, edges, casts and weights of the forward
 * graph (docs/report.md). Requires compile_options.reports. */
void pass_write_report(struct json_writer *w, const ir_module *m, const compile *c, arena *a);
/* The forward graph with its colours in the DOT language of Graphviz. */
const char *pass_draw(const ir_module *m, const compile *c, arena *a);
/* The effective list after merging, as a list file (--emit-list). */
const char *pass_print_list(const compile *c, arena *a);
/* What list files and command line add, as JSON for ATC's --modify_mixlist. Warns of what that has no form for. */
ampc_status pass_print_mixlist(const compile *c, arena *a, const char **text);

#endif
