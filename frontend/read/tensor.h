/* tensor.h - TensorProto -> a checked tensor: name, type, shape, and the location of its values.
 *
 * ONNX stores values in one of seven fields or in another file. This module reduces them to two forms: little-endian
 * elements in memory, or a range of a file with exactly those bytes. All numbers of the TensorProto are checked for
 * consistency first. */
#ifndef AMPC_FRONTEND_TENSOR_H
#define AMPC_FRONTEND_TENSOR_H

#include "frontend/read/decode.h"
#include "ir/ops/dtype.h"

/* The element types of ONNX: TensorProto.data_type, TypeProto.Tensor.elem_type, the `to` of a Cast.
 *   code, name, bits, type in the IR, typed field, min and max element of that field
 * Elements of fewer than 8 bits are packed, the first in the lowest bits, and the typed field has the bytes. Strings
 * have 0 bits and are not read. */
// clang-format off
#define ONNX_TYPE_MAP(X)                                                                       \
    X(1, float32, 32, IR_f32, TENSOR_FLOAT_DATA, 0, 0)                                         \
    X(2, uint8, 8, IR_u8, TENSOR_INT32_DATA, 0, UINT8_MAX)                                     \
    X(3, int8, 8, IR_i8, TENSOR_INT32_DATA, INT8_MIN, INT8_MAX)                                \
    X(4, uint16, 16, IR_u16, TENSOR_INT32_DATA, 0, UINT16_MAX)                                 \
    X(5, int16, 16, IR_i16, TENSOR_INT32_DATA, INT16_MIN, INT16_MAX)                           \
    X(6, int32, 32, IR_i32, TENSOR_INT32_DATA, INT32_MIN, INT32_MAX)                           \
    X(7, int64, 64, IR_i64, TENSOR_INT64_DATA, INT64_MIN, INT64_MAX)                           \
    X(8, string, 0, IR_NO_DTYPE, TENSOR_STRING_DATA, 0, 0)                                     \
    X(9, bool, 8, IR_bool, TENSOR_INT32_DATA, 0, 1)                                            \
    X(10, float16, 16, IR_f16, TENSOR_INT32_DATA, 0, UINT16_MAX)                               \
    X(11, float64, 64, IR_f64, TENSOR_DOUBLE_DATA, 0, 0)                                       \
    X(12, uint32, 32, IR_u32, TENSOR_UINT64_DATA, 0, UINT32_MAX)                               \
    X(13, uint64, 64, IR_u64, TENSOR_UINT64_DATA, INT64_MIN, INT64_MAX)                        \
    X(14, complex64, 64, IR_NO_DTYPE, TENSOR_FLOAT_DATA, 0, 0)                                 \
    X(15, complex128, 128, IR_NO_DTYPE, TENSOR_DOUBLE_DATA, 0, 0)                              \
    X(16, bfloat16, 16, IR_bf16, TENSOR_INT32_DATA, 0, UINT16_MAX)                             \
    X(17, float8e4m3fn, 8, IR_NO_DTYPE, TENSOR_INT32_DATA, 0, UINT8_MAX)                       \
    X(18, float8e4m3fnuz, 8, IR_NO_DTYPE, TENSOR_INT32_DATA, 0, UINT8_MAX)                     \
    X(19, float8e5m2, 8, IR_NO_DTYPE, TENSOR_INT32_DATA, 0, UINT8_MAX)                         \
    X(20, float8e5m2fnuz, 8, IR_NO_DTYPE, TENSOR_INT32_DATA, 0, UINT8_MAX)                     \
    X(21, uint4, 4, IR_NO_DTYPE, TENSOR_INT32_DATA, 0, UINT8_MAX)                              \
    X(22, int4, 4, IR_NO_DTYPE, TENSOR_INT32_DATA, 0, UINT8_MAX)                               \
    X(23, float4e2m1, 4, IR_NO_DTYPE, TENSOR_INT32_DATA, 0, UINT8_MAX)                         \
    X(24, float8e8m0, 8, IR_NO_DTYPE, TENSOR_INT32_DATA, 0, UINT8_MAX)                         \
    X(25, uint2, 2, IR_NO_DTYPE, TENSOR_INT32_DATA, 0, UINT8_MAX)                              \
    X(26, int2, 2, IR_NO_DTYPE, TENSOR_INT32_DATA, 0, UINT8_MAX)
