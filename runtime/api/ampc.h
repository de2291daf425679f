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
 *   - A function returns a status (ampc_status.h). After a failure, ampc_context_message states what failed, where and
 *     why. A failed call changes nothing unless its comment says so. The library never prints, never ends the process,
 *     and does not change its environment or signal handlers. docs/reliability.md describes how memory exhaustion is
 *     handled; the remaining case is exhaustion inside a library that does not survive it (oneDNN, libgomp, CUDA).
 *   - AMPC_USAGE is returned for NULL where the comment does not allow it, and for option values outside their ranges,
 *     which are those of the command-line options (ampc-run(1)). A handle must be NULL or valid. For a NULL handle, a
 *     function that does not return a status returns "", 0 or NULL.
 *   - Results are stored through the last parameters, which are unchanged on failure. The caller frees handles, in any
 *     order: a session keeps its module alive, and a module its context. Every *_free accepts NULL. Strings and
 *     structs passed as arguments are copied, or not used after the call.
 *   - A function that writes a file replaces whatever file has that path, of any kind: unlike the programs, the library
 *     asks for no permission, because the host knows what it names. The new file appears when it is complete; until
 *     then, and if the call fails, the older one is unchanged. Only `log` of ampc_train_options appends to a file.
 *   - Options may be NULL, which means all defaults. Otherwise struct_size is the sizeof of the struct, and a member
 *     that is 0 or NULL has its default. Initialize all members to zero ({.struct_size = ...} does).
 *   - Threads: a context and everything created from it may be used by one thread at a time; different contexts are
 *     independent, also where their sessions share weights (ampc_session_share). Functions without a handle may be
 *     called from any thread.
 *   - Tensors of a session are named by keys: param/NAME, buf/NAME (BatchNormalization statistics), opt/SLOT/NAME,
 *     state/lr, state/step, state/loss_scale, state/good_steps, state/bad_steps, rng/state; in a module that
 *     accumulates gradients also grad_sum/NAME, next/NAME (of a buffer), state/micro_batches, state/loss_sum,
 *     state/unscaled, state/overflow. Checkpoints use the same names. The results of the last run have the keys
 *     output/NAME, loss, grad/PARAMETER, gradin/INPUT, found_inf and grad_norm, if they are selected (ampc_select). */
#ifndef AMPC_H
#define AMPC_H

#include "ampc_operator.h"
#include "ampc_status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Handles. */
typedef struct ampc_context ampc_context;
typedef struct ampc_module ampc_module;
typedef struct ampc_session ampc_session;
typedef struct ampc_tensor ampc_tensor;

/* Version of the library that is loaded, such as "0.2.0". */
AMPC_API const char *ampc_version(void);
/* The name of a status, such as "AMPC_REJECTED", and a sentence that describes it. Never NULL. */
AMPC_API const char *ampc_status_name(ampc_status status);
AMPC_API const char *ampc_status_sentence(ampc_status status);

/* ---- context: where messages go -------------------------------------------------------------------------------- */

/* How serious a message is. */
typedef enum ampc_log_level { AMPC_LOG_ERROR, AMPC_LOG_WARNING, AMPC_LOG_REMARK, AMPC_LOG_NOTE } ampc_log_level;

/* Where the messages of a context go, and whether warnings are errors. */
typedef struct ampc_context_options {
    size_t struct_size;
    /* Called for each message as it is produced, on the calling thread. During this callback, calls on the context
     * and on objects created from it fail with AMPC_USAGE, and context, modules and sessions are not freed. */
    void (*log)(void *user, ampc_log_level level, const char *message);
    void *user;
    int strict; /* treat warnings as errors (AMPC_REJECTED) */
} ampc_context_options;

/* Fails with AMPC_NO_MEMORY or AMPC_USAGE (invalid struct_size, or options of a newer version). */
AMPC_API ampc_status ampc_context_create(const ampc_context_options *options, ampc_context **context);
AMPC_API void ampc_context_free(ampc_context *context);
/* The first error message of the last call on this context or on any object created from it; "" if that call
 * succeeded. Valid until the next such call. For NULL, returns a sentence saying that there is no context. */
AMPC_API const char *ampc_context_message(const ampc_context *context);

typedef struct ampc_place { /* strings are "" and numbers 0 where the error has no such part */
    size_t struct_size;     /* set before the call */
    const char *file;       /* a path, or what the caller calls a model in memory */
    int line, column;       /* of a text file, from 1 */
    const char *kind;       /* what `name` is: "node", "tensor", "parameter", "input" .. */
    const char *name, *op;  /* as in the model; `op` is the operator of a node */
} ampc_place;

/* Stores where the error of ampc_context_message is. Strings are valid as long as the message. Fails with AMPC_USAGE
 * only. */
AMPC_API ampc_status ampc_context_place(const ampc_context *context, ampc_place *place);

/* Makes a custom operator known to the models that are imported from now on, and to modules of this context that are
 * loaded. The strings of the table are copied; its functions and `user` must stay valid until the context and all that
 * was created from it have been freed. An operator cannot be replaced or removed. Fails with AMPC_USAGE (a table that
 * ampc_operator.h does not allow, or the operator is registered in this version) or AMPC_NO_MEMORY. */
