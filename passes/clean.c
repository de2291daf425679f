/* clean.c - dce and cse: nodes that nothing reads go, equal nodes become one. */
#include "passes/pass.h"

#include <string.h>

ir_builder pass_builder(ir_graph *g, ir_phase phase, diag *d)
{
    ir_node *before = NULL;
    for (ir_node *n = g->last; n && n->phase > phase; n = n->prev) before = n;
    return (ir_builder){.graph = g, .before = before, .phase = phase, .diag = d};
}

static bool is_dead(const ir_node *n)
{
    if (ir_op_get(n->op)->traits & IR_EFFECT) return false;
    for (int i = 0; i < n->n_out; i++)
        if (ir_value_used(n->out[i])) return false;
    return true;
}

/* From the end: a node's readers have been judged before it. */
int pass_sweep(ir_graph *g)
{
    int removed = 0;
    for (ir_node *n = g->last, *prev; n; n = prev) {
        prev = n->prev;
        if (!is_dead(n)) continue;
        ir_node_remove(n);
        removed++;
    }
    return removed;
}

/* Also storage that nothing reads any more: constants that were written in another type. */
ampc_status pass_dce(ir_module *m, const pass_options *o, diag *d)
{
    (void)d;
    for (size_t i = 0; i < m->graphs.count; i++) pass_sweep(m->graphs.items[i]);
    ir_module_sweep(m);
    if (!o->stats || !m->graphs.count) return AMPC_OK;
    pass_casts left = pass_count_casts(pass_primary(m));
    int removed = o->stats->casts_inserted - left.count;
    o->stats->casts_removed = removed > 0 ? removed : 0;
    o->stats->cast_bytes = left.bytes;
    o->stats->cast_symbolic = left.symbolic;
    return AMPC_OK;
}

/* Appends "NUMBER," and returns its length: parts of a key. */
static int append_number(char *end, int64_t v)
{
    char digits[20], *start = end;
    uint64_t rest = v < 0 ? -(uint64_t)v : (uint64_t)v;
    int n = 0;
    do digits[n++] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (v < 0) *end++ = '-';
    while (n) *end++ = digits[--n];
    *end++ = ',';
    return (int)(end - start);
}

/* ---- cse ------------------------------------------------------------------------------------- */

static const char *attr_key(const ir_node *n, int i, arena *a)
{
    const ir_slot *slot = &ir_op_get(n->op)->attr[i];
    const ir_attr *v = &n->attr[i];
    if (slot->kind == IR_SLOT_STR) return v->s;
    if (slot->kind == IR_SLOT_FLOAT) return arena_printf(a, "%a", v->f);
    if (slot->kind == IR_SLOT_DTYPE) return ir_dtype_name(v->dtype);
    if (slot->kind == IR_SLOT_INT || slot->kind == IR_SLOT_BOOL) {
        char *number = arena_alloc(a, 22);
        append_number(number, v->i);
        return number;
    }
    char *text = arena_alloc(a, (size_t)v->list.count * 21 + 1), *end = text;
    for (int k = 0; k < v->list.count; k++) end += append_number(end, v->list.items[k]);
    return text;
}

/* Two nodes with the same key compute the same. The phase is no part of it: the first of them is the earlier one, and
 * a later phase may read it. */
static const char *node_key(const ir_node *n, arena *a)
{
    size_t size = 64 + (size_t)n->n_in * 12;
    const ir_op_info *info = ir_op_get(n->op);
    const char **attrs = arena_array(a, (size_t)info->n_attr + 1, sizeof *attrs);
    for (int i = 0; i < info->n_attr; i++) size += strlen(attrs[i] = attr_key(n, i, a)) + 1;
    char *key = arena_alloc(a, size), *end = key;
    end += append_number(end, (int64_t)n->op);
    end += append_number(end, (int64_t)n->n_out);
    for (int i = 0; i < n->n_in; i++) end += append_number(end, ir_in(n, i) ? (int64_t)ir_in(n, i)->id : -1);
    for (int i = 0; i < info->n_attr; i++) {
        end = stpcpy(end, attrs[i]);
        *end++ = ';';
    }
    return key;
}

static void merge_equal(ir_graph *g, arena *a)
{
    strmap *seen = strmap_new(a);
    for (ir_node *n = g->first, *next; n; n = next) {
        next = n->next;
        if (!(ir_op_get(n->op)->traits & IR_PURE)) continue;
        const char *key = node_key(n, a);
        if (strmap_enter(seen, key, n)) continue;
        ir_node *first = strmap_get(seen, key);
        for (int i = 0; i < n->n_out; i++)
            if (ir_value_used(n->out[i])) ir_value_replace(n->out[i], first->out[i]);
        ir_node_remove(n);
    }
}

ampc_status pass_cse(ir_module *m, const pass_options *o, diag *d)
{
    (void)o, (void)d;
    arena *scratch = pass_scratch_new(m);
    if (!scratch) return AMPC_NO_MEMORY;
    for (size_t i = 0; i < m->graphs.count; i++) merge_equal(m->graphs.items[i], scratch);
    arena_free(scratch);
    return AMPC_OK;
}
