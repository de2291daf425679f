/* plan_keep.c - what depends on parameters alone is computed once and kept.
 *
 * Casts of weights, and what else only storage goes into, stand first in the plan; those steps run only when storage
 * has changed since. In a graph that trains, the f32 master changes with every step: there the kernel that writes the
 * master writes the low copy too (kernels/update.h), so that the cast runs when weights are loaded and not again.
 *
 *     @w1 = sgd @w, ...  store @w        sgd writes @w and %w.h, which the next step reads
 *     %w.h = cast @w {to=f16}            first, kept
 *
 * A value that is larger than what it is made from is not kept. */
#include "kernels/update.h"
#include "runtime/backend/alloc.h"
#include "runtime/plan/plan.h"

typedef struct keeper {
    rt_plan *p;
    const rt_effect **store; /* by root value, a storage: what commits to it */
    int *maker;              /* by root value: the step, or -1 */
    bool *late;              /* by root value: read in the update, or by an effect */
    bool *kept;              /* by root value: does not change while the graph runs again and again */
} keeper;

static uint32_t root_of(const keeper *k, uint32_t value) { return k->p->values[value].root; }

static bool is_storage(const keeper *k, uint32_t root)
{
    const rt_value *v = &k->p->values[root];
    return !v->derived && v->value && v->value->kind == IR_VALUE_STORAGE;
}

static void look(keeper *k)
{
    const rt_plan *p = k->p;
    for (int i = 0; i < p->n_steps; i++) {
        const rt_step *s = &p->steps[i];
        for (int j = 0; j < s->n_in && s->node->phase == IR_UPDATE; j++)
            if (s->in_value[j] != RT_NO_VALUE) k->late[root_of(k, s->in_value[j])] = true;
    }
    for (int i = 0; i < p->n_effects; i++) {
        const rt_effect *e = &p->effects[i];
        k->late[root_of(k, e->value)] = true;
        if (e->node->op == IR_OP_store) k->store[e->node->in[IR_IN(store, state)].value->id] = e;
    }
}

static bool may_keep(const keeper *k, const rt_step *s)
{
    size_t read = 0, written = 0;
    if (!rt_step_has(s, IR_PURE) || s->node->phase == IR_UPDATE) return false;
    for (int j = 0; j < s->n_in; j++) {
        if (s->in_value[j] == RT_NO_VALUE) continue;
        uint32_t root = root_of(k, s->in_value[j]);
        if (!k->kept[root] && !(is_storage(k, root) && !k->store[root])) return false;
        read += k_bytes(&s->in[j]);
    }
    for (int j = 0; j < s->n_out; j++) written += k_bytes(&s->out[j]);
    return written > 0 && written <= read;
}

static void keep(keeper *k, rt_step *s)
{
    s->kept = true;
    for (int j = 0; j < s->n_out; j++)
        if (s->out_value[j] != RT_NO_VALUE) k->kept[s->out_value[j]] = true;
}

/* The step that updates the storage which this cast reads, if it can write the low copy too; -1: none. */
static int updater_of(const keeper *k, const rt_step *cast, int safe_from)
{
    if (cast->op != IR_OP_cast || !ir_dtype_is_float(cast->out[0].dtype)) return -1;
    const uint32_t root = root_of(k, cast->in_value[0]);
    const rt_effect *store = is_storage(k, root) ? k->store[root] : NULL;
    if (!store || cast->in[0].dtype != IR_f32 || k->late[cast->out_value[0]]) return -1;
    const int maker = k->maker[root_of(k, store->value)];
    if (maker < safe_from) return -1;
    const rt_step *s = &k->p->steps[maker];
    const bool whole = k_updates(s->op) && s->in_value[0] == root && s->out_value[0] == store->value;
    return whole && s->n_out <= ir_op_get(s->op)->n_out ? maker : -1;
}

static bool let_update(keeper *k, int updater, const rt_step *cast)
{
    rt_plan *p = k->p;
    rt_step *s = &p->steps[updater];
    const int slots_in = ir_op_get(s->op)->n_in, at = ir_op_get(s->op)->n_out + K_UPDATE_LOW;
    const uint32_t low = cast->out_value[0];
    k_view view = cast->out[0];
    uint32_t again = rt_plan_derive(p, low, &view);
    if (again == RT_NO_VALUE) return false;
    p->values[again].root = low;
    if (!rt_step_widen(p, s, s->n_in > slots_in ? s->n_in - slots_in : 0, K_UPDATE_EXTRA_OUT)) return false;
    rt_step_write(p, s, at, again);
    return true;
}

static bool keep_steps(keeper *k)
{
    rt_plan *p = k->p;
    const int safe_from = rt_plan_safe_from(p), n_steps = p->n_steps;
    for (int i = 0; i < n_steps; i++) {
        rt_step *s = &p->steps[i];
        if (may_keep(k, s)) {
            keep(k, s);
            continue;
        }
        const int updater = updater_of(k, s, safe_from);
        if (updater < 0) continue;
        if (!let_update(k, updater, s)) return false;
        s->kept = true;
    }
    return true;
}

/* The kept steps first. */
static bool reorder(rt_plan *p)
{
    rt_step *steps = rt_plan_take(p, (size_t)p->n_steps, sizeof *steps);
    int n = 0;
    if (!steps) return false;
    for (int i = 0; i < p->n_steps; i++)
        if (p->steps[i].kept) steps[n++] = p->steps[i];
    p->n_kept = n;
    for (int i = 0; i < p->n_steps; i++)
        if (!p->steps[i].kept) steps[n++] = p->steps[i];
    p->steps = steps;
    return true;
}

bool rt_plan_keep(rt_plan *p)
{
    keeper k = {.p = p};
    k.store = rt_alloc(p->n_values, sizeof *k.store);
    k.maker = rt_plan_makers(p);
    k.late = rt_alloc(p->n_values, sizeof *k.late);
    k.kept = rt_alloc(p->n_values, sizeof *k.kept);
    bool done = k.store && k.maker && k.late && k.kept;
    if (done) {
        look(&k);
        done = keep_steps(&k) && reorder(p);
    }
    rt_free(k.store);
    rt_free(k.maker);
    rt_free(k.late);
    rt_free(k.kept);
    return done;
}
