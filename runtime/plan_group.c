/* plan_group.c - which neighbouring steps an away device runs in one call, such as the updates of all parameters.
 *
 * Steps that run together have no order among themselves: what one of them writes, no other may touch. That is seen
 * from the places of their buffers, since memory that one step gives up may be what the next one takes. */
#include "runtime/plan.h"

#include <string.h>

static bool overlap(const rt_plan *p, int i, int j)
{
    if (i == RT_NO_BUFFER || j == RT_NO_BUFFER) return false;
    const rt_buffer *a = &p->buffers[i], *b = &p->buffers[j];
    if (a->home != b->home) return false;
    if (a->home == RT_STORAGE || a->home == RT_INPUT) return a->index == b->index;
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* A result of `writer` lies where `other` reads or writes. */
static bool disturbs(const rt_plan *p, const rt_step *writer, const rt_step *other)
{
    for (int k = 0; k < writer->n_out; k++) {
        for (int j = 0; j < other->n_in; j++)
            if (overlap(p, writer->out_buffer[k], other->in_buffer[j])) return true;
        for (int j = 0; j < other->n_out; j++)
            if (overlap(p, writer->out_buffer[k], other->out_buffer[j])) return true;
    }
    return false;
}

static bool same_attr(ir_slot_kind kind, const ir_attr *a, const ir_attr *b)
{
    switch (kind) {
    case IR_SLOT_INT:
    case IR_SLOT_BOOL: return a->i == b->i;
    case IR_SLOT_FLOAT: return a->f == b->f;
    case IR_SLOT_DTYPE: return a->dtype == b->dtype;
    case IR_SLOT_STR: return strcmp(a->s, b->s) == 0;
    default:
        return a->list.count == b->list.count &&
               (a->list.count == 0 ||
                memcmp(a->list.items, b->list.items, (size_t)a->list.count * sizeof *a->list.items) == 0);
    }
}

/* The same op with the same attributes, types and operands without dimensions. */
static bool agree(const rt_step *a, const rt_step *b)
{
    if (a->op != b->op || a->n_in != b->n_in || a->n_out != b->n_out || a->program || b->program) return false;
    const ir_op_info *info = ir_op_get(a->op);
    if (a->workspace != RT_NO_BUFFER || b->workspace != RT_NO_BUFFER) return false;
    for (int i = 0; i < info->n_attr; i++)
        if (!same_attr(info->attr[i].kind, &a->attr[i], &b->attr[i])) return false;
    for (int i = 0; i < a->n_in; i++) {
        bool number = a->in[i].rank == 0 || b->in[i].rank == 0;
        if (a->in[i].dtype != b->in[i].dtype || (number && a->in_buffer[i] != b->in_buffer[i])) return false;
    }
    for (int i = 0; i < a->n_out; i++)
        if (a->out[i].dtype != b->out[i].dtype) return false;
    return true;
}

/* Step `next` may run together with those from `first` up to it. */
static bool joins(const rt_plan *p, int first, int next)
{
    if (!agree(&p->steps[first], &p->steps[next])) return false;
    for (int i = first; i < next; i++)
        if (disturbs(p, &p->steps[i], &p->steps[next]) || disturbs(p, &p->steps[next], &p->steps[i])) return false;
    return true;
}

bool rt_plan_group(rt_plan *p)
{
    const rt_away *away = p->backend->away;
    int largest = 1;
    for (int i = 0; i < p->n_steps; i += p->steps[i].together) {
        int n = 1, most = away && !p->steps[i].program ? away->together(p->steps[i].op) : 1;
        while (n < most && i + n < p->n_steps && joins(p, i, i + n)) n++;
        p->steps[i].together = n;
        if (n > largest) largest = n;
    }
    p->calls = rt_plan_take(p, (size_t)largest, sizeof *p->calls);
    return p->calls != NULL;
}
