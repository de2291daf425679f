/* operators.h - registering custom operators, for the public API and for the programs. */
#ifndef RT_OPERATORS_H
#define RT_OPERATORS_H

#include "ir/base/diag.h"
#include "ir/ops/custom.h"

/* Adds the operator of a table. AMPC_USAGE, reported, for one that ampc_operator.h does not allow or that is there. */
ampc_status operators_register(custom_ops *ops, const ampc_operator *table, diag *d);
/* Adds those of a plug-in, all or none, as ampc_operators_load does. */
ampc_status operators_load(custom_ops *ops, const char *path, diag *d);
void operators_free(custom_ops *ops);

#endif
