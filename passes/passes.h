/* passes.h - the front door of the passes: graph -> graph.
 *
 * A compilation is an object: what its options name is loaded once, before the first pass, and every pass reads it
 * from there; what the passes have to tell goes into its report. passes.def lists the passes in the order in which
 * they run. Passes know ops by their table, ONNX operators by list files alone. */
#ifndef AMPC_PASSES_H
#define AMPC_PASSES_H

#include "ir/ir.h"
#include "ir/limits.h"
#include "passes/options.h"

#include <stdio.h>

/* ---- a compilation ----------------------------------------------------------------------------- */

/* What the passes found and did: the summary line, --stats, --explain, the drawing. */
typedef struct compile_report {
    FILE *text;     /* where explanations, timings and dumps are printed; NULL: nowhere */
    bool explained; /* --explain named a node that exists */
    /* ONNX nodes of the forward graph that have float results */
    int float_ops, low_ops, f32_black, f32_gray, f32_other;
    int casts_inserted, casts_removed;
    int64_t cast_bytes; /* written by the inserted casts that remain, in one step; symbols count as 1 */
    bool cast_symbolic; /* some of these sizes have symbols */
    const struct pass_calls *inserted; /* statistics before the clean-ups, where the profile counts so */
    strmap *colours;                   /* by name of the model's nodes, for pass_draw */
} compile_report;

/* How the loss scale starts and moves: the command line over the list files over the profile. */
typedef struct scaling_rules {
    double init, incr_ratio, decr_ratio, min;
    int64_t incr_every, decr_every;
    bool late;    /* counters fire at n+1 steps */
    bool on;      /* gradients are checked and unscaled before the optimizer */
    bool dynamic; /* found infinities move the scale; else it stays as it starts */
} scaling_rules;

typedef struct compile {
    const compile_options *options;
    const struct amp_list *list; /* profile, list files and command line, merged */
    scaling_rules scaling;
    const struct ir_device *device;     /* what the minimum cut is measured on; NULL: greedy placement */
    const struct range_census *weights; /* set by pass amp, because earlier passes initialise and fold weights */
    /* Reads a part of a storage's initial bytes that is in a file; NULL: such values are not looked at. */
    ampc_status (*read)(void *user, const ir_storage *s, uint64_t from, void *to, size_t n);
    void *read_user;
    compile_report report;
    arena *arena;
    diag *diag;
} compile;

/* Loads what the options name: each list file and the device description is opened once. All of it, and the compile,
 * lives in the arena, which has a guard against failed allocations. Errors are reported. */
ampc_status compile_load(const compile_options *o, arena *a, diag *d, compile **out);

/* Turns an imported module (one graph @forward) into entry graphs. With a loss (asked for, or in the graph):
 * @infer @eval @grad @train_step; without: @infer. All failures of one kind are reported together. */
ampc_status compile_module(ir_module *m, compile *c);

/* ---- the passes -------------------------------------------------------------------------------- */

typedef ampc_status pass_fn(ir_module *m, compile *c);

/* Names and one-sentence descriptions, in the order of the pipeline; ends with name NULL. */
typedef struct pass_info {
    const char *name, *text;
    pass_fn *run;
    bool trains; /* part of making a training step */
} pass_info;
extern const pass_info pass_table[];
/* The table as --list-passes prints it. */
void pass_list(FILE *f);

/* One pass by name, through the runner (ampc-opt). AMPC_USAGE for an unknown name. */
ampc_status pass_run(ir_module *m, const char *name, compile *c);

/* ---- what is printed; texts are in the arena ------------------------------------------------------ */

/* The op table as text or JSON: op, slots, colour, gradient yes/no (`ampc --print-ops`). */
const char *pass_print_ops(bool json, arena *a);
/* The colours that the lists give to these operators for fp16 and bf16, where no condition on a node decides. */
void pass_operator_colours(const compile *c, const char *const *operators, size_t count, const char *(*out)[2]);
/* "412/437 float ops in fp16, 25 fp32 (12 black, 9 gray, 4 no kernel), 31 casts inserted (6.2 MB/step), 6 removed" */
const char *pass_summary(const compile *c, arena *a);
/* Operator statistics of the forward graph in Paddle's table form, or the JSON object of interfaces.md. */
const char *pass_print_stats(const ir_module *m, const compile *c, arena *a);
/* The forward graph with its colours as text for Graphviz. */
const char *pass_draw(const ir_module *m, const compile *c, arena *a);
/* The effective merged list file (--emit-list). */
const char *pass_print_list(const compile *c, arena *a);

/* What graphs, states, inputs and outputs are for, passes, session and tools read from their roles (ir/roles.def).
 * `meta` lines of the module are facts besides:
 *   "loss_kind"  ce, nll, mse, l1, bce, bce_logits, graph
 *   "amp"        "O0", "O1 f16", "O1 bf16"
 *   "untied"     "on": the importer separated tensors that an exporter had merged; absent otherwise
 *   "fuse"       "off": a session makes every op a step of its own; absent otherwise */

#endif
