/* test_prescan.c - valid and invalid model bytes through pre-scan, parser and tensor description. */
#include "frontend/read/prescan.h"
#include "frontend/read/tensor.h"

#include "wire_writer.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

/* Field numbers of the messages that the tests write. */
enum { MODEL_IR_VERSION = 1, MODEL_PRODUCER = 2, MODEL_GRAPH = 7, MODEL_OPSET = 8, MODEL_METADATA = 14 };
enum { GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_INITIALIZER = 5, GRAPH_DOC = 10, GRAPH_INPUT = 11 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3, NODE_OP = 4, NODE_ATTRIBUTE = 5 };
enum { ATTRIBUTE_NAME = 1, ATTRIBUTE_I = 3, ATTRIBUTE_G = 6, ATTRIBUTE_INTS = 8, ATTRIBUTE_TYPE = 20 };
enum { DIMS = 1, DATA_TYPE = 2, SEGMENT = 3, FLOATS = 4, INT32S = 5, STRINGS = 6, INT64S = 7, NAME = 8, RAW = 9 };
enum { DOUBLES = 10, UINT64S = 11, EXTERNAL = 13, LOCATION = 14 };

typedef struct fixture {
    arena *a;
    diag *d;
    jmp_buf guard;
} fixture;

static int set_up(void **state)
{
    fixture *x = calloc(1, sizeof *x);
    if (!x) return -1;
    x->a = arena_new(0);
    x->d = diag_new(NULL, NULL);
    *state = x;
    return x->a && x->d ? 0 : -1;
}

static int tear_down(void **state)
{
    fixture *x = *state;
    arena_free(x->a);
    diag_free(x->d);
    free(x);
    return 0;
}

/* Decodes and frees the bytes, from a heap block of exactly their size to detect overruns. */
static ampc_status decode(fixture *x, const ProtobufCMessageDescriptor *root, wire *w, ProtobufCMessage **out)
{
    uint8_t *exact = malloc(w->size + !w->size);
    assert_non_null(exact);
    if (w->size) memcpy(exact, w->bytes, w->size);
    diag_clear(x->d);
    if (setjmp(x->guard)) fail_msg("out of memory");
    arena_set_guard(x->a, &x->guard);
    ampc_status status = onnx_decode(x->a, root, (onnx_bytes){exact, w->size, NULL}, "m.onnx", x->d, out);
    free(exact);
    wire_free(w);
    return status;
}

static void assert_refused(fixture *x, wire *w, const char *part)
{
    ProtobufCMessage *out = NULL;
    assert_int_equal(decode(x, &onnx__model_proto__descriptor, w, &out), AMPC_REJECTED);
    assert_int_equal(diag_count(x->d, DIAG_ERROR), 1);
    if (!strstr(diag_first_error(x->d), part)) fail_msg("\"%s\" is not in \"%s\"", part, diag_first_error(x->d));
}

/* model { graph { inner } } */
static wire model_of(wire *graph)
{
    wire model = {0};
    wire_int(&model, MODEL_IR_VERSION, 8);
    wire_message(&model, MODEL_GRAPH, graph);
    return model;
}

/* model { graph { node { inner } } } */
static wire model_of_node(wire *node)
{
    wire graph = {0};
    wire_message(&graph, GRAPH_NODE, node);
    return model_of(&graph);
}

/* Returns a small model with one of everything. */
static wire small_model(void)
{
    wire attribute = {0}, node = {0}, weight = {0}, graph = {0}, opset = {0};
    static const float values[100] = {1, 2, 3};
    wire_text(&attribute, ATTRIBUTE_NAME, "axis");
    wire_int(&attribute, ATTRIBUTE_I, -1);
    wire_int(&attribute, ATTRIBUTE_INTS, 3);
    wire_int(&attribute, ATTRIBUTE_INTS, INT64_MIN);
    wire_int(&attribute, ATTRIBUTE_TYPE, 2);
    wire_text(&node, NODE_INPUT, "x");
    wire_text(&node, NODE_INPUT, "");
    wire_text(&node, NODE_OUTPUT, "y\xc3\xa9");
    wire_text(&node, NODE_OP, "Softmax");
    wire_message(&node, NODE_ATTRIBUTE, &attribute);
    wire_int(&weight, DIMS, 100);
    wire_int(&weight, DATA_TYPE, 1);
    wire_bytes(&weight, RAW, values, sizeof values);
    wire_text(&weight, NAME, "w");
    wire_message(&graph, GRAPH_NODE, &node);
    wire_message(&graph, GRAPH_INITIALIZER, &weight);
    wire_text(&graph, GRAPH_DOC, "two\nlines");
    wire_int(&opset, 2, 17);
    wire model = model_of(&graph);
    wire_message(&model, MODEL_OPSET, &opset);
    return model;
}