AMPC_API ampc_status ampc_operator_register(ampc_context *context, const ampc_operator *table);
/* The same for all operators of a plug-in (ampc_operator.h), a shared library whose code runs in this process with all
 * its rights; it stays loaded until the process ends. A path without a slash is a file in the current folder; no other
 * folder is searched. Fails with AMPC_IO (the file cannot be read), AMPC_REJECTED (not a plug-in for this machine, it
 * cannot be loaded, or a table is not allowed), AMPC_UNSUPPORTED (it was made for another version of ampc_operator.h),
 * AMPC_USAGE (an operator is registered already) or AMPC_NO_MEMORY; then no operator of it is registered. */
AMPC_API ampc_status ampc_operators_load(ampc_context *context, const char *path);

/* ---- module: a model, imported and compiled -------------------------------------------------------------------- */

/* The size of a symbolic dimension. */
typedef struct ampc_dim {
    const char *name; /* a dim_param of the model, or INPUT_dimK */
    int64_t size;
} ampc_dim;

/* Reads an ONNX file, or a recipe of several ones (docs/recipe.md), and fixes the sizes of n_dims symbolic dimensions.
 * Other symbolic dimensions can be fixed in ampc_session_open or by the inputs of each run. The files must remain in
 * place until a session has been opened, and must not be changed until it is closed. The options in a recipe are for
 * the programs. Fails with AMPC_REJECTED (malformed file), AMPC_UNSUPPORTED (unsupported operators; the message lists
 * all of them), AMPC_USAGE (no such dimension in the model), AMPC_IO or AMPC_NO_MEMORY. */
AMPC_API ampc_status ampc_module_import(ampc_context *context, const char *path, const ampc_dim *dims, size_t n_dims,
                                        ampc_module **module);

/* Which model to import, and how. */
typedef struct ampc_import_options {
    size_t struct_size;
    const char *path;  /* the model, as in ampc_module_import */
    const void *bytes; /* instead, an ONNX model of n_bytes bytes in memory, of which the module keeps a copy. `path`
                        * may then be NULL; otherwise messages call the model so, and external data are files in the
                        * folder of that path, which must remain in place. Without it they are AMPC_REJECTED. */
    size_t n_bytes;
    const ampc_dim *dims; /* sizes for n_dims symbolic dimensions */
    size_t n_dims;
    int keep_unknown; /* nonzero: accept operators that ampc cannot run. Such a module can only be converted */
    int64_t batch;    /* samples of a batch; not 0: a first dimension of the inputs that the model fixes at another
                       * number becomes the symbol `batch`, for batches of any size (docs/training.md). AMPC_UNSUPPORTED
                       * if a node needs the number; AMPC_USAGE for a recipe */
} ampc_import_options;

/* Like ampc_module_import, also from memory. Neither `path` nor `bytes` is AMPC_USAGE. */
AMPC_API ampc_status ampc_module_import_with(ampc_context *context, const ampc_import_options *options,
                                             ampc_module **module);

typedef struct ampc_compile_options { /* the options of the `ampc` command, with the same values */
    size_t struct_size;
    /* precision */
    const char *amp;          /* "O0" (all f32), "O1" (default) */
    const char *dtype;        /* "fp16" (default), "bf16" */
    const char *profile;      /* "ampc" (default) */
    const char *const *lists; /* n_lists list files; later files override earlier ones */
    size_t n_lists;
    const char *white, *black, *gray;    /* operator types, separated by commas */
    const char *black_vars, *fp32_nodes; /* tensor names; globs over node names; separated by commas */
    int change_io_types;                 /* nonzero: graph inputs and outputs may become low precision */
    int no_fuse;                         /* nonzero: round every intermediate value */
    /* training; without loss and loss_output, the model's own loss is used; if it has none, only "infer" is created */
    const char *loss;           /* KIND[,KEY=VALUE..][:OUTPUT[,LABEL]][+..], such as "ce"; see docs/training.md */
    const char *loss_output;    /* name of a scalar of the model that is the loss */
    const char *optimizer;      /* "sgd" (default), "adamw", .., plus ,key=value..; see docs/optimizers.md */
    const char *train, *freeze; /* globs over parameter names, separated by commas; see docs/training.md */
    const char *loss_scale;     /* "dynamic" (default for fp16), "static", "off" */
    double init_loss_scaling, incr_ratio, decr_ratio, min_loss_scaling;
    int64_t incr_every_n_steps, decr_every_n_nan_or_inf;
    const char *mode; /* BatchNormalization and Dropout: "file", "train" or "eval"; see docs/training.md */
    const char *init; /* "file" (default), "kaiming", "xavier" */
    uint64_t seed;    /* for init and dropout */
    /* placement of casts */
    const char *placement; /* "greedy" (default: in the profile's order), "mincut" (minimum predicted cost) */
    int white_soft;        /* mincut, nonzero: white operators may stay f32 if low precision is slower */
    const char *target;    /* mincut: device description: "gpu" (default), "cpu", "bytes" or a file */
    /* gradients */
    int64_t accumulate;       /* micro-batches per step; nonzero also creates accumulate, unscale and apply */
    double clip_norm;         /* largest norm of all gradients together; 0: unlimited */
    double clip_value;        /* largest absolute value of a gradient's elements; 0: unlimited */
    const char *grad_penalty; /* "L2:input,WEIGHT" or "L2:params,WEIGHT"; see docs/training.md */
    /* loss scaling */
    const char *loss_scale_preset; /* "torch", "paddle-1.8", "paddle-2", "paddle-3"; the default is the profile's */
    double max_loss_scaling;
    int64_t hysteresis;
    /* optimizer */
    const char *const *groups; /* n_groups parameter groups "GLOB,key=value..": lr_factor, weight_decay, freeze */
    size_t n_groups;
    int no_decay; /* nonzero: no weight decay on normalization parameters and biases */
    double ema;   /* decay of the moving averages that infer, eval and exports use; 0: none */
    /* input */
    const char *normalize; /* "[INPUT:]divide=X,mean=A/B/..,std=A/B/..", computed at the start of every graph */
    /* batch normalisation */
    const char *running_var; /* variance of the batch for the running one: "biased" (default, ONNX), "unbiased"
                              * (PyTorch) */
    /* precision */
    const char *low_nodes;    /* low even where fp32_nodes, a list or the range says fp32: globs separated by commas */
    const char *const *rules; /* n_rules texts "KEY=VALUE" of the section [rules] of list files (docs/lists.md) */
    size_t n_rules;
    const char *consumer; /* only to convert: the runtime that reads the model, "tensorrt", "onnxruntime",
                           * "onnxruntime-cpu", "generic" or a description file (docs/consumers.md); AMPC_USAGE for a
                           * module that is run */
    int64_t opset;        /* only to convert: the opset to write; 0: the model's, if it has what the result needs */
    int fuse_attention;   /* nonzero: each attention is one op, whose memory is linear in the lengths; no effect with
                           * no_fuse or on a model that is converted */
    int pad;              /* nonzero: the classes of a loss in a low type are padded to a multiple of 8, which a GPU
                           * needs to multiply fast; no effect on a model that is converted */
} ampc_compile_options;

