/* passes.h - the front door of the passes: graph -> graph.
 *
 *   import                    @forward, as the file says
 *     | mode                  clones: @infer @eval (BatchNormalization, Dropout by running statistics), @train
 *     | loss                  appends the loss and its label input, or takes the one in the graph
 *     | patterns              LayerNorm and GELU that are written out in smaller operators become one node again
 *     | amp_colour            decides f32 or low for every float node (side table; that table is --explain)
 *     | amp_cast              inserts one Cast per (value, type), retypes results
 *     | masters               trained parameters of a low type become f32, read through a cast
 *     | scale_loss            loss * @loss_scale, the seed of the backward
 *     | autodiff              backward nodes by the gradient column of ops.def
 *     | unscale               check_finite_and_unscale, update_loss_scaling
 *     | optimizer             sgd, momentum, adamw on f32 masters; every other state behind select(found_inf)
 *     | fold_casts cse dce    clean-ups
 *   @infer @eval @grad @train_step
 *
 * A pass is `ampc_status pass_x(ir_module *m, const pass_options *o, diag *d)`; the runner times, verifies, dumps
 * and round-trips it. Passes know ops by their table, ONNX operators by list files alone. */
#ifndef AMPC_PASSES_H
#define AMPC_PASSES_H

#include "ir/ir.h"
#include "ir/limits.h"

/* ---- options: what --help=all lists. Strings belong to the caller and outlive the compilation. --- */

typedef enum pass_level { PASS_O0, PASS_O1, PASS_O2, PASS_OD } pass_level;
typedef enum pass_scaling { PASS_SCALE_DEFAULT, PASS_SCALE_DYNAMIC, PASS_SCALE_STATIC, PASS_SCALE_OFF } pass_scaling;
typedef enum pass_mode { PASS_MODE_DEFAULT, PASS_MODE_FILE, PASS_MODE_TRAIN, PASS_MODE_EVAL } pass_mode;

typedef enum pass_placement { PASS_GREEDY, PASS_MINCUT } pass_placement;

/* The words for these on the command line and in the C API, the usual one first; a row without a word ends a table. */
typedef struct pass_word {
    const char *word;
    int value;
} pass_word;
extern const pass_word pass_levels[], pass_low_types[], pass_placements[], pass_scalings[], pass_modes[];
bool pass_find_word(const pass_word *words, const char *word, int *value);

typedef struct pass_strings {
    const char *const *items;
    int count;
} pass_strings;

typedef struct pass_stats { /* filled by the passes, read by --stats and the summary line */
    int float_ops, low_ops, f32_black, f32_gray,
        f32_other; /* ONNX nodes of the forward graph that have float results */
    int casts_inserted, casts_removed;
    int64_t cast_bytes;   /* written by the inserted casts that remain, in one step; symbols count as 1 */
    const struct pass_calls *inserted; /* --stats of the graph before the clean-ups, where the profile counts so */
    bool cast_symbolic;   /* some of these sizes have symbols */
    strmap *colours;      /* of the model's nodes, for pass_draw */
} pass_stats;

typedef struct pass_options {
    /* precision */
    pass_level level;
    ir_dtype low;                /* IR_f16 or IR_bf16 */
    const char *profile;         /* a built-in list or "empty"; NULL: the base of the list files, else ampc */
    pass_strings lists;          /* list files, a later one beats an earlier one */
    pass_strings white, black, gray; /* operators of --white ... */
    pass_strings black_vars, fp32_nodes;
    bool keep_io_types;
    bool draws;                  /* for pass_draw: colours are kept, and a graph that trains gets no backward */
    bool plain_runtime;          /* @infer alone, for a runtime whose ops compute in the type that they read */
    pass_placement placement;    /* who decides where types change: the profile's order, or a minimum cut */
    bool white_soft;             /* minimum cut: white nodes may stay f32 where low precision does not pay */
    const char *target;          /* minimum cut: device description (device.h); NULL: the default */
    /* training */
    const char *loss;            /* "ce[:OUTPUT[,LABEL]]" ... ; NULL: none */
    const char *loss_output;     /* name of a scalar graph output that is the loss; NULL */
    const char *optimizer;       /* "sgd,lr=0.1,momentum=0.9"; NULL: sgd when there is a loss */
    pass_strings train, freeze;  /* globs over parameter names; what is held constant is trained by its whole name */
    pass_scaling scaling;
    double init_scale, incr_ratio, decr_ratio, min_scale; /* 0: from the profile */
    int64_t incr_every, decr_every;                       /* 0: from the profile */
    pass_mode mode;
    const char *init;            /* "file", "kaiming", "xavier" */
    uint64_t seed;
    bool fuse;
    /* looking */
    const char *explain;         /* node name, "all" or "params"; the answer goes to text_out */
    bool json;
    const char *dump_after, *dump_dir; /* pass name or "all" */
    bool dump_changed, roundtrip_each, timing, print_stats;
    bool verify_each;            /* after each pass (builds with assertions, ampc-opt), else after the last */
    /* reads a part of a storage's initial bytes that is in a file; NULL: such values are not looked at */
    ampc_status (*read)(void *user, const ir_storage *s, uint64_t from, void *to, size_t n);
    void *read_user;
    const struct range_census *census; /* of the weights, set by pass amp for what it calls */
    const struct amp_outside *outside; /* of a body, the same */
    /* results */
    pass_stats *stats;           /* may be NULL */
    void (*text_out)(void *user, const char *text); /* explanations, timing, statistics tables; may be NULL */
    void *text_user;
} pass_options;

