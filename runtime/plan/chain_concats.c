/* chain_concats.c - copies only what is new if a concat begins with an earlier one.
 *
 *     %a = concat %x, %y                %a = concat %x, %y                %b = concat %x, %y, ..
 *     %p = program %a            ->     %p = program %a            ->     %p = program %b        reads the part %a
 *     %b = concat %x, %y, %z            %b = concat %a, %z                %b' = concat _, %z     writes the rest
 *
 * Each layer of a dense block reads all layers before it. First, a concat that begins with the operands of an earlier
 * one reads the result of that instead. Then, if only programs read the earlier result, element by element, its memory
 * becomes the beginning of each row of the later one: the block, which is defined by the first concat of a chain and
 * completed by the others. An absent operand of a concat is in its place already; its view has its size. */
#include "kernels/walk.h"
#include "runtime/plan/stages.h"

static bool is_concat(const rt_step *s) { return s && s->kind == RT_STEP_OP && s->op == IR_OP_concat; }

static int axis_of(const rt_step *s) { return k_axis_number(s->attr[IR_ATTR(concat, axis)].i, s->out[0].rank); }

/* ---- chains ------------------------------------------------------------------------------------------ */

/* Whether the operands of `first` are the first ones of s, but not all, and are joined along the same axis. */
static bool begins_with(const rt_step *s, const rt_step *first)
{
    if (!is_concat(first) || first->n_in >= s->n_in || first->index >= s->index) return false;
    if (first->out[0].rank != s->out[0].rank || axis_of(first) != axis_of(s)) return false;
    for (int j = 0; j < first->n_in; j++)
        if (first->in_value[j] != s->in_value[j] || !rt_same_view(&first->in[j], &s->in[j])) return false;
    return true;
}

/* Returns the longest such step that has at least two operands, or NULL. */
static const rt_step *find_beginning(const rt_plan *p, const rt_step *s)
{
    const rt_step *best = NULL;
    for (const rt_use *u = rt_uses(p, s->in_value[0]); u && u->step; u = u->next) {
        if (u->slot != 0 || u->step->index < 0 || !begins_with(s, u->step)) continue;
        if (u->step->n_in > (best ? best->n_in : 1)) best = u->step;
    }
    return best;
}

/* Replaces the first n operands by the value, whose view is given. */
static void replace_beginning(rt_plan *p, rt_step *s, int n, uint32_t value, const k_view *view)
{
    const int left = s->n_in - n + 1;
    rt_step_redirect(p, s, 0, value);
    s->in[0] = *view;
    for (int j = 1; j < left; j++) {
        const k_view next = s->in[j + n - 1];
        rt_step_redirect(p, s, j, s->in_value[j + n - 1]);
        s->in[j] = next;
    }
    for (int j = left; j < s->n_in; j++) rt_step_read(p, s, j, RT_NO_VALUE);
    s->n_in = left;
}

/* ---- blocks ------------------------------------------------------------------------------------------ */

/* Returns the shape of v as rows along the axis: [outer, elements of a row]. */
static k_view rows_of(const k_view *v, int axis)
{
    const k_axis a = k_axis_of(v, axis);
    return (k_view){.dtype = v->dtype, .rank = 2, .dims = {a.outer, a.length * a.inner}};
}

/* Whether the step is a program that reads the operand element by element. */
static bool reads_elements(const rt_step *s, int slot)
{
    if (s->kind != RT_STEP_FUSED || k_count(&s->in[slot]) != s->fused->count) return false;
    for (int i = 0; i < s->fused->n_operands; i++)
        if (s->fused->operands[i].in == slot && !s->fused->operands[i].dense) return false;
    return true;
}

/* Returns the concat whose result the step begins with, if that result can be a part of the step's; else NULL. */
static rt_step *find_part(const rt_plan *p, const rt_step *s)
{
    rt_step *part = s->n_in > 1 ? rt_def(p, s->in_value[0]) : NULL;
    if (!is_concat(part) || part->hoisted || s->hoisted || !rt_step_reads(part, 0)) return NULL;
    if (part->out[0].rank != s->out[0].rank || axis_of(part) != axis_of(s)) return NULL;
    if (!rt_same_view(&part->out[0], &s->in[0]) || k_count(&part->out[0]) == 0) return NULL;
    for (const rt_use *u = rt_uses(p, part->out_value[0]); u; u = u->next)
        if (!u->step || (u->step == s ? u->slot != 0 : !reads_elements(u->step, u->slot))) return NULL;
    return part;
}

/* Lets a program read the part of the block that v was. */
static void read_part(rt_plan *p, rt_step *s, int slot, uint32_t block, const k_view *part, const k_view *whole,
                      int axis)
{
    const k_view rows = rows_of(part, axis), from = rows_of(whole, axis);
    const k_walk walk = k_walk_make(2, rows.dims, (int64_t[]){rows.dims[1], 1}, (int64_t[]){from.dims[1], 1});
    rt_step_redirect(p, s, slot, block);
    s->in[slot] = *whole;
    for (int i = 0; i < s->fused->n_operands; i++) {
        k_operand *o = &s->fused->operands[i];
        if (o->in == slot && rows.dims[0] > 1) *o = (k_operand){.in = slot, .walk = walk};
    }
}

/* Lets the result of `part`, which s begins with, be the beginning of the block. */
static bool join(rt_plan *p, rt_step *s, rt_step *part, uint32_t block)
{
    const k_view whole = s->out[0], before = s->in[0];
    const uint32_t old = part->out_value[0];
    const uint32_t view = rt_plan_new_view(p, block, block, &p->values[block].view);
    if (view == RT_NO_VALUE) return false;
    rt_step_write(p, s, 0, view); /* the first step defines the block, the others write to it */
    rt_step_write(p, part, 0, block);
    s->out[0] = part->out[0] = whole;
    rt_step_read(p, s, 0, RT_NO_VALUE); /* is there already */
    s->in[0] = before;
    s->in[0].dtype = IR_NO_DTYPE;
    for (const rt_use *u; (u = rt_uses(p, old)) != NULL;)
        read_part(p, u->step, u->slot, block, &before, &whole, axis_of(s));
    return true;
}

ampc_status rt_stage_chain_concats(rt_plan *p, diag *d)
{
    (void)d;
    for (int i = p->n_steps - 1; i >= 0; i--) { /* an earlier concat still has all its operands */
        rt_step *s = p->steps[i];
        const rt_step *first = is_concat(s) ? find_beginning(p, s) : NULL;
        if (first) replace_beginning(p, s, first->n_in, first->out_value[0], &first->out[0]);
    }
    for (int i = p->n_steps - 1; i >= 0; i--) {
        if (!is_concat(p->steps[i]) || !rt_step_reads(p->steps[i], 0)) continue;
        const uint32_t block = p->steps[i]->out_value[0];
        for (rt_step *s = p->steps[i], *part; (part = find_part(p, s)) != NULL; s = part)
            if (!join(p, s, part, block)) return AMPC_NO_MEMORY;
    }
    return AMPC_OK;
}
