/* fold.c - the side table of values known at compile time, and their insertion into the graph.
 *
 * ir_fold evaluates one node with the function in the table below. Integers are dimensions (ir/ops/dim.h), so shape
 * arithmetic on unknown sizes can be folded as well; floats are doubles that hold a value of their dtype exactly. */
#include "ir/fold/fold.h"

#include <string.h>

enum { MAX_ZEROS = 4096 }; /* zero constants with more elements are not folded */

struct ir_const_map {
    arena *arena;
    const ir_const_value **constants; /* indexed by value id */
    size_t capacity;
};

static fold_function *const functions[IR_OP_COUNT] = {
#define OP(name, amp, traits, infer, word, grad, kernel) [IR_OP_##name] = fold_##word,
#include "ir/ops/ops.def"
};

bool fold_none(const fold_state *f)
{
    (void)f;
    return false;
}

/* ---- the side table -------------------------------------------------------------------------- */

ir_const_map *ir_const_map_new(arena *a, ir_graph *g)
{
    ir_const_map *k = arena_alloc(a, sizeof *k);
    k->arena = a;
    k->capacity = (size_t)g->value_ids + 64;
    k->constants = arena_array(a, k->capacity, sizeof *k->constants);
    return k;
}

static void remember(ir_const_map *k, const ir_value *v, const ir_const_value *constant)
{
    while (v->id >= k->capacity) k->constants = arena_grow(k->arena, k->constants, &k->capacity, sizeof *k->constants);
    k->constants[v->id] = constant;
}

/* The number of elements of `type`, or -1 if it is symbolic or more than `limit`. */
static int64_t count_static(const ir_type *type, int64_t limit)
{
    int64_t count = 1;
    if (!ir_type_is_static(type)) return -1;
    for (int i = 0; i < type->rank; i++)
        if (!checked_mul(count, type->dims[i], &count)) return -1;
    return count <= limit ? count : -1;
}

static cells cells_new(arena *a, const ir_type *type, int64_t count)
{
    cells c = {.type = *type, .count = count};
    if (ir_dtype_is_float(type->dtype)) c.floats = arena_array(a, (size_t)count + 1, sizeof *c.floats);
    else c.ints = arena_array(a, (size_t)count + 1, sizeof *c.ints);
    return c;
}

static const ir_const_value *cells_freeze(arena *a, const cells *c)
{
    ir_const_value *constant = arena_alloc(a, sizeof *constant);
    *constant = (ir_const_value){c->type, c->count, c->ints, c->floats};
    return constant;
}

static const ir_const_value *read_constant(ir_const_map *k, const ir_storage *s)
{
    bool zero = s->data.kind == IR_DATA_ZERO;
    int64_t count = count_static(&s->type, zero ? MAX_ZEROS : INT64_MAX);
    if (s->kind != IR_CONST || count < 0 || (!zero && s->data.kind != IR_DATA_INLINE)) return NULL;
    cells c = cells_new(k->arena, &s->type, count);
    const unsigned char *at = s->data.bytes;
    size_t size = ir_dtype_size(s->type.dtype);
    for (int64_t i = 0; !zero && i < count; i++, at += size) {
        if (c.floats) c.floats[i] = ir_load_f64(s->type.dtype, at);
        else if ((c.ints[i] = fold_number(s->type.dtype, ir_load_i64(s->type.dtype, at))) == IR_DIM_NONE) return NULL;
    }
    return cells_freeze(k->arena, &c);
}

const ir_const_value *ir_const_get(ir_const_map *k, const ir_value *v)
{
    if (v->id < k->capacity && k->constants[v->id]) return k->constants[v->id];
    if (v->kind != IR_VALUE_STORAGE) return NULL;
    const ir_const_value *constant = read_constant(k, v->storage);
    if (constant) remember(k, v, constant);
    return constant;
}

void ir_const_set(ir_const_map *k, const ir_value *v, const ir_const_value *constant)
{
    cells c = cells_new(k->arena, &constant->type, constant->count);
    if (c.floats) memcpy(c.floats, constant->floats, (size_t)constant->count * sizeof *c.floats);
    else memcpy(c.ints, constant->ints, (size_t)constant->count * sizeof *c.ints);
    remember(k, v, cells_freeze(k->arena, &c));
}

/* ---- evaluation ------------------------------------------------------------------------------ */

