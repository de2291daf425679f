/* cuda.h - declarations shared by the host side of the CUDA kernels: kernel table, context, launches, errors.
 *
 * A kernel family FAMILY consists of FAMILY.cu (device code only), FAMILY.c (its k_kernel entries) and, if its kernels
 * have argument structs, FAMILY.h, which both sides include. `prepare` looks up kernels, creates descriptors and
 * computes workspace sizes. `run` enqueues work on the context's stream and may be captured into a CUDA graph, so it
 * must not allocate, wait or read device memory. */
#ifndef AMPC_CUDA_H
#define AMPC_CUDA_H

#include "kernels/cuda/api.h"
#include "kernels/cuda/rows.h"
#include "kernels/kernel.h"

#include <kernels/cuda/fatbins.h> /* generated: CUDA_FAMILY_MAP, one X(family) per .cu file */

/* Declares cuda_WORD for each word in the kernel column of ops.def. table.c refers to all of them. */
#define OP(name, amp, traits, infer, fold, grad, kernel) extern const k_kernel cuda_##kernel;
#include "ir/ops/ops.def"

typedef enum cuda_family {
#define CUDA_FAMILY_ENUM(name) CUDA_FAMILY_##name,
    CUDA_FAMILY_MAP(CUDA_FAMILY_ENUM)
#undef CUDA_FAMILY_ENUM
        CUDA_FAMILY_COUNT
} cuda_family;

enum {
    CUDA_ALIGNMENT = 256,         /* of arena and storage addresses, in bytes; libraries prefer it */
    CUDA_TILE = 8,                /* elements per thread and iteration (tile.cuh) */
    CUDA_BLOCK = 256,             /* default number of threads per block */
    CUDA_MAX_BLOCKS = 132 * 16,   /* independent of the device, to fix the order of sums across blocks */
    CUDA_BLOCKS_EACH = 16,        /* per multiprocessor, in grid-stride launches */
    CUDA_LT_WORKSPACE = 32 << 20, /* bytes; the library's recommendation for sm_90 */
    CUDA_MAX_REASON = 512         /* bytes of a cuDNN error message */
};

/* An open device. Owned by one session. */
typedef struct cuda_context {
    int device;
    int multiprocessors;
    char *described;                           /* text of the device description; NULL for a real device */
    cudaStream_t stream;                       /* all kernels and copies of a step */
    cudaStream_t copies;                       /* uploads that overlap with a step */
    cudaEvent_t copied;                        /* recorded after the last upload in `copies` */
    int *fault;                                /* device memory, see kernels/kernel.h */
    cublasLtHandle_t lt;                       /* NULL until cuda_open_lt */
    void *lt_workspace;                        /* device memory, CUDA_LT_WORKSPACE bytes; NULL until cuda_open_lt */
    cudnnHandle_t dnn;                         /* NULL until cuda_open_dnn */
    cudnnBackendDescriptor_t dnn_device;       /* device properties; NULL until the first plan */
    struct dnn_plan *dnn_plans;                /* see dnn.h */
    struct cuda_tuning *tuning;                /* tuning results; NULL until first needed */
    struct cuda_generation *generation;        /* see generate.h; NULL until first needed */
    struct cuda_communicator *communicator;    /* see communicator.h; NULL: there is only one rank */
    cudaKernel_t commit;                       /* see commit.cu */
    cudaLibrary_t families[CUDA_FAMILY_COUNT]; /* NULL until first needed */
} cuda_context;

static inline cuda_context *cuda_of(const k_context *ctx) { return (cuda_context *)ctx->device; }
static inline bool cuda_is_used(const k_view *v) { return k_present(v) && v->data; }
/* Returns the address of operand (or result) i of n, or NULL if the operand is absent (or the result not wanted). */
static inline void *cuda_data(const k_view *views, int i, int n)
{
    return i < n && k_present(&views[i]) ? views[i].data : NULL;
}

/* Opens the driver, cudart and visible device `index`. On failure returns AMPC_DEVICE and sets a one-line error. */
ampc_status cuda_context_open(k_context *ctx, int index);
int cuda_device_count(void); /* 0: CUDA cannot be used */
/* Opens a described device: kernels can be prepared for it but never run (described.c). */
ampc_status cuda_context_describe(k_context *ctx, const char *text, int multiprocessors);
void cuda_context_close(k_context *ctx); /* ctx->device may be NULL */
/* Open the library's handle if it is not open yet. */
ampc_status cuda_open_lt(const k_context *ctx);
ampc_status cuda_open_dnn(const k_context *ctx);
/* For steps that can do without it: AMPC_UNSUPPORTED if it is missing or too old. */
ampc_status cuda_open_optional_dnn(const k_context *ctx);

static inline bool cuda_is_described(const k_context *ctx) { return cuda_of(ctx)->described != NULL; }
/* Loads a substitute driver library on machines without a driver. Otherwise cuDNN hides the engines that compile their
 * kernels at run time. */
void cuda_open_described_driver(void);

/* ---- errors: the message is written to ctx->error ---- */

