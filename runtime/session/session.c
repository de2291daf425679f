/* session.c - opens a module on a device, caches plans and runs them. */
#include "runtime/session/session.h"

#include "ir/graph/exported.h"
#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/session/session_state.h"
#include "runtime/session/batch.h"

#include <stdio.h>
#include <string.h>

/* ---- opening --------------------------------------------------------------------------------- */

static ampc_status bind_symbols(rt_session *s, const int64_t *sizes, diag *d)
{
    s->n_symbols = ir_dim_symbol_count(s->module->dims);
    s->fixed = rt_alloc(s->n_symbols + 1, sizeof *s->fixed);
    s->sizes = rt_alloc(s->n_symbols + 1, sizeof *s->sizes);
    if (!s->fixed || !s->sizes) return rt_no_memory(d);
    for (size_t i = 0; i < s->n_symbols; i++) s->fixed[i] = sizes ? sizes[i] : -1;
    return AMPC_OK;
}

static ampc_status reserve_space(rt_session *s, diag *d)
{
    for (size_t i = 0; i < s->module->graphs.count; i++) {
        const ir_graph *g = s->module->graphs.items[i];
        const int outputs = rt_output_count(g);
        if (outputs > s->output_capacity) s->output_capacity = outputs;
        if (g->inputs.count > s->n_inputs) s->n_inputs = g->inputs.count;
    }
    s->inputs = rt_alloc(s->n_inputs + 1, sizeof *s->inputs);
    s->staging = rt_alloc(RT_SLOTS * s->n_inputs + 1, sizeof *s->staging);
    s->outputs = rt_alloc((size_t)s->output_capacity + 1, sizeof *s->outputs);
    s->fetched = rt_alloc((size_t)s->output_capacity + 1, sizeof *s->fetched);
    s->selected = rt_alloc(s->module->graphs.count + 1, sizeof *s->selected);
    const bool made = s->inputs && s->staging && s->outputs && s->fetched && s->selected;
    return made ? AMPC_OK : rt_no_memory(d);
}

static ampc_status open_session(rt_session *s, const rt_session_options *o, diag *d)
{
    TRY(rt_device_open(s, o, d));
    TRY(bind_symbols(s, o->symbol_sizes, d));
    TRY(rt_session_set_codes(s, s->module->training.codes, d));
    if (o->share) TRY(rt_session_set_codes(s, o->share->codes, d));
    s->storage_bytes = rt_storage_bytes(s);
    TRY(rt_shared_open(s, o->share, d));
    TRY(rt_parts_open(s, d));
    TRY(reserve_space(s, d));
    if (s->plan_only) return AMPC_OK;
    TRY(rt_readback_open(s, d));
    return o->share ? AMPC_OK : rt_storage_load(s, o->weights_dir, d);
}

ampc_status rt_session_open(const ir_module *m, const rt_session_options *o, diag *d, rt_session **out)
{
    rt_session *s = rt_alloc(1, sizeof *s);
    *out = NULL;
    if (!s) return rt_no_memory(d);
    s->module = m;
    ampc_status status = open_session(s, o, d);
    if (status == AMPC_OK) *out = s;
    else rt_session_close(s);
    return status;
}

/* Frees host copies of data of a discrete device, and the marks of its input slots. */
static void free_copies(rt_session *s)
{
    for (size_t i = 0; s->mirrors && i < s->module->storage.count; i++) rt_host_free(s, s->mirrors[i]);
    for (int i = 0; s->fetched && i < s->output_capacity; i++) rt_host_free(s, s->fetched[i].host);
    rt_host_free(s, s->host_word);
    rt_observer_free(s);
    for (int i = 0; i < RT_SLOTS; i++) s->backend->device_ops->unmark(&s->ctx, s->slot_marks[i]);
}

static void close_device(rt_session *s)
{
    if (s->backend->device_ops && !s->plan_only) {
        s->backend->device_ops->wait(&s->ctx, NULL);
        free_copies(s);
    }
    for (rt_execution *x = s->executions, *next; x; x = next) {
        next = x->next;
        rt_execution_free(s, x);
    }
    rt_readback_close(s);
    rt_inputs_free(s);
    rt_shared_close(s);
    for (int part = 0; s->arenas && part < s->max_parts; part++)
        if (s->arenas[part].memory) s->backend->free(&s->ctx, s->arenas[part].memory);
    s->backend->close(&s->ctx);
}

