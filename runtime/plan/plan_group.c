/* plan_group.c - which steps an away device runs in one call, such as the updates of all parameters.
 *
 * Before values are placed, neighbouring steps of ops that may run together, none of which needs another, are ordered
 * by what agrees: parameters with a low copy and those without alternate in a graph.
 *
 * Afterwards neighbours are grouped. Steps that run together have no order among themselves: what one of them writes,
 * no other may touch. That is seen from the places of their buffers, since memory that one step gives up may be what
 * the next one takes. */
#include "runtime/backend/alloc.h"
#include "runtime/plan/plan.h"

#include <string.h>

/* ---- what may run together ------------------------------------------------------------------------ */

static int most_together(const rt_plan *p, const rt_step *s)
{
    return p->backend->away && !s->program ? p->backend->away->together(s->op) : 1;
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

/* Operand i is the same for both, if it is a number. */
static bool same_number(const rt_plan *p, const rt_step *a, const rt_step *b, int i)
{
    const uint32_t x = a->in_value[i], y = b->in_value[i];
    if (x == RT_NO_VALUE || y == RT_NO_VALUE) return x == y;
    return (a->in[i].rank > 0 && b->in[i].rank > 0) || p->values[x].root == p->values[y].root;
}

/* The same op with the same attributes, types and operands without dimensions, beyond the slots of the op, too. */
static bool agree(const rt_plan *p, const rt_step *a, const rt_step *b)
{
    if (a->op != b->op || a->n_in != b->n_in || a->n_out != b->n_out || a->program || b->program) return false;
    if (a->kernel != b->kernel || a->kernel == &rt_idle_kernel) return false;
    const ir_op_info *info = ir_op_get(a->op);
    if (a->workspace != RT_NO_BUFFER || b->workspace != RT_NO_BUFFER) return false;
    for (int i = 0; i < info->n_attr; i++)
        if (!same_attr(info->attr[i].kind, &a->attr[i], &b->attr[i])) return false;
    for (int i = 0; i < a->n_in; i++)
        if (a->in[i].dtype != b->in[i].dtype || !same_number(p, a, b, i)) return false;
    for (int i = 0; i < a->n_out; i++)
        if (a->out[i].dtype != b->out[i].dtype) return false;
    return true;
}

/* ---- neighbours in order ----------------------------------------------------------------------------- */

/* The run at hand is steps [first, end); the marks of an earlier one do not count. */
typedef struct gatherer {
    rt_plan *p;
    uint32_t *target;  /* by root value: the storage that it is committed to, or its own id */
    int *read, *made;  /* by root value: 1 + the last step that reads it; that makes it or what is committed to it */
    int first, end;
} gatherer;

/* What the step reads is not made in the run, and what it replaces is not read there. */
static bool is_independent(const gatherer *g, const rt_step *s)
{
    for (int j = 0; j < s->n_in; j++)
        if (s->in_value[j] != RT_NO_VALUE && g->made[g->p->values[s->in_value[j]].root] > g->first) return false;
    for (int k = 0; k < s->n_out; k++)
        if (s->out_value[k] != RT_NO_VALUE && g->read[g->target[g->p->values[s->out_value[k]].root]] > g->first)
            return false;
    return true;
}

static void extend(gatherer *g)
{
    const int mark = g->end + 1;
    const rt_step *s = &g->p->steps[g->end++];
    for (int j = 0; j < s->n_in; j++)
        if (s->in_value[j] != RT_NO_VALUE) g->read[g->p->values[s->in_value[j]].root] = mark;
    for (int k = 0; k < s->n_out; k++) {
        if (s->out_value[k] == RT_NO_VALUE) continue;
        const uint32_t root = g->p->values[s->out_value[k]].root;
        g->made[root] = g->made[g->target[root]] = mark;
    }
}

/* Each step goes behind the last one before it that it agrees with. */
static void order(const gatherer *g)
{
    rt_step *s = g->p->steps;
    for (int i = g->first + 1; i < g->end; i++) {
        int to = i;
        while (to > g->first && !agree(g->p, &s[to - 1], &s[i])) to--;
        if (to == g->first || to == i) continue;
        const rt_step moved = s[i];
        memmove(&s[to + 1], &s[to], (size_t)(i - to) * sizeof *s);
        s[to] = moved;
    }
}

static void gather(gatherer *g)
{
    rt_plan *p = g->p;
    for (uint32_t v = 0; v < p->n_values; v++) g->target[v] = v;
    for (int i = 0; i < p->n_effects; i++) {
        const rt_effect *e = &p->effects[i];
        if (e->node->op == IR_OP_store)
            g->target[p->values[e->value].root] = e->node->in[IR_IN(store, state)].value->id;
    }
    for (g->first = 0; g->first < p->n_steps; g->first = g->end) {
        const rt_step *s = &p->steps[g->first];
        g->end = g->first;
        extend(g);
        while (g->end < p->n_steps && most_together(p, s) > 1 && most_together(p, &p->steps[g->end]) > 1 &&
               p->steps[g->end].node->phase == s->node->phase && is_independent(g, &p->steps[g->end]))
            extend(g);
        order(g);
    }
}

bool rt_plan_gather(rt_plan *p)
{
    if (!p->backend->away) return true;
    gatherer g = {.p = p};
    g.target = rt_alloc(p->n_values, sizeof *g.target);
    g.read = rt_alloc(p->n_values, sizeof *g.read);
    g.made = rt_alloc(p->n_values, sizeof *g.made);
    const bool done = g.target && g.read && g.made;
    if (done) gather(&g);
    rt_free(g.target);
    rt_free(g.read);
    rt_free(g.made);
    return done;
}

/* ---- groups ------------------------------------------------------------------------------------------- */

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

/* Step `next` may run together with those from `first` up to it. */
static bool joins(const rt_plan *p, int first, int next)
{
    if (!agree(p, &p->steps[first], &p->steps[next])) return false;
    for (int i = first; i < next; i++)
        if (disturbs(p, &p->steps[i], &p->steps[next]) || disturbs(p, &p->steps[next], &p->steps[i])) return false;
    return true;
}

bool rt_plan_group(rt_plan *p)
{
    int largest = 1;
    for (int i = 0; i < p->n_steps; i += p->steps[i].together) {
        const int most = most_together(p, &p->steps[i]);
        int n = 1;
        while (n < most && i + n < p->n_steps && joins(p, i, i + n)) n++;
        p->steps[i].together = n;
        if (n > largest) largest = n;
    }
    p->calls = rt_plan_take(p, (size_t)largest, sizeof *p->calls);
    return p->calls != NULL;
}
