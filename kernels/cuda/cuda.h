/* cuda.h - what the host side of the CUDA kernels shares: their table, the context, launches, errors.
 *
 * A family is FAMILY.cu (kernels only), FAMILY.h (their argument structs, for both sides, where there are any) and
 * FAMILY.c (the k_kernel entries). `prepare` looks kernels up, makes descriptors and sizes workspace; `run` enqueues
 * on the context's stream and may be recorded into a graph: it neither allocates, waits, nor reads device memory. */
#ifndef AMPC_CUDA_H
#define AMPC_CUDA_H

#include "kernels/cuda/api.h"
#include "kernels/cuda/rows.h"
#include "kernels/kernel.h"

#include <kernels/cuda/fatbins.h> /* generated: CUDA_FAMILY_MAP, a row X(family) for each .cu file */

/* cuda_WORD for each word of the kernel column; table.c refers to all of them. */
#define OP(name, amp, traits, infer, fold, grad, kernel) extern const k_kernel cuda_##kernel;
#include "ir/ops.def"

typedef enum cuda_family {
#define CUDA_FAMILY_ENUM(name) CUDA_FAMILY_##name,
    CUDA_FAMILY_MAP(CUDA_FAMILY_ENUM)
#undef CUDA_FAMILY_ENUM
        CUDA_FAMILY_COUNT
} cuda_family;

enum {
    CUDA_ALIGNMENT = 256,             /* of arena and storage addresses; libraries prefer it */
    CUDA_TILE = 8,                    /* elements a thread handles at a time (tile.cuh) */
    CUDA_BLOCK = 256,                 /* threads of a block where nothing speaks for another size */
    CUDA_MOST_BLOCKS = 132 * 16,      /* the same on every device, so that sums which blocks share have one order */
    CUDA_BLOCKS_EACH = 16,            /* of a grid-stride launch, for each multiprocessor of the device */
    CUDA_LT_WORKSPACE = 32 << 20,     /* bytes, the library's advice for sm_90 */
    CUDA_MOST_REASON = 512            /* bytes of what cuDNN says of an error */
};

/* One device, opened for one session. */
typedef struct cuda_context {
    int device;
    int multiprocessors;
    char *described;             /* the text that describes the device; NULL: it is there */
    cudaStream_t stream;         /* all kernels and copies of a step */
    cudaStream_t copies;         /* uploads that overlap with a step */
    cudaEvent_t copied;          /* what the uploads so far will have passed */
    int *fault;                  /* device memory, see kernels/kernel.h */
    cublasLtHandle_t lt;         /* NULL until cuda_open_lt */
    void *lt_workspace;          /* device memory, CUDA_LT_WORKSPACE bytes; NULL until then */
    cudnnHandle_t dnn;           /* NULL until cuda_open_dnn */
    cudnnBackendDescriptor_t dnn_device; /* its properties, NULL until the first plan */
    struct dnn_plan *dnn_plans;  /* dnn.h */
    struct cuda_tuning *tuning;  /* what was measured before; NULL until first needed */
    struct cuda_generation *generation; /* generate.h; NULL until first needed */
    cudaKernel_t commit;         /* see commit.cu */
    cudaLibrary_t families[CUDA_FAMILY_COUNT]; /* NULL until first needed */
} cuda_context;

static inline cuda_context *cuda_of(const k_context *ctx) { return (cuda_context *)ctx->device; }
static inline bool cuda_wanted(const k_view *v) { return k_present(v) && v->data; }
/* Address of operand (result) i of n; NULL when it is absent (not wanted). */
static inline void *cuda_data(const k_view *views, int i, int n)
{
    return i < n && k_present(&views[i]) ? views[i].data : NULL;
}

/* Opens the driver, cudart and device `index` of those visible. AMPC_DEVICE with one line when it is not to be had. */
ampc_status cuda_context_open(k_context *ctx, int index);
/* A device that is only described: kernels prepare for it and can never run (described.c). */
ampc_status cuda_context_describe(k_context *ctx, const char *text, int multiprocessors);
void cuda_context_close(k_context *ctx); /* NULL device allowed */
/* Open the library's handle on first need. */
ampc_status cuda_open_lt(const k_context *ctx);
ampc_status cuda_open_dnn(const k_context *ctx);

static inline bool cuda_is_described(const k_context *ctx) { return cuda_of(ctx)->described != NULL; }
/* Makes cuDNN find a driver where the machine has none: it hides the engines that compile their kernel from a process
 * without one. */
