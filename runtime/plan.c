/* plan.c - shapes, steps and prepared kernels of a plan; plan_memory.c places its values, plan_group.c finds the steps
 * that run together. */
#include "runtime/plan.h"
#include "runtime/alloc.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool has_trait(const ir_node *n, unsigned trait)
{
    return (ir_op_get(n->op)->traits & trait) != 0;
}

/* Operands and results that a kernel may look at: slots that the node leaves out are absent views. */
static int step_inputs(const ir_node *n)
{
    int slots = ir_op_get(n->op)->n_in;
    return n->n_in > slots ? n->n_in : slots;
}

static int step_outputs(const ir_node *n)
{
    int slots = ir_op_get(n->op)->n_out;
    return n->n_out > slots ? n->n_out : slots;
}

/* ---- which nodes run ------------------------------------------------------------------------- */

static bool is_needed(const ir_node *n, const bool *needed)
{
    if (has_trait(n, IR_EFFECT)) return true;
    for (int i = 0; i < n->n_out; i++)
        if (needed[n->out[i]->id]) return true;
    return false;
}

/* needed[value id]: some node that runs reads it. */
static void find_needed(const ir_graph *g, bool *needed)
{
    for (const ir_node *n = g->last; n; n = n->prev) {
        if (!is_needed(n, needed)) continue;
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i].value) needed[n->in[i].value->id] = true;
    }
}

/* ---- shapes under the binding ---------------------------------------------------------------- */

static ampc_status unbound(const rt_plan *p, size_t symbol, diag_loc loc, diag *d)
{
    return diag_error(d, AMPC_REJECTED, loc,
                      "graph @%s: the size of symbol '%s' is not known from the inputs; bind it",
                      p->graph->name, ir_dim_symbol_name(p->graph->module->dims, symbol));
}

static ampc_status evaluate(const rt_plan *p, ir_dim dim, diag_loc loc, diag *d, int64_t *out)
{
    size_t symbol = 0;
    if (ir_dim_eval(p->graph->module->dims, dim, p->sizes, out, &symbol)) return AMPC_OK;
    return unbound(p, symbol, loc, d);
}

static ampc_status shape_value(rt_plan *p, const ir_value *v, diag *d)
{
    diag_loc loc = v->def ? ir_diag_loc(v->def) : DIAG_NOWHERE;
    rt_value *value = &p->values[v->id];
    value->value = v;
    k_view view = {.dtype = v->type.dtype, .rank = v->type.rank};
    int64_t bytes = (int64_t)ir_dtype_size(v->type.dtype);
    for (int i = 0; i < view.rank; i++) {
        TRY(evaluate(p, v->type.dims[i], loc, d, &view.dims[i]));
        if (view.dims[i] < 0)
            return diag_error(d, AMPC_REJECTED, loc,
                              "dimension %d of '%s' would be %" PRId64 " under these sizes", i,
                              v->name, view.dims[i]);
        if (!checked_mul(bytes, view.dims[i], &bytes))
            return diag_error(d, AMPC_REJECTED, loc, "'%s' is too large under these sizes",
                              v->name);
    }
    value->view = view;
    return AMPC_OK;
}

static ampc_status shape_node(rt_plan *p, const ir_node *n, diag *d)
{
    for (int i = 0; i < n->n_in; i++) {
        const ir_value *v = n->in[i].value;
        if (v && p->values[v->id].view.dtype == IR_NO_DTYPE) TRY(shape_value(p, v, d));
    }
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i]->type.dtype != IR_NO_DTYPE) TRY(shape_value(p, n->out[i], d));
    return AMPC_OK;
}

