/* distribute_weights.c - see distribute.h. */
#include "passes/train/distribute.h"

ampc_status distribute_weights(ir_graph *g, diag *d)
{
    (void)g;
    return diag_status(d);
}
