/* memory.h - the error for a failed allocation. */
#ifndef RT_MEMORY_H
#define RT_MEMORY_H

#include "ir/base/diag.h"

static inline ampc_status rt_no_memory(diag *d) { return diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory"); }

#endif
