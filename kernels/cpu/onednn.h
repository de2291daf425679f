/* onednn.h - the interface to oneDNN, version 3 or 2.
 *
 * The library is loaded by cpu_open, into a table of function pointers, so we do not link against it and do not need
 * its headers: whichever version is found is used. What differs between the versions is in onednn_version.h;
 * kernels describe primitives in the types below.
 *
 * A cpu_call is a primitive together with the conversions between our operands and the form it expects:
 *
 *     view --convert--> plain, in the primitive's type --reorder--> its layout --primitive--> ... and back
 *
 * Steps that change nothing are omitted. A packed operand (kernels/kernel.h) is in the layout of the primitive already.
 * f16 is converted to f32 unless oneDNN multiplies it, which version 3 does on processors with AVX512_FP16, and bf16 on
 * processors without bf16 instructions, where oneDNN's emulation is two to four times slower. Only
 * convolutions need layouts other than ours; they run best on blocked ones. */
#ifndef AMPC_ONEDNN_H
#define AMPC_ONEDNN_H

#include "kernels/cpu/cpu.h"

/* ---- types that both versions of oneDNN have ------------------------------------------------- */

#define CPU_DNNL_HANDLE(type) \
    typedef struct type *type##_t; \
    typedef const struct type *const_##type##_t;
CPU_DNNL_HANDLE(dnnl_engine)
CPU_DNNL_HANDLE(dnnl_stream)
CPU_DNNL_HANDLE(dnnl_memory)
CPU_DNNL_HANDLE(dnnl_primitive)
CPU_DNNL_HANDLE(dnnl_primitive_attr)
CPU_DNNL_HANDLE(dnnl_primitive_desc)
CPU_DNNL_HANDLE(dnnl_post_ops)

/* How the elements of a buffer are arranged: oneDNN's memory descriptor. */
typedef struct cpu_layout cpu_layout;

typedef int64_t dnnl_dim_t;
typedef struct dnnl_exec_arg_t {
    int arg; /* DNNL_ARG_... */
    dnnl_memory_t memory;
} dnnl_exec_arg_t;
typedef struct dnnl_version_t {
    int major, minor, patch;
    const char *hash;
    unsigned cpu_runtime, gpu_runtime;
} dnnl_version_t;

typedef enum dnnl_status_t {
#define CONSTANT(name, value) name = value,
#include "kernels/cpu/onednn.def"
} dnnl_status_t; /* and all other constants */
#define ENUM(type) typedef unsigned type;
#include "kernels/cpu/onednn.def"

typedef struct cpu_dnnl_table {
#define FUNCTION(result, name, types) result(*name) types;
#include "kernels/cpu/onednn.def"
} cpu_dnnl_table;

/* Whether there is a oneDNN; else nothing below may be used except cpu_dnnl_computes,
 * cpu_dnnl_type and cpu_fill_bias. */
bool cpu_has_onednn(void);

/* Valid after cpu_open. */
extern cpu_dnnl_table cpu_dnnl;
extern dnnl_engine_t cpu_dnnl_engine;

/* Sets the number of OpenMP threads for a call into oneDNN. Pass the result to cpu_dnnl_leave_threads. */
int cpu_dnnl_enter_threads(const k_context *ctx);
void cpu_dnnl_leave_threads(int before);

/* ---- descriptions ---------------------------------------------------------------------------- */

/* An operand of a primitive: `type` is f32 or a low type in which oneDNN computes. */
typedef struct cpu_desc {
    int rank; /* 0: absent */
    ir_dtype type;
    bool any;                 /* in the layout that oneDNN prefers, instead of these strides */
    const cpu_layout *layout; /* in this layout, or NULL */
    dnnl_dim_t dims[DNNL_MAX_NDIMS], strides[DNNL_MAX_NDIMS];
} cpu_desc;

/* Whether the oneDNN implementation named `code` must not be used to compute `what`. */
typedef bool cpu_dnnl_faulty(const char *code, const void *what);

typedef enum cpu_primitive_kind {
    CPU_MATMUL, /* y = x w + bias */
    CPU_CONV,
    CPU_CONV_GRAD_INPUT, /* x is the result */
    CPU_CONV_GRAD_WEIGHT /* w and bias are the results */
} cpu_primitive_kind;

/* What happens to the result before it is rounded. */
typedef enum cpu_tail {
    CPU_TAIL_NONE,
    CPU_TAIL_SUM, /* it is added to what is in its place */
    CPU_TAIL_GELU,
    CPU_TAIL_GELU_TANH
} cpu_tail;

