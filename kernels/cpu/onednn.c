/* onednn.c - loads oneDNN, and runs a primitive on operands of any float type and plain layout.
 *
 * The number of threads is part of a primitive: it is created and run while OpenMP is set to ctx->threads, so the
 * division of work, and with it every bit of the result, depends on that number alone. */
#include "kernels/cpu/onednn.h"

#include <dlfcn.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if DNNL_VERSION_MAJOR != 2
#error "kernels/cpu/onednn.c is written for the operation descriptors of oneDNN 2"
#endif

enum { ALIGNMENT = 64, PIECE = 1 << 16 /* elements that a thread converts at a time */ };

cpu_dnnl_table cpu_dnnl;
static dnnl_engine_t engine;
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_open, has_bf16;

/* ---- opening --------------------------------------------------------------------------------- */

static bool load_symbols(void *library, char *error, size_t error_size)
{
    void *symbol;
#define LOAD(name) \
    symbol = dlsym(library, "dnnl_" #name); \
    if (!symbol) { \
        snprintf(error, error_size, "libdnnl.so.2 has no dnnl_" #name); \
        return false; \
    } \
    memcpy(&cpu_dnnl.name, &symbol, sizeof symbol);
    CPU_DNNL_MAP(LOAD)
#undef LOAD
    return true;
}

static ampc_status open_library(char *error, size_t error_size)
{
    void *library = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(error, error_size, "oneDNN cannot be opened (package libdnnl2): %s", dlerror());
        return AMPC_DEVICE;
    }
    if (!load_symbols(library, error, error_size)) return AMPC_DEVICE;
    dnnl_status_t status = cpu_dnnl.engine_create(&engine, dnnl_cpu, 0);
    if (status != dnnl_success) {
        snprintf(error, error_size, "oneDNN has no CPU engine (status %d)", (int)status);
        return AMPC_DEVICE;
    }
    has_bf16 = (cpu_dnnl.get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
    is_open = true;
    return AMPC_OK;
}

ampc_status cpu_open(char *error, size_t error_size)
{
    pthread_mutex_lock(&open_lock);
    ampc_status status = is_open ? AMPC_OK : open_library(error, error_size);
    pthread_mutex_unlock(&open_lock);
    return status;
}

/* ---- descriptors ----------------------------------------------------------------------------- */

/* Sets the number of OpenMP threads for a call into oneDNN. Pass the result to leave_threads. */
static int enter_threads(const k_context *ctx)
{
    int before = omp_get_max_threads();
    if (before != ctx->threads) omp_set_num_threads(ctx->threads);
    return before;
}

static void leave_threads(int before)
{
    if (before != omp_get_max_threads()) omp_set_num_threads(before);
}

typedef struct isa_speed {
    unsigned isa;      /* of oneDNN */
    bool also_fp16;    /* the processor also has AVX512_FP16, which no AMD processor with AVX512_BF16 has */
    double bf16, fp16; /* products per second relative to f32 */
} isa_speed;

/* Measured (docs/performance.md); the first row that applies counts. Processors with AMX have not been measured. */
static const isa_speed speeds[] = {{dnnl_cpu_isa_avx512_core_amx, false, 0, 0},
                                   {dnnl_cpu_isa_avx512_core_bf16, true, 0.55, 0.88},
                                   {dnnl_cpu_isa_avx512_core_bf16, false, 1.8, 0.75},
                                   {0, false, 0.75, 0.75}};

double cpu_speed(ir_dtype t)
{
    const unsigned isa = is_open ? (unsigned)cpu_dnnl.get_effective_cpu_isa() : 0;
    const isa_speed *row = speeds;
    while ((isa & row->isa) != row->isa || (row->also_fp16 && !__builtin_cpu_supports("avx512fp16"))) row++;
    return t == IR_f32 ? 1 : t == IR_bf16 ? row->bf16 : t == IR_f16 ? row->fp16 : 0;
}

bool cpu_computes(ir_dtype t) { return t == IR_bf16 ? has_bf16 : t != IR_f16; }

dnnl_data_type_t cpu_dnnl_type(ir_dtype t, bool native)
{
    return native && t == IR_bf16 && has_bf16 ? dnnl_bf16 : dnnl_f32;
}

static const char *code_of(const_dnnl_primitive_desc_t pd)
{
    const char *name = "";
    dnnl_status_t status = cpu_dnnl.primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    return status == dnnl_success ? name : "";
}

static bool is_reference(const_dnnl_primitive_desc_t pd) { return strncmp(code_of(pd), "ref", 3) == 0; }

static dnnl_status_t first_sound(const_dnnl_op_desc_t desc, const_dnnl_primitive_attr_t attr,
                                 const_dnnl_primitive_desc_t hint, cpu_dnnl_faulty *faulty, const void *what,
                                 dnnl_primitive_desc_t *out)
{
    dnnl_primitive_desc_iterator_t codes;
    dnnl_status_t status = cpu_dnnl.primitive_desc_iterator_create(&codes, desc, attr, engine, hint);
    if (status != dnnl_success) return status;
    while (status == dnnl_success) {
        *out = cpu_dnnl.primitive_desc_iterator_fetch(codes);
        if (!*out) status = dnnl_out_of_memory;
        if (!*out || !faulty || !faulty(code_of(*out), what)) break;
        cpu_dnnl.primitive_desc_destroy(*out);
        status = cpu_dnnl.primitive_desc_iterator_next(codes);
    }
    cpu_dnnl.primitive_desc_iterator_destroy(codes);
    return status == dnnl_iterator_ends ? dnnl_unimplemented : status;
}

/* `tail`: an activation, dnnl_binary_add to add to what is in the place of the result, or dnnl_alg_kind_undef. */
static dnnl_status_t append_tail(dnnl_primitive_attr_t attr, dnnl_alg_kind_t tail)
{
    dnnl_post_ops_t ops;
    if (tail == dnnl_alg_kind_undef) return dnnl_success;
    dnnl_status_t status = cpu_dnnl.post_ops_create(&ops);
    if (status != dnnl_success) return status;
    status = tail == dnnl_binary_add ? cpu_dnnl.post_ops_append_sum(ops, 1)
                                     : cpu_dnnl.post_ops_append_eltwise(ops, 1, tail, 0, 0);
    if (status == dnnl_success) status = cpu_dnnl.primitive_attr_set_post_ops(attr, ops);
    cpu_dnnl.post_ops_destroy(ops);
    return status;
}

static dnnl_status_t describe(const_dnnl_op_desc_t desc, const_dnnl_primitive_desc_t hint, dnnl_alg_kind_t tail,
                              bool fast, cpu_dnnl_faulty *faulty, const void *what, const k_context *ctx,
                              dnnl_primitive_desc_t *out)
{
    dnnl_primitive_attr_t attr;
    if (!cpu_has_reserve()) return dnnl_out_of_memory;
    dnnl_status_t status = cpu_dnnl.primitive_attr_create(&attr);
    if (status != dnnl_success) return status;
    int before = enter_threads(ctx);
    status = cpu_dnnl.primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success) status = append_tail(attr, tail);
    if (status == dnnl_success) status = first_sound(desc, attr, hint, faulty, what, out);
    leave_threads(before);
    cpu_dnnl.primitive_attr_destroy(attr);
    if (status == dnnl_success && fast && is_reference(*out)) {
        cpu_dnnl.primitive_desc_destroy(*out);
        return dnnl_unimplemented;
    }
    return status;
}

dnnl_status_t cpu_dnnl_describe(const_dnnl_op_desc_t desc, const_dnnl_primitive_desc_t hint, bool fast,
                                cpu_dnnl_faulty *faulty, const void *what, const k_context *ctx,
                                dnnl_primitive_desc_t *out)
{
    return describe(desc, hint, dnnl_alg_kind_undef, fast, faulty, what, ctx, out);
}

dnnl_status_t cpu_dnnl_describe_activation(const_dnnl_op_desc_t desc, dnnl_alg_kind_t tail, bool fast,
                                           const k_context *ctx, dnnl_primitive_desc_t *out)
{
    return describe(desc, NULL, tail, fast, NULL, NULL, ctx, out);
}

dnnl_status_t cpu_dnnl_describe_sum(const_dnnl_op_desc_t desc, const k_context *ctx, dnnl_primitive_desc_t *out)
{
    return describe(desc, NULL, dnnl_binary_add, false, NULL, NULL, ctx, out);
}

ampc_status cpu_dnnl_fail(const k_context *ctx, dnnl_status_t status, const char *what)
{
    if (status == dnnl_out_of_memory) return cpu_fail(ctx, AMPC_NO_MEMORY, "%s: out of memory", what);
    if (status == dnnl_unimplemented || status == dnnl_invalid_arguments)
        return cpu_fail(ctx, AMPC_UNSUPPORTED, "%s: oneDNN does not support these shapes and types", what);
    return cpu_fail(ctx, AMPC_DEVICE, "%s: oneDNN failed with status %d", what, (int)status);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* A buffer that oneDNN accesses; `at` is its offset in the workspace, or NOWHERE if it is the view itself. */
typedef struct buffer {
    dnnl_memory_t memory;
    void *data; /* the address last set in oneDNN */
    size_t at;
} buffer;

#define NOWHERE SIZE_MAX

typedef struct stage {
    cpu_operand operand;
    int64_t count;
    buffer plain;             /* dense, in the primitive's type */
    buffer inner;             /* in the primitive's layout; its memory is NULL if that is plain */
    dnnl_primitive_t reorder; /* between the two */
} stage;

struct cpu_call {
    dnnl_primitive_t primitive;
    dnnl_stream_t stream;
    buffer scratchpad;
    int n;
    stage stages[CPU_CALL_OPERANDS];
};

static ir_dtype from_dnnl(dnnl_data_type_t t) { return t == dnnl_bf16 ? IR_bf16 : IR_f32; }

static int64_t desc_count(const dnnl_memory_desc_t *desc)
{
    int64_t count = 1;
    for (int i = 0; i < desc->ndims; i++) count *= desc->dims[i];
    return count;
}

static dnnl_status_t buffer_make(buffer *b, const dnnl_memory_desc_t *desc, bool in_workspace, size_t *workspace)
{
    b->at = NOWHERE;
    if (in_workspace) {
        b->at = *workspace;
        *workspace += (cpu_dnnl.memory_desc_get_size(desc) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return cpu_dnnl.memory_create(&b->memory, desc, engine, DNNL_MEMORY_NONE);
}

/* oneDNN clears the padding of blocked layouts whenever an address is set, so only changed ones are. */
static dnnl_status_t buffer_bind(buffer *b, void *view, void *workspace)
{
    void *data = b->at == NOWHERE ? view : (char *)workspace + b->at;
    if (data == b->data) return dnnl_success;
    b->data = data;
    return cpu_dnnl.memory_set_data_handle(b->memory, data);
}

static dnnl_status_t reorder_make(dnnl_primitive_t *out, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to)
{
    dnnl_primitive_desc_t pd;
    dnnl_status_t status = cpu_dnnl.reorder_primitive_desc_create(&pd, from, engine, to, engine, NULL);
    if (status != dnnl_success) return status;
    status = cpu_dnnl.primitive_create(out, pd);
    cpu_dnnl.primitive_desc_destroy(pd);
    return status;
}

static dnnl_status_t stage_make(stage *s, const cpu_operand *operand, const dnnl_memory_desc_t *inner,
                                size_t *workspace)
{
    s->operand = *operand;
    s->count = desc_count(&operand->desc);
    bool converts = operand->dtype != from_dnnl(operand->desc.data_type);
    dnnl_status_t status = buffer_make(&s->plain, &operand->desc, converts, workspace);
    if (status != dnnl_success || cpu_dnnl.memory_desc_equal(&operand->desc, inner)) return status;
    status = buffer_make(&s->inner, inner, true, workspace);
    if (status != dnnl_success) return status;
    return operand->result ? reorder_make(&s->reorder, inner, &operand->desc)
                           : reorder_make(&s->reorder, &operand->desc, inner);
}

static dnnl_status_t call_build(cpu_call *call, dnnl_primitive_desc_t pd, const cpu_operand *operands, int n,
                                size_t *workspace)
{
    dnnl_status_t status = cpu_dnnl.stream_create(&call->stream, engine, dnnl_stream_default_flags);
    if (status == dnnl_success) status = cpu_dnnl.primitive_create(&call->primitive, pd);
    if (status == dnnl_success)
        status = buffer_make(&call->scratchpad, cpu_dnnl.primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0), true,
                             workspace);
    for (int i = 0; i < n && status == dnnl_success; i++) {
        const dnnl_memory_desc_t *inner = cpu_dnnl.primitive_desc_query_md(pd, dnnl_query_exec_arg_md, operands[i].arg);
        status = stage_make(&call->stages[i], &operands[i], inner, workspace);
        call->n = i + 1;
    }
    return status;
}

ampc_status cpu_call_make(dnnl_primitive_desc_t pd, const cpu_operand *operands, int n, const k_context *ctx,
                          cpu_call **out, size_t *workspace)
{
    cpu_call *call = calloc(1, sizeof *call);
    dnnl_status_t status = dnnl_out_of_memory;
    size_t bytes = 0;
    if (call && cpu_has_reserve()) {
        int before = enter_threads(ctx);
        status = call_build(call, pd, operands, n, &bytes);
        leave_threads(before);
    }
    cpu_dnnl.primitive_desc_destroy(pd);
    if (status != dnnl_success) {
        cpu_call_free(call);
        return cpu_dnnl_fail(ctx, status, "preparing a primitive");
    }
    *out = call;
    *workspace = bytes;
    return AMPC_OK;
}

static void buffer_free(buffer *b)
{
    if (b->memory) cpu_dnnl.memory_destroy(b->memory);
}

void cpu_call_free(void *state)
{
    cpu_call *call = state;
    if (!call) return;
    for (int i = 0; i < call->n; i++) {
        stage *s = &call->stages[i];
        buffer_free(&s->plain);
        buffer_free(&s->inner);
        if (s->reorder) cpu_dnnl.primitive_destroy(s->reorder);
    }
    buffer_free(&call->scratchpad);
    if (call->primitive) cpu_dnnl.primitive_destroy(call->primitive);
    if (call->stream) cpu_dnnl.stream_destroy(call->stream);
    free(call);
}

static void convert_parallel(ir_dtype to, void *dst, ir_dtype from, const void *src, int64_t n, const k_context *ctx)
{
    int64_t pieces = cpu_ceil_div(n, PIECE);
    size_t to_size = ir_dtype_size(to), from_size = ir_dtype_size(from);
#pragma omp parallel for num_threads(cpu_threads(ctx, n)) schedule(static)
    for (int64_t p = 0; p < pieces; p++) {
        size_t first = (size_t)p * PIECE;
        cpu_convert(to, (char *)dst + first * to_size, from, (const char *)src + first * from_size,
                    k_min(PIECE, n - p * PIECE));
    }
}

static dnnl_status_t stage_reorder(const stage *s, dnnl_stream_t stream)
{
    if (!s->reorder) return dnnl_success;
    dnnl_memory_t from = s->operand.result ? s->inner.memory : s->plain.memory;
    dnnl_memory_t to = s->operand.result ? s->plain.memory : s->inner.memory;
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    return cpu_dnnl.primitive_execute(s->reorder, stream, 2, args);
}

static dnnl_status_t stage_enter(stage *s, void *view, void *workspace, dnnl_stream_t stream, const k_context *ctx)
{
    dnnl_status_t status = buffer_bind(&s->plain, view ? view : s->plain.data, workspace);
    if (status == dnnl_success && s->inner.memory) status = buffer_bind(&s->inner, NULL, workspace);
    if (status != dnnl_success || s->operand.result || !view) return status;
    if (s->plain.at != NOWHERE)
        convert_parallel(from_dnnl(s->operand.desc.data_type), s->plain.data, s->operand.dtype, view, s->count, ctx);
    return stage_reorder(s, stream);
}

static dnnl_status_t stage_leave(const stage *s, void *view, dnnl_stream_t stream, const k_context *ctx)
{
    if (!s->operand.result) return dnnl_success;
    dnnl_status_t status = stage_reorder(s, stream);
    if (status == dnnl_success && s->plain.at != NOWHERE)
        convert_parallel(s->operand.dtype, view, from_dnnl(s->operand.desc.data_type), s->plain.data, s->count, ctx);
    return status;
}

static dnnl_status_t call_execute(cpu_call *call, void *const *data, void *workspace, const k_context *ctx)
{
    dnnl_exec_arg_t args[CPU_CALL_OPERANDS + 1];
    dnnl_status_t status = buffer_bind(&call->scratchpad, NULL, workspace);
    for (int i = 0; i < call->n && status == dnnl_success; i++) {
        stage *s = &call->stages[i];
        status = stage_enter(s, data[i], workspace, call->stream, ctx);
        args[i] = (dnnl_exec_arg_t){s->operand.arg, s->inner.memory ? s->inner.memory : s->plain.memory};
    }
    if (status != dnnl_success) return status;
    args[call->n] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, call->scratchpad.memory};
    status = cpu_dnnl.primitive_execute(call->primitive, call->stream, call->n + 1, args);
    for (int i = 0; i < call->n && status == dnnl_success; i++)
        status = stage_leave(&call->stages[i], data[i], call->stream, ctx);
    return status;
}

ampc_status cpu_call_run(cpu_call *call, void *const *data, void *workspace, const k_context *ctx)
{
    int before = enter_threads(ctx);
    dnnl_status_t status = call_execute(call, data, workspace, ctx);
    leave_threads(before);
    return status == dnnl_success ? AMPC_OK : cpu_dnnl_fail(ctx, status, "running a primitive");
}

/* oneDNN compiles all sgemm kernels during the first product, in whichever of its threads comes first. In a thread
 * without a malloc arena, this needs far more memory than cpu_has_reserve checks for. So run a small product on the
 * calling thread first. */
static dnnl_status_t compile_sgemm(void)
{
    enum { SIDE = 16 };
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool compiled;
    dnnl_status_t status = dnnl_success;
    pthread_mutex_lock(&lock);
    if (!compiled) {
        const float a[SIDE * SIDE] = {0};
        float c[SIDE * SIDE];
        const int before = enter_threads(&(k_context){.threads = 1});
        status = cpu_has_reserve() ? cpu_dnnl.sgemm('N', 'N', SIDE, SIDE, SIDE, 1, a, SIDE, a, SIDE, 0, c, SIDE)
                                   : dnnl_out_of_memory;
        leave_threads(before);
        compiled = status == dnnl_success;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

ampc_status cpu_sgemm(const k_context *ctx, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float *a,
                      int64_t lda, const float *b, int64_t ldb, bool add, float *c, int64_t ldc)
{
    dnnl_status_t status = compile_sgemm();
    if (status == dnnl_success) {
        int before = enter_threads(ctx);
        status = cpu_dnnl.sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, 1, a, lda, b, ldb, add ? 1 : 0, c,
                                ldc);
        leave_threads(before);
    }
    return status == dnnl_success ? AMPC_OK : cpu_dnnl_fail(ctx, status, "multiplying matrices");
}

void cpu_fill_bias(const k_view *y, const k_view *bias, int64_t inner)
{
    int64_t count = k_count(y), channels = k_present(bias) ? k_count(bias) : 1;
    for (int64_t i = 0; i < count; i++) {
        int64_t channel = i / inner % channels;
        double value = k_present(bias) ? cpu_number(bias, channel) : 0;
        ir_store_f64(y->dtype, cpu_at(y, i), value);
    }
}
