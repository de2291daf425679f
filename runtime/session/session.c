/* session.c - opens a module on a device; storage, cached plans, runs and results. */
#include "runtime/session/session.h"
#include "runtime/backend/alloc.h"
#include "runtime/session/session_state.h"
#include "runtime/session/batch.h"
#include "runtime/files/weights.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static ampc_status no_memory(diag *d, const char *what)
{
    return diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory for %s", what);
}

ampc_status rt_device_error(rt_session *s, ampc_status status, diag *d)
{
    return diag_error(d, status, DIAG_NOWHERE, "%s", s->error[0] ? s->error : ampc_status_sentence(status));
}

ampc_status rt_memory_error(rt_session *s, ampc_status status, diag *d, const char *what, int64_t bytes)
{
    if (status != AMPC_NO_MEMORY) return rt_device_error(s, status, d);
    return diag_error(d, status, DIAG_NOWHERE, "out of memory: %s needs %lld bytes", what, (long long)bytes);
}

ampc_status rt_host_alloc(rt_session *s, size_t bytes, void **out)
{
    if (s->backend->device_ops) return s->backend->device_ops->alloc_host(&s->ctx, bytes ? bytes : 1, out);
    *out = rt_alloc_block(bytes);
    return *out ? AMPC_OK : AMPC_NO_MEMORY;
}

void rt_host_free(rt_session *s, void *memory)
{
    if (s->backend->device_ops && memory) s->backend->device_ops->free_host(&s->ctx, memory);
    if (!s->backend->device_ops) rt_free(memory);
}

static ampc_status needs_memory(const rt_session *s, diag *d)
{
    if (!s->plan_only) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "the session was opened for planning alone");
}

/* ---- opening --------------------------------------------------------------------------------- */

static ampc_status take_symbols(rt_session *s, const int64_t *sizes, diag *d)
{
    s->n_symbols = ir_dim_symbol_count(s->module->dims);
    s->fixed = rt_alloc(s->n_symbols + 1, sizeof *s->fixed);
    s->sizes = rt_alloc(s->n_symbols + 1, sizeof *s->sizes);
    if (!s->fixed || !s->sizes) return no_memory(d, "the session");
    for (size_t i = 0; i < s->n_symbols; i++) s->fixed[i] = sizes ? sizes[i] : -1;
    return AMPC_OK;
}

static void size_storage(rt_session *s)
{
    const ir_module *m = s->module;
    const int64_t align = s->backend->alignment;
    for (size_t i = 0; i < m->storage.count; i++)
        s->storage_bytes += (ir_storage_bytes(m->storage.items[i]) + align - 1) & -align;
}

/* All storage is in one block, in the order of the module, so tensors of one kind are adjacent. */
static ampc_status place_storage(rt_session *s, diag *d)
{
    const ir_module *m = s->module;
    s->storage = rt_alloc(m->storage.count + 1, sizeof *s->storage);
    s->mirrors = rt_alloc(m->storage.count + 1, sizeof *s->mirrors);
    s->changed = rt_alloc(m->storage.count + 1, sizeof *s->changed);
    if (!s->storage || !s->mirrors || !s->changed) return no_memory(d, "storage");
    const int64_t align = s->backend->alignment;
    ampc_status status = s->backend->alloc(&s->ctx, (size_t)s->storage_bytes, &s->storage_block);
    if (status != AMPC_OK) return rt_memory_error(s, status, d, "storage", s->storage_bytes);
    char *at = s->storage_block;
    for (size_t i = 0; i < m->storage.count; i++) {
        const ir_storage *storage = m->storage.items[i];
        s->storage[storage->id] = at;
        s->changed[storage->id] = ++s->changes;
        at += (ir_storage_bytes(storage) + align - 1) & -align;
    }
    return AMPC_OK;
}

static ampc_status load_one(rt_session *s, rt_weights *w, const ir_storage *storage, diag *d)
{
    if (!s->backend->device_ops) return rt_weights_read(w, storage, s->storage[storage->id]);
    void *bytes = rt_alloc_block((size_t)ir_storage_bytes(storage));
    if (!bytes) return no_memory(d, storage->name);
    ampc_status status = rt_weights_read(w, storage, bytes);
    if (status == AMPC_OK) status = rt_session_write(s, (int)storage->id, bytes, d);
    rt_free(bytes);
    return status;
}

