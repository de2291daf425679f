/* external.h - tensor values that lie in a file beside the model, opened as ir/beneath.h says. */
#ifndef AMPC_FRONTEND_EXTERNAL_H
#define AMPC_FRONTEND_EXTERNAL_H

#include "frontend/read/decode.h"

#include <stdint.h>

/* A range of an open data file. `path` is the file's name from the working directory, valid as long
 * as `f`. */
typedef struct onnx_range {
    const char *path;
    int64_t offset;
} onnx_range;

/* The external data of `t`, which must be exactly `size` bytes. The file is opened and stays open
 * until onnx_file_close. AMPC_REJECTED: location missing, absolute, with "..", or leading out of
 * the model's folder; not a regular file; offset or length malformed, out of the file, or not
 * `size`; a key given twice; a model without a folder. AMPC_IO: the file cannot be opened. Unknown
 * keys get one warning a model. */
ampc_status onnx_external_locate(onnx_file *f, const Onnx__TensorProto *t, int64_t size, diag *d,
                                 onnx_range *out);

/* Reads `size` bytes of a located range. */
ampc_status onnx_external_read(onnx_file *f, onnx_range range, size_t size, diag *d, void *out);

/* Closes the files that the calls above opened. */
void onnx_external_close(onnx_file *f);

#endif