void rt_session_close(rt_session *s)
{
    if (!s) return;
    if (s->is_open) close_device(s);
    rt_shards_close(s);
    void *owned[] = {s->fixed, s->sizes,    s->mirrors, s->inputs, s->staging, s->outputs, s->fetched,
                     s->codes, s->selected, s->arenas,  s->run,    s->planned, s};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) rt_free(owned[i]);
}

static ampc_status keep_own(k_ranks *r, void *data, int64_t n, ir_dtype type, k_reduced by, bool tree)
{
    (void)r, (void)data, (void)n, (void)type, (void)by, (void)tree;
    return AMPC_OK;
}

static ampc_status repeat_own(k_ranks *r, const void *mine, void *all, size_t bytes)
{
    for (int i = 0; i < r->count; i++) memcpy((char *)all + (size_t)i * bytes, mine, bytes);
    return AMPC_OK;
}

static void *stage_nothing(k_ranks *r, size_t bytes)
{
    (void)r, (void)bytes;
    return NULL;
}

void rt_session_mute(rt_session *s)
{
    const k_ranks *r = s->ctx.ranks;
    if (!r) return;
    s->muted = (k_ranks){.index = r->index,
                         .count = r->count,
                         .share = r->share,
                         .muted = true,
                         .all_reduce = keep_own,
                         .stage = stage_nothing,
                         .all_gather = repeat_own};
    s->ctx.ranks = &s->muted;
}

const int64_t *rt_session_sizes(const rt_session *s) { return s->fixed; }

const char *rt_session_codes(const rt_session *s) { return s->codes; }

ampc_status rt_session_set_codes(rt_session *s, const char *codes, diag *d)
{
    const size_t n = codes ? strlen(codes) + 1 : 0;
    char *copy = codes ? rt_alloc_block(n) : NULL;
    if (codes && !copy) return rt_no_memory(d);
    if (codes) memcpy(copy, codes, n);
    rt_free(s->codes);
    s->codes = copy;
    return AMPC_OK;
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* Returns the execution of the part and selection for s->sizes and moves it to the front; NULL: there is none. */
static rt_execution *cached_execution(rt_session *s, const ir_graph *g, int part, const rt_selection *selection)
{
    const bool observed = s->observer.fn != NULL, counted = s->observer.counts;
    for (rt_execution **at = &s->executions; *at; at = &(*at)->next) {
        rt_execution *x = *at;
        const rt_plan *p = x->plan;
        if (p->graph != g || p->part != part || p->selection != selection) continue;
        if (p->observed != observed || p->counted != counted) continue;
        if (memcmp(p->sizes, s->sizes, s->n_symbols * sizeof *s->sizes) != 0) continue;
        *at = x->next;
        x->next = s->executions;
        s->executions = x;
        return x;
    }
    return NULL;
}

static bool is_in_last_run(const rt_session *s, const rt_execution *x)
{
    bool found = false;
    for (int part = 0; part < s->n_run; part++) found |= s->run[part] == x;
    return found;
}

/* Frees the execution of a later part that was not used for the longest time, if there are too many: such parts may
 * have other sizes in every run. */
static void limit_executions(rt_session *s)
{
    enum { KEPT = 64 };
    int n = 0;
    rt_execution **oldest = NULL;
    for (rt_execution **at = &s->executions; *at; at = &(*at)->next) {
        if ((*at)->plan->part == 0) continue;
        n++;
        if (!is_in_last_run(s, *at)) oldest = at;
    }
    if (n <= KEPT + s->max_parts || !oldest) return;
    rt_execution *x = *oldest;
    *oldest = x->next;
    rt_execution_free(s, x);
}

/* Returns the execution of a part of the graph for s->sizes. */
static ampc_status find_execution(rt_session *s, const ir_graph *g, int part, const pipeline_options *options, diag *d,
                                  rt_execution **out)
{
    const rt_selection *selection = rt_session_selection(s, g);
    *out = cached_execution(s, g, part, selection);
    if (*out) return AMPC_OK;
    const rt_plan_request request = {.graph = g,
                                     .selection = selection,
                                     .sizes = s->sizes,
                                     .parts = rt_parts_of(s, g),
                                     .part = part,
                                     .backend = s->backend,
                                     .ctx = &s->ctx,
                                     .fuse = s->fuse && !s->observer.fn,
                                     .no_pack = s->no_pack,
                                     .observed = s->observer.fn != NULL,
                                     .counted = s->observer.counts,
                                     .pipeline = options};
    rt_shared_plan *plan;
    TRY(rt_plans_find(s, &request, d, &plan));
    rt_execution *x = rt_execution_new(plan);
    if (!x) {
        rt_plans_release(s, plan);
        return rt_no_memory(d);
    }
    x->next = s->executions;
    *out = s->executions = x;
    if (part) limit_executions(s);
    return AMPC_OK;
}

/* Finds the graph and solves the symbols from the shapes of the inputs. */
static ampc_status bind_graph(rt_session *s, const char *graph, const rt_tensor *inputs, int n, diag *d,
                              const ir_graph **g)
{
    *g = ir_graph_find(s->module, graph);
    if (!*g) return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "the module has no graph @%s", graph);
    TRY(rt_parts_require(s, *g, d));
    return rt_inputs_bind(s, *g, inputs, n, d);
}

