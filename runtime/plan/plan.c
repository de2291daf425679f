/* plan.c - shapes, steps and prepared kernels of a plan; plan_memory.c places its values, plan_group.c finds the steps
 * that run together. */
#include "runtime/plan/plan.h"
#include "runtime/backend/alloc.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool has_trait(const ir_node *n, unsigned trait)
{
    return (ir_op_get(n->op)->traits & trait) != 0;
}

/* ---- memory ------------------------------------------------------------------------------------ */

struct rt_block {
    rt_block *next;
};
enum { BLOCK_HEADER = 64 };

void *rt_plan_take(rt_plan *p, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - BLOCK_HEADER) return NULL;
    rt_block *b = rt_alloc(1, BLOCK_HEADER + bytes);
    if (!b) return NULL;
    b->next = p->pool;
    p->pool = b;
    return (char *)b + BLOCK_HEADER;
}

uint32_t rt_plan_derive(rt_plan *p, uint32_t of, const k_view *view)
{
    if (p->n_values == p->values_room) {
        uint32_t room = p->values_room + p->values_room / 2 + 16;
        rt_value *values = rt_alloc(room, sizeof *values);
        if (!values) return RT_NO_VALUE;
        memcpy(values, p->values, p->n_values * sizeof *values);
        rt_free(p->values);
        p->values = values;
        p->values_room = room;
    }
    p->values[p->n_values] =
        (rt_value){.value = p->values[of].value, .derived = true, .view = *view, .root = p->n_values,
                   .buffer = RT_NO_BUFFER, .last_use = -1};
    return p->n_values++;
}

/* ---- which nodes run ------------------------------------------------------------------------- */

/* A store, or an output statement that is selected. */
static bool is_effect(const rt_plan *p, const ir_node *n)
{
    if (n->op != IR_OP_output || !p->selection) return has_trait(n, IR_EFFECT);
    for (int i = 0; i < p->selection->n; i++)
        if (p->selection->names[i] == n->attr[IR_ATTR(output, name)].s) return true;
    return false;
}

static bool is_needed(const rt_plan *p, const ir_node *n, const bool *needed)
{
    if (is_effect(p, n)) return true;
    for (int i = 0; i < n->n_out; i++)
        if (needed[n->out[i]->id]) return true;
    return false;
}

/* needed[value id]: some node that runs reads it. */
static void find_needed(const rt_plan *p, bool *needed)
{
    for (const ir_node *n = p->graph->last; n; n = n->prev) {
        if (!is_needed(p, n, needed)) continue;
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i].value) needed[n->in[i].value->id] = true;
    }
}

/* ---- shapes under the binding ---------------------------------------------------------------- */

static ampc_status evaluate(const rt_plan *p, ir_dim dim, diag_loc loc, diag *d, int64_t *out)
{
    return ir_binding_dim(p->graph, p->sizes, dim, loc, d, out);
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

static ampc_status shape_node(rt_plan *p, ir_binding *sizes, const ir_node *n, diag *d)
{
    for (int i = 0; i < n->n_in; i++) {
        const ir_value *v = n->in[i].value;
        if (v && p->values[v->id].view.dtype == IR_NO_DTYPE) TRY(shape_value(p, v, d));
    }
    TRY(ir_binding_check(sizes, n, d));
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i]->type.dtype != IR_NO_DTYPE) TRY(shape_value(p, n->out[i], d));
    return AMPC_OK;
}

static void find_roots(rt_plan *p)
{
    for (uint32_t i = 0; i < p->n_values; i++) {
        p->values[i].root = i;
        p->values[i].buffer = RT_NO_BUFFER;
        p->values[i].last_use = -1;
    }
    for (const ir_node *n = p->graph->first; n; n = n->next)
        if (has_trait(n, IR_VIEW)) p->values[n->out[0]->id].root = p->values[n->in[0].value->id].root;
}

