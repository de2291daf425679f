/* maxflow.h - a minimum cut between two vertices of a network with integer capacities. */
#ifndef AMPC_MAXFLOW_H
#define AMPC_MAXFLOW_H

#include "ir/base/arena.h"

typedef struct maxflow maxflow;

/* A network with vertices 0 .. vertices-1 and no arcs, allocated in the arena. */
maxflow *maxflow_new(uint32_t vertices, arena *a);

/* Adds an arc with its capacity and that of the reverse arc (0: none). Both must be >= 0, and twice the sum of all
 * capacities must fit in int64_t. */
void maxflow_arc(maxflow *m, uint32_t from, uint32_t to, int64_t capacity, int64_t back);

/* Returns the capacity of a minimum cut. May be called once per network. */
int64_t maxflow_solve(maxflow *m, uint32_t source, uint32_t sink);

/* After solving: whether v is on the sink's side of the minimum cut with the smallest sink's side. That cut does not
 * depend on the order of arcs. */
bool maxflow_on_sink_side(const maxflow *m, uint32_t v);

#endif