ampc_status cuda_fail(const k_context *ctx, ampc_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Convert a library's status: AMPC_NO_MEMORY if memory is exhausted, otherwise AMPC_DEVICE with the call's name in the
 * message. */
ampc_status cuda_status(const k_context *ctx, cudaError_t error, const char *call);
ampc_status cuda_lt_status(const k_context *ctx, cublasStatus_t error, const char *call);
ampc_status cuda_dnn_status(const k_context *ctx, cudnnStatus_t error, const char *call);
/* Writes the name of the status and cuDNN's message for the last error in this thread. */
void cuda_dnn_reason(cudnnStatus_t error, char out[CUDA_MAX_REASON]);
#define CUDA_CALL(ctx, call) CUDA_FORWARD(cuda_status(ctx, cuda.call, #call))
#define CUDA_LT_CALL(ctx, call) CUDA_FORWARD(cuda_lt_status(ctx, cuda.call, #call))
#define CUDA_DNN_CALL(ctx, call) CUDA_FORWARD(cuda_dnn_status(ctx, cuda.call, #call))
#define CUDA_FORWARD(expression) \
    do { \
        ampc_status forwarded_ = (expression); \
        if (forwarded_ != AMPC_OK) return forwarded_; \
    } while (0)

/* ---- commits ---- */

/* Enqueues a copy that does nothing if the fault word is set. */
ampc_status cuda_commit(const k_context *ctx, void *dst, const void *src, size_t bytes);

/* ---- fused kernels ---- */

/* Completes preparation by compiling all pending fused kernels. Returns AMPC_DEVICE if NVRTC is not available. */
ampc_status cuda_prepared(const k_context *ctx);

/* ---- launches ---- */

/* A kernel of a library; *out is NULL if there is none of the name. */
ampc_status cuda_get_kernel(const k_context *ctx, cudaLibrary_t library, const char *name, cudaKernel_t *out);
/* Looks up kernel `name` in the family's embedded code. Call only from prepare. */
ampc_status cuda_find(const k_context *ctx, cuda_family family, const char *name, cudaKernel_t *out);
/* Likewise, for launches with so much dynamic shared memory, which may exceed the default limit of 48 KiB. */
ampc_status cuda_find_large(const k_context *ctx, cuda_family family, const char *name, size_t shared_bytes,
                            cudaKernel_t *out);
/* Enqueues the kernel; `arguments` are copied. Does nothing if blocks is 0. Returns AMPC_UNSUPPORTED if blocks exceeds
 * the grid limit. */
ampc_status cuda_launch(const k_args *args, cudaKernel_t kernel, int64_t blocks, unsigned threads, size_t shared_bytes,
                        void **arguments);
ampc_status cuda_launch_on(const k_args *args, cudaStream_t stream, cudaKernel_t kernel, int64_t blocks,
                           unsigned threads, size_t shared_bytes, void **arguments);
/* The carrier of formulas on dtype t (element.cuh): f32, i64 (also for bool) or u64; and its suffix in the names of
 * kernels. */
static inline ir_dtype cuda_carrier(ir_dtype t) { return ir_dtype_is_float(t) ? IR_f32 : t == IR_u64 ? t : IR_i64; }
static inline const char *cuda_carrier_name(ir_dtype t)
{
    const ir_dtype carrier = cuda_carrier(t);
    return carrier == IR_f32 ? "float" : carrier == IR_u64 ? "uint64_t" : "int64_t";
}
/* Blocks of a grid-stride launch over n items with `each` items per block; at most CUDA_MAX_BLOCKS. */
static inline int64_t cuda_blocks(int64_t n, int64_t each)
{
    int64_t blocks = (n + each - 1) / each;
    return blocks < CUDA_MAX_BLOCKS ? blocks : CUDA_MAX_BLOCKS;
}
/* Like cuda_blocks, but limited by what fills this device. Use only if the result does not depend on the number of
 * blocks. */
static inline int64_t cuda_grid(const k_args *args, int64_t n, int64_t each)
{
    const int64_t blocks = (n + each - 1) / each;
    const int64_t limit = (int64_t)cuda_of(args->ctx)->multiprocessors * CUDA_BLOCKS_EACH;
    return blocks < limit ? blocks : limit;
}

/* rows.c: views v as rows along an axis; the suffix of the kernel name for these rows ("warp", "block" or "lane", after
 * the threads that process a row); and the number of blocks of ROW_BLOCK threads for all rows. */
cuda_rows cuda_rows_of(const k_view *v, int64_t axis);
const char *cuda_rows_kernel(const cuda_rows *r);
int64_t cuda_rows_blocks(const cuda_rows *r);

/* The state of most kernels: a single device function. */
typedef struct cuda_one {
    cudaKernel_t kernel;
} cuda_one;
/* Allocates a zeroed kernel state of `bytes` bytes if the device supports the types of all operands and results. */
ampc_status cuda_new_state(const k_args *args, size_t bytes, void **state);
ampc_status cuda_prepare_one(const k_args *args, cuda_family family, const char *name, void **state);
/* The release function of kernels whose state is only malloc'ed memory. */
void cuda_release(void *state);

/* Returns AMPC_UNSUPPORTED if an operand or result is f64. All other dtypes are supported. */
ampc_status cuda_check_dtypes(const k_args *args);

#endif
