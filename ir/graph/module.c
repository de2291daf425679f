/* module.c - the module and its parts: storage, graphs, values. */
#include "ir/graph/ir.h"

#include <assert.h>
#include <string.h>

ir_module *ir_module_new(void)
{
    arena *a = arena_new(0);
    if (!a) return NULL;
    jmp_buf guard;
    if (setjmp(guard)) {
        arena_free(a);
        return NULL;
    }
    arena_set_guard(a, &guard);
    ir_module *m = arena_alloc(a, sizeof *m);
    m->arena = a;
    m->training.low = IR_NO_DTYPE;
    m->dims = ir_dim_table_new(a);
    m->storage_names = strmap_new(a);
    arena_set_guard(a, NULL);
    return m;
}

void ir_module_free(ir_module *m)
{
    if (m) arena_free(m->arena);
}

enum { COUNTER = 0x1e }; /* first character of keys that are not names */

/* ---- unique names ---------------------------------------------------------------------------- */

/* Adds `name`, or `name.N` with the first free N, to `names`. */
static const char *name_unique(ir_module *m, strmap *names, const char *name, void *owner)
{
    const char *plain = name && *name ? name : "v", *unique = strmap_enter(names, plain, owner);
    if (unique) return unique;
    /* A separate key holds the next number to try, to avoid a search if many names are equal. */
    const char *counter = arena_printf(m->arena, "%c%s", COUNTER, plain);
    uintptr_t number = (uintptr_t)strmap_get(names, counter);
    while (!unique) unique = strmap_enter(names, arena_printf(m->arena, "%s.%zu", plain, (size_t)++number), owner);
    strmap_put(names, counter, (void *)number);
    return unique;
}

/* ---- storage --------------------------------------------------------------------------------- */

ir_storage *ir_storage_new(ir_module *m, ir_storage_kind kind, const char *name, const ir_type *type)
{
    ir_storage *s = arena_alloc(m->arena, sizeof *s);
    s->id = (uint32_t)m->storage.count;
    s->kind = kind;
    s->type = *type;
    s->name = name_unique(m, m->storage_names, name, s);
    vec_push(m->arena, &m->storage, s);
    return s;
}

ir_storage *ir_storage_find(const ir_module *m, const char *name)
{
    return *name == COUNTER ? NULL : strmap_get(m->storage_names, name);
}

int64_t ir_storage_bytes(const ir_storage *s)
{
    int64_t n = (int64_t)ir_dtype_size(s->type.dtype);
    for (int i = 0; i < s->type.rank; i++) n *= s->type.dims[i];
    return n;
}

int64_t ir_storage_held(const ir_storage *s) { return s->kind == IR_PARAM && s->shard ? 0 : ir_storage_bytes(s); }

bool ir_storage_is_derived(const ir_storage *s)
{
    return s->kind == IR_STATE && (s->role == IR_STATE_master || s->role == IR_STATE_low_copy);
}

ir_storage *ir_storage_owned(const ir_module *m, ir_state_role role, const ir_storage *of)
{
    for (size_t i = 0; i < m->storage.count; i++) {
        ir_storage *s = m->storage.items[i];
        if (s->kind == IR_STATE && s->role == role && s->of == of) return s;
    }
    return NULL;
}

ir_type ir_storage_whole(const ir_storage *s)
{
    ir_type whole = s->shard && s->kind == IR_STATE ? s->of->type : s->type;
    whole.dtype = s->type.dtype;
    return whole;
}

bool ir_data_in_image(const ir_module *m, const ir_data *data)
{
    return m->image.path && strcmp(m->image.path, data->path) == 0;
}

void ir_storage_set(ir_module *m, ir_storage *s, const void *bytes)
{
    size_t n = (size_t)ir_storage_bytes(s);
    void *copy = arena_alloc(m->arena, n ? n : 1);
    if (n) memcpy(copy, bytes, n);
    s->data = (ir_data){.kind = IR_DATA_INLINE, .bytes = copy};
}

const char *ir_module_source(const ir_module *m)
{
    for (size_t i = 0; i < m->graphs.count; i++)
        for (const ir_node *n = m->graphs.items[i]->first; n; n = n->next)
            if (n->loc.file) return n->loc.file;
    return NULL;
}

const char *ir_meta_get(const ir_module *m, const char *key)
{
    for (size_t i = 0; i < m->meta.count; i++)
        if (strcmp(m->meta.items[i].key, key) == 0) return m->meta.items[i].value;
    return NULL;
}

void ir_meta_set(ir_module *m, const char *key, const char *value)
{
    const char *copy = arena_strdup(m->arena, value);
    for (size_t i = 0; i < m->meta.count; i++)
        if (strcmp(m->meta.items[i].key, key) == 0) {
            m->meta.items[i].value = copy;
            return;
        }
    ir_meta entry = {arena_strdup(m->arena, key), copy};
    vec_push(m->arena, &m->meta, entry);
}

/* ---- graphs and values ----------------------------------------------------------------------- */

ir_graph *ir_body_new(ir_module *m)
{
    ir_graph *g = arena_alloc(m->arena, sizeof *g);
    g->module = m;
    g->name = "body";
    g->names = strmap_new(m->arena);
    return g;
}

