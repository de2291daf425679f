/* test_tensor.c - valid and invalid TensorProtos through tensor description. */
#include "tests/unit/prescan_fixture.h"

/* Describes the TensorProto in `w` (freed) as the only initializer of a model in memory. */
static ampc_status describe(fixture *x, wire *w, onnx_tensor *out)
{
    wire graph = {0};
    wire_message(&graph, GRAPH_INITIALIZER, w);
    wire bytes = model_of(&graph);
    onnx_file *f;
    diag_clear(x->d);
    if (setjmp(x->guard)) fail_msg("out of memory");
    arena_set_guard(x->a, &x->guard);
    ampc_status status = onnx_file_wrap(bytes.bytes, bytes.size, "m.onnx", x->d, &f);
    if (status == AMPC_OK) status = onnx_tensor_describe(x->a, f, f->model->graph->initializer[0], x->d, out);
    onnx_file_close(f);
    wire_free(&bytes);
    return status;
}

static wire packed_of(const int64_t *values, size_t n)
{
    wire w = {0};
    for (size_t i = 0; i < n; i++) wire_varint(&w, (uint64_t)values[i]);
    return w;
}

/* Every integer type from its typed field, inline and lifted out by the pre-scan. */
TEST_PRESCAN(test_typed_integers)
{
    static const struct {
        int type;
        uint32_t field;
        int64_t low, high;
        ir_dtype dtype;
    } rows[] = {
        {ONNX_uint8, TENSOR_INT32_DATA, 0, 255, IR_u8},
        {ONNX_int8, TENSOR_INT32_DATA, -128, 127, IR_i8},
        {ONNX_int16, TENSOR_INT32_DATA, -32768, 32767, IR_i16},
        {ONNX_int32, TENSOR_INT32_DATA, INT32_MIN, INT32_MAX, IR_i32},
        {ONNX_int64, TENSOR_INT64_DATA, INT64_MIN, INT64_MAX, IR_i64},
        {ONNX_bool, TENSOR_INT32_DATA, 0, 1, IR_bool},
        {ONNX_float16, TENSOR_INT32_DATA, 0, 65535, IR_f16},
        {ONNX_bfloat16, TENSOR_INT32_DATA, 0, 65535, IR_bf16},
        {ONNX_uint16, TENSOR_INT32_DATA, 0, 65535, IR_u16},
        {ONNX_uint32, TENSOR_UINT64_DATA, 0, UINT32_MAX, IR_u32},
        {ONNX_uint64, TENSOR_UINT64_DATA, INT64_MIN, INT64_MAX, IR_u64},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t n = 2; n <= 2000; n += 1998) {
            int64_t values[2000];
            for (size_t k = 0; k < n; k++) values[k] = k % 2 ? rows[i].high : rows[i].low;
            wire w = tensor_head(rows[i].type, (int64_t)n), packed = packed_of(values, n);
            wire_message(&w, rows[i].field, &packed);
            onnx_tensor t;
            assert_int_equal(describe(x, &w, &t), AMPC_OK);
            assert_int_equal(t.dtype, rows[i].dtype);
            assert_int_equal(t.size, n * onnx_type_size(rows[i].type));
            size_t width = onnx_type_size(rows[i].type);
            assert_memory_equal(t.bytes, &rows[i].low, width);
            assert_memory_equal((const char *)t.bytes + (n - 1) * width, &rows[i].high, width);
            if (rows[i].high == INT64_MAX) continue;
            for (int under = 0; under < 2; under++) {
                values[n - 1] = under ? rows[i].low - 1 : rows[i].high + 1;
                wire outside = tensor_head(rows[i].type, (int64_t)n);
                packed = packed_of(values, n);
                wire_message(&outside, rows[i].field, &packed);
                assert_int_equal(describe(x, &outside, &t), AMPC_REJECTED);
            }
        }
    }
}

