/* batch.c - the batch symbol, and dimensions as text (see batch.h). */
#include "runtime/session/batch.h"

#include <stdio.h>

const char *rt_dim_text(const ir_dim_table *t, ir_dim dim, char text[RT_DIM_TEXT])
{
    snprintf(text, RT_DIM_TEXT, "?");
    jmp_buf guard;
    arena *a = arena_new(0);
    if (!a) return text;
    arena_set_guard(a, &guard);
    if (!setjmp(guard)) snprintf(text, RT_DIM_TEXT, "%s", ir_dim_print(t, dim, a));
    arena_free(a);
    return text;
}

size_t rt_batch_symbol(const ir_graph *g, const int64_t *sizes, int64_t *fixed)
{
    size_t symbol = RT_NO_SYMBOL;
    *fixed = 0;
    if (!g->inputs.count || !g->inputs.items[0]->type.rank) return RT_NO_SYMBOL;
    ir_dim first = g->inputs.items[0]->type.dims[0];
    if (ir_dim_eval(g->module->dims, first, sizes, fixed, &symbol)) return RT_NO_SYMBOL;
    *fixed = 0;
    return symbol;
}
