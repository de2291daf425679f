/* node.c - a node: creation through a builder, operands and attributes, position in the graph. */
#include "ir/graph/ir.h"

#include <assert.h>
#include <string.h>

ir_builder ir_builder_at_end(ir_graph *g, diag *d)
{
    ir_phase phase = g->last ? g->last->phase : IR_FORWARD;
    return (ir_builder){.graph = g, .phase = phase, .diag = d};
}

ir_builder ir_builder_before(ir_node *n, diag *d)
{
    return (ir_builder){.graph = n->graph, .before = n, .phase = n->phase, .loc = n->loc, .diag = d};
}

ir_builder ir_builder_after(ir_node *n, diag *d)
{
    return (ir_builder){.graph = n->graph, .before = n->next, .phase = n->phase, .loc = n->loc, .diag = d};
}

/* ---- uses ------------------------------------------------------------------------------------ */

static void use_link(ir_use *u, ir_value *v)
{
    u->value = v;
    u->prev = NULL;
    u->next = NULL;
    if (!v) return;
    u->next = v->first_use;
    if (u->next) u->next->prev = u;
    v->first_use = u;
}

static void use_unlink(ir_use *u)
{
    if (!u->value) return;
    if (u->prev) u->prev->next = u->next;
    else u->value->first_use = u->next;
    if (u->next) u->next->prev = u->prev;
    u->value = NULL;
}

void ir_node_set_input(ir_node *n, int i, ir_value *v)
{
    assert(i >= 0 && i < n->n_in); /* callers check the operand count */
    use_unlink(&n->in[i]);
    use_link(&n->in[i], v);
}

void ir_node_add_input(ir_node *n, ir_value *v)
{
    ir_use *in = arena_array(v->graph->module->arena, (size_t)n->n_in + 1, sizeof *in);
    for (int i = 0; i <= n->n_in; i++) {
        in[i] = (ir_use){.user = n, .index = i};
        ir_value *read = i < n->n_in ? n->in[i].value : v;
        if (i < n->n_in) use_unlink(&n->in[i]);
        use_link(&in[i], read);
    }
    n->in = in;
    n->n_in++;
}

