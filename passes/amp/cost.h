/* cost.h - what nodes and casts cost on a device, in whole numbers, so that plans can be compared exactly. */
#ifndef AMPC_COST_H
#define AMPC_COST_H

#include "passes/amp/device.h"

/* Costs are picoseconds, or bytes, by the device's measure. */
typedef struct cost_model {
    const ir_device *device;
    const ir_module *module;
    const int64_t *sizes; /* of the symbols */
    int64_t most;         /* no single cost is above it */
} cost_model;

/* `items`: how many costs will be added up at most; their sum stays below 2^60. */
cost_model cost_model_new(const ir_device *device, const ir_module *m, size_t items, arena *a);

/* The node once, the floats that it unifies read and written in type t. */
int64_t cost_of_node(const cost_model *c, const ir_node *n, ir_dtype t);
/* What it costs more to write the results that follow the entry in `to` instead of `from`; 0 when that is less. */
int64_t cost_of_results(const cost_model *c, const ir_node *n, ir_dtype from, ir_dtype to);
/* One cast of a value of that type (its dtype aside). */
int64_t cost_of_cast(const cost_model *c, const ir_type *type, ir_dtype from, ir_dtype to);
/* Keeping a constant in type t beside what is there. */
int64_t cost_of_copy(const cost_model *c, const ir_type *type, ir_dtype t);

/* A cost as text: "12.3 us", "640 bytes". In the arena. */
const char *cost_print(const ir_device *device, int64_t cost, arena *a);

#endif