static ampc_status shape_values(rt_plan *p, const bool *needed, diag *d)
{
    for (size_t i = 0; i < p->graph->inputs.count; i++)
        TRY(shape_value(p, p->graph->inputs.items[i], d));
    for (const ir_node *n = p->graph->first; n; n = n->next)
        if (is_needed(n, needed)) TRY(shape_node(p, n, d));
    return AMPC_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

typedef struct pool_sizes {
    size_t steps, effects, views, attrs, dims;
} pool_sizes;

static bool runs(const ir_node *n) { return !has_trait(n, IR_EFFECT | IR_VIEW); }

static pool_sizes measure(const ir_graph *g, const bool *needed)
{
    pool_sizes s = {0};
    for (const ir_node *n = g->first; n; n = n->next) {
        if (has_trait(n, IR_EFFECT)) s.effects++;
        if (!runs(n) || !is_needed(n, needed)) continue;
        const ir_op_info *info = ir_op_get(n->op);
        s.steps++;
        s.views += (size_t)(step_inputs(n) + step_outputs(n));
        s.attrs += (size_t)info->n_attr;
        for (int i = 0; i < info->n_attr; i++)
            if (info->attr[i].kind == IR_SLOT_DIMS) s.dims += (size_t)n->attr[i].list.count;
    }
    return s;
}

static bool allocate(rt_plan *p, pool_sizes s)
{
    size_t inputs = p->graph->inputs.count, values = p->graph->value_ids;
    p->values = rt_alloc(values + 1, sizeof *p->values);
    p->steps = rt_alloc(s.steps + 1, sizeof *p->steps);
    p->buffers = rt_alloc(values + inputs + s.steps + s.effects + 1, sizeof *p->buffers);
    p->before = rt_alloc(s.effects + 1, sizeof *p->before);
    p->after = rt_alloc(s.effects + 1, sizeof *p->after);
    p->outputs = rt_alloc(s.effects + 1, sizeof *p->outputs);
    p->views = rt_alloc(s.views + 1, sizeof *p->views);
    p->indices = rt_alloc(s.views + 1, sizeof *p->indices);
    p->attrs = rt_alloc(s.attrs + 1, sizeof *p->attrs);
    p->dims = rt_alloc(s.dims + 1, sizeof *p->dims);
    return p->values && p->steps && p->buffers && p->before && p->after && p->outputs && p->views &&
           p->indices && p->attrs && p->dims;
}

typedef struct pool_cursor {
    k_view *views;
    int *indices;
    ir_attr *attrs;
    int64_t *dims;
} pool_cursor;

static ampc_status take_attrs(const rt_plan *p, const ir_node *n, rt_step *step, pool_cursor *at,
                              diag *d)
{
    const ir_op_info *info = ir_op_get(n->op);
    step->attr = at->attrs;
    at->attrs += info->n_attr;
    for (int i = 0; i < info->n_attr; i++) {
        step->attr[i] = n->attr[i];
        if (info->attr[i].kind != IR_SLOT_DIMS) continue;
        for (int j = 0; j < n->attr[i].list.count; j++)
            TRY(evaluate(p, n->attr[i].list.items[j], ir_diag_loc(n), d, &at->dims[j]));
        step->attr[i].list.items = at->dims;
        at->dims += n->attr[i].list.count;
    }
    return AMPC_OK;
}

static void take_views(const rt_plan *p, const ir_node *n, rt_step *step, pool_cursor *at)
{
    int n_in = step_inputs(n), n_out = step_outputs(n);
    step->in = at->views;
    step->out = at->views + n_in;
    step->in_buffer = at->indices;
    step->out_buffer = at->indices + n_in;
    at->views += n_in + n_out;
    at->indices += n_in + n_out;
    for (int i = 0; i < n_in + n_out; i++) step->in_buffer[i] = RT_NO_BUFFER;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i].value) step->in[i] = p->values[n->in[i].value->id].view;
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i]->type.dtype != IR_NO_DTYPE) step->out[i] = p->values[n->out[i]->id].view;
}

static bool lacks_kernel(const rt_plan *p, const ir_node *n, const bool *needed)
{
    return runs(n) && is_needed(n, needed) && !p->backend->kernel(n->op);
}

static const char *operator_of(const ir_node *n)
{
    return n->loc.op ? n->loc.op : ir_op_get(n->op)->name;
}

/* Names of all operators without a kernel, each once, as many as there is room for. */
static void list_lacking(const rt_plan *p, const bool *needed, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (const ir_node *n = p->graph->first; n && used < size; n = n->next) {
        if (!lacks_kernel(p, n, needed)) continue;
        int count = 1;
        const ir_node *same = n->prev;
        while (same && !(lacks_kernel(p, same, needed) && strcmp(operator_of(same), operator_of(n)) == 0))
            same = same->prev;
        if (same) continue;
        for (const ir_node *k = n->next; k; k = k->next)
            count += lacks_kernel(p, k, needed) && strcmp(operator_of(k), operator_of(n)) == 0;
        used += (size_t)snprintf(text + used, size - used, "%s%s (%d node%s)", used ? ", " : "", operator_of(n), count,
                                 count == 1 ? "" : "s");
    }
}

/* All of them in one error, at the first. */
static ampc_status check_kernels(const rt_plan *p, const bool *needed, diag *d)
{
    char text[1024];
    const ir_node *n = p->graph->first;
    while (n && !lacks_kernel(p, n, needed)) n = n->next;
    if (!n) return AMPC_OK;
    list_lacking(p, needed, text, sizeof text);
    return diag_error(d, AMPC_UNSUPPORTED, ir_diag_loc(n), "no kernel on device %s for: %s", p->backend->name, text);
}

