/* optimizer_options.h - what --optimizer, --group and --no-decay request. */
#ifndef AMPC_OPTIMIZER_OPTIONS_H
#define AMPC_OPTIMIZER_OPTIONS_H

#include "passes/pass.h"

enum { OPTIMIZER_ATTRS = 8, OPTIMIZER_STATES = 4 }; /* maximum of any optimizer */

typedef struct optimizer {
    ir_op op;
    ir_op finish; /* applies result 0 of op to the parameter; IR_OP_COUNT: op updates the parameter */
    double lr;
    double attr[OPTIMIZER_ATTRS];  /* by attribute slot of the op */
    double trust[OPTIMIZER_ATTRS]; /* by attribute slot of trust_ratio */
} optimizer;

/* The settings of one parameter. */
typedef struct optimizer_group {
    double lr_factor;
    double weight_decay;
    bool frozen;
} optimizer_group;

ampc_status optimizer_parse(const compile_options *o, arena *a, diag *d, optimizer *out);

/* Checks --group; warns of globs that match no parameter of the module. */
ampc_status optimizer_check_groups(const ir_module *m, const compile_options *o, diag *d);

/* The settings of a parameter: those of the optimizer, changed by each matching --group in turn. The groups have been
 * checked. */
optimizer_group optimizer_group_of(const ir_storage *param, const compile_options *o, double weight_decay, arena *a);

#endif
