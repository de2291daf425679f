/* plan_memory.c - which buffer each value of a plan lives in, and where the buffers lie in the arena.
 *
 * Placing walks the steps once, when the last use of every value is known: a result goes into the storage that it
 * will be committed to, else over an operand that dies here, else into a new buffer. Packing takes the buffers by
 * falling size and puts each into the smallest gap between those already placed that live at the same time. */
#include "runtime/alloc.h"
#include "runtime/plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static bool has_trait(const ir_node *n, unsigned trait)
{
    return (ir_op_get(n->op)->traits & trait) != 0;
}

static rt_value *root_of(const rt_plan *p, const ir_value *v)
{
    return &p->values[p->values[v->id].root];
}

static bool is_result(const rt_value *v) { return v->value->kind == IR_VALUE_RESULT; }

/* ---- uses ------------------------------------------------------------------------------------ */

static void find_roots(rt_plan *p)
{
    for (uint32_t i = 0; i < p->graph->value_ids; i++) {
        p->values[i].root = i;
        p->values[i].buffer = RT_NO_BUFFER;
        p->values[i].last_use = -1;
    }
    for (const ir_node *n = p->graph->first; n; n = n->next)
        if (has_trait(n, IR_VIEW))
            p->values[n->out[0]->id].root = p->values[n->in[0].value->id].root;
}

/* Outputs and commits keep results until the end. Of storage and inputs they see the value before the first step. */
static void use_by_effect(rt_plan *p, const ir_node *n)
{
    bool is_store = n->op == IR_OP_store;
    const ir_value *read = n->in[is_store ? IR_IN(store, value) : IR_IN(output, x)].value;
    rt_value *root = root_of(p, read);
    if (is_result(root)) root->last_use = p->n_steps;
    if (!is_store) {
        root->is_output = true;
        return;
    }
    p->values[n->in[IR_IN(store, state)].value->id].store = n;
    if (is_result(root) && !root->store) root->store = n;
}

static void find_uses(rt_plan *p)
{
    for (int i = 0; i < p->n_steps; i++)
        for (int j = 0; j < p->steps[i].node->n_in; j++)
            if (p->steps[i].node->in[j].value)
                root_of(p, p->steps[i].node->in[j].value)->last_use = i;
    for (const ir_node *n = p->graph->first; n; n = n->next)
        if (has_trait(n, IR_EFFECT)) use_by_effect(p, n);
}

/* ---- placing --------------------------------------------------------------------------------- */

static bool cannot_fail(const ir_node *n)
{
    return n->phase == IR_UPDATE &&
           (has_trait(n, IR_INPLACE) || ir_op_get(n->op)->colour == IR_KEEP);
}

static void place_outside(rt_plan *p)
{
    for (uint32_t i = 0; i < p->graph->value_ids; i++) {
        rt_value *v = &p->values[i];
        if (!v->value || v->value->kind != IR_VALUE_STORAGE) continue;
        v->buffer = rt_plan_add_buffer(p, (rt_buffer){.home = RT_STORAGE,
                                                      .index = v->value->storage->id,
                                                      .bytes = (int64_t)k_bytes(&v->view)});
    }
    for (size_t i = 0; i < p->graph->inputs.count; i++) {
        rt_value *v = &p->values[p->graph->inputs.items[i]->id];
        v->buffer = rt_plan_add_buffer(p, (rt_buffer){.home = RT_INPUT,
                                                      .index = (uint32_t)i,
                                                      .bytes = (int64_t)k_bytes(&v->view)});
    }
}

static bool same_type(const k_view *a, const k_view *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) == 0;
}

/* Result k may be written over everything that the step reads in the buffer (see INPLACE in ir/ops.def). */
static bool may_overwrite(const rt_step *s, int k, int buffer)
{
    if (!has_trait(s->node, IR_INPLACE)) return false;
    for (int j = 0; j < s->node->n_in; j++) {
        if (s->in_buffer[j] != buffer) continue;
        if (!same_type(&s->in[j], &s->out[k]) || (s->node->n_out > 1 && j != k)) return false;
    }
    return true;
}

/* The storage that the result is committed to, if it may be computed there. */
static int storage_for(const rt_plan *p, int step, int k)
{
    const rt_step *s = &p->steps[step];
    const rt_value *result = &p->values[s->node->out[k]->id];
    const rt_away *away = p->backend->away;
    if (!result->store || result->is_output || step < p->safe_from) return RT_NO_BUFFER;
    if (away && !away->commits(s->node->op)) return RT_NO_BUFFER;
    const rt_value *old = &p->values[result->store->in[IR_IN(store, state)].value->id];
    bool free = old->last_use < step || (old->last_use == step && may_overwrite(s, k, old->buffer));
    return free ? old->buffer : RT_NO_BUFFER;
}

/* The buffer of an operand that nobody reads after this step, if the result may take it. */
static int operand_for(const rt_plan *p, int step, int k)
{
    const rt_step *s = &p->steps[step];
    for (int j = 0; j < s->node->n_in; j++) {
        int buffer = s->in_buffer[j];
        if (buffer == RT_NO_BUFFER || p->buffers[buffer].home != RT_ARENA ||
            p->buffers[buffer].last != step)
            continue;
        if (same_type(&s->in[j], &s->out[k]) && may_overwrite(s, k, buffer)) return buffer;
    }
    return RT_NO_BUFFER;
}

