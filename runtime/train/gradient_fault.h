/* gradient_fault.h - which gradient is not finite; private to the training loop and the public API. */
#ifndef RT_GRADIENT_FAULT_H
#define RT_GRADIENT_FAULT_H

#include "runtime/session/session.h"

/* Reports AMPC_NUMERIC: the formatted text, and the parameter whose gradient on these inputs goes wrong first in the
 * backward, with the model node that uses it. Runs @grad to find it, so earlier outputs are gone. */
ampc_status rt_gradient_fault(rt_session *s, const ir_module *m, const rt_tensor *inputs, int n,
                              diag *d, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

#endif