/* ---- well-formed ----------------------------------------------------------------------------- */

static void test_small_model_is_decoded(void **state)
{
    wire bytes = small_model();
    ProtobufCMessage *message;
    assert_int_equal(decode(*state, &onnx__model_proto__descriptor, &bytes, &message), AMPC_OK);
    const Onnx__ModelProto *model = (const Onnx__ModelProto *)message;
    const Onnx__NodeProto *node = model->graph->node[0];
    assert_int_equal(model->opset_import[0]->version, 17);
    assert_int_equal(node->n_input, 2);
    assert_string_equal(node->input[1], "");
    assert_string_equal(node->output[0], "y\xc3\xa9");
    assert_string_equal(node->name, "");
    assert_string_equal(node->domain, "");
    assert_int_equal(node->attribute[0]->i, -1);
    assert_true(node->attribute[0]->ints[1] == INT64_MIN);
    assert_string_equal(model->graph->doc_string, "two\nlines");
    assert_int_equal(model->graph->initializer[0]->raw_data.len, 0);
    assert_int_equal(model->graph->initializer[0]->lifted_length, 400);
    assert_int_equal(model->graph->initializer[0]->lifted_field, RAW);
}

static void test_unknown_fields_are_dropped(void **state)
{
    wire graph = {0}, tensor = {0};
    wire_int(&tensor, 10001, 9); /* our own fields are never read from a file */
    wire_int(&tensor, 10002, 1 << 20);
    wire_int(&tensor, 10003, 1 << 20);
    wire_message(&graph, GRAPH_INITIALIZER, &tensor);
    wire_text(&graph, 999, "from a later version");
    wire_tag(&graph, 998, 1);
    wire_raw(&graph, "12345678", 8);
    wire_float(&graph, 997, 1);
    wire bytes = model_of(&graph);
    ProtobufCMessage *message;
    assert_int_equal(decode(*state, &onnx__model_proto__descriptor, &bytes, &message), AMPC_OK);
    const Onnx__GraphProto *decoded = ((const Onnx__ModelProto *)message)->graph;
    assert_false(decoded->initializer[0]->has_lifted_field);
    assert_int_equal(decoded->base.n_unknown_fields, 0);
}

static void test_packed_and_unpacked_lists_are_the_same(void **state)
{
    wire packed = {0}, attribute = {0}, node = {0};
    for (int i = 0; i < 300; i++) wire_varint(&packed, (uint64_t)i * 1000);
    wire_message(&attribute, ATTRIBUTE_INTS, &packed);
    wire_int(&attribute, ATTRIBUTE_INTS, 7);
    wire_message(&node, NODE_ATTRIBUTE, &attribute);
    wire bytes = model_of_node(&node);
    ProtobufCMessage *message;
    assert_int_equal(decode(*state, &onnx__model_proto__descriptor, &bytes, &message), AMPC_OK);
    const Onnx__AttributeProto *a = ((const Onnx__ModelProto *)message)->graph->node[0]->attribute[0];
    assert_int_equal(a->n_ints, 301);
    assert_int_equal(a->ints[299], 299000);
    assert_int_equal(a->ints[300], 7);
}

static void test_empty_message_is_decoded(void **state)
{
    ProtobufCMessage *message;
    assert_int_equal(decode(*state, &onnx__model_proto__descriptor, &(wire){0}, &message), AMPC_OK);
    assert_null(((const Onnx__ModelProto *)message)->graph);
}

/* ---- malformed ------------------------------------------------------------------------------- */

static void test_truncation_at_every_byte(void **state)
{
    wire whole = small_model();
    size_t accepted = 0;
    for (size_t n = 0; n < whole.size; n++) {
        wire part = {0};
        wire_raw(&part, whole.bytes, n);
        ProtobufCMessage *message;
        ampc_status status = decode(*state, &onnx__model_proto__descriptor, &part, &message);
        assert_true(status == AMPC_OK || status == AMPC_REJECTED);
        accepted += status == AMPC_OK;
    }
    assert_int_equal(accepted, 3); /* at the boundaries of the model's three fields it is complete */
    wire_free(&whole);
}

