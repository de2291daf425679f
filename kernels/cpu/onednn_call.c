/* onednn_call.c - runs a primitive of oneDNN on operands of any float type and plain layout.
 *
 * The number of threads is part of a primitive: it is created and run while OpenMP is set to ctx->threads, so the
 * division of work, and with it every bit of the result, depends on that number alone. */
#include "kernels/cpu/onednn.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, PIECE = 1 << 16 /* elements that a thread converts at a time */ };

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

static int64_t desc_count(const cpu_desc *desc)
{
    int64_t count = 1;
    for (int i = 0; i < desc->rank; i++) count *= desc->dims[i];
    return count;
}

static dnnl_status_t buffer_make(buffer *b, const cpu_layout *layout, bool in_workspace, size_t *workspace)
{
    b->at = NOWHERE;
    if (in_workspace) {
        b->at = *workspace;
        *workspace += (cpu_dnnl.memory_desc_get_size(layout) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return cpu_dnnl.memory_create(&b->memory, layout, cpu_dnnl_engine, NULL);
}

/* oneDNN clears the padding of blocked layouts whenever an address is set, so only changed ones are. */
static dnnl_status_t buffer_bind(buffer *b, void *view, void *workspace)
{
    void *data = b->at == NOWHERE ? view : (char *)workspace + b->at;
    if (data == b->data) return dnnl_success;
    b->data = data;
    return cpu_dnnl.memory_set_data_handle(b->memory, data);
}

static dnnl_status_t reorder_make(dnnl_primitive_t *out, const cpu_layout *from, const cpu_layout *to)
{
    dnnl_primitive_desc_t pd;
    dnnl_status_t status = cpu_dnnl.reorder_primitive_desc_create(&pd, from, cpu_dnnl_engine, to, cpu_dnnl_engine,
                                                                  NULL);
    if (status != dnnl_success) return status;
    status = cpu_dnnl.primitive_create(out, pd);
    cpu_dnnl.primitive_desc_destroy(pd);
    return status;
}

static bool converts(const cpu_operand *o)
{
    return o->dtype != o->desc.type || (o->as != IR_NO_DTYPE && o->as != o->dtype);
}

/* `plain` is the layout of operand->desc. */
static dnnl_status_t stage_make_buffers(stage *s, const cpu_layout *plain, const cpu_layout *inner, size_t *workspace)
{
    dnnl_status_t status = buffer_make(&s->plain, plain, converts(&s->operand), workspace);
    if (status != dnnl_success || cpu_dnnl.memory_desc_equal(plain, inner)) return status;
    status = buffer_make(&s->inner, inner, true, workspace);
    if (status != dnnl_success) return status;
    return s->operand.result ? reorder_make(&s->reorder, inner, plain) : reorder_make(&s->reorder, plain, inner);
}

static dnnl_status_t stage_make(stage *s, const cpu_operand *operand, const cpu_layout *inner, size_t *workspace)
{
    s->operand = *operand;
    s->count = desc_count(&operand->desc);
    if (operand->packed) return buffer_make(&s->plain, inner, false, workspace);
    cpu_layout *plain;
    dnnl_status_t status = cpu_layout_make(&plain, &operand->desc);
    if (status != dnnl_success) return status;
    status = stage_make_buffers(s, plain, inner, workspace);
    cpu_layout_free(plain);
    return status;
}

static dnnl_status_t call_build(cpu_call *call, dnnl_primitive_desc_t pd, const cpu_operand *operands, int n,
                                size_t *workspace)
{
    dnnl_status_t status = cpu_dnnl.stream_create(&call->stream, cpu_dnnl_engine, dnnl_stream_default_flags);
    if (status == dnnl_success) status = cpu_dnnl.primitive_create(&call->primitive, pd);
    if (status == dnnl_success)
        status = buffer_make(&call->scratchpad, cpu_layout_of(pd, DNNL_ARG_SCRATCHPAD), true, workspace);
    for (int i = 0; i < n && status == dnnl_success; i++) {
        status = stage_make(&call->stages[i], &operands[i], cpu_layout_of(pd, operands[i].arg), workspace);
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
        int before = cpu_dnnl_enter_threads(ctx);
        status = call_build(call, pd, operands, n, &bytes);
        cpu_dnnl_leave_threads(before);
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

/* `as`: a type to which the elements are rounded in between; IR_NO_DTYPE: none. */
static void convert_parallel(ir_dtype to, void *dst, ir_dtype from, const void *src, ir_dtype as, int64_t n,
                             const k_context *ctx)
{
    int64_t pieces = cpu_ceil_div(n, PIECE);
    size_t to_size = ir_dtype_size(to), from_size = ir_dtype_size(from);
#pragma omp parallel for num_threads(cpu_threads(ctx, n)) schedule(static)
    for (int64_t p = 0; p < pieces; p++) {
        const size_t first = (size_t)p * PIECE;
        const int64_t count = k_min(PIECE, n - p * PIECE);
        void *at = (char *)dst + first * to_size;
        cpu_convert(to, at, from, (const char *)src + first * from_size, count);
        if (as != IR_NO_DTYPE && as != from && as != to) cpu_as_stored(as, to, at, count);
    }
}

static dnnl_status_t stage_reorder(const stage *s, dnnl_stream_t stream)
{
    if (!s->reorder) return dnnl_success;
    dnnl_memory_t from = s->operand.result ? s->inner.memory : s->plain.memory;
    dnnl_memory_t to = s->operand.result ? s->plain.memory : s->inner.memory;
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, from}, {DNNL_ARG_DST, to}};
    return cpu_dnnl.primitive_execute(s->reorder, stream, 2, args);
}

static dnnl_status_t stage_enter(stage *s, void *view, void *workspace, dnnl_stream_t stream, const k_context *ctx)
{
    dnnl_status_t status = buffer_bind(&s->plain, view ? view : s->plain.data, workspace);
    if (status == dnnl_success && s->inner.memory) status = buffer_bind(&s->inner, NULL, workspace);
    if (status != dnnl_success || s->operand.result || !view) return status;
    if (s->plain.at != NOWHERE)
        convert_parallel(s->operand.desc.type, s->plain.data, s->operand.dtype, view, s->operand.as, s->count, ctx);
    return stage_reorder(s, stream);
}

static dnnl_status_t stage_leave(const stage *s, void *view, dnnl_stream_t stream, const k_context *ctx)
{
    if (!s->operand.result) return dnnl_success;
    dnnl_status_t status = stage_reorder(s, stream);
    if (status == dnnl_success && s->plain.at != NOWHERE)
        convert_parallel(s->operand.dtype, view, s->operand.desc.type, s->plain.data, IR_NO_DTYPE, s->count, ctx);
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
    int before = cpu_dnnl_enter_threads(ctx);
    dnnl_status_t status = call_execute(call, data, workspace, ctx);
    cpu_dnnl_leave_threads(before);
    return status == dnnl_success ? AMPC_OK : cpu_dnnl_fail(ctx, status, "running a primitive");
}

/* ---- packs ----------------------------------------------------------------------------------- */

/* A layout of oneDNN, and the dense view that it is filled from. */
typedef struct format {
    k_format base;
    cpu_desc plain;
    cpu_layout *layout;
    struct format *next;
} format;

static const format *format_of(const k_format *f) { return (const format *)(const void *)f; }

const cpu_layout *cpu_format_layout(const k_format *f) { return format_of(f)->layout; }

static dnnl_status_t describe_pack(const format *f, dnnl_primitive_desc_t *pd)
{
    cpu_layout *plain;
    dnnl_status_t status = cpu_layout_make(&plain, &f->plain);
    if (status != dnnl_success) return status;
    status = cpu_dnnl.reorder_primitive_desc_create(pd, plain, cpu_dnnl_engine, f->layout, cpu_dnnl_engine, NULL);
    cpu_layout_free(plain);
    return status;
}

/* The pack is a call of the reorder between the two. */
static ampc_status prepare_pack(const k_args *args, void **state, size_t *workspace)
{
    const format *f = format_of(args->out[0].packed);
    const cpu_operand operands[] = {
        {.arg = DNNL_ARG_SRC, .dtype = args->in[0].dtype, .as = args->out[0].dtype, .desc = f->plain},
        {.arg = DNNL_ARG_DST, .result = true, .packed = &f->base, .desc = f->plain},
    };
    dnnl_primitive_desc_t pd;
    if (!cpu_has_reserve()) return cpu_dnnl_fail(args->ctx, dnnl_out_of_memory, "describing a pack");
    const int before = cpu_dnnl_enter_threads(args->ctx);
    const dnnl_status_t status = describe_pack(f, &pd);
    cpu_dnnl_leave_threads(before);
    if (status != dnnl_success) return cpu_dnnl_fail(args->ctx, status, "describing a pack");
    return cpu_call_make(pd, operands, 2, args->ctx, (cpu_call **)state, workspace);
}

static ampc_status run_pack(const k_args *args)
{
    void *data[] = {args->in[0].data, args->out[0].data};
    return cpu_call_run(args->state, data, args->workspace, args->ctx);
}

static const k_kernel pack = {.prepare = prepare_pack, .run = run_pack, .release = cpu_call_free};

static bool same_desc(const cpu_desc *a, const cpu_desc *b)
{
    if (a->rank != b->rank || a->type != b->type) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i] || a->strides[i] != b->strides[i]) return false;
    return true;
}

