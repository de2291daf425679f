/* region.c - the graphs that nodes own (If, Loop, Scan), and operations on graphs that include them: walk, sweep,
 * clone. */
#include "ir/graph/ir.h"

#include <assert.h>
#include <string.h>

/* ---- regions --------------------------------------------------------------------------------------------- */

void ir_regions_name(ir_node *n)
{
    const char *node = n->loc.op ? n->loc.node : ir_op_get(n->op)->name;
    for (int i = 0; i < n->n_regions; i++)
        n->regions[i].graph->name = arena_printf(n->regions[i].graph->module->arena, "%s.%s", node, n->regions[i].name);
}

void ir_region_add(ir_node *n, const char *name, ir_graph *g)
{
    arena *a = g->module->arena;
    ir_region *regions = arena_array(a, (size_t)n->n_regions + 1, sizeof *regions);
    for (int i = 0; i < n->n_regions; i++) regions[i] = n->regions[i];
    regions[n->n_regions++] = (ir_region){.name = arena_intern(a, name), .graph = g};
    n->regions = regions;
    g->owner = n;
    ir_regions_name(n);
}

ir_region *ir_region_find(const ir_node *n, const char *name)
{
    for (int i = 0; i < n->n_regions; i++)
        if (strcmp(n->regions[i].name, name) == 0) return &n->regions[i];
    return NULL;
}

static ir_region *region_of(const ir_graph *g)
{
    for (int i = 0; g->owner && i < g->owner->n_regions; i++)
        if (g->owner->regions[i].graph == g) return &g->owner->regions[i];
    return NULL;
}

/* ---- captures -------------------------------------------------------------------------------------------- */

int ir_declared_operands(const ir_node *n)
{
    const int count = ir_op_has(n->op, IR_BODIES) ? ir_layout_operands(n) : n->n_in;
    return count < n->n_in ? count : n->n_in;
}

int ir_capture_of(const ir_region *r, size_t input)
{
    return input < r->captures.count ? r->captures.items[input] : -1;
}

int ir_capture_find(const ir_value *v)
{
    const ir_region *r = region_of(v->graph);
    for (size_t i = 0; r && i < r->captures.count; i++)
        if (r->graph->inputs.items[i] == v) return r->captures.items[i];
    return -1;
}

/* The operand of n that holds v for its regions; added if there is none. */
static int find_operand(ir_node *n, ir_value *v)
{
    int i = ir_declared_operands(n);
    while (i < n->n_in && ir_in(n, i) != v) i++;
    if (i == n->n_in) ir_node_add_input(n, v);
    return i;
}

void ir_capture_set(ir_region *r, size_t input, int operand)
{
    while (r->captures.count <= input) vec_push(r->graph->module->arena, &r->captures, -1);
    r->captures.items[input] = operand;
}

void ir_capture_bind(ir_graph *g, size_t input, ir_value *v)
{
    ir_capture_set(region_of(g), input, find_operand(g->owner, v));
}

ir_value *ir_capture_add(ir_graph *g, ir_value *v)
{
    const ir_region *r = region_of(g);
    for (size_t i = 0; i < r->captures.count; i++)
        if (r->captures.items[i] >= 0 && ir_in(g->owner, r->captures.items[i]) == v) return g->inputs.items[i];
    ir_value *input = ir_graph_input(g, v->name, &v->type);
    ir_capture_bind(g, g->inputs.count - 1, v);
    return input;
}

static void order_captures(ir_node *n)
{
    const int first = ir_declared_operands(n), count = n->n_in - first;
    if (!count) return;
    arena *a = n->regions[0].graph->module->arena;
    ir_value **values = arena_array(a, (size_t)count, sizeof *values);
    int *moved = arena_array(a, (size_t)count, sizeof *moved), used = 0; /* the new position of each capture, from 1 */
    for (int k = 0; k < n->n_regions; k++)
        for (size_t i = 0; i < n->regions[k].captures.count; i++) {
            int *operand = &n->regions[k].captures.items[i], at = 0;
            if (*operand < first) continue;
            ir_value *v = ir_in(n, *operand);
            if (!moved[*operand - first]) {
                while (at < used && values[at] != v) at++;
                if (at == used) values[used++] = v;
                moved[*operand - first] = at + 1;
            }
            *operand = first + moved[*operand - first] - 1;
        }
    for (int i = 0; i < count; i++)
        if (i >= used || ir_in(n, first + i) != values[i]) ir_node_set_input(n, first + i, i < used ? values[i] : NULL);
    n->n_in = first + used;
}

void ir_captures_order(ir_graph *g)
{
    for (ir_node *n = g->first; n; n = n->next)
        if (n->n_regions) order_captures(n);
}

/* ---- the graphs of a module ------------------------------------------------------------------------------ */

static ir_graph *first_owned(const ir_node *n)
{
    while (n && !n->n_regions) n = n->next;
    return n ? n->regions[0].graph : NULL;
}