static ampc_status make_steps(rt_plan *p, const bool *needed, diag *d)
{
    TRY(check_kernels(p, needed, d));
    pool_cursor at = {p->views, p->indices, p->attrs, p->dims};
    for (const ir_node *n = p->graph->first; n; n = n->next) {
        if (!runs(n) || !is_needed(n, needed)) continue;
        rt_step *step = &p->steps[p->n_steps++];
        *step = (rt_step){
            .node = n, .kernel = p->backend->kernel(n->op), .workspace = RT_NO_BUFFER};
        take_views(p, n, step, &at);
        TRY(take_attrs(p, n, step, &at, d));
    }
    return AMPC_OK;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static k_args step_args(const rt_plan *p, const rt_step *s)
{
    return (k_args){.op = s->node->op,
                    .in = s->in,
                    .out = s->out,
                    .n_in = s->node->n_in,
                    .n_out = s->node->n_out,
                    .attr = s->attr,
                    .state = s->state,
                    .step = (int)(s - p->steps),
                    .ctx = p->ctx};
}

static ampc_status prepare_step(rt_plan *p, rt_step *s, diag *d)
{
    static _Alignas(256) char somewhere[256]; /* stands for addresses that are not known yet */
    for (int i = 0; i < s->node->n_in; i++) s->in[i].data = k_present(&s->in[i]) ? somewhere : NULL;
    for (int i = 0; i < s->node->n_out; i++)
        s->out[i].data = s->out_buffer[i] != RT_NO_BUFFER ? somewhere : NULL;
    if (!s->kernel->prepare) return AMPC_OK;
    k_args args = step_args(p, s);
    if (p->ctx->error_size) p->ctx->error[0] = '\0';
    ampc_status status = s->kernel->prepare(&args, &s->state, &s->workspace_bytes);
    if (status == AMPC_OK) return AMPC_OK;
    const char *reason = p->ctx->error[0] ? p->ctx->error : ampc_status_sentence(status);
    return diag_error(d, status, ir_diag_loc(s->node), "%s: %s", ir_op_get(s->node->op)->name,
                      reason);
}

/* All refusals are reported, not only the first. */
static ampc_status prepare_steps(rt_plan *p, diag *d)
{
    ampc_status first = AMPC_OK;
    for (int i = 0; i < p->n_steps; i++) {
        rt_step *s = &p->steps[i];
        ampc_status status = prepare_step(p, s, d);
        if (first == AMPC_OK) first = status;
        if (status == AMPC_NO_MEMORY) break;
        if (s->workspace_bytes)
            s->workspace = rt_plan_add_buffer(p, (rt_buffer){.home = RT_ARENA,
                                                             .bytes = (int64_t)s->workspace_bytes,
                                                             .first = i,
                                                             .last = i});
    }
    return first;
}

/* ---- making and freeing ---------------------------------------------------------------------- */

int rt_plan_add_buffer(rt_plan *p, rt_buffer b)
{
    p->buffers[p->n_buffers] = b;
    return p->n_buffers++;
}

static ampc_status no_memory(const rt_plan *p, diag *d)
{
    return diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "graph @%s: out of memory while planning",
                      p->graph->name);
}

static ampc_status build(rt_plan *p, bool *needed, diag *d)
{
    find_needed(p->graph, needed);
    if (!allocate(p, measure(p->graph, needed))) return no_memory(p, d);
    TRY(shape_values(p, needed, d));
    TRY(make_steps(p, needed, d));
    rt_plan_place(p);
    TRY(prepare_steps(p, d));
    return rt_plan_pack(p) && rt_plan_group(p) ? AMPC_OK : no_memory(p, d);
}

ampc_status rt_plan_make(const ir_graph *g, const int64_t *sizes, const rt_backend *backend,
                         const k_context *ctx, diag *d, rt_plan **out)
{
    rt_plan *p = rt_alloc(1, sizeof *p);
    rt_plan none = {.graph = g};
    if (!p) return no_memory(&none, d);
    *p = (rt_plan){.graph = g,
                   .backend = backend,
                   .ctx = ctx,
                   .n_symbols = ir_dim_symbol_count(g->module->dims)};
    p->sizes = rt_alloc(p->n_symbols + 1, sizeof *p->sizes);
    bool *needed = rt_alloc((size_t)g->value_ids + 1, sizeof *needed);
    ampc_status status = AMPC_NO_MEMORY;
    if (p->sizes && needed) {
        memcpy(p->sizes, sizes, p->n_symbols * sizeof *sizes);
        status = build(p, needed, d);
    } else {
        no_memory(p, d);
    }
    rt_free(needed);
    if (status == AMPC_OK)
        *out = p;
    else
        rt_plan_free(p);
    return status;
}

void rt_plan_free(rt_plan *p)
{
    if (!p) return;
    for (int i = 0; i < RT_SLOTS && p->backend->away; i++)
        p->backend->away->forget(p->ctx, p->recordings[i]);
    for (int i = 0; i < p->n_steps; i++)
        if (p->steps[i].kernel && p->steps[i].kernel->release)
            p->steps[i].kernel->release(p->steps[i].state);
    void *owned[] = {p->sizes, p->values,  p->steps, p->buffers, p->before, p->after, p->outputs,
                     p->views, p->indices, p->attrs, p->dims,    p->calls,  p};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) rt_free(owned[i]);
}

void *rt_plan_address(const rt_plan *p, int buffer, char *base, void *const *storage,
                      void *const *inputs)
{
    if (buffer == RT_NO_BUFFER) return NULL;
    const rt_buffer *b = &p->buffers[buffer];
    switch (b->home) {
    case RT_ARENA: return base + b->offset;
    case RT_STORAGE: return storage[b->index];
    case RT_INPUT: return inputs[b->index];
    }
    assert(!"no such home");
    return NULL;
}
