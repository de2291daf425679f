/* session.c - storage, the cache of plans, and walking a plan's steps. */
#include "runtime/session.h"
#include "runtime/alloc.h"
#include "runtime/session_state.h"
#include "runtime/weights.h"

#include <assert.h>
#include <omp.h>
#include <string.h>
#include <time.h>

enum { ALIGNMENT = 64 };

static ampc_status no_memory(diag *d, const char *what)
{
    return diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory for %s", what);
}

/* ---- opening --------------------------------------------------------------------------------- */

static ampc_status open_backend(rt_session *s, const rt_session_options *o, diag *d)
{
    const char *device = o->device ? o->device : "cpu";
    s->backend = rt_backend_find(device);
    if (!s->backend)
        return diag_error(d, AMPC_DEVICE, DIAG_NOWHERE,
                          "device '%s' is not available in this build", device);
    s->ctx = (k_context){.error = s->error, .error_size = sizeof s->error};
    s->ctx.threads = o->deterministic > 0 ? o->deterministic
                     : o->threads > 0     ? o->threads
                                          : omp_get_num_procs();
    ampc_status status = s->backend->open(s->error, sizeof s->error);
    return status == AMPC_OK ? AMPC_OK : diag_error(d, status, DIAG_NOWHERE, "%s", s->error);
}

static ampc_status take_symbols(rt_session *s, const int64_t *sizes, diag *d)
{
    s->n_symbols = ir_dim_symbol_count(s->module->dims);
    s->fixed = rt_alloc(s->n_symbols + 1, sizeof *s->fixed);
    s->sizes = rt_alloc(s->n_symbols + 1, sizeof *s->sizes);
    if (!s->fixed || !s->sizes) return no_memory(d, "the session");
    for (size_t i = 0; i < s->n_symbols; i++) s->fixed[i] = sizes ? sizes[i] : -1;
    return AMPC_OK;
}

static ampc_status load_one(rt_session *s, rt_weights *w, const ir_storage *storage, diag *d)
{
    int64_t bytes = ir_storage_bytes(storage);
    void *memory = s->backend->alloc((size_t)bytes);
    s->storage[storage->id] = memory;
    if (!memory)
        return diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory for '%s'", storage->name);
    s->storage_bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return rt_weights_read(w, storage, memory);
}

static ampc_status load_storage(rt_session *s, const char *dir, diag *d)
{
    s->storage = rt_alloc(s->module->storage.count + 1, sizeof *s->storage);
    if (!s->storage) return no_memory(d, "storage");
    rt_weights *w;
    TRY(rt_weights_open(s->module, dir, d, &w));
    ampc_status status = AMPC_OK;
    for (size_t i = 0; i < s->module->storage.count && status == AMPC_OK; i++)
        status = load_one(s, w, s->module->storage.items[i], d);
    rt_weights_close(w);
    return status;
}

static ampc_status make_room(rt_session *s, diag *d)
{
    for (size_t i = 0; i < s->module->graphs.count; i++) {
        const ir_graph *g = s->module->graphs.items[i];
        int outputs = 0;
        for (const ir_node *n = g->first; n; n = n->next) outputs += n->op == IR_OP_output;
        if (outputs > s->output_room) s->output_room = outputs;
        if (g->inputs.count > s->n_inputs) s->n_inputs = g->inputs.count;
    }
    s->inputs = rt_alloc(s->n_inputs + 1, sizeof *s->inputs);
    s->staging = rt_alloc(s->n_inputs + 1, sizeof *s->staging);
    s->outputs = rt_alloc((size_t)s->output_room + 1, sizeof *s->outputs);
    return s->inputs && s->staging && s->outputs ? AMPC_OK : no_memory(d, "the session");
}

static ampc_status open_session(rt_session *s, const rt_session_options *o, diag *d)
{
    TRY(open_backend(s, o, d));
    TRY(take_symbols(s, o->symbol_sizes, d));
    TRY(make_room(s, d));
    return load_storage(s, o->weights_dir, d);
}

