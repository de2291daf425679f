/* device.c - runs one kernel on the device under test (see ops.h). */
#include "tests/ops/ops.h"

#include "kernels/convolution.h"
#include "kernels/cpu/isa.h"
#include "kernels/fused.h"
#include "tests/guarded.h"
#include "tests/rows.h"
#include "tests/tier.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum {
    FENCE = 4096,                              /* bytes on each side, a multiple of every alignment */
    LINE = 64,                                 /* the alignment of workspaces and packed operands */
    MAX_VIEWS = K_MAX_OPERANDS + K_MAX_RESULTS /* per call */
};
_Static_assert(MAX_VIEWS >= 2 * CASE_MAX, "programs have the most");

extern const rt_backend rt_backend_cpu;
const rt_backend *ops_on = &rt_backend_cpu;
bool ops_brief, ops_channels_last, ops_packed;
static void *opened; /* device state */
static bool is_open;

static bool is_typical(ir_dtype t) { return row_matches(ir_dtype_name(t), getenv("OPS_BRIEF")); }

static bool is_supported(ir_dtype t) { return t != IR_f64 || !ops_on->device_ops; }

/* Returns the type that is due besides those of OPS_BRIEF, or IR_NO_DTYPE. */
static ir_dtype further_type(void)
{
    ir_dtype others[IR_DTYPE_COUNT];
    size_t n = 0;
    for (ir_dtype t = IR_NO_DTYPE + 1; t < IR_DTYPE_COUNT; t++)
        if (is_supported(t) && !is_typical(t)) others[n++] = t;
    return tier_is_reduced() && n ? others[tier_seed() % n] : IR_NO_DTYPE;
}

bool ops_takes(ir_dtype t)
{
    if (!is_supported(t)) return false;
    return !ops_brief || is_typical(t) || t == further_type();
}

int ops_begin_channels_last(void **state)
{
    (void)state;
    ops_channels_last = true;
    return 0;
}

int ops_end_channels_last(void **state)
{
    (void)state;
    ops_channels_last = false;
    return 0;
}

int ops_begin_packed(void **state)
{
    ops_packed = true;
    return ops_begin_channels_last(state);
}

