/* subgraph.c - the subgraphs of nodes (If, Loop, Scan), and operations on graphs that include subgraphs: remove,
 * sweep, clone.
 *
 * The attribute `bodies` of a node has one line "ATTRIBUTE=GRAPH" per subgraph; `captures` has one name per line, in
 * the order of the last operands. */
#include "ir/graph/ir.h"

#include <string.h>

/* All ops with the trait BODIES begin with these attributes. */
_Static_assert(IR_ATTR(if, captures) == IR_ATTR(foreign, captures) && IR_ATTR(if, bodies) == IR_ATTR(foreign, bodies) &&
                   IR_ATTR(loop, captures) == IR_ATTR(foreign, captures) &&
                   IR_ATTR(loop, bodies) == IR_ATTR(foreign, bodies) &&
                   IR_ATTR(if, attributes) == IR_ATTR(foreign, attributes) &&
                   IR_ATTR(loop, attributes) == IR_ATTR(foreign, attributes),
               "the attributes of ops with subgraphs differ");

static const char *text_of(const ir_node *n, int attr)
{
    const char *text = ir_op_has(n->op, IR_BODIES) ? n->attr[attr].s : NULL;
    return text ? text : "";
}

static int count_lines(const char *text)
{
    int lines = *text != '\0';
    for (; *text; text++) lines += *text == '\n';
    return lines;
}

int ir_subgraph_count(const ir_node *n) { return count_lines(text_of(n, IR_ATTR(foreign, bodies))); }

/* ---- subgraphs ------------------------------------------------------------------------------------------- */

ir_subgraph ir_subgraph_get(const ir_node *n, int i)
{
    const char *line = text_of(n, IR_ATTR(foreign, bodies));
    while (i--) line = strchr(line, '\n') + 1;
    ir_module *m = n->graph ? n->graph->module : n->out[0]->graph->module;
    size_t length = strcspn(line, "\n"), key = strcspn(line, "=\n");
    ir_subgraph subgraph = {.attribute = arena_strndup(m->arena, line, key)};
    if (key == length) return subgraph;
    subgraph.graph = ir_graph_find(m, arena_strndup(m->arena, line + key + 1, length - key - 1));
    if (subgraph.graph && !subgraph.graph->subgraph) subgraph.graph = NULL;
    return subgraph;
}

const ir_graph *ir_subgraph_find(const ir_node *n, const char *attribute)
{
    const size_t key = strlen(attribute);
    for (const char *line = text_of(n, IR_ATTR(foreign, bodies)); *line; line += *line == '\n') {
        const size_t length = strcspn(line, "\n");
        if (length > key && line[key] == '=' && memcmp(line, attribute, key) == 0) {
            const ir_module *m = n->graph->module;
            for (size_t i = 0; i < m->graphs.count; i++) {
                const ir_graph *g = m->graphs.items[i];
                const bool named = strlen(g->name) == length - key - 1 &&
                                   !memcmp(g->name, line + key + 1, length - key - 1);
                if (named && g->subgraph) return g;
            }
        }
        line += length;
    }
    return NULL;
}

void ir_subgraph_add(ir_node *n, const char *attribute, ir_graph *g)
{
    const char *before = n->attr[IR_ATTR(foreign, bodies)].s;
    g->subgraph = true;
    ir_set_str(n, IR_ATTR(foreign, bodies),
               arena_printf(g->module->arena, "%s%s%s=%s", before, *before ? "\n" : "", attribute, g->name));
}

static bool has_subgraphs(const ir_module *m)
{
    bool any = false;
    for (size_t i = 0; i < m->graphs.count && !any; i++) any = m->graphs.items[i]->subgraph;
    return any;
}

void ir_graph_and_subgraphs(const ir_graph *g, arena *a, ir_graph_list *out)
{
    vec_push(a, out, g);
    if (!has_subgraphs(g->module)) return; /* most modules have none */
    for (const ir_node *n = g->first; n; n = n->next)
        for (int i = 0; i < ir_subgraph_count(n); i++) {
            const ir_graph *subgraph = ir_subgraph_get(n, i).graph;
            if (subgraph) ir_graph_and_subgraphs(subgraph, a, out);
        }
}

/* ---- captures -------------------------------------------------------------------------------------------- */

int ir_declared_operands(const ir_node *n) { return n->n_in - count_lines(text_of(n, IR_ATTR(foreign, captures))); }

int ir_capture_find(const ir_node *n, const ir_value *v)
{
    const char *name = text_of(n, IR_ATTR(foreign, captures));
    size_t length = strlen(v->name);
    for (int i = ir_declared_operands(n); i < n->n_in; i++) {
        size_t width = strcspn(name, "\n");
        if (width == length && memcmp(name, v->name, width) == 0) return i;
        name += width + (name[width] == '\n');
    }
    return -1;
}

/* Whether the operator passes a value of that name to another subgraph of n. */
static bool is_passed_elsewhere(const ir_node *n, const ir_graph *subgraph, const char *name)
{
    for (int i = 0; i < ir_subgraph_count(n); i++) {
        const ir_graph *other = ir_subgraph_get(n, i).graph;
        const ir_value *input = other && other != subgraph ? ir_graph_find_input(other, name) : NULL;
        if (input && ir_capture_find(n, input) < 0) return true;
    }
    return false;
}

