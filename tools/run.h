/* run.h - the commands, and what the verbs of ampc-run share. */
#ifndef AMPC_TOOLS_RUN_H
#define AMPC_TOOLS_RUN_H

#include "runtime/data/array.h"
#include "runtime/data/data.h"
#include "runtime/session/session.h"
#include "tools/tool.h"

typedef struct run_context {
    tool *tool;
    rt_session *session;
    int64_t *sizes; /* by symbol of the module; -1: not given with --dim */
} run_context;

/* Commands without a session. */
ampc_status run_ampc(tool *t);
ampc_status run_ampc_opt(tool *t);

/* Opens the model and a session on it, loads the weights, and runs the command's `run_session`. */
ampc_status run_in_session(tool *t);
typedef ampc_status run_verb(run_context *c);
run_verb run_infer, run_grad, run_train, run_eval, run_bench, run_plan, run_export;

/* AMPC_UNSUPPORTED, listing the entry graphs, if the module has no such graph. */
ampc_status run_need_entry(run_context *c, const char *entry, const ir_graph **out);
/* The graph of bench and plan: --entry, else train_step, else infer. */
ampc_status run_chosen_entry(run_context *c, const ir_graph **out);
/* Makes runs and plans of @train_step compute only what training needs: the loss and found_inf. */
ampc_status run_select_outputs(run_context *c, const ir_graph *g);
/* The batch of bench and plan: --batch, else the size fixed by the model or --dim, else 1. */
int64_t run_choose_batch(const run_context *c, const ir_graph *g);
/* Binds the batch symbol for a verb without inputs; other symbols keep the sizes given with --dim. */
ampc_status run_bind_batch(run_context *c);
/* Loads the checkpoint given with --checkpoint, the newest one of a directory. */
ampc_status run_load_weights(run_context *c);
/* Opens samples by a SPEC as of --data; synthetic samples have the types of the entry graph. AMPC_USAGE if NULL. */
ampc_status run_open_data(run_context *c, const char *spec, rt_split split, const ir_graph *entry,
                          rt_dataset **out);

/* Memory that a run of the graph needs with this batch. */
ampc_status run_planned_memory(run_context *c, const ir_graph *g, rt_dataset *data, int64_t batch,
                               rt_memory *out);

/* ---- run_inputs.c: values of inputs from files ---- */

/* Arrays by input name for an entry graph, from --input and --inputs. */
typedef struct run_inputs {
    bool partial;       /* set by the caller: inputs may be missing that the loss reads and another output does not */
    rt_tensor *tensors; /* [count], in the order of the graph's inputs, in the arena */
    int count;
    rt_arrays arrays; /* what they point into */
} run_inputs;

/* All missing and unknown inputs are reported together (AMPC_USAGE). Where inputs may be missing, the runs of the graph
 * compute from now on what needs none of them; a note names the other outputs. Clear in any case. */
ampc_status run_inputs_read(run_context *c, const ir_graph *g, run_inputs *in);
void run_inputs_clear(run_inputs *in);

/* ---- run_outputs.c: named results to a file or a table ---- */

typedef struct run_results run_results;
run_results *run_results_new(arena *a);
/* The tensor's data must stay valid until it is written. */
void run_results_add(run_results *r, const char *key, const rt_tensor *t);
/* -o FILE (.npz, .safetensors), or a table on standard output. */
ampc_status run_results_write(const run_results *r, run_context *c);
/* Adds output/NAME for every model output of the last run: not the loss of our own making, nor flags and gradients. */
void run_add_model_outputs(run_context *c, const ir_graph *g, run_results *r);

/* A double as JSON: null when it is not finite. In the arena. */
const char *run_json_number(double v, arena *a);

#endif
