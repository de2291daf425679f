/* onednn_call.c - runs a primitive of oneDNN on operands of any float type and plain layout.
 *
 * The number of threads is part of a primitive: it is created and run while OpenMP is set to ctx->threads, so the
 * division of work, and with it every bit of the result, depends on that number alone. */
#include "kernels/cpu/onednn.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, PIECE = 1 << 16 /* elements that a thread converts at a time */ };

/* A place in memory that oneDNN accesses. */
typedef struct place {
    bool used, in_workspace; /* else it is the view itself */
    size_t at;               /* in the workspace */
} place;

/* How an operand is brought to the primitive. */
typedef struct stage {
    cpu_operand operand;
    int64_t count;
    place plain;              /* dense, in the primitive's type */
    place inner;              /* in the primitive's layout; unused if that is plain */
    place scratch;            /* of the reorder */
    dnnl_primitive_t reorder; /* between the two */
} stage;

struct cpu_call {
    dnnl_primitive_t primitive;
    place scratchpad;
    int n;
    stage stages[CPU_CALL_OPERANDS];
};

/* A place of one binding. */
typedef struct buffer {
    dnnl_memory_t memory; /* NULL: unused */
    void *data;           /* the address last set in oneDNN */
} buffer;

struct cpu_binding {
    dnnl_stream_t stream;
    buffer scratchpad, plain[CPU_CALL_OPERANDS], inner[CPU_CALL_OPERANDS], scratch[CPU_CALL_OPERANDS];
};

