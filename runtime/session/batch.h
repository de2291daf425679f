/* batch.h - the symbol that counts the samples of a batch, and dimensions in messages. */
#ifndef RT_BATCH_H
#define RT_BATCH_H

#include "ir/ir.h"

enum { RT_DIM_TEXT = 96 };
/* The dimension as the IR writes it, truncated to the buffer, which is returned. */
const char *rt_dim_text(const ir_dim_table *t, ir_dim dim, char text[RT_DIM_TEXT]);

#define RT_NO_SYMBOL SIZE_MAX
/* The symbol that counts samples, given the sizes of symbols by index (-1: open). RT_NO_SYMBOL when that dimension has
 * a size; *fixed is then this size, which is the only batch that the graph accepts (0: the graph has no such input). */
size_t rt_batch_symbol(const ir_graph *g, const int64_t *sizes, int64_t *fixed);

#endif