ir_graph *ir_next_graph_in(const ir_graph *root, const ir_graph *g)
{
    ir_graph *next = first_owned(g->first);
    for (; !next && g != root; g = g->owner->graph) {
        const ir_region *after = region_of(g) + 1;
        const bool last = after == g->owner->regions + g->owner->n_regions;
        next = last ? first_owned(g->owner->next) : after->graph;
    }
    return next;
}

ir_graph *ir_first_graph(const ir_module *m) { return m->graphs.count ? m->graphs.items[0] : NULL; }

ir_graph *ir_next_graph(const ir_graph *g)
{
    const ir_module *m = g->module;
    const ir_graph *root = g;
    while (root->owner) root = root->owner->graph;
    ir_graph *next = ir_next_graph_in(root, g);
    for (size_t i = 0; !next && i + 1 < m->graphs.count; i++)
        if (m->graphs.items[i] == root) next = m->graphs.items[i + 1];
    return next;
}

static void mark_storage(const ir_node *n, bool *read)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i].value && n->in[i].value->storage) read[n->in[i].value->storage->id] = true;
    if (n->of && n->of->storage) read[n->of->storage->id] = true;
}

void ir_module_remove_dead(ir_module *m)
{
    bool *read = arena_array(m->arena, m->storage.count + 1, sizeof *read);
    for (const ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g))
        for (const ir_node *n = g->first; n; n = n->next) mark_storage(n, read);
    for (size_t i = m->storage.count; i-- > 0;) { /* owners come first */
        const ir_storage *s = m->storage.items[i];
        if (read[s->id] && s->of) read[s->of->id] = true;
    }
    size_t count = 0;
    for (size_t i = 0; i < m->storage.count; i++) {
        ir_storage *s = m->storage.items[i];
        if (!read[s->id]) {
            strmap_put(m->storage_names, s->name, NULL);
            continue;
        }
        s->id = (uint32_t)count;
        m->storage.items[count++] = s;
    }
    m->storage.count = count;
}

/* ---- clone ----------------------------------------------------------------------------------- */

static ir_value *value_clone(const ir_value *v, ir_graph *into, ir_value **map)
{
    if (!v) return NULL;
    if (v->kind == IR_VALUE_STORAGE && !map[v->id]) map[v->id] = ir_graph_storage(into, v->storage);
    return map[v->id];
}

static ir_node *node_clone(const ir_node *n, ir_graph *into, ir_value **map)
{
    ir_value **in = arena_array(into->module->arena, (size_t)n->n_in + 1, sizeof *in);
    for (int i = 0; i < n->n_in; i++) in[i] = value_clone(n->in[i].value, into, map);
    ir_builder b = ir_builder_at_end(into, NULL);
    b.phase = n->phase;
    ir_node *copy = ir_new_array(&b, n->op, n->n_in, in, n->n_out);
    copy->loc = n->loc;
    copy->note = n->note;
    copy->layout = n->layout;
    copy->role = n->role;
    copy->of = value_clone(n->of, into, map);
    for (int i = 0; i < ir_op_get(n->op)->n_attr; i++) copy->attr[i] = n->attr[i];
    for (int i = 0; i < n->n_out; i++) {
        copy->out[i]->type = n->out[i]->type;
        ir_value_rename(copy->out[i], n->out[i]->name);
        map[n->out[i]->id] = copy->out[i];
    }
    ir_node_insert(&b, copy);
    for (int i = 0; i < n->n_regions; i++) ir_region_clone(&n->regions[i], copy);
    return copy;
}

static void fill_clone(ir_graph *copy, const ir_graph *g, ir_value **map)
{
    ir_module *m = copy->module;
    strmap_reserve(copy->names, g->value_ids);
    if (!map) map = arena_array(m->arena, (size_t)g->value_ids + 1, sizeof *map);
    else memset(map, 0, g->value_ids * sizeof *map);
    for (size_t i = 0; i < g->inputs.count; i++) {
        const ir_value *v = g->inputs.items[i];
        map[v->id] = ir_graph_input(copy, v->name, &v->type);
        map[v->id]->role = v->role;
    }
    for (const ir_node *n = g->first; n; n = n->next) node_clone(n, copy, map);
}

ir_graph *ir_graph_clone(ir_module *m, const ir_graph *g, const char *name, ir_value **map)
{
    ir_graph *copy = ir_graph_new(m, name);
    fill_clone(copy, g, map);
    return copy;
}

ir_graph *ir_body_clone(const ir_graph *g)
{
    ir_graph *copy = ir_body_new(g->module);
    fill_clone(copy, g, NULL);
    return copy;
}

ir_graph *ir_region_clone(const ir_region *r, ir_node *to)
{
    ir_graph *copy = ir_body_clone(r->graph);
    ir_region_add(to, r->name, copy);
    for (size_t i = 0; i < r->captures.count; i++)
        ir_capture_set(&to->regions[to->n_regions - 1], i, r->captures.items[i]);
    return copy;
}
