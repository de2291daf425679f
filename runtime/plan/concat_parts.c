/* concat_parts.c - chooses operands of a concat that are computed where the concat would copy them.
 *
 *     %y = matmul ..                %y at 64+64        a part of the buffer of %c at 64
 *     %c = concat %x, %y     ->     %c                 copies %x
 *
 * The parts must be contiguous: the concat is along the outermost dimension of more than one element. An operand may
 * have other readers, since nothing overwrites it while the whole is needed, and a whole may be a part of another one.
 * The mark of a part is 1 + the position of the concat. */
#include "kernels/walk.h"
#include "runtime/plan/concat_parts.h"

enum {
    NEAR = 8, /* steps */
    FEW =
        4 /* A part that is defined earlier than that, and smaller than one of so many, would block too much memory. */
};

static bool is_concat(const rt_step *s) { return s->kind == RT_STEP_OP && s->op == IR_OP_concat; }

/* The bytes that operand j fills in the result. */
static int64_t part_bytes(const rt_step *s, int j)
{
    return k_count(&s->in[j]) * (int64_t)ir_dtype_size(s->out[0].dtype);
}

/* Whether the value has memory of its own in the arena. */
static bool is_own(const rt_plan *p, uint32_t value)
{
    const rt_value *v = &p->values[value];
    return v->def && !v->def->hoisted && !v->store && rt_root(p, value) == value && k_count(&v->view) > 0;
}

/* `at`: the distance of the operand from the beginning of the result, in bytes. */
static bool can_place(const rt_plan *p, const rt_step *s, int j, uint32_t whole, int64_t at)
{
    const uint32_t value = rt_step_reads(s, j) && !s->in[j].strides ? rt_root(p, s->in_value[j]) : RT_NO_VALUE;
    if (value == RT_NO_VALUE || value == whole || p->values[value].mark || !is_own(p, value)) return false;
    const rt_step *def = p->values[value].def;
    const bool is_near = s->index - def->index <= NEAR;
    return (is_near || k_count(&s->in[j]) * FEW >= k_count(&s->out[0])) && def->index < s->index &&
           at % p->backend->alignment == 0;
}

void rt_concat_find_parts(rt_plan *p)
{
    for (int i = 0; i < p->n_steps && !p->observed; i++) {
        const rt_step *s = p->steps[i];
        const int axis = is_concat(s) ? k_axis_number(s->attr[IR_ATTR(concat, axis)].i, s->out[0].rank) : -1;
        if (axis < 0 || !rt_step_writes(s, 0) || k_axis_of(&s->out[0], axis).outer != 1) continue;
        const uint32_t whole = rt_root(p, s->out_value[0]);
        rt_value *w = &p->values[whole];
        if (!is_own(p, whole) || w->last_use < 0) continue;
        int64_t at = 0;
        for (int j = 0; j < s->n_in; at += part_bytes(s, j++)) {
            if (!can_place(p, s, j, whole, at)) continue;
            rt_value *v = &p->values[rt_root(p, s->in_value[j])];
            v->mark = i + 1;
            v->part_at = at;
            if (v->last_use > w->last_use) w->last_use = v->last_use;
        }
    }
}

uint32_t rt_concat_whole(const rt_plan *p, uint32_t value, int64_t *at)
{
    *at = 0;
    while (p->values[value].mark) {
        *at += p->values[value].part_at;
        value = rt_root(p, p->steps[p->values[value].mark - 1]->out_value[0]);
    }
    return value;
}

/* Whether operand j of a concat is in its place, at that distance from the beginning of the result. */
static bool is_placed(const rt_plan *p, const rt_step *s, int j, int64_t at)
{
    if (s->in[j].strides || s->in_buffer[j] == RT_NO_BUFFER || s->out_buffer[0] == RT_NO_BUFFER) return false;
    const rt_buffer *x = &p->buffers[s->in_buffer[j]], *y = &p->buffers[s->out_buffer[0]];
    return x->is_part && x->whole == (y->is_part ? y->whole : s->out_buffer[0]) && x->at - y->at == at;
}

int64_t rt_concat_bytes(const rt_plan *p, const rt_step *s)
{
    int64_t bytes = 0, at = 0;
    if (!is_concat(s)) return -1;
    for (int j = 0; j < s->n_in; at += part_bytes(s, j++))
        if (s->in_value[j] != RT_NO_VALUE && !is_placed(p, s, j, at)) bytes += (int64_t)k_bytes(&s->in[j]);
    return bytes;
}
