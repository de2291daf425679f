/* join_losses.c - computes a loss where its gradient is computed.
 *
 *     before    %loss, %lse = softmax_cross_entropy %x, %label
 *               %dx = softmax_cross_entropy_grad %d, %x, %lse, %label
 *     after     %dx, %loss = softmax_cross_entropy_grad %d, %x, _, %label
 *
 * The scores are read once and, unless something else reads them, overwritten by the gradient. They are the largest
 * value of many language models. The step has the place of the gradient, so all readers of the loss must follow it. */
#include "kernels/loss.h"
#include "runtime/plan/stages.h"

/* Whether both operands are the same value, seen alike. */
static bool is_same(const rt_step *a, int i, const rt_step *b, int j)
{
    if (!rt_step_reads(a, i) || !rt_step_reads(b, j)) return rt_step_reads(a, i) == rt_step_reads(b, j);
    return a->in_value[i] == b->in_value[j] && rt_same_view(&a->in[i], &b->in[j]);
}

static bool is_same_loss(const rt_step *loss, const rt_step *grad)
{
#define SAME(slot) is_same(loss, IR_IN(softmax_cross_entropy, slot), grad, IR_IN(softmax_cross_entropy_grad, slot))
    if (!SAME(x) || !SAME(label) || !SAME(weight)) return false;
#undef SAME
#define SAME(name) \
    (loss->attr[IR_ATTR(softmax_cross_entropy, name)].i == grad->attr[IR_ATTR(softmax_cross_entropy_grad, name)].i)
    return SAME(ignore_index) && SAME(reduction) && SAME(classes);
#undef SAME
}

static bool is_read(const rt_plan *p, const rt_step *s, int k)
{
    return rt_step_writes(s, k) && rt_uses(p, s->out_value[k]);
}

/* Whether all readers of the loss follow the step. */
static bool is_read_after(const rt_plan *p, uint32_t loss, const rt_step *s)
{
    for (const rt_use *u = rt_uses(p, loss); u; u = u->next)
        if (u->step && u->step->index <= s->index) return false;
    return true;
}

/* Returns the loss that step s, its gradient, can compute; NULL: none. */
static rt_step *find_loss(const rt_plan *p, const rt_step *s)
{
    rt_step *loss = rt_def(p, s->in_value[IR_IN(softmax_cross_entropy_grad, lse)]);
    if (!loss || !k_is_loss(loss->op) || loss->hoisted != s->hoisted) return NULL;
    if (!rt_has_one_use(p, loss->out_value[IR_OUT(softmax_cross_entropy, lse)])) return NULL;
    if (is_read(p, loss, IR_OUT(softmax_cross_entropy, log_prob)) || !is_same_loss(loss, s)) return NULL;
    return is_read_after(p, loss->out_value[IR_OUT(softmax_cross_entropy, loss)], s) ? loss : NULL;
}

ampc_status rt_stage_join_losses(rt_plan *p, diag *d)
{
    (void)d;
    for (int i = 0; i < p->n_steps; i++) {
        rt_step *s = p->steps[i];
        rt_step *loss = s->kind == RT_STEP_OP && k_computes_loss(s->op) ? find_loss(p, s) : NULL;
        if (!loss) continue;
        const uint32_t value = loss->out_value[IR_OUT(softmax_cross_entropy, loss)];
        s->node = loss->node; /* which a label out of range is blamed on */
        rt_step_remove(p, loss);
        rt_step_read(p, s, IR_IN(softmax_cross_entropy_grad, lse), RT_NO_VALUE);
        if (!rt_step_write_extra(p, s, K_SLOT(loss, loss), value)) return AMPC_NO_MEMORY;
    }
    return AMPC_OK;
}
