/* parts.c - finds the parts of a graph (parts.h).
 *
 * A node runs in the last of the parts that define its operands and the symbols in its types and attributes; a trim
 * runs in the part after its operands. Nodes need not follow the trim that sets their symbols, so the parts are raised
 * until none changes. What depends on storage alone then moves to the first part that reads it, where plans can hoist
 * it and fuse it with its readers. */
#include "ir/graph/parts.h"
#include "ir/ops/dim_table.h"

bool ir_has_parts(const ir_graph *g)
{
    for (const ir_node *n = g->first; n; n = n->next)
        if (ir_op_has(n->op, IR_SIZES)) return true;
    return false;
}

int ir_parts_of_value(const ir_parts *p, const ir_value *v)
{
    const ir_node *def = ir_def(v);
    return def ? p->of_node[def->id] : 0;
}

/* ---- symbols --------------------------------------------------------------------------------- */

static ir_dim size_of(const ir_node *trim) { return trim->attr[IR_ATTR(trim, size)].list.items[0]; }

/* The only symbol of d if d is nothing but a symbol, else SIZE_MAX. */
static size_t symbol_of(const ir_dim_table *t, ir_dim d)
{
    if (!ir_dim_is_symbolic(d)) return SIZE_MAX;
    const expression *e = ir_dim_expression(t, d);
    if (e->count != 1 || e->terms[0].factor != 1 || e->terms[0].degree != 1) return SIZE_MAX;
    const atom *a = &t->atoms.items[e->terms[0].atoms[0]];
    return a->kind == ATOM_SYMBOL ? a->symbol : SIZE_MAX;
}

size_t ir_trim_symbol(const ir_node *trim) { return symbol_of(trim->graph->module->dims, size_of(trim)); }

static bool dim_has_symbol(const ir_dim_table *t, ir_dim d, size_t symbol)
{
    if (!ir_dim_is_symbolic(d)) return false;
    const expression *e = ir_dim_expression(t, d);
    for (int i = 0; i < e->count; i++)
        for (uint32_t j = 0; j < e->terms[i].degree; j++) {
            const atom *a = &t->atoms.items[e->terms[i].atoms[j]];
            if (a->kind == ATOM_SYMBOL ? a->symbol == symbol : dim_has_symbol(t, a->inner, symbol)) return true;
        }
    return false;
}

static bool dims_have_symbol(const ir_node *n, const ir_dim *dims, int count, size_t symbol)
{
    for (int i = 0; i < count; i++)
        if (dim_has_symbol(n->graph->module->dims, dims[i], symbol)) return true;
    return false;
}

bool ir_node_has_symbol(const ir_node *n, size_t symbol)
{
    const ir_op_info *info = ir_op_get(n->op);
    for (int i = 0; i < n->n_out; i++)
        if (dims_have_symbol(n, n->out[i]->type.dims, n->out[i]->type.rank, symbol)) return true;
    for (int i = 0; i < info->n_attr; i++)
        if (info->attr[i].kind == IR_SLOT_DIMS &&
            dims_have_symbol(n, n->attr[i].list.items, n->attr[i].list.count, symbol))
            return true;
    return false;
}

bool ir_trim_is_needed(const ir_node *n)
{
    if (!ir_op_has(n->op, IR_SIZES)) return false;
    const size_t symbol = ir_trim_symbol(n);
    bool needed = false;
    for (const ir_node *other = n->graph->first; other; other = other->next) {
        if (other == n || !ir_node_has_symbol(other, symbol)) continue;
        if (ir_op_has(other->op, IR_SIZES) && ir_trim_symbol(other) == symbol) return false;
        needed = true;
    }
    return needed;
}

/* The first part in which d can be evaluated. Expressions are nested only a few levels deep (dim.c). */
static int part_of_dim(const ir_dim_table *t, const ir_parts *p, ir_dim d)
{
    if (!ir_dim_is_symbolic(d)) return 0;
    const expression *e = ir_dim_expression(t, d);
    int part = 0;
    for (int i = 0; i < e->count; i++)
        for (uint32_t j = 0; j < e->terms[i].degree; j++) {
            const atom *a = &t->atoms.items[e->terms[i].atoms[j]];
            const int inner = a->kind == ATOM_SYMBOL ? p->of_symbol[a->symbol] : part_of_dim(t, p, a->inner);
            if (inner > part) part = inner;
        }
    return part;
}

