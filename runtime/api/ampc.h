/* ampc.h - the C API of ampc: a compiler from ONNX to mixed-precision training, and its runtime.
 *
 * A complete program. It trains the ONNX model argv[1], which has an input "x" of type float[N,4] and float scores for
 * two classes, and saves a checkpoint to argv[2]:
 *
 *     #include <ampc.h>
 *     #include <stdio.h>
 *     int main(int argc, char **argv)
 *     {
 *         ampc_context *c = NULL; ampc_module *m = NULL; ampc_session *s = NULL; ampc_tensor *in[2] = {NULL, NULL};
 *         ampc_compile_options how = {.struct_size = sizeof how, .loss = "ce", .optimizer = "adamw,lr=0.01"};
 *         ampc_step_result step = {.struct_size = sizeof step};
 *         float x[32][4]; int64_t label[32]; const int64_t dims[] = {32, 4};
 *         for (int i = 0; i < 128; i++) x[i / 4][i % 4] = (float)(i % 7) - 3, label[i / 4] = x[i / 4][0] > 0;
 *         int bad = argc < 3 || ampc_context_create(NULL, &c) || ampc_module_import(c, argv[1], NULL, 0, &m) ||
 *                   ampc_module_compile(m, &how) || ampc_session_open(m, NULL, &s) ||
 *                   ampc_tensor_create(c, "x", AMPC_F32, 2, dims, x, &in[0]) ||
 *                   ampc_tensor_create(c, "label", AMPC_I64, 1, dims, label, &in[1]);
 *         for (int i = 0; i < 50 && !bad; i++) bad = ampc_train_step(s, in, 2, &step);
 *         if (!bad) bad = ampc_checkpoint_save(s, argv[2], NULL);
 *         printf("%s, loss %g\n", bad ? ampc_context_message(c) : "trained", step.loss);
 *         ampc_tensor_free(in[0]); ampc_tensor_free(in[1]);
 *         ampc_session_free(s); ampc_module_free(m); ampc_context_free(c);
 *         return bad;
 *     }
 *
 * Rules that hold for every function:
 *   - It returns a status (ampc_status.h); after a failure ampc_context_message says what, where and why. The library
 *     never prints, and a failed call changes nothing unless its text says so. It never ends the process, and leaves
 *     environment and signal handlers of the process alone; docs/reliability.md says what is done for that, and what
 *     is left: lack of memory so sudden that a library below this one (oneDNN, libgomp, CUDA) does not survive it.
 *   - AMPC_USAGE is the answer to NULL where the text does not allow it, and to numbers, sizes and words outside of
 *     their ranges, which are those of the programs' options (ampc-run(1)). A handle must be NULL or alive. A function
 *     that returns no status answers NULL with "", 0 or NULL.
 *   - Results come out of the last parameters, which are left alone on failure. Handles are freed by the caller, in
 *     any order: what a session needs of its module, and a module of its context, lives as long as the session.
 *     Every *_free allows NULL. Strings and structs handed in are copied or not needed after the call.
 *   - Options may be NULL: all defaults. Otherwise struct_size is sizeof the struct, and a member that is 0 or NULL
 *     has its default, so set everything to zero first ({.struct_size = ...} does).
 *   - Threads: one context and everything made from it belong to one thread at a time; different contexts are
 *     independent. Functions without a handle may be called from anywhere.
 *   - Names of tensors in a session ("keys"): param/NAME, buf/NAME (BatchNormalization statistics), opt/SLOT/NAME,
 *     state/lr, state/step, state/loss_scale, state/good_steps, state/bad_steps, rng/state; they are also the names in
 *     a checkpoint. Results of the last run: output/NAME, loss, grad/PARAMETER, gradin/INPUT, found_inf, grad_norm, as
 *     far as they are selected (ampc_select). */
#ifndef AMPC_H
#define AMPC_H

#include "ampc_status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ampc_context ampc_context;
typedef struct ampc_module ampc_module;
typedef struct ampc_session ampc_session;
typedef struct ampc_tensor ampc_tensor;

