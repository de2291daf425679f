/* batch_launches.c - batches steps that a discrete device runs in one launch, such as the updates of all parameters.
 *
 * cluster_batchable runs before values have buffers. It looks for adjacent steps that are batchable and independent of
 * each other, and makes those that agree neighbours, because updates of parameters with and without a low-precision
 * copy alternate in a graph.
 *
 * batch_launches makes batches of such neighbours. The steps of a batch run in no particular order, so none may read or
 * write what another one writes. This depends on buffer offsets, because a step may reuse memory that another one
 * frees. */
#include "runtime/plan/stages.h"

/* ---- what may share a launch ---------------------------------------------------------------------- */

/* Whether operand i, if it is a scalar, is the same value in both steps. */
static bool same_number(const rt_plan *p, const rt_step *a, const rt_step *b, int i)
{
    const uint32_t x = a->in_value[i], y = b->in_value[i];
    if (x == RT_NO_VALUE || y == RT_NO_VALUE) return x == y;
    return (a->in[i].rank > 0 && b->in[i].rank > 0) || rt_root(p, x) == rt_root(p, y);
}

/* Whether both steps have the same op, attributes, types and scalar operands, including operands beyond the op's
 * slots. */
static bool agree(const rt_plan *p, const rt_step *a, const rt_step *b)
{
    if (a->op != b->op || a->n_in != b->n_in || a->n_out != b->n_out || a->fused || b->fused) return false;
    if (a->kernel != b->kernel || a->kernel == &rt_idle_kernel) return false;
    const ir_op_info *info = ir_op_get(a->op);
    if (a->workspace != RT_NO_BUFFER || b->workspace != RT_NO_BUFFER) return false;
    for (int i = 0; i < info->n_attr; i++)
        if (!ir_attr_equal(info->attr[i].kind, &a->attr[i], &b->attr[i])) return false;
    for (int i = 0; i < a->n_in; i++)
        if (a->in[i].dtype != b->in[i].dtype || !same_number(p, a, b, i)) return false;
    for (int i = 0; i < a->n_out; i++)
        if (a->out[i].dtype != b->out[i].dtype) return false;
    return true;
}

/* ---- clustering ------------------------------------------------------------------------------------------ */

/* Whether the step was in [first, end) when the stage began. */
static bool is_between(const rt_step *s, int first, int end) { return s && s->index >= first && s->index < end; }

static bool is_read_between(const rt_plan *p, uint32_t value, int first, int end)
{
    for (const rt_use *u = rt_uses(p, value); u; u = u->next)
        if (is_between(u->step, first, end)) return true;
    return false;
}

/* Whether a step in [first, end) computes the value or, if it is storage, the value committed to it. */
static bool is_made_between(const rt_plan *p, uint32_t value, int first, int end)
{
    const rt_effect *store = rt_is_storage(p, value) ? p->values[rt_root(p, value)].store : NULL;
    return is_between(rt_def(p, value), first, end) || (store && is_between(rt_def(p, store->value), first, end));
}

/* Whether the value is committed to storage that a step in [first, end) reads. */
static bool replaces_between(const rt_plan *p, uint32_t value, int first, int end)
{
    for (const rt_use *u = rt_uses(p, value); u; u = u->next) {
        const uint32_t state = u->step ? RT_NO_VALUE : p->effects[u->slot].state;
        if (state != RT_NO_VALUE && is_read_between(p, state, first, end)) return true;
    }
    return false;
}

/* Whether the step neither reads results of the steps in [first, s->index) nor replaces their operands. */
static bool is_independent(const rt_plan *p, const rt_step *s, int first)
{
    for (int j = 0; j < s->n_in; j++)
        if (rt_step_reads(s, j) && is_made_between(p, s->in_value[j], first, s->index)) return false;
    for (int k = 0; k < s->n_out; k++)
        if (rt_step_writes(s, k) && replaces_between(p, s->out_value[k], first, s->index)) return false;
    return true;
}

/* Moves each step of [first, end) after the last earlier step that it agrees with. */
static void order(rt_plan *p, int first, int end)
{
    const rt_step *before = p->steps[first]->prev;
    for (int i = first + 1; i < end; i++) {
        rt_step *s = p->steps[i], *to = s->prev;
        while (to != before && !agree(p, to, s)) to = to->prev;
        if (to != before && to != s->prev) rt_step_move_after(p, s, to);
    }
}

ampc_status rt_stage_cluster_batchable(rt_plan *p, diag *d)
{
    (void)d;
    for (int first = 0, end; first < p->n_steps; first = end) {
        const rt_step *s = p->steps[first];
        end = first + 1;
        while (end < p->n_steps && s->kernel->run_batch && p->steps[end]->kernel->run_batch &&
               p->steps[end]->node->phase == s->node->phase && is_independent(p, p->steps[end], first))
            end++;
        order(p, first, end);
    }
    return AMPC_OK;
}

/* ---- batches ------------------------------------------------------------------------------------------- */

static bool overlap(const rt_plan *p, int i, int j)
{
    if (i == RT_NO_BUFFER || j == RT_NO_BUFFER) return false;
    const rt_buffer *a = &p->buffers[i], *b = &p->buffers[j];
    if (a->home != b->home) return false;
    if (a->home == RT_STORAGE || a->home == RT_INPUT) return a->index == b->index;
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Whether a result of `writer` shares memory with an operand or result of `other`. */
static bool conflicts(const rt_plan *p, const rt_step *writer, const rt_step *other)
{
    for (int k = 0; k < writer->n_out; k++) {
        for (int j = 0; j < other->n_in; j++)
            if (overlap(p, writer->out_buffer[k], other->in_buffer[j])) return true;
        for (int j = 0; j < other->n_out; j++)
            if (overlap(p, writer->out_buffer[k], other->out_buffer[j])) return true;
    }
    return false;
}

/* Whether step `next` may run in one launch with the steps in [first, next). */
static bool can_batch(const rt_plan *p, int first, int next)
{
    if (!agree(p, p->steps[first], p->steps[next])) return false;
    for (int i = first; i < next; i++)
        if (conflicts(p, p->steps[i], p->steps[next]) || conflicts(p, p->steps[next], p->steps[i])) return false;
    return true;
}

static void note_launch(rt_plan *p, int first, int n)
{
    int views = 0;
    for (int i = 0; i < n; i++) views += rt_step_views(p->steps[first + i]);
    if (n > p->max_batch) p->max_batch = n;
    if (views > p->max_views) p->max_views = views;
}

ampc_status rt_stage_batch_launches(rt_plan *p, diag *d)
{
    (void)d;
    for (int i = 0; i < p->n_steps; i += p->steps[i]->batch) {
        int n = 1;
        while (n < p->steps[i]->kernel->max_batch && i + n < p->n_steps && can_batch(p, i, i + n)) n++;
        p->steps[i]->batch = n;
        note_launch(p, i, n);
    }
    return AMPC_OK;
}
