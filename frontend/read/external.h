/* external.h - tensor values in separate data files, opened under the rules of ir/base/beneath.h. */
#ifndef AMPC_FRONTEND_EXTERNAL_H
#define AMPC_FRONTEND_EXTERNAL_H

#include "frontend/read/decode.h"

#include <stdint.h>

static inline bool onnx_is_external(const Onnx__TensorProto *t)
{
    return t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
}

/* A range of an open data file. `path` is the file's path from the working directory and valid as long as `f`. */
typedef struct onnx_range {
    const char *path;
    int64_t offset;
} onnx_range;

/* Finds the external data of `t`, which must have exactly `size` bytes. The file is opened and stays open until
 * onnx_file_close. AMPC_REJECTED: the location is missing, absolute, contains "..", or leads out of the model's
 * folder; the file is not regular; offset or length is malformed, out of bounds, or not `size`; a key occurs twice;
 * the model has no folder. AMPC_IO: the file cannot be opened. Unknown keys cause one warning per model. */
ampc_status onnx_external_locate(onnx_file *f, const Onnx__TensorProto *t, int64_t size, diag *d, onnx_range *out);

/* Reads `size` bytes of a range into `out`. */
ampc_status onnx_external_read(onnx_file *f, onnx_range range, size_t size, diag *d, void *out);

/* Closes the files that the functions above opened. */
void onnx_external_close(onnx_file *f);

#endif
