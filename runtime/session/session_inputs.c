/* session_inputs.c - binds the caller's tensors to the inputs of a plan.
 *
 * A symbol is solved from a dimension that is linear in it and has no other unknown symbol (N, 4*N+2), input by input
 * until no more symbols can be solved. Then every dimension must have the actual size. */
#include "ir/ops/number.h"
#include "runtime/session/session_state.h"
#include "runtime/session/batch.h"
#include "runtime/files/convert.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const rt_tensor *find_tensor(const rt_tensor *inputs, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(inputs[i].name, name) == 0) return &inputs[i];
    return NULL;
}

/* ---- symbols --------------------------------------------------------------------------------- */

static bool solve_inputs(rt_session *s, const ir_graph *g, const rt_tensor *inputs, int n)
{
    bool solved = false;
    for (size_t i = 0; i < g->inputs.count; i++) {
        const ir_value *v = g->inputs.items[i];
        const rt_tensor *tensor = find_tensor(inputs, n, v->name);
        for (int axis = 0; tensor && axis < v->type.rank && axis < tensor->rank; axis++)
            solved = ir_dim_solve(s->module->dims, v->type.dims[axis], tensor->dims[axis], s->sizes) || solved;
    }
    return solved;
}

static ampc_status check_axis(const rt_session *s, const ir_value *v, int axis, int64_t actual, diag *d)
{
    const ir_dim_table *t = s->module->dims;
    ir_dim dim = v->type.dims[axis];
    char text[RT_DIM_TEXT];
    int64_t size;
    size_t symbol = 0;
    bool is_bound = ir_dim_eval(t, dim, s->sizes, &size, &symbol);
    if (!is_bound && symbol == SIZE_MAX)
        return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "input '%s': axis %d, which is %s, is too large", v->name,
                          axis, rt_dim_text(t, dim, text));
    if (!is_bound)
        return diag_error(d, AMPC_REJECTED,
                          DIAG_USE(DIAG_NOWHERE, OPTION_dims, .key = ir_dim_symbol_name(t, symbol), .value = "SIZE"),
                          "input '%s': axis %d is %s, which is %" PRId64 " for no size of '%s'", v->name, axis,
                          rt_dim_text(t, dim, text), actual, ir_dim_symbol_name(t, symbol));
    if (size == actual) return AMPC_OK;
    if (!ir_dim_is_symbolic(dim))
        return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE,
                          "input '%s': axis %d has size %" PRId64 ", but the graph requires %" PRId64, v->name, axis,
                          actual, size);
    return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE,
                      "input '%s': axis %d has size %" PRId64 ", but %s is %" PRId64
                      " according to the options or another input",
                      v->name, axis, actual, rt_dim_text(t, dim, text), size);
}

static ampc_status check_shape(const rt_session *s, const ir_value *v, const rt_tensor *tensor, diag *d)
{
    if (tensor->rank != v->type.rank)
        return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "input '%s' has %d dimensions, but the graph requires %d",
                          v->name, tensor->rank, v->type.rank);
    for (int axis = 0; axis < tensor->rank; axis++) TRY(check_axis(s, v, axis, tensor->dims[axis], d));
    return AMPC_OK;
}

ampc_status rt_inputs_bind(rt_session *s, const ir_graph *g, const rt_tensor *inputs, int n, diag *d)
{
    memcpy(s->sizes, s->fixed, s->n_symbols * sizeof *s->sizes);
    while (solve_inputs(s, g, inputs, n)) continue;
    for (int i = 0; i < n; i++) {
        const ir_value *v = ir_graph_find_input(g, inputs[i].name);
        if (!v)
            return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "graph @%s has no input '%s'", g->name, inputs[i].name);
        TRY(check_shape(s, v, &inputs[i], d));
    }
    return AMPC_OK;
}

/* ---- data ------------------------------------------------------------------------------------ */

static bool converts(ir_dtype from, ir_dtype to)
{
    return from == to || (ir_dtype_is_float(from) && ir_dtype_is_float(to)) ||
           (ir_dtype_is_int(from) && ir_dtype_is_int(to));
}

/* Whether the 64 bits `v` of an integer mean the same number in both types. */
static bool is_same_number(int64_t v, ir_dtype from, ir_dtype to)
{
    return v >= 0 || (from == IR_u64) == (to == IR_u64);
}

