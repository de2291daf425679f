/* batch.c - the batch symbol, and dimensions as text (see batch.h). */
#include "runtime/session/batch.h"

#include "ir/base/text_buffer.h"

const char *rt_dim_text(const ir_dim_table *t, ir_dim dim, char text[RT_DIM_TEXT])
{
    text_buffer out = text_in(text, RT_DIM_TEXT);
    ir_dim_add_text(&out, t, dim);
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
