/* onednn.h - the interface to oneDNN 2.x.
 *
 * The library is loaded by cpu_open, into a table of typed function pointers, so we do not link against it. A
 * cpu_call is a primitive together with the conversions between our operands and the form it expects:
 *
 *     view --convert--> plain, in the primitive's type --reorder--> its layout --primitive--> ... and back
 *
 * Steps that change nothing are omitted. f16 is always converted to f32 because oneDNN has no f16 arithmetic on CPUs,
 * and so is bf16 on processors without bf16 instructions, where oneDNN's emulation is two to four times slower. Only
 * convolutions need layouts other than ours; they run best on blocked ones. */
#ifndef AMPC_ONEDNN_H
#define AMPC_ONEDNN_H

#include "kernels/cpu/cpu.h"

#include <dnnl.h>

#define CPU_DNNL_MAP(X) \
    X(get_effective_cpu_isa) \
    X(engine_create) \
    X(stream_create) \
    X(stream_destroy) \
    X(memory_desc_init_by_strides) \
    X(memory_desc_init_by_tag) \
    X(memory_desc_equal) \
    X(memory_desc_get_size) \
    X(memory_create) \
    X(memory_destroy) \
    X(memory_set_data_handle) \
    X(primitive_attr_create) \
    X(primitive_attr_destroy) \
    X(primitive_attr_set_scratchpad_mode) \
    X(primitive_attr_set_post_ops) \
    X(post_ops_create) \
    X(post_ops_append_eltwise) \
    X(post_ops_append_sum) \
    X(post_ops_destroy) \
    X(primitive_desc_iterator_create) \
    X(primitive_desc_iterator_fetch) \
    X(primitive_desc_iterator_next) \
    X(primitive_desc_iterator_destroy) \
    X(primitive_desc_destroy) \
    X(primitive_desc_query) \
    X(primitive_desc_query_md) \
    X(primitive_create) \
    X(primitive_destroy) \
    X(primitive_execute) \
    X(reorder_primitive_desc_create) \
    X(sgemm) \
    X(matmul_desc_init) \
    X(dilated_convolution_forward_desc_init) \
    X(dilated_convolution_backward_data_desc_init) \
    X(dilated_convolution_backward_weights_desc_init)

typedef struct cpu_dnnl_table {
#define CPU_DNNL_FIELD(name) __typeof__(&dnnl_##name) name;
    CPU_DNNL_MAP(CPU_DNNL_FIELD)
#undef CPU_DNNL_FIELD
} cpu_dnnl_table;

/* Valid after cpu_open. */
extern cpu_dnnl_table cpu_dnnl;
extern dnnl_engine_t cpu_dnnl_engine;

/* Sets the number of OpenMP threads for a call into oneDNN. Pass the result to cpu_dnnl_leave_threads. */
int cpu_dnnl_enter_threads(const k_context *ctx);
void cpu_dnnl_leave_threads(int before);

/* The type in which oneDNN computes on operands of dtype t: bf16 if `native` and supported by the processor, else
 * f32. */
dnnl_data_type_t cpu_dnnl_type(ir_dtype t, bool native);

/* Whether the oneDNN implementation named `code` must not be used to compute `what`. */
typedef bool cpu_dnnl_faulty(const char *code, const void *what);

/* Creates a primitive descriptor for ctx->threads threads, with the scratchpad in our workspace: the first of oneDNN's
 * implementations of `desc` that is not faulty for `what`. `hint` is the forward primitive of a backward one, or NULL;
 * `faulty` may be NULL. Returns dnnl_unimplemented if there is none, or if `fast` and it is reference code. */
dnnl_status_t cpu_dnnl_describe(const_dnnl_op_desc_t desc, const_dnnl_primitive_desc_t hint, bool fast,
                                cpu_dnnl_faulty *faulty, const void *what, const k_context *ctx,
                                dnnl_primitive_desc_t *out);
/* Likewise, with the first implementation. The activation `tail` (dnnl_eltwise_...; dnnl_alg_kind_undef: none) is
 * applied to the result before it is rounded. */
dnnl_status_t cpu_dnnl_describe_activation(const_dnnl_op_desc_t desc, dnnl_alg_kind_t tail, bool fast,
                                           const k_context *ctx, dnnl_primitive_desc_t *out);
/* Likewise, and the result is added to what is in its place. */
dnnl_status_t cpu_dnnl_describe_sum(const_dnnl_op_desc_t desc, const k_context *ctx, dnnl_primitive_desc_t *out);
/* Turns a oneDNN error in `what` into a status and a message in ctx->error. */
ampc_status cpu_dnnl_fail(const k_context *ctx, dnnl_status_t status, const char *what);

typedef struct cpu_operand {
    int arg; /* DNNL_ARG_... */
    bool result;
    ir_dtype dtype;          /* of the view */
    dnnl_memory_desc_t desc; /* the dense view, in the primitive's type */
} cpu_operand;

enum { CPU_CALL_OPERANDS = 4 };

typedef struct cpu_call cpu_call;
/* Creates a call from pd, which it destroys, also on failure. *workspace is the size that cpu_call_run needs, in
 * bytes. */
ampc_status cpu_call_make(dnnl_primitive_desc_t pd, const cpu_operand *operands, int n, const k_context *ctx,
                          cpu_call **out, size_t *workspace);
/* data[i] is the data of operand i; NULL: those of the previous run, whose copy in the primitive's layout is still in
 * the workspace. */
ampc_status cpu_call_run(cpu_call *call, void *const *data, void *workspace, const k_context *ctx);
void cpu_call_free(void *call); /* may be NULL */

/* c[m,n] = op(a) op(b), plus c if `add`. Row-major; ld.. is the distance between rows in elements. */
ampc_status cpu_sgemm(const k_context *ctx, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float *a,
                      int64_t lda, const float *b, int64_t ldb, bool add, float *c, int64_t ldc);

/* The result of a matmul or convolution without terms: each element of y is the bias of its channel, or 0 without bias.
 * Element i belongs to channel (i / inner) % channels. */
void cpu_fill_bias(const k_view *y, const k_view *bias, int64_t inner);

#endif