static ampc_status load_storage(rt_session *s, const char *dir, diag *d)
{
    rt_weights *w;
    TRY(place_storage(s, d));
    TRY(rt_weights_open(s->module, dir, d, &w));
    ampc_status status = AMPC_OK;
    for (size_t i = 0; i < s->module->storage.count && status == AMPC_OK; i++)
        status = load_one(s, w, s->module->storage.items[i], d);
    rt_weights_close(w);
    return status;
}

static ampc_status reserve_space(rt_session *s, diag *d)
{
    for (size_t i = 0; i < s->module->graphs.count; i++) {
        const ir_graph *g = s->module->graphs.items[i];
        int outputs = 0;
        for (const ir_node *n = ir_first_output(g); n; n = ir_next_output(n)) outputs++;
        if (outputs > s->output_capacity) s->output_capacity = outputs;
        if (g->inputs.count > s->n_inputs) s->n_inputs = g->inputs.count;
    }
    s->inputs = rt_alloc(s->n_inputs + 1, sizeof *s->inputs);
    s->staging = rt_alloc(RT_SLOTS * s->n_inputs + 1, sizeof *s->staging);
    s->outputs = rt_alloc((size_t)s->output_capacity + 1, sizeof *s->outputs);
    s->fetched = rt_alloc((size_t)s->output_capacity + 1, sizeof *s->fetched);
    s->selected = rt_alloc(s->module->graphs.count + 1, sizeof *s->selected);
    const bool made = s->inputs && s->staging && s->outputs && s->fetched && s->selected;
    return made ? AMPC_OK : no_memory(d, "the session");
}

static ampc_status open_session(rt_session *s, const rt_session_options *o, diag *d)
{
    TRY(rt_device_open(s, o, d));
    TRY(take_symbols(s, o->symbol_sizes, d));
    TRY(reserve_space(s, d));
    size_storage(s);
    if (s->plan_only) return AMPC_OK;
    TRY(rt_readback_open(s, d));
    return load_storage(s, o->weights_dir, d);
}

ampc_status rt_session_open(const ir_module *m, const rt_session_options *o, diag *d, rt_session **out)
{
    rt_session *s = rt_alloc(1, sizeof *s);
    *out = NULL;
    if (!s) return no_memory(d, "the session");
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
    for (int i = 0; i < RT_SLOTS; i++) s->backend->device_ops->unmark(&s->ctx, s->slot_marks[i]);
}

static void close_device(rt_session *s)
{
    if (s->backend->device_ops && !s->plan_only) {
        s->backend->device_ops->wait(&s->ctx, NULL);
        free_copies(s);
    }
    for (rt_plan *p = s->plans, *next; p; p = next) {
        next = p->next;
        rt_plan_free(p);
    }
    rt_readback_close(s);
    rt_inputs_free(s);
    if (s->storage_block) s->backend->free(&s->ctx, s->storage_block);
    if (s->arena) s->backend->free(&s->ctx, s->arena);
    s->backend->close(&s->ctx);
}

void rt_session_close(rt_session *s)
{
    if (!s) return;
    if (s->is_open) close_device(s);
    rt_session_free_selections(s);
    void *owned[] = {s->fixed,  s->sizes,   s->storage, s->mirrors, s->changed,
                     s->inputs, s->staging, s->outputs, s->fetched, s};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) rt_free(owned[i]);
}

const int64_t *rt_session_sizes(const rt_session *s) { return s->fixed; }

/* ---- plans ----------------------------------------------------------------------------------- */

/* Returns the cached plan of the graph and selection for s->sizes and moves it to the front; NULL: there is none. */
static rt_plan *cached_plan(rt_session *s, const ir_graph *g, const rt_selection *selection)
{
    for (rt_plan **at = &s->plans; *at; at = &(*at)->next) {
        rt_plan *p = *at;
        if (p->graph != g || p->selection != selection) continue;
        if (memcmp(p->sizes, s->sizes, s->n_symbols * sizeof *s->sizes) != 0) continue;
        *at = p->next;
        p->next = s->plans;
        s->plans = p;
        return p;
    }
    return NULL;
}