static void test_every_byte_changed(void **state)
{
    wire whole = small_model();
    for (size_t n = 0; n < whole.size; n++) {
        for (unsigned value = 1; value < 256; value += 6) {
            wire other = {0};
            wire_raw(&other, whole.bytes, whole.size);
            other.bytes[n] ^= (uint8_t)value;
            ProtobufCMessage *message;
            ampc_status status = decode(*state, &onnx__model_proto__descriptor, &other, &message);
            assert_true(status == AMPC_OK || status == AMPC_REJECTED);
        }
    }
    wire_free(&whole);
}

/* Returns graph -> node -> attribute -> graph -> ... , `levels` times, built from the inside out. */
static wire nested_model(int levels)
{
    wire reversed = {0};
    size_t length = 0;
    static const uint8_t fields[] = {ATTRIBUTE_G, NODE_ATTRIBUTE, GRAPH_NODE};
    for (int i = 0; i < levels * 3; i++) { /* written backwards: length, then tag, byte order reversed */
        wire head = {0};
        wire_tag(&head, fields[i % 3], 2);
        wire_varint(&head, length);
        for (size_t k = head.size; k > 0; k--) wire_raw(&reversed, head.bytes + k - 1, 1);
        length += head.size;
        wire_free(&head);
    }
    wire graph = {0};
    for (size_t k = reversed.size; k > 0; k--) wire_raw(&graph, reversed.bytes + k - 1, 1);
    wire_free(&reversed);
    return model_of(&graph);
}

static void test_depth(void **state)
{
    ProtobufCMessage *message;
    wire shallow = nested_model(32);
    assert_int_equal(decode(*state, &onnx__model_proto__descriptor, &shallow, &message), AMPC_OK);
    wire deep = nested_model(34);
    assert_refused(*state, &deep, "graph.node[0].attribute[0].g.node[0]");
    wire deepest = nested_model(30000);
    assert_refused(*state, &deepest, "messages are nested more than 100 deep");
}

static void test_empty_messages_are_bounded(void **state)
{
    fixture *x = *state;
    wire node = {0};
    wire_text(&node, NODE_NAME, "many");
    for (int i = 0; i < 1000000; i++) wire_bytes(&node, NODE_ATTRIBUTE, NULL, 0);
    wire bytes = model_of_node(&node);
    assert_refused(x, &bytes, "decoding needs");
    assert_true(arena_used(x->a) < (1 << 20)); /* rejected before anything was decoded */
}

static void test_a_million_empty_names_fit_the_budget_or_are_refused(void **state)
{
    fixture *x = *state;
    wire node = {0};
    for (int i = 0; i < 1000000; i++) wire_text(&node, NODE_INPUT, "");
    wire bytes = model_of_node(&node);
    ProtobufCMessage *message;
    ampc_status status = decode(x, &onnx__model_proto__descriptor, &bytes, &message);
    assert_true(status == AMPC_REJECTED || arena_used(x->a) < (size_t)112 << 20);
}

static void test_bad_varints(void **state)
{
    wire tag = {0}, value = {0}, length = {0};
    wire_raw(&tag, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11);
    assert_refused(*state, &tag, "not a field");
    wire_tag(&value, MODEL_IR_VERSION, 0);
    wire_raw(&value, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10); /* 65 bits */
    assert_refused(*state, &value, "ir_version is not a valid varint");
    wire_tag(&length, MODEL_GRAPH, 2);
    wire_raw(&length, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10);
    assert_refused(*state, &length, "graph has a length of 18446744073709551615 bytes, but only 0 are left");
    wire zero = {0};
    wire_raw(&zero, "\0\0", 2);
    assert_refused(*state, &zero, "not a field");
}

static void test_wrong_wire_types(void **state)
{
    wire group = {0}, name = {0}, version = {0}, inner = {0};
    wire_raw(&group, "\x3b\x3c", 2); /* field 7 as a group */
    assert_refused(*state, &group, "field 7 has the unsupported wire type 3");
    wire_int(&inner, GRAPH_NAME, 1);
    name = model_of(&inner);
    assert_refused(*state, &name, "graph, byte 5: name has the wire type 0 instead of 2");
    wire_text(&version, MODEL_IR_VERSION, "8");
    assert_refused(*state, &version, "ir_version has the wire type 2 instead of 0");
}