/* An integer that the graph's type cannot represent is an error; it is not wrapped. */
static ampc_status check_integers(const rt_tensor *from, ir_dtype to, const void *converted, int64_t count, diag *d)
{
    for (int64_t i = 0; i < count; i++) {
        const void *at = (const char *)from->data + i * (int64_t)ir_dtype_size(from->dtype);
        int64_t before = ir_load_i64(from->dtype, at);
        int64_t after = ir_load_i64(to, (const char *)converted + i * (int64_t)ir_dtype_size(to));
        if (before == after && is_same_number(before, from->dtype, to)) continue;
        char number[IR_NUMBER_SIZE];
        ir_element_print(number, from->dtype, at);
        return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE,
                          "input '%s': element %" PRId64 " is %s, which %s cannot represent", from->name, i, number,
                          ir_dtype_name(to));
    }
    return AMPC_OK;
}

static void drop_staging(rt_session *s, rt_staging *staging)
{
    rt_host_free(s, staging->host);
    if (staging->device) s->backend->free(&s->ctx, staging->device);
    *staging = (rt_staging){0};
}

void rt_inputs_free(rt_session *s)
{
    for (size_t i = 0; s->staging && i < RT_SLOTS * s->n_inputs; i++) drop_staging(s, &s->staging[i]);
}

static ampc_status grow_staging(rt_session *s, rt_staging *staging, const k_view *view, const char *name, diag *d)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    size_t bytes = k_bytes(view) > 0 ? k_bytes(view) : 1;
    if (staging->bytes >= bytes) return AMPC_OK;
    if (device_ops) rt_executions_forget(s);
    drop_staging(s, staging);
    ampc_status status = rt_host_alloc(s, bytes, &staging->host);
    if (status == AMPC_OK && device_ops) status = s->backend->alloc(&s->ctx, bytes, &staging->device);
    if (status != AMPC_OK) {
        drop_staging(s, staging);
        return rt_memory_error(s, status, d, name, (int64_t)bytes);
    }
    staging->bytes = bytes;
    return AMPC_OK;
}

/* Converts the input to the graph's type and sets the address that the kernels read. */
static ampc_status stage_input(rt_session *s, int slot, size_t i, const rt_tensor *tensor, const k_view *view, diag *d)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    rt_staging *staging = &s->staging[(size_t)slot * s->n_inputs + i];
    TRY(grow_staging(s, staging, view, tensor->name, d));
    if (tensor->dtype == view->dtype) memcpy(staging->host, tensor->data, k_bytes(view));
    else
        TRY(rt_convert(view->dtype, staging->host, tensor->dtype, tensor->data, (size_t)k_count(view), DIAG_NOWHERE,
                       tensor->name, d));
    if (tensor->dtype != view->dtype && ir_dtype_is_int(view->dtype))
        TRY(check_integers(tensor, view->dtype, staging->host, k_count(view), d));
    s->inputs[i] = device_ops ? staging->device : staging->host;
    if (device_ops) RT_DEVICE(s, d, device_ops->prefetch(&s->ctx, staging->device, staging->host, k_bytes(view)));
    return AMPC_OK;
}

/* A run of selected outputs needs only the inputs that these depend on. */
static bool is_needed(const rt_plan *p, const rt_value *v) { return !p->selection || v->last_use >= 0 || v->is_output; }

static ampc_status gather_input(rt_session *s, const rt_plan *p, size_t i, const rt_tensor *inputs, int n, int slot,
                                diag *d)
{
    const ir_value *v = p->graph->inputs.items[i];
    const k_view *view = &p->values[v->id].view;
    const rt_tensor *tensor = find_tensor(inputs, n, v->name);
    if (!tensor && !is_needed(p, &p->values[v->id])) return AMPC_OK;
    if (!tensor)
        return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "input '%s' of graph @%s is missing", v->name,
                          p->graph->name);
    if (!converts(tensor->dtype, view->dtype))
        return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "input '%s' is %s, but the graph requires %s", v->name,
                          ir_dtype_name(tensor->dtype), ir_dtype_name(view->dtype));
    s->inputs[i] = NULL;
    if (k_count(view) == 0) return AMPC_OK; /* the caller may have no memory for it */
    if (s->backend->device_ops || tensor->dtype != view->dtype) return stage_input(s, slot, i, tensor, view, d);
    s->inputs[i] = tensor->data;
    return AMPC_OK;
}

ampc_status rt_inputs_gather(rt_session *s, const rt_plan *p, const rt_tensor *inputs, int n, int slot, diag *d)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    /* Wait for the last run that read this slot, because it may still use the staging buffers. */
    if (device_ops && s->slot_marks[slot] && !device_ops->passed(&s->ctx, s->slot_marks[slot]))
        RT_DEVICE(s, d, device_ops->wait(&s->ctx, s->slot_marks[slot]));
    for (size_t i = 0; i < p->graph->inputs.count; i++) TRY(gather_input(s, p, i, inputs, n, slot, d));
    if (device_ops) RT_DEVICE(s, d, device_ops->join_prefetches(&s->ctx));
    return AMPC_OK;
}
