/* nonfinite_gradient.h - finds the first non-finite gradient; private to the training loop and the public API. */
#ifndef RT_NONFINITE_GRADIENT_H
#define RT_NONFINITE_GRADIENT_H

#include "runtime/session/session.h"

/* Reports AMPC_NUMERIC with the formatted text, the parameter whose gradient on these inputs becomes non-finite first
 * in the backward, and the model node that uses it. Runs @grad, which overwrites the outputs of earlier runs. */
ampc_status rt_nonfinite_gradient(rt_session *s, const ir_module *m, const rt_tensor *inputs, int n, diag *d,
                                  const char *format, ...) __attribute__((format(printf, 6, 7)));

#endif
