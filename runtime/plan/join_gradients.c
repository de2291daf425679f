/* join_gradients.c - computes gradients of weights in the updates that read them.
 *
 *     %d.w = conv_grad_weight %dy, %x            (or a matmul)
 *     @w, @v = momentum @w, @v, %d.w, ...        @w, @v = momentum @w, @v, _, ..., %dy, %x
 *
 * If nothing else reads a gradient, neither a check for infinity nor a norm, it needs no memory: each part is used
 * while it is in the caches. Operands of the gradient live until the update, so together they must be smaller than it.
 * Like all kernels of the tail, those of such updates cannot fail (plan.h). */
#include "kernels/update.h"
#include "runtime/plan/stages.h"

enum { FACTORS = 2 }; /* operands of the gradient; others must be absent */

/* Whether the step is a product of two factors with a single result that is read. */
static bool is_product(const rt_plan *p, const rt_step *m)
{
    if (m->kind != RT_STEP_OP || m->fused || m->hoisted || ir_op_get(m->op)->colour != IR_WHITE) return false;
    if (!rt_step_has(m, IR_SPATIAL | IR_EPILOGUE) || m->n_in < FACTORS) return false;
    for (int j = FACTORS; j < m->n_in; j++)
        if (rt_step_reads(m, j)) return false;
    for (int k = 1; k < m->n_out; k++)
        if (rt_step_writes(m, k) && rt_uses(p, m->out_value[k])) return false;
    return rt_step_writes(m, 0) && rt_has_one_use(p, m->out_value[0]);
}

static bool is_kept(const rt_plan *p, const rt_step *m, int j)
{
    return rt_step_reads(m, j) && !rt_is_storage(p, m->in_value[j]) && !m->in[j].packed && m->in[j].as == IR_NO_DTYPE;
}

/* Returns the step that computes the gradient of update s and can be a part of it; NULL: none. */
static rt_step *find_gradient(const rt_plan *p, const rt_step *s)
{
    const int grad = k_update_gradient(s->op);
    rt_step *m = rt_def(p, s->in_value[grad]);
    if (!m || !is_product(p, m) || s->in_value[grad] != m->out_value[0]) return NULL;
    if (!rt_same_view(&s->in[0], &m->out[0])) return NULL;
    if (!is_kept(p, m, 0) || !is_kept(p, m, 1)) return NULL;
    if (k_bytes(&m->in[0]) + k_bytes(&m->in[1]) >= k_bytes(&m->out[0])) return NULL;
    k_args args = rt_step_args(p, m);
    k_view out[] = {m->out[0], {.dtype = IR_NO_DTYPE}};
    out[0].data = rt_placeholder;
    args.out = out;
    return p->backend->joins_update(&args) ? m : NULL;
}

static bool join(rt_plan *p, rt_step *m, rt_step *s)
{
    static const int slots[FACTORS] = {K_SLOT(update, a), K_SLOT(update, b)};
    const ir_op_info *update = ir_op_get(s->op), *gradient = ir_op_get(m->op);
    ir_attr *attr = rt_plan_alloc(p, (size_t)(update->n_attr + 1 + gradient->n_attr), sizeof *attr);
    if (!attr) return false;
    for (int i = 0; i < update->n_attr; i++) attr[i] = s->attr[i];
    attr[update->n_attr].i = m->op;
    for (int i = 0; i < gradient->n_attr; i++) attr[update->n_attr + 1 + i] = m->attr[i];
    s->attr = attr;
    s->kernel = p->backend->grad_update;
    rt_step_read(p, s, k_update_gradient(s->op), RT_NO_VALUE);
    for (int j = 0; j < FACTORS; j++) {
        if (!rt_step_read_extra(p, s, slots[j], m->in_value[j])) return false;
        s->in[k_extra_in_at(s->op, s->listed, slots[j])] = m->in[j];
    }
    rt_step_remove(p, m);
    return true;
}

ampc_status rt_stage_join_gradients(rt_plan *p, diag *d)
{
    (void)d;
    if (!p->backend->grad_update || p->nested || p->observed) return AMPC_OK;
    for (int i = rt_plan_safe_from(p); i < p->n_steps; i++) {
        rt_step *s = p->steps[i];
        rt_step *m = s->kind == RT_STEP_OP && k_updates(s->op) ? find_gradient(p, s) : NULL;
        if (m && !join(p, m, s)) return AMPC_NO_MEMORY;
    }
    return AMPC_OK;
}