bool ir_fold(ir_const_map *k, const ir_node *n, int64_t limit)
{
    if (functions[n->op] == fold_none) return false;
    fold_state f = {.node = n, .dims = n->out[0]->graph->module->dims};
    f.in = arena_array(k->arena, (size_t)n->n_in + 1, sizeof *f.in);
    f.out = arena_array(k->arena, (size_t)n->n_out, sizeof *f.out);
    for (int i = 0; i < n->n_in; i++) {
        const ir_value *v = ir_in(n, i);
        f.in[i] = v ? ir_const_get(k, v) : NULL;
        if (v && (!f.in[i] || f.in[i]->count > limit)) return false;
    }
    for (int i = 0; i < n->n_out; i++) {
        int64_t count = count_static(&n->out[i]->type, limit);
        if (count < 0 || n->out[i]->type.dtype == IR_NO_DTYPE) return false;
        f.out[i] = cells_new(k->arena, &n->out[i]->type, count);
    }
    if (!functions[n->op](&f)) return false;
    for (int i = 0; i < n->n_out; i++) remember(k, n->out[i], cells_freeze(k->arena, &f.out[i]));
    return true;
}

/* ---- commit ---------------------------------------------------------------------------------- */

static bool is_symbolic(const ir_const_value *constant)
{
    for (int64_t i = 0; constant->ints && i < constant->count; i++)
        if (ir_dim_is_symbolic(constant->ints[i])) return true;
    return false;
}

static ir_value *make_constant(ir_builder *b, const char *name, const ir_const_value *constant)
{
    size_t size = ir_dtype_size(constant->type.dtype);
    unsigned char *bytes = arena_array(b->graph->module->arena, (size_t)constant->count + 1, size);
    for (int64_t i = 0; i < constant->count; i++) {
        unsigned char *at = bytes + (size_t)i * size;
        if (constant->floats) ir_store_f64(constant->type.dtype, at, constant->floats[i]);
        else ir_store_i64(constant->type.dtype, at, constant->ints[i]);
    }
    return ir_constant(b, name, &constant->type, bytes);
}

static ir_value *make_dims(ir_builder *b, const char *name, const ir_const_value *constant)
{
    ir_node *n = ir_new(b, IR_OP_dims, 0);
    ir_set_list(n, IR_ATTR(dims, value), constant->ints, (int)constant->count);
    ir_value *v = ir_cast(b, ir_done(b, n), constant->type.dtype);
    v = ir_reshape_like(b, v, &constant->type);
    if (v) ir_value_rename(v, name);
    return v;
}

/* Whether all results of the node are known. */
static bool is_answered(ir_const_map *k, const ir_node *n)
{
    if (!ir_op_has(n->op, IR_PURE)) return false;
    for (int i = 0; i < n->n_out; i++)
        if (!ir_const_get(k, n->out[i])) return false;
    return true;
}

/* Whether a node that will not be folded reads the value. */
static bool has_unfolded_user(ir_const_map *k, const ir_value *v)
{
    const ir_use *u = v->first_use;
    while (u && is_answered(k, u->user)) u = u->next;
    return u != NULL;
}

/* A symbolic value defined by a node without operands is not replaced: it could not become simpler. */
static void commit_value(ir_const_map *k, ir_node *n, ir_value *v, diag *d)
{
    const ir_const_value *constant = ir_const_get(k, v);
    if (!constant || !has_unfolded_user(k, v)) return;
    ir_builder b = ir_builder_before(n, d);
    ir_value *instead = v;
    if (!is_symbolic(constant)) instead = make_constant(&b, v->name, constant);
    else if (n->n_in > 0) instead = make_dims(&b, v->name, constant);
    if (instead && instead != v) ir_value_replace(v, instead);
}

static bool is_read(const ir_node *n)
{
    for (int i = 0; i < n->n_out; i++)
        if (ir_value_used(n->out[i])) return true;
    return false;
}

void ir_fold_commit(ir_const_map *k, ir_graph *g, diag *d)
{
    for (ir_node *n = g->first; n; n = n->next)
        for (int i = 0; i < n->n_out; i++) commit_value(k, n, n->out[i], d);
    for (ir_node *n = g->last, *before; n; n = before) {
        before = n->prev;
        if (is_answered(k, n) && !is_read(n)) ir_node_remove(n);
    }
}