/* What inference has concluded from symbols holds up to this size. */
static ampc_status check_symbols(const rt_plan *p, diag *d)
{
    for (size_t i = 0; i < p->n_symbols; i++)
        if (p->sizes[i] > IR_DIM_MOST_SIZE)
            return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE,
                              "graph @%s: %" PRId64 " is too large a size for symbol '%s': %d at most", p->graph->name,
                              p->sizes[i], ir_dim_symbol_name(p->graph->module->dims, i), IR_DIM_MOST_SIZE);
    return AMPC_OK;
}

static ampc_status shape_values(rt_plan *p, ir_binding *sizes, const bool *needed, diag *d)
{
    find_roots(p);
    TRY(check_symbols(p, d));
    for (size_t i = 0; i < p->graph->inputs.count; i++)
        TRY(shape_value(p, p->graph->inputs.items[i], d));
    for (const ir_node *n = p->graph->first; n; n = n->next)
        if (is_needed(p, n, needed)) TRY(shape_node(p, sizes, n, d));
    return AMPC_OK;
}

int *rt_plan_makers(const rt_plan *p)
{
    int *maker = rt_alloc(p->n_values, sizeof *maker);
    for (uint32_t v = 0; v < p->n_values && maker; v++) maker[v] = -1;
    for (int i = 0; i < p->n_steps && maker; i++)
        for (int k = 0; k < p->steps[i].n_out; k++)
            if (p->steps[i].out_value[k] != RT_NO_VALUE) maker[p->steps[i].out_value[k]] = i;
    return maker;
}

int *rt_plan_readers(const rt_plan *p)
{
    int *readers = rt_alloc(p->n_values, sizeof *readers);
    for (int i = 0; i < p->n_steps && readers; i++)
        for (int j = 0; j < p->steps[i].n_in; j++)
            if (p->steps[i].in_value[j] != RT_NO_VALUE) readers[p->values[p->steps[i].in_value[j]].root]++;
    for (int i = 0; i < p->n_effects && readers; i++) readers[p->values[p->effects[i].value].root]++;
    return readers;
}

/* ---- steps ----------------------------------------------------------------------------------- */

bool rt_step_has(const rt_step *s, unsigned trait)
{
    unsigned traits = s->op != IR_OP_COUNT   ? ir_op_get(s->op)->traits
                      : s->program->commits ? IR_PURE | IR_INPLACE | IR_DROPS | IR_COMMITS
                                             : IR_PURE | IR_INPLACE | IR_DROPS;
    return (traits & trait) != 0;
}

const char *rt_step_name(const rt_step *s) { return s->op == IR_OP_COUNT ? "program" : ir_op_get(s->op)->name; }

bool rt_step_make(rt_plan *p, rt_step *s, const ir_node *node, ir_op op, int n_in, int n_out)
{
    int in = n_in, out = n_out;
    if (op != IR_OP_COUNT) {
        const ir_op_info *info = ir_op_get(op);
        if (info->n_in > in) in = info->n_in;
        if (info->n_out > out) out = info->n_out;
    }
    const size_t all = (size_t)(in + out);
    *s = (rt_step){.node = node, .op = op, .n_in = n_in, .n_out = n_out, .workspace = RT_NO_BUFFER, .together = 1};
    s->in = rt_plan_take(p, all, sizeof *s->in + sizeof *s->in_buffer + sizeof *s->in_value);
    if (!s->in) return false;
    s->out = s->in + in;
    s->in_buffer = (int *)(s->in + all);
    s->out_buffer = s->in_buffer + in;
    s->in_value = (uint32_t *)(s->in_buffer + all);
    s->out_value = s->in_value + in;
    for (size_t i = 0; i < all; i++) {
        s->in[i] = (k_view){.dtype = IR_NO_DTYPE};
        s->in_buffer[i] = RT_NO_BUFFER;
        s->in_value[i] = RT_NO_VALUE;
    }
    return true;
}