static void place_result(rt_plan *p, int step, int k)
{
    rt_step *s = &p->steps[step];
    rt_value *v = &p->values[s->node->out[k]->id];
    if (!v->value || v->last_use < 0) return;
    v->buffer = storage_for(p, step, k);
    if (v->buffer == RT_NO_BUFFER) v->buffer = operand_for(p, step, k);
    if (v->buffer == RT_NO_BUFFER)
        v->buffer = rt_plan_add_buffer(
            p, (rt_buffer){.home = RT_ARENA, .bytes = (int64_t)k_bytes(&v->view), .first = step});
    p->buffers[v->buffer].last = v->last_use;
    s->out_buffer[k] = v->buffer;
}

static void place_step(rt_plan *p, int step)
{
    rt_step *s = &p->steps[step];
    for (int j = 0; j < s->node->n_in; j++)
        if (s->node->in[j].value) s->in_buffer[j] = root_of(p, s->node->in[j].value)->buffer;
    for (int k = 0; k < s->node->n_out; k++) place_result(p, step, k);
}

/* A copy of the value as it is before the first step, kept to the end. */
static int snapshot(rt_plan *p, const rt_value *v)
{
    int to = rt_plan_add_buffer(p, (rt_buffer){.home = RT_ARENA,
                                               .bytes = (int64_t)k_bytes(&v->view),
                                               .first = -1,
                                               .last = p->n_steps});
    p->before[p->n_before++] = (rt_copy){v->buffer, to};
    return to;
}

static void place_output(rt_plan *p, const ir_node *n)
{
    const ir_value *read = n->in[IR_IN(output, x)].value;
    const rt_value *root = root_of(p, read);
    p->outputs[p->n_outputs++] = (rt_output){.name = n->attr[IR_ATTR(output, name)].s,
                                             .value = read->id,
                                             .buffer = is_result(root) ? root->buffer
                                                                       : snapshot(p, root)};
}

static void place_store(rt_plan *p, const ir_node *n)
{
    const rt_value *root = root_of(p, n->in[IR_IN(store, value)].value);
    int to = p->values[n->in[IR_IN(store, state)].value->id].buffer;
    if (root->buffer == to) return;
    bool changes = root->value->kind == IR_VALUE_STORAGE && root->store;
    p->after[p->n_after++] = (rt_copy){changes ? snapshot(p, root) : root->buffer, to};
}

void rt_plan_place(rt_plan *p)
{
    find_roots(p);
    find_uses(p);
    p->safe_from = p->n_steps;
    while (p->safe_from > 0 && cannot_fail(p->steps[p->safe_from - 1].node)) p->safe_from--;
    place_outside(p);
    for (int i = 0; i < p->n_steps; i++) place_step(p, i);
    for (const ir_node *n = p->graph->first; n; n = n->next) {
        if (n->op == IR_OP_output) place_output(p, n);
        if (n->op == IR_OP_store) place_store(p, n);
    }
}

/* ---- packing --------------------------------------------------------------------------------- */

static int64_t rounded(const rt_plan *p, int64_t bytes)
{
    return (bytes + p->backend->alignment - 1) & -p->backend->alignment;
}

static int compare(const void *a, const void *b)
{
    const rt_buffer *x = *(const rt_buffer *const *)a, *y = *(const rt_buffer *const *)b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* The best place for b among those placed, which are in order of their offsets. */
static int64_t find_gap(const rt_plan *p, const rt_buffer *b, rt_buffer *const *placed, int n)
{
    int64_t end = 0, best = -1, best_size = INT64_MAX, size = rounded(p, b->bytes);
    for (int i = 0; i < n; i++) {
        const rt_buffer *other = placed[i];
        if (other->last < b->first || b->last < other->first) continue;
        int64_t gap = other->offset - end;
        if (gap >= size && gap < best_size) {
            best = end;
            best_size = gap;
        }
        if (other->offset + rounded(p, other->bytes) > end)
            end = other->offset + rounded(p, other->bytes);
    }
    return best >= 0 ? best : end;
}

static void insert(rt_buffer **placed, int n, rt_buffer *b)
{
    int at = n;
    while (at > 0 && placed[at - 1]->offset > b->offset) at--;
    memmove(&placed[at + 1], &placed[at], (size_t)(n - at) * sizeof *placed);
    placed[at] = b;
}

bool rt_plan_pack(rt_plan *p)
{
    rt_buffer **order = rt_alloc((size_t)p->n_buffers * 2 + 1, sizeof(rt_buffer *));
    if (!order) return false;
    rt_buffer **placed = order + p->n_buffers;
    int n = 0;
    for (int i = 0; i < p->n_buffers; i++)
        if (p->buffers[i].home == RT_ARENA && p->buffers[i].bytes > 0) order[n++] = &p->buffers[i];
    qsort(order, (size_t)n, sizeof *order, compare);
    for (int i = 0; i < n; i++) {
        order[i]->offset = find_gap(p, order[i], placed, i);
        insert(placed, i, order[i]);
        int64_t end = order[i]->offset + rounded(p, order[i]->bytes);
        if (end > p->arena_bytes) p->arena_bytes = end;
    }
    rt_free(order);
    return true;
}