/* Creates the entry graphs of an imported module: infer and, if there is a loss, eval, grad and train_step. Fails
 * with AMPC_USAGE (unknown option value, or the module is already compiled), AMPC_REJECTED, AMPC_UNSUPPORTED, AMPC_IO
 * or AMPC_NO_MEMORY. After a failure the module can only be freed. */
AMPC_API ampc_status ampc_module_compile(ampc_module *module, const ampc_compile_options *options);
/* The summary line of the last compilation or conversion, such as "412/437 float ops in fp16, ..."; "" before the
 * first. Owned by the module, and valid until the next. */
AMPC_API const char *ampc_module_summary(const ampc_module *module);

/* Writes an imported model as ONNX in mixed precision, for other runtimes, as `ampc MODEL -o PATH.onnx` does
 * (docs/onnx-out.md). The model is read and compiled again for this purpose, so a module may be converted several
 * times, before and after ampc_module_compile, and nothing but its summary changes. A model above 2 GiB has its weights
 * in PATH.data. Existing files are replaced atomically. Fails with AMPC_USAGE (the module was not imported, or as
 * ampc_module_compile), AMPC_UNSUPPORTED (what ONNX cannot express), AMPC_REJECTED, AMPC_IO or AMPC_NO_MEMORY. */
AMPC_API ampc_status ampc_module_convert(ampc_module *module, const ampc_compile_options *options, const char *path);
/* The same in memory: stores the bytes of the model, which the caller frees with ampc_free, and their number. A model
 * above 2 GiB is AMPC_UNSUPPORTED. */
AMPC_API ampc_status ampc_module_convert_memory(ampc_module *module, const ampc_compile_options *options, void **bytes,
                                                size_t *n_bytes);
/* What the program `ampc` prints with --explain=WHAT about the precision of an imported model with these options:
 * `what` is "all", the name of a node, "params" or "distribution" (ampc(1)); `json` nonzero: a JSON object in each
 * line. The model is read and compiled again, for ampc_module_convert if it was imported with `keep_unknown`, else for
 * ampc_module_compile. Stores the text, which the caller frees with ampc_free. Fails with AMPC_USAGE (no such node),
 * otherwise like these functions. */
AMPC_API ampc_status ampc_module_explain(ampc_module *module, const ampc_compile_options *options, const char *what,
                                         int json, char **text);
/* The same for the statistics of --stats as a JSON object: the calls of each operator by precision, and the casts. */
AMPC_API ampc_status ampc_module_report(ampc_module *module, const ampc_compile_options *options, char **text);
/* Frees memory that a function of this library has allocated for the caller. NULL is allowed. */
AMPC_API void ampc_free(void *memory);

/* Writes the module as text to `path`, which must end in ".ir", and its weights to a .safetensors file with the same
 * base name in the same folder. Both files are written atomically. Fails with AMPC_USAGE (wrong suffix, or sessions of
 * the module are open), AMPC_IO or AMPC_NO_MEMORY. */
AMPC_API ampc_status ampc_module_save(ampc_module *module, const char *path);
/* Reads a module written by ampc_module_save. The weights are read when a session is opened. Fails with
 * AMPC_REJECTED, AMPC_IO or AMPC_NO_MEMORY. */
