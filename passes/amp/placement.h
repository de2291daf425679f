/* placement.h - the types of gray and clear nodes, and so all casts, by one minimum cut (--placement=mincut). */
#ifndef AMPC_PLACEMENT_H
#define AMPC_PLACEMENT_H

#include "passes/amp/colour.h"
#include "passes/amp/device.h"

/* Changes `compute_dtype` and `result` of the entries that amp_colour made for g, within the constraints of lists and
 * rules, to minimise the cost on the device of the compile. Requires level O1 or O2. `explain`: also sets
 * `alternative_cost`. With a budget of errors (compile_options), within that instead. */
pass_costs amp_place(ir_graph *g, const amp_scope *s, bool explain);

#endif