/* "0.1.0" of the library that runs. */
AMPC_API const char *ampc_version(void);
/* "AMPC_REJECTED", and the sentence of the status. Never NULL. */
AMPC_API const char *ampc_status_name(ampc_status status);
AMPC_API const char *ampc_status_sentence(ampc_status status);

/* ---- context: where messages go -------------------------------------------------------------------------------- */

typedef enum ampc_log_level { AMPC_LOG_ERROR, AMPC_LOG_WARNING, AMPC_LOG_REMARK, AMPC_LOG_NOTE } ampc_log_level;

typedef struct ampc_context_options {
    size_t struct_size;
    /* Each message as it is made, on the calling thread. Within it, calls on this context and what was made from it
     * are refused (AMPC_USAGE; nothing is freed). */
    void (*log)(void *user, ampc_log_level level, const char *message);
    void *user;
    int strict; /* warnings are errors (AMPC_REJECTED) */
} ampc_context_options;

/* AMPC_NO_MEMORY, AMPC_USAGE (a struct_size that cannot be). */
AMPC_API ampc_status ampc_context_create(const ampc_context_options *options, ampc_context **context);
AMPC_API void ampc_context_free(ampc_context *context);
/* The first error of the last call on this context or anything made from it; "" after a success. Valid until the next
 * such call. NULL: a sentence saying that there is no context. */
AMPC_API const char *ampc_context_message(const ampc_context *context);

/* ---- module: a model, imported and compiled -------------------------------------------------------------------- */

typedef struct ampc_dim {
    const char *name; /* of a symbolic dimension: a dim_param of the model, or INPUT_dimK */
    int64_t size;
} ampc_dim;

/* Reads an ONNX file; n_dims symbolic dimensions get fixed sizes (more can be left to ampc_session_open, or to the
 * inputs of each run). AMPC_REJECTED (malformed), AMPC_UNSUPPORTED (operators that are not known, all of them named),
 * AMPC_USAGE (a dimension that the model does not have), AMPC_IO, AMPC_NO_MEMORY. The file must stay in place until a
 * session was opened. */
AMPC_API ampc_status ampc_module_import(ampc_context *context, const char *path, const ampc_dim *dims, size_t n_dims,
                                        ampc_module **module);

typedef struct ampc_compile_options { /* the options of the program `ampc`, with the same words */
    size_t struct_size;
    /* precision */
    const char *amp;             /* "O0" (all f32), "O1" (default) */
    const char *dtype;           /* "fp16" (default), "bf16" */
    const char *profile;         /* "ampc" (default) */
    const char *const *lists;    /* n_lists list files; a later one beats an earlier one */
    size_t n_lists;
    const char *white, *black, *gray;   /* operator types, separated by commas */
    const char *black_vars, *fp32_nodes; /* tensor names; globs over node names; separated by commas */
    int change_io_types;         /* not 0: graph inputs and outputs may become low precision */
    int no_fuse;                 /* not 0: round at every value */
    /* training; with neither loss nor loss_output the model's own loss is taken, or there is only @infer */
    const char *loss;            /* "ce", "nll", "mse", "l1", "bce", "bce_logits", each with [:OUTPUT[,LABEL]] */
    const char *loss_output;     /* a scalar output that is the loss */
    const char *optimizer;       /* "sgd" (default), "momentum", "nesterov", "adam", "adamw", with ,key=value.. */
    const char *train, *freeze;  /* globs over parameter names, separated by commas; see docs/training.md */
    const char *loss_scale;      /* "dynamic" (default for fp16), "static", "off" */
    double init_loss_scaling, incr_ratio, decr_ratio, min_loss_scaling;
    int64_t incr_every_n_steps, decr_every_n_nan_or_inf;
    const char *mode;            /* of BatchNormalization and Dropout: "file", "train", "eval"; see docs/training.md */
    const char *init;            /* "file" (default), "kaiming", "xavier" */
    uint64_t seed;               /* of init and dropout */
    /* who decides where types change */
    const char *placement;       /* "greedy" (default: the profile's own order), "mincut": least predicted cost */
    int white_soft;              /* mincut; not 0: white operators may stay f32 where low precision does not pay */
    const char *target;          /* mincut: device description: "gpu" (default), "cpu", "bytes", or a file */
} ampc_compile_options;

