/* kernel.h - the interface between the runtime and the kernels of all devices.
 *
 * A kernel reads and writes dense row-major views. Arithmetic is in f32 (f64 for f64 views; integers in their own type)
 * and each result is stored in its view's dtype; a low-precision result is rounded once. Kernels never allocate while
 * they run: `prepare`, called once per plan step and set of shapes, sizes their workspace and builds their state
 * (library primitives, packed tables), and `bind` makes what runs change.
 *
 * The order of additions depends only on shapes and ctx->threads, so runs with the same number of
 * threads have the same bits.
 *
 * On a discrete device `data` is a device address and `run` only enqueues work. A fault that is detected while the
 * kernel runs (kernels/fault.h) is recorded in the device's fault word, which the session reads together with the
 * outputs. */
#ifndef AMPC_KERNEL_H
#define AMPC_KERNEL_H

#include "ir/base/ampc_status.h"
#include "ir/ops/custom.h"
#include "ir/ops/exponents.h"
#include "ir/ops/ops.h"
#include "kernels/fault.h"

typedef struct k_format k_format;
typedef struct k_ranks k_ranks; /* ranks.h */

typedef struct k_view {
    void *data;     /* 64-byte aligned if the planner placed it. NULL: absent operand or unwanted result (only ops with
                      * the trait DROPS may have an unwanted result 0) */
    ir_dtype dtype; /* IR_NO_DTYPE: absent */
    int rank;
    int64_t dims[IR_MAX_RANK];
    /* An f32 operand is rounded to this low type when it is read (see cpu_rounds); IR_NO_DTYPE: it is not. */
    ir_dtype as;
    /* [N,C,spatial] is stored as [N,spatial,C]; only for ops with the trait SPATIAL. */
    bool channels_last;
    /* The distance in elements between neighbours along each dimension, 1 along the last one, if the view is not dense;
     * only for ops with the trait STRIDED. NULL: dense. */
    const int64_t *strides;
    const k_format *packed; /* `data` is in this format of the kernel's own; NULL: dense and row-major */
} k_view;

/* The number of elements. */
static inline int64_t k_count(const k_view *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->rank; i++) n *= v->dims[i];
    return n;
}
/* The size of the elements. */
static inline size_t k_bytes(const k_view *v) { return (size_t)k_count(v) * ir_dtype_size(v->dtype); }
/* The type of the numbers that the kernel computes with. */
static inline ir_dtype k_read_type(const k_view *v) { return v->as == IR_NO_DTYPE ? v->dtype : v->as; }
static inline bool k_present(const k_view *v) { return v->dtype != IR_NO_DTYPE; }

struct ir_value;

/* Adds the numbers of a value, which a kernel has computed or read, to its statistics. Called by the thread that runs
 * the kernel. */
typedef void k_count_fn(void *user, const struct ir_value *value, const ir_exponents *numbers);

typedef struct k_context {
    int threads; /* for every parallel loop and library call */
    char *error; /* receives the reason of a failure, at most error_size bytes */
    size_t error_size;
    bool tune;           /* choose library algorithms by timing them, not by heuristics */
    bool plan_only;      /* nothing will run: compile no code, allocate no device memory */
    int candidate;       /* for tests: the algorithm at this position of a library's list, from 1; 0: choose one */
    bool oversubscribed; /* other processes compete for the processors (cpu_team_check); never affects results */
    void *device;        /* state of the open device, or NULL */
    custom_ops *custom;  /* operators of the caller; NULL: none */
    k_ranks *ranks;      /* of a distributed training; NULL: this is the only rank */
    k_count_fn *count;   /* receives what fused kernels have counted; NULL: they count nothing */
    void *count_user;
} k_context;

typedef struct k_fused k_fused; /* fused.h */

typedef struct k_args {
    ir_op op;
    int step;         /* position in the plan, recorded in fault words */
    const char *node; /* name of the model node that the step belongs to; NULL: none */
    const k_view *in; /* by operand position */
    k_view *out;      /* by result position */
    int n_in, n_out;
    int listed;              /* elements of the INS slot of the op (k_listed); 0: it has none */
    const ir_attr *attr;     /* by slot; dimensions have been evaluated */
    const ir_layout *layout; /* of custom operators */
    /* For cpu_fused and cuda_fused, what to compute; for other kernels, the activation applied to result 0, or
     * NULL. */
    const k_fused *fused;
    void *workspace; /* of the size `prepare` returned, 64-byte aligned, uninitialized */
    void *state;     /* created by `prepare` */
    void *bound;     /* created by `bind` */
    const k_context *ctx;
} k_args;

