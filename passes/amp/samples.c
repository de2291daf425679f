/* samples.c - follows the number of samples, the first size of the first input, through a graph. */
#include "passes/amp/samples.h"

unsigned samples_mark(const samples *s, const ir_value *v)
{
    if (v->kind == IR_VALUE_STORAGE) return 0;
    return v->kind == IR_VALUE_RESULT ? s->marks[v->id] : SAMPLES_DATA | (v->type.rank ? SAMPLES_AXIS : 0);
}

/* Whether one of these sizes depends on the number of samples. */
static bool has_samples(const samples *s, const ir_dim *dims, int rank)
{
    for (int i = 0; s->twice && i < rank; i++)
        if (ir_dim_replace(s->dims, s->dims, dims[i], s->twice) != dims[i]) return true;
    return false;
}

/* With a fixed number of samples, their axis is the first one, until something reduces it. */
static unsigned mark_result(const samples *s, const ir_node *n, const ir_value *v)
{
    unsigned mark = 0;
    for (int i = 0; i < n->n_in; i++)
        if (ir_in(n, i)) mark |= samples_mark(s, ir_in(n, i));
    if (s->twice) return has_samples(s, v->type.dims, v->type.rank) ? SAMPLES_DATA | SAMPLES_AXIS : mark & SAMPLES_DATA;
    const bool reduces = ir_op_has(n->op, IR_SUMS | IR_MEANS);
    const ir_attr *axes = &n->attr[0];
    for (int i = 0; reduces && i < axes->list.count; i++)
        if (axes->list.items[i] == 0) return mark & SAMPLES_DATA;
    return v->type.rank ? mark : mark & SAMPLES_DATA;
}

static void find_batch(samples *s, const ir_graph *g, arena *a)
{
    size_t symbol;
    s->batch = IR_DIM_NONE;
    for (size_t i = 0; i < g->inputs.count && s->batch == IR_DIM_NONE; i++)
        if (g->inputs.items[i]->type.rank) s->batch = g->inputs.items[i]->type.dims[0];
    if (s->batch == IR_DIM_NONE || !ir_dim_is_symbol(s->dims, s->batch, &symbol)) return;
    const size_t count = ir_dim_symbol_count(s->dims);
    ir_dim *twice = arena_array(a, count, sizeof *twice);
    for (size_t i = 0; i < count; i++) twice[i] = ir_dim_symbol(s->dims, ir_dim_symbol_name(s->dims, i));
    twice[symbol] = ir_dim_mul(s->dims, s->batch, 2);
    s->twice = twice;
}

samples samples_find(ir_graph *g, arena *a)
{
    samples s = {.dims = g->module->dims};
    ir_graph_renumber(g);
    s.marks = arena_array(a, g->value_ids + 1, 1);
    find_batch(&s, g, a);
    for (const ir_node *n = g->first; n; n = n->next)
        for (int i = 0; i < n->n_out; i++) s.marks[n->out[i]->id] = (unsigned char)mark_result(&s, n, n->out[i]);
    return s;
}