TEST_PRESCAN(test_plain_values)
{
    static const float floats[] = {1.5f, -0.0f};
    static const double doubles[] = {1e300, -1};
    onnx_tensor t;
    wire w = tensor_head(ONNX_float32, 2);
    wire_bytes(&w, TENSOR_FLOAT_DATA, floats, sizeof floats);
    assert_int_equal(describe(x, &w, &t), AMPC_OK);
    assert_memory_equal(t.bytes, floats, sizeof floats);
    w = tensor_head(ONNX_float32, 2);
    wire_float(&w, TENSOR_FLOAT_DATA, floats[0]); /* not packed */
    wire_float(&w, TENSOR_FLOAT_DATA, floats[1]);
    assert_int_equal(describe(x, &w, &t), AMPC_OK);
    assert_memory_equal(t.bytes, floats, sizeof floats);
    w = tensor_head(ONNX_float64, 2);
    wire_bytes(&w, TENSOR_DOUBLE_DATA, doubles, sizeof doubles);
    assert_int_equal(describe(x, &w, &t), AMPC_OK);
    assert_memory_equal(t.bytes, doubles, sizeof doubles);
    w = tensor_head(ONNX_complex64, 1);
    wire_bytes(&w, TENSOR_FLOAT_DATA, floats, sizeof floats);
    assert_int_equal(describe(x, &w, &t), AMPC_OK);
    assert_int_equal(t.dtype, IR_NO_DTYPE);
    assert_int_equal(t.size, 8);
    w = tensor_head(ONNX_int64, -1); /* a scalar */
    wire_bytes(&w, TENSOR_RAW_DATA, "\1\0\0\0\0\0\0\0", 8);
    assert_int_equal(describe(x, &w, &t), AMPC_OK);
    assert_int_equal(t.rank, 0);
    assert_int_equal(t.count, 1);
    assert_int_equal(*(const int64_t *)t.bytes, 1);
    w = tensor_head(ONNX_float32, 0); /* no elements, no data */
    assert_int_equal(describe(x, &w, &t), AMPC_OK);
    assert_int_equal(t.count, 0);
    assert_non_null(t.bytes);
}

/* The first element is in the lowest bits; the int32 field has bytes. */
TEST_PRESCAN(test_packed_values)
{
    static const struct {
        onnx_type type;
        int count, bytes;
        ir_dtype dtype;
        int8_t first, second, last;
    } rows[] = {
        {ONNX_int4, 3, 2, IR_i8, -6, 1, 3},   {ONNX_uint4, 3, 2, IR_u8, 10, 1, 3},
        {ONNX_int2, 5, 2, IR_i8, -2, -2, -1}, {ONNX_uint2, 5, 2, IR_u8, 2, 2, 3},
        {ONNX_uint4, 0, 0, IR_u8, 0, 0, 0},   {ONNX_float4e2m1, 3, 2, IR_NO_DTYPE, 0, 0, 0},
    };
    const int64_t numbers[] = {0x1a, 0xf3, 0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int field = 0; field < 2; field++) {
            onnx_tensor t;
            const size_t n = (size_t)rows[i].bytes;
            wire w = tensor_head(rows[i].type, rows[i].count), packed = packed_of(numbers, n);
            if (field) wire_message(&w, TENSOR_INT32_DATA, &packed);
            else wire_bytes(&w, TENSOR_RAW_DATA, "\x1a\xf3", n), wire_free(&packed);
            assert_int_equal(describe(x, &w, &t), AMPC_OK);
            assert_int_equal(t.size, n);
            assert_int_equal(t.dtype, IR_NO_DTYPE);
            assert_int_equal(onnx_tensor_unpack(x->a, NULL, &t, NULL), AMPC_OK);
            assert_int_equal(t.dtype, rows[i].dtype);
            const int8_t *values = t.bytes;
            if (!rows[i].count || t.dtype == IR_NO_DTYPE) continue;
            assert_int_equal(t.size, rows[i].count);
            assert_int_equal(values[0], rows[i].first);
            assert_int_equal(values[1], rows[i].second);
            assert_int_equal(values[rows[i].count - 1], rows[i].last);
        }
    onnx_tensor t;
    wire w = tensor_head(ONNX_int4, 3), packed = packed_of(numbers, 3); /* a byte too many */
    wire_message(&w, TENSOR_INT32_DATA, &packed);
    assert_int_equal(describe(x, &w, &t), AMPC_REJECTED);
}