/* A kernel. `prepare` sees shapes, dtypes, attributes, and which operands and results are present: their data is not
 * NULL but not valid yet. It may set *state, which `release` frees, also after a failure, and *workspace to a size in
 * bytes. It returns AMPC_UNSUPPORTED, with the reason in ctx->error, if the kernel does not support a dtype or shape.
 * `prepare` and `release` may be NULL.
 *
 * On a device that works in host memory, sessions share states, so `run` changes none. What it changes apart from
 * results and workspace is bound to one user of the state: `bind` sees what `prepare` sees, and the state. It may set
 * *bound, which `unbind` frees, also after a failure. Both may be NULL.
 *
 * Operands that do not change between runs, such as the weights of an inference, can be packed: brought once into the
 * format that suits the kernel. The planner asks for the format with `pack_format` and lets format->pack fill memory
 * of that size; the operand then has that memory as data and the format in its view. */
typedef struct k_kernel {
    ampc_status (*prepare)(const k_args *args, void **state, size_t *workspace);
    ampc_status (*run)(const k_args *args);
    /* On a discrete device: `run` enqueues work that runs at the same time as work enqueued later. `join` makes all
     * work enqueued after it wait for that; before, no other step may read the results, or write operands or workspace.
     * Joining a call joins the calls of this kernel before it. NULL: `run` needs no join. */
    ampc_status (*join)(const k_args *args);
    void (*release)(void *state);
    ampc_status (*bind)(const k_args *args, void **bound);
    void (*unbind)(void *state, void *bound);
    /* Runs up to max_batch calls of the op in one launch. They must have equal attributes, types and scalar operands,
     * and none may use memory that another one writes. NULL: calls run one by one. */
    ampc_status (*run_batch)(const k_args *args, int n);
    int max_batch;
    /* May add an operand of the type and size of result 0, K_SLOT(epilogue, addend), to that result before it is
     * rounded, and may write over it (kernels/epilogue.h). */
    bool adds;
    /* Sets *format to the format in which the kernel reads this operand fastest; NULL: plain. Needs what `prepare` sees
     * and an open device. NULL: the kernel reads plain operands only. */
    ampc_status (*pack_format)(const k_args *args, int operand, const k_format **format);
} k_kernel;

/* A format of packed operands. Kernels that define formats embed this in a description of their own. Equal formats of
 * one type have the same address, which is valid for the life of the process; a format includes the dimensions. */
struct k_format {
    size_t bytes;         /* the size of a packed operand */
    const k_kernel *pack; /* fills result 0 from operand 0, which is plain and of any float type. Each element is
                           * rounded to the dtype of the result's view first; the format may store a wider type. */
};

/* ---- slots, whose positions depend on the elements of the INS slot and of the OUTS slot if the op has both ---- */

/* The elements of the INS slot in a call with n_in operands, none of them extra. */
static inline int k_listed(ir_op op, int n_in)
{
    const ir_op_info *info = ir_op_get(op);
    return info->variadic_in < 0 ? 0 : n_in - (info->n_in - 1);
}
/* The position of a slot of the op, or of the first extra one: number n_in or n_out of the op table. */
static inline int k_in_at(ir_op op, int listed, int slot)
{
    const int list = ir_op_get(op)->variadic_in;
    return list < 0 || slot <= list ? slot : slot - 1 + listed;
}
static inline int k_out_at(ir_op op, int listed, int slot)
{
    const int list = ir_op_get(op)->variadic_out;
    return list < 0 || slot <= list ? slot : slot - 1 + listed;
}

/* K_SLOT(update, scale): an extra operand or result (kernels/extra.def), counted from the first one. The table is
 * expanded to structs that are never instantiated; n_in and n_out are the numbers of extra operands and results. */
#define SLOT(name) char name;
#define FAMILY(family, operands, results) \
    struct k_slots_##family { \
        char first; \
        union { \
            struct { \
                operands char n_in; \
            }; \
            struct { \
                results char n_out; \
            }; \
        }; \
    };
#include "kernels/extra.def"
#define K_SLOT(family, name) ((int)offsetof(struct k_slots_##family, name) - 1)

static inline int k_extra_in_at(ir_op op, int listed, int slot)
{
    return k_in_at(op, listed, ir_op_get(op)->n_in + slot);
}
static inline int k_extra_out_at(ir_op op, int listed, int slot)
{
    return k_out_at(op, listed, ir_op_get(op)->n_out + slot);
}
/* The view of an extra slot, or NULL if absent. */
static inline const k_view *k_extra_in(const k_args *args, int slot)
{
    const int at = k_extra_in_at(args->op, args->listed, slot);
    return at < args->n_in && k_present(&args->in[at]) ? &args->in[at] : NULL;
}
static inline k_view *k_extra_out(const k_args *args, int slot)
{
    const int at = k_extra_out_at(args->op, args->listed, slot);
    return at < args->n_out && k_present(&args->out[at]) && args->out[at].data ? &args->out[at] : NULL;
}