static ampc_status find_plan(rt_session *s, const char *graph, const rt_tensor *inputs, int n,
                             const pipeline_options *options, diag *d, rt_plan **out)
{
    const ir_graph *g = ir_graph_find(s->module, graph);
    if (!g) return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "the module has no graph @%s", graph);
    TRY(rt_inputs_bind(s, g, inputs, n, d));
    const rt_selection *selection = rt_session_selection(s, g);
    *out = cached_plan(s, g, selection);
    if (*out) return AMPC_OK;
    const rt_plan_request request = {.graph = g,
                                     .selection = selection,
                                     .sizes = s->sizes,
                                     .backend = s->backend,
                                     .ctx = &s->ctx,
                                     .fuse = s->fuse,
                                     .pipeline = options};
    TRY(rt_plan_make(&request, d, out));
    (*out)->next = s->plans;
    s->plans = *out;
    return AMPC_OK;
}

void rt_session_forget(rt_session *s)
{
    if (!s->backend->device_ops) return;
    s->backend->device_ops->wait(&s->ctx, NULL); /* a failure shows at the next call */
    for (rt_plan *p = s->plans; p; p = p->next)
        for (int i = 0; i < RT_SLOTS; i++) {
            s->backend->device_ops->forget(&s->ctx, p->recordings[i]);
            p->recordings[i] = NULL;
        }
}

/* Says which batch size would fit, assuming that the arena is proportional to it. */
static void print_hint(const rt_session *s, const rt_plan *p, int64_t room, char *text, size_t n)
{
    int64_t batch;
    *text = '\0';
    size_t symbol = rt_batch_symbol(p->graph, s->fixed, &batch);
    if (symbol != RT_NO_SYMBOL) batch = p->sizes[symbol];
    if (room <= 0 || batch < 2) return;
    double fits = (double)batch * (double)(room + s->arena_bytes) / (double)p->arena_bytes;
    snprintf(text, n, "; %lld are free, which is room for about %lld of the %lld of '%s'", (long long)room,
             (long long)fits, (long long)batch, p->graph->inputs.items[0]->name);
}

/* All plans share one arena, because only one runs at a time. */
static ampc_status grow_arena(rt_session *s, const rt_plan *p, diag *d)
{
    char hint[200];
    if (s->arena && s->arena_bytes >= p->arena_bytes) return AMPC_OK;
    s->n_outputs = 0; /* they are in the arena that is freed */
    rt_session_forget(s);
    if (s->arena) s->backend->free(&s->ctx, s->arena);
    s->arena_bytes = 0;
    ampc_status status = s->backend->alloc(&s->ctx, (size_t)p->arena_bytes, &s->arena);
    if (status == AMPC_DEVICE) return rt_device_error(s, status, d);
    if (status != AMPC_OK) {
        print_hint(s, p, s->backend->device_ops ? s->backend->device_ops->room(&s->ctx) : 0, hint, sizeof hint);
        return diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory: graph @%s needs an arena of %lld bytes%s",
                          p->graph->name, (long long)p->arena_bytes, hint);
    }
    s->arena_bytes = p->arena_bytes;
    return AMPC_OK;
}

static ampc_status give_kept(rt_session *s, rt_plan *p, diag *d)
{
    if (p->persistent_block || p->persistent_bytes == 0) return AMPC_OK;
    ampc_status status = s->backend->alloc(&s->ctx, (size_t)p->persistent_bytes, &p->persistent_block);
    if (status == AMPC_OK) return AMPC_OK;
    return rt_memory_error(s, status, d, "what is kept of parameters", p->persistent_bytes);
}

/* ---- running --------------------------------------------------------------------------------- */

void rt_outputs_collect(rt_session *s, const rt_plan *p)
{
    for (int i = 0; i < p->n_outputs; i++) {
        const k_view *v = &p->values[p->outputs[i].value].view;
        rt_tensor *t = &s->outputs[i];
        *t = (rt_tensor){.name = p->outputs[i].name, .dtype = v->dtype, .rank = v->rank};
        if (!s->backend->device_ops)
            t->data = rt_plan_address(p, p->outputs[i].buffer, s->arena, s->storage, s->inputs);
        memcpy(t->dims, v->dims, sizeof t->dims);
    }
    s->n_outputs = p->n_outputs;
}

