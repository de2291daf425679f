/* plan_read.c - queries that sessions make: names, kernel arguments and addresses. */
#include "runtime/plan/plan.h"

#include <assert.h>

const char *rt_step_name(const rt_step *s)
{
    return s->kind == RT_STEP_FUSED ? "program" : s->kind == RT_STEP_PACK ? "pack" : ir_op_get(s->op)->name;
}

k_args rt_step_args(const rt_plan *p, const rt_step *s)
{
    return (k_args){.op = s->op,
                    .in = s->in,
                    .out = s->out,
                    .n_in = s->n_in,
                    .n_out = s->n_out,
                    .attr = s->attr,
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

void *rt_plan_address(const rt_plan *p, int buffer, char *base, void *const *storage, void *const *inputs)
{
    if (buffer == RT_NO_BUFFER) return NULL;
    const rt_buffer *b = &p->buffers[buffer];
    if (b->bytes == 0) return rt_placeholder;
    switch (b->home) {
    case RT_ARENA: return base + b->offset;
    case RT_PERSISTENT: return (char *)p->persistent_block + b->offset;
    case RT_STORAGE: return storage[b->index];
    case RT_INPUT: return inputs[b->index];
    case RT_CARRIED: return p->carried[b->index].data;
    case RT_PACK: return p->packs[b->index].shared ? p->packs[b->index].shared->memory : NULL;
    }
    assert(!"no such home"); /* stages set only these homes */
    return NULL;
}
