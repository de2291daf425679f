/* pass.c - helpers shared by the passes: scratch arenas, names, option strings, states, builders, dead node removal. */
#include "passes/pass.h"
#include "ir/graph/parts.h"

#include <fnmatch.h>
#include <string.h>

arena *pass_scratch_new(ir_module *m) { return arena_new_guarded(m->arena); }

pass_explained pass_explains(const compile_options *o)
{
    if (!o->explain) return EXPLAINS_NOTHING;
    if (strcmp(o->explain, "params") == 0) return EXPLAINS_PARAMS;
    return strcmp(o->explain, "distribution") == 0 ? EXPLAINS_DISTRIBUTION : EXPLAINS_NODES;
}

bool pass_match(const pass_strings *globs, const char *name)
{
    for (int i = 0; i < globs->count; i++)
        if (fnmatch(globs->items[i], name, 0) == 0) return true;
    return false;
}

ir_storage *pass_state(ir_module *m, ir_state_role role, double v)
{
    ir_storage *s = ir_state_by_role(m, role);
    if (s) return s;
    unsigned char bytes[8] = {0};
    s = ir_state_new(m, role);
    ir_store_f64(s->type.dtype, bytes, v);
    ir_storage_set(m, s, bytes);
    return s;
}

ir_storage *pass_random_state(ir_module *m, uint64_t seed)
{
    ir_storage *rng = ir_state_by_role(m, IR_STATE_rng);
    if (rng) return rng;
    rng = ir_state_new(m, IR_STATE_rng);
    ir_storage_set(m, rng, (int64_t[]){(int64_t)seed, 0});
    return rng;
}

static ir_storage *find_slot(const ir_module *m, const char *slot, const ir_storage *of)
{
    for (size_t i = 0; i < m->storage.count; i++) {
        ir_storage *s = m->storage.items[i];
        if (s->kind == IR_STATE && s->role == IR_STATE_slot && s->of == of && strcmp(s->slot, slot) == 0) return s;
    }
    return NULL;
}

static ir_storage *make_owned(ir_module *m, ir_state_role role, const char *slot, ir_storage *of, const ir_type *type)
{
    const char *key = ir_state_roles[role].key;
    const char *name = arena_printf(m->arena, "%.*s.%s%s%s", (int)strlen(key) - 1, key, slot ? slot : "",
                                    slot ? "." : "", of->name);
    ir_storage *s = ir_storage_new(m, IR_STATE, name, type);
    s->role = role;
    s->slot = slot;
    s->of = of;
    return s;
}

ir_storage *pass_state_of(ir_module *m, ir_state_role role, ir_storage *of)
{
    ir_storage *s = ir_storage_owned(m, role, of);
    return s ? s : make_owned(m, role, NULL, of, &of->type);
}

ir_storage *pass_slot(ir_module *m, ir_storage *param, const char *slot, const ir_type *type)
{
    ir_storage *s = find_slot(m, slot, param);
    return s ? s : make_owned(m, IR_STATE_slot, slot, param, type);
}

ir_builder pass_builder(ir_graph *g, ir_phase phase, diag *d)
{
    ir_node *before = NULL;
    for (ir_node *n = g->last; n && n->phase > phase; n = n->prev) before = n;
    return (ir_builder){.graph = g, .before = before, .phase = phase, .diag = d};
}

void pass_store_new(ir_builder *b, ir_storage *s, ir_value *v)
{
    if (!v) return;
    ir_value_rename(v, arena_printf(b->graph->module->arena, "%s.new", s->name));
    ir_store(b, s, v);
}

void pass_advance_random(ir_builder *b)
{
    ir_module *m = b->graph->module;
    ir_storage *rng = ir_state_by_role(m, IR_STATE_rng);
    if (!rng) return;
    ir_value *one = ir_constant(b, arena_printf(m->arena, "%s.advance", rng->name), &rng->type, (int64_t[]){0, 1});
    ir_value *advanced = ir_binary(b, IR_OP_add, ir_graph_storage(b->graph, rng), one);
    pass_store_new(b, rng, advanced);
}

void pass_remove_detach(ir_graph *g)
{
    for (ir_node *n = g->first, *next; n; n = next) {
        next = n->next;
        if (n->op != IR_OP_detach) continue;
        ir_value_replace(n->out[0], ir_in(n, 0));
        ir_node_remove(n);
    }
}

const ir_origin *pass_origins(ir_node *const *nodes, int n, arena *a)
{
    VEC(ir_origin) parts = {0};
    for (int i = 0; i < n; i++) {
        const ir_loc *loc = &nodes[i]->loc;
        const ir_origin *before = parts.count ? &parts.items[parts.count - 1] : NULL;
        if (!loc->op || (before && strcmp(before->node, loc->node) == 0)) continue;
        vec_push(a, &parts, ((ir_origin){loc->op, loc->node}));
    }
    vec_push(a, &parts, ((ir_origin){0}));
    return parts.count > 2 ? parts.items : NULL;
}

static bool is_dead(const ir_node *n)
{
    if (ir_op_get(n->op)->traits & IR_EFFECT) return false;
    for (int i = 0; i < n->n_out; i++)
        if (ir_value_used(n->out[i])) return false;
    return !ir_trim_is_needed(n);
}

/* Goes backwards, so that the users of a node are removed before the node is checked. */
int pass_remove_dead(ir_graph *g) { return pass_remove_dead_after(g, NULL); }

int pass_remove_dead_after(ir_graph *g, const ir_node *node)
{
    int removed = 0;
    for (ir_node *n = g->last, *prev; n && n != node; n = prev) {
        prev = n->prev;
        if (!is_dead(n)) continue;
        ir_node_remove(n);
        removed++;
    }
    return removed;
}
