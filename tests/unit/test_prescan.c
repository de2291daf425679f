/* test_prescan.c - valid and invalid model bytes through pre-scan and parser. */
#include "tests/unit/prescan_fixture.h"

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

/* model { graph { node { inner } } } */
static wire model_of_node(wire *node)
{
    wire graph = {0};
    wire_message(&graph, GRAPH_NODE, node);
    return model_of(&graph);
}

/* ---- well-formed ----------------------------------------------------------------------------- */

TEST_PRESCAN(test_small_model_is_decoded)
{
    wire bytes = small_model();
    ProtobufCMessage *message;
    assert_int_equal(decode(x, &onnx__model_proto__descriptor, &bytes, &message), AMPC_OK);
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
    assert_int_equal(model->graph->initializer[0]->lifted_field, TENSOR_RAW_DATA);
}

TEST_PRESCAN(test_unknown_fields_are_dropped)
{
    wire graph = {0}, tensor = {0};
    wire_int(&tensor, TENSOR_LIFTED_FIELD, 9); /* private fields are never read from a file */
    wire_int(&tensor, 10002, 1 << 20);
    wire_int(&tensor, 10003, 1 << 20);
    wire_message(&graph, GRAPH_INITIALIZER, &tensor);
    wire_text(&graph, 999, "from a later version");
    wire_tag(&graph, 998, 1);
    wire_raw(&graph, "12345678", 8);
    wire_float(&graph, 997, 1);
    wire bytes = model_of(&graph);
    ProtobufCMessage *message;
    assert_int_equal(decode(x, &onnx__model_proto__descriptor, &bytes, &message), AMPC_OK);
    const Onnx__GraphProto *decoded = ((const Onnx__ModelProto *)message)->graph;
    assert_false(decoded->initializer[0]->has_lifted_field);
    assert_int_equal(decoded->base.n_unknown_fields, 0);
}

TEST_PRESCAN(test_packed_and_unpacked_lists_are_the_same)
{
    wire packed = {0}, attribute = {0}, node = {0};
    for (int i = 0; i < 300; i++) wire_varint(&packed, (uint64_t)i * 1000);
    wire_message(&attribute, ATTRIBUTE_INTS, &packed);
    wire_int(&attribute, ATTRIBUTE_INTS, 7);
    wire_message(&node, NODE_ATTRIBUTE, &attribute);
    wire bytes = model_of_node(&node);
    ProtobufCMessage *message;
    assert_int_equal(decode(x, &onnx__model_proto__descriptor, &bytes, &message), AMPC_OK);
    const Onnx__AttributeProto *a = ((const Onnx__ModelProto *)message)->graph->node[0]->attribute[0];
    assert_int_equal(a->n_ints, 301);
    assert_int_equal(a->ints[299], 299000);
    assert_int_equal(a->ints[300], 7);
}

TEST_PRESCAN(test_empty_message_is_decoded)
{
    ProtobufCMessage *message;
    assert_int_equal(decode(x, &onnx__model_proto__descriptor, &(wire){0}, &message), AMPC_OK);
    assert_null(((const Onnx__ModelProto *)message)->graph);
}

/* ---- malformed ------------------------------------------------------------------------------- */

TEST_PRESCAN(test_truncation_at_every_byte)
{
    wire full = small_model();
    size_t accepted = 0;
    for (size_t n = 0; n < full.size; n++) {
        wire part = {0};
        wire_raw(&part, full.bytes, n);
        ProtobufCMessage *message;
        ampc_status status = decode(x, &onnx__model_proto__descriptor, &part, &message);
        assert_true(status == AMPC_OK || status == AMPC_REJECTED);
        accepted += status == AMPC_OK;
    }
    assert_int_equal(accepted, 3); /* at the boundaries of the model's three fields it is complete */
    wire_free(&full);
}

TEST_PRESCAN(test_every_byte_changed)
{
    wire full = small_model();
    for (size_t n = 0; n < full.size; n++) {
        for (unsigned value = 1; value < 256; value += 6) {
            wire other = {0};
            wire_raw(&other, full.bytes, full.size);
            other.bytes[n] ^= (uint8_t)value;
            ProtobufCMessage *message;
            ampc_status status = decode(x, &onnx__model_proto__descriptor, &other, &message);
            assert_true(status == AMPC_OK || status == AMPC_REJECTED);
        }
    }
    wire_free(&full);
}

/* Returns graph -> node -> attribute -> graph -> ... , `levels` times, built from the innermost level. */
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

TEST_PRESCAN(test_depth)
{
    ProtobufCMessage *message;
    wire shallow = nested_model(32);
    assert_int_equal(decode(x, &onnx__model_proto__descriptor, &shallow, &message), AMPC_OK);
    wire deep = nested_model(34);
    assert_refused(x, &deep, "graph.node[0].attribute[0].g.node[0]");
    wire deepest = nested_model(30000);
    assert_refused(x, &deepest, "messages are nested more than 100 deep");
}

TEST_PRESCAN(test_empty_messages_are_bounded)
{
    wire node = {0};
    wire_text(&node, NODE_NAME, "many");
    for (int i = 0; i < 1000000; i++) wire_bytes(&node, NODE_ATTRIBUTE, NULL, 0);
    wire bytes = model_of_node(&node);
    assert_refused(x, &bytes, "decoding needs");
    assert_true(arena_used(x->a) < (1 << 20)); /* rejected before anything was decoded */
}

TEST_PRESCAN(test_a_million_empty_names_fit_the_budget_or_are_refused)
{
    wire node = {0};
    for (int i = 0; i < 1000000; i++) wire_text(&node, NODE_INPUT, "");
    wire bytes = model_of_node(&node);
    ProtobufCMessage *message;
    ampc_status status = decode(x, &onnx__model_proto__descriptor, &bytes, &message);
    assert_true(status == AMPC_REJECTED || arena_used(x->a) < (size_t)112 << 20);
}