bool rt_step_widen(rt_plan *p, rt_step *s, int n_in, int n_out)
{
    const rt_step old = *s;
    const int slots_in = ir_op_get(s->op)->n_in, slots_out = ir_op_get(s->op)->n_out;
    if (!rt_step_make(p, s, old.node, old.op, slots_in + n_in, slots_out + n_out)) return false;
    s->kernel = old.kernel;
    s->attr = old.attr;
    s->program = old.program;
    s->kept = old.kept;
    for (int i = 0; i < old.n_in; i++) {
        s->in[i] = old.in[i];
        s->in_value[i] = old.in_value[i];
    }
    for (int i = 0; i < old.n_out; i++) {
        s->out[i] = old.out[i];
        s->out_value[i] = old.out_value[i];
    }
    return true;
}

void rt_step_read(const rt_plan *p, rt_step *s, int i, uint32_t value)
{
    s->in_value[i] = value;
    s->in[i] = p->values[value].view;
}

void rt_step_write(const rt_plan *p, rt_step *s, int i, uint32_t value)
{
    s->out_value[i] = value;
    s->out[i] = p->values[value].view;
}

static bool runs(const ir_node *n) { return !has_trait(n, IR_EFFECT | IR_VIEW); }

static ampc_status no_memory(const rt_plan *p, diag *d)
{
    return diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "graph @%s: out of memory while planning",
                      p->graph->name);
}

static ampc_status take_attrs(rt_plan *p, const ir_node *n, rt_step *step, diag *d)
{
    const ir_op_info *info = ir_op_get(n->op);
    step->attr = rt_plan_take(p, (size_t)info->n_attr, sizeof *step->attr);
    if (!step->attr) return no_memory(p, d);
    for (int i = 0; i < info->n_attr; i++) {
        const size_t count = (size_t)n->attr[i].list.count;
        step->attr[i] = n->attr[i];
        if (info->attr[i].kind != IR_SLOT_DIMS) continue;
        int64_t *numbers = rt_plan_take(p, count, sizeof *numbers);
        if (!numbers) return no_memory(p, d);
        for (size_t j = 0; j < count; j++)
            TRY(evaluate(p, n->attr[i].list.items[j], ir_diag_loc(n), d, &numbers[j]));
        step->attr[i].list.items = numbers;
    }
    return AMPC_OK;
}

static ampc_status make_step(rt_plan *p, const ir_node *n, rt_step *step, diag *d)
{
    if (!rt_step_make(p, step, n, n->op, n->n_in, n->n_out)) return no_memory(p, d);
    step->kernel = p->backend->kernel(n->op);
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i].value) rt_step_read(p, step, i, n->in[i].value->id);
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i]->type.dtype != IR_NO_DTYPE) rt_step_write(p, step, i, n->out[i]->id);
    return take_attrs(p, n, step, d);
}