/* Prepares the kernel without timing anything and releases its state again. Returns the status of `prepare`; for
 * AMPC_UNSUPPORTED, ctx->error is empty. */
static inline ampc_status k_prepares(const k_kernel *kernel, const k_args *args)
{
    k_context ctx = *args->ctx;
    k_args copy = *args;
    void *state = NULL;
    size_t workspace = 0;
    ctx.tune = false;
    copy.ctx = &ctx;
    ampc_status status = kernel->prepare ? kernel->prepare(&copy, &state, &workspace) : AMPC_OK;
    if (kernel->release) kernel->release(state);
    if (status == AMPC_UNSUPPORTED && ctx.error_size) ctx.error[0] = '\0';
    return status;
}

/* The kernel of an op, from the `kernel` column of ir/ops/ops.def; NULL for `none` and `view`. */
const k_kernel *cpu_kernel(ir_op op);
const k_kernel *cuda_kernel(ir_op op);
/* The kernels that run fused kernels (fused.h). */
extern const k_kernel cpu_fused, cuda_fused;
/* Runs an op that has the trait ABSORBS, and a program over its result (kernels/epilogue.h). */
extern const k_kernel cpu_tails;
/* Runs an update whose gradient is computed in the same pass (kernels/update.h). */
extern const k_kernel cpu_grad_update;
/* Whether that can compute the gradient that args->op, a matmul or conv_grad_weight, computes. */
bool cpu_joins_update(const k_args *args);
/* Whether the kernel of args->op supports the step with its epilogue: activation and extra operands and results
 * (kernels/epilogue.h, statistics.h). Needs what `prepare` sees and an open device. AMPC_OK: `prepare` will succeed.
 * AMPC_UNSUPPORTED, with an empty ctx->error: the kernel, or the op, has no such epilogue, or a context that tunes has
 * found separate steps to be faster. Any other failure leaves the question open. */
ampc_status cpu_supports_epilogue(const k_args *args);
ampc_status cuda_supports_epilogue(const k_args *args);
/* Opens oneDNN, once per process. Without it, everything runs on own code. AMPC_NO_MEMORY, with the reason in `error`,
 * if it may only have failed because there is not enough memory: other code would compute other bits. */
ampc_status cpu_open(char *error, size_t error_size);
/* If there is no oneDNN, writes a sentence that says so and why; false: there is one, or this has been told before. */
bool cpu_notice(char *text, size_t size);
/* Whether `bytes` of memory can be allocated now. */
bool cpu_has_memory(size_t bytes);
/* Whether enough memory is left for any call into oneDNN, which crashes when an allocation fails. */
bool cpu_has_reserve(void);
/* The size of the largest team, at most `requested` and including the calling thread, that a parallel region of the
 * calling thread can have. Must be called before the region because libgomp terminates the process if it cannot create
 * a thread. Costs nothing once the thread has had a team of that size. */
int cpu_threads_available(int requested);
/* Why it is less than requested, to append to a message; "" if threads or memory are short. */
const char *cpu_threads_reason(void);
/* ir_exponents_add by the threads of the context, of data in host memory. */
void cpu_count_exponents(const k_context *ctx, ir_dtype type, const void *data, int64_t n, ir_exponents *to);
/* Whether matrices of float type t are multiplied natively, by oneDNN or by own code (gemm_has); otherwise they are
 * converted to f32 first. Requires cpu_open. */
bool cpu_computes(ir_dtype t);
/* Products of matrices per second in this type relative to f32, on this processor, measured by the first call; 0: not
 * measured. AMPC_CPU_SPEED=BF16,FP16 in the environment replaces the measurement. Requires cpu_open. */
double cpu_speed(ir_dtype t);
/* Whether the kernel of args->op can read low-precision operand `operand` from an f32 view at no cost, rounding the
 * elements to the type in `as`. Requires cpu_open. */
bool cpu_rounds(const k_args *args, int operand);
/* Maintains ctx->oversubscribed; its state is ctx->device. Call cpu_team_check between runs, on the thread that runs
 * them; most calls only read the clock. cpu_team_open fails with AMPC_NO_MEMORY. */
ampc_status cpu_team_open(k_context *ctx);
void cpu_team_check(k_context *ctx);
void cpu_team_close(k_context *ctx);

#endif
