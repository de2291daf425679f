/* fuse_casts.c - fuses casts of weights and inputs into the matmuls that read them, if the device computes these in
 * another type anyway.
 *
 *     %h = cast @w : f16          matmul %x, @w as f16
 *     %y = matmul %x, %h
 *
 * A kernel that widens its low-precision operands to f32 (cpu_rounds) can as well read f32 and round, with the same
 * result, and the result of the cast needs no memory. This pays only if the operand of the cast is in memory in any
 * case, as storage and inputs are, and if the result of the cast has no other readers. */
#include "runtime/plan/stages.h"

static bool is_in_memory(const rt_plan *p, uint32_t value) { return rt_is_external(&p->values[rt_root(p, value)]); }

static bool is_rounding(const rt_plan *p, const rt_step *s)
{
    return rt_step_has(s, IR_CONVERTS) && s->in[0].dtype == IR_f32 && ir_dtype_is_low(s->out[0].dtype) &&
           is_in_memory(p, s->in_value[0]);
}

/* Whether every use is by a kernel that can round the operand while reading it. */
static bool all_round(const rt_plan *p, uint32_t value)
{
    for (const rt_use *u = rt_uses(p, value); u; u = u->next) {
        if (!u->step || u->step->in_value[u->slot] != value) return false;
        const k_args args = rt_step_args(p, u->step);
        if (!p->backend->rounds(&args, u->slot)) return false;
    }
    return rt_uses(p, value) != NULL;
}

static void round_while_reading(rt_plan *p, const rt_step *cast)
{
    for (const rt_use *u; (u = rt_uses(p, cast->out_value[0])) != NULL;) {
        rt_step *reader = u->step;
        const int slot = u->slot;
        rt_step_read(p, reader, slot, cast->in_value[0]);
        reader->in[slot].as = cast->out[0].dtype;
    }
}

ampc_status rt_stage_fuse_casts(rt_plan *p, diag *d)
{
    (void)d;
    for (int i = 0; i < p->n_steps && p->backend->rounds; i++) {
        rt_step *s = p->steps[i];
        if (!is_rounding(p, s) || !all_round(p, s->out_value[0])) continue;
        round_while_reading(p, s);
        rt_step_remove(p, s);
    }
    return AMPC_OK;
}