void ir_value_replace(ir_value *from, ir_value *to)
{
    assert(from != to); /* callers compare first */
    while (from->first_use) ir_node_set_input(from->first_use->user, from->first_use->index, to);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static bool operands_complete(ir_op op, int n_in, ir_value *const *in)
{
    const ir_op_info *info = ir_op_get(op);
    int mandatory = info->variadic_in >= 0 ? info->n_in - 1 : 0;
    if (n_in < mandatory) return false;
    for (int i = 0; i < n_in; i++) {
        const ir_slot *slot = ir_op_in_slot(op, i, n_in);
        if (slot && slot->kind != IR_SLOT_OPT && !in[i]) return false;
    }
    for (int i = n_in; i < info->n_in && info->variadic_in < 0; i++)
        if (info->in[i].kind != IR_SLOT_OPT) return false;
    return true;
}

static ir_value *result_new(ir_node *n, ir_graph *g, int i)
{
    ir_value *v = arena_alloc(g->module->arena, sizeof *v);
    v->id = g->value_ids++;
    v->kind = IR_VALUE_RESULT;
    v->graph = g;
    v->def = n;
    v->def_index = i;
    return v;
}

/* All operands and results are present. */
static ir_layout plain_layout(arena *a, const ir_node *n)
{
    const size_t count = (size_t)(n->n_in + n->n_out);
    return (ir_layout){n->n_in, n->n_out, memset(arena_alloc(a, count + 1), 'x', count)};
}

ir_node *ir_new_array(ir_builder *b, ir_op op, int n_in, ir_value *const *in, int n_out)
{
    if (!operands_complete(op, n_in, in)) return NULL;
    const ir_op_info *info = ir_op_get(op);
    arena *a = b->graph->module->arena;
    ir_node *n = arena_alloc(a, sizeof *n);
    b->graph->edited = true;
    n->id = b->graph->node_ids++;
    n->op = op;
    n->phase = b->phase;
    n->loc = b->loc;
    n->loc.fused_from = NULL;
    /* The caller may omit optional operands at the end; the node has every slot. */
    n->n_in = info->variadic_in < 0 && n_in < info->n_in ? info->n_in : n_in;
    n->n_out = n_out ? n_out : info->n_out;
    n->in = arena_array(a, (size_t)n->n_in, sizeof *n->in);
    n->out = arena_array(a, (size_t)n->n_out, sizeof *n->out);
    n->attr = arena_array(a, (size_t)info->n_attr, sizeof *n->attr);
    for (int i = 0; i < n->n_in; i++) {
        n->in[i].user = n;
        n->in[i].index = i;
        if (i < n_in) ir_node_set_input(n, i, in[i]);
    }
    for (int i = 0; i < n->n_out; i++) n->out[i] = result_new(n, b->graph, i);
    for (int i = 0; i < info->n_attr; i++) n->attr[i] = info->attr[i].initial;
    if (ir_op_has_layout(op)) n->layout = plain_layout(a, n);
    return n;
}

ir_node *ir_new(ir_builder *b, ir_op op, int n_in, ...)
{
    ir_value *in[16];
    assert(n_in <= 16); /* the call states the count */
    va_list args;
    va_start(args, n_in);
    for (int i = 0; i < n_in; i++) in[i] = va_arg(args, ir_value *);
    va_end(args);
    return ir_new_array(b, op, n_in, in, 0);
}

void ir_node_insert(const ir_builder *b, ir_node *n)
{
    ir_graph *g = b->graph;
    n->graph = g;
    n->next = b->before;
    n->prev = b->before ? b->before->prev : g->last;
    if (n->prev) n->prev->next = n;
    else g->first = n;
    if (n->next) n->next->prev = n;
    else g->last = n;
}

static void unlink_node(ir_node *n)
{
    n->graph->edited = true;
    if (n->prev) n->prev->next = n->next;
    else n->graph->first = n->next;
    if (n->next) n->next->prev = n->prev;
    else n->graph->last = n->prev;
}

void ir_node_remove(ir_node *n)
{
    for (int i = 0; i < n->n_out; i++) assert(!ir_value_used(n->out[i])); /* callers have replaced its results */
    for (int i = 0; i < n->n_in; i++) use_unlink(&n->in[i]);
    if (!n->graph) return;
    unlink_node(n);
    n->graph = NULL;
}

void ir_node_move_before(ir_node *n, ir_node *at)
{
    assert(n != at && n->graph == at->graph); /* callers stay within the graph */
    unlink_node(n);
    n->prev = at->prev;
    n->next = at;
    if (at->prev) at->prev->next = n;
    else at->graph->first = n;
    at->prev = n;
}

diag_loc ir_diag_loc(const ir_node *n)
{
    if (n->loc.op) return diag_node(n->loc.file, n->loc.node, n->loc.op);
    const char *name = n->n_out > 0 && n->out[0]->name ? n->out[0]->name : NULL;
    return diag_node(n->loc.file, name, ir_op_get(n->op)->name);
}

diag_loc ir_storage_loc(const ir_module *m, const ir_storage *s)
{
    static const diag_kind kinds[] = {[IR_PARAM] = DIAG_PARAMETER, [IR_STATE] = DIAG_STATE, [IR_CONST] = DIAG_CONSTANT};
    return diag_named(ir_module_source(m), kinds[s->kind], s->name);
}

/* ---- attributes ------------------------------------------------------------------------------ */

static arena *node_arena(const ir_node *n)
{
    const ir_value *v = n->n_out > 0 ? n->out[0] : n->in[0].value;
    return v->graph->module->arena;
}

void ir_set_int(ir_node *n, int attr, int64_t v)
{
    if (n) n->attr[attr].i = v;
}

void ir_set_bool(ir_node *n, int attr, bool v)
{
    if (n) n->attr[attr].i = v;
}

void ir_set_float(ir_node *n, int attr, double v)
{
    if (n) n->attr[attr].f = ir_op_get(n->op)->attr[attr].kind == IR_SLOT_FLOAT ? (double)(float)v : v;
}

void ir_set_dtype(ir_node *n, int attr, ir_dtype t)
{
    if (n) n->attr[attr].dtype = t;
}

void ir_set_str(ir_node *n, int attr, const char *s)
{
    if (n) n->attr[attr].s = arena_strdup(node_arena(n), s);
}

void ir_set_fields(ir_node *n, int attr, const ir_field *fields, int count)
{
    if (!n) return;
    n->attr[attr].fields.items = ir_fields_copy(node_arena(n), fields, count);
    n->attr[attr].fields.count = count;
}

void ir_set_list(ir_node *n, int attr, const int64_t *items, int count)
{
    if (!n) return;
    int64_t *copy = arena_array(node_arena(n), (size_t)count + 1, sizeof *copy);
    for (int i = 0; i < count; i++) copy[i] = items[i];
    n->attr[attr].list.items = copy;
    n->attr[attr].list.count = count;
}
