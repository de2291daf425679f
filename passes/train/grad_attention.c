/* grad_attention.c - the gradient of attention, whose kernel computes the probabilities again from `lse`. */
#include "passes/train/grad.h"

/* The mask has no gradient: pass attention leaves masks that need one spelled out. */
bool grad_attention(grad *g)
{
    ir_value *lse = ir_out(g->n, IR_OUT(attention, lse));
    if (!D || g->dy[IR_OUT(attention, lse)]) {
        diag_error(g->b->diag, AMPC_UNSUPPORTED, ir_diag_loc(g->n), "no gradient through result lse");
        return false;
    }
    ir_value *in[] = {X,
                      ir_in(g->n, IR_IN(attention, k)),
                      ir_in(g->n, IR_IN(attention, v)),
                      ir_in(g->n, IR_IN(attention, mask)),
                      Y,
                      lse,
                      grad_cast_like(g, D, Y),
                      ir_in(g->n, IR_IN(attention, rng))};
    ir_node *n = grad_node(g, IR_OP_attention_grad, 8, in);
    if (!ir_done_all(g->b, n)) return false;
    for (int i = 0; i < 3; i++) g->dx[i] = n->out[i];
    return true;
}
