/* link.c - calls of models in one graph: see link.h. */
#include "ir/build/link.h"

#include <string.h>

enum { SEEDED = 1 << 30 }; /* streams from here on belong to seeds, which draw equal numbers everywhere */
enum { MAX_NODES = 1 << 20 };

/* ---- storage ----------------------------------------------------------------------------------- */

static ir_data copy_data(ir_module *m, const ir_storage *s)
{
    ir_data d = s->data;
    const size_t bytes = (size_t)ir_storage_bytes(s);
    if (d.kind == IR_DATA_INLINE) {
        void *copy = arena_alloc(m->arena, bytes ? bytes : 1);
        if (bytes) memcpy(copy, d.bytes, bytes);
        d.bytes = copy;
    }
    if (d.path) d.path = arena_strdup(m->arena, d.path);
    return d;
}

/* Constants that ir_scalar has made, and the random counter, are shared by all models. */
static ir_storage *find_shared(ir_module *m, const ir_storage *s)
{
    if (s->kind == IR_STATE && s->role == IR_STATE_rng) {
        ir_storage *rng = ir_state_by_role(m, IR_STATE_rng);
        return rng ? rng : ir_state_new(m, IR_STATE_rng);
    }
    ir_storage *found = ir_storage_is_scalar(s) ? ir_storage_find(m, s->name) : NULL;
    return found && ir_storage_is_scalar(found) ? found : NULL;
}

static ir_storage *copy_storage(ir_module *m, const char *name, const ir_storage *s)
{
    ir_storage *copy = find_shared(m, s);
    if (copy) return copy;
    const char *full = ir_storage_is_scalar(s) ? s->name : arena_printf(m->arena, "%s.%s", name, s->name);
    copy = ir_storage_new(m, s->kind, arena_strdup(m->arena, full), &s->type);
    copy->data = copy_data(m, s);
    copy->role = s->role;
    copy->frozen = s->frozen;
    copy->facts = s->facts;
    if (s->merged) copy->merged = arena_strdup(m->arena, s->merged);
    if (s->note) copy->note = arena_strdup(m->arena, s->note);
    return copy;
}

static ampc_status check_node(const ir_node *n, diag *d)
{
    if (!ir_op_has(n->op, IR_DECLARED) && !ir_op_has(n->op, IR_SIZES)) return AMPC_OK;
    return diag_error(d, AMPC_UNSUPPORTED, ir_diag_loc(n), "a recipe cannot call a model with this operator: %s",
                      ir_op_has(n->op, IR_SIZES)    ? "the size of its result depends on data"
                      : ir_op_has(n->op, IR_BODIES) ? "it has subgraphs that remain after the import"
                                                    : "its types are declared by the program");
}

ampc_status ir_link_model(ir_linker *l, const ir_graph *model, const char *name, ir_linked *out)
{
    const ir_module *from = model->module;
    for (const ir_node *n = model->first; n; n = n->next)
        if (check_node(n, l->diag) != AMPC_OK) return diag_status(l->diag);
    *out = (ir_linked){.linker = l, .model = model, .name = name};
    out->storage = arena_array(l->scratch, from->storage.count + 1, sizeof *out->storage);
    for (size_t i = 0; i < from->storage.count; i++)
        out->storage[i] = copy_storage(l->graph->module, name, from->storage.items[i]);
    return AMPC_OK;
}

/* ---- arguments --------------------------------------------------------------------------------- */

typedef struct call {
    ir_linked *linked;
    ir_builder b;
    const char *name;
    diag_loc where;
    ir_dim *sizes;  /* by symbol of the model; IR_DIM_NONE: not known yet */
    ir_value **map; /* by value id of the model */
} call;

static ir_dim_table *dims_of(const call *c) { return c->b.graph->module->dims; }
static const ir_dim_table *model_dims(const call *c) { return c->linked->model->module->dims; }

/* A plain symbol of the model becomes the dimension of the first argument that has it. */
static void bind_symbols(call *c, const ir_type *declared, const ir_type *given)
{
    size_t symbol;
    for (int i = 0; i < declared->rank && i < given->rank; i++)
        if (ir_dim_is_symbol(model_dims(c), declared->dims[i], &symbol) && c->sizes[symbol] == IR_DIM_NONE)
            c->sizes[symbol] = given->dims[i];
}

ir_dim ir_link_symbol(ir_linker *l, const char *name)
{
    for (int i = 0; i < l->n_sizes; i++)
        if (strcmp(l->sizes[i].name, name) == 0) {
            l->sizes[i].used = true;
            return ir_dim_number(l->sizes[i].size);
        }
    return ir_dim_symbol(l->graph->module->dims, name);
}

