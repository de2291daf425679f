/* dnn.h - plans of small cuDNN operation graphs.
 *
 * A graph is built from descriptors. The first failing call is recorded in `status` and later calls do nothing, so
 * callers check errors only once. dnn_plan_of selects an engine: the first that keeps full precision and determinism,
 * or the fastest of these if the context tunes. Plans belong to the context and are shared by all users of the same
 * key; plans that are slow to create are cached on disk. No device is needed before dnn_run, because plans are created
 * for given device properties. */
#ifndef AMPC_CUDA_DNN_H
#define AMPC_CUDA_DNN_H

#include "kernels/convolution.h"
#include "kernels/cuda/cache.h"
#include "kernels/cuda/cuda.h"

enum {
    DNN_MAX_AXES = 5,
    DNN_MAX_TENSORS = 6,
    DNN_MAX_SCALARS = 2,
    DNN_MAX_MADE = 52,
    DNN_MAX_OPS = 14,
    DNN_MAX_REFUSED = 4
};
enum { DNN_RULES = 3 }; /* version of the candidates' order: tuning results are positions in it */

typedef cudnnBackendDescriptor_t dnn_descriptor;

/* A tensor in device memory: dims in the order N, C, spatial; strides in elements determine the layout. */
typedef struct dnn_layout {
    int rank;
    int64_t dims[DNN_MAX_AXES], strides[DNN_MAX_AXES];
} dnn_layout;

/* Numbers that a graph reads from the host when it runs. */
typedef struct dnn_scalars {
    int n;
    int64_t uids[DNN_MAX_SCALARS];
    float values[DNN_MAX_SCALARS];
} dnn_scalars;

typedef struct dnn_graph {
    const k_context *ctx;
    ampc_status status;
    bool exact;                        /* f32 operands: exclude engines that round them to fewer bits */
    bool precompiled;                  /* exclude engines that compile their kernel */
    dnn_descriptor made[DNN_MAX_MADE]; /* all descriptors, in order of creation */
    dnn_descriptor ops[DNN_MAX_OPS];
    int n_made, n_ops;
    int64_t refused[DNN_MAX_REFUSED]; /* engines that must not be used, in the library's numbering */
    int n_refused;
    int64_t uids[DNN_MAX_TENSORS]; /* of the tensors in memory */
    size_t bytes[DNN_MAX_TENSORS];
    int n_tensors;
    dnn_scalars scalars;
    int64_t alignment;       /* of the tensors in memory, in bytes; CUDA_ALIGNMENT if not changed */
    cuda_cache_key contents; /* hash of all descriptors and attributes */
} dnn_graph;

typedef struct dnn_plan dnn_plan;

dnn_graph dnn_begin(const k_context *ctx);
/* Create a tensor descriptor: data in memory identified by `uid`, or an intermediate that never reaches memory. */
dnn_descriptor dnn_tensor(dnn_graph *g, int64_t uid, ir_dtype dtype, const dnn_layout *layout);
dnn_descriptor dnn_intermediate(dnn_graph *g, int64_t uid, ir_dtype dtype, const dnn_layout *layout);
/* Creates a descriptor of a number that broadcasts to `rank` axes. Its value belongs to the plan, so the plan's key
 * must contain it. */
dnn_descriptor dnn_scalar(dnn_graph *g, int64_t uid, int rank, float value);
/* Create any other descriptor, set its attributes, finalise it. */
dnn_descriptor dnn_make(dnn_graph *g, cudnnBackendDescriptorType_t type);
void dnn_set(dnn_graph *g, dnn_descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
             int64_t count, const void *values);
void dnn_set_descriptor(dnn_graph *g, dnn_descriptor d, cudnnBackendAttributeName_t name, dnn_descriptor value);
void dnn_finish(dnn_graph *g, dnn_descriptor d);
/* Finalises an operation and appends it to the graph. */
void dnn_append(dnn_graph *g, dnn_descriptor operation);
/* Appends a convolution or one of its gradients, accumulating in f32. xwy: descriptors of x, w and y (or of their
 * gradients). 1-d convolutions use layouts with two spatial axes, of which the first has size 1. */
void dnn_append_convolution(dnn_graph *g, conv_kind kind, const conv_geometry *c, const dnn_descriptor *xwy);
/* Appends y = op(x, b), elementwise in f32. b broadcasts; NULL for modes with one operand. */
void dnn_append_pointwise(dnn_graph *g, cudnnPointwiseMode_t mode, dnn_descriptor x, dnn_descriptor b,
                          dnn_descriptor y);
/* Appends dx = dy * slope at x of a function whose gradient is `mode`. */
void dnn_append_pointwise_grad(dnn_graph *g, cudnnPointwiseMode_t mode, dnn_descriptor dy, dnn_descriptor x,
                               dnn_descriptor dx);
/* Appends y = the position along an axis of x, in i32. */
void dnn_append_index(dnn_graph *g, int64_t axis, dnn_descriptor x, dnn_descriptor y);
/* Appends y = condition ? x : b, elementwise. */
void dnn_append_select(dnn_graph *g, dnn_descriptor x, dnn_descriptor b, dnn_descriptor condition, dnn_descriptor y);
/* Appends a reduction in f32 of the axes that have size 1 in y. */
void dnn_append_reduction(dnn_graph *g, cudnnReduceTensorOp_t operator, dnn_descriptor x, dnn_descriptor y);
/* Appends y = a b of the last two axes, accumulating in f32. */
void dnn_append_matmul(dnn_graph *g, dnn_descriptor a, dnn_descriptor b, dnn_descriptor y);
/* Appends the sums of x and of its squares over all axes but the channels; sum, squares: [1, C, 1, ..] in f32. */
void dnn_append_statistics(dnn_graph *g, dnn_descriptor x, dnn_descriptor sum, dnn_descriptor squares);

/* Excludes an engine whose results are known to be wrong for this graph. */
void dnn_refuse(dnn_graph *g, int64_t engine);

/* Returns the existing plan for `key`, or NULL. While the context tunes, only plans that were chosen so count. */
const dnn_plan *dnn_plan_find(const k_context *ctx, const char *key);
/* Plans the graph and frees it, also on failure. Returns AMPC_UNSUPPORTED if cuDNN has no engine for the graph. The
 * context owns *out. */
ampc_status dnn_plan_of(dnn_graph *g, const char *key, const dnn_plan **out);
size_t dnn_plan_workspace(const dnn_plan *plan);
/* Number of configurations among which the plan was chosen; 0 if the plan came from the disk cache. */
int dnn_plan_engines(const dnn_plan *plan);
/* Enqueues the plan. data[i] is the address of the tensor uids[i]. */
ampc_status dnn_run(const k_context *ctx, const dnn_plan *plan, int n, const int64_t *uids, void *const *data,
                    void *workspace);
/* Frees all plans of the context. */
void dnn_close(cuda_context *c);

#endif
