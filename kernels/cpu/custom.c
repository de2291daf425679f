/* custom.c - custom operators: the calls of their functions, for all devices, and the kernels of the CPU. */
#include "ir/ops/shape_text.h"
#include "kernels/cpu/cpu.h"
#include "kernels/custom.h"

#include <stdio.h>
#include <string.h>

/* By position. */
typedef struct custom_views {
    ampc_view operands[CUSTOM_MAX], results[CUSTOM_MAX];
    ampc_view result_gradients[CUSTOM_MAX], operand_gradients[CUSTOM_MAX];
} custom_views;

typedef struct custom_state {
    arena *arena; /* holds everything, including this struct */
    const custom_op *op;
    ampc_forward *function;
    bool is_gradient;
    custom_types types;
    /* The views without data, and the index of the kernel's operand or result that each shows; -1: none. */
    custom_views views;
    int operand_at[CUSTOM_MAX], result_at[CUSTOM_MAX], result_gradient_at[CUSTOM_MAX], operand_gradient_at[CUSTOM_MAX];
} custom_state;

/* ---- positions -------------------------------------------------------------------------------- */

static const ir_attr *attr(const k_args *args, const char *slot)
{
    return &args->attr[ir_op_find_attr(args->op, slot)];
}

/* The type of a view; its index, or -1, is recorded in *at. */
static void show(ampc_view *to, int *at, const k_view *views, int index)
{
    *to = (ampc_view){0};
    *at = index;
    if (index < 0) return;
    const k_view *from = &views[index];
    to->dtype = (ampc_dtype)from->dtype;
    to->rank = from->rank;
    to->bytes = k_bytes(from);
    memcpy(to->dims, from->dims, sizeof to->dims);
}

/* Inference has checked that the layout fits the operands and results. */
static bool find_positions(custom_state *s, const k_args *args)
{
    const char *operands = args->layout->marks, *results = operands + args->layout->n_in;
    const char *gradients = attr(args, "gradients")->s;
    custom_types *t = &s->types;
    int in = 0, out = 0;
    t->n_in = args->layout->n_in;
    t->n_out = args->layout->n_out;
    if (t->n_in > CUSTOM_MAX || t->n_out > CUSTOM_MAX) return false;
    for (int i = 0; i < t->n_in; i++) {
        const bool present = operands[i] != '_';
        const bool has_gradient = s->is_gradient && present && gradients[in] == 'd';
        show(&s->views.operand_gradients[i], &s->operand_gradient_at[i], args->out, has_gradient ? out++ : -1);
        show(&s->views.operands[i], &s->operand_at[i], args->in, present ? in++ : -1);
    }
    for (int i = 0; i < t->n_out; i++) {
        const bool present = results[i] != '_';
        const int at = !present ? -1 : s->is_gradient ? in++ : out++;
        show(&s->views.results[i], &s->result_at[i], s->is_gradient ? args->in : args->out, at);
    }
    for (int i = 0; i < t->n_out; i++) {
        const bool has_gradient = s->is_gradient && ir_dtype_is_float((ir_dtype)s->views.results[i].dtype);
        show(&s->views.result_gradients[i], &s->result_gradient_at[i], args->in, has_gradient ? in++ : -1);
    }
    return true;
}

/* ---- prepare ---------------------------------------------------------------------------------- */

static ampc_status find_operator(custom_state *s, const k_args *args, const custom_device *device)
{
    const k_context *ctx = args->ctx;
    const char *domain = attr(args, "domain")->s, *name = attr(args, "op_type")->s;
    const int64_t since = attr(args, "since")->i;
    s->op = custom_find(ctx->custom, domain, name, since);
    if (!s->op || s->op->table.since != since)
        return cpu_fail(ctx, AMPC_UNSUPPORTED, "operator %s::%s of version %lld is not registered", domain, name,
                        (long long)since);
    s->function = s->is_gradient ? device->gradient(&s->op->table) : device->forward(&s->op->table);
    if (s->function) return AMPC_OK;
    return cpu_fail(ctx, AMPC_UNSUPPORTED, "operator %s::%s has no %s on device %s", domain, name,
                    s->is_gradient ? "gradient" : "function", device->name);
}

static ampc_status check_result(const custom_state *s, const k_context *ctx, int i)
{
    const ampc_type *is = &s->types.out[i];
    const ampc_view *expected = &s->views.results[i];
    const size_t bytes = (size_t)expected->rank * sizeof *is->dims;
    if (is->dtype == expected->dtype && is->rank == expected->rank && !memcmp(is->dims, expected->dims, bytes))
        return AMPC_OK;
    char text[2][IR_SHAPE_TEXT];
    return cpu_fail(ctx, AMPC_REJECTED, "infer has set %s for result %d, which was %s when the model was imported",
                    ir_shape_text(text[0], ir_dtype_name((ir_dtype)is->dtype), is->rank, is->dims), i,
                    ir_shape_text(text[1], ir_dtype_name((ir_dtype)expected->dtype), expected->rank, expected->dims));
}

/* A saved module may come from a context in which the operator allowed other types. */
static ampc_status check_operands(const custom_state *s, const k_context *ctx)
{
    for (int i = 0; i < s->types.n_in; i++) {
        const ir_dtype t = (ir_dtype)s->views.operands[i].dtype;
        const bool is_f32 = s->op->table.f32_operands >> i & 1;
        const bool allowed = is_f32 ? !ir_dtype_is_low(t) : custom_allows(s->op, t);
        if (ir_dtype_is_float(t) && !allowed)
            return cpu_fail(ctx, AMPC_UNSUPPORTED, "operator %s::%s does not allow operand %d in %s",
                            s->op->table.domain, s->op->table.name, i, ir_dtype_name(t));
    }
    return AMPC_OK;
}