TEST_PRESCAN(test_strings_have_no_values)
{
    onnx_tensor t;
    wire w = tensor_head(ONNX_string, 1);
    wire_text(&w, TENSOR_STRING_DATA, "text");
    assert_int_equal(describe(x, &w, &t), AMPC_OK);
    assert_int_equal(t.dtype, IR_NO_DTYPE);
    assert_null(t.bytes);
}

static void assert_tensor_refused(fixture *x, wire *w, ampc_status code, const char *part)
{
    onnx_tensor t;
    assert_int_equal(describe(x, w, &t), code);
    assert_int_equal(diag_count(x->d, DIAG_ERROR), 1);
    if (!strstr(diag_first_error(x->d), part)) fail_msg("\"%s\" is not in \"%s\"", part, diag_first_error(x->d));
}

TEST_PRESCAN(test_bad_shapes)
{
    wire w = tensor_head(ONNX_float32, 0);
    wire_int(&w, TENSOR_DIMS, -1);
    assert_tensor_refused(x, &w, AMPC_REJECTED, "tensor 't': dimension 1 is negative (-1)");
    w = tensor_head(ONNX_float32, INT64_MAX);
    assert_tensor_refused(x, &w, AMPC_REJECTED, "number of elements exceeds 64 bits");
    w = tensor_head(ONNX_float32, (int64_t)1 << 32);
    wire_int(&w, TENSOR_DIMS, (int64_t)1 << 32);
    assert_tensor_refused(x, &w, AMPC_REJECTED, "number of elements exceeds 64 bits");
    w = tensor_head(ONNX_float32, 1);
    for (int i = 0; i < ONNX_MAX_RANK; i++) wire_int(&w, TENSOR_DIMS, 1);
    assert_tensor_refused(x, &w, AMPC_UNSUPPORTED, "rank 9 is not supported");
}

TEST_PRESCAN(test_bad_values)
{
    wire w = tensor_head(ONNX_float32, 2);
    wire_bytes(&w, TENSOR_RAW_DATA, "1234", 4);
    assert_tensor_refused(x, &w, AMPC_REJECTED, "4 bytes, but type and shape require 8");
    w = tensor_head(ONNX_float32, 2);
    wire_bytes(&w, TENSOR_RAW_DATA, "123456789abc", 12);
    assert_tensor_refused(x, &w, AMPC_REJECTED, "12 bytes, but type and shape require 8");
    w = tensor_head(ONNX_int64, (int64_t)1 << 40);
    wire_bytes(&w, TENSOR_INT64_DATA, "\1\2", 2);
    assert_tensor_refused(x, &w, AMPC_REJECTED, "2 values, but type and shape require 1099511627776");
    w = tensor_head(ONNX_float32, (int64_t)1 << 40);
    assert_tensor_refused(x, &w, AMPC_REJECTED, "0 bytes, but");
    w = tensor_head(ONNX_float32, 1);
    wire_bytes(&w, TENSOR_RAW_DATA, "1234", 4);
    wire_bytes(&w, TENSOR_FLOAT_DATA, "1234", 4);
    assert_tensor_refused(x, &w, AMPC_REJECTED, "more than one field has values");
    w = tensor_head(ONNX_float32, 1);
    wire_bytes(&w, TENSOR_INT64_DATA, "\1", 1);
    assert_tensor_refused(x, &w, AMPC_REJECTED, "float32 values are in a field of the wrong type");
    w = tensor_head(ONNX_bool, 1);
    wire_bytes(&w, TENSOR_RAW_DATA, "\2", 1);
    assert_tensor_refused(x, &w, AMPC_REJECTED, "value 2 at element 0 is not a valid bool");
    w = tensor_head(0, 1);
    assert_tensor_refused(x, &w, AMPC_REJECTED, "data type 0 is unknown");
    w = tensor_head(99, 1);
    assert_tensor_refused(x, &w, AMPC_REJECTED, "data type 99 is unknown");
    w = tensor_head(ONNX_float32, 1);
    wire_bytes(&w, TENSOR_SEGMENT, NULL, 0);
    assert_tensor_refused(x, &w, AMPC_UNSUPPORTED, "segmented");
}