void cuda_open_described_driver(void);

/* ---- errors: the reason goes into ctx->error ---- */

ampc_status cuda_fail(const k_context *ctx, ampc_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The status of a cudart call: AMPC_NO_MEMORY for exhausted memory, else AMPC_DEVICE naming the call. */
ampc_status cuda_status(const k_context *ctx, cudaError_t error, const char *call);
ampc_status cuda_lt_status(const k_context *ctx, cublasStatus_t error, const char *call);
ampc_status cuda_dnn_status(const k_context *ctx, cudnnStatus_t error, const char *call);
/* The name of the status, and what the library says of the error that it met last in this thread. */
void cuda_dnn_reason(cudnnStatus_t error, char out[CUDA_MOST_REASON]);
#define CUDA_CALL(ctx, call) CUDA_FORWARD(cuda_status(ctx, cuda.call, #call))
#define CUDA_LT_CALL(ctx, call) CUDA_FORWARD(cuda_lt_status(ctx, cuda.call, #call))
#define CUDA_DNN_CALL(ctx, call) CUDA_FORWARD(cuda_dnn_status(ctx, cuda.call, #call))
#define CUDA_FORWARD(expression)                                                                   \
    do {                                                                                           \
        ampc_status forwarded_ = (expression);                                                     \
        if (forwarded_ != AMPC_OK) return forwarded_;                                              \
    } while (0)

/* ---- commits ---- */

/* Enqueues a copy that does nothing once the fault word is set. */
ampc_status cuda_commit(const k_context *ctx, void *dst, const void *src, size_t bytes);

/* ---- several calls as one ---- */

/* How many calls of the op may run as one launch: 1 where they may not. */
int cuda_together(ir_op op);
/* n calls of such an op that agree in attributes, types and operands without dimensions, each in memory of its own. */
ampc_status cuda_run_together(const k_args *args, int n);

/* ---- programs ---- */

/* Makes what was prepared ready to run: the kernels of programs are compiled here. AMPC_DEVICE: NVRTC cannot be had. */
ampc_status cuda_prepared(const k_context *ctx);

/* ---- launches ---- */

/* The kernel `name` of a family, from its embedded code. Only in prepare. */
ampc_status cuda_find(const k_context *ctx, cuda_family family, const char *name, cudaKernel_t *out);
/* Enqueues; `arguments` are copied. blocks 0: nothing to do. AMPC_UNSUPPORTED: more blocks than a grid can have. */
ampc_status cuda_launch(const k_args *args, cudaKernel_t kernel, int64_t blocks, unsigned threads,
                        size_t shared_bytes, void **arguments);
/* Blocks of a grid-stride launch over n items, `each` items a block; at most CUDA_MOST_BLOCKS. */
static inline int64_t cuda_blocks(int64_t n, int64_t each)
{
    int64_t blocks = (n + each - 1) / each;
    return blocks < CUDA_MOST_BLOCKS ? blocks : CUDA_MOST_BLOCKS;
}
/* The same, at most as many as fill this device: only where the result does not depend on the number of blocks. */
static inline int64_t cuda_grid(const k_args *args, int64_t n, int64_t each)
{
    const int64_t blocks = (n + each - 1) / each;
    const int64_t most = (int64_t)cuda_of(args->ctx)->multiprocessors * CUDA_BLOCKS_EACH;
    return blocks < most ? blocks : most;
}

/* rows.c: v as rows along an axis; the threads that take a row, as the last part of a kernel's name ("warp", "block" or
 * "lane"); blocks of ROW_BLOCK threads for all rows. */
cuda_rows cuda_rows_of(const k_view *v, int64_t axis);
const char *cuda_rows_kernel(const cuda_rows *r);
int64_t cuda_rows_blocks(const cuda_rows *r);

/* A state that is one kernel: what most kernels prepare. */
typedef struct cuda_one {
    cudaKernel_t kernel;
} cuda_one;
ampc_status cuda_prepare_one(const k_args *args, cuda_family family, const char *name, void **state);
/* Where a kernel has nothing but malloc'ed memory to release. */
void cuda_release(void *state);

/* A kernel exists for f32, f16, bf16, integers and bool; f64 is refused, naming the op. */
ampc_status cuda_check_dtypes(const k_args *args);

#endif
