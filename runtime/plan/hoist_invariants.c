/* hoist_invariants.c - hoists computations that depend only on parameters.
 *
 * Casts of weights, and other steps that depend only on storage, become the first steps of the plan, which run only if
 * storage has changed since. In a training graph the f32 master weights change with every step: there the kernel that
 * updates a parameter also writes its low-precision copy (kernels/update.h), so the cast runs only when weights are
 * loaded.
 *
 *     @w1 = sgd @w, ...  store @w        sgd writes @w and %w.h, which the next step reads
 *     %w.h = cast @w {to=f16}            first, hoisted
 *
 * A value larger than its operands is not hoisted, because reading it would cost more than computing it. */
#include "kernels/update.h"
#include "runtime/plan/stages.h"

/* Whether the value is read in the update phase or by an effect. */
static bool is_read_late(const rt_plan *p, uint32_t value)
{
    for (const rt_use *u = rt_uses(p, value); u; u = u->next)
        if (!u->step || u->step->node->phase == IR_UPDATE) return true;
    return false;
}

static bool can_hoist(const rt_plan *p, const rt_step *s)
{
    size_t read = 0, written = 0;
    if (!rt_step_has(s, IR_PURE) || rt_step_has(s, IR_BODIES | IR_COLLECTIVE) || s->node->phase == IR_UPDATE)
        return false;
    for (int j = 0; j < s->n_in; j++) {
        if (!rt_step_reads(s, j)) continue;
        if (!rt_is_invariant(p, s->in_value[j])) return false;
        read += k_bytes(&s->in[j]);
    }
    for (int j = 0; j < s->n_out; j++) written += k_bytes(&s->out[j]);
    return written > 0 && written <= read;
}

/* Returns the step that updates the storage read by this cast and can also write the low-precision copy, or NULL. */
static rt_step *find_updater(const rt_plan *p, const rt_step *cast, int safe_from)
{
    if (!rt_step_has(cast, IR_CONVERTS) || !ir_dtype_is_float(cast->out[0].dtype)) return NULL;
    const rt_value *param = &p->values[rt_root(p, cast->in_value[0])];
    const rt_effect *store = rt_is_storage(p, cast->in_value[0]) ? param->store : NULL;
    if (!store || cast->in[0].dtype != IR_f32 || is_read_late(p, cast->out_value[0])) return NULL;
    rt_step *s = rt_def(p, store->value);
    if (!s || s->index < safe_from || !rt_step_has(s, IR_UPDATES)) return NULL;
    const bool updates_param = s->in_value[0] == param->root && s->out_value[0] == store->value;
    return updates_param && s->n_out <= ir_op_get(s->op)->n_out ? s : NULL;
}

static bool write_low_copy(rt_plan *p, rt_step *update, const rt_step *cast)
{
    const uint32_t low = cast->out_value[0], low_view = rt_plan_new_view(p, low, low, &cast->out[0]);
    return low_view != RT_NO_VALUE && rt_step_write_extra(p, update, K_SLOT(update, low), low_view);
}

ampc_status rt_stage_hoist_invariants(rt_plan *p, diag *d)
{
    const int safe_from = rt_plan_safe_from(p);
    rt_step *last = NULL; /* the last hoisted step */
    (void)d;
    for (int i = 0; i < p->n_steps && !p->nested; i++) {
        rt_step *s = p->steps[i], *update = NULL;
        if (can_hoist(p, s)) {
            for (int j = 0; j < s->n_out; j++)
                if (rt_step_writes(s, j)) p->values[rt_root(p, s->out_value[j])].invariant = true;
        } else {
            update = find_updater(p, s, safe_from);
            if (!update) continue;
            if (!write_low_copy(p, update, s)) return AMPC_NO_MEMORY;
        }
        s->hoisted = true;
        rt_step_move_after(p, s, last);
        last = s;
    }
    return AMPC_OK;
}
