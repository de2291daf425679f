/* dce_cse.c - dead code elimination and common subexpression elimination. */
#include "passes/pass.h"

#include <string.h>

/* Also removes unused storage, such as constants that were replaced by converted copies. */
ampc_status pass_dce(ir_module *m, compile *c)
{
    for (ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g)) pass_remove_dead(g);
    ir_module_remove_dead(m);
    if (!m->graphs.count) return AMPC_OK;
    pass_casts left = pass_count_casts(pass_primary(m));
    int removed = c->report.casts_inserted - left.count;
    c->report.casts_removed = removed > 0 ? removed : 0;
    c->report.cast_bytes = left.bytes;
    c->report.cast_symbolic = left.symbolic;
    return AMPC_OK;
}

/* ---- common subexpression elimination -------------------------------------------------------- */

/* A hash table of nodes, no two of which compute the same. */
typedef struct node_set {
    struct {
        uint64_t hash;
        ir_node *node; /* NULL: empty */
    } * slots;
    size_t mask;
} node_set;

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    return hash ^ hash >> 32;
}

static uint64_t hash_attr(uint64_t hash, ir_slot_kind kind, const ir_attr *attr)
{
    if (kind == IR_SLOT_STR)
        for (const char *s = attr->s; *s; s++) hash = mix(hash, (unsigned char)*s);
    else if (kind == IR_SLOT_INTS || kind == IR_SLOT_DIMS)
        for (int i = 0; i < attr->list.count; i++) hash = mix(hash, (uint64_t)attr->list.items[i]);
    else if (kind == IR_SLOT_FIELDS) hash = mix(hash, (uint64_t)attr->fields.count);
    else hash = mix(hash, kind == IR_SLOT_DTYPE ? (uint64_t)attr->dtype : (uint64_t)attr->i);
    return hash;
}

static uint64_t hash_node(const ir_node *n)
{
    const ir_op_info *info = ir_op_get(n->op);
    uint64_t hash = mix(n->op, (uint64_t)n->n_out);
    for (int i = 0; i < n->n_in; i++) hash = mix(hash, ir_in(n, i) ? ir_in(n, i)->id : UINT64_MAX);
    for (int i = 0; i < info->n_attr; i++) hash = hash_attr(hash, info->attr[i].kind, &n->attr[i]);
    return hash;
}

static bool have_same_layout(const ir_layout *a, const ir_layout *b)
{
    return a->n_in == b->n_in && a->n_out == b->n_out && !memcmp(a->marks, b->marks, (size_t)(a->n_in + a->n_out));
}

/* Ignores the phase: the first node is in the earlier phase, whose values later phases may read. */
static bool computes_same(const ir_node *a, const ir_node *b)
{
    const ir_op_info *info = ir_op_get(a->op);
    if (a->op != b->op || a->n_in != b->n_in || a->n_out != b->n_out || ir_op_has(a->op, IR_BODIES)) return false;
    for (int i = 0; i < a->n_in; i++)
        if (ir_in(a, i) != ir_in(b, i)) return false;
    for (int i = 0; i < info->n_attr; i++)
        if (!ir_attr_equal(info->attr[i].kind, &a->attr[i], &b->attr[i])) return false;
    for (int i = 0; i < a->n_out; i++)
        if (!ir_type_equal(&a->out[i]->type, &b->out[i]->type)) return false;
    return !a->layout.marks || have_same_layout(&a->layout, &b->layout);
}

static node_set new_set(size_t count, arena *a)
{
    node_set set = {.mask = 15};
    while (set.mask < 2 * count) set.mask = 2 * set.mask + 1;
    set.slots = arena_array(a, set.mask + 1, sizeof *set.slots);
    return set;
}

/* Returns the node of the set that computes the same as n; adds n and returns it if there is none. */
static ir_node *enter(node_set *set, ir_node *n)
{
    uint64_t hash = hash_node(n);
    size_t at = hash & set->mask;
    while (set->slots[at].node && !(set->slots[at].hash == hash && computes_same(set->slots[at].node, n)))
        at = (at + 1) & set->mask;
    if (set->slots[at].node) return set->slots[at].node;
    set->slots[at].hash = hash;
    return set->slots[at].node = n;
}

static void merge_equal(ir_graph *g, arena *a)
{
    node_set seen = new_set(g->node_ids, a);
    for (ir_node *n = g->first, *next; n; n = next) {
        next = n->next;
        ir_node *first = ir_op_get(n->op)->traits & IR_PURE ? enter(&seen, n) : n;
        if (first == n) continue;
        for (int i = 0; i < n->n_out; i++)
            if (ir_value_used(n->out[i])) ir_value_replace(n->out[i], first->out[i]);
        ir_node_remove(n);
    }
}

ampc_status pass_cse(ir_module *m, compile *c)
{
    (void)c;
    arena *scratch = pass_scratch_new(m);
    for (ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g)) merge_equal(g, scratch);
    arena_free(scratch);
    return AMPC_OK;
}
