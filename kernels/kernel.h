/* kernel.h - one signature for every kernel on every device.
 *
 * A kernel reads dense row-major views and writes dense row-major views. Arithmetic is in f32 (f64 for f64 views,
 * integers in their own type), storage in each view's dtype; a low-precision result is rounded once. Kernels never
 * allocate while running: what they need beyond their operands is workspace, sized when the plan is made, and state
 * (library primitives, packed tables), made by `prepare` once per plan step and shapes.
 *
 * Order of work is a function of shapes and of ctx->threads only, so equal threads give equal bits.
 *
 * On a device of its own memory `data` is an address there, `run` only enqueues, and a fault that shows while it runs
 * (kernels/fault.h) is left in the device's fault word, which the session reads together with the outputs. */
#ifndef AMPC_KERNEL_H
#define AMPC_KERNEL_H

#include "ir/ampc_status.h"
#include "ir/ops.h"
#include "kernels/fault.h"

typedef struct k_view {
    void *data;      /* 64-byte aligned when the planner placed it; NULL: absent operand or unwanted result
                      * (the first only of ops with the trait DROPS) */
    ir_dtype dtype;  /* IR_NO_DTYPE when absent */
    int rank;
    int64_t dims[IR_MAX_RANK];
    ir_dtype as; /* the low type that an f32 operand is rounded to as it is read (cpu_rounds); IR_NO_DTYPE: none */
    bool channels_last; /* [N,C,spatial] lies in memory as [N,spatial,C]; only for ops with the trait SPATIAL */
} k_view;

static inline int64_t k_count(const k_view *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->rank; i++) n *= v->dims[i];
    return n;
}
static inline size_t k_bytes(const k_view *v) { return (size_t)k_count(v) * ir_dtype_size(v->dtype); }
/* The type of the numbers that are read. */
static inline ir_dtype k_read_type(const k_view *v) { return v->as == IR_NO_DTYPE ? v->dtype : v->as; }
static inline bool k_present(const k_view *v) { return v->dtype != IR_NO_DTYPE; }

typedef struct k_context {
    int threads;          /* OpenMP threads of every parallel loop and library call */
    char *error;          /* a kernel that fails writes its reason here (at most error_size bytes) */
    size_t error_size;
    bool tune;            /* a library's algorithms are chosen by time, not as it proposes */
    bool plan_only;       /* nothing will run: no code is compiled and no device memory is needed */
    bool crowded;         /* other programs keep the processors busy (cpu_crowd_look): no result depends on it */
    void *device;         /* the state of the open device; NULL where it has none */
} k_context;

typedef struct k_program k_program; /* program.h */

typedef struct k_args {
    ir_op op;
    int step;             /* position in the plan, for fault words */
    const k_view *in;     /* by operand position */
    k_view *out;          /* by result position */
    int n_in, n_out;
    const ir_attr *attr;  /* by slot; DIMS are plain numbers */
    const k_program *program; /* of the kernel `program`: what it computes; else what becomes of result 0; or NULL */
    void *workspace;      /* the size that `prepare` asked for; 64-byte aligned; contents undefined */
    void *state;          /* what `prepare` made */
    const k_context *ctx;
} k_args;

/* A kernel of the table. `prepare` sees shapes, dtypes, attributes and which operands and results are present
 * (their data is not NULL, but not valid yet); it may set *state (freed by `release`) and *workspace bytes.
 * NULL where not
 * needed. Status: AMPC_UNSUPPORTED for a dtype or shape that the kernel refuses, with the reason in ctx->error. */
typedef struct k_kernel {
    const char *name;
    ampc_status (*prepare)(const k_args *args, void **state, size_t *workspace);
    ampc_status (*run)(const k_args *args);
    void (*release)(void *state);
} k_kernel;

/* Operand or result `i` beyond the slots of the op (kernels/update.h), or NULL. */
static inline const k_view *k_extra_in(const k_args *args, int i)
{
    int at = ir_op_get(args->op)->n_in + i;
    return at < args->n_in && k_present(&args->in[at]) ? &args->in[at] : NULL;
}
static inline k_view *k_extra_out(const k_args *args, int i)
{
    int at = ir_op_get(args->op)->n_out + i;
    return at < args->n_out && k_present(&args->out[at]) && args->out[at].data ? &args->out[at] : NULL;
}

/* Whether the kernel would take the step: by preparing it, without measuring anything, and forgetting it again. */
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

/* kernels/cpu, kernels/cuda: the kernel of each op (the `kernel` column); NULL entries only for `none` and `view`. */
const k_kernel *cpu_kernel(ir_op op);
const k_kernel *cuda_kernel(ir_op op);
/* The kernel of programs. */
extern const k_kernel cpu_program, cuda_program;
/* Whether the kernel of args->op takes the step as it stands, with its tail and what it has beyond the slots of the op
 * (kernels/epilogue.h). It looks at what `prepare` sees, on the open device, and `prepare` succeeds where it says so.
 * AMPC_UNSUPPORTED: it does not, ctx->error is empty; so for ops without tails. Another failure: it is not known. */
ampc_status cpu_absorbs(const k_args *args);
ampc_status cuda_absorbs(const k_args *args);
/* Opens oneDNN (once per process). AMPC_DEVICE with the reason when it cannot be had. */
ampc_status cpu_open(char *error, size_t error_size);
/* Whether so much memory can be allocated now. */
bool cpu_has_room(size_t bytes);
/* Whether there is as much memory left as a call into oneDNN may take: it does not survive the lack of it. */
bool cpu_has_reserve(void);
/* How many of `wanted` threads, the calling one included, a parallel region of the calling thread can have, 1 ..
 * wanted: libgomp ends the process when it cannot make one. Free of cost once all of them were there. */
int cpu_threads_available(int wanted);
/* Whether the processor multiplies operands of float type t as they are; otherwise they become f32 first. As oneDNN
 * sees it, which the user may limit (ONEDNN_MAX_CPU_ISA). After cpu_open. */
bool cpu_computes(ir_dtype t);
/* Whether the kernel of args->op would round operand `operand`, of a low type, as it reads it, were it given in f32
 * with that type as `as`. It says so where that costs nothing. After cpu_open. */
bool cpu_rounds(const k_args *args, int operand);
/* Watches over ctx->crowded, as ctx->device. Looking is for the time between runs, on the thread that runs them; most
 * calls only read the clock. AMPC_NO_MEMORY. */
ampc_status cpu_crowd_open(k_context *ctx);
void cpu_crowd_look(k_context *ctx);
void cpu_crowd_close(k_context *ctx);

#endif