static int count_parts(const rt_session *s, const ir_graph *g)
{
    const ir_parts *parts = rt_parts_of(s, g);
    return parts ? parts->count : 1;
}

/* Plans all parts, with sizes that depend on data at their bounds. */
static ampc_status plan_parts(rt_session *s, const char *graph, const rt_tensor *inputs, int n,
                              const pipeline_options *options, diag *d)
{
    const ir_graph *g;
    rt_execution *x;
    s->n_planned = 0;
    TRY(bind_graph(s, graph, inputs, n, d, &g));
    for (int part = 0; part < count_parts(s, g); part++) {
        if (part) rt_parts_assume_sizes(s, g, part);
        TRY(find_execution(s, g, part, options, d, &x));
        s->planned[s->n_planned++] = x->plan;
    }
    return AMPC_OK;
}

/* Formats a hint about the batch size that would fit, assuming that the arena is proportional to it. */
static void format_hint(const rt_session *s, const rt_plan *p, int64_t free_bytes, char *text, size_t n)
{
    int64_t batch;
    *text = '\0';
    size_t symbol = rt_batch_symbol(p->graph, s->fixed, &batch);
    if (symbol != RT_NO_SYMBOL) batch = p->sizes[symbol];
    if (free_bytes <= 0 || batch < 2) return;
    double fits = (double)batch * (double)(free_bytes + s->arenas[p->part].bytes) / (double)p->arena_bytes;
    snprintf(text, n, "; %lld bytes are free, enough for a batch of about %lld instead of %lld", (long long)free_bytes,
             (long long)fits, (long long)batch);
}

/* All plans of a part share one arena, because only one of them runs at a time. */
static ampc_status grow_arena(rt_session *s, const rt_plan *p, diag *d)
{
    char hint[200];
    rt_arena_block *block = &s->arenas[p->part];
    if (block->memory && block->bytes >= p->arena_bytes) return AMPC_OK;
    rt_executions_forget(s);
    if (block->memory) s->backend->free(&s->ctx, block->memory);
    block->bytes = 0;
    ampc_status status = s->backend->alloc(&s->ctx, (size_t)p->arena_bytes, &block->memory);
    if (status == AMPC_DEVICE) return rt_device_error(s, status, d);
    if (status != AMPC_OK) {
        format_hint(s, p, s->backend->device_ops ? s->backend->device_ops->free_bytes(&s->ctx) : 0, hint, sizeof hint);
        return diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory: graph @%s needs an arena of %lld bytes%s",
                          p->graph->name, (long long)p->arena_bytes, hint);
    }
    block->bytes = p->arena_bytes;
    return AMPC_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

