/* ampc_operator.h - custom operators: operators of other domains than ONNX's own that the caller implements. Included
 * by ampc.h, and installed with it; docs/custom.md has an example.
 *
 * A table of functions (ampc_operator) is registered with a context, before a model that uses the operator is imported.
 * The operator then is like any other: its results are inferred, mixed precision colours it and inserts casts, training
 * differentiates through it, and the model is exported with the node as it was.
 *
 * Rules for the functions of a table:
 *   - They return AMPC_OK or a failure, and then may write a reason, one line, into `message`. The call of ampc.h that
 *     led to the failure ends with that status and a message that names the node and contains the reason.
 *   - They run on the thread that called ampc.h, one at a time per context. A table that is registered with several
 *     contexts runs in several threads at once if the contexts do. During the call, all calls of ampc.h on the context
 *     and what was created from it fail with AMPC_USAGE; only functions of this header may be called.
 *   - Their results depend only on operands and attributes: equal nodes are computed once, and runs are repeatable.
 *   - What they are given is valid during the call. Arrays have an entry per position of the node, as in the model: a
 *     position that the node omits has dtype 0 and data NULL. The library allocates the structs; a newer one may append
 *     members to ampc_infer_call and ampc_call, whose struct_size tells how many it has.
 *   - The code and `user` must stay valid until the context and everything created from it have been freed. */
#ifndef AMPC_OPERATOR_H
#define AMPC_OPERATOR_H

#include "ampc_status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element types. f16 and bf16 have two bytes; bool has one byte, which is 0 or 1. */
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
    AMPC_BOOL,
    AMPC_U16,
    AMPC_U32,
    AMPC_U64
} ampc_dtype;

/* The largest number of dimensions of a tensor. */
enum { AMPC_MAX_RANK = 12 };

/* ---- attributes ------------------------------------------------------------------------------------------------ */

/* The attributes of a node: numbers, strings, and lists of numbers; nodes with others are refused. The functions return
 * `otherwise`, or NULL and a count of 0, if the node has no attribute of that name and type. */
typedef struct ampc_attributes ampc_attributes;

/* The value of an attribute. */
AMPC_API int64_t ampc_attribute_int(const ampc_attributes *attributes, const char *name, int64_t otherwise);
AMPC_API double ampc_attribute_float(const ampc_attributes *attributes, const char *name, double otherwise);
AMPC_API const char *ampc_attribute_string(const ampc_attributes *attributes, const char *name, const char *otherwise);
AMPC_API const int64_t *ampc_attribute_ints(const ampc_attributes *attributes, const char *name, size_t *count);
AMPC_API const float *ampc_attribute_floats(const ampc_attributes *attributes, const char *name, size_t *count);

/* ---- inference ------------------------------------------------------------------------------------------------- */

/* The type of an operand or result. */
typedef struct ampc_type {
    ampc_dtype dtype; /* 0: the node omits it */
    int rank;
    int64_t dims[AMPC_MAX_RANK]; /* negative: not known yet, see ampc_dim_compute */
} ampc_type;

/* The arguments of `infer`. */
typedef struct ampc_infer_call {
    size_t struct_size;
    const char *node; /* its name */
    const ampc_attributes *attributes;
    size_t n_operands, n_results;
    const ampc_type *operands;
    ampc_type *results; /* to be set; initially zero */
    /* To be set: bytes of workspace that forward and gradient need, 0 for none. Only the call in which all sizes are
     * known counts. */
    size_t workspace, gradient_workspace;
    char *message; /* for the reason of a failure; initially "" */
    size_t message_size;
    void *dims; /* private */
} ampc_infer_call;

/* a + b, a - b, a * b or a / b rounded down (op '+', '-', '*' or '/'), where a and b are sizes: numbers, or sizes that
 * are not known yet. The result is INT64_MIN, which is not a valid size, if it cannot be expressed: b of '/' must be a
 * positive number. */
AMPC_API int64_t ampc_dim_compute(const ampc_infer_call *call, char op, int64_t a, int64_t b);

/* ---- execution ------------------------------------------------------------------------------------------------- */

/* A dense, row-major tensor in the memory of the device. */
typedef struct ampc_view {
    ampc_dtype dtype;
    int rank;
    int64_t dims[AMPC_MAX_RANK];
    size_t bytes;
    void *data; /* NULL: omitted, or a result that is not needed */
} ampc_view;

/* The arguments of the functions that compute. */
typedef struct ampc_call {
    size_t struct_size;
    const char *node;
    const ampc_attributes *attributes;
    size_t n_operands, n_results;
    const ampc_view *operands;
    const ampc_view *results; /* forward writes them, gradient reads them */
    /* For gradient, otherwise NULL. The derivative of the loss with respect to each float result (zeros if the loss
     * does not depend on it) and, to be written, to each operand whose data is not NULL. They have the types of results
     * and operands. */
    const ampc_view *result_gradients;
    const ampc_view *operand_gradients;
    void *workspace; /* of the size that infer has set, 64-byte aligned, uninitialized; on the device */
    int threads;     /* CPU: that the function may use */
    void *stream;    /* CUDA: the cudaStream_t on which to enqueue all work */
    char *message;   /* for the reason of a failure; initially "" */
    size_t message_size;
} ampc_call;