TEST_PRESCAN(test_bad_varints)
{
    wire tag = {0}, value = {0}, length = {0};
    wire_raw(&tag, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11);
    assert_refused(x, &tag, "not a field");
    wire_tag(&value, MODEL_IR_VERSION, 0);
    wire_raw(&value, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10); /* 65 bits */
    assert_refused(x, &value, "ir_version is not a valid varint");
    wire_tag(&length, MODEL_GRAPH, 2);
    wire_raw(&length, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10);
    assert_refused(x, &length, "graph has a length of 18446744073709551615 bytes, but only 0 are left");
    wire zero = {0};
    wire_raw(&zero, "\0\0", 2);
    assert_refused(x, &zero, "not a field");
}

TEST_PRESCAN(test_wrong_wire_types)
{
    wire group = {0}, name = {0}, version = {0}, inner = {0};
    wire_raw(&group, "\x3b\x3c", 2); /* field 7 as a group */
    assert_refused(x, &group, "field 7 has the unsupported wire type 3");
    wire_int(&inner, GRAPH_NAME, 1);
    name = model_of(&inner);
    assert_refused(x, &name, "graph, byte 5: name has the wire type 0 instead of 2");
    wire_text(&version, MODEL_IR_VERSION, "8");
    assert_refused(x, &version, "ir_version has the wire type 2 instead of 0");
}

TEST_PRESCAN(test_duplicates)
{
    wire graphs = {0}, name = {0}, node = {0};
    wire_bytes(&graphs, MODEL_GRAPH, NULL, 0);
    wire_bytes(&graphs, MODEL_GRAPH, NULL, 0);
    assert_refused(x, &graphs, "graph is set twice");
    wire_text(&node, NODE_NAME, "a");
    wire_text(&node, NODE_NAME, "b");
    name = model_of_node(&node);
    assert_refused(x, &name, "m.onnx: node 'a': error: graph.node[0], byte");
    wire type = {0}, info = {0}, graph = {0};
    wire_bytes(&type, 1, NULL, 0); /* tensor_type */
    wire_bytes(&type, 4, NULL, 0); /* sequence_type of the same oneof */
    wire_message(&info, 2, &type);
    wire_message(&graph, GRAPH_INPUT, &info);
    wire both = model_of(&graph);
    assert_refused(x, &both, "graph.input[0].type, byte 11: sequence_type is set twice");
}

TEST_PRESCAN(test_bad_enums_and_integers)
{
    wire attribute = {0}, node = {0}, tensor = {0}, graph = {0};
    wire_int(&attribute, ATTRIBUTE_TYPE, 99);
    wire_message(&node, NODE_ATTRIBUTE, &attribute);
    wire bytes = model_of_node(&node);
    assert_refused(x, &bytes, "graph.node[0].attribute[0], byte 11: type has the unknown value 99");
    wire_int(&tensor, TENSOR_DATA_TYPE, (int64_t)1 << 32 | 1);
    wire_message(&graph, GRAPH_INITIALIZER, &tensor);
    bytes = model_of(&graph);
    assert_refused(x, &bytes, "data_type is not a 32-bit integer");
}

TEST_PRESCAN(test_bad_names)
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
        assert_refused(x, &bytes, rows[i].part);
    }
    char longest[ONNX_MAX_NAME + 1];
    memset(longest, 'n', sizeof longest);
    wire fits = {0}, over = {0};
    wire_bytes(&fits, NODE_NAME, longest, ONNX_MAX_NAME);
    wire bytes = model_of_node(&fits);
    ProtobufCMessage *message;
    assert_int_equal(decode(x, &onnx__model_proto__descriptor, &bytes, &message), AMPC_OK);
    wire_bytes(&over, NODE_NAME, longest, ONNX_MAX_NAME + 1);
    bytes = model_of_node(&over);
    assert_refused(x, &bytes, "name is longer than 1024 bytes");
}

TEST_PRESCAN(test_too_many_dims)
{
    wire tensor = {0}, graph = {0};
    for (int i = 0; i <= ONNX_MAX_DIMS; i++) wire_int(&tensor, TENSOR_DIMS, 1);
    wire_message(&graph, GRAPH_INITIALIZER, &tensor);
    wire bytes = model_of(&graph);
    assert_refused(x, &bytes, "more than 64 dims");
}

TEST_PRESCAN(test_second_payload)
{
    static const uint8_t zeros[1024];
    wire tensor = {0}, graph = {0};
    wire_bytes(&tensor, TENSOR_RAW_DATA, zeros, sizeof zeros);
    wire_bytes(&tensor, TENSOR_FLOAT_DATA, zeros, sizeof zeros);
    wire_message(&graph, GRAPH_INITIALIZER, &tensor);
    wire bytes = model_of(&graph);
    assert_refused(x, &bytes, "second value field");
}

TEST_PRESCAN(test_truncated_packed_values)
{
    wire floats = {0}, ints = {0}, graph = {0};
    wire_bytes(&floats, TENSOR_FLOAT_DATA, "12345", 5);
    wire_message(&graph, GRAPH_INITIALIZER, &floats);
    wire bytes = model_of(&graph);
    assert_refused(x, &bytes, "float_data ends within a value");
    wire_bytes(&ints, TENSOR_INT64_DATA, "\x80", 1);
    wire_message(&graph, GRAPH_INITIALIZER, &ints);
    bytes = model_of(&graph);
    assert_refused(x, &bytes, "int64_data ends within a value");
}
