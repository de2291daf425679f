/* hold.c - detects masks among the parameters, and folds nodes that depend only on held constants.
 *
 * A model file does not distinguish a causal mask from a learned bias: both are float tensors added to the operand of a
 * softmax. Only their values differ. A multiplicative mask has zeros and ones; an additive mask has zeros and numbers
 * at or below -1e4, possibly infinite; a subtracted mask has zeros and numbers at or above 1e4. A learned tensor may
 * start as all zeros or all ones, so these do not count as masks. */
#include "passes/train/params.h"

#include "passes/amp/range.h"

#define MASKED_OUT 1e4

enum { CHUNK = 1 << 16, MASK_BYTES = 1 << 26, FOLD_BYTES = 1 << 24, FOLD_ELEMENTS = 1 << 20 };

/* ---- uses of masks ---------------------------------------------------------------------------- */

/* Marks, by storage id, the float storage that the operand of a softmax depends on elementwise. */
static void mark_softmax_operands(const ir_graph *g, bool *marked, arena *a)
{
    bool *reached = arena_array(a, g->value_ids + 1, sizeof *reached);
    for (const ir_node *n = g->last; n; n = n->prev) {
        bool on = n->op == IR_OP_softmax || n->op == IR_OP_log_softmax;
        for (int i = 0; i < n->n_out && !on; i++) on = ir_op_has(n->op, IR_MASKS) && reached[n->out[i]->id];
        for (int i = 0; i < n->n_in && on; i++) {
            const ir_value *v = ir_in(n, i);
            if (!v || !ir_dtype_is_float(v->type.dtype)) continue;
            reached[v->id] = true;
            if (v->kind == IR_VALUE_STORAGE) marked[v->storage->id] = true;
        }
    }
}

/* ---- values of masks -------------------------------------------------------------------------- */

typedef struct value_kinds {
    bool zero, one, low, high, other;
} value_kinds;

static void add_kinds(ir_dtype t, const unsigned char *bytes, size_t n, value_kinds *k)
{
    size_t size = ir_dtype_size(t);
    for (size_t i = 0; i + size <= n && !k->other; i += size) {
        double x = ir_load_f64(t, bytes + i);
        if (x == 0) k->zero = true;
        else if (x == 1) k->one = true;
        else if (x <= -MASKED_OUT) k->low = true;
        else if (x >= MASKED_OUT) k->high = true;
        else k->other = true;
    }
}

static bool are_of_mask(const value_kinds *k)
{
    if (k->other || (k->one && (k->low || k->high))) return false;
    return k->low ? !k->high : k->zero && (k->one || k->high);
}

/* Stops reading at the first value that cannot occur in a mask, so learned tensors are cheap to reject. */
static bool has_mask_values(const ir_storage *s, const compile *c)
{
    unsigned char chunk[CHUNK];
    uint64_t bytes = (uint64_t)ir_storage_bytes(s);
    value_kinds k = {0};
    if (bytes > MASK_BYTES) return false;
    for (uint64_t at = 0; at < bytes && !k.other; at += CHUNK) {
        size_t n = bytes - at < CHUNK ? (size_t)(bytes - at) : CHUNK;
        if (!range_read_part(s, c, at, chunk, n)) return false;
        add_kinds(s->type.dtype, chunk, n, &k);
    }
    return are_of_mask(&k);
}

void params_find_masks(const ir_module *m, const compile *c, arena *a)
{
    bool *marked = arena_array(a, m->storage.count + 1, sizeof *marked);
    for (const ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g)) mark_softmax_operands(g, marked, a);
    for (size_t i = 0; i < m->storage.count; i++) {
        ir_storage *s = m->storage.items[i];
        bool candidate = marked[s->id] && s->kind == IR_PARAM && !s->frozen && !params_fact_rule(s);
        if (candidate && has_mask_values(s, c)) s->facts |= IR_TENSOR(mask);
    }
}

/* ---- folding ---------------------------------------------------------------------------------- */

/* A constant in a file that has to be read before it can be folded. */
static bool is_unread(ir_const_map *k, const ir_value *v)
{
    return v->kind == IR_VALUE_STORAGE && v->storage->kind == IR_CONST && v->storage->data.kind == IR_DATA_FILE &&
           ir_storage_bytes(v->storage) <= FOLD_BYTES && !ir_const_get(k, v);
}

static bool has_constant_operands(ir_const_map *k, const ir_node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        const ir_value *v = ir_in(n, i);
        if (v && !is_unread(k, v) && !ir_const_get(k, v)) return false;
    }
    return n->n_in > 0 && n->n_out > 0;
}

static bool load_operands(ir_const_map *k, const ir_node *n, const compile *c, arena *a)
{
    for (int i = 0; i < n->n_in; i++) {
        const ir_value *v = ir_in(n, i);
        if (!v || !is_unread(k, v)) continue;
        const void *bytes = range_read(v->storage, c, a);
        if (!bytes) return false;
        v->storage->data = (ir_data){.kind = IR_DATA_INLINE, .bytes = bytes};
    }
    return true;
}

static void fold_graph(ir_graph *g, const compile *c, arena *a)
{
    ir_const_map *k = ir_const_map_new(a, g);
    for (const ir_node *n = g->first; n; n = n->next)
        if (has_constant_operands(k, n) && load_operands(k, n, c, g->module->arena)) ir_fold(k, n, FOLD_ELEMENTS);
    ir_fold_commit(k, g, c->diag);
    pass_remove_dead(g);
}

void params_fold(ir_module *m, const compile *c, arena *a)
{
    for (size_t i = 0; i < m->graphs.count; i++) fold_graph(m->graphs.items[i], c, a);
    ir_module_remove_dead(m);
}