static ampc_status run_part(rt_session *s, rt_execution *x, const rt_tensor *inputs, int n, int slot, diag *d)
{
    TRY(grow_arena(s, x->plan, d));
    TRY(rt_execution_open(s, x, d));
    TRY(rt_inputs_gather(s, x->plan, inputs, n, slot, d));
    rt_parts_carry(s, x);
    TRY(rt_device_enter(s, x, d));
    if (x->plan->part == 0) TRY(rt_readback_begin(s, x, d));
    TRY(rt_run_enqueue(s, x, slot, d));
    s->run[s->n_run++] = x;
    return AMPC_OK;
}

static ampc_status run_parts(rt_session *s, const ir_graph *g, const rt_tensor *inputs, int n, int slot, diag *d)
{
    for (int part = 0; part < count_parts(s, g); part++) {
        rt_execution *x;
        if (part) TRY(rt_parts_read_sizes(s, g, part, d));
        TRY(find_execution(s, g, part, NULL, d, &x));
        TRY(run_part(s, x, inputs, n, slot, d));
    }
    return AMPC_OK;
}

ampc_status rt_session_submit(rt_session *s, const char *graph, const rt_tensor *inputs, int n, diag *d, int64_t *run)
{
    const ir_graph *g;
    int slot = s->backend->device_ops ? (int)(s->runs % RT_SLOTS) : 0;
    s->n_outputs = s->n_run = 0;
    s->last = NULL;
    s->fetching = AMPC_OK;
    s->error[0] = '\0';
    TRY(rt_device_require(s, d));
    TRY(bind_graph(s, graph, inputs, n, d, &g));
    TRY(rt_shared_require_stores(s, g, d));
    TRY(run_parts(s, g, inputs, n, slot, d));
    TRY(rt_readback_end(s, s->run[0], d));
    if (s->backend->device_ops) RT_DEVICE(s, d, s->backend->device_ops->mark(&s->ctx, &s->slot_marks[slot]));
    rt_outputs_collect(s);
    s->last = s->run[0];
    *run = ++s->runs;
    return AMPC_OK;
}

void rt_session_watch(rt_session *s, const volatile sig_atomic_t *stop)
{
    s->stop = stop;
    s->stop_seen = 0;
    s->stopped = false;
}

bool rt_session_stopped(const rt_session *s) { return s->stopped; }

ampc_status rt_session_run(rt_session *s, const char *graph, const rt_tensor *inputs, int n, diag *d)
{
    int64_t run = 0;
    TRY(rt_session_submit(s, graph, inputs, n, d, &run));
    ampc_status status = rt_session_collect(s, run, d, NULL);
    if (status != AMPC_OK) s->n_outputs = 0;
    return status;
}

/* ---- inspection ------------------------------------------------------------------------------ */

ampc_status rt_session_memory(rt_session *s, const char *graph, const rt_tensor *inputs, int n, diag *d, rt_memory *out)
{
    TRY(plan_parts(s, graph, inputs, n, NULL, d));
    *out = (rt_memory){.storage = rt_resident_bytes(s)};
    for (int part = 0; part < s->n_planned; part++)
        out->arena += s->planned[part]->arena_bytes + s->planned[part]->persistent_bytes +
                      rt_session_pack_bytes(s, part);
    const int64_t free_bytes = s->free_at_open ? s->backend->device_ops->free_bytes(&s->ctx) : 0;
    if (free_bytes && free_bytes < s->free_at_open) out->used = s->free_at_open - free_bytes;
    return AMPC_OK;
}

ampc_status rt_session_plan(rt_session *s, const char *graph, const rt_tensor *inputs, int n,
                            const pipeline_options *options, diag *d, const rt_plan **out)
{
    TRY(plan_parts(s, graph, inputs, n, options, d));
    *out = s->planned[0];
    return AMPC_OK;
}

const rt_plan *rt_session_planned(const rt_session *s, int part)
{
    return part < s->n_planned ? s->planned[part] : NULL;
}

int64_t rt_session_pack_bytes(const rt_session *s, int part) { return rt_plan_pack_bytes(s->planned, part); }