ir_graph *ir_graph_new(ir_module *m, const char *name)
{
    ir_graph *g = ir_body_new(m);
    g->name = arena_strdup(m->arena, name);
    vec_push(m->arena, &m->graphs, g);
    return g;
}

ir_graph *ir_graph_find(const ir_module *m, const char *name)
{
    for (size_t i = 0; i < m->graphs.count; i++)
        if (strcmp(m->graphs.items[i]->name, name) == 0) return m->graphs.items[i];
    return NULL;
}

static ir_value *value_new(ir_graph *g, ir_value_kind kind, const ir_type *type)
{
    ir_value *v = arena_alloc(g->module->arena, sizeof *v);
    g->edited = true;
    v->id = g->value_ids++;
    v->kind = kind;
    v->graph = g;
    if (type) v->type = *type;
    return v;
}

/* Results and inputs of a graph share one namespace. */
static void value_name(ir_value *v, const char *name)
{
    v->name = name_unique(v->graph->module, v->graph->names, name, v);
}

void ir_value_rename(ir_value *v, const char *name)
{
    assert(v->kind != IR_VALUE_STORAGE); /* callers rename only results and inputs */
    if (v->name && strcmp(v->name, name) == 0) return;
    value_name(v, name);
}

ir_value *ir_graph_input(ir_graph *g, const char *name, const ir_type *type)
{
    ir_value *v = value_new(g, IR_VALUE_INPUT, type);
    value_name(v, name);
    vec_push(g->module->arena, &g->inputs, v);
    return v;
}

ir_value *ir_graph_find_input(const ir_graph *g, const char *name)
{
    for (size_t i = 0; i < g->inputs.count; i++)
        if (strcmp(g->inputs.items[i]->name, name) == 0) return g->inputs.items[i];
    return NULL;
}

void ir_graph_drop_input(ir_graph *g, ir_value *v)
{
    assert(!ir_value_used(v)); /* callers checked it */
    size_t count = 0;
    for (size_t i = 0; i < g->inputs.count; i++)
        if (g->inputs.items[i] != v) g->inputs.items[count++] = g->inputs.items[i];
    g->inputs.count = count;
    g->edited = true;
}

static ir_value *find_read(const ir_graph *g, const ir_storage *s)
{
    ir_value *v = s->reads;
    while (v && v->graph != g) v = v->next_read;
    return v;
}

ir_value *ir_graph_storage(ir_graph *g, ir_storage *s)
{
    ir_value *v = find_read(g, s);
    if (v) return v;
    v = value_new(g, IR_VALUE_STORAGE, &s->type);
    v->storage = s;
    v->name = s->name;
    v->next_read = s->reads;
    s->reads = v;
    return v;
}

ir_node *ir_graph_find_output(const ir_graph *g, const char *name)
{
    for (ir_node *n = g->last; n; n = n->prev)
        if (ir_op_has(n->op, IR_NAMED) && strcmp(ir_output_name(n), name) == 0) return n;
    return NULL;
}

const char *ir_graph_name_output(ir_graph *g, const char *name)
{
    if (!g->output_names) {
        g->output_names = strmap_new(g->module->arena);
        for (ir_node *n = ir_first_output(g); n; n = ir_next_output(n))
            strmap_put(g->output_names, ir_output_name(n), n);
    }
    return name_unique(g->module, g->output_names, name, g);
}

/* n, or the first node after it, with that trait. */
static ir_node *skip_to(ir_node *n, enum ir_trait trait)
{
    while (n && !ir_op_has(n->op, trait)) n = n->next;
    return n;
}

ir_node *ir_first_output(const ir_graph *g) { return skip_to(g->first, IR_NAMED); }
ir_node *ir_next_output(const ir_node *n) { return skip_to(n->next, IR_NAMED); }
ir_node *ir_first_store(const ir_graph *g) { return skip_to(g->first, IR_STORES); }
ir_node *ir_next_store(const ir_node *n) { return skip_to(n->next, IR_STORES); }

/* ---- ids ------------------------------------------------------------------------------------- */

void ir_graph_renumber(ir_graph *g)
{
    const ir_module *m = g->module;
    if (!g->edited) return;
    g->edited = false;
    g->node_ids = g->value_ids = 0;
    for (size_t i = 0; i < g->inputs.count; i++) g->inputs.items[i]->id = g->value_ids++;
    for (size_t i = 0; i < m->storage.count; i++) {
        ir_value *v = find_read(g, m->storage.items[i]);
        if (v) v->id = UINT32_MAX;
    }
    for (ir_node *n = g->first; n; n = n->next) {
        n->id = g->node_ids++;
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i].value && n->in[i].value->id == UINT32_MAX) n->in[i].value->id = g->value_ids++;
        for (int i = 0; i < n->n_out; i++) n->out[i]->id = g->value_ids++;
    }
    /* Storage values without uses still exist and need ids too. */
    for (size_t i = 0; i < m->storage.count; i++) {
        ir_value *v = find_read(g, m->storage.items[i]);
        if (v && v->id == UINT32_MAX) v->id = g->value_ids++;
    }
}