AMPC_API ampc_status ampc_module_load(ampc_context *context, const char *path, ampc_module **module);
AMPC_API void ampc_module_free(ampc_module *module);

/* An input of an entry graph. */
typedef struct ampc_input_info {
    size_t struct_size; /* set before the call */
    const char *name;   /* owned by the module */
    ampc_dtype dtype;
    int rank;
    int64_t dims[AMPC_MAX_RANK]; /* -1: symbolic dimension */
    /* Of a symbolic dimension, its symbol or an expression such as "2*N+1", owned by the module; else NULL. */
    const char *dim_names[AMPC_MAX_RANK];
} ampc_input_info;

/* The number of inputs of an entry graph, and the description of input `index`. Before compilation the only graph is
 * "forward". Fails with AMPC_USAGE if there is no such graph or input, or with AMPC_NO_MEMORY. */
AMPC_API ampc_status ampc_module_input_count(ampc_module *module, const char *graph, size_t *count);
AMPC_API ampc_status ampc_module_input(ampc_module *module, const char *graph, size_t index, ampc_input_info *info);
/* The same of its results. `name` is the name that ampc_select accepts: of an output of the model, its name there. */
AMPC_API ampc_status ampc_module_output_count(ampc_module *module, const char *graph, size_t *count);
AMPC_API ampc_status ampc_module_output(ampc_module *module, const char *graph, size_t index, ampc_input_info *info);

/* ---- tensors: dense, row-major, little-endian, in host memory -------------------------------------------------- */

/* Creates a tensor with a copy of `data`, or with zeros if `data` is NULL. Fails with AMPC_USAGE (bad rank, size or
 * type) or AMPC_NO_MEMORY. */
AMPC_API ampc_status ampc_tensor_create(ampc_context *context, const char *name, ampc_dtype dtype, int rank,
                                        const int64_t *dims, const void *data, ampc_tensor **tensor);
/* Creates a tensor of the caller's elements, which are not copied: `data` must be aligned for its type and be valid as
 * long as the tensor. A session on the CPU reads an input of the graph's type in place. When the tensor is freed,
 * `release` is called unless it is NULL. Fails like ampc_tensor_create; `release` is then not called. */
AMPC_API ampc_status ampc_tensor_borrow(ampc_context *context, const char *name, ampc_dtype dtype, int rank,
                                        const int64_t *dims, void *data, void (*release)(void *user, void *data),
                                        void *user, ampc_tensor **tensor);
AMPC_API void ampc_tensor_free(ampc_tensor *tensor);
AMPC_API const char *ampc_tensor_name(const ampc_tensor *tensor);
AMPC_API ampc_dtype ampc_tensor_dtype(const ampc_tensor *tensor);
AMPC_API int ampc_tensor_rank(const ampc_tensor *tensor);
AMPC_API const int64_t *ampc_tensor_dims(const ampc_tensor *tensor); /* [rank] */
AMPC_API size_t ampc_tensor_bytes(const ampc_tensor *tensor);
/* The elements, which the caller may write between calls. Valid as long as the tensor. */
AMPC_API void *ampc_tensor_data(ampc_tensor *tensor);

/* ---- session: a compiled module with its storage in memory ----------------------------------------------------- */

/* Where and how a session runs. */
typedef struct ampc_session_options {
    size_t struct_size;
    const char *device;   /* "cpu" (default), "cuda" or "cuda:N" */
    const ampc_dim *dims; /* sizes for n_dims symbolic dimensions; the inputs of each run determine the others */
    size_t n_dims;
    int threads;       /* 0: all available cores, or fewer with a warning if the system cannot start as many */
    int deterministic; /* T > 0: splits work for T threads regardless of the number of cores, so results are
                           * bitwise reproducible; AMPC_DEVICE if the system cannot start T threads */
    int sync_launch;   /* nonzero: wait after every step, so that a device error names the node that caused it */
    int no_tune;       /* nonzero: use the algorithms that the device's libraries suggest, without timing them */
} ampc_session_options;

/* Opens a compiled module on a device and loads all weights, or on a CPU opens and checks their files. Fails with
 * AMPC_USAGE, AMPC_DEVICE, AMPC_UNSUPPORTED (an op without a kernel), AMPC_REJECTED (corrupt weights), AMPC_IO or
 * AMPC_NO_MEMORY. */
AMPC_API ampc_status ampc_session_open(ampc_module *module, const ampc_session_options *options,
                                       ampc_session **session);
AMPC_API void ampc_session_free(ampc_session *session);
/* Opens another session of the same module that uses the weights and states of `session`, for inference from several
 * threads: each thread has a context and a session of its own, and only activations are allocated for each. What plans
 * compute from the weights once, such as their low-precision copies, is shared by sessions with equal options that run
 * with the same sizes. The sessions are equal: any of them may be freed first, shared again, or run at any time,
 * whatever the others do, and each has its own selection. `context` may be that of `session`, and receives the messages
 * of the new session; custom operators must be registered in it. Neither may be in use by another thread during this
 * call. `device` of the options must be NULL.
 *
 * While at least two sessions share weights, none can change them: AMPC_USAGE from the functions that train, set and
 * load, and from a run of a graph that stores, such as one with random numbers. Fails like ampc_session_open. */
