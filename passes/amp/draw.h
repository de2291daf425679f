/* draw.h - collects the colours for drawing the forward graph with Graphviz. */
#ifndef AMPC_DRAW_H
#define AMPC_DRAW_H

#include "passes/amp/colour.h"

/* Records the colours of the model's nodes in the report, by node name, until the graph is drawn. */
void draw_record_colours(const ir_graph *g, const amp_scope *s);

#endif
