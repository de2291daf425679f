/* dnn.h - plans of small cuDNN operation graphs.
 *
 * A graph is put together from descriptors; the first call that fails is kept in `status` and those after it do
 * nothing, so that building reads straight on. dnn_plan_of finds an engine for it: the first that can be had without
 * trade of precision or repeatability, or the fastest where the context tunes. Plans belong to the context and are
 * shared by everything with the same key; those that took long to make are kept on disk. Nothing here needs a device
 * before dnn_run: plans are made for the properties of one. */
#ifndef AMPC_CUDA_DNN_H
#define AMPC_CUDA_DNN_H

#include "kernels/convolution.h"
#include "kernels/cuda/cache.h"
#include "kernels/cuda/cuda.h"

enum { DNN_MOST_AXES = 5, DNN_MOST_TENSORS = 6, DNN_MOST_MADE = 24, DNN_MOST_OPS = 4 };
enum { DNN_RULES = 2 }; /* how candidates are ordered: counts up when that changes, because a choice is a position */

typedef cudnnBackendDescriptor_t dnn_descriptor;

/* A tensor in device memory: dims in the order N, C, spatial; strides in elements say the layout. */
typedef struct dnn_layout {
    int rank;
    int64_t dims[DNN_MOST_AXES], strides[DNN_MOST_AXES];
} dnn_layout;

typedef struct dnn_graph {
    const k_context *ctx;
    ampc_status status;
    bool exact;                            /* f32 operands: engines that round them to fewer bits are left out */
    dnn_descriptor made[DNN_MOST_MADE];    /* everything, in the order of making */
    dnn_descriptor ops[DNN_MOST_OPS];
    int n_made, n_ops;
    int64_t uids[DNN_MOST_TENSORS];        /* of the tensors that are data */
    size_t bytes[DNN_MOST_TENSORS];
    int n_tensors;
    cuda_cache_key contents; /* of all that was made and set */
} dnn_graph;

typedef struct dnn_plan dnn_plan;

dnn_graph dnn_begin(const k_context *ctx);
/* Data with the number `uid`, or an intermediate value that never reaches memory. */
dnn_descriptor dnn_tensor(dnn_graph *g, int64_t uid, ir_dtype dtype, const dnn_layout *layout);
dnn_descriptor dnn_intermediate(dnn_graph *g, int64_t uid, ir_dtype dtype, const dnn_layout *layout);
/* Any other descriptor: made, its attributes set, finished. */
dnn_descriptor dnn_make(dnn_graph *g, cudnnBackendDescriptorType_t type);
void dnn_set(dnn_graph *g, dnn_descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
             int64_t count, const void *values);
void dnn_set_descriptor(dnn_graph *g, dnn_descriptor d, cudnnBackendAttributeName_t name, dnn_descriptor value);
void dnn_finish(dnn_graph *g, dnn_descriptor d);
/* Finishes an operation and appends it to the graph. */
void dnn_append(dnn_graph *g, dnn_descriptor operation);
/* A convolution or one of its gradients, with f32 sums, among the tensors x, w, y (or their gradients). One spatial
 * axis is the last of two in their layouts. */
void dnn_append_convolution(dnn_graph *g, conv_kind kind, const conv_geometry *c, const dnn_descriptor *xwy);
/* y = op(x, b) in f32, element by element; b broadcasts; NULL where the mode has one operand. */
void dnn_append_pointwise(dnn_graph *g, cudnnPointwiseMode_t mode, dnn_descriptor x, dnn_descriptor b,
                          dnn_descriptor y);

/* The plan that was made before under `key`, or NULL. */
const dnn_plan *dnn_plan_find(const k_context *ctx, const char *key);
/* Plans the graph and frees it, also on failure. AMPC_UNSUPPORTED: cuDNN has no engine for it. */
ampc_status dnn_plan_of(dnn_graph *g, const char *key, const dnn_plan **out);
size_t dnn_plan_workspace(const dnn_plan *plan);
/* Configurations that the choice was from, this one included; 0: the plan was kept and nothing was asked. */
int dnn_plan_engines(const dnn_plan *plan);
/* Enqueues. data[i] is the address of the tensor uids[i]. */
ampc_status dnn_run(const k_context *ctx, const dnn_plan *plan, int n, const int64_t *uids, void *const *data,
                    void *workspace);
/* Frees all plans of the context. */
void dnn_close(cuda_context *c);

#endif