static int64_t desc_count(const cpu_desc *desc)
{
    int64_t count = 1;
    for (int i = 0; i < desc->rank; i++) count *= desc->dims[i];
    return count;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static place place_of(const cpu_layout *layout, bool in_workspace, size_t *workspace)
{
    const place p = {true, in_workspace, *workspace};
    if (in_workspace) *workspace += (cpu_dnnl.memory_desc_get_size(layout) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return p;
}

/* Like all our primitives, a reorder has no memory of its own. */
static dnnl_status_t describe_reorder(dnnl_primitive_desc_t *out, const cpu_layout *from, const cpu_layout *to)
{
    dnnl_primitive_attr_t attr;
    dnnl_status_t status = cpu_dnnl.primitive_attr_create(&attr);
    if (status != dnnl_success) return status;
    status = cpu_dnnl.primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success)
        status = cpu_dnnl.reorder_primitive_desc_create(out, from, cpu_dnnl_engine, to, cpu_dnnl_engine, attr);
    cpu_dnnl.primitive_attr_destroy(attr);
    return status;
}

static dnnl_status_t make_reorder(stage *s, const cpu_layout *from, const cpu_layout *to, size_t *workspace)
{
    dnnl_primitive_desc_t pd;
    dnnl_status_t status = describe_reorder(&pd, from, to);
    if (status != dnnl_success) return status;
    status = cpu_dnnl.primitive_create(&s->reorder, pd);
    const cpu_layout *scratch = cpu_layout_of(pd, DNNL_ARG_SCRATCHPAD);
    if (cpu_dnnl.memory_desc_get_size(scratch)) s->scratch = place_of(scratch, true, workspace);
    cpu_dnnl.primitive_desc_destroy(pd);
    return status;
}

static bool converts(const cpu_operand *o)
{
    return o->dtype != o->desc.type || (o->as != IR_NO_DTYPE && o->as != o->dtype);
}

/* `plain` is the layout of operand->desc. */
static dnnl_status_t place_stage(stage *s, const cpu_layout *plain, const cpu_layout *inner, size_t *workspace)
{
    s->plain = place_of(plain, converts(&s->operand), workspace);
    if (cpu_dnnl.memory_desc_equal(plain, inner)) return dnnl_success;
    s->inner = place_of(inner, true, workspace);
    return s->operand.result ? make_reorder(s, inner, plain, workspace) : make_reorder(s, plain, inner, workspace);
}

static dnnl_status_t stage_make(stage *s, const cpu_operand *operand, const cpu_layout *inner, size_t *workspace)
{
    s->operand = *operand;
    s->count = desc_count(&operand->desc);
    if (operand->packed) {
        s->plain = place_of(inner, false, workspace);
        return dnnl_success;
    }
    cpu_layout *plain;
    dnnl_status_t status = cpu_layout_make(&plain, &operand->desc);
    if (status != dnnl_success) return status;
    status = place_stage(s, plain, inner, workspace);
    cpu_layout_free(plain);
    return status;
}

static dnnl_status_t call_build(cpu_call *call, dnnl_primitive_desc_t pd, const cpu_operand *operands, int n,
                                size_t *workspace)
{
    dnnl_status_t status = cpu_dnnl.primitive_create(&call->primitive, pd);
    if (status == dnnl_success) call->scratchpad = place_of(cpu_layout_of(pd, DNNL_ARG_SCRATCHPAD), true, workspace);
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

void cpu_call_free(void *state)
{
    cpu_call *call = state;
    if (!call) return;
    for (int i = 0; i < call->n; i++)
        if (call->stages[i].reorder) cpu_dnnl.primitive_destroy(call->stages[i].reorder);
    if (call->primitive) cpu_dnnl.primitive_destroy(call->primitive);
    free(call);
}

/* ---- bindings -------------------------------------------------------------------------------- */

static dnnl_status_t buffer_make(buffer *b, const place *p, const cpu_layout *layout)
{
    return p->used ? cpu_dnnl.memory_create(&b->memory, layout, cpu_dnnl_engine, NULL) : dnnl_success;
}

/* The layouts are those of the primitives. */
static dnnl_status_t bind_stage(cpu_binding *b, int i, const stage *s, const_dnnl_primitive_desc_t pd)
{
    if (!s->reorder) return buffer_make(&b->plain[i], &s->plain, cpu_layout_of(pd, s->operand.arg));
    const int plain = s->operand.result ? DNNL_ARG_DST : DNNL_ARG_SRC, inner = DNNL_ARG_SRC + DNNL_ARG_DST - plain;
    dnnl_status_t status = cpu_dnnl.primitive_get_primitive_desc(s->reorder, &pd);
    if (status == dnnl_success) status = buffer_make(&b->plain[i], &s->plain, cpu_layout_of(pd, plain));
    if (status == dnnl_success) status = buffer_make(&b->inner[i], &s->inner, cpu_layout_of(pd, inner));
    if (status != dnnl_success) return status;
    return buffer_make(&b->scratch[i], &s->scratch, cpu_layout_of(pd, DNNL_ARG_SCRATCHPAD));
}

static dnnl_status_t bind_call(cpu_binding *b, const cpu_call *call)
{
    const_dnnl_primitive_desc_t pd;
    dnnl_status_t status = cpu_dnnl.primitive_get_primitive_desc(call->primitive, &pd);
    if (status == dnnl_success) status = cpu_dnnl.stream_create(&b->stream, cpu_dnnl_engine, dnnl_stream_default_flags);
    if (status == dnnl_success)
        status = buffer_make(&b->scratchpad, &call->scratchpad, cpu_layout_of(pd, DNNL_ARG_SCRATCHPAD));
    for (int i = 0; i < call->n && status == dnnl_success; i++) status = bind_stage(b, i, &call->stages[i], pd);
    return status;
}

ampc_status cpu_binding_make(const cpu_call *call, const k_context *ctx, cpu_binding **out)
{
    cpu_binding *b = calloc(1, sizeof *b);
    const dnnl_status_t status = b && cpu_has_reserve() ? bind_call(b, call) : dnnl_out_of_memory;
    if (status == dnnl_success) *out = b;
    else cpu_binding_free(b);
    return status == dnnl_success ? AMPC_OK : cpu_dnnl_fail(ctx, status, "preparing a primitive");
}

static void buffer_free(const buffer *b)
{
    if (b->memory) cpu_dnnl.memory_destroy(b->memory);
}

void cpu_binding_free(cpu_binding *b)
{
    if (!b) return;
    for (int i = 0; i < CPU_CALL_OPERANDS; i++) {
        buffer_free(&b->plain[i]);
        buffer_free(&b->inner[i]);
        buffer_free(&b->scratch[i]);
    }
    buffer_free(&b->scratchpad);
    if (b->stream) cpu_dnnl.stream_destroy(b->stream);
    free(b);
}

ampc_status cpu_call_bind(const k_args *args, void **bound)
{
    return args->state ? cpu_binding_make(args->state, args->ctx, (cpu_binding **)bound) : AMPC_OK;
}

void cpu_call_unbind(void *state, void *bound)
{
    (void)state;
    cpu_binding_free(bound);
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* oneDNN clears the padding of blocked layouts whenever an address is set, so only changed ones are. */
static dnnl_status_t buffer_set(buffer *b, const place *p, void *view, void *workspace)
{
    void *data = p->in_workspace ? (char *)workspace + p->at : view;
    if (data == b->data || !p->used) return dnnl_success;
    b->data = data;
    return cpu_dnnl.memory_set_data_handle(b->memory, data);
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

static dnnl_status_t stage_reorder(const stage *s, const cpu_binding *b, int i)
{
    if (!s->reorder) return dnnl_success;
    dnnl_memory_t from = s->operand.result ? b->inner[i].memory : b->plain[i].memory;
    dnnl_memory_t to = s->operand.result ? b->plain[i].memory : b->inner[i].memory;
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, from}, {DNNL_ARG_DST, to}, {DNNL_ARG_SCRATCHPAD, b->scratch[i].memory}};
    return cpu_dnnl.primitive_execute(s->reorder, b->stream, s->scratch.used ? 3 : 2, args);
}

static dnnl_status_t stage_enter(const stage *s, cpu_binding *b, int i, void *view, void *workspace,
                                 const k_context *ctx)
{
    dnnl_status_t status = buffer_set(&b->plain[i], &s->plain, view ? view : b->plain[i].data, workspace);
    if (status == dnnl_success) status = buffer_set(&b->inner[i], &s->inner, NULL, workspace);
    if (status == dnnl_success) status = buffer_set(&b->scratch[i], &s->scratch, NULL, workspace);
    if (status != dnnl_success || s->operand.result || !view) return status;
    if (s->plain.in_workspace)
        convert_parallel(s->operand.desc.type, b->plain[i].data, s->operand.dtype, view, s->operand.as, s->count, ctx);
    return stage_reorder(s, b, i);
}

static dnnl_status_t stage_leave(const stage *s, const cpu_binding *b, int i, void *view, const k_context *ctx)
{
    if (!s->operand.result) return dnnl_success;
    dnnl_status_t status = stage_reorder(s, b, i);
    if (status == dnnl_success && s->plain.in_workspace)
        convert_parallel(s->operand.dtype, view, s->operand.desc.type, b->plain[i].data, IR_NO_DTYPE, s->count, ctx);
    return status;
}

static dnnl_status_t call_execute(const cpu_call *call, cpu_binding *b, void *const *data, void *workspace,
                                  const k_context *ctx)
{
    dnnl_exec_arg_t args[CPU_CALL_OPERANDS + 1];
    dnnl_status_t status = buffer_set(&b->scratchpad, &call->scratchpad, NULL, workspace);
    for (int i = 0; i < call->n && status == dnnl_success; i++) {
        const stage *s = &call->stages[i];
        status = stage_enter(s, b, i, data[i], workspace, ctx);
        args[i] = (dnnl_exec_arg_t){s->operand.arg, s->inner.used ? b->inner[i].memory : b->plain[i].memory};
    }
    if (status != dnnl_success) return status;
    args[call->n] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, b->scratchpad.memory};
    status = cpu_dnnl.primitive_execute(call->primitive, b->stream, call->n + 1, args);
    for (int i = 0; i < call->n && status == dnnl_success; i++)
        status = stage_leave(&call->stages[i], b, i, data[i], ctx);
    return status;
}

ampc_status cpu_call_run(const cpu_call *call, cpu_binding *b, void *const *data, void *workspace, const k_context *ctx)
{
    int before = cpu_dnnl_enter_threads(ctx);
    dnnl_status_t status = call_execute(call, b, data, workspace, ctx);
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
    status = describe_reorder(pd, plain, f->layout);
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
    return cpu_call_run(args->state, args->bound, data, args->workspace, args->ctx);
}

static const k_kernel pack = {.prepare = prepare_pack,
                              .run = run_pack,
                              .release = cpu_call_free,
                              .bind = cpu_call_bind,
                              .unbind = cpu_call_unbind};

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