static bool lacks_kernel(const rt_plan *p, const ir_node *n, const bool *needed)
{
    return runs(n) && is_needed(p, n, needed) && !p->backend->kernel(n->op);
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

static rt_effect make_effect(const ir_node *n)
{
    int read = n->op == IR_OP_store ? IR_IN(store, value) : IR_IN(output, x);
    return (rt_effect){n, n->in[read].value->id};
}

static ampc_status make_steps(rt_plan *p, const bool *needed, diag *d)
{
    TRY(check_kernels(p, needed, d));
    size_t steps = 0, effects = 0;
    for (const ir_node *n = p->graph->first; n; n = n->next) {
        effects += is_effect(p, n);
        steps += runs(n) && is_needed(p, n, needed);
    }
    p->steps = rt_plan_take(p, steps, sizeof *p->steps);
    p->effects = rt_plan_take(p, effects, sizeof *p->effects);
    if (!p->steps || !p->effects) return no_memory(p, d);
    for (const ir_node *n = p->graph->first; n; n = n->next) {
        if (is_effect(p, n)) p->effects[p->n_effects++] = make_effect(n);
        if (runs(n) && is_needed(p, n, needed)) TRY(make_step(p, n, &p->steps[p->n_steps++], d));
    }
    return AMPC_OK;
}

/* ---- kernels --------------------------------------------------------------------------------- */

k_args rt_step_args(const rt_plan *p, const rt_step *s)
{
    return (k_args){.op = s->op,
                    .in = s->in,
                    .out = s->out,
                    .n_in = s->n_in,
                    .n_out = s->n_out,
                    .attr = s->attr,
                    .program = s->program,
                    .state = s->state,
                    .step = (int)(s - p->steps),
                    .ctx = p->ctx};
}

static ampc_status do_nothing(const k_args *args)
{
    (void)args;
    return AMPC_OK;
}

const k_kernel rt_idle_kernel = {.name = "idle", .run = do_nothing};

static bool writes_elements(const rt_step *s)
{
    for (int i = 0; i < s->n_out; i++)
        if (s->out_buffer[i] != RT_NO_BUFFER && k_count(&s->out[i]) > 0) return true;
    return false;
}

static ampc_status prepare_step(rt_plan *p, rt_step *s, diag *d)
{
    static _Alignas(256) char somewhere[256]; /* stands for addresses that are not known yet */
    for (int i = 0; i < s->n_in; i++) s->in[i].data = k_present(&s->in[i]) ? somewhere : NULL;
    for (int i = 0; i < s->n_out; i++)
        s->out[i].data = s->out_buffer[i] != RT_NO_BUFFER ? somewhere : NULL;
    if (!writes_elements(s)) s->kernel = &rt_idle_kernel;
    if (!s->kernel->prepare) return AMPC_OK;
    k_args args = rt_step_args(p, s);
    if (p->ctx->error_size) p->ctx->error[0] = '\0';
    ampc_status status = s->kernel->prepare(&args, &s->state, &s->workspace_bytes);
    if (status == AMPC_OK) return AMPC_OK;
    const char *reason = p->ctx->error[0] ? p->ctx->error : ampc_status_sentence(status);
    return diag_error(d, status, ir_diag_loc(s->node), "%s: %s", rt_step_name(s), reason);
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

/* Of something that looks at the whole plan, with the reason in ctx->error, if there is one. */
static ampc_status report(const rt_plan *p, ampc_status status, diag *d)
{
    if (status == AMPC_OK) return AMPC_OK;
    return diag_error(d, status, DIAG_NOWHERE, "graph @%s: %s", p->graph->name,
                      p->ctx->error[0] ? p->ctx->error : ampc_status_sentence(status));
}

/* What the device makes for all of them at once. */
static ampc_status finish_steps(const rt_plan *p, diag *d)
{
    if (!p->backend->away || p->ctx->plan_only) return AMPC_OK;
    if (p->ctx->error_size) p->ctx->error[0] = '\0';
    return report(p, p->backend->away->prepared(p->ctx), d);
}

/* ---- making and freeing ---------------------------------------------------------------------- */

/* The nodes that run become steps. */
static ampc_status list_steps(rt_plan *p, diag *d)
{
    bool *needed = rt_alloc((size_t)p->graph->value_ids + 1, sizeof *needed);
    ir_binding *sizes = ir_binding_new(p->graph, p->sizes);
    ampc_status status;
    if (needed && sizes) {
        find_needed(p, needed);
        status = shape_values(p, sizes, needed, d);
        if (status == AMPC_OK) status = make_steps(p, needed, d);
    } else {
        status = no_memory(p, d);
    }
    ir_binding_free(sizes);
    rt_free(needed);
    return status;
}

static ampc_status fuse_epilogues(rt_plan *p, diag *d)
{
    if (p->ctx->error_size) p->ctx->error[0] = '\0';
    return report(p, rt_plan_absorb(p), d);
}

static ampc_status prepare_kernels(rt_plan *p, diag *d)
{
    TRY(prepare_steps(p, d));
    return finish_steps(p, d);
}

/* In their order. A row has one of the two functions. */
static const struct stage {
    const char *name;
    bool is_rewrite;                         /* left out where every op stays a step of its own */
    bool (*run)(rt_plan *p);                 /* false: out of memory */
    ampc_status (*check)(rt_plan *p, diag *d); /* may fail otherwise, and has then reported why */
} stages[] = {
    {"steps", false, NULL, list_steps},
    {"update", true, rt_plan_update, NULL},
    {"norm", true, rt_plan_split_norms, NULL},
    {"layout", true, rt_plan_lay_out, NULL},
    {"product", true, rt_plan_find_products, NULL},
    {"round", true, rt_plan_round, NULL},
    {"keep", true, rt_plan_keep, NULL},
    {"epilogue", true, NULL, fuse_epilogues},
    {"fuse", true, rt_plan_fuse, NULL},
    {"cluster", false, rt_plan_gather, NULL},
    {"buffers", false, rt_plan_place, NULL},
    {"prepare", false, NULL, prepare_kernels},
    {"memory", false, rt_plan_pack, NULL},
    {"group", false, rt_plan_group, NULL},
};
enum { STAGES = sizeof stages / sizeof *stages };

const char *rt_plan_stage(int i) { return i >= 0 && i < STAGES ? stages[i].name : NULL; }

static ampc_status run_stages(rt_plan *p, bool fuse, const rt_plan_watch *watch, diag *d)
{
    for (int i = 0; i < STAGES; i++) {
        const struct stage *s = &stages[i];
        if (s->is_rewrite && !fuse) continue;
        if (s->check)
            TRY(s->check(p, d));
        else if (!s->run(p))
            return no_memory(p, d);
        if (watch) TRY(watch->after(watch->user, s->name, p));
    }
    return AMPC_OK;
}

ampc_status rt_plan_make(const rt_plan_request *r, diag *d, rt_plan **out)
{
    rt_plan *p = rt_alloc(1, sizeof *p);
    const ir_graph *g = r->graph;
    rt_plan none = {.graph = g};
    if (!p) return no_memory(&none, d);
    *p = (rt_plan){.graph = g,
                   .selection = r->selection,
                   .backend = r->backend,
                   .ctx = r->ctx,
                   .n_symbols = ir_dim_symbol_count(g->module->dims),
                   .n_values = g->value_ids,
                   .values_room = g->value_ids};
    p->sizes = rt_alloc(p->n_symbols + 1, sizeof *p->sizes);
    p->values = rt_alloc(g->value_ids, sizeof *p->values);
    ampc_status status = AMPC_NO_MEMORY;
    if (p->sizes && p->values) {
        memcpy(p->sizes, r->sizes, p->n_symbols * sizeof *p->sizes);
        status = run_stages(p, r->fuse, r->watch, d);
    } else {
        no_memory(p, d);
    }
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
    if (p->kept_block) p->backend->free(p->ctx, p->kept_block);
    for (rt_block *b = p->pool, *next; b; b = next) {
        next = b->next;
        rt_free(b);
    }
    rt_free(p->sizes);
    rt_free(p->values);
    rt_free(p);
}

_Alignas(256) char rt_nothing[256];

void *rt_plan_address(const rt_plan *p, int buffer, char *base, void *const *storage,
                      void *const *inputs)
{
    if (buffer == RT_NO_BUFFER) return NULL;
    const rt_buffer *b = &p->buffers[buffer];
    if (b->bytes == 0) return rt_nothing;
    switch (b->home) {
    case RT_ARENA: return base + b->offset;
    case RT_KEPT: return (char *)p->kept_block + b->offset;
    case RT_STORAGE: return storage[b->index];
    case RT_INPUT: return inputs[b->index];
    }
    assert(!"no such home"); /* the plan gives the homes */
    return NULL;
}