ampc_status rt_session_submit(rt_session *s, const char *graph, const rt_tensor *inputs, int n, diag *d, int64_t *run)
{
    rt_plan *p;
    int slot = s->backend->device_ops ? (int)(s->runs % RT_SLOTS) : 0;
    s->n_outputs = 0;
    s->last = NULL;
    s->fetching = AMPC_OK;
    s->error[0] = '\0';
    TRY(needs_memory(s, d));
    TRY(find_plan(s, graph, inputs, n, NULL, d, &p));
    TRY(grow_arena(s, p, d));
    TRY(give_kept(s, p, d));
    TRY(rt_inputs_gather(s, p, inputs, n, slot, d));
    TRY(rt_device_enter(s, p, d));
    TRY(rt_readback_begin(s, p, d));
    TRY(rt_run_enqueue(s, p, slot, d));
    TRY(rt_readback_end(s, p, d));
    if (s->backend->device_ops) RT_DEVICE(s, d, s->backend->device_ops->mark(&s->ctx, &s->slot_marks[slot]));
    rt_outputs_collect(s, p);
    s->last = p;
    *run = ++s->runs;
    return AMPC_OK;
}

ampc_status rt_session_run(rt_session *s, const char *graph, const rt_tensor *inputs, int n, diag *d)
{
    int64_t run;
    TRY(rt_session_submit(s, graph, inputs, n, d, &run));
    ampc_status status = rt_session_collect(s, run, d, NULL);
    if (status != AMPC_OK) s->n_outputs = 0;
    return status;
}

/* ---- results --------------------------------------------------------------------------------- */

static ampc_status fetch(rt_session *s, int i)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    const k_view *v = &s->last->values[s->last->outputs[i].value].view;
    rt_staging *to = &s->fetched[i];
    size_t bytes = k_bytes(v) > 0 ? k_bytes(v) : 1;
    const void *from = rt_plan_address(s->last, s->last->outputs[i].buffer, s->arena, s->storage, s->inputs);
    if (to->bytes < bytes) {
        rt_host_free(s, to->host);
        *to = (rt_staging){0};
        TRY(rt_host_alloc(s, bytes, &to->host));
        to->bytes = bytes;
    }
    TRY(device_ops->download(&s->ctx, to->host, from, k_bytes(v)));
    TRY(device_ops->wait(&s->ctx, NULL));
    s->outputs[i].data = to->host;
    return AMPC_OK;
}

ampc_status rt_session_fetched(rt_session *s, diag *d)
{
    return s->fetching == AMPC_OK ? AMPC_OK : rt_device_error(s, s->fetching, d);
}

int rt_session_output_count(const rt_session *s) { return s->n_outputs; }

const rt_tensor *rt_session_output_at(rt_session *s, int i)
{
    assert(i >= 0 && i < s->n_outputs); /* the index is the caller's, not from a file */
    if (s->outputs[i].data) return &s->outputs[i];
    const ampc_status status = fetch(s, i);
    if (status != AMPC_OK && s->fetching == AMPC_OK) s->fetching = status;
    return status == AMPC_OK ? &s->outputs[i] : NULL;
}

const rt_tensor *rt_session_output(rt_session *s, const char *name)
{
    for (int i = 0; i < s->n_outputs; i++)
        if (strcmp(s->outputs[i].name, name) == 0) return rt_session_output_at(s, i);
    return NULL;
}

/* ---- storage --------------------------------------------------------------------------------- */

int rt_session_storage_count(const rt_session *s) { return (int)s->module->storage.count; }

void rt_session_storage_at(const rt_session *s, int i, rt_tensor *out, ir_storage_kind *kind)
{
    assert(i >= 0 && (size_t)i < s->module->storage.count); /* the index is the caller's, not from a file */
    const ir_storage *storage = s->module->storage.items[i];
    *out = (rt_tensor){.name = storage->name, .dtype = storage->type.dtype, .rank = storage->type.rank};
    memcpy(out->dims, storage->type.dims, (size_t)storage->type.rank * sizeof out->dims[0]);
    if (kind) *kind = storage->kind;
}

int rt_session_storage_find(const rt_session *s, const char *name)
{
    const ir_storage *storage = ir_storage_find(s->module, name);
    return storage ? (int)storage->id : -1;
}

static size_t storage_bytes(const rt_session *s, int i)
{
    return (size_t)ir_storage_bytes(s->module->storage.items[i]);
}

/* Provides a host copy of a discrete device's storage, whose contents may be overwritten. */
static ampc_status free_mirror(rt_session *s, int i, diag *d)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    RT_DEVICE(s, d, device_ops->wait(&s->ctx, NULL));
    if (s->mirrors[i]) return AMPC_OK;
    ampc_status status = rt_host_alloc(s, storage_bytes(s, i), &s->mirrors[i]);
    return status == AMPC_OK
               ? AMPC_OK
               : rt_memory_error(s, status, d, s->module->storage.items[i]->name, (int64_t)storage_bytes(s, i));
}