AMPC_API ampc_status ampc_session_share(ampc_session *session, ampc_context *context,
                                        const ampc_session_options *options, ampc_session **shared);

/* Restricts subsequent runs of an entry graph to the results with these keys; `results` NULL selects all results of
 * the graph. Initially every result is selected, except in "train_step", "accumulate" and "apply", which compute only
 * loss and found_inf. Training steps, also those of ampc_train, always compute these two. The norm of the gradients is
 * computed only if "grad_norm" is selected, or to clip it. Selection can change the new state of the session only by
 * rounding, where two steps can be fused because a result between them is not selected. Fails with AMPC_USAGE (no such
 * graph), AMPC_REJECTED (the graph has no such result) or AMPC_NO_MEMORY; the selection is then unchanged. */
AMPC_API ampc_status ampc_select(ampc_session *session, const char *graph, const char *const *results,
                                 size_t n_results);
/* Runs the entry graph "infer", "eval", "grad" or "train_step". Tensors are matched to inputs by name; float and
 * integer types are converted. Results are read with ampc_session_get. Fails with AMPC_USAGE (no such graph),
 * AMPC_REJECTED (an input is missing or does not fit) or AMPC_NO_MEMORY; the session is then unchanged. */
AMPC_API ampc_status ampc_session_run(ampc_session *session, const char *graph, ampc_tensor *const *inputs,
                                      size_t n_inputs);

/* Returns a copy of the tensor with this key (see the head of this file), which the caller frees. Gradients are f32
 * and unscaled, and exist after a run of "grad". Fails with AMPC_USAGE if there is no such key or the last run did
 * not compute this result because it is not selected, or with AMPC_NO_MEMORY. */
AMPC_API ampc_status ampc_session_get(ampc_session *session, const char *key, ampc_tensor **tensor);
/* Like ampc_session_get, but stores the elements in an existing tensor, such as one that borrows the caller's memory,
 * converted to its type. Fails also with AMPC_USAGE if the shapes differ. */
AMPC_API ampc_status ampc_session_get_into(ampc_session *session, const char *key, ampc_tensor *tensor);
/* Overwrites the tensor with key param/, buf/, opt/, state/ or rng/ with the elements of `tensor`, converted to its
 * type. Fails with AMPC_USAGE if the shapes differ, there is no such key, or training could not continue from the new
 * state/ value (a negative learning rate, a loss scale of 0, a fraction of a counter). Setting state/micro_batches to 0
 * ends the window of micro-batches without a step. */
AMPC_API ampc_status ampc_session_set(ampc_session *session, const char *key, const ampc_tensor *tensor);
/* Like ampc_session_get and ampc_session_set for scalars: "state/lr", "state/loss_scale", "loss" ... */
AMPC_API ampc_status ampc_session_get_number(ampc_session *session, const char *key, double *value);
AMPC_API ampc_status ampc_session_set_number(ampc_session *session, const char *key, double value);
/* The keys that ampc_session_set accepts, by index; NULL if index is past the last. Owned by the session. */
AMPC_API const char *ampc_session_key(const ampc_session *session, size_t index);

/* The first value of a run that is not finite. */
typedef struct ampc_check_result {
    size_t struct_size; /* set before the call */
    int found;          /* nonzero: a value has a NaN, or an infinity that does not come from a constant of the model */
    int excused;        /* nonzero: dynamic loss scaling skips such a step and reduces the scale, as intended */
    const char *tensor; /* name of the first such value in the order of computation; NULL: none, as the next three */
    const char *node, *op; /* of the model, whose result it is; "" if the value is an input or weight */
    const char *text;      /* a sentence with its counts and range, and those of the operands */
    int64_t elements, nans, infinities;
    double min, max;     /* of its finite elements; NaN: there are none */
    double finite_scale; /* the largest loss scale without such values, if the scale causes them; else NaN */
} ampc_check_result;

/* Runs a graph like ampc_session_run, most usefully "infer", "eval" or "grad", and finds the first value that is not
 * finite; every value is inspected, so this is slower. Strings are valid until the next check of the session, or it is
 * freed. Finding something is a success. Fails like ampc_session_run. */
AMPC_API ampc_status ampc_check(ampc_session *session, const char *graph, ampc_tensor *const *inputs, size_t n_inputs,
                                ampc_check_result *result);

typedef struct ampc_compared { /* a result of a node, in mixed precision, f32 and f64 */
    const char *tensor;
    const char *node, *op; /* of the model; "" for nodes of the compiler, such as those of the loss */
    int backward;          /* nonzero: a gradient */
    int64_t elements, not_finite;
    double error;     /* norm of the difference from f64, relative to the norm in f64 */
    double f32_error; /* the same of the f32 run */
    double max_error; /* largest absolute difference from f64 */
    double added;     /* the error that the node itself adds to that of its operands; NaN: unknown */
    double min, max;  /* of the finite elements */
    int noise;        /* nonzero: not even f32 has a correct digit */
    int loses_most;   /* nonzero: of all nodes, this one adds the largest error */
} ampc_compared;