ampc_status rt_session_open(const ir_module *m, const rt_session_options *o, diag *d,
                            rt_session **out)
{
    rt_session *s = rt_alloc(1, sizeof *s);
    *out = NULL;
    if (!s) return no_memory(d, "the session");
    s->module = m;
    ampc_status status = open_session(s, o, d);
    if (status == AMPC_OK)
        *out = s;
    else
        rt_session_close(s);
    return status;
}

void rt_session_close(rt_session *s)
{
    if (!s) return;
    for (rt_plan *p = s->plans, *next; p; p = next) {
        next = p->next;
        rt_plan_free(p);
    }
    for (size_t i = 0; s->storage && i < s->module->storage.count; i++)
        s->backend->free(s->storage[i]);
    for (size_t i = 0; s->staging && i < s->n_inputs; i++) rt_free(s->staging[i].data);
    if (s->arena) s->backend->free(s->arena);
    void *owned[] = {s->fixed, s->sizes, s->storage, s->inputs, s->staging, s->outputs, s};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) rt_free(owned[i]);
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* The plan of the graph under s->sizes if there is one; it moves to the front. */
static rt_plan *cached_plan(rt_session *s, const ir_graph *g)
{
    for (rt_plan **at = &s->plans; *at; at = &(*at)->next) {
        rt_plan *p = *at;
        if (p->graph != g || memcmp(p->sizes, s->sizes, s->n_symbols * sizeof *s->sizes) != 0)
            continue;
        *at = p->next;
        p->next = s->plans;
        s->plans = p;
        return p;
    }
    return NULL;
}

static ampc_status find_plan(rt_session *s, const char *graph, const rt_tensor *inputs, int n,
                             diag *d, rt_plan **out)
{
    const ir_graph *g = ir_graph_find(s->module, graph);
    if (!g) return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "the module has no graph @%s", graph);
    TRY(rt_inputs_bind(s, g, inputs, n, d));
    *out = cached_plan(s, g);
    if (*out) return AMPC_OK;
    TRY(rt_plan_make(g, s->sizes, s->backend, &s->ctx, d, out));
    (*out)->next = s->plans;
    s->plans = *out;
    return AMPC_OK;
}

/* One arena serves all plans: only one of them runs at a time. */
static ampc_status grow_arena(rt_session *s, const rt_plan *p, diag *d)
{
    if (s->arena && s->arena_bytes >= p->arena_bytes) return AMPC_OK;
    s->n_outputs = 0; /* they lie in the arena that goes */
    if (s->arena) s->backend->free(s->arena);
    s->arena_bytes = 0;
    s->arena = s->backend->alloc((size_t)p->arena_bytes);
    if (!s->arena)
        return diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE,
                          "out of memory: graph @%s needs an arena of %lld bytes", p->graph->name,
                          (long long)p->arena_bytes);
    s->arena_bytes = p->arena_bytes;
    return AMPC_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

static void *address(const rt_session *s, const rt_plan *p, int buffer)
{
    return rt_plan_address(p, buffer, s->arena, s->storage, s->inputs);
}