// clang-format on

typedef enum onnx_type {
    ONNX_UNDEFINED,
#define ONNX_TYPE_ENUM(code, name, bytes, dtype, field, min, max) ONNX_##name = code,
    ONNX_TYPE_MAP(ONNX_TYPE_ENUM)
#undef ONNX_TYPE_ENUM
        ONNX_TYPE_COUNT
} onnx_type;

/* These accept any code and return IR_NO_DTYPE, 0 and "unknown" for unknown ones. */
ir_dtype onnx_type_dtype(int64_t code);
size_t onnx_type_size(int64_t code); /* of an element in bytes; 0 if it is not a whole number of them */
int onnx_type_bits(int64_t code);
const char *onnx_type_name(int64_t code);
/* The IR type that holds the values: that of onnx_type_dtype, or a wider one for integers of 2 and 4 bits. */
ir_dtype onnx_type_holder(int64_t code);
/* The ONNX code of an IR type other than IR_NO_DTYPE; never 0. */
onnx_type onnx_type_of(ir_dtype t);

#define ONNX_MAX_RANK 8

/* Exactly one of `bytes` and `path` is set, except for strings, where both are NULL. */
typedef struct onnx_tensor {
    const char *name;
    onnx_type type;
    ir_dtype dtype; /* IR_NO_DTYPE: the IR lacks the type; the values are still present */
    int rank;
    int64_t dims[ONNX_MAX_RANK];
    int64_t count;     /* number of elements: the product of dims, 1 for a scalar */
    size_t size;       /* in bytes: count * onnx_type_bits(type), rounded up */
    const void *bytes; /* `size` bytes of little-endian or packed elements, 16-byte aligned */
    const char *path;  /* the file with the values: `size` bytes at `offset`, not aligned */
    int64_t offset;
} onnx_tensor;

/* Checks and describes a TensorProto of `f`. All pointers in `out` refer to memory in `a`, which survives
 * onnx_file_close. A payload above 256 bytes stays in its file if the file has the elements in their in-memory form
 * (raw_data, float_data, double_data, external data); all other values are decoded into `a`. Bool values are always
 * decoded, so they are 0 or 1. AMPC_REJECTED: contradictions (negative dims, overflow, two value fields, too few or
 * too many values, values out of range, unknown type, external data out of bounds or outside the model's folder);
 * AMPC_UNSUPPORTED: rank above 8, segments; AMPC_IO: external file unreadable. */
ampc_status onnx_tensor_describe(arena *a, onnx_file *f, const Onnx__TensorProto *t, diag *d, onnx_tensor *out);

/* Loads the values of a described tensor into `a` (sets `bytes`, clears `path`) unless they are in memory already.
 * `f` is the file that the tensor was described from. */
ampc_status onnx_tensor_load(arena *a, onnx_file *f, onnx_tensor *t, diag *d);

/* Loads a tensor of integers of fewer than 8 bits and turns its elements into those of onnx_type_holder; `type` stays.
 * Does nothing to other tensors. */
ampc_status onnx_tensor_unpack(arena *a, onnx_file *f, onnx_tensor *t, diag *d);

/* Reads a file with one bare TensorProto (inputs and outputs of ONNX's own test cases) and loads its values. The type
 * is the one in the file: the corpus stores some bfloat16 tensors as uint16. */
ampc_status onnx_tensor_read_file(arena *a, const char *path, diag *d, onnx_tensor *out);

#endif