ampc_status rt_session_read(rt_session *s, int i, diag *d, rt_tensor *out)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    TRY(needs_memory(s, d));
    rt_session_storage_at(s, i, out, NULL);
    out->data = s->storage[i];
    if (!device_ops) return AMPC_OK;
    TRY(free_mirror(s, i, d));
    RT_DEVICE(s, d, device_ops->download(&s->ctx, s->mirrors[i], s->storage[i], storage_bytes(s, i)));
    RT_DEVICE(s, d, device_ops->wait(&s->ctx, NULL));
    out->data = s->mirrors[i];
    return AMPC_OK;
}

ampc_status rt_session_storage(rt_session *s, const char *name, diag *d, rt_tensor *out)
{
    int i = rt_session_storage_find(s, name);
    if (i >= 0) return rt_session_read(s, i, d, out);
    return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "there is no storage @%s", name);
}

ampc_status rt_session_write(rt_session *s, int i, const void *bytes, diag *d)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    TRY(needs_memory(s, d));
    size_t n = storage_bytes(s, i);
    void *to = s->storage[i];
    if (device_ops) {
        TRY(free_mirror(s, i, d));
        to = s->mirrors[i];
    }
    s->changed[i] = ++s->changes;
    if (n) memmove(to, bytes, n);
    if (device_ops) RT_DEVICE(s, d, device_ops->upload(&s->ctx, s->storage[i], to, n));
    return AMPC_OK;
}

static ampc_status find_number(const rt_session *s, const char *name, diag *d, int *i)
{
    *i = rt_session_storage_find(s, name);
    if (*i >= 0 && s->module->storage.items[*i]->type.rank == 0) return AMPC_OK;
    return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "there is no number @%s", name);
}

ampc_status rt_session_get_number(rt_session *s, const char *name, diag *d, double *value)
{
    int i;
    rt_tensor t;
    TRY(find_number(s, name, d, &i));
    TRY(rt_session_read(s, i, d, &t));
    *value = ir_load_f64(t.dtype, t.data);
    return AMPC_OK;
}

ampc_status rt_session_set_number(rt_session *s, const char *name, double value, diag *d)
{
    int i;
    char bytes[8];
    TRY(find_number(s, name, d, &i));
    ir_store_f64(s->module->storage.items[i]->type.dtype, bytes, value);
    return rt_session_write(s, i, bytes, d);
}

ampc_status rt_session_seed(rt_session *s, uint64_t seed, diag *d)
{
    rt_tensor rng;
    int64_t key[2];
    const ir_storage *storage = ir_state_by_role(s->module, IR_STATE_rng);
    if (!seed || !storage) return AMPC_OK;
    TRY(rt_session_read(s, (int)storage->id, d, &rng));
    memcpy(key, rng.data, sizeof key);
    key[0] = (int64_t)seed;
    return rt_session_write(s, (int)storage->id, key, d);
}

/* ---- inspection ------------------------------------------------------------------------------ */

ampc_status rt_session_memory(rt_session *s, const char *graph, const rt_tensor *inputs, int n, diag *d, rt_memory *out)
{
    rt_plan *p;
    TRY(find_plan(s, graph, inputs, n, NULL, d, &p));
    *out = (rt_memory){.arena = p->arena_bytes + p->persistent_bytes, .storage = s->storage_bytes};
    const int64_t room = s->room ? s->backend->device_ops->room(&s->ctx) : 0;
    if (room && room < s->room) out->used = s->room - room;
    return AMPC_OK;
}

ampc_status rt_session_plan(rt_session *s, const char *graph, const rt_tensor *inputs, int n,
                            const pipeline_options *options, diag *d, const rt_plan **out)
{
    rt_plan *p;
    TRY(find_plan(s, graph, inputs, n, options, d, &p));
    *out = p;
    return AMPC_OK;
}

ampc_status rt_session_print_plan(rt_session *s, const char *graph, const rt_tensor *inputs, int n, diag *d, char **out)
{
    rt_plan *p;
    TRY(find_plan(s, graph, inputs, n, NULL, d, &p));
    *out = rt_plan_print(p);
    return *out ? AMPC_OK : no_memory(d, "the text of the plan");
}