int ops_end_packed(void **state)
{
    ops_packed = false;
    return ops_end_channels_last(state);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void must(const k_context *ctx, ampc_status status)
{
    if (status) fail_msg("%s: %s", ops_on->name, ctx->error);
}

/* Page-locked host memory for the copies of all calls, which grows: allocating it takes longer than most kernels. */
static void *staging(const k_context *ctx, size_t bytes)
{
    static void *memory;
    static size_t size;
    if (bytes <= size) return memory;
    if (memory) ops_on->device_ops->free_host(ctx, memory);
    size = bytes < 1 << 20 ? 1 << 20 : 2 * bytes;
    must(ctx, ops_on->device_ops->alloc_host(ctx, size, &memory));
    return memory;
}

static void *make(const k_context *ctx, const void *from, size_t bytes)
{
    void *memory;
    must(ctx, ops_on->alloc(ctx, bytes, &memory));
    assert_int_equal((uintptr_t)memory % (uintptr_t)ops_on->alignment, 0);
    void *host = staging(ctx, bytes);
    memcpy(host, from, bytes);
    must(ctx, ops_on->device_ops->upload(ctx, memory, host, bytes));
    must(ctx, ops_on->device_ops->wait(ctx, NULL));
    return memory;
}

static void fetch(const k_context *ctx, void *to, const void *memory, size_t bytes)
{
    if (!ops_on->device_ops) {
        memcpy(to, memory, bytes);
        return;
    }
    void *host = staging(ctx, bytes);
    must(ctx, ops_on->device_ops->download(ctx, host, memory, bytes));
    must(ctx, ops_on->device_ops->wait(ctx, NULL));
    memcpy(to, host, bytes);
}

/* Device memory initialized from `from` (NULL: 0xff bytes), in which accesses outside of it are found. On the CPU, it is
 * no better aligned than its users may expect, and nothing follows it. A discrete device has two fences of 0xff, or
 * none if the device's own checker knows the bounds. The caller releases it with free_fenced. */
static void *make_fenced(const k_context *ctx, const void *from, size_t bytes, size_t alignment, size_t fence)
{
    if (!ops_on->device_ops) {
        void *memory = guarded_new(bytes, alignment);
        return from ? memcpy(memory, from, bytes) : memory;
    }
    char *fenced = malloc(bytes + 2 * fence + 1);
    assert_non_null(fenced);
    memset(fenced, 0xff, bytes + 2 * fence);
    if (from) memcpy(fenced + fence, from, bytes);
    char *memory = (char *)make(ctx, fenced, bytes + 2 * fence) + fence;
    free(fenced);
    return memory;
}

/* Verifies that nothing around the memory has been written; a failure is reported in the name of `who`. */
static void free_fenced(const k_context *ctx, void *memory, size_t bytes, size_t fence, const char *who)
{
    if (!ops_on->device_ops) {
        const char *fault = guarded_free(memory);
        if (fault) fail_msg("%s: writes %s a buffer of %zu bytes", who, fault, bytes);
        return;
    }
    char *start = (char *)memory - fence;
    unsigned char *fenced = malloc(bytes + 2 * fence + 1);
    assert_non_null(fenced);
    if (fence) fetch(ctx, fenced, start, bytes + 2 * fence);
    for (size_t i = 0; i < fence; i++)
        if (fenced[i] != 0xff || fenced[fence + bytes + i] != 0xff)
            fail_msg("%s: writes %s a buffer of %zu bytes", who, fenced[i] != 0xff ? "before" : "after", bytes);
    free(fenced);
    ops_on->free(ctx, start);
}

/* The views of a call on the device: operands, then results. */
typedef struct run_views {
    const k_context *ctx;
    k_view host[MAX_VIEWS], device[MAX_VIEWS];
    int n;
} run_views;

/* Permutes the elements of v from [N,C,spatial] to [N,spatial,C], or the reverse if `back`. */
static void permute(char *to, const char *from, const k_view *v, bool back)
{
    size_t size = ir_dtype_size(v->dtype);
    int64_t channels = v->dims[1], area = 1;
    for (int i = 2; i < v->rank; i++) area *= v->dims[i];
    for (int64_t i = 0; i < k_count(v); i++) {
        int64_t n = i / (channels * area), channel = i / area % channels, at = i % area;
        size_t logical = (size_t)i * size, last = (size_t)((n * area + at) * channels + channel) * size;
        memcpy(to + (back ? logical : last), from + (back ? last : logical), size);
    }
}

/* The bytes from the first element of v to its last one. */
static size_t span_bytes(const k_view *v)
{
    int64_t last = 0;
    if (!v->strides || k_count(v) == 0) return k_bytes(v);
    for (int d = 0; d < v->rank; d++) last += (v->dims[d] - 1) * v->strides[d];
    return (size_t)(last + 1) * ir_dtype_size(v->dtype);
}

/* Copies v to the device in the device's layout. */
static void *send(const k_context *ctx, const k_view *v, bool channels_last)
{
    const size_t size = ir_dtype_size(v->dtype);
    if (!channels_last) return make_fenced(ctx, v->data, span_bytes(v), size, 0);
    char *other = malloc(k_bytes(v) + 1);
    assert_non_null(other);
    permute(other, v->data, v, false);
    void *memory = make_fenced(ctx, other, k_bytes(v), size, 0);
    free(other);
    return memory;
}

static void fetch_view(const k_context *ctx, const k_view *v, const k_view *device)
{
    if (!device->channels_last) {
        fetch(ctx, v->data, device->data, span_bytes(v));
        return;
    }
    char *other = malloc(k_bytes(v) + 1);
    assert_non_null(other);
    fetch(ctx, other, device->data, k_bytes(v));
    permute(v->data, other, v, true);
    free(other);
}

static void upload_view(run_views *views, const k_view *v, bool channels_last)
{
    int i = views->n++, same = 0;
    assert_true(i < MAX_VIEWS);
    views->host[i] = views->device[i] = *v;
    if (!k_present(v)) return;
    views->device[i].channels_last = channels_last && v->rank >= 3;
    if (!v->data) return;
    while (same < i && views->host[same].data != v->data) same++;
    views->device[i].data = same < i ? views->device[same].data : send(views->ctx, v, views->device[i].channels_last);
}

static void fetch_views(run_views *views)
{
    for (int i = 0; i < views->n; i++) {
        const k_view *v = &views->host[i];
        if (k_present(v) && v->data) fetch_view(views->ctx, v, &views->device[i]);
    }
}

static void free_views(run_views *views, const char *who)
{
    for (int i = 0; i < views->n; i++) {
        bool seen = false;
        for (int k = 0; k < i; k++) seen |= views->device[k].data == views->device[i].data;
        const k_view *v = &views->device[i];
        if (!seen && v->data) free_fenced(views->ctx, v->data, span_bytes(v), 0, who);
    }
}

/* ---- one run --------------------------------------------------------------------------------- */

static ampc_status run_recorded(const k_kernel *kernel, const k_args *args)
{
    const rt_device_ops *device_ops = ops_on->device_ops;
    void *recording = NULL;
    must(args->ctx, device_ops->record(args->ctx));
    ampc_status status = kernel->run(args);
    must(args->ctx, device_ops->finish(args->ctx, &recording));
    if (!status) status = device_ops->replay(args->ctx, recording);
    if (!status) status = device_ops->wait(args->ctx, NULL);
    device_ops->forget(args->ctx, recording);
    return status;
}

static ampc_status read_fault(const k_context *ctx)
{
    static const char *const sentences[] = {
#define SENTENCE(name, sentence) sentence,
        K_FAULT_MAP(SENTENCE)
#undef SENTENCE
    };
    void *word;
    must(ctx, ops_on->device_ops->alloc_host(ctx, sizeof(int), &word));
    must(ctx, ops_on->device_ops->download_fault(ctx, word));
    must(ctx, ops_on->device_ops->wait(ctx, NULL));
    int fault = *(int *)word;
    ops_on->device_ops->free_host(ctx, word);
    if (fault == K_NO_FAULT) return AMPC_OK;
    snprintf(ctx->error, ctx->error_size, "%s", sentences[fault & ((1 << K_FAULT_BITS) - 1)]);
    return AMPC_REJECTED;
}

static ampc_status run_once(const k_kernel *kernel, const k_args *args, bool recorded)
{
    if (!ops_on->device_ops) return kernel->run(args);
    must(args->ctx, ops_on->device_ops->clear_fault(args->ctx));
    ampc_status status = recorded ? run_recorded(kernel, args) : kernel->run(args);
    must(args->ctx, ops_on->device_ops->wait(args->ctx, NULL));
    return status ? status : read_fault(args->ctx);
}

static ampc_status run_in_workspace(const k_kernel *kernel, k_args *args, size_t bytes, bool recorded, int times)
{
    ampc_status status = AMPC_OK;
    args->workspace = make_fenced(args->ctx, NULL, bytes, LINE, FENCE);
    for (int i = 0; i < times && !status; i++) status = run_once(kernel, args, recorded || i > 0);
    free_fenced(args->ctx, args->workspace, bytes, FENCE, ir_op_get(args->op)->name);
    return status;
}

/* ---- states ---------------------------------------------------------------------------------- */

static ampc_status prepare(const k_kernel *kernel, k_args *call, size_t *bytes)
{
    ampc_status status = kernel->prepare ? kernel->prepare(call, &call->state, bytes) : AMPC_OK;
    return status == AMPC_OK && kernel->bind ? kernel->bind(call, &call->bound) : status;
}

static void release(const k_kernel *kernel, const k_args *call)
{
    if (call->bound) kernel->unbind(call->state, call->bound);
    if (kernel->release) kernel->release(call->state);
}

/* ---- packs ----------------------------------------------------------------------------------- */

/* Returns operand j of the call, packed if that is under test and its kernel has a format for it. */
static k_view pack(const k_kernel *kernel, const k_args *call, int j)
{
    const k_format *format = NULL;
    k_view packed = call->in[j];
    if (!ops_packed || !kernel->pack_format || !packed.data) return packed;
    if (kernel->pack_format(call, j, &format) != AMPC_OK || !format) return packed;
    packed.packed = format;
    packed.data = make_fenced(call->ctx, NULL, format->bytes, LINE, 0);
    k_args args = {.op = call->op, .in = &call->in[j], .out = &packed, .n_in = 1, .n_out = 1, .ctx = call->ctx};
    size_t bytes = 0;
    must(call->ctx, prepare(format->pack, &args, &bytes));
    must(call->ctx, run_in_workspace(format->pack, &args, bytes, false, 1));
    release(format->pack, &args);
    return packed;
}

/* Prepares and runs the call, with its operands packed if they are to be. */
static ampc_status run_call(const k_kernel *kernel, const k_args *args, bool recorded, int times)
{
    k_view in[MAX_VIEWS];
    k_args call = *args;
    size_t bytes = 0;
    for (int j = 0; j < args->n_in; j++) in[j] = pack(kernel, args, j);
    call.in = in;
    ampc_status status = prepare(kernel, &call, &bytes);
    if (!status && ops_on->device_ops) status = ops_on->device_ops->prepared(call.ctx);
    if (!status) status = run_in_workspace(kernel, &call, bytes, recorded, times);
    release(kernel, &call);
    for (int j = 0; j < args->n_in; j++)
        if (in[j].packed) free_fenced(call.ctx, in[j].data, in[j].packed->bytes, 0, "a packed operand");
    return status;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void open_device(k_context *ctx)
{
    if (!is_open) must(ctx, ops_on->open(ctx, 0));
    if (!is_open) opened = ctx->device;
    ctx->device = opened;
    is_open = true;
}

void ops_next_isa(void)
{
    static uint32_t draw;
    if (getenv("AMPC_CPU_ISA")) return;
    if (!draw) draw = (uint32_t)tier_seed();
    draw = draw * 1664525 + 1013904223;
    cpu_isa_limit((cpu_isa_level)((draw >> 16) % CPU_ISA_COUNT));
}

ampc_status ops_run(k_args *args, bool recorded, int times)
{
    const k_kernel *kernel = ops_on->kernel(args->op);
    if (!kernel) fail_msg("%s has no kernel for %s", ops_on->name, ir_op_get(args->op)->name);
    return ops_run_kernel(kernel, args, recorded, times);
}

ampc_status ops_run_kernel(const k_kernel *kernel, const k_args *args, bool recorded, int times)
{
    k_context ctx = *args->ctx;
    run_views views = {.ctx = &ctx};
    open_device(&ctx);
    const bool spatial = ir_op_has(args->op, IR_SPATIAL),
               convolution = spatial && ir_op_get(args->op)->colour == IR_WHITE;
    const k_view *plain = convolution && ops_on->plain_weights ? conv_of(args).w : NULL;
    const bool channels_last = ops_channels_last && spatial;
    for (int i = 0; i < args->n_in; i++) upload_view(&views, &args->in[i], channels_last && &args->in[i] != plain);
    for (int i = 0; i < args->n_out; i++) upload_view(&views, &args->out[i], channels_last && &args->out[i] != plain);
    k_args call = *args;
    call.in = views.device;
    call.out = views.device + args->n_in;
    call.ctx = &ctx;
    const ampc_status status = run_call(kernel, &call, recorded, times);
    if (!status) fetch_views(&views);
    free_views(&views, ir_op_get(args->op)->name);
    return status;
}

ampc_status ops_prepare(const k_kernel *kernel, const k_args *args)
{
    k_context ctx = *args->ctx;
    k_args call = *args;
    size_t bytes = 0;
    open_device(&ctx);
    call.ctx = &ctx;
    const ampc_status status = prepare(kernel, &call, &bytes);
    release(kernel, &call);
    return status;
}

bool ops_absorbs(const k_args *args)
{
    k_context ctx = *args->ctx;
    k_args call = *args;
    open_device(&ctx);
    call.ctx = &ctx;
    return ops_on->absorbs(&call) == AMPC_OK;
}

int ops_main(int argc, char **argv, int (*tests)(void))
{
    static const char option[] = "--device=";
    int index = 0;
    if (argc > 1 && strncmp(argv[1], option, sizeof option - 1) == 0)
        ops_on = rt_backend_find(argv[1] + sizeof option - 1, &index);
    if (!ops_on) {
        fprintf(stderr, "%s: no such device\n", argv[1]);
        return 2;
    }
    ops_brief = getenv("OPS_BRIEF") != NULL;
    if (ops_brief && !is_typical(IR_f32)) {
        fprintf(stderr, "OPS_BRIEF=%s: no list of types with f32\n", getenv("OPS_BRIEF"));
        return 2;
    }
    if (ops_brief && further_type() != IR_NO_DTYPE && !getenv("OPS_LIST"))
        print_message("types: %s and, in turn, %s\n", getenv("OPS_BRIEF"), ir_dtype_name(further_type()));
    int failures = tests();
    k_context ctx = {.device = opened};
    if (is_open) ops_on->close(&ctx);
    return failures != 0;
}
