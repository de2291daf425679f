/* export_normalize.h - adds the normalisation of an input to a copy of its model. */
#ifndef AMPC_FRONTEND_EXPORT_NORMALIZE_H
#define AMPC_FRONTEND_EXPORT_NORMALIZE_H

#include "frontend/emit/rope.h"
#include "frontend/lower/lower.h"

typedef struct export_normalization {
    const char *input, *result; /* every other node reads `result` instead of `input`; NULL: nothing changes */
    rope fields;                /* of the main graph, before its own: nodes */
} export_normalization;

/* `names` contains every name of the model; new names differ from them. AMPC_REJECTED: the model has no such input;
 * AMPC_UNSUPPORTED: its opset has no broadcasting. */
ampc_status export_normalization_make(const onnx_file *file, const ir_normalization *n, strmap *names, arena *a,
                                      diag *d, export_normalization *out);

#endif