/* Computes the results. No result is computed that has no elements, so a call has at least one that has.
 *
 * On CUDA `data` and `workspace` are device addresses, and the function only enqueues work on the stream. It is called
 * in the first run, and again while the stream is captured into a CUDA graph that later runs replay: it must not wait,
 * allocate, or use another stream except in ways that a capture allows. A session with sync_launch does not capture. */
typedef ampc_status ampc_forward(const ampc_call *call, void *user);

/* ---- the table ------------------------------------------------------------------------------------------------- */

/* The table of an operator: its name, precision and functions. */
typedef struct ampc_operator {
    size_t struct_size; /* sizeof(ampc_operator) */
    const char *domain; /* such as "com.example"; not that of ONNX itself */
    const char *name;   /* the operator type */
    int since;          /* first version of the domain with this form of the operator; 0: 1. Of several registered
                         * versions, a model uses the last that is not newer than its own opset of the domain */

    /* Precision. Without mixed precision, and on f64 models, nothing here changes the types of the model.
     *   float_types  the types that float operands may have: bits 1u << AMPC_F32, ..; 0: only f32, which is mandatory.
     *                In a model in f16 or bf16, an operator without that type gets f32 operands, and its f32 results
     *                are cast back.
     *   colour       "white" (low precision), "black" (f32; default) or "gray" (as its producers), unless a list names
     *                the operator, as DOMAIN::NAME or NAME. An operator without the low type stays f32.
     *   f32_operands bit i: operand i is f32 (f64 in an f64 model) whatever the precision of the others. All other
     *                float operands of a node have one type. */
    unsigned float_types;
    const char *colour;
    uint64_t f32_operands;

    /* Sets the types of all results. Called
     *   - when a model is imported, with the types of the model, and once more with another float type if there are
     *     several: float results that follow the operands also follow them in mixed precision. Sizes that are not known
     *     yet are negative; a result may have such a size, or one that ampc_dim_compute makes of it.
     *   - when a session plans a run, with the final types and all sizes known. The results must then be what the
     *     earlier calls have led to, with these sizes. */
    ampc_status (*infer)(ampc_infer_call *call, void *user);

    /* By device. NULL: the operator does not run there, and runs that need it fail with AMPC_UNSUPPORTED. Without any
     * gradient, ampc_module_compile refuses to train through the operator with AMPC_UNSUPPORTED. */
    ampc_forward *forward_cpu, *gradient_cpu, *forward_cuda, *gradient_cuda;
    /* Bit i: operand i has a gradient; 0: all float operands have one. No derivative flows through the others, so
     * parameters that are read only there are not trained. */
    uint64_t gradient_operands;
    void *user; /* passed to all functions */
} ampc_operator;

/* ---- plug-ins -------------------------------------------------------------------------------------------------- */

/* A plug-in is a shared library with operators for ampc_operators_load and for the option --operators of the programs.
 * It exports one function, ampc_plugin_open, which AMPC_PLUGIN defines in one of its source files:
 *
 *     AMPC_PLUGIN(&scaled_tanh, &other_operator)
 *
 * The function is called whenever a context loads the plug-in. */
enum { AMPC_PLUGIN_VERSION = 1 }; /* of the functions of a table; a library accepts plug-ins of its own version */

/* The operators of a plug-in. */
typedef struct ampc_plugin {
    size_t struct_size; /* sizeof(ampc_plugin) */
    int version;        /* AMPC_PLUGIN_VERSION */
    size_t n_operators;
    const ampc_operator *const *operators;
} ampc_plugin;

typedef const ampc_plugin *ampc_plugin_opener(void); /* type of ampc_plugin_open; NULL is a failure */

#ifdef __cplusplus
#define AMPC_PLUGIN_LINKAGE extern "C"
#else
#define AMPC_PLUGIN_LINKAGE extern
#endif
#define AMPC_PLUGIN(...) \
    AMPC_PLUGIN_LINKAGE __attribute__((visibility("default"))) const ampc_plugin *ampc_plugin_open(void); \
    const ampc_plugin *ampc_plugin_open(void) \
    { \
        static const ampc_operator *const operators[] = {__VA_ARGS__}; \
        static const ampc_plugin plugin = {sizeof plugin, AMPC_PLUGIN_VERSION, sizeof operators / sizeof *operators, \
                                           operators}; \
        return &plugin; \
    }

#ifdef __cplusplus
}
#endif

#endif
