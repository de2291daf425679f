/* moved_weights.c - in which type operators that only move weights compute, in a model for another runtime.
 *
 * Without this rule, such an operator keeps the type of the weight, f32, and its result is cast. The weight would then
 * be stored in f32, and moved and cast in every run. Instead, the operator is low if everything that reads it is white,
 * gray or clear, or black but computed in f32 inside by the consumer:
 *
 *   before  %t = transpose @w : f32[64,128]     after  %w.h = cast @w : f16[128,64]   # stored as f16
 *           %h = cast %t : f16[64,128]                 %t   = transpose %w.h : f16[64,128]
 *           %y = matmul %x, %h                         %y   = matmul %x, %t */
#include "passes/amp/colour.h"

static bool follows_operands(const amp_entry *e)
{
    return e->rule >= AMP_UNSUPPORTED && (e->colour == IR_GRAY || e->colour == IR_CLEAR);
}

/* Whether n only moves weights and results of nodes that do. */
static bool moves_weights(const ir_node *n, const amp_entry *entries, const bool *moved)
{
    bool any = false;
    if (!amp_only_moves(n) || !follows_operands(&entries[n->id])) return false;
    for (int i = 0; i < n->n_in; i++) {
        const ir_value *v = ir_in(n, i);
        if (!amp_is_cast_operand(n, i)) continue;
        const bool weight = v->kind == IR_VALUE_STORAGE && v->storage->kind != IR_STATE && v->type.dtype == IR_f32;
        if (!weight && !(ir_def(v) && moved[ir_def(v)->id])) return false;
        any = true;
    }
    return any;
}

typedef struct moves {
    const amp_entry *entries;
    const list_place *const *inside;
    bool *moved, *low;
} moves;

/* Whether the user is white, follows its operands, computes in f32 inside, or moves weights and is low. */
static bool reads_low(const ir_use *u, const moves *m)
{
    const uint32_t id = u->user->id;
    const amp_entry *e = &m->entries[id];
    if (!amp_is_cast_operand(u->user, u->index)) return false;
    return m->moved[id] ? m->low[id] : e->colour == IR_WHITE || follows_operands(e) || m->inside[id];
}

static bool is_read_low(const ir_node *n, const moves *m)
{
    bool used = false;
    for (int i = 0; i < n->n_out; i++)
        for (const ir_use *u = n->out[i]->first_use; u; u = u->next) {
            if (!reads_low(u, m)) return false;
            used = true;
        }
    return used;
}

const bool *amp_low_moves(const ir_graph *g, const amp_scope *s, const list_place *const *inside)
{
    const compile *c = s->compile;
    const moves m = {s->entries, inside, arena_array(s->arena, g->node_ids + 1, sizeof(bool)),
                     arena_array(s->arena, g->node_ids + 1, sizeof(bool))};
    const bool on = c->options->plain_runtime && c->options->level == PASS_O1 && c->list->rule.promote == PROMOTE_OFF &&
                    c->list->rule.constants == CONSTANTS_CONVERT;
    for (const ir_node *n = g->first; n && on; n = n->next) m.moved[n->id] = moves_weights(n, m.entries, m.moved);
    for (const ir_node *n = g->last; n && on; n = n->prev) m.low[n->id] = m.moved[n->id] && is_read_low(n, &m);
    return m.low;
}
