/* test_bodies.c - bodies that the importer lowers in place of a node: gradients through the iterations of Loop and Scan,
 * parameters of functions and bodies, sequences, and what is refused.
 */
#include "frontend/onnx.h"
#include "tests/unit/numeric_gradients.h"

#include <math.h>

enum { MAX_TRIPS = 17 };

/* ---- models -------------------------------------------------------------------------------------- */

static wire scalar(const char *name, int type, int64_t v)
{
    const uint8_t flag = v != 0;
    return type == ONNX_bool ? tensor_new(name, type, "", &flag, 1) : tensor_new(name, type, "", &v, sizeof v);
}

/* h' = tanh(h * w + s); stacks h' * s. In a Loop, s = Gather(slices, i). */
static model recurrence(bool gathers)
{
    model body = model_new(17);
    if (gathers) {
        model_input(&body, "i", ONNX_int64, "");
        model_input(&body, "go", ONNX_bool, "");
    }
    model_input(&body, "h", ONNX_float64, "2,3");
    if (!gathers) model_input(&body, "s", ONNX_float64, "2,3");
    if (gathers) model_node(&body, "Gather", "slices,i", "s");
    if (gathers) model_node(&body, "Identity", "go", "going");
    model_node(&body, "Mul", "h,w", "hw");
    model_node(&body, "Add", "hw,s", "sum");
    model_node(&body, "Tanh", "sum", "next");
    model_node(&body, "Mul", "next,s", "row");
    if (gathers) model_output(&body, "going", ONNX_bool, "");
    model_output(&body, "next", ONNX_float64, "2,3");
    model_output(&body, "row", ONNX_float64, "2,3");
    return body;
}

/* The main graph; with no iteration, a Loop still needs a slice to gather from. */
static model with_slices(int trips)
{
    char dims[16];
    model m = model_new(17);
    snprintf(dims, sizeof dims, "%d,2,3", trips);
    model_input(&m, "x", ONNX_float64, "2,3");
    model_input(&m, "w", ONNX_float64, "2,3");
    model_input(&m, "slices", ONNX_float64, dims);
    model_output(&m, "last", 0, NULL);
    model_output(&m, "rows", 0, NULL);
    return m;
}

static wire loop_of(int trips)
{
    model m = with_slices(trips ? trips : 1), body = recurrence(true);
    node n = node_new("Loop", "trips,,x", "last,rows");
    model_tensor(&m, scalar("trips", ONNX_int64, trips));
    node_graph(&n, "body", &body);
    model_add(&m, &n);
    return model_finish(&m);
}

static wire scan_of(int trips)
{
    model m = with_slices(trips), body = recurrence(false);
    node n = node_new("Scan", "x,slices", "last,rows");
    node_int(&n, "num_scan_inputs", 1);
    node_ints(&n, "scan_input_directions", "1");
    node_ints(&n, "scan_output_axes", "-1");
    node_graph(&n, "body", &body);
    model_add(&m, &n);
    return model_finish(&m);
}

/* ---- gradients ----------------------------------------------------------------------------------- */

static bool only_x(const char *input) { return strcmp(input, "x") == 0; }
static bool every(const char *input) { return *input != 0; }

static const int trip_counts[] = {0, 1, MAX_TRIPS};

TEST_SCRATCH(test_loop_gradients)
{
    for (size_t i = 0; i < 3; i++) check_gradients(t, loop_of(trip_counts[i]), trip_counts[i] ? every : only_x);
}

TEST_SCRATCH(test_scan_gradients)
{
    for (size_t i = 0; i < 3; i++) check_gradients(t, scan_of(trip_counts[i]), trip_counts[i] ? every : only_x);
}

/* ---- functions ----------------------------------------------------------------------------------- */

static void add_import(wire *f, const char *domain, int version)
{
    wire set = {0};
    if (domain) wire_text(&set, 1, domain);
    wire_int(&set, 2, version);
    wire_message(f, 9, &set);
}

/* A function of domain "own" with inputs "a,b", output "y" and one node. */
static void add_function(model *m, const char *name, const char *attribute, node *n)
{
    wire f = {0};
    wire_text(&f, 1, name);
    wire_text(&f, 4, "a");
    wire_text(&f, 4, "b");
    wire_text(&f, 5, "y");
    if (attribute) wire_text(&f, 6, attribute);
    wire_message(&f, 7, n);
    add_import(&f, NULL, 17);
    add_import(&f, "own", 1);
    wire_text(&f, 10, "own");
    wire_message(&m->functions, 25, &f);
}

