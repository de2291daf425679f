/* batch.h - finds the batch symbol of a graph, and prints dimensions in messages. */
#ifndef RT_BATCH_H
#define RT_BATCH_H

#include "ir/graph/ir.h"

enum { RT_DIM_TEXT = 96 };
/* Writes the dimension as in IR text, truncated to the buffer, and returns `text`. */
const char *rt_dim_text(const ir_dim_table *t, ir_dim dim, char text[RT_DIM_TEXT]);

#define RT_NO_SYMBOL SIZE_MAX
/* Returns the symbol that counts the samples, given the sizes of symbols by index (-1: unbound). If that dimension has
 * a known size, returns RT_NO_SYMBOL and sets *fixed to it: the only batch size that the graph accepts. *fixed is 0 if
 * the graph has no such input. */
size_t rt_batch_symbol(const ir_graph *g, const int64_t *sizes, int64_t *fixed);

#endif