/* Runs "infer", "eval" or "grad" in the precision of the session, and on the CPU in f32 and in f64, with the weights of
 * the session, and calls `each` for every result that the three have in common, the largest error first. `options` are
 * those that the module was compiled with; the model is compiled twice more, so its file must still be there, unless it
 * was imported from memory. The struct and its strings are valid during the call, under the conditions of the log
 * function. Fails with AMPC_USAGE (the module was not imported, or the graph changes the weights), otherwise like
 * ampc_module_compile and ampc_session_run. */
AMPC_API ampc_status ampc_compare(ampc_session *session, const ampc_compile_options *options, const char *graph,
                                  ampc_tensor *const *inputs, size_t n_inputs,
                                  void (*each)(void *user, const ampc_compared *value), void *user);

/* ---- training -------------------------------------------------------------------------------------------------- */

/* The figures of a training step. */
typedef struct ampc_step_result {
    size_t struct_size; /* set before the call */
    int64_t step;       /* number of this step, from 1; continues from a loaded checkpoint */
    int64_t skipped;    /* how many of these steps were skipped because of a non-finite gradient */
    double epoch;       /* epochs completed, including the fraction; 0 in ampc_train_step, which has no data set */
    double loss;        /* unscaled */
    double lr;
    double loss_scale;
    double grad_norm; /* unscaled norm over all parameters, before clipping; NaN unless "grad_norm" is selected or
                       * the module clips the norm */
    int was_skipped;  /* this step was skipped: it updated nothing but the loss scale */
} ampc_step_result;

/* Runs forward, backward and update on one batch. `inputs` are the model's inputs and the label; `result` may be
 * NULL. Model outputs are computed only if ampc_select selected them. Fails with AMPC_NUMERIC if the loss is not
 * finite, which is a skipped step (one may have an infinite penalty of the gradient), or if 50 steps in a row were
 * skipped with the loss scale at its floor (the message names the first non-finite gradient); the session then has the
 * state after the step. Otherwise fails like ampc_session_run. */
AMPC_API ampc_status ampc_train_step(ampc_session *session, ampc_tensor *const *inputs, size_t n_inputs,
                                     ampc_step_result *result);
/* The same step in three calls, for modules compiled with `accumulate`: one update by the mean gradients of several
 * micro-batches, a window, and gradients that can be inspected and changed before it.
 *
 *     for each micro-batch: ampc_accumulate     adds its gradients to sums
 *     optionally: ampc_unscale                  turns the sums into mean gradients, in f32 and without loss scale
 *                 ampc_session_get, .._set      with the keys grad_sum/PARAMETER
 *     ampc_apply                                updates parameters and loss scale, and ends the window
 *
 * A loss or gradient in any micro-batch that is not finite, or a gradient found by ampc_apply after a change, skips the
 * update of the window. Checkpoints may be saved and loaded within a window. ampc_train_step is refused there.
 *
 * ampc_accumulate runs forward and backward; `loss` may be NULL. Fails with AMPC_UNSUPPORTED if the module was compiled
 * without `accumulate`, AMPC_USAGE after ampc_unscale, otherwise like ampc_session_run. */
AMPC_API ampc_status ampc_accumulate(ampc_session *session, ampc_tensor *const *inputs, size_t n_inputs, double *loss);
/* Stores the norm of the mean gradients over all parameters, and whether one of them, or a loss of the window, is
 * not finite (without loss scaling, whether a loss is); both pointers may be NULL. Fails with AMPC_UNSUPPORTED as
 * above, or AMPC_USAGE if nothing is accumulated or this is the second call in the window. */
AMPC_API ampc_status ampc_unscale(ampc_session *session, double *grad_norm, int *found_inf);
/* Clips the gradients if the module was compiled so, and updates. `result` may be NULL; its loss is the mean of the
 * window. Fails with AMPC_UNSUPPORTED as above, AMPC_USAGE if nothing is accumulated, or AMPC_NUMERIC like
 * ampc_train_step. */
AMPC_API ampc_status ampc_apply(ampc_session *session, ampc_step_result *result);
/* Runs forward and loss in inference form; changes no state. Scores can be read with ampc_session_get and the key
 * "output/NAME". Fails like ampc_session_run. */
AMPC_API ampc_status ampc_eval_step(ampc_session *session, ampc_tensor *const *inputs, size_t n_inputs, double *loss);

/* Switches loss scaling off (enabled 0: the scale is 1 and stays there) or on again (with the initial scale of the
 * module). Steps with a non-finite gradient are skipped in both cases. Without a loss scale it does nothing. */
AMPC_API ampc_status ampc_set_loss_scaling(ampc_session *session, int enabled);

/* The learning rate after `accepted` of `steps` steps were accepted. `schedule` is such as "cosine,warmup=100"; see
 * docs/training.md. Fails with AMPC_USAGE for an unknown schedule, a value out of range, or "plateau", whose rate
 * depends on the losses. */
AMPC_API ampc_status ampc_schedule_rate(ampc_context *context, const char *schedule, double lr, int64_t steps,
                                        int64_t accepted, double *rate);

/* A data set of the caller. */
typedef struct ampc_data ampc_data;