typedef struct cpu_primitive {
    cpu_primitive_kind kind;
    cpu_desc x, w, bias, y;
    dnnl_dim_t stride[3], dilation[3], before[3], after[3]; /* convolutions; no dilation is 0 */
    const_dnnl_primitive_desc_t hint;                       /* the forward primitive of a gradient */
    cpu_tail tail;
    bool fast;               /* no reference code */
    cpu_dnnl_faulty *faulty; /* may be NULL */
    const void *what;
} cpu_primitive;

/* Whether oneDNN multiplies operands of float type t without converting them; the user can restrict that
 * (ONEDNN_MAX_CPU_ISA). */
bool cpu_dnnl_computes(ir_dtype t);
/* The type in which oneDNN computes on operands of dtype t: t if `native` and supported by the processor, else f32. */
ir_dtype cpu_dnnl_type(ir_dtype t, bool native);

/* Creates a primitive descriptor for ctx->threads threads, with the scratchpad in our workspace: the first of oneDNN's
 * implementations that is not faulty. Returns dnnl_unimplemented if there is none, or if it is not fast enough. */
dnnl_status_t cpu_dnnl_describe(const cpu_primitive *p, const k_context *ctx, dnnl_primitive_desc_t *out);
/* Turns a oneDNN error in `what` into a status and a message in ctx->error. */
ampc_status cpu_dnnl_fail(const k_context *ctx, dnnl_status_t status, const char *what);

/* Layouts. cpu_dnnl.memory_desc_equal compares two of them, cpu_dnnl.memory_desc_get_size is the size of a buffer. */
dnnl_status_t cpu_layout_make(cpu_layout **out, const cpu_desc *desc);
dnnl_status_t cpu_layout_copy(cpu_layout **out, const cpu_layout *layout);
void cpu_layout_free(cpu_layout *layout); /* may be NULL */
/* The layout that pd expects of operand `arg`. It lives as long as pd. */
const cpu_layout *cpu_layout_of(const_dnnl_primitive_desc_t pd, int arg);

/* ---- calls ----------------------------------------------------------------------------------- */

typedef struct cpu_operand {
    int arg; /* DNNL_ARG_... */
    bool result;
    ir_dtype dtype;         /* of the view */
    ir_dtype as;            /* the elements are rounded to this type first; IR_NO_DTYPE: they are not */
    const k_format *packed; /* of the view */
    cpu_desc desc;          /* the dense view, in the primitive's type */
} cpu_operand;

enum { CPU_CALL_OPERANDS = 4 };

typedef struct cpu_call cpu_call;
/* Creates a call from pd, which it destroys, also on failure. *workspace is the size that cpu_call_run needs, in
 * bytes. */
ampc_status cpu_call_make(dnnl_primitive_desc_t pd, const cpu_operand *operands, int n, const k_context *ctx,
                          cpu_call **out, size_t *workspace);
void cpu_call_free(void *call); /* may be NULL */
/* What runs of a call change: oneDNN's objects that hold addresses. The call itself may run several times at once. */
typedef struct cpu_binding cpu_binding;
ampc_status cpu_binding_make(const cpu_call *call, const k_context *ctx, cpu_binding **out);
void cpu_binding_free(cpu_binding *b); /* may be NULL */
/* data[i] is the data of operand i; NULL: those of the previous run of the binding, whose copy in the primitive's
 * layout is still in the workspace. */
ampc_status cpu_call_run(const cpu_call *call, cpu_binding *b, void *const *data, void *workspace,
                         const k_context *ctx);
/* bind and unbind of kernels whose state is a call, or NULL. */
ampc_status cpu_call_bind(const k_args *args, void **bound);
void cpu_call_unbind(void *state, void *bound);
/* Sets *format to the one in which the primitive of pd reads an operand; NULL: its dense view is just as good. Destroys
 * pd, also on failure. */
ampc_status cpu_call_format(dnnl_primitive_desc_t pd, const cpu_operand *operand, const k_context *ctx,
                            const k_format **format);
/* The layout of such a format. */
const cpu_layout *cpu_format_layout(const k_format *format);

/* The result of a matmul or convolution without terms: each element of y is the bias of its channel, or 0 without bias.
 * Element i belongs to channel (i / inner) % channels. */
void cpu_fill_bias(const k_view *y, const k_view *bias, int64_t inner);

#endif
