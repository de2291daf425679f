/* cut.h - minimum-cost labelling: labels every vertex of a problem HIGH (f32) or LOW, with minimal total cost, by one
 * minimum cut. It is independent of graphs and operators; placement.c builds the problem. */
#ifndef AMPC_CUT_H
#define AMPC_CUT_H

#include "ir/base/arena.h"

typedef enum cut_label { CUT_HIGH, CUT_LOW } cut_label;
#define CUT_FORBIDDEN INT64_MAX /* cost of a labelling that is not allowed */

typedef struct cut cut;
cut *cut_new(arena *a);

/* Adds a vertex with the cost of each label. Costs must be >= 0 and their sum below 2^61. */
uint32_t cut_vertex(cut *c, int64_t high, int64_t low);
/* Fixes the label of a vertex. Pinning it to both labels is a bug. */
void cut_pin(cut *c, uint32_t vertex, cut_label label);
bool cut_is_pinned(const cut *c, uint32_t vertex, cut_label label);
/* Forces two vertices to have the same label. */
void cut_merge(cut *c, uint32_t a, uint32_t b);
/* Adds `cost` if `high` is HIGH and `low` is LOW. */
void cut_pair(cut *c, uint32_t high, uint32_t low, int64_t cost);

/* Adds a value and its conversions, each of which is paid once, however many readers need it: `down` if its producer
 * is HIGH and a reader is LOW, `up` if its producer is LOW and a reader is HIGH. Only `up` may be FORBIDDEN. Its
 * readers have to be added before the next value. Values must be ordered such that a producer is not a reader of a
 * later value. */
void cut_value(cut *c, uint32_t producer, int64_t down, int64_t up);
/* Adds a constant that exists in either type; costs `both` if it has readers with both labels. */
void cut_constant(cut *c, int64_t both);
void cut_reader(cut *c, uint32_t vertex);

/* Computes the labels of minimum cost, indexed by vertex. Of several such labellings it returns the one with the fewest
 * LOW vertices, which is unique: they are LOW in all of them. Pins that contradict FORBIDDEN costs are a bug. */
void cut_solve(cut *c, cut_label *labels);
/* The label of a vertex, which is that of all merged with it. */
cut_label cut_label_of(const cut *c, const cut_label *labels, uint32_t vertex);
/* The cost of a labelling, ignoring pins; CUT_FORBIDDEN if it is not allowed. */
int64_t cut_cost(const cut *c, const cut_label *labels);
/* Sets flips[v] to the additional cost (negative: saving) of changing only vertex v and those merged with it. */
void cut_flips(const cut *c, const cut_label *labels, int64_t *flips);

#endif