/* Makes the entry graphs of an imported module: infer, and with a loss eval, grad and train_step. AMPC_USAGE (an option
 * that is not known; a module that is compiled already), AMPC_REJECTED, AMPC_UNSUPPORTED, AMPC_IO, AMPC_NO_MEMORY.
 * After a failure the module can only be freed. */
AMPC_API ampc_status ampc_module_compile(ampc_module *module, const ampc_compile_options *options);
/* The summary line of the compilation ("412/437 float ops in fp16, ..."); "" before. Belongs to the module. */
AMPC_API const char *ampc_module_summary(const ampc_module *module);

/* Writes the module as text (a path ending in ".ir") with its weights beside it, in a .safetensors file of the same
 * name; both atomically. AMPC_USAGE (another ending, or sessions are open), AMPC_IO, AMPC_NO_MEMORY. */
AMPC_API ampc_status ampc_module_save(ampc_module *module, const char *path);
/* Reads such a text; weights are read when a session is opened. AMPC_REJECTED, AMPC_IO, AMPC_NO_MEMORY. */
AMPC_API ampc_status ampc_module_load(ampc_context *context, const char *path, ampc_module **module);
AMPC_API void ampc_module_free(ampc_module *module);

/* Element types. f16 and bf16 are two bytes each, bool is one byte, 0 or 1. */
typedef enum ampc_dtype {
    AMPC_F64 = 1,
    AMPC_F32,
    AMPC_F16,
    AMPC_BF16,
    AMPC_I64,
    AMPC_I32,
    AMPC_I16,
    AMPC_I8,
    AMPC_U8,
    AMPC_BOOL
} ampc_dtype;

enum { AMPC_MAX_RANK = 12 };

typedef struct ampc_input_info {
    size_t struct_size;          /* set it before the call */
    const char *name;            /* belongs to the module */
    ampc_dtype dtype;
    int rank;
    int64_t dims[AMPC_MAX_RANK]; /* -1: symbolic */
} ampc_input_info;

/* The inputs of an entry graph ("forward" before compiling): how many, and number `index` of them. AMPC_USAGE when
 * there is no such graph or input. */
AMPC_API ampc_status ampc_module_input_count(ampc_module *module, const char *graph, size_t *count);
AMPC_API ampc_status ampc_module_input(ampc_module *module, const char *graph, size_t index, ampc_input_info *info);

/* ---- tensors: dense, row major, little-endian, in host memory -------------------------------------------------- */

/* A tensor of this name with a copy of `data`, or of zeros when that is NULL. AMPC_USAGE (rank, size, type),
 * AMPC_NO_MEMORY. */
AMPC_API ampc_status ampc_tensor_create(ampc_context *context, const char *name, ampc_dtype dtype, int rank,
                                        const int64_t *dims, const void *data, ampc_tensor **tensor);
AMPC_API void ampc_tensor_free(ampc_tensor *tensor);
AMPC_API const char *ampc_tensor_name(const ampc_tensor *tensor);
AMPC_API ampc_dtype ampc_tensor_dtype(const ampc_tensor *tensor);
AMPC_API int ampc_tensor_rank(const ampc_tensor *tensor);
AMPC_API const int64_t *ampc_tensor_dims(const ampc_tensor *tensor); /* [rank] */
AMPC_API size_t ampc_tensor_bytes(const ampc_tensor *tensor);
/* May be written between calls; lives as long as the tensor. */
AMPC_API void *ampc_tensor_data(ampc_tensor *tensor);

/* ---- session: a compiled module with its storage in memory ----------------------------------------------------- */

typedef struct ampc_session_options {
    size_t struct_size;
    const char *device;   /* "cpu" (default), "cuda", "cuda:N" */
    const ampc_dim *dims; /* n_dims symbolic dimensions; the others come from the inputs of each run */
    size_t n_dims;
    int threads;          /* 0: all cores of the process; fewer, with a warning, when the system gives no more */
    int deterministic;    /* T > 0: work is split for T threads whatever the cores, so results are bitwise equal;
                           * AMPC_DEVICE when the system does not give T threads */
    int sync_launch;      /* not 0: wait after every step, so that an error of the device names its node */
    int no_tune;          /* not 0: take the algorithms that the device's libraries propose, without timing them */
} ampc_session_options;

