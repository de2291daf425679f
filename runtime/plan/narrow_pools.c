/* narrow_pools.c - indices of max pooling as numbers of taps, one byte each (kernels/pooling.h).
 *
 *     %y, %i = max_pool %x           : f16, i64       %y, %i = max_pool %x          : f16, u8
 *     %d = max_pool_grad %dy, %i                ->    %d = max_pool_grad %dy, %i
 *
 * Positions in the image, which ONNX defines, need four times as much memory as the result in f16. Without them, the
 * gradient needs the window, whose attributes follow its own. */
#include "kernels/pooling.h"
#include "runtime/plan/stages.h"

/* Whether only gradients of this pooling read its indices, and its window has few enough taps. */
static bool can_narrow(const rt_plan *p, const rt_step *s)
{
    const int at = IR_OUT(max_pool, indices);
    int64_t taps = 1;
    if (s->op != IR_OP_max_pool || s->kind != RT_STEP_OP || !rt_step_writes(s, at)) return false;
    const ir_attr *kernel = &s->attr[IR_ATTR(max_pool, kernel)];
    for (int i = 0; i < kernel->list.count; i++) taps *= kernel->list.items[i];
    for (const rt_use *u = rt_uses(p, s->out_value[at]); u; u = u->next) {
        if (!u->step || u->step->op != IR_OP_max_pool_grad || u->slot != IR_IN(max_pool_grad, indices)) return false;
        if (!rt_same_dims(&u->step->out[0], &s->in[0]) || !rt_same_dims(&u->step->in[u->slot], &s->out[0]))
            return false;
    }
    return taps <= POOL_MAX_TAPS;
}

/* Appends the attributes of the pooling to those of its gradient. */
static bool append_window(rt_plan *p, rt_step *gradient, const rt_step *s)
{
    const int own = ir_op_get(gradient->op)->n_attr, more = ir_op_get(s->op)->n_attr;
    ir_attr *attr = rt_plan_alloc(p, (size_t)(own + more), sizeof *attr);
    for (int i = 0; attr && i < own + more; i++) attr[i] = i < own ? gradient->attr[i] : s->attr[i - own];
    if (attr) gradient->attr = attr;
    return attr != NULL;
}

ampc_status rt_stage_narrow_pools(rt_plan *p, diag *d)
{
    (void)d;
    for (int i = 0; i < p->n_steps && p->backend->device_ops && !p->observed; i++) {
        const rt_step *s = p->steps[i];
        if (!can_narrow(p, s)) continue;
        const uint32_t indices = s->out_value[IR_OUT(max_pool, indices)];
        for (const rt_use *u = rt_uses(p, indices); u; u = u->next)
            if (!append_window(p, u->step, s)) return AMPC_NO_MEMORY;
        rt_plan_retype(p, indices, IR_u8);
    }
    return AMPC_OK;
}
