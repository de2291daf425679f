/* run.h - the commands, and functions that several verbs of ampc-run use. */
#ifndef AMPC_TOOLS_RUN_H
#define AMPC_TOOLS_RUN_H

#include "ir/base/json_writer.h"
#include "runtime/data/array.h"
#include "runtime/data/data.h"
#include "runtime/session/session.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/team.h"
#include "tools/tool.h"

typedef struct run_context {
    tool *tool;
    rt_session *session;
    int64_t *sizes; /* by symbol of the module; -1: not set by --dim */
    rt_team *peers; /* the ranks of a distributed training; NULL: this is the only one */
} run_context;

/* Commands without a session. */
ampc_status run_ampc(tool *t);
ampc_status run_ampc_opt(tool *t);
ampc_status run_info(tool *t); /* opens a session with info_model on a model */

/* Opens the model and a session on it, loads the weights, and runs the command's `run_session`. */
ampc_status run_in_session(tool *t);
typedef ampc_status run_verb(run_context *c);
run_verb run_infer, run_grad, run_train, run_eval, run_predict, run_bench, run_plan, run_export, run_lr_find, run_check,
    run_calibrate, run_compare, run_tune, info_model;

/* ---- run_ranks.c: a command that mpirun or srun has started on several ranks ---- */

/* Runs `body` with c->peers, and ends the ranks. From the first call on, this rank prints only what
 * rank 0 does not. AMPC_USAGE if the command is not train. */
ampc_status run_on_ranks(run_context *c, run_verb *body);
/* Fails like rt_team_compare if ranks have other options, or another module; then makes that one of several ranks. With
 * --deterministic, one process adds the micro-batches of a step like several ranks do. */
ampc_status run_distribute(run_context *c);

/* ---- run_variant.c: the model of a command, compiled again with other options ---- */

typedef struct run_variant {
    tool tool;
    run_context context;   /* session NULL: not opened */
    const ir_graph *graph; /* that the command runs; set by it */
} run_variant;
/* The tool without its module, for the caller to change the options of. `sizes`: those of the session; NULL: none. */
run_variant run_variant_of(const tool *base, int64_t *sizes);
/* Reports errors, unless `quiet`, to d. The variant must not be moved from here on, and is closed on failure, too. */
ampc_status run_variant_compile(run_variant *v, diag *d, bool quiet);
/* Opens a session with the options of the command, and loads its weights. */
ampc_status run_variant_open(run_variant *v, const char *device, diag *d);
void run_variant_close(run_variant *v); /* also of one that has not been compiled */

/* Fails with AMPC_UNSUPPORTED, listing the entry graphs, if the module has no such graph. */
ampc_status run_need_entry(run_context *c, const char *entry, const ir_graph **out);
/* The graph of bench and plan: --entry, else train_step, else infer. */
ampc_status run_chosen_entry(run_context *c, const ir_graph **out);
/* Restricts runs and plans of @train_step to the results that training needs: the loss and found_inf. */
ampc_status run_select_outputs(run_context *c, const ir_graph *g);
/* The batch of bench and plan: --batch, else the size fixed by the model or --dim, else 1. */
int64_t run_choose_batch(const run_context *c, const ir_graph *g);
/* Binds the batch symbol for a verb without inputs; other symbols keep the sizes given with --dim. */
ampc_status run_bind_batch(run_context *c);
/* The file of --checkpoint; for a directory, the newest one in it. NULL: not given. */
ampc_status run_checkpoint_path(run_context *c, const char **out);
/* Loads the checkpoint of --checkpoint; for a directory, the newest one in it. */
ampc_status run_load_weights(run_context *c);
/* Opens the data set that a SPEC of --data describes; synthetic data have the types of the entry graph. Fails with
 * AMPC_USAGE if `spec` is NULL. */
ampc_status run_open_data(run_context *c, const char *spec, rt_split split, const ir_graph *entry, rt_dataset **out);

/* Reports AMPC_NUMERIC with the text and the first batch of the data, in stored order, that has a value that is not
 * finite (run_check.c). */
ampc_status run_explain(run_context *c, const ir_graph *g, rt_dataset *data, const char *text);

/* Memory that a run of the graph needs with this batch. */
ampc_status run_planned_memory(run_context *c, const ir_graph *g, rt_dataset *data, int64_t batch, rt_memory *out);

/* ---- run_inputs.c: values of inputs from files ---- */

/* Tensors for the inputs of an entry graph, from --input and --inputs. */
typedef struct run_inputs {
    bool partial;       /* set by the caller: allow missing inputs that only the loss reads */
    rt_tensor *tensors; /* [count], in the order of the graph's inputs, in the arena */
    int count;
    rt_arrays arrays; /* owns the data of `tensors` */
} run_inputs;

/* Reports all missing and unknown inputs at once (AMPC_USAGE). If inputs of the loss are missing and `partial` is
 * set, selects the outputs that do not need them; a note names the others. Call run_inputs_clear also on failure. */
ampc_status run_inputs_read(run_context *c, const ir_graph *g, run_inputs *in);
void run_inputs_clear(run_inputs *in);

/* ---- run_metrics.c: evaluations; `loss` is the name under which the loss appears ---- */

/* Parses --metric. */
ampc_status run_parse_metrics(run_context *c, rt_metric_choices *out);
/* Prints "NAME VALUE  " for each value that is defined or was named. */
void run_print_values(const rt_eval *e, const char *loss);
/* Prints the confusion matrix, if there is one, with a line per label. */
void run_print_confusion(const rt_eval *e);
void run_write_values(json_writer *w, const rt_eval *e, const char *loss);

/* ---- run_outputs.c: named results to a file or a table ---- */

typedef struct run_results run_results;
run_results *run_results_new(arena *a);
/* Adds a tensor, whose data must stay valid until the results are written. */
void run_results_add(run_results *r, const char *key, const rt_tensor *t);
/* Writes to -o FILE (.npz, .safetensors), or as a table to standard output. */
ampc_status run_results_write(const run_results *r, run_context *c);
/* Adds output/NAME for every model output of the last run, but not a loss that the compiler added, flags or
 * gradients. */
void run_add_model_outputs(run_context *c, const ir_graph *g, run_results *r);

#endif