/* Loads all weights. The module must be compiled. AMPC_USAGE, AMPC_DEVICE, AMPC_UNSUPPORTED (an op without a kernel),
 * AMPC_REJECTED (damaged weights), AMPC_IO, AMPC_NO_MEMORY. */
AMPC_API ampc_status ampc_session_open(ampc_module *module, const ampc_session_options *options,
                                       ampc_session **session);
AMPC_API void ampc_session_free(ampc_session *session);

/* From now on runs of the entry graph compute only the results with these keys; results NULL: all that the graph has.
 * Before the first call this is everything, except for "train_step": a training step, also one of ampc_train, computes
 * loss and found_inf, and otherwise only what is selected here. "grad_norm" selected: the norm of the gradients is
 * measured. Selecting changes what a run does to the state of the session by roundings at most, and only where a result
 * that is left out is computed between two steps that can then be fused. AMPC_USAGE (no such graph), AMPC_REJECTED (a
 * result that the graph does not have), AMPC_NO_MEMORY; the selection is then as it was. */
AMPC_API ampc_status ampc_select(ampc_session *session, const char *graph, const char *const *results,
                                 size_t n_results);
/* Runs an entry graph ("infer", "eval", "grad", "train_step"). Inputs go by the names of the tensors; float and integer
 * types are converted. Results: ampc_session_get. AMPC_USAGE (no such graph), AMPC_REJECTED (an input that is missing
 * or does not fit), AMPC_NO_MEMORY; nothing in the session has changed then. */
AMPC_API ampc_status ampc_session_run(ampc_session *session, const char *graph, ampc_tensor *const *inputs,
                                      size_t n_inputs);

/* A copy of the tensor with this key (see the top), which the caller frees. Gradients are unscaled f32 and there
 * after a run of "grad". AMPC_USAGE when there is no such key, or a result that the last run did not compute because it
 * is not selected; AMPC_NO_MEMORY. */
AMPC_API ampc_status ampc_session_get(ampc_session *session, const char *key, ampc_tensor **tensor);
/* Copies the tensor's elements over param/, buf/, opt/, state/ or rng/ `key`, converted to its type. AMPC_USAGE for
 * another shape, no such key, or a state/ that training could not go on from (a negative rate, a loss scale of 0). */
AMPC_API ampc_status ampc_session_set(ampc_session *session, const char *key, const ampc_tensor *tensor);
/* The same for scalars: "state/lr", "state/loss_scale", "loss" ... */
AMPC_API ampc_status ampc_session_get_number(ampc_session *session, const char *key, double *value);
AMPC_API ampc_status ampc_session_set_number(ampc_session *session, const char *key, double value);
/* The keys that ampc_session_set takes, one by one; NULL when index is past the last. Belongs to the session. */
AMPC_API const char *ampc_session_key(const ampc_session *session, size_t index);

/* ---- training -------------------------------------------------------------------------------------------------- */

typedef struct ampc_step_result {
    size_t struct_size; /* set it before the call */
    int64_t step;       /* steps run in this session or, after loading a checkpoint, in this run; from 1 */
    int64_t skipped;    /* of them, because a gradient was not finite */
    double epoch;       /* epochs done, with fraction; 0 in ampc_train_step, which knows no data */
    double loss;        /* unscaled */
    double lr;
    double loss_scale;
    double grad_norm;   /* unscaled, over all parameters; NaN when not measured: "grad_norm" is not selected */
    int was_skipped;    /* this step moved nothing but the loss scale */
} ampc_step_result;

/* Forward, backward and update on one batch: the model's inputs and the label. `result` may be NULL. Outputs of the
 * model are computed only where ampc_select names them. AMPC_NUMERIC when the loss is not finite, or when 50 steps in
 * a row were skipped with the loss scale at its floor (the message names the first gradient that is not finite); the
 * session is then as the step left it. Otherwise as ampc_session_run. */