static void test_duplicates(void **state)
{
    wire graphs = {0}, name = {0}, node = {0};
    wire_bytes(&graphs, MODEL_GRAPH, NULL, 0);
    wire_bytes(&graphs, MODEL_GRAPH, NULL, 0);
    assert_refused(*state, &graphs, "graph is set twice");
    wire_text(&node, NODE_NAME, "a");
    wire_text(&node, NODE_NAME, "b");
    name = model_of_node(&node);
    assert_refused(*state, &name, "m.onnx: node 'a': error: graph.node[0], byte");
    wire type = {0}, info = {0}, graph = {0};
    wire_bytes(&type, 1, NULL, 0); /* tensor_type */
    wire_bytes(&type, 4, NULL, 0); /* sequence_type of the same oneof */
    wire_message(&info, 2, &type);
    wire_message(&graph, GRAPH_INPUT, &info);
    wire both = model_of(&graph);
    assert_refused(*state, &both, "graph.input[0].type, byte 11: sequence_type is set twice");
}

static void test_bad_enums_and_integers(void **state)
{
    wire attribute = {0}, node = {0}, tensor = {0}, graph = {0};
    wire_int(&attribute, ATTRIBUTE_TYPE, 99);
    wire_message(&node, NODE_ATTRIBUTE, &attribute);
    wire bytes = model_of_node(&node);
    assert_refused(*state, &bytes, "graph.node[0].attribute[0], byte 11: type has the unknown value 99");
    wire_int(&tensor, DATA_TYPE, (int64_t)1 << 32 | 1);
    wire_message(&graph, GRAPH_INITIALIZER, &tensor);
    bytes = model_of(&graph);
    assert_refused(*state, &bytes, "data_type is not a 32-bit integer");
}

