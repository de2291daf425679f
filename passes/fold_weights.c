/* fold_weights.c - computes what a model for a consumer computes from its weights only.
 *
 * Weight norms, standardised weights, exponentials of learned scales and tables of positions are the same in every run.
 * Left in the graph, they are f32 where their ranges are unknown, and their results are cast. Computed here, they are
 * weights like any other. What only moves weights is left: it costs nothing, and the weight is stored once.
 *
 *   before  %s = exp @scale     : f32[3,1,1]     after  %z = mul %x, @s
 *           %z = mul %x, %s     : f32[3,4,4] */
#include "passes/amp/range.h"

enum { MAX_ELEMENTS = 1 << 20 };

typedef enum origin { UNKNOWN, MOVED, COMPUTED } origin;

static bool is_small(const ir_type *t)
{
    int64_t count = 1;
    for (int i = 0; i < t->rank; i++)
        if (ir_dim_is_symbolic(t->dims[i]) || !checked_mul(count, t->dims[i], &count)) return false;
    return count <= MAX_ELEMENTS;
}

static origin origin_of(const ir_value *v, const origin *results)
{
    if (v->kind == IR_VALUE_RESULT) return results[v->id];
    return v->kind == IR_VALUE_STORAGE && v->storage->kind != IR_STATE && is_small(&v->type) ? MOVED : UNKNOWN;
}

/* Whether a list names the node or its result, so that it stays. */
static bool is_named(const ir_node *n, const amp_list *l)
{
    return (n->loc.op && amp_list_find_node(l, &n->loc)) || amp_list_find_tensor(l, n->out[0]->name);
}

static origin find_origin(const ir_node *n, const origin *results, const amp_list *l)
{
    bool computed = !amp_only_moves(n) && ir_dtype_is_float(n->out[0]->type.dtype);
    if (!n->n_in || n->n_regions || !ir_op_has(n->op, IR_PURE) || !is_small(&n->out[0]->type)) return UNKNOWN;
    if (is_named(n, l)) return UNKNOWN;
    for (int i = 0; i < n->n_in; i++) {
        const origin from = ir_in(n, i) ? origin_of(ir_in(n, i), results) : MOVED;
        if (from == UNKNOWN) return UNKNOWN;
        computed |= from == COMPUTED;
    }
    return computed ? COMPUTED : MOVED;
}

static bool is_wanted(const ir_node *n, const origin *results)
{
    if (!n->n_out || results[n->out[0]->id] != COMPUTED) return false;
    for (const ir_use *u = n->out[0]->first_use; u; u = u->next)
        if (!u->user->n_out || results[u->user->out[0]->id] == UNKNOWN) return true;
    return false;
}

static bool know_operands(ir_const_map *k, const ir_node *n, const compile *c, arena *a)
{
    for (int i = 0; i < n->n_in; i++) {
        const ir_value *v = ir_in(n, i);
        if (!v || ir_const_get(k, v)) continue;
        const unsigned char *bytes = v->kind == IR_VALUE_STORAGE ? range_read(v->storage, c, a) : NULL;
        if (!bytes || !ir_dtype_is_float(v->type.dtype)) return false;
        const size_t size = ir_dtype_size(v->type.dtype), count = (size_t)ir_storage_bytes(v->storage) / size;
        double *floats = arena_array(a, count + 1, sizeof *floats);
        for (size_t j = 0; j < count; j++) floats[j] = ir_load_f64(v->type.dtype, bytes + j * size);
        ir_const_set(k, v, &(ir_const_value){v->type, (int64_t)count, NULL, floats});
    }
    return true;
}

/* Computes n from the nodes before it, in memory of its own, and replaces its result. */
static void fold_node(ir_graph *g, ir_node *n, const compile *c)
{
    arena *a = arena_new(0);
    ir_const_map *k = ir_const_map_new(a, g);
    bool *needed = arena_array(a, g->node_ids + 1, sizeof *needed), known = true;
    const ir_node *first = n;
    needed[n->id] = true;
    for (const ir_node *at = n; at; at = at->prev) {
        if (!needed[at->id]) continue;
        first = at;
        for (int i = 0; i < at->n_in; i++)
            if (ir_in(at, i) && ir_def(ir_in(at, i))) needed[ir_def(ir_in(at, i))->id] = true;
    }
    for (const ir_node *at = first; at && at != n->next && known; at = at->next)
        if (needed[at->id]) known = know_operands(k, at, c, a) && ir_fold(k, at, MAX_ELEMENTS);
    const ir_const_value *result = known ? ir_const_get(k, n->out[0]) : NULL;
    if (result && result->floats) {
        const size_t size = ir_dtype_size(result->type.dtype);
        unsigned char *bytes = arena_array(g->module->arena, (size_t)result->count + 1, size);
        for (int64_t i = 0; i < result->count; i++)
            ir_store_f64(result->type.dtype, bytes + (size_t)i * size, result->floats[i]);
        ir_builder b = ir_builder_before(n, c->diag);
        ir_value_replace(n->out[0], ir_constant(&b, n->out[0]->name, &result->type, bytes));
    }
    arena_free(a);
}

void pass_fold_weights(ir_module *m, const compile *c)
{
    for (ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g)) {
        arena *a = pass_scratch_new(m);
        origin *results = arena_array(a, g->value_ids + 1, sizeof *results);
        for (const ir_node *n = g->first; n; n = n->next)
            if (n->n_out) results[n->out[0]->id] = find_origin(n, results, c->list);
        for (ir_node *n = g->first; n; n = n->next)
            if (is_wanted(n, results)) fold_node(g, n, c);
        pass_remove_dead(g);
        arena_free(a);
    }
    ir_module_remove_dead(m);
}