AMPC_API ampc_status ampc_train_step(ampc_session *session, ampc_tensor *const *inputs, size_t n_inputs,
                                     ampc_step_result *result);
/* Forward and loss in inference form; changes nothing. Scores: ampc_session_get(session, "output/NAME", ..). */
AMPC_API ampc_status ampc_eval_step(ampc_session *session, ampc_tensor *const *inputs, size_t n_inputs, double *loss);

/* The learning rate after `accepted` accepted steps of `steps`: schedule "constant", "linear", "cosine" or "step", with
 * ",warmup=N" and the like (see ampc-run(1)). */
AMPC_API ampc_status ampc_schedule_rate(ampc_context *context, const char *schedule, double lr, int64_t steps,
                                        int64_t accepted, double *rate);

typedef struct ampc_train_options { /* the options of `ampc-run train`, with the same words */
    size_t struct_size;
    const char *data;           /* "idx:DIR", "npz:FILE", "npy:NAME=FILE,..", "synthetic" */
    int64_t steps, epochs;      /* exactly one of the two */
    int64_t batch;              /* 0: the model's fixed batch */
    double lr;                  /* 0: the optimizer's */
    const char *lr_schedule;
    uint64_t seed;
    const char *checkpoint_dir; /* NULL: nothing is saved; AMPC_USAGE when another training writes there */
    int64_t save_every;         /* steps; the end is always saved */
    int keep;                   /* files; at least 2 */
    int resume, allow_fallback;
    /* After each step; not 0 ends the run, which is saved and counts as success. It may look at the session, evaluate
     * it, save checkpoints and set weights; freeing it, selecting, loading and training on it are refused. */
    int (*progress)(void *user, const ampc_step_result *step);
    void *user;
} ampc_train_options;

/* The whole training loop; a resumed run is bitwise the uninterrupted one. Statuses as ampc_train_step, and those of
 * reading the data and of checkpoints. */
AMPC_API ampc_status ampc_train(ampc_session *session, const ampc_train_options *options);

typedef struct ampc_evaluation {
    size_t struct_size; /* set it before the call */
    double loss;        /* mean over all samples; NaN without a loss */
    double accuracy;    /* share of labels that have the highest score; NaN without class labels */
    int64_t samples;
} ampc_evaluation;

/* Every sample of a data set (its test half, if it has two) through "eval", or "infer" without a loss. `batch` 0:
 * chosen. */
AMPC_API ampc_status ampc_evaluate(ampc_session *session, const char *data, int64_t batch, ampc_evaluation *result);

/* ---- checkpoints ----------------------------------------------------------------------------------------------- */

typedef struct ampc_position { /* where the caller's data stand; any three numbers */
    uint64_t seed, epoch, batch;
} ampc_position;

/* Everything that training needs to go on, in one safetensors file, written atomically. `position` may be NULL. */
AMPC_API ampc_status ampc_checkpoint_save(ampc_session *session, const char *path, const ampc_position *position);
/* Verifies all of the file, then loads it. AMPC_REJECTED for a damaged file or one of another model, AMPC_IO;
 * nothing has changed then. `position` may be NULL. */
AMPC_API ampc_status ampc_checkpoint_load(ampc_session *session, const char *path, ampc_position *position);
/* Parameters and buffers alone, into any model that has all of these names and types. */
AMPC_API ampc_status ampc_checkpoint_load_weights(ampc_session *session, const char *path);

/* The trained model as plain inference ONNX: the file that was imported, with its names and opset, its weights replaced
 * (those that lay in other files go to PATH.data) and BatchNormalization and Dropout in inference form. Existing files
 * are replaced only by complete ones. AMPC_IO (also: the imported file is gone), AMPC_REJECTED (it is another one),
 * AMPC_UNSUPPORTED (something reads statistics of a batch), AMPC_NO_MEMORY. */
AMPC_API ampc_status ampc_export_onnx(ampc_session *session, const char *path);

#ifdef __cplusplus
}
#endif

#endif