/* Symbols that no argument determines keep their names. */
static void bind_others(call *c)
{
    const ir_dim_table *from = model_dims(c);
    for (size_t i = 0; i < ir_dim_symbol_count(from); i++)
        if (c->sizes[i] == IR_DIM_NONE) c->sizes[i] = ir_link_symbol(c->linked->linker, ir_dim_symbol_name(from, i));
}

static bool replace_dims(const call *c, const ir_dim *from, int count, ir_dim *to)
{
    for (int i = 0; i < count; i++) {
        to[i] = ir_dim_replace(dims_of(c), model_dims(c), from[i], c->sizes);
        if (to[i] == IR_DIM_NONE) return false;
    }
    return true;
}

static ampc_status check_argument(const call *c, int i, const ir_argument *arg)
{
    const ir_value *input = c->linked->model->inputs.items[i];
    const ir_module *m = c->b.graph->module;
    arena *a = c->linked->linker->scratch;
    diag *d = c->linked->linker->diag;
    ir_type needed = input->type;
    if (replace_dims(c, input->type.dims, input->type.rank, needed.dims) && ir_type_equal(&needed, &arg->value->type))
        return AMPC_OK;
    const char *declared = ir_type_print(c->linked->model->module, &input->type, a);
    const char *given = ir_type_print(m, &arg->value->type, a);
    if (needed.rank == arg->value->type.rank && needed.dtype == arg->value->type.dtype)
        for (int k = 0; k < needed.rank; k++)
            if (needed.dims[k] != arg->value->type.dims[k])
                return diag_error(
                    d, AMPC_REJECTED, c->where, "'%s' is %s, input '%s' of %s is %s: sizes differ: %s and %s",
                    arg->name, given, input->name, c->linked->name, declared,
                    ir_dim_print(m->dims, arg->value->type.dims[k], a), ir_dim_print(m->dims, needed.dims[k], a));
    return diag_error(d, AMPC_REJECTED, c->where, "'%s' is %s, input '%s' of %s is %s", arg->name, given, input->name,
                      c->linked->name, declared);
}

static ampc_status bind_arguments(call *c, ir_argument *args)
{
    const ir_graph *model = c->linked->model;
    for (size_t i = 0; i < model->inputs.count; i++)
        if (args[i].value) bind_symbols(c, &model->inputs.items[i]->type, &args[i].value->type);
    bind_others(c);
    for (size_t i = 0; i < model->inputs.count; i++) {
        ir_type type = model->inputs.items[i]->type;
        if (!args[i].value) args[i].value = ir_graph_find_input(c->b.graph, args[i].name);
        if (!args[i].value && replace_dims(c, type.dims, type.rank, type.dims))
            args[i].value = ir_graph_input(c->b.graph, args[i].name, &type);
        if (!args[i].value)
            return diag_error(c->b.diag, AMPC_REJECTED, c->where, "input '%s' is too large", args[i].name);
        TRY(check_argument(c, (int)i, &args[i]));
        c->map[model->inputs.items[i]->id] = args[i].value;
    }
    return AMPC_OK;
}

/* ---- nodes ------------------------------------------------------------------------------------- */

static ir_value **current_value(ir_linker *l, const ir_storage *s)
{
    while (l->current.count <= s->id) vec_push(l->scratch, &l->current, NULL);
    return &l->current.items[s->id];
}

static ir_value *map_value(call *c, const ir_value *v)
{
    if (!v) return NULL;
    if (v->kind != IR_VALUE_STORAGE || c->map[v->id]) return c->map[v->id];
    ir_storage *s = c->linked->storage[v->storage->id];
    ir_value *current = *current_value(c->linked->linker, s);
    return c->map[v->id] = current ? current : ir_graph_storage(c->b.graph, s);
}

static bool copy_attribute(const call *c, const ir_slot *slot, const ir_attr *from, ir_attr *to)
{
    arena *a = c->b.graph->module->arena;
    *to = *from;
    if (slot->kind == IR_SLOT_STR && from->s) to->s = arena_strdup(a, from->s);
    if (slot->kind == IR_SLOT_FIELDS) to->fields.items = ir_fields_copy(a, from->fields.items, from->fields.count);
    if (slot->kind != IR_SLOT_INTS && slot->kind != IR_SLOT_DIMS) return true;
    int64_t *items = arena_array(a, (size_t)from->list.count + 1, sizeof *items);
    if (from->list.count) memcpy(items, from->list.items, (size_t)from->list.count * sizeof *items);
    to->list.items = items;
    return slot->kind != IR_SLOT_DIMS || replace_dims(c, from->list.items, from->list.count, items);
}

