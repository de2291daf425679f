/* test_bodies.c - gradients through the iterations of Loop and Scan, and functions that are not exported after a training.
 * tests/expect/frontend/bodies.rows has what the importer makes of bodies, functions and sequences, and what it refuses. */
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
static void add_function(model *m, const char *name, node *n)
{
    wire f = {0};
    wire_text(&f, 1, name);
    wire_text(&f, 4, "a");
    wire_text(&f, 4, "b");
    wire_text(&f, 5, "y");
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

static model main_graph(void)
{
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "2,3");
    model_output(&m, "z", 0, NULL);
    return m;
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
    add_function(&m, "D", &dropout);
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