/* The samples, or the rows, of one input of the graph. */
typedef struct ampc_data_field {
    const char *name; /* of an input of the graph, such as "x" or "label" */
    ampc_dtype dtype;
    int rank;
    int64_t dims[AMPC_MAX_RANK]; /* of a sample; whole: of the array */
    int whole;                   /* nonzero: every batch reads all of the array, which has no samples */
    const void *data;            /* [rows, dims...], whole: [dims...]; NULL: read by the function */
} ampc_data_field;

/* The fields of a data set and how to read them. */
typedef struct ampc_data_options {
    size_t struct_size;
    const ampc_data_field *fields; /* n_fields fields, which are copied; their data are not */
    size_t n_fields;
    int64_t rows; /* number of samples, 1 .. 2^31 - 1 */
    /* Stores row `row` of field `field` at dst, packed and in the type of the field. A nonzero return value ends the
     * training or evaluation with AMPC_IO. The rows of a batch are asked for in any order, some more than once; the
     * same row must always have the same contents, so that training can be resumed. Called by the threads that read
     * ahead (`workers` of ampc_train_options), several at once, unless one_thread is set. Calls on the context of the
     * session are not allowed in it. NULL if all fields are in memory. */
    int (*read)(void *user, int64_t row, size_t field, void *dst);
    void *user;
    int one_thread;      /* nonzero: only the thread that trains or evaluates calls the function */
    const char *options; /* such as "validation=0.1,order=file,classes=cat+dog"; see docs/data.md */
} ampc_data_options;

/* Describes a data set that is in the caller's memory, or is read by the caller's function, for any number of calls of
 * ampc_train and ampc_evaluate_data. The memory of the fields must stay valid and unchanged until ampc_data_free, and
 * the calls that use the data set must have returned by then. Fails with AMPC_USAGE or AMPC_NO_MEMORY. */
AMPC_API ampc_status ampc_data_create(ampc_context *context, const ampc_data_options *options, ampc_data **data);
AMPC_API void ampc_data_free(ampc_data *data);

/* The value of a metric. */
typedef struct ampc_metric {
    const char *name; /* as in `metrics` below */
    double value;     /* NaN: not defined for these samples */
} ampc_metric;

/* The results of an evaluation. */
typedef struct ampc_evaluation {
    size_t struct_size; /* set before the call */
    double loss;        /* of the whole data set, whatever the batch; NaN without a loss */
    double accuracy;    /* fraction of labels whose class has the highest score; NaN without class labels */
    int64_t samples;
    /* All values: the loss, its parts, and the metrics; of a callback, valid until it returns, otherwise until the next
     * evaluation of the session, or the session is freed. */
    const ampc_metric *metrics;
    size_t n_metrics;
    const int64_t *confusion; /* [classes, classes] by label and prediction, if "confusion" was chosen; else NULL */
    int64_t classes;          /* of `confusion` */
    /* The names of the classes by number, UTF-8, as long as `metrics`; NULL: neither the data nor the training has
     * names. */
    const char *const *class_names;
    size_t n_class_names;
} ampc_evaluation;

typedef struct ampc_train_options { /* the options of `ampc-run train`, with the same values */
    size_t struct_size;
    const char *data;      /* such as "npz:FILE" or "csv:FILE,validation=0.1"; see docs/data.md; NULL: `dataset` */
    int64_t steps, epochs; /* exactly one of the two must be nonzero */
    int64_t batch;         /* 0: the fixed batch of the model */
    double lr;             /* 0: the initial rate of the optimizer */
    const char *lr_schedule;
    uint64_t seed;
    const char *checkpoint_dir; /* NULL: save nothing; AMPC_USAGE if another training uses the folder */
    int64_t save_every;         /* in steps; the final state is always saved */
    int keep;                   /* number of checkpoint files to keep; at least 2 */
    int resume, allow_fallback;
    /* Called after each step. A nonzero return value ends the run, which is saved and reported as success. The
     * callback may inspect and evaluate the session, save checkpoints and set weights; freeing the session, selecting
     * results, loading a checkpoint and training on it are refused. */
    int (*progress)(void *user, const ampc_step_result *step);
    void *user;
    int reset_optimizer; /* with resume: see ampc_load_options */
    int no_loss_scaling; /* switch loss scaling off in this run: see ampc_set_loss_scaling */
    int workers;         /* threads that read batches ahead; 0: one for data that are decoded, else none; -1: none */
    /* Samples, described like `data`, on which the session is evaluated after each epoch, and at the end of a run that
     * ends within one. The next four members require them. */
    const char *eval_data;
    const char *metrics;    /* see ampc_evaluate_metrics */
    const char *best;       /* "METRIC[,min-delta=X]": saves best.safetensors in checkpoint_dir when it improves */
    const char *early_stop; /* "METRIC[,patience=N][,min-delta=X]": ends the run N evaluations after the best one */
    /* Called after each evaluation with `user`, under the conditions of `progress`. */
    void (*evaluated)(void *user, int64_t step, const ampc_evaluation *result);
    const ampc_data *dataset;      /* the data, instead of `data` */
    const ampc_data *eval_dataset; /* the samples to evaluate on, instead of `eval_data` */
    const char *log;               /* file to append a JSON object per step and evaluation to (docs/formats.md) */
    const char *tensorboard;       /* folder for a file of TensorBoard events */
    const char *trace;             /* file for a Chrome trace of batches, steps, evaluations and checkpoints */
    /* Nonzero: continue after a skipped step that no loss scale explains, and, without loss scaling, do not examine the
     * state. */
    int allow_skipped_steps;
} ampc_train_options;

