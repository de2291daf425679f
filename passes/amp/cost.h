/* cost.h - costs of nodes and casts on a device, as integers, so that plans can be compared exactly. */
#ifndef AMPC_COST_H
#define AMPC_COST_H

#include "passes/amp/device.h"

/* Costs are in picoseconds or bytes, depending on the device's measure. */
typedef struct cost_model {
    const ir_device *device;
    const ir_module *module;
    const int64_t *sizes; /* by symbol */
    int64_t max_cost;     /* single costs are clamped to this */
} cost_model;

/* `items`: maximum number of costs to be added; their sum stays below 2^60. */
cost_model cost_model_new(const ir_device *device, const ir_module *m, size_t items, arena *a);

/* One execution of the node if all floats that it unifies have type t. */
int64_t cost_of_node(const cost_model *c, const ir_node *n, ir_dtype t);
/* Additional cost of writing the results that follow the entry in `to` instead of `from`; 0 if that is cheaper. */
int64_t cost_of_results(const cost_model *c, const ir_node *n, ir_dtype from, ir_dtype to);
/* One cast of a value with that shape. */
int64_t cost_of_cast(const cost_model *c, const ir_type *type, ir_dtype from, ir_dtype to);
/* Storing a copy of a constant in type t. */
int64_t cost_of_copy(const cost_model *c, const ir_type *type, ir_dtype t);

/* Formats a cost, such as "12.3 us" or "640 bytes"; allocated in the arena. */
const char *cost_print(const ir_device *device, int64_t cost, arena *a);

#endif