static ampc_status infer(custom_state *s, const k_args *args)
{
    custom_types *t = &s->types;
    char message[512];
    for (int i = 0; i < t->n_in; i++) {
        t->in[i] = (ampc_type){.dtype = s->views.operands[i].dtype, .rank = s->views.operands[i].rank};
        memcpy(t->in[i].dims, s->views.operands[i].dims, sizeof t->in[i].dims);
    }
    ampc_status status = custom_infer(args->ctx->custom, s->op, t, message, sizeof message);
    if (status != AMPC_OK) return cpu_fail(args->ctx, status, "%s", message);
    for (int i = 0; i < t->n_out && status == AMPC_OK; i++)
        if (s->views.results[i].dtype) status = check_result(s, args->ctx, i);
    return status;
}

static ampc_status fill_state(custom_state *s, const k_args *args, const custom_device *device)
{
    s->is_gradient = args->op == IR_OP_custom_grad;
    ampc_status status = find_operator(s, args, device);
    if (status != AMPC_OK) return status;
    if (!find_positions(s, args))
        return cpu_fail(args->ctx, AMPC_UNSUPPORTED, "more than %d operands or results", CUSTOM_MAX);
    s->types.node = args->node ? args->node : "";
    const ir_attr *fields = attr(args, "fields");
    s->types.attributes = (ampc_attributes){ir_fields_copy(s->arena, fields->fields.items, fields->fields.count),
                                            fields->fields.count};
    status = check_operands(s, args->ctx);
    return status == AMPC_OK ? infer(s, args) : status;
}

ampc_status custom_prepare(const k_args *args, const custom_device *device, void **state, size_t *workspace)
{
    jmp_buf guard;
    arena *a = arena_new(0);
    if (!a) return AMPC_NO_MEMORY;
    if (setjmp(guard)) {
        arena_free(a);
        return AMPC_NO_MEMORY;
    }
    arena_set_guard(a, &guard);
    custom_state *s = arena_alloc(a, sizeof *s);
    s->arena = a;
    ampc_status status = fill_state(s, args, device);
    arena_set_guard(a, NULL);
    if (status != AMPC_OK) {
        arena_free(a);
        return status;
    }
    *workspace = s->types.workspace[s->is_gradient];
    *state = s;
    return AMPC_OK;
}

void custom_release(void *state)
{
    custom_state *s = state;
    if (s) arena_free(s->arena);
}

/* ---- run -------------------------------------------------------------------------------------- */

static void set_views(ampc_view *to, const ampc_view *from, const int *at, const k_view *views, int n)
{
    for (int i = 0; i < n; i++) {
        to[i] = from[i];
        if (at[i] >= 0) to[i].data = views[at[i]].data;
    }
}

static void show_all(const custom_state *s, const k_args *args, custom_views *v)
{
    const custom_views *from = &s->views;
    const int n_in = s->types.n_in, n_out = s->types.n_out;
    set_views(v->operands, from->operands, s->operand_at, args->in, n_in);
    set_views(v->results, from->results, s->result_at, s->is_gradient ? args->in : args->out, n_out);
    if (!s->is_gradient) return;
    set_views(v->result_gradients, from->result_gradients, s->result_gradient_at, args->in, n_out);
    set_views(v->operand_gradients, from->operand_gradients, s->operand_gradient_at, args->out, n_in);
}

ampc_status custom_run(const k_args *args, void *stream)
{
    const custom_state *s = args->state;
    char reason[256] = "", message[512];
    custom_views views;
    show_all(s, args, &views);
    const ampc_call call = {.struct_size = sizeof call,
                            .node = s->types.node,
                            .attributes = &s->types.attributes,
                            .n_operands = (size_t)s->types.n_in,
                            .n_results = (size_t)s->types.n_out,
                            .operands = views.operands,
                            .results = views.results,
                            .result_gradients = s->is_gradient ? views.result_gradients : NULL,
                            .operand_gradients = s->is_gradient ? views.operand_gradients : NULL,
                            .workspace = args->workspace,
                            .threads = args->ctx->threads,
                            .stream = stream,
                            .message = reason,
                            .message_size = sizeof reason};
    args->ctx->custom->calls = true;
    ampc_status status = s->function(&call, s->op->table.user);
    args->ctx->custom->calls = false;
    if (status == AMPC_OK) return AMPC_OK;
    status = custom_failed(status, s->is_gradient ? "gradient" : "forward", reason, sizeof reason, message,
                           sizeof message);
    return cpu_fail(args->ctx, status, "%s", message);
}

/* ---- the CPU ---------------------------------------------------------------------------------- */

static ampc_forward *forward(const ampc_operator *table) { return table->forward_cpu; }
static ampc_forward *gradient(const ampc_operator *table) { return table->gradient_cpu; }

static ampc_status prepare(const k_args *args, void **state, size_t *workspace)
{
    static const custom_device cpu = {"cpu", forward, gradient};
    return custom_prepare(args, &cpu, state, workspace);
}

static ampc_status run(const k_args *args) { return custom_run(args, NULL); }

const k_kernel cpu_custom = {.prepare = prepare, .run = run, .release = custom_release};
const k_kernel cpu_custom_grad = {.prepare = prepare, .run = run, .release = custom_release};