static int64_t *stream_of(const ir_node *n)
{
    const int at = ir_op_find_attr(n->op, "stream");
    return at < 0 || n->attr[at].i >= SEEDED ? NULL : &n->attr[at].i;
}

static const char *full_name(const call *c, char separator, const char *name)
{
    arena *a = c->b.graph->module->arena;
    return *name == '/' ? arena_printf(a, "%s%s", c->name, name) : arena_printf(a, "%s%c%s", c->name, separator, name);
}

static void name_copy(const call *c, const ir_node *n, ir_node *copy)
{
    arena *a = c->b.graph->module->arena;
    copy->loc = (ir_loc){.file = c->linked->linker->file,
                         .op = n->loc.op ? arena_intern(a, n->loc.op) : NULL,
                         .node = n->loc.node ? full_name(c, '/', n->loc.node) : NULL};
    if (n->note) copy->note = arena_strdup(a, n->note);
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i]->name) ir_value_rename(copy->out[i], full_name(c, '.', n->out[i]->name));
}

static bool copy_node(call *c, const ir_node *n)
{
    const ir_op_info *info = ir_op_get(n->op);
    ir_value **in = arena_array(c->linked->linker->scratch, (size_t)n->n_in + 1, sizeof *in);
    for (int i = 0; i < n->n_in; i++) in[i] = map_value(c, ir_in(n, i));
    ir_node *copy = ir_new_array(&c->b, n->op, n->n_in, in, n->n_out);
    if (!copy) return false;
    name_copy(c, n, copy);
    bool ok = true;
    for (int i = 0; i < info->n_attr; i++) ok &= copy_attribute(c, &info->attr[i], &n->attr[i], &copy->attr[i]);
    if (stream_of(copy)) *stream_of(copy) += c->linked->linker->streams;
    if (!ok) return diag_error(c->b.diag, AMPC_REJECTED, ir_diag_loc(copy), "a dimension is too large") == AMPC_OK;
    if (!ir_done_all(&c->b, copy)) return false;
    for (int i = 0; i < n->n_out; i++) c->map[n->out[i]->id] = copy->out[i];
    return true;
}

/* Stores and outputs of the model take effect when all nodes are copied. */
static ampc_status copy_nodes(call *c, ir_value **results)
{
    ir_linker *l = c->linked->linker;
    const ir_graph *model = c->linked->model;
    int64_t streams = 0;
    int outputs = 0;
    for (const ir_node *n = model->first; n; n = n->next) {
        if (ir_op_has(n->op, IR_NAMED)) results[outputs++] = map_value(c, ir_in(n, 0));
        else if (!ir_op_has(n->op, IR_STORES) && !copy_node(c, n)) return diag_status(l->diag);
        if (stream_of(n) && *stream_of(n) >= streams) streams = *stream_of(n) + 1;
    }
    for (const ir_node *n = ir_first_store(model); n; n = ir_next_store(n)) {
        ir_value *stored = map_value(c, ir_in(n, 1));
        *current_value(l, c->linked->storage[ir_in(n, 0)->storage->id]) = stored;
    }
    l->streams += streams;
    return AMPC_OK;
}

ampc_status ir_link_call(ir_linked *linked, const char *name, diag_loc where, ir_argument *args, ir_value **results)
{
    ir_linker *l = linked->linker;
    const ir_graph *model = linked->model;
    const size_t symbols = ir_dim_symbol_count(model->module->dims);
    call c = {.linked = linked, .b = ir_builder_at_end(l->graph, l->diag), .name = name, .where = where};
    c.b.nameless = true;
    l->nodes += (int64_t)model->node_ids;
    if (l->nodes > MAX_NODES)
        return diag_error(l->diag, AMPC_UNSUPPORTED, where, "the calls have more than %d nodes together", MAX_NODES);
    c.sizes = arena_array(l->scratch, symbols + 1, sizeof *c.sizes);
    c.map = arena_array(l->scratch, (size_t)model->value_ids + 1, sizeof(ir_value *));
    for (size_t i = 0; i < symbols; i++) c.sizes[i] = IR_DIM_NONE;
    TRY(bind_arguments(&c, args));
    return copy_nodes(&c, results);
}

void ir_link_stores(ir_linker *l)
{
    const ir_module *m = l->graph->module;
    ir_builder b = ir_builder_at_end(l->graph, l->diag);
    b.phase = IR_UPDATE;
    for (size_t i = 0; i < l->current.count; i++)
        if (l->current.items[i]) ir_store(&b, m->storage.items[i], l->current.items[i]);
}
