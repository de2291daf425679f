/* file_kind.h - recognises files of other kinds by their first bytes, for messages. */
#ifndef AMPC_FILE_KIND_H
#define AMPC_FILE_KIND_H

#include <stddef.h>

/* Says what the file is and what to do with it, such as "gzip data; unpack it first". NULL: the kind is not known, or
 * it is `wanted`, "onnx" or "ir". */
const char *ir_file_kind(const void *bytes, size_t n, const char *wanted);

#endif
