/* cut.h - labelling at least cost: every vertex of a problem is HIGH (f32) or LOW, and what the labels cost together
 * is made least by one minimum cut. Knows nothing of graphs and operators; placement.c does. */
#ifndef AMPC_CUT_H
#define AMPC_CUT_H

#include "ir/arena.h"

typedef enum cut_label { CUT_HIGH, CUT_LOW } cut_label;
#define CUT_FORBIDDEN INT64_MAX /* a cost: never */

typedef struct cut cut;
cut *cut_new(arena *a);

/* A vertex and what each label costs. Costs of a problem are >= 0; their sum must stay below 2^61. */
uint32_t cut_vertex(cut *c, int64_t high, int64_t low);
/* The vertex keeps that label in every solution. Two different pins are a bug. */
void cut_pin(cut *c, uint32_t vertex, cut_label label);
bool cut_is_pinned(const cut *c, uint32_t vertex, cut_label label);
/* Both vertices have one label. */
void cut_merge(cut *c, uint32_t a, uint32_t b);
/* Costs `cost` when `high` is HIGH and `low` is LOW. */
void cut_pair(cut *c, uint32_t high, uint32_t low, int64_t cost);

/* A value and its conversions, each paid once however many readers need it: `down` when its producer is HIGH and a
 * reader is LOW, `up` (alone may be FORBIDDEN) when its producer is LOW and a reader is HIGH. The readers
 * follow, before
 * the next value; values stand in an order in which a producer is not itself a reader of a later one. */
void cut_value(cut *c, uint32_t producer, int64_t down, int64_t up);
/* A constant that is there in either type: `both` when it has readers of either label. */
void cut_constant(cut *c, int64_t both);
void cut_reader(cut *c, uint32_t vertex);

/* Labels [cut vertices] of least cost; of several such labellings the one with the fewest LOW vertices (it is
 * unique: its LOW vertices are LOW in all of them). A problem whose pins contradict its FORBIDDEN costs is a bug. */
void cut_solve(cut *c, cut_label *labels);
/* What a labelling costs, pins aside; CUT_FORBIDDEN when it is. */
int64_t cut_cost(const cut *c, const cut_label *labels);
/* What it would cost more (negative: less) to change one vertex alone, with those merged into it; [cut vertices]. */
void cut_flips(const cut *c, const cut_label *labels, int64_t *flips);

uint32_t cut_vertices(const cut *c);

#endif