static void copy_buffers(const rt_session *s, const rt_plan *p, const rt_copy *copies, int n)
{
    for (int i = 0; i < n; i++)
        s->backend->copy(address(s, p, copies[i].to), address(s, p, copies[i].from),
                         (size_t)p->buffers[copies[i].to].bytes);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static ampc_status run_step(rt_session *s, const rt_plan *p, const rt_step *step)
{
    for (int i = 0; i < step->node->n_in; i++) step->in[i].data = address(s, p, step->in_buffer[i]);
    for (int i = 0; i < step->node->n_out; i++)
        step->out[i].data = address(s, p, step->out_buffer[i]);
    k_args args = {.op = step->node->op,
                   .in = step->in,
                   .out = step->out,
                   .n_in = step->node->n_in,
                   .n_out = step->node->n_out,
                   .attr = step->attr,
                   .workspace = address(s, p, step->workspace),
                   .state = step->state,
                   .ctx = &s->ctx};
    if (!s->hook) return step->kernel->run(&args);
    int64_t start = now_ns();
    ampc_status status = step->kernel->run(&args);
    s->hook(s->hook_user, step->node, start, now_ns(), &args);
    return status;
}

static ampc_status run_steps(rt_session *s, const rt_plan *p, diag *d)
{
    for (int i = 0; i < p->n_steps; i++) {
        const rt_step *step = &p->steps[i];
        s->error[0] = '\0';
        ampc_status status = run_step(s, p, step);
        if (status == AMPC_OK) continue;
        assert(i < p->safe_from); /* from there on storage may have been written */
        return diag_error(d, status, ir_diag_loc(step->node), "%s: %s",
                          ir_op_get(step->node->op)->name,
                          s->error[0] ? s->error : ampc_status_sentence(status));
    }
    return AMPC_OK;
}

static void collect_outputs(rt_session *s, const rt_plan *p)
{
    for (int i = 0; i < p->n_outputs; i++) {
        const k_view *v = &p->values[p->outputs[i].value].view;
        rt_tensor *t = &s->outputs[i];
        *t = (rt_tensor){.name = p->outputs[i].name,
                         .dtype = v->dtype,
                         .rank = v->rank,
                         .data = address(s, p, p->outputs[i].buffer)};
        memcpy(t->dims, v->dims, sizeof t->dims);
    }
    s->n_outputs = p->n_outputs;
}

ampc_status rt_session_run(rt_session *s, const char *graph, const rt_tensor *inputs, int n,
                           diag *d)
{
    rt_plan *p;
    s->n_outputs = 0;
    TRY(find_plan(s, graph, inputs, n, d, &p));
    TRY(grow_arena(s, p, d));
    TRY(rt_inputs_gather(s, p, inputs, n, d));
    copy_buffers(s, p, p->before, p->n_before);
    TRY(run_steps(s, p, d));
    copy_buffers(s, p, p->after, p->n_after);
    collect_outputs(s, p);
    return AMPC_OK;
}

/* ---- looking in ------------------------------------------------------------------------------ */

const rt_tensor *rt_session_output(const rt_session *s, const char *name)
{
    for (int i = 0; i < s->n_outputs; i++)
        if (strcmp(s->outputs[i].name, name) == 0) return &s->outputs[i];
    return NULL;
}

int rt_session_output_count(const rt_session *s) { return s->n_outputs; }

const rt_tensor *rt_session_output_at(const rt_session *s, int i)
{
    assert(i >= 0 && i < s->n_outputs);
    return &s->outputs[i];
}

static void storage_view(const rt_session *s, const ir_storage *storage, rt_tensor *out)
{
    *out = (rt_tensor){.name = storage->name,
                       .dtype = storage->type.dtype,
                       .rank = storage->type.rank,
                       .data = s->storage[storage->id]};
    memcpy(out->dims, storage->type.dims, (size_t)storage->type.rank * sizeof out->dims[0]);
}

ampc_status rt_session_storage(rt_session *s, const char *name, diag *d, rt_tensor *out)
{
    const ir_storage *storage = ir_storage_find(s->module, name);
    if (!storage)
        return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "there is no storage @%s", name);
    storage_view(s, storage, out);
    return AMPC_OK;
}

int rt_session_storage_count(const rt_session *s) { return (int)s->module->storage.count; }

void rt_session_storage_at(rt_session *s, int i, rt_tensor *out, ir_storage_kind *kind)
{
    assert(i >= 0 && (size_t)i < s->module->storage.count);
    const ir_storage *storage = s->module->storage.items[i];
    storage_view(s, storage, out);
    if (kind) *kind = storage->kind;
}

ampc_status rt_session_memory(rt_session *s, const char *graph, const rt_tensor *inputs, int n,
                              diag *d, rt_memory *out)
{
    rt_plan *p;
    TRY(find_plan(s, graph, inputs, n, d, &p));
    *out = (rt_memory){.arena = p->arena_bytes, .storage = s->storage_bytes};
    return AMPC_OK;
}

ampc_status rt_session_print_plan(rt_session *s, const char *graph, const rt_tensor *inputs, int n,
                                  diag *d, char **out)
{
    rt_plan *p;
    TRY(find_plan(s, graph, inputs, n, d, &p));
    *out = rt_plan_print(p);
    return *out ? AMPC_OK : no_memory(d, "the text of the plan");
}

void rt_session_set_hook(rt_session *s, rt_step_hook *hook, void *user)
{
    s->hook = hook;
    s->hook_user = user;
}