static int part_of_dims(const ir_graph *g, const ir_parts *p, const ir_dim *dims, int count)
{
    int part = 0;
    for (int i = 0; i < count; i++) {
        const int of_dim = part_of_dim(g->module->dims, p, dims[i]);
        if (of_dim > part) part = of_dim;
    }
    return part;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static int part_of_operands(const ir_parts *p, const ir_node *n)
{
    int part = 0;
    for (int i = 0; i < n->n_in; i++)
        if (ir_in(n, i) && ir_parts_of_value(p, ir_in(n, i)) > part) part = ir_parts_of_value(p, ir_in(n, i));
    return part;
}

static int part_of_symbols(const ir_parts *p, const ir_node *n)
{
    const ir_op_info *info = ir_op_get(n->op);
    int part = 0, found;
    for (int i = 0; i < n->n_out; i++) {
        found = part_of_dims(n->graph, p, n->out[i]->type.dims, n->out[i]->type.rank);
        if (found > part) part = found;
    }
    for (int i = 0; i < info->n_attr; i++) {
        if (info->attr[i].kind != IR_SLOT_DIMS) continue;
        found = part_of_dims(n->graph, p, n->attr[i].list.items, n->attr[i].list.count);
        if (found > part) part = found;
    }
    return part;
}

static int part_of_node(const ir_parts *p, const ir_node *n)
{
    const int operands = part_of_operands(p, n);
    if (ir_op_has(n->op, IR_SIZES)) return operands + 1;
    const int symbols = part_of_symbols(p, n);
    return symbols > operands ? symbols : operands;
}

/* Raises the parts of nodes and symbols; whether any has changed. */
static bool raise_parts(const ir_graph *g, ir_parts *p)
{
    bool changed = false;
    for (const ir_node *n = g->first; n; n = n->next) {
        const int part = part_of_node(p, n);
        changed |= part != p->of_node[n->id];
        p->of_node[n->id] = part;
        if (part >= p->count) p->count = part + 1;
        if (!ir_op_has(n->op, IR_SIZES)) continue;
        const int known = ir_parts_of_value(p, ir_in(n, IR_IN(trim, count))) + 1;
        changed |= p->of_symbol[ir_trim_symbol(n)] != known;
        p->of_symbol[ir_trim_symbol(n)] = known;
    }
    return changed;
}

/* ---- nodes that depend on storage alone ---- */

/* The last part in which the results of n are available to all nodes that read them. */
static int last_possible_part(const ir_parts *p, const ir_node *n)
{
    int part = IR_MAX_PARTS;
    for (int i = 0; i < n->n_out; i++)
        for (const ir_use *u = n->out[i]->first_use; u; u = u->next) {
            const int read = p->of_node[u->user->id] - (ir_op_has(u->user->op, IR_SIZES) ? 1 : 0);
            if (read < part) part = read;
        }
    return part;
}

enum { INVARIANT = -1 }; /* part of a node that depends on storage alone, until it is known */

static bool is_invariant(const ir_parts *p, const ir_node *n)
{
    if (p->of_node[n->id] != 0 || !ir_op_has(n->op, IR_PURE)) return false;
    for (int i = 0; i < n->n_in; i++) {
        const ir_value *v = ir_in(n, i);
        if (!v || v->kind == IR_VALUE_STORAGE) continue;
        if (!ir_def(v) || p->of_node[ir_def(v)->id] != INVARIANT) return false;
    }
    return true;
}

static void move_invariants(const ir_graph *g, ir_parts *p)
{
    for (const ir_node *n = g->first; n; n = n->next)
        if (is_invariant(p, n)) p->of_node[n->id] = INVARIANT;
    for (const ir_node *n = g->last; n; n = n->prev) {
        if (p->of_node[n->id] != INVARIANT) continue;
        const int part = last_possible_part(p, n);
        p->of_node[n->id] = part < IR_MAX_PARTS ? part : 0;
    }
}

/* Sets trim_of; trims of one symbol must read one number. */
static const char *find_trims(const ir_graph *g, ir_parts *p, const ir_node **where)
{
    const int count = IR_IN(trim, count);
    for (const ir_node *n = *where = g->first; n; *where = n = n->next) {
        if (!ir_op_has(n->op, IR_SIZES)) continue;
        const size_t symbol = ir_trim_symbol(n);
        if (symbol == SIZE_MAX) return "size must be a symbol";
        const ir_node **first = &p->trim_of[symbol];
        if (*first && ir_in(*first, count) != ir_in(n, count)) return "another trim sets its symbol to another number";
        if (!*first) *first = n;
        p->of_symbol[symbol] = 1;
    }
    return NULL;
}

/* A symbol that is the size of an input is known before the run. */
static const char *check_inputs(const ir_graph *g, const ir_parts *p, const ir_node **where)
{
    for (size_t i = 0; i < ir_dim_symbol_count(g->module->dims); i++) {
        *where = p->trim_of[i];
        if (!*where) continue;
        const ir_dim symbol = size_of(*where);
        for (size_t k = 0; k < g->inputs.count; k++)
            for (int axis = 0; axis < g->inputs.items[k]->type.rank; axis++)
                if (g->inputs.items[k]->type.dims[axis] == symbol) return "its symbol is the size of an input";
    }
    return NULL;
}

const char *ir_parts_find(const ir_graph *g, ir_parts *p, const ir_node **where)
{
    p->count = 1;
    const char *wrong = find_trims(g, p, where);
    if (!wrong) wrong = check_inputs(g, p, where);
    if (wrong) return wrong;
    while (raise_parts(g, p) && p->count <= IR_MAX_PARTS) continue;
    *where = g->first;
    while (*where && p->of_node[(*where)->id] < IR_MAX_PARTS) *where = (*where)->next;
    if (*where) return "the size depends on itself, or on too many other sizes that depend on data";
    move_invariants(g, p);
    return NULL;
}
