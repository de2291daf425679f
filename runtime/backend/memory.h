/* memory.h - what the run side says when an allocation fails. */
#ifndef RT_MEMORY_H
#define RT_MEMORY_H

#include "ir/diag.h"

static inline ampc_status rt_no_memory(diag *d)
{
    return diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory");
}

#endif