static format *new_format(const cpu_desc *plain, const cpu_layout *layout)
{
    format *f = malloc(sizeof *f);
    if (!f) return NULL;
    *f = (format){.base = {.bytes = cpu_dnnl.memory_desc_get_size(layout), .pack = &pack}, .plain = *plain};
    if (cpu_layout_copy(&f->layout, layout) == dnnl_success) return f;
    free(f);
    return NULL;
}

/* Returns the format, which may be new and is never freed; NULL: out of memory. */
static const format *find_format(const cpu_desc *plain, const cpu_layout *layout)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static format *formats;
    pthread_mutex_lock(&lock);
    format *f = formats;
    while (f && !(same_desc(&f->plain, plain) && cpu_dnnl.memory_desc_equal(f->layout, layout))) f = f->next;
    if (!f && (f = new_format(plain, layout)) != NULL) {
        f->next = formats;
        formats = f;
    }
    pthread_mutex_unlock(&lock);
    return f;
}

/* Whether an operand has to be brought into that layout. */
static dnnl_status_t differs(const cpu_operand *operand, const cpu_layout *layout, bool *out)
{
    cpu_layout *plain;
    const dnnl_status_t status = cpu_layout_make(&plain, &operand->desc);
    if (status != dnnl_success) return status;
    *out = converts(operand) || !cpu_dnnl.memory_desc_equal(plain, layout);
    cpu_layout_free(plain);
    return dnnl_success;
}

ampc_status cpu_call_format(dnnl_primitive_desc_t pd, const cpu_operand *operand, const k_context *ctx,
                            const k_format **out)
{
    const cpu_layout *layout = cpu_layout_of(pd, operand->arg);
    bool packs = false;
    dnnl_status_t status = differs(operand, layout, &packs);
    const format *f = packs ? find_format(&operand->desc, layout) : NULL;
    cpu_dnnl.primitive_desc_destroy(pd);
    if (packs && !f) status = dnnl_out_of_memory;
    if (status != dnnl_success) return cpu_dnnl_fail(ctx, status, "packing an operand");
    *out = f ? &f->base : NULL;
    return AMPC_OK;
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