static void test_bad_names(void **state)
{
    static const struct {
        const char *text;
        size_t length;
        const char *part;
    } rows[] = {
        {"w\0x", 3, "name contains a NUL byte"},
        {"w\nx", 3, "name contains the control character 0x0a"},
        {"\x1b[2J", 4, "name contains the control character 0x1b"},
        {"\xc2\x9b", 2, "name contains the control character 0x9b"},
        {"\xff", 1, "name is not valid UTF-8"},
        {"\xc0\x80", 2, "name is not valid UTF-8"},     /* overlong */
        {"\xed\xa0\x80", 3, "name is not valid UTF-8"}, /* surrogate */
        {"\xe2\x82", 2, "name is not valid UTF-8"},     /* truncated */
        {"\xf4\x90\x80\x80", 4, "name is not valid UTF-8"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wire node = {0};
        wire_bytes(&node, NODE_NAME, rows[i].text, rows[i].length);
        wire bytes = model_of_node(&node);
        assert_refused(*state, &bytes, rows[i].part);
    }
    char longest[ONNX_MAX_NAME + 1];
    memset(longest, 'n', sizeof longest);
    wire fits = {0}, over = {0};
    wire_bytes(&fits, NODE_NAME, longest, ONNX_MAX_NAME);
    wire bytes = model_of_node(&fits);
    ProtobufCMessage *message;
    assert_int_equal(decode(*state, &onnx__model_proto__descriptor, &bytes, &message), AMPC_OK);
    wire_bytes(&over, NODE_NAME, longest, ONNX_MAX_NAME + 1);
    bytes = model_of_node(&over);
    assert_refused(*state, &bytes, "name is longer than 1024 bytes");
}

static void test_too_many_dims(void **state)
{
    wire tensor = {0}, graph = {0};
    for (int i = 0; i <= ONNX_MAX_DIMS; i++) wire_int(&tensor, DIMS, 1);
    wire_message(&graph, GRAPH_INITIALIZER, &tensor);
    wire bytes = model_of(&graph);
    assert_refused(*state, &bytes, "more than 64 dims");
}

static void test_second_payload(void **state)
{
    static const uint8_t zeros[1024];
    wire tensor = {0}, graph = {0};
    wire_bytes(&tensor, RAW, zeros, sizeof zeros);
    wire_bytes(&tensor, FLOATS, zeros, sizeof zeros);
    wire_message(&graph, GRAPH_INITIALIZER, &tensor);
    wire bytes = model_of(&graph);
    assert_refused(*state, &bytes, "second value field");
}

static void test_packed_values_cut_short(void **state)
{
    wire floats = {0}, ints = {0}, graph = {0};
    wire_bytes(&floats, FLOATS, "12345", 5);
    wire_message(&graph, GRAPH_INITIALIZER, &floats);
    wire bytes = model_of(&graph);
    assert_refused(*state, &bytes, "float_data ends within a value");
    wire_bytes(&ints, INT64S, "\x80", 1);
    wire_message(&graph, GRAPH_INITIALIZER, &ints);
    bytes = model_of(&graph);
    assert_refused(*state, &bytes, "int64_data ends within a value");
}

/* ---- tensors --------------------------------------------------------------------------------- */

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

static wire tensor_head(int type, int64_t n)
{
    wire w = {0};
    if (n >= 0) wire_int(&w, DIMS, n);
    wire_int(&w, DATA_TYPE, type);
    wire_text(&w, NAME, "t");
    return w;
}

static wire packed_of(const int64_t *values, size_t n)
{
    wire w = {0};
    for (size_t i = 0; i < n; i++) wire_varint(&w, (uint64_t)values[i]);
    return w;
}

/* Every integer type from its typed field, inline and lifted out by the pre-scan. */
static void test_typed_integers(void **state)
{
    static const struct {
        int type;
        uint32_t field;
        int64_t low, high;
        ir_dtype dtype;
    } rows[] = {
        {ONNX_uint8, INT32S, 0, 255, IR_u8},
        {ONNX_int8, INT32S, -128, 127, IR_i8},
        {ONNX_int16, INT32S, -32768, 32767, IR_i16},
        {ONNX_int32, INT32S, INT32_MIN, INT32_MAX, IR_i32},
        {ONNX_int64, INT64S, INT64_MIN, INT64_MAX, IR_i64},
        {ONNX_bool, INT32S, 0, 1, IR_bool},
        {ONNX_float16, INT32S, 0, 65535, IR_f16},
        {ONNX_bfloat16, INT32S, 0, 65535, IR_bf16},
        {ONNX_uint16, INT32S, 0, 65535, IR_NO_DTYPE},
        {ONNX_uint32, UINT64S, 0, UINT32_MAX, IR_NO_DTYPE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t n = 2; n <= 2000; n += 1998) {
            int64_t values[2000];
            for (size_t k = 0; k < n; k++) values[k] = k % 2 ? rows[i].high : rows[i].low;
            wire w = tensor_head(rows[i].type, (int64_t)n), packed = packed_of(values, n);
            wire_message(&w, rows[i].field, &packed);
            onnx_tensor t;
            assert_int_equal(describe(*state, &w, &t), AMPC_OK);
            assert_int_equal(t.dtype, rows[i].dtype);
            assert_int_equal(t.size, n * onnx_type_size(rows[i].type));
            size_t width = onnx_type_size(rows[i].type);
            assert_memory_equal(t.bytes, &rows[i].low, width);
            assert_memory_equal((const char *)t.bytes + (n - 1) * width, &rows[i].high, width);
            values[n - 1] = rows[i].high + (rows[i].high < INT64_MAX);
            if (values[n - 1] == INT64_MAX) continue;
            wire over = tensor_head(rows[i].type, (int64_t)n);
            packed = packed_of(values, n);
            wire_message(&over, rows[i].field, &packed);
            assert_int_equal(describe(*state, &over, &t), AMPC_REJECTED);
        }
    }
}

static void test_plain_values(void **state)
{
    static const float floats[] = {1.5f, -0.0f};
    static const double doubles[] = {1e300, -1};
    onnx_tensor t;
    wire w = tensor_head(ONNX_float32, 2);
    wire_bytes(&w, FLOATS, floats, sizeof floats);
    assert_int_equal(describe(*state, &w, &t), AMPC_OK);
    assert_memory_equal(t.bytes, floats, sizeof floats);
    w = tensor_head(ONNX_float32, 2);
    wire_float(&w, FLOATS, floats[0]); /* not packed */
    wire_float(&w, FLOATS, floats[1]);
    assert_int_equal(describe(*state, &w, &t), AMPC_OK);
    assert_memory_equal(t.bytes, floats, sizeof floats);
    w = tensor_head(ONNX_float64, 2);
    wire_bytes(&w, DOUBLES, doubles, sizeof doubles);
    assert_int_equal(describe(*state, &w, &t), AMPC_OK);
    assert_memory_equal(t.bytes, doubles, sizeof doubles);
    w = tensor_head(ONNX_complex64, 1);
    wire_bytes(&w, FLOATS, floats, sizeof floats);
    assert_int_equal(describe(*state, &w, &t), AMPC_OK);
    assert_int_equal(t.dtype, IR_NO_DTYPE);
    assert_int_equal(t.size, 8);
    w = tensor_head(ONNX_int64, -1); /* a scalar */
    wire_bytes(&w, RAW, "\1\0\0\0\0\0\0\0", 8);
    assert_int_equal(describe(*state, &w, &t), AMPC_OK);
    assert_int_equal(t.rank, 0);
    assert_int_equal(t.count, 1);
    assert_int_equal(*(const int64_t *)t.bytes, 1);
    w = tensor_head(ONNX_float32, 0); /* no elements, no data */
    assert_int_equal(describe(*state, &w, &t), AMPC_OK);
    assert_int_equal(t.count, 0);
    assert_non_null(t.bytes);
}

static void test_strings_and_small_types_have_no_values(void **state)
{
    onnx_tensor t;
    wire w = tensor_head(ONNX_string, 1);
    wire_text(&w, STRINGS, "text");
    assert_int_equal(describe(*state, &w, &t), AMPC_OK);
    assert_int_equal(t.dtype, IR_NO_DTYPE);
    assert_null(t.bytes);
    w = tensor_head(ONNX_int4, 3);
    wire_bytes(&w, RAW, "\x12\x03", 2);
    assert_int_equal(describe(*state, &w, &t), AMPC_OK);
    assert_null(t.bytes);
    assert_string_equal(onnx_type_name(t.type), "int4");
}

static void assert_tensor_refused(fixture *x, wire *w, ampc_status code, const char *part)
{
    onnx_tensor t;
    assert_int_equal(describe(x, w, &t), code);
    assert_int_equal(diag_count(x->d, DIAG_ERROR), 1);
    if (!strstr(diag_first_error(x->d), part)) fail_msg("\"%s\" is not in \"%s\"", part, diag_first_error(x->d));
}

static void test_bad_shapes(void **state)
{
    wire w = tensor_head(ONNX_float32, 0);
    wire_int(&w, DIMS, -1);
    assert_tensor_refused(*state, &w, AMPC_REJECTED, "tensor 't': dimension 1 is negative (-1)");
    w = tensor_head(ONNX_float32, INT64_MAX);
    assert_tensor_refused(*state, &w, AMPC_REJECTED, "number of elements exceeds 64 bits");
    w = tensor_head(ONNX_float32, (int64_t)1 << 32);
    wire_int(&w, DIMS, (int64_t)1 << 32);
    assert_tensor_refused(*state, &w, AMPC_REJECTED, "number of elements exceeds 64 bits");
    w = tensor_head(ONNX_float32, 1);
    for (int i = 0; i < ONNX_MAX_RANK; i++) wire_int(&w, DIMS, 1);
    assert_tensor_refused(*state, &w, AMPC_UNSUPPORTED, "rank 9 is not supported");
}

static void test_bad_values(void **state)
{
    wire w = tensor_head(ONNX_float32, 2);
    wire_bytes(&w, RAW, "1234", 4);
    assert_tensor_refused(*state, &w, AMPC_REJECTED, "4 bytes, but type and shape require 8");
    w = tensor_head(ONNX_float32, 2);
    wire_bytes(&w, RAW, "123456789abc", 12);
    assert_tensor_refused(*state, &w, AMPC_REJECTED, "12 bytes, but type and shape require 8");
    w = tensor_head(ONNX_int64, (int64_t)1 << 40);
    wire_bytes(&w, INT64S, "\1\2", 2);
    assert_tensor_refused(*state, &w, AMPC_REJECTED, "2 values, but type and shape require 1099511627776");
    w = tensor_head(ONNX_float32, (int64_t)1 << 40);
    assert_tensor_refused(*state, &w, AMPC_REJECTED, "0 bytes, but");
    w = tensor_head(ONNX_float32, 1);
    wire_bytes(&w, RAW, "1234", 4);
    wire_bytes(&w, FLOATS, "1234", 4);
    assert_tensor_refused(*state, &w, AMPC_REJECTED, "more than one field has values");
    w = tensor_head(ONNX_float32, 1);
    wire_bytes(&w, INT64S, "\1", 1);
    assert_tensor_refused(*state, &w, AMPC_REJECTED, "float32 values are in a field of the wrong type");
    w = tensor_head(ONNX_bool, 1);
    wire_bytes(&w, RAW, "\2", 1);
    assert_tensor_refused(*state, &w, AMPC_REJECTED, "value 2 at element 0 is not a valid bool");
    w = tensor_head(0, 1);
    assert_tensor_refused(*state, &w, AMPC_REJECTED, "data type 0 is unknown");
    w = tensor_head(99, 1);
    assert_tensor_refused(*state, &w, AMPC_REJECTED, "data type 99 is unknown");
    w = tensor_head(ONNX_float32, 1);
    wire_bytes(&w, SEGMENT, NULL, 0);
    assert_tensor_refused(*state, &w, AMPC_UNSUPPORTED, "segmented");
}

static void test_memory_ends_at_any_allocation(void **state)
{
    (void)state;
    wire bytes = small_model();
    for (uint64_t n = 1;; n++) {
        arena *a = arena_new(0);
        diag *d = diag_new(NULL, NULL);
        ProtobufCMessage *message;
        arena_fail_after(a, n);
        ampc_status status = onnx_decode(a, &onnx__model_proto__descriptor, (onnx_bytes){bytes.bytes, bytes.size, NULL},
                                         "m", d, &message);
        arena_free(a);
        diag_free(d);
        if (status == AMPC_OK) break;
        assert_int_equal(status, AMPC_NO_MEMORY);
        assert_in_range(n, 1, 1000);
    }
    wire_free(&bytes);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void test_bad_files(void **state)
{
    fixture *x = *state;
    static const struct {
        const char *path, *part;
        ampc_status code;
    } rows[] = {
        {"/nonexistent/m.onnx", "/nonexistent/m.onnx: error: cannot be opened: No such file", AMPC_IO},
        {"/", "not a regular file", AMPC_IO},
        {"/dev/null", "not a regular file", AMPC_IO},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        onnx_file *f;
        diag_clear(x->d);
        assert_int_equal(onnx_file_open(rows[i].path, x->d, &f), rows[i].code);
        assert_null(f);
        assert_non_null(strstr(diag_first_error(x->d), rows[i].part));
    }
}

static char *temporary_file(const void *bytes, size_t n)
{
    char *path = strdup("/tmp/ampc-test-XXXXXX");
    assert_non_null(path);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_true(write(fd, bytes, n) == (ssize_t)n);
    close(fd);
    return path;
}

enum { LARGE = 1 << 20 }; /* floats: a file above the size limit for reading it completely */

/* Returns a model with one initializer of values 0 .. LARGE - 1. The caller frees both. */
static char *large_model(wire *bytes, float **values)
{
    *values = malloc(LARGE * sizeof **values);
    assert_non_null(*values);
    for (int i = 0; i < LARGE; i++) (*values)[i] = (float)i;
    wire w = tensor_head(ONNX_float32, LARGE), graph = {0};
    wire_bytes(&w, FLOATS, *values, LARGE * sizeof **values);
    wire_message(&graph, GRAPH_INITIALIZER, &w);
    *bytes = model_of(&graph);
    return temporary_file(bytes->bytes, bytes->size);
}

static void drop_large_model(char *path, wire *bytes, float *values)
{
    unlink(path);
    free(path);
    free(values);
    wire_free(bytes);
}

/* The weights stay in the file and are read correctly. */
static void test_large_file_is_read_in_parts(void **state)
{
    fixture *x = *state;
    float *values;
    wire bytes;
    char *path = large_model(&bytes, &values);
    onnx_file *f;
    onnx_tensor t;
    if (setjmp(x->guard)) fail_msg("out of memory");
    arena_set_guard(x->a, &x->guard);
    assert_int_equal(onnx_file_open(path, x->d, &f), AMPC_OK);
    assert_non_null(f->bytes.image);
    assert_int_equal(onnx_tensor_describe(x->a, f, f->model->graph->initializer[0], x->d, &t), AMPC_OK);
    assert_null(t.bytes);
    assert_string_equal(t.path, path);
    assert_memory_equal(bytes.bytes + t.offset, values, t.size);
    assert_int_equal(onnx_tensor_load(x->a, f, &t, x->d), AMPC_OK);
    assert_null(t.path);
    assert_memory_equal(t.bytes, values, t.size);
    onnx_file_close(f);
    drop_large_model(path, &bytes, values);
}

/* If a file shrinks while it is open, reading fails with an error; a mapping would raise a signal. */
static void test_large_file_is_truncated(void **state)
{
    fixture *x = *state;
    enum { LEFT = 1 << 16 };
    float *values;
    wire bytes;
    char *path = large_model(&bytes, &values);
    onnx_file *f;
    onnx_tensor t;
    if (setjmp(x->guard)) fail_msg("out of memory");
    arena_set_guard(x->a, &x->guard);
    assert_int_equal(onnx_file_open(path, x->d, &f), AMPC_OK);
    assert_int_equal(truncate(path, LEFT), 0);
    assert_int_equal(onnx_tensor_describe(x->a, f, f->model->graph->initializer[0], x->d, &t), AMPC_OK);
    assert_int_equal(onnx_tensor_load(x->a, f, &t, x->d), AMPC_IO);
    assert_non_null(strstr(diag_first_error(x->d), "was truncated"));
    diag_clear(x->d);
    assert_int_equal(onnx_bytes_need(&f->bytes, f->bytes.data + LEFT, 1, x->d), AMPC_IO);
    onnx_file_close(f);
    drop_large_model(path, &bytes, values);
}

static fixture *walking;
static size_t walked, failed;

static int visit(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)where;
    size_t n = strlen(path);
    if (kind != FTW_F || n < 5 || strcmp(path + n - 5, ".onnx") != 0) return 0;
    onnx_file *f;
    walked++;
    diag_clear(walking->d);
    ampc_status status = onnx_file_open(path, walking->d, &f);
    const Onnx__GraphProto *g = status == AMPC_OK ? f->model->graph : NULL;
    for (size_t i = 0; g && status == AMPC_OK && i < g->n_initializer; i++) {
        onnx_tensor t;
        status = onnx_tensor_describe(walking->a, f, g->initializer[i], walking->d, &t);
        if (status == AMPC_OK) status = onnx_tensor_load(walking->a, f, &t, walking->d);
    }
    onnx_file_close(f);
    if (status != AMPC_OK) print_error("%s\n", diag_first_error(walking->d));
    failed += status != AMPC_OK;
    return 0;
}

static void test_every_model_of_the_corpus_decodes(void **state)
{
    walking = *state;
    if (setjmp(walking->guard)) fail_msg("out of memory");
    arena_set_guard(walking->a, &walking->guard);
    nftw("/usr/share/libonnx-testdata/data", visit, 16, FTW_PHYS);
    if (!walked) skip();
    assert_int_equal(failed, 0);
    assert_true(walked >= 1000);
}

static void test_bare_tensor_file(void **state)
{
    fixture *x = *state;
    wire w = tensor_head(ONNX_float32, 100);
    float values[100] = {3, 2, 1};
    wire_bytes(&w, RAW, values, sizeof values);
    char *path = temporary_file(w.bytes, w.size);
    onnx_tensor t;
    if (setjmp(x->guard)) fail_msg("out of memory");
    arena_set_guard(x->a, &x->guard);
    assert_int_equal(onnx_tensor_read_file(x->a, path, x->d, &t), AMPC_OK);
    assert_string_equal(t.name, "t");
    assert_memory_equal(t.bytes, values, sizeof values);
    unlink(path);
    free(path);
    wire_free(&w);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_small_model_is_decoded),
        T(test_unknown_fields_are_dropped),
        T(test_packed_and_unpacked_lists_are_the_same),
        T(test_empty_message_is_decoded),
        T(test_truncation_at_every_byte),
        T(test_every_byte_changed),
        T(test_depth),
        T(test_empty_messages_are_bounded),
        T(test_a_million_empty_names_fit_the_budget_or_are_refused),
        T(test_bad_varints),
        T(test_wrong_wire_types),
        T(test_duplicates),
        T(test_bad_enums_and_integers),
        T(test_bad_names),
        T(test_too_many_dims),
        T(test_second_payload),
        T(test_packed_values_cut_short),
        T(test_typed_integers),
        T(test_plain_values),
        T(test_strings_and_small_types_have_no_values),
        T(test_bad_shapes),
        T(test_bad_values),
        T(test_memory_ends_at_any_allocation),
        T(test_bad_files),
        T(test_large_file_is_read_in_parts),
        T(test_large_file_is_truncated),
        T(test_every_model_of_the_corpus_decodes),
        T(test_bare_tensor_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
