/* transpose_casts.c - converts an image to NHWC and to its type in one step, on devices.
 *
 *     %c = cast @x             f32[N,3,H,W] -> f16        %t = program @x      .0 = cast @x : f16[N,H,W,3]
 *     %t = transpose %c        f16[N,H,W,3]         ->
 *
 * The fused kernel reads its operand in the order of the result, one element at a time. That suits images of few
 * channels, whose planes a warp reads side by side; other casts are left to the tiles of the transpose kernel. */
#include "runtime/plan/stages.h"

enum { MAX_CHANNELS = 8 };

/* Returns the cast whose result only the transpose reads; NULL: none. */
static rt_step *find_cast(const rt_plan *p, const rt_step *s)
{
    if (s->kind != RT_STEP_OP || s->op != IR_OP_transpose || s->out[0].rank < 2) return NULL;
    rt_step *cast = rt_def(p, s->in_value[0]);
    const bool few = s->out[0].dims[s->out[0].rank - 1] <= MAX_CHANNELS;
    if (!few || !cast || cast->kind != RT_STEP_OP || cast->op != IR_OP_cast || cast->hoisted || s->hoisted) return NULL;
    return rt_has_one_use(p, cast->out_value[0]) && rt_can_be_program(p, cast) ? cast : NULL;
}

static bool fuse(rt_plan *p, rt_step *cast, rt_step *s)
{
    const uint32_t value = s->out_value[0];
    const k_view view = s->out[0];
    const k_walk walk = k_walk_transpose(&s->in[0], &s->out[0], &s->attr[IR_ATTR(transpose, perm)]);
    rt_step *program = rt_make_program(p, cast);
    if (!program) return false;
    program->fused->operands[0].dense = false;
    program->fused->operands[0].walk = walk;
    rt_step_remove(p, s);
    rt_step_write(p, program, 0, value);
    program->out[0] = view;
    return true;
}

ampc_status rt_stage_transpose_casts(rt_plan *p, diag *d)
{
    (void)d;
    for (int i = 0; i < p->n_steps && p->backend->device_ops && p->backend->fused; i++) {
        rt_step *cast = find_cast(p, p->steps[i]);
        if (cast && !fuse(p, cast, p->steps[i])) return AMPC_NO_MEMORY;
    }
    return AMPC_OK;
}
