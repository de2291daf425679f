/* plan_read.c - queries that sessions make: names and kernel arguments. */
#include "ir/ops/formulas.h"
#include "runtime/plan/plan.h"

const char *rt_step_name(const rt_step *s)
{
    return s->kind == RT_STEP_FUSED ? "program" : s->kind == RT_STEP_PACK ? "pack" : ir_op_label(s->op, s->attr);
}

k_args rt_step_args(const rt_plan *p, const rt_step *s)
{
    return (k_args){.op = s->op,
                    .in = s->in,
                    .out = s->out,
                    .n_in = s->n_in,
                    .n_out = s->n_out,
                    .listed = s->listed,
                    .attr = s->attr,
                    .layout = &s->node->layout,
                    .fused = s->fused,
                    .state = s->state,
                    .step = s->index,
                    .node = s->node->loc.node,
                    .ctx = p->ctx};
}

static ampc_status do_nothing(const k_args *args)
{
    (void)args;
    return AMPC_OK;
}

const k_kernel rt_idle_kernel = {.run = do_nothing};

const ir_value *rt_plan_source(const ir_value *v)
{
    const ir_node *def = ir_def(v);
    for (; def && (ir_op_get(def->op)->traits & (IR_VIEW | IR_SIZES)); def = ir_def(v)) v = ir_in(def, 0);
    return v;
}

_Alignas(256) char rt_placeholder[256];