ir_value *ir_capture_add(ir_node *n, ir_graph *subgraph, ir_value *v)
{
    for (size_t i = 0; i < subgraph->inputs.count; i++) {
        int operand = ir_capture_find(n, subgraph->inputs.items[i]);
        if (operand >= 0 && ir_in(n, operand) == v) return subgraph->inputs.items[i];
    }
    arena *a = n->graph->module->arena;
    ir_value *input = ir_graph_input(subgraph, v->name, &v->type);
    int operand = ir_capture_find(n, input);
    while (is_passed_elsewhere(n, subgraph, input->name) || (operand >= 0 && ir_in(n, operand) != v)) {
        ir_value_rename(input, arena_printf(a, "%s.outside", input->name));
        operand = ir_capture_find(n, input);
    }
    if (operand >= 0) return input;
    const char *before = text_of(n, IR_ATTR(foreign, captures));
    ir_set_str(n, IR_ATTR(foreign, captures), arena_printf(a, "%s%s%s", before, *before ? "\n" : "", input->name));
    ir_node_add_input(n, v);
    return input;
}

/* ---- graphs with their subgraphs ------------------------------------------------------------- */

/* Removes subgraphs that no entry graph reaches. */
static void remove_dead_in_subgraphs(ir_module *m)
{
    ir_graph_list reached = {0};
    strmap *names = strmap_new_borrowing(m->arena);
    for (size_t i = 0; i < m->graphs.count; i++)
        if (!m->graphs.items[i]->subgraph) ir_graph_and_subgraphs(m->graphs.items[i], m->arena, &reached);
    if (reached.count == m->graphs.count) return;
    for (size_t i = 0; i < reached.count; i++) strmap_put(names, reached.items[i]->name, m);
    size_t count = 0;
    for (size_t i = 0; i < m->graphs.count; i++)
        if (strmap_get(names, m->graphs.items[i]->name)) m->graphs.items[count++] = m->graphs.items[i];
    m->graphs.count = count;
}

static void mark_storage(const ir_node *n, bool *read)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i].value && n->in[i].value->storage) read[n->in[i].value->storage->id] = true;
    if (n->of && n->of->storage) read[n->of->storage->id] = true;
}

void ir_module_remove_dead(ir_module *m)
{
    remove_dead_in_subgraphs(m);
    bool *read = arena_array(m->arena, m->storage.count + 1, sizeof *read);
    for (size_t g = 0; g < m->graphs.count; g++)
        for (const ir_node *n = m->graphs.items[g]->first; n; n = n->next) mark_storage(n, read);
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

void ir_graph_remove(ir_module *m, ir_graph *g)
{
    for (const ir_node *n = g->first; n; n = n->next)
        for (int i = 0; i < ir_subgraph_count(n); i++) {
            ir_graph *subgraph = ir_subgraph_get(n, i).graph;
            if (subgraph) ir_graph_remove(m, subgraph);
        }
    size_t count = 0;
    for (size_t i = 0; i < m->graphs.count; i++)
        if (m->graphs.items[i] != g) m->graphs.items[count++] = m->graphs.items[i];
    m->graphs.count = count;
}

/* ---- clone ----------------------------------------------------------------------------------- */

static void clone_subgraphs(const ir_node *n, ir_node *copy)
{
    int count = ir_subgraph_count(n);
    if (!count) return;
    ir_module *m = copy->graph->module;
    ir_set_str(copy, IR_ATTR(foreign, bodies), "");
    for (int i = 0; i < count; i++) {
        ir_subgraph subgraph = ir_subgraph_get(n, i);
        if (!subgraph.graph) continue;
        const char *name = arena_printf(m->arena, "%s/%s", copy->graph->name, subgraph.graph->name);
        ir_subgraph_add(copy, subgraph.attribute, ir_graph_clone(m, subgraph.graph, name, NULL));
    }
}

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
    copy->role = n->role;
    copy->of = value_clone(n->of, into, map);
    for (int i = 0; i < ir_op_get(n->op)->n_attr; i++) copy->attr[i] = n->attr[i];
    for (int i = 0; i < n->n_out; i++) {
        copy->out[i]->type = n->out[i]->type;
        ir_value_rename(copy->out[i], n->out[i]->name);
        map[n->out[i]->id] = copy->out[i];
    }
    ir_node_insert(&b, copy);
    clone_subgraphs(n, copy);
    return copy;
}

ir_graph *ir_graph_clone(ir_module *m, const ir_graph *g, const char *name, ir_value **map)
{
    ir_graph *copy = ir_graph_new(m, name);
    strmap_reserve(copy->names, g->value_ids);
    if (!map) map = arena_array(m->arena, (size_t)g->value_ids + 1, sizeof *map);
    else memset(map, 0, g->value_ids * sizeof *map);
    for (size_t i = 0; i < g->inputs.count; i++) {
        const ir_value *v = g->inputs.items[i];
        map[v->id] = ir_graph_input(copy, v->name, &v->type);
        map[v->id]->role = v->role;
    }
    for (const ir_node *n = g->first; n; n = n->next) node_clone(n, copy, map);
    return copy;
}
