/* placement.h - the types of gray and clear nodes, and so all casts, by one minimum cut (--placement=mincut). */
#ifndef AMPC_PLACEMENT_H
#define AMPC_PLACEMENT_H

#include "passes/amp/colour.h"
#include "passes/amp/device.h"

/* Predicted costs of three plans, in units of the device's measure (cost.h). */
typedef struct placement_costs {
    int64_t cut;
    int64_t greedy; /* as amp_colour left the entries, after cast folding */
    int64_t f32;    /* everything in f32 */
} placement_costs;

/* Changes `compute_dtype` and `result` of the entries that amp_colour made for g, within the constraints of lists and
 * rules, to minimise the cost on the device of the compile. Requires level O1 or O2. `explain`: also sets
 * `alternative_cost`. */
placement_costs amp_place(ir_graph *g, const amp_scope *s, bool explain);

#endif