/* Runs a complete training. In a module compiled with `accumulate`, a step is a window of so many batches. A resumed
 * run is bitwise identical to an uninterrupted one. Fails like ampc_train_step, and with the errors of reading data and
 * checkpoints. */
AMPC_API ampc_status ampc_train(ampc_session *session, const ampc_train_options *options);

/* Runs every sample of a data set (of its test split, if it has one) through "eval", or through "infer" if there is
 * no loss. `batch` 0 selects a batch size automatically. Fails like ampc_session_run, and with the errors of reading
 * data. */
AMPC_API ampc_status ampc_evaluate(ampc_session *session, const char *data, int64_t batch, ampc_evaluation *result);
/* The same with metrics chosen by name: "accuracy,top5,perplexity,f1_macro,f1_micro,iou,auc,confusion,mse,mae,r2"
 * (docs/training.md). NULL: those that belong to the loss. Also fails with AMPC_USAGE for a metric that has no meaning
 * for the model and the data; the message states why. */
AMPC_API ampc_status ampc_evaluate_metrics(ampc_session *session, const char *data, int64_t batch, const char *metrics,
                                           ampc_evaluation *result);
/* The same for a data set of the caller; of its validation part, if its options hold one out. */
AMPC_API ampc_status ampc_evaluate_data(ampc_session *session, const ampc_data *data, int64_t batch,
                                        const char *metrics, ampc_evaluation *result);

/* Runs every sample of a data set, described like `data` of ampc_train_options, through "infer" in stored order and
 * writes the outputs to `path`, which must end in ".npz" or ".csv" (see `predict` in ampc-run(1)). Fails with
 * AMPC_USAGE (another suffix), AMPC_UNSUPPORTED (an output cannot be divided into samples), AMPC_IO, otherwise like
 * ampc_evaluate; the file is then unchanged. */
AMPC_API ampc_status ampc_predict(ampc_session *session, const char *data, int64_t batch, const char *path);
/* The same for a data set of the caller. */
AMPC_API ampc_status ampc_predict_data(ampc_session *session, const ampc_data *data, int64_t batch, const char *path);

/* ---- checkpoints ----------------------------------------------------------------------------------------------- */

typedef struct ampc_position { /* position in the caller's data, stored but not interpreted */
    uint64_t seed, epoch, batch;
} ampc_position;

/* Writes the complete training state atomically to one safetensors file. `position` may be NULL. */
AMPC_API ampc_status ampc_checkpoint_save(ampc_session *session, const char *path, const ampc_position *position);
typedef struct ampc_load_options {
    size_t struct_size;
    int reset_optimizer;       /* nonzero: start the optimizer again: its state, step count and learning rate */
    int weights_only;          /* nonzero: load only parameters and buffers */
    const char *const *reinit; /* weights_only: n_reinit globs; matching parameters and buffers are left alone */
    size_t n_reinit;
} ampc_load_options;

/* Verifies the complete file, then loads it. The module may differ from the one that saved it in its options: the
 * network must be the same. With another precision everything but the loss scaler is loaded; the scaler keeps its state
 * if both modules scale dynamically, else it starts from its initial state. Another optimizer is AMPC_REJECTED, unless
 * reset_optimizer is set. With weights_only, any model that has the parameters and buffers with these types accepts
 * them, and the file may be a safetensors file of another program that has them by name, such as a state_dict of
 * PyTorch. Fails with AMPC_REJECTED (corrupt file, or a checkpoint of another model), AMPC_USAGE (a glob that matches
 * nothing), AMPC_IO or AMPC_NO_MEMORY; the session is then unchanged. `position` may be NULL; weights_only does not
 * set it. */
AMPC_API ampc_status ampc_checkpoint_load_with(ampc_session *session, const char *path,
                                               const ampc_load_options *options, ampc_position *position);
/* The same without options; and the same with weights_only. */
AMPC_API ampc_status ampc_checkpoint_load(ampc_session *session, const char *path, ampc_position *position);
AMPC_API ampc_status ampc_checkpoint_load_weights(ampc_session *session, const char *path);

/* Writes the trained model for inference as ONNX: the imported file with its names and opset, with the trained
 * weights (external data goes to PATH.data) and with BatchNormalization and Dropout in inference form. Existing files
 * are replaced atomically. Fails with AMPC_IO (also if the imported file no longer exists), AMPC_REJECTED (the
 * imported file has changed), AMPC_UNSUPPORTED (a node reads batch statistics) or AMPC_NO_MEMORY. */
AMPC_API ampc_status ampc_export_onnx(ampc_session *session, const char *path);
/* The same for one model of a recipe. AMPC_USAGE: there is no model of that name, or no recipe. */
AMPC_API ampc_status ampc_export_model(ampc_session *session, const char *model, const char *path);

#ifdef __cplusplus
}
#endif

#endif
