/* file_kind.h - recognises files of other kinds by their first bytes, for messages. */
#ifndef AMPC_FILE_KIND_H
#define AMPC_FILE_KIND_H

#include <stddef.h>

/* Says what the file is and what to do with it, such as "gzip data; unpack it first". NULL: the kind is not known, or
 * it is `wanted`, "onnx" or "ir". */
const char *ir_file_kind(const void *bytes, size_t n, const char *wanted);

/* What a program writes. */
typedef enum ir_written {
    IR_WRITTEN_NOTHING,
    IR_WRITTEN_MODULE,
    IR_WRITTEN_ONNX,
    IR_WRITTEN_NPZ,
    IR_WRITTEN_SAFETENSORS,
    IR_WRITTEN_SVG,
    IR_WRITTEN_DOT,
    IR_WRITTEN_HTML,
    IR_WRITTEN_JSON,
    IR_WRITTEN_CSV,
    IR_WRITTEN_LIST
} ir_written;

/* What a file is that `kind` would replace, such as "an ONNX model"; NULL: a file of that kind, or a text that is not
 * known to be of another one. `bytes` are its first ones, `path` its name. */
const char *ir_file_of_other_kind(const void *bytes, size_t n, const char *path, ir_written kind);

#endif
