/* maxflow.h - a minimum cut between two vertices of a network with integer capacities. */
#ifndef AMPC_MAXFLOW_H
#define AMPC_MAXFLOW_H

#include "ir/arena.h"

typedef struct maxflow maxflow;

/* A network of `vertices` vertices 0 .. vertices-1 and no arcs. Lives in the arena. */
maxflow *maxflow_new(uint32_t vertices, arena *a);

/* An arc with its capacity, and the capacity of the way back (0: none). Both >= 0; twice the sum of all
 * capacities must fit in int64_t. */
void maxflow_arc(maxflow *m, uint32_t from, uint32_t to, int64_t capacity, int64_t back);

/* The value of a minimum cut. Once for each network. */
int64_t maxflow_solve(maxflow *m, uint32_t source, uint32_t sink);

/* After solving: whether v is on the sink's side of the minimum cut whose sink's side is smallest. That cut does not
 * depend on the order of arcs. */
bool maxflow_on_sink_side(const maxflow *m, uint32_t v);

#endif