static node call_of(const char *function, const char *name, const char *inputs, const char *outputs)
{
    node n = node_new(function, inputs, outputs);
    wire_text(&n, 3, name);
    wire_text(&n, 7, "own");
    return n;
}

static void refer(node *n, const char *attribute, int type, const char *to)
{
    wire reference = {0};
    wire_text(&reference, 21, to);
    node_attr(n, attribute, type, &reference);
}

static model main_graph(void)
{
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "2,3");
    model_output(&m, "z", 0, NULL);
    return m;
}

/* layer(x, w) = Gemm(x, w) with transB of the call; clip(x, min) = Clip(x, min), without an operand for min */
static wire two_layers(void)
{
    const float weights[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    model m = main_graph();
    node gemm = node_new("Gemm", "a,b", "y"), clip = node_new("Clip", "a,b", "y");
    refer(&gemm, "transB", 2, "transposed");
    add_function(&m, "Layer", "transposed", &gemm);
    add_function(&m, "Bounded", NULL, &clip);
    model_tensor(&m, tensor_new("w", ONNX_float32, "3,3", weights, sizeof weights));
    node first = call_of("Layer", "first", "x,w", "h"), second = call_of("Layer", "second", "h,w", "i");
    node third = call_of("Bounded", "third", "i", "z");
    node_int(&first, "transposed", 1);
    model_add(&m, &first);
    model_add(&m, &second);
    model_add(&m, &third);
    return model_finish(&m);
}

TEST_SCRATCH(test_functions_are_inlined)
{
    ir_module *m;
    int calls = 0;
    wire file = two_layers();
    assert_int_equal(onnx_import_memory(file.bytes, file.size, "m.onnx", NULL, t->d, &m), AMPC_OK);
    wire_free(&file);
    assert_int_equal(ir_verify(m, t->d), AMPC_OK);
    assert_int_equal(ir_storage_find(m, "w")->kind, IR_PARAM);
    for (const ir_node *n = ir_graph_find(m, "forward")->first; n; n = n->next)
        if (n->op == IR_OP_matmul) {
            const bool first = strncmp(n->loc.node, "first/", 6) == 0;
            assert_int_equal(n->attr[IR_ATTR(matmul, trans_b)].i, first);
            assert_string_equal(n->loc.op, "Gemm");
            calls++;
        }
    assert_int_equal(calls, 2);
    ir_module_free(m);
}

static ampc_status write_nothing(void *user, onnx_part part, const void *bytes, size_t n)
{
    (void)user, (void)part, (void)bytes, (void)n;
    return AMPC_OK;
}

/* A function is copied as it is, so it may not drop values for training. */
TEST_SCRATCH(test_training_forms_are_not_exported)
{
    const onnx_export_options o = {.write = write_nothing};
    model m = main_graph();
    node dropout = node_new("Dropout", "a,b,b", "y"), call = call_of("D", "call", "x,x", "z");
    add_function(&m, "D", NULL, &dropout);
    model_add(&m, &call);
    wire file = model_finish(&m);
    const char *path = scratch_path(t, "m.onnx");
    FILE *out = fopen(path, "wb");
    assert_int_equal(fwrite(file.bytes, 1, file.size, out), file.size);
    fclose(out);
    wire_free(&file);
    assert_int_equal(onnx_export_trained(path, &o, t->d), AMPC_UNSUPPORTED);
    assert_non_null(strstr(diag_first_error(t->d), "function D has Dropout in training form"));
}

/* ---- sequences as inputs and outputs ------------------------------------------------------------- */

static void add_sequence_info(model *m, uint32_t field, const char *name)
{
    wire tensor = {0}, item = {0}, list = {0}, proto = {0}, info = {0};
    wire_int(&tensor, 1, ONNX_float32);
    wire_message(&item, 1, &tensor);
    wire_message(&list, 1, &item);
    wire_message(&proto, 4, &list);
    wire_text(&info, 1, name);
    wire_message(&info, 2, &proto);
    wire_message(&m->graph, field, &info);
}

static wire with_sequences(void)
{
    model m = model_new(17);
    add_sequence_info(&m, 11, "in");
    add_sequence_info(&m, 12, "out");
    model_input(&m, "x", ONNX_float32, "2");
    model_node(&m, "SequenceInsert", "in,x", "out");
    return model_finish(&m);
}

TEST_SCRATCH(test_sequences_are_several_tensors)
{
    ir_module *m;
    const onnx_dim_binding dims[] = {{"in_length", 2}, {"in.0_dim0", 4}, {"in.1_dim0", 5}};
    const onnx_import_options o = {.dims = dims, .n_dims = 3};
    wire file = with_sequences();
    assert_int_equal(onnx_import_memory(file.bytes, file.size, "m.onnx", &o, t->d, &m), AMPC_OK);
    const ir_graph *g = ir_graph_find(m, "forward");
    assert_int_equal(g->inputs.count, 3);
    assert_int_equal(ir_graph_find_input(g, "in.1")->type.dims[0], 5);
    assert_ptr_equal(ir_in(ir_graph_find_output(g, "out.0"), 0), ir_graph_find_input(g, "in.0"));
    assert_ptr_equal(ir_in(ir_graph_find_output(g, "out.2"), 0), ir_graph_find_input(g, "x"));
    ir_module_free(m);
    const onnx_import_options converted = {.dims = dims, .n_dims = 3, .opaque = true, .emit_opset = 17};
    assert_int_equal(onnx_import_memory(file.bytes, file.size, "m.onnx", &converted, t->d, &m), AMPC_UNSUPPORTED);
    wire_free(&file);
}

/* ---- refusals ------------------------------------------------------------------------------------ */

/* Models of one call: CALL(function's node, call) */
static wire calling(const char *inner, const char *inner_domain, const char *inputs, const char *outputs,
                    const char *extra)
{
    model m = main_graph();
    node n = node_new(inner, "a,b", "y");
    if (*inner_domain) wire_text(&n, 7, inner_domain);
    add_function(&m, "F", NULL, &n);
    node call = call_of("F", "call", inputs, outputs);
    if (*extra) node_int(&call, extra, 1);
    model_add(&m, &call);
    return model_finish(&m);
}

static wire calling_itself(void) { return calling("F", "own", "x,x", "z", ""); }
static wire calling_with_more(void) { return calling("Add", "", "x,x,x", "z", ""); }
static wire calling_for_more(void) { return calling("Add", "", "x,x", "z,u", ""); }
static wire calling_with_unknown(void) { return calling("Add", "", "x,x", "z", "alpha"); }
static wire calling_unsupported(void) { return calling("Multinomial", "", "x", "z", ""); }

/* F0 calls F1 twice, which calls F2 twice, and so on. */
static wire calling_exponentially(void)
{
    model m = main_graph();
    for (int i = 0; i < 30; i++) {
        wire f = {0};
        char name[16], next[16];
        snprintf(name, sizeof name, "F%d", i);
        snprintf(next, sizeof next, "F%d", i + 1);
        node first = i < 29 ? call_of(next, "", "a", "h") : node_new("Neg", "a", "h");
        node second = i < 29 ? call_of(next, "", "h", "y") : node_new("Neg", "h", "y");
        wire_text(&f, 1, name);
        wire_text(&f, 4, "a");
        wire_text(&f, 5, "y");
        wire_message(&f, 7, &first);
        wire_message(&f, 7, &second);
        add_import(&f, NULL, 17);
        wire_text(&f, 10, "own");
        wire_message(&m.functions, 25, &f);
    }
    node call = call_of("F0", "call", "x", "z");
    model_add(&m, &call);
    return model_finish(&m);
}

static wire looping(const char *trips, int64_t count, bool ends)
{
    model m = main_graph(), body = model_new(17);
    model_input(&m, "n", ONNX_int64, "");
    model_tensor(&m, scalar("count", ONNX_int64, count));
    model_tensor(&m, scalar("yes", ONNX_bool, 1));
    model_input(&body, "i", ONNX_int64, "");
    model_input(&body, "go", ONNX_bool, "");
    model_input(&body, "h", ONNX_float32, "2,3");
    model_node(&body, "Neg", "h", "next");
    if (ends) model_node(&body, "Less", "i,n", "going");
    else model_node(&body, "Identity", "go", "going");
    model_output(&body, "going", ONNX_bool, "");
    model_output(&body, "next", ONNX_float32, "2,3");
    char inputs[32];
    snprintf(inputs, sizeof inputs, "%s,yes,x", trips);
    node n = node_new("Loop", inputs, "z");
    wire_text(&n, 3, "loop");
    node_graph(&n, "body", &body);
    model_add(&m, &n);
    return model_finish(&m);
}

static wire looping_for_ever(void) { return looping("", 0, false); }

static wire scanning(const char *inputs, int scans)
{
    model m = main_graph(), body = model_new(17);
    model_input(&m, "y", ONNX_float32, "4,3");
    model_input(&m, "s", ONNX_float32, "N,3");
    model_input(&body, "a", ONNX_float32, "3");
    model_input(&body, "b", ONNX_float32, "3");
    model_node(&body, "Add", "a,b", "c");
    model_output(&body, "c", ONNX_float32, "3");
    node n = node_new("Scan", inputs, "z");
    node_int(&n, "num_scan_inputs", scans);
    node_graph(&n, "body", &body);
    model_add(&m, &n);
    return model_finish(&m);
}

static wire scanning_uneven(void) { return scanning("x,y", 2); }
static wire scanning_too_many(void) { return scanning("x,y", 3); }
static wire scanning_too_few(void) { return scanning("x", 1); }

/* SequenceConstruct(x, x), then one operator with an operand k. */
static wire on_sequence(const char *op, const char *inputs, int64_t k)
{
    model m = main_graph();
    model_tensor(&m, scalar("k", ONNX_int64, k));
    model_tensor(&m, scalar("j", ONNX_int64, 3));
    model_node(&m, "SequenceConstruct", "x,x", "s");
    model_node(&m, op, inputs, "r");
    model_node(&m, "SequenceAt", "r,j", "z");
    return model_finish(&m);
}

static wire sequence_at(void) { return on_sequence("SequenceAt", "s,k", 2); }
static wire sequence_insert(void) { return on_sequence("SequenceInsert", "s,x,k", -3); }
static wire sequence_type(void) { return on_sequence("SequenceInsert", "s,k", 0); }
static wire sequence_erase(void) { return on_sequence("SequenceErase", "s,k", -9000); }
static wire sequence_short(void) { return on_sequence("SequenceErase", "s", 0); }
static wire sequence_as_tensor(void) { return on_sequence("Neg", "s", 0); }
static wire tensor_as_sequence(void) { return on_sequence("SequenceErase", "x", 0); }
static wire split_negative(void) { return on_sequence("SplitToSequence", "x,k", -1); }

static const struct refusal {
    wire (*make)(void);
    const char *text;
} refusals[] = {
    {calling_itself, "node 'call/F_1' (F): error: function F calls itself"},
    {calling_with_more, "has 3 inputs, the function 2"},
    {calling_for_more, "has 2 outputs, the function 1"},
    {calling_with_unknown, "unknown attribute 'alpha'"},
    {calling_unsupported, "node 'call/Multinomial_0' (Multinomial): error: operator Multinomial is not supported"},
    {calling_exponentially, "more than 200000 nodes in all"},
    {looping_for_ever, "has more than 4096 iterations"},
    {scanning_uneven, "scan inputs have 2 and 4 slices"},
    {scanning_too_many, "num_scan_inputs is 3, but there are 2 operands"},
    {scanning_too_few, "its body has 2 inputs and 1 outputs for 1 operands"},
    {sequence_at, "position 2 in a sequence of 2 items"},
    {sequence_insert, "position -3 in a sequence of 2 items"},
    {sequence_type, "the items of a sequence differ in type"},
    {sequence_erase, "position -9000 in a sequence of 2 items"},
    {sequence_short, "position 3 in a sequence of 1 items"},
    {sequence_as_tensor, "input 0 ('s') is a sequence or optional, not a tensor"},
    {tensor_as_sequence, "input 0 is not a sequence"},
    {split_negative, "the size of a part is -1"},
    {with_sequences, "graph input 'in' is a sequence or optional: specify it, for example --dim in_length=1"},
};

TEST_SCRATCH(test_refusals)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        diag *d = diag_new(NULL, NULL);
        ir_module *m;
        wire file = refusals[i].make();
        const ampc_status status = onnx_import_memory(file.bytes, file.size, "m.onnx", NULL, d, &m);
        wire_free(&file);
        if (status == AMPC_OK || !strstr(diag_first_error(d), refusals[i].text))
            fail_msg("not \"%s\", but \"%s\"", refusals[i].text, status == AMPC_OK ? "no error" : diag_first_error(d));
        diag_free(d);
    }
}