pass_options pass_options_default(void);

/* ---- the pipeline ---------------------------------------------------------------------------- */

/* Turns an imported module (one graph @forward) into entry graphs. With a loss (asked for, or in the graph):
 * @infer @eval @grad @train_step; without: @infer. All failures of one kind are reported together. */
ampc_status pass_compile(ir_module *m, const pass_options *o, diag *d);

/* One pass by name, through the runner (ampc-opt). AMPC_USAGE for an unknown name. */
ampc_status pass_run(ir_module *m, const char *name, const pass_options *o, diag *d);
/* Names and one-sentence descriptions, NULL-terminated by name. */
typedef struct pass_info {
    const char *name, *text;
    ampc_status (*run)(ir_module *m, const pass_options *o, diag *d);
} pass_info;
extern const pass_info pass_table[];

/* The op table as text or JSON: op, slots, colour, gradient yes/no (`ampc --print-ops`). In the arena. */
const char *pass_print_ops(bool json, arena *a);
/* The colours that the lists give to these operators for fp16 and bf16, where no condition on a node decides. */
ampc_status pass_operator_colours(const pass_options *o, const char *const *operators, size_t count, diag *d,
                                  const char *(*out)[2]);
/* "412/437 float ops in fp16, 25 fp32 (12 black, 9 gray, 4 no kernel), 31 casts inserted (6.2 MB/step), 6 removed" */
const char *pass_summary(const pass_options *o, arena *a);
/* Operator statistics of the forward graph in Paddle's table form, or the JSON object of interfaces.md. */
const char *pass_print_stats(const ir_module *m, const pass_options *o, arena *a);
/* The forward graph with its colours as text for Graphviz. In the arena. */
const char *pass_draw(const ir_module *m, const pass_options *o, arena *a);
/* The effective merged list file (--emit-list). NULL on error (reported). */
const char *pass_print_list(const pass_options *o, diag *d, arena *a);

/* Conventions between passes, session and tools, kept as `meta` lines of the module:
 *   "loss"       name of the output statement that is the loss in @eval, @grad, @train_step
 *   "label"      graph input that carries the label
 *   "logits"     output that the loss reads (accuracy is argmax over axis 1 of it), absent for an in-graph loss
 *   "loss_kind"  ce, nll, mse, l1, bce, bce_logits, graph
 *   "amp"        "O0", "O1 f16", "O1 bf16"
 *   "untied"     "on": the importer separated tensors that an exporter had merged; absent otherwise
 *   "fuse"       "off": a session makes every op a step of its own; absent otherwise
 * and as names of storage:
 *   @lr f32[] learning rate, @step i64[] accepted steps, @loss_scale f32[], @good_steps @bad_steps i32[],
 *   @rng i64[2]; optimizer slots "opt.SLOT.PARAM" (velocity; m, v); BatchNormalization statistics are states
 * and outputs: @train_step has "loss", "found_inf" (bool[]), "grad_norm" (f32[], unscaled) and every model output;
 *   @grad has every model output, "loss", "found_inf", "grad/PARAM", "gradin/INPUT" (unscaled f32), "buf/STATE". */

#endif
