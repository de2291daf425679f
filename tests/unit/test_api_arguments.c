/* test_api_arguments.c - NULL and out-of-range values of every argument of every public function are reported as
 * errors and not dereferenced.
 *
 * A row is a call with one bad argument and has the name of that parameter. The test reads the functions, their
 * parameters and the members of option structs from the header itself; anything without a row fails. */
#include "tests/unit/api_fixture.h"
#include "tests/unit/api_rows.h"

#include "runtime/api/api.h"

#include <math.h>

/* ---- rows ---- */

static void refused(const fixture *f, const char *function, const char *argument, ampc_status status)
{
    record_row(function, argument);
    if (status != AMPC_USAGE) fail_msg("%s, bad %s: %s", function, argument, ampc_status_name(status));
    const char *message = f ? ampc_context_message(f->c) : "no context";
    if (!message[0]) fail_msg("%s, bad %s: no message", function, argument);
    if (strstr(message, "--")) fail_msg("%s, bad %s: options of the command line: %s", function, argument, message);
}

static void allowed(const fixture *f, const char *function, const char *argument, ampc_status status)
{
    record_row(function, argument);
    if (status != AMPC_OK)
        fail_msg("%s, %s: %s, %s", function, argument, ampc_status_name(status), ampc_context_message(f->c));
}

static void said(const fixture *f, const char *text)
{
    if (!strstr(ampc_context_message(f->c), text)) fail_msg("expected '%s' in: %s", text, ampc_context_message(f->c));
}

/* Four cases: a context records the error; there is no context; NULL is valid; the function returns no status. */
#define REFUSED(function, argument, ...) refused(f, #function, #argument, function(__VA_ARGS__))
/* The first case, with a message that has the text. */
#define SAYS(text, ...) (REFUSED(__VA_ARGS__), said(f, text))
#define MUTE(function, argument, ...) refused(NULL, #function, #argument, function(__VA_ARGS__))
#define ALLOWED(function, argument, ...) allowed(f, #function, #argument, function(__VA_ARGS__))
#define ANSWERS(function, argument, check) \
    do { \
        record_row(#function, #argument); \
        assert_true(check); \
    } while (0)
/* A parameter for which every value is valid. */
#define ANY(function, argument) record_row(#function, #argument)

/* Members for which every value is valid. */
static void any(const char *type, const char *members)
{
    char *copy = strdup(members), *rest = NULL;
    assert_non_null(copy);
    for (char *m = strtok_r(copy, " ", &rest); m; m = strtok_r(NULL, " ", &rest)) record_row(type, m);
    free(copy);
}

/* ---- functions ---- */

TEST_API(test_contexts)
{
    ampc_context *c = NULL;
    const ampc_context_options unset = {0}, wild = {.struct_size = SIZE_MAX};
    MUTE(ampc_context_create, context, NULL, NULL);
    MUTE(ampc_context_create, options, &unset, &c);
    MUTE(ampc_context_create, options, &wild, &c);
    assert_null(c);
    ampc_context_free(NULL);
    ANY(ampc_context_free, context);
    ANSWERS(ampc_context_message, context, strstr(ampc_context_message(NULL), "no context"));
    ampc_place place = {.struct_size = sizeof place}, no_size = {0};
    MUTE(ampc_context_place, context, NULL, &place);
    MUTE(ampc_context_place, place, f->c, NULL);
    MUTE(ampc_context_place, place, f->c, &no_size);
    ALLOWED(ampc_context_place, place, f->c, &place);
    assert_string_equal(place.file, "");
    ANSWERS(ampc_status_name, status, ampc_status_name((ampc_status)99));
    ANSWERS(ampc_status_sentence, status, ampc_status_sentence((ampc_status)-1));
    double rate;
    MUTE(ampc_schedule_rate, context, NULL, "linear", 1, 10, 5, &rate);
    REFUSED(ampc_schedule_rate, schedule, f->c, NULL, 1, 10, 5, &rate);
    SAYS("zigzag", ampc_schedule_rate, schedule, f->c, "zigzag", 1, 10, 5, &rate);
    REFUSED(ampc_schedule_rate, lr, f->c, "linear", NAN, 10, 5, &rate);
    REFUSED(ampc_schedule_rate, lr, f->c, "linear", -1, 10, 5, &rate);
    REFUSED(ampc_schedule_rate, steps, f->c, "linear", 1, 0, 5, &rate);
    REFUSED(ampc_schedule_rate, accepted, f->c, "linear", 1, 10, -1, &rate);
    REFUSED(ampc_schedule_rate, rate, f->c, "linear", 1, 10, 5, NULL);
    ALLOWED(ampc_schedule_rate, rate, f->c, "linear", 1, 10, 5, &rate);
    assert_float_equal(rate, 0.5, 0);
}

/* Faulty tables are in test_custom_faults.c. */
TEST_API(test_operators)
{
    size_t n = 9;
    const ampc_infer_call call = {.dims = NULL};
    ampc_operator table = {.struct_size = sizeof table};
    MUTE(ampc_operator_register, context, NULL, &table);
    REFUSED(ampc_operator_register, table, f->c, NULL);
    REFUSED(ampc_operator_register, table, f->c, &table);
    MUTE(ampc_operators_load, context, NULL, "x.so");
    REFUSED(ampc_operators_load, path, f->c, NULL);
    any("ampc_operator",
        "struct_size domain name since float_types colour f32_operands infer forward_cpu gradient_cpu");
    any("ampc_operator", "forward_cuda gradient_cuda gradient_operands user");
    ANSWERS(ampc_attribute_int, attributes, ampc_attribute_int(NULL, "a", 3) == 3);
    ANSWERS(ampc_attribute_int, name, ampc_attribute_int(NULL, NULL, 3) == 3);
    ANY(ampc_attribute_int, otherwise);
    ANSWERS(ampc_attribute_float, attributes, ampc_attribute_float(NULL, "a", 3) > 2);
    ANSWERS(ampc_attribute_float, name, ampc_attribute_float(NULL, NULL, 3) > 2);
    ANY(ampc_attribute_float, otherwise);
    ANSWERS(ampc_attribute_string, attributes, ampc_attribute_string(NULL, "a", "b")[0] == 'b');
    ANSWERS(ampc_attribute_string, name, ampc_attribute_string(NULL, NULL, "b")[0] == 'b');
    ANSWERS(ampc_attribute_string, otherwise, !ampc_attribute_string(NULL, "a", NULL));
    ANSWERS(ampc_attribute_ints, attributes, !ampc_attribute_ints(NULL, "a", &n) && n == 0);
    ANSWERS(ampc_attribute_ints, name, !ampc_attribute_ints(NULL, NULL, &n));
    ANSWERS(ampc_attribute_ints, count, !ampc_attribute_ints(NULL, "a", NULL));
    ANSWERS(ampc_attribute_floats, attributes, !ampc_attribute_floats(NULL, "a", &n));
    ANSWERS(ampc_attribute_floats, name, !ampc_attribute_floats(NULL, NULL, &n));
    ANSWERS(ampc_attribute_floats, count, !ampc_attribute_floats(NULL, "a", NULL));
    ANSWERS(ampc_dim_compute, call, ampc_dim_compute(NULL, '+', 1, 2) == INT64_MIN);
    ANSWERS(ampc_dim_compute, op, ampc_dim_compute(&call, '%', 1, 2) == INT64_MIN);
    ANSWERS(ampc_dim_compute, a, ampc_dim_compute(&call, '+', INT64_MIN + 1, 2) == INT64_MIN);
    ANSWERS(ampc_dim_compute, b, ampc_dim_compute(&call, '/', 1, 0) == INT64_MIN);
    ANSWERS(ampc_dim_compute, b, ampc_dim_compute(&call, '*', INT64_MAX, 2) == INT64_MIN);
}

/* A function that describes what a graph has by index, and the one that counts. */
#define DESCRIBES(function) \
    do { \
        MUTE(function, module, NULL, "forward", 0, &info); \
        REFUSED(function, graph, f->fresh, NULL, 0, &info); \
        REFUSED(function, index, f->fresh, "forward", SIZE_MAX, &info); \
        REFUSED(function, info, f->fresh, "forward", 0, NULL); \
        REFUSED(function, info, f->fresh, "forward", 0, &no_size); \
        MUTE(function##_count, module, NULL, "forward", &n); \
        REFUSED(function##_count, graph, f->fresh, NULL, &n); \
        REFUSED(function##_count, graph, f->fresh, "backward", &n); \
        REFUSED(function##_count, count, f->fresh, "forward", NULL); \
        assert_int_equal(function##_count(f->fresh, "forward", &n), AMPC_OK); \
        REFUSED(function, index, f->fresh, "forward", n, &info); \
    } while (0)

TEST_API(test_modules)
{
    ampc_module *m = NULL;
    size_t n;
    const ampc_dim nameless = {NULL, 3}, negative = {"N", -3}, unknown = {"M", 3};
    const ampc_compile_options unset = {0}, wild = {.struct_size = SIZE_MAX};
    ampc_input_info info = {.struct_size = sizeof info}, no_size = {0};
    void *bytes;
    char *text;
    MUTE(ampc_module_import, context, NULL, MLP, NULL, 0, &m);
    REFUSED(ampc_module_import, path, f->c, NULL, NULL, 0, &m);
    REFUSED(ampc_module_import, dims, f->c, MLP, NULL, 1, &m);
    REFUSED(ampc_module_import, dims, f->c, MLP, &nameless, 1, &m);
    REFUSED(ampc_module_import, dims, f->c, MLP, &negative, 1, &m);
    SAYS("M", ampc_module_import, dims, f->c, MLP, &unknown, 1, &m);
    REFUSED(ampc_module_import, n_dims, f->c, MLP, &negative, SIZE_MAX, &m);
    REFUSED(ampc_module_import, module, f->c, MLP, NULL, 0, NULL);
    MUTE(ampc_module_load, context, NULL, MLP, &m);
    REFUSED(ampc_module_load, path, f->c, NULL, &m);
    REFUSED(ampc_module_load, module, f->c, MLP, NULL);
    MUTE(ampc_module_compile, module, NULL, NULL);
    REFUSED(ampc_module_compile, options, f->fresh, &unset);
    REFUSED(ampc_module_compile, options, f->fresh, &wild);
    MUTE(ampc_module_convert, module, NULL, NULL, "m.onnx");
    REFUSED(ampc_module_convert, options, f->fresh, &unset, "m.onnx");
    REFUSED(ampc_module_convert, path, f->fresh, NULL, NULL);
    MUTE(ampc_module_convert_memory, module, NULL, NULL, &bytes, &n);
    REFUSED(ampc_module_convert_memory, options, f->fresh, &wild, &bytes, &n);
    REFUSED(ampc_module_convert_memory, bytes, f->fresh, NULL, NULL, &n);
    REFUSED(ampc_module_convert_memory, n_bytes, f->fresh, NULL, &bytes, NULL);
    MUTE(ampc_module_explain, module, NULL, NULL, "all", 0, &text);
    REFUSED(ampc_module_explain, options, f->fresh, &unset, "all", 0, &text);
    REFUSED(ampc_module_explain, what, f->fresh, NULL, NULL, 0, &text);
    SAYS("no node", ampc_module_explain, what, f->fresh, NULL, "no node", 0, &text);
    ANY(ampc_module_explain, json);
    REFUSED(ampc_module_explain, text, f->fresh, NULL, "all", 0, NULL);
    MUTE(ampc_module_report, module, NULL, NULL, &text);
    REFUSED(ampc_module_report, options, f->fresh, &wild, &text);
    REFUSED(ampc_module_report, text, f->fresh, NULL, NULL);
    ampc_free(NULL);
    ANY(ampc_free, memory);
    MUTE(ampc_module_save, module, NULL, "m.ir");
    REFUSED(ampc_module_save, path, f->fresh, NULL);
    REFUSED(ampc_module_save, path, f->fresh, "");
    DESCRIBES(ampc_module_input);
    DESCRIBES(ampc_module_output);
    ANSWERS(ampc_module_summary, module, !*ampc_module_summary(NULL));
    ampc_module_free(NULL);
    ANY(ampc_module_free, module);
    assert_null(m);
    assert_int_equal(ampc_module_input_count(f->m, "train_step", &n), AMPC_OK);
    assert_int_equal(n, 2);
}

TEST_API(test_tensors)
{
    ampc_tensor *t = NULL;
    const int64_t dims[AMPC_MAX_RANK + 1] = {2, 3}, negative[] = {2, -3}, huge[] = {INT64_MAX, 3};
    MUTE(ampc_tensor_create, context, NULL, "t", AMPC_F32, 2, dims, NULL, &t);
    REFUSED(ampc_tensor_create, name, f->c, NULL, AMPC_F32, 2, dims, NULL, &t);
    REFUSED(ampc_tensor_create, dtype, f->c, "t", (ampc_dtype)0, 2, dims, NULL, &t);
    REFUSED(ampc_tensor_create, dtype, f->c, "t", (ampc_dtype)-1, 2, dims, NULL, &t);
    SAYS("99", ampc_tensor_create, dtype, f->c, "t", (ampc_dtype)99, 2, dims, NULL, &t);
    REFUSED(ampc_tensor_create, dtype, f->c, "t", (ampc_dtype)(AMPC_U64 + 1), 2, dims, NULL, &t);
    REFUSED(ampc_tensor_create, rank, f->c, "t", AMPC_F32, -1, dims, NULL, &t);
    SAYS("rank 13", ampc_tensor_create, rank, f->c, "t", AMPC_F32, AMPC_MAX_RANK + 1, dims, NULL, &t);
    REFUSED(ampc_tensor_create, dims, f->c, "t", AMPC_F32, 2, NULL, NULL, &t);
    SAYS("dimension 1", ampc_tensor_create, dims, f->c, "t", AMPC_F32, 2, negative, NULL, &t);
    SAYS("size", ampc_tensor_create, dims, f->c, "t", AMPC_F32, 2, huge, NULL, &t);
    REFUSED(ampc_tensor_create, tensor, f->c, "t", AMPC_F32, 2, dims, NULL, NULL);
    assert_null(t);
    ALLOWED(ampc_tensor_create, data, f->c, "t", AMPC_F32, 2, dims, NULL, &t);
    assert_int_equal(ampc_tensor_bytes(t), 24);
    ampc_tensor_free(t);
    ampc_tensor_free(NULL);
    ANY(ampc_tensor_free, tensor);
    float own[6];
    t = NULL;
    MUTE(ampc_tensor_borrow, context, NULL, "t", AMPC_F32, 2, dims, own, NULL, NULL, &t);
    REFUSED(ampc_tensor_borrow, name, f->c, NULL, AMPC_F32, 2, dims, own, NULL, NULL, &t);
    REFUSED(ampc_tensor_borrow, dtype, f->c, "t", (ampc_dtype)0, 2, dims, own, NULL, NULL, &t);
    REFUSED(ampc_tensor_borrow, rank, f->c, "t", AMPC_F32, -1, dims, own, NULL, NULL, &t);
    REFUSED(ampc_tensor_borrow, dims, f->c, "t", AMPC_F32, 2, NULL, own, NULL, NULL, &t);
    REFUSED(ampc_tensor_borrow, dims, f->c, "t", AMPC_F32, 2, huge, own, NULL, NULL, &t);
    REFUSED(ampc_tensor_borrow, data, f->c, "t", AMPC_F32, 2, dims, NULL, NULL, NULL, &t);
    REFUSED(ampc_tensor_borrow, data, f->c, "t", AMPC_F32, 2, dims, (char *)own + 1, NULL, NULL, &t);
    REFUSED(ampc_tensor_borrow, tensor, f->c, "t", AMPC_F32, 2, dims, own, NULL, NULL, NULL);
    assert_null(t);
    ALLOWED(ampc_tensor_borrow, release, f->c, "t", AMPC_F32, 2, dims, own, NULL, NULL, &t);
    ANY(ampc_tensor_borrow, user);
    ampc_tensor_free(t);
    ANSWERS(ampc_tensor_name, tensor, !*ampc_tensor_name(NULL));
    ANSWERS(ampc_tensor_dtype, tensor, !ampc_tensor_dtype(NULL));
    ANSWERS(ampc_tensor_rank, tensor, !ampc_tensor_rank(NULL));
    ANSWERS(ampc_tensor_dims, tensor, !ampc_tensor_dims(NULL));
    ANSWERS(ampc_tensor_bytes, tensor, !ampc_tensor_bytes(NULL));
    ANSWERS(ampc_tensor_data, tensor, !ampc_tensor_data(NULL));
}

static void ignore_value(void *user, const ampc_compared *value) { (void)user, (void)value; }

TEST_API(test_sessions)
{
    ampc_session *s = NULL;
    ampc_tensor *t = NULL, *hole[] = {f->in[0], NULL};
    double v;
    const char *results[] = {"loss", NULL};
    const ampc_session_options unset = {0};
    MUTE(ampc_session_open, module, NULL, NULL, &s);
    REFUSED(ampc_session_open, options, f->m, &unset, &s);
    REFUSED(ampc_session_open, session, f->m, NULL, NULL);
    ampc_session_free(NULL);
    ANY(ampc_session_free, session);
    REFUSED(ampc_session_share, context, f->s, NULL, NULL, &s);
    REFUSED(ampc_session_share, session, NULL, f->c, NULL, &s);
    REFUSED(ampc_session_share, options, f->s, f->c, &unset, &s);
    REFUSED(ampc_session_share, shared, f->s, f->c, NULL, NULL);
    MUTE(ampc_select, session, NULL, "infer", NULL, 0);
    REFUSED(ampc_select, graph, f->s, NULL, NULL, 0);
    REFUSED(ampc_select, results, f->s, "infer", results, 2);
    REFUSED(ampc_select, n_results, f->s, "infer", results, SIZE_MAX);
    ALLOWED(ampc_select, results, f->s, "infer", NULL, 7);
    MUTE(ampc_session_run, session, NULL, "infer", f->in, 1);
    REFUSED(ampc_session_run, graph, f->s, NULL, f->in, 1);
    SAYS("'dream'", ampc_session_run, graph, f->s, "dream", f->in, 1);
    REFUSED(ampc_session_run, inputs, f->s, "infer", NULL, 1);
    REFUSED(ampc_session_run, inputs, f->s, "infer", hole, 2);
    REFUSED(ampc_session_run, n_inputs, f->s, "infer", f->in, SIZE_MAX);
    ampc_check_result found = {.struct_size = sizeof found}, unsized = {0};
    MUTE(ampc_check, session, NULL, "infer", f->in, 1, &found);
    REFUSED(ampc_check, graph, f->s, NULL, f->in, 1, &found);
    REFUSED(ampc_check, graph, f->s, "dream", f->in, 1, &found);
    REFUSED(ampc_check, inputs, f->s, "infer", hole, 2, &found);
    REFUSED(ampc_check, n_inputs, f->s, "infer", f->in, SIZE_MAX, &found);
    REFUSED(ampc_check, result, f->s, "infer", f->in, 1, NULL);
    REFUSED(ampc_check, result, f->s, "infer", f->in, 1, &unsized);
    MUTE(ampc_compare, session, NULL, NULL, "infer", f->in, 1, ignore_value, NULL);
    REFUSED(ampc_compare, options, f->s, &(ampc_compile_options){0}, "infer", f->in, 1, ignore_value, NULL);
    REFUSED(ampc_compare, graph, f->s, NULL, NULL, f->in, 1, ignore_value, NULL);
    REFUSED(ampc_compare, graph, f->s, NULL, "train_step", f->in, 2, ignore_value, NULL);
    REFUSED(ampc_compare, inputs, f->s, NULL, "infer", hole, 2, ignore_value, NULL);
    REFUSED(ampc_compare, n_inputs, f->s, NULL, "infer", f->in, SIZE_MAX, ignore_value, NULL);
    REFUSED(ampc_compare, each, f->s, NULL, "infer", f->in, 1, NULL, NULL);
    ANY(ampc_compare, user);
    MUTE(ampc_session_get, session, NULL, "state/lr", &t);
    REFUSED(ampc_session_get, key, f->s, NULL, &t);
    REFUSED(ampc_session_get, key, f->s, "no such", &t);
    REFUSED(ampc_session_get, tensor, f->s, "state/lr", NULL);
    MUTE(ampc_session_get_into, session, NULL, "state/lr", f->in[0]);
    REFUSED(ampc_session_get_into, key, f->s, NULL, f->in[0]);
    REFUSED(ampc_session_get_into, key, f->s, "no such", f->in[0]);
    REFUSED(ampc_session_get_into, tensor, f->s, "state/lr", NULL);
    REFUSED(ampc_session_get_into, tensor, f->s, "state/lr", f->in[0]);
    MUTE(ampc_session_set, session, NULL, "state/lr", f->in[0]);
    REFUSED(ampc_session_set, key, f->s, NULL, f->in[0]);
    REFUSED(ampc_session_set, tensor, f->s, "state/lr", NULL);
    REFUSED(ampc_session_set, tensor, f->s, "state/lr", f->in[0]);
    MUTE(ampc_session_get_number, session, NULL, "state/lr", &v);
    REFUSED(ampc_session_get_number, key, f->s, NULL, &v);
    REFUSED(ampc_session_get_number, value, f->s, "state/lr", NULL);
    MUTE(ampc_session_set_number, session, NULL, "state/lr", 1);
    REFUSED(ampc_session_set_number, key, f->s, NULL, 1);
    ANSWERS(ampc_session_key, session, !ampc_session_key(NULL, 0));
    ANSWERS(ampc_session_key, index, !ampc_session_key(f->s, SIZE_MAX));
    assert_true(!s && !t);
}

/* States that a run could not continue from, identified by number and by tensor. */
TEST_API(test_state)
{
    static const struct {
        const char *key;
        double bad[4];
    } rows[] = {
        {"state/lr", {NAN, -1, INFINITY, 1e9}},          {"state/loss_scale", {NAN, -1, INFINITY, 0}},
        {"state/step", {NAN, -1, INFINITY, 1e300}},      {"state/good_steps", {NAN, -2, INFINITY, 1e300}},
        {"state/bad_steps", {NAN, -1, INFINITY, 1e300}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int k = 0; k < 4; k++) {
            ampc_tensor *t;
            double before, after;
            assert_int_equal(ampc_session_get_number(f->s, rows[i].key, &before), AMPC_OK);
            REFUSED(ampc_session_set_number, value, f->s, rows[i].key, rows[i].bad[k]);
            assert_int_equal(ampc_tensor_create(f->c, "v", AMPC_F64, 0, NULL, &rows[i].bad[k], &t), AMPC_OK);
            REFUSED(ampc_session_set, tensor, f->s, rows[i].key, t);
            ampc_tensor_free(t);
            assert_int_equal(ampc_session_get_number(f->s, rows[i].key, &after), AMPC_OK);
            assert_float_equal(before, after, 0);
        }
}

TEST_API(test_training)
{
    ampc_tensor *hole[] = {f->in[0], NULL};
    ampc_step_result no_size = {0};
    ampc_evaluation e = {.struct_size = sizeof e}, unsized = {0};
    const ampc_train_options unset = {0};
    double loss;
    MUTE(ampc_set_loss_scaling, session, NULL, 0);
    any("ampc_set_loss_scaling", "enabled");
    MUTE(ampc_train_step, session, NULL, f->in, 2, NULL);
    REFUSED(ampc_train_step, inputs, f->s, NULL, 2, NULL);
    REFUSED(ampc_train_step, inputs, f->s, hole, 2, NULL);
    REFUSED(ampc_train_step, n_inputs, f->s, f->in, SIZE_MAX, NULL);
    REFUSED(ampc_train_step, result, f->s, f->in, 2, &no_size);
    assert_int_equal(ampc_session_get_number(f->s, "state/step", &loss), AMPC_OK);
    assert_float_equal(loss, 0, 0); /* a rejected call runs nothing */
    ALLOWED(ampc_train_step, result, f->s, f->in, 2, NULL);
    MUTE(ampc_eval_step, session, NULL, f->in, 2, &loss);
    REFUSED(ampc_eval_step, inputs, f->s, NULL, 2, &loss);
    REFUSED(ampc_eval_step, n_inputs, f->s, f->in, SIZE_MAX, &loss);
    REFUSED(ampc_eval_step, loss, f->s, f->in, 2, NULL);
    MUTE(ampc_train, session, NULL, NULL);
    REFUSED(ampc_train, options, f->s, NULL);
    REFUSED(ampc_train, options, f->s, &unset);
    MUTE(ampc_evaluate_metrics, session, NULL, "synthetic", 4, NULL, &e);
    REFUSED(ampc_evaluate_metrics, data, f->s, NULL, 4, NULL, &e);
    REFUSED(ampc_evaluate_metrics, batch, f->s, "synthetic", -4, NULL, &e);
    REFUSED(ampc_evaluate_metrics, metrics, f->s, "synthetic", 4, "nothing", &e);
    REFUSED(ampc_evaluate_metrics, metrics, f->s, "synthetic", 4, "mse", &e);
    REFUSED(ampc_evaluate_metrics, result, f->s, "synthetic", 4, NULL, NULL);
    REFUSED(ampc_evaluate_metrics, result, f->s, "synthetic", 4, NULL, &unsized);
    ampc_data *data;
    float x[8][4] = {{0}};
    const ampc_data_field field = {.name = "x", .dtype = AMPC_F32, .rank = 1, .dims = {4}, .data = x};
    const ampc_data_options own = {.struct_size = sizeof own, .fields = &field, .n_fields = 1, .rows = 8};
    assert_int_equal(ampc_data_create(f->c, &own, &data), AMPC_OK);
    MUTE(ampc_evaluate_data, session, NULL, data, 4, NULL, &e);
    REFUSED(ampc_evaluate_data, data, f->s, NULL, 4, NULL, &e);
    REFUSED(ampc_evaluate_data, batch, f->s, data, -4, NULL, &e);
    REFUSED(ampc_evaluate_data, metrics, f->s, data, 4, "nothing", &e);
    REFUSED(ampc_evaluate_data, result, f->s, data, 4, NULL, NULL);
    REFUSED(ampc_evaluate_data, result, f->s, data, 4, NULL, &unsized);
    MUTE(ampc_predict, session, NULL, "synthetic", 4, "p.csv");
    REFUSED(ampc_predict, data, f->s, NULL, 4, "p.csv");
    REFUSED(ampc_predict, data, f->s, "nonsense:", 4, "p.csv");
    REFUSED(ampc_predict, batch, f->s, "synthetic", -4, "p.csv");
    REFUSED(ampc_predict, path, f->s, "synthetic", 4, NULL);
    REFUSED(ampc_predict, path, f->s, "synthetic", 4, "p.txt");
    MUTE(ampc_predict_data, session, NULL, data, 4, "p.csv");
    REFUSED(ampc_predict_data, data, f->s, NULL, 4, "p.csv");
    REFUSED(ampc_predict_data, batch, f->s, data, -4, "p.csv");
    REFUSED(ampc_predict_data, path, f->s, data, 4, NULL);
    REFUSED(ampc_predict_data, path, f->s, data, 4, "p.txt");
    ampc_data_free(data);
    ampc_data_free(NULL);
    ANY(ampc_data_free, data);
    MUTE(ampc_evaluate, session, NULL, "synthetic", 4, &e);
    REFUSED(ampc_evaluate, data, f->s, NULL, 4, &e);
    REFUSED(ampc_evaluate, batch, f->s, "synthetic", -4, &e);
    REFUSED(ampc_evaluate, batch, f->s, "synthetic", INT64_MAX, &e);
    REFUSED(ampc_evaluate, result, f->s, "synthetic", 4, NULL);
    REFUSED(ampc_evaluate, result, f->s, "synthetic", 4, &unsized);
}

TEST_API(test_windows)
{
    const ampc_compile_options windows = {.struct_size = sizeof windows, .loss = "ce", .accumulate = 2};
    ampc_step_result no_size = {0};
    ampc_session *s;
    assert_int_equal(ampc_module_compile(f->fresh, &windows), AMPC_OK);
    assert_int_equal(ampc_session_open(f->fresh, &one_thread, &s), AMPC_OK);
    MUTE(ampc_accumulate, session, NULL, f->in, 2, NULL);
    REFUSED(ampc_accumulate, inputs, s, NULL, 2, NULL);
    REFUSED(ampc_accumulate, n_inputs, s, f->in, SIZE_MAX, NULL);
    ALLOWED(ampc_accumulate, loss, s, f->in, 2, NULL);
    MUTE(ampc_unscale, session, NULL, NULL, NULL);
    ALLOWED(ampc_unscale, grad_norm, s, NULL, NULL);
    ANY(ampc_unscale, found_inf);
    MUTE(ampc_apply, session, NULL, NULL);
    REFUSED(ampc_apply, result, s, &no_size);
    ALLOWED(ampc_apply, result, s, NULL);
    ampc_session_free(s);
}

TEST_API(test_files)
{
    MUTE(ampc_checkpoint_save, session, NULL, f->path, NULL);
    REFUSED(ampc_checkpoint_save, path, f->s, NULL, NULL);
    ALLOWED(ampc_checkpoint_save, position, f->s, f->path, NULL);
    MUTE(ampc_checkpoint_load, session, NULL, f->path, NULL);
    REFUSED(ampc_checkpoint_load, path, f->s, NULL, NULL);
    ALLOWED(ampc_checkpoint_load, position, f->s, f->path, NULL);
    const char *const globs[] = {"fc*", NULL};
    const ampc_load_options more = {.struct_size = sizeof more, .weights_only = 1, .n_reinit = 1};
    const ampc_load_options none = {.struct_size = sizeof none, .weights_only = 1, .reinit = globs, .n_reinit = 2};
    const ampc_load_options all = {.struct_size = sizeof all, .reinit = globs, .n_reinit = 1};
    MUTE(ampc_checkpoint_load_with, session, NULL, f->path, NULL, NULL);
    REFUSED(ampc_checkpoint_load_with, path, f->s, NULL, NULL, NULL);
    REFUSED(ampc_checkpoint_load_with, options, f->s, f->path, &more, NULL);
    REFUSED(ampc_checkpoint_load_with, options, f->s, f->path, &none, NULL);
    REFUSED(ampc_checkpoint_load_with, options, f->s, f->path, &all, NULL);
    ALLOWED(ampc_checkpoint_load_with, position, f->s, f->path, NULL, NULL);
    any("ampc_load_options", "struct_size reset_optimizer weights_only reinit n_reinit");
    MUTE(ampc_checkpoint_load_weights, session, NULL, f->path);
    REFUSED(ampc_checkpoint_load_weights, path, f->s, NULL);
    MUTE(ampc_export_onnx, session, NULL, f->path);
    MUTE(ampc_export_model, session, NULL, "G", f->path);
    REFUSED(ampc_export_model, model, f->s, NULL, f->path);
    REFUSED(ampc_export_model, path, f->s, "G", NULL);
    REFUSED(ampc_export_onnx, path, f->s, NULL);
}

/* ---- option members ---- */

#define BAD_COMPILE(member, ...) \
    do { \
        ampc_compile_options o_ = {.struct_size = sizeof o_, .member = __VA_ARGS__}; \
        if (!o_.loss) o_.loss = "ce"; \
        refused(f, "ampc_compile_options", #member, ampc_module_compile(f->fresh, &o_)); \
        renew(f); \
    } while (0)
#define IMPORT_WITH(member, ...) \
    do { \
        ampc_import_options o_ = {.struct_size = sizeof o_, .member = __VA_ARGS__}; \
        refused(f, "ampc_import_options", #member, ampc_module_import_with(f->c, &o_, &m)); \
    } while (0)
#define OPEN(member, ...) \
    do { \
        ampc_session_options o_ = {.struct_size = sizeof o_, .member = __VA_ARGS__}; \
        ampc_session *s_ = NULL; \
        refused(f, "ampc_session_options", #member, ampc_session_open(f->m, &o_, &s_)); \
    } while (0)
#define BAD_TRAIN(member, ...) \
    do { \
        ampc_train_options o_ = {.struct_size = sizeof o_, .data = "synthetic", .batch = 4, .steps = 1}; \
        const ampc_train_options change_ = {.member = __VA_ARGS__}; \
        o_.member = change_.member; \
        if (change_.eval_data) o_.eval_data = change_.eval_data; \
        refused(f, "ampc_train_options", #member, ampc_train(f->s, &o_)); \
    } while (0)

static void ignore_evaluation(void *user, int64_t step, const ampc_evaluation *result)
{
    (void)user, (void)step, (void)result;
}
#define DATA(member, ...) \
    do { \
        ampc_data_options o_ = own; \
        const ampc_data_options change_ = {.member = __VA_ARGS__}; \
        o_.member = change_.member; \
        refused(f, "ampc_data_options", #member, ampc_data_create(f->c, &o_, &data)); \
    } while (0)

/* Compilation may fail late and then leaves a module that can only be freed. */
static void renew(fixture *f)
{
    ampc_module_free(f->fresh);
    f->fresh = NULL;
    assert_int_equal(ampc_module_import(f->c, MLP, NULL, 0, &f->fresh), AMPC_OK);
}

/* ---- the rows of ir/base/options.def ---- */

typedef struct option_row {
    api_option option;
    const char *kind;
} option_row;

/* clang-format off */
static const option_row compile_rows[] = {
#define COMPILE(name, field, member, kind, ...) {API_OPTION(ampc_compile_options, member, 0, kind) #kind},
#include "ir/base/options.def"
    {.kind = NULL},
};
static const option_row session_rows[] = {
#define SESSION(name, member, kind, ...) {API_OPTION(ampc_session_options, member, 0, kind) #kind},
#include "ir/base/options.def"
    {.kind = NULL},
};
static const option_row train_rows[] = {
#define TRAIN(name, member, kind, ...) {API_OPTION(ampc_train_options, member, 0, kind) #kind},
#include "ir/base/options.def"
    {.kind = NULL},
};
/* clang-format on */

/* A struct of options that are valid, and the call that reads it. */
typedef struct options_use {
    const char *type;
    void *options;
    ampc_status (*call)(const fixture *f, const void *options);
} options_use;

static ampc_status compile_it(const fixture *f, const void *options) { return ampc_module_compile(f->fresh, options); }

static ampc_status open_it(const fixture *f, const void *options)
{
    ampc_session *s = NULL;
    const ampc_status status = ampc_session_open(f->m, options, &s);
    ampc_session_free(s);
    return status;
}

static ampc_status train_it(const fixture *f, const void *options) { return ampc_train(f->s, options); }

/* The value is refused as that of the member. */
static void refuse_value(fixture *f, const options_use *use, const option_row *row, const void *value, size_t size)
{
    char saved[sizeof(void *) + sizeof(size_t)], *at = (char *)use->options + row->option.at;
    assert_in_range(size, 1, sizeof saved);
    memcpy(saved, at, size);
    memcpy(at, value, size);
    refused(f, use->type, row->option.name, use->call(f, use->options));
    if (row->option.kind == OPTION_WORD || row->option.kind == OPTION_ONCE) said(f, row->option.name);
    memcpy(at, saved, size);
    renew(f);
}

static void refuse_number(fixture *f, const options_use *use, const option_row *row, double v)
{
    const int64_t whole = row->option.kind == OPTION_INT ? (int64_t)v : 0;
    const int small = (int)whole;
    if (row->option.kind == OPTION_REAL) refuse_value(f, use, row, &v, sizeof v);
    else if (row->option.is_int) refuse_value(f, use, row, &small, sizeof small);
    else refuse_value(f, use, row, &whole, sizeof whole);
}

static void refuse_numbers(fixture *f, const options_use *use, const option_row *row)
{
    const double low = row->option.limits[0], high = row->option.limits[1];
    const double reals[] = {NAN, INFINITY, -INFINITY, -1, 2 * high, low / 2}, ints[] = {-2, high + 1, -1e9};
    const bool real = row->option.kind == OPTION_REAL;
    for (int i = 0; i < (real ? 5 + (low > 0) : 3); i++) refuse_number(f, use, row, real ? reals[i] : ints[i]);
}

static void refuse_arrays(fixture *f, const options_use *use, const option_row *row)
{
    static const char *const hole[] = {NULL};
    const struct {
        const char *const *items;
        size_t n;
    } bad[] = {{hole, 1}, {NULL, 1}, {hole, SIZE_MAX}};
    char size[NAME_SIZE];
    for (int i = 0; i < 3; i++) refuse_value(f, use, row, &bad[i], sizeof bad[i]);
    snprintf(size, sizeof size, "n_%s", row->option.name);
    record_row(use->type, size);
}

/* Names and globs, which the model validates, and switches may have any value. */
static void refuse_bad_values(fixture *f, const options_use *use, const option_row *rows)
{
    static const char *const unknown = "?";
    for (const option_row *row = rows; row->kind; row++) {
        const option_kind kind = row->option.kind;
        if (kind == OPTION_INT || kind == OPTION_REAL) refuse_numbers(f, use, row);
        else if (kind == OPTION_ARRAY) refuse_arrays(f, use, row);
        else if (kind == OPTION_WORD || kind == OPTION_ONCE || strncmp(row->kind, "TEXT(", 5) == 0)
            refuse_value(f, use, row, &unknown, sizeof unknown);
        else record_row(use->type, row->option.name);
    }
    assert_int_equal(use->call(f, use->options), AMPC_OK);
}

TEST_API(test_compile_options)
{
    ampc_compile_options valid = {.struct_size = sizeof valid, .loss = "ce"};
    refuse_bad_values(f, &(options_use){"ampc_compile_options", &valid, compile_it}, compile_rows);
    renew(f);
    BAD_COMPILE(dtype, "auto");
    BAD_COMPILE(optimizer, "adamw,beta2=2");
    BAD_COMPILE(optimizer, "adamw,beta1=1");
    BAD_COMPILE(optimizer, "adamw,lr=-1");
    BAD_COMPILE(optimizer, "adamw,eps=-1");
    BAD_COMPILE(optimizer, "sgd,lr=nan");
    BAD_COMPILE(optimizer, "sgd,lr=1e9");
    BAD_COMPILE(optimizer, "sgd,weight_decay=-1");
    BAD_COMPILE(optimizer, "momentum,momentum=5");
    BAD_COMPILE(groups, (const char *const[]){"*,rate=2"}, .n_groups = 1);
    BAD_COMPILE(max_loss_scaling, 1); /* smaller than the initial scale */
    BAD_COMPILE(grad_penalty, "L2:input");
    BAD_COMPILE(grad_penalty, "L2:input,0");
    BAD_COMPILE(normalize, "std=0");
    BAD_COMPILE(low_nodes, "re:(a");
    BAD_COMPILE(rules, (const char *const[]){"gray=any-fp32", "init_max=0"}, .n_rules = 2);
    any("ampc_compile_options", "struct_size");
}

TEST_API(test_import_options)
{
    ampc_module *m = NULL;
    const ampc_dim nameless = {NULL, 3}, negative = {"N", -3};
    const ampc_import_options unset = {0}, model = {.struct_size = sizeof model, .path = MLP};
    MUTE(ampc_module_import_with, context, NULL, &model, &m);
    REFUSED(ampc_module_import_with, options, f->c, NULL, &m);
    REFUSED(ampc_module_import_with, options, f->c, &unset, &m);
    REFUSED(ampc_module_import_with, module, f->c, &model, NULL);
    IMPORT_WITH(path, NULL);
    IMPORT_WITH(bytes, NULL, .path = MLP, .n_bytes = 7);
    IMPORT_WITH(n_bytes, SIZE_MAX, .bytes = "");
    IMPORT_WITH(dims, NULL, .path = MLP, .n_dims = 1);
    IMPORT_WITH(dims, &nameless, .path = MLP, .n_dims = 1);
    IMPORT_WITH(dims, &negative, .path = MLP, .n_dims = 1);
    IMPORT_WITH(n_dims, SIZE_MAX, .path = MLP, .dims = &negative);
    IMPORT_WITH(batch, -1, .path = MLP);
    IMPORT_WITH(batch, INT64_MAX, .path = MLP);
    IMPORT_WITH(batch, 4, .path = "model.recipe");
    any("ampc_import_options", "struct_size keep_unknown");
    assert_null(m);
}

TEST_API(test_session_options)
{
    const ampc_dim nameless = {NULL, 3}, negative = {"N", -3}, unknown = {"M", 3};
    OPEN(dims, NULL, .n_dims = 1);
    OPEN(dims, &nameless, .n_dims = 1);
    OPEN(dims, &negative, .n_dims = 1);
    OPEN(dims, &unknown, .n_dims = 1);
    said(f, "'M'");
    OPEN(n_dims, SIZE_MAX);
    ampc_session_options valid = {.struct_size = sizeof valid};
    refuse_bad_values(f, &(options_use){"ampc_session_options", &valid, open_it}, session_rows);
    any("ampc_session_options", "struct_size");
    any("ampc_context_options", "struct_size log user strict");
}

TEST_API(test_data_options)
{
    ampc_data *data = NULL;
    float x[8][4] = {{0}};
    const ampc_data_field good = {.name = "x", .dtype = AMPC_F32, .rank = 1, .dims = {4}, .data = x};
    const ampc_data_field bad[] = {
        {.dtype = AMPC_F32, .rank = 1, .dims = {4}, .data = x},
        {.name = "", .dtype = AMPC_F32, .rank = 1, .dims = {4}, .data = x},
        {.name = "x", .dtype = (ampc_dtype)99, .rank = 1, .dims = {4}, .data = x},
        {.name = "x", .dtype = AMPC_F32, .rank = -1, .dims = {4}, .data = x},
        {.name = "x", .dtype = AMPC_F32, .rank = AMPC_MAX_RANK + 1, .data = x},
        {.name = "x", .dtype = AMPC_F32, .rank = 1, .dims = {-4}, .data = x},
        {.name = "x", .dtype = AMPC_F32, .rank = 2, .dims = {INT64_MAX, 3}, .data = x},
    };
    const ampc_data_options unset = {0}, own = {.struct_size = sizeof own, .fields = &good, .n_fields = 1, .rows = 8};
    MUTE(ampc_data_create, context, NULL, &own, &data);
    REFUSED(ampc_data_create, options, f->c, NULL, &data);
    REFUSED(ampc_data_create, options, f->c, &unset, &data);
    REFUSED(ampc_data_create, data, f->c, &own, NULL);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) DATA(fields, &bad[i]);
    DATA(fields, NULL);
    DATA(n_fields, 0);
    DATA(n_fields, SIZE_MAX);
    DATA(rows, 0);
    DATA(rows, -1);
    DATA(rows, INT64_MAX);
    DATA(options, "validation=2");
    DATA(options, "nonsense");
    ampc_data_field called = good;
    called.data = NULL;
    const ampc_data_options silent = {.struct_size = sizeof silent, .fields = &called, .n_fields = 1, .rows = 8};
    refused(f, "ampc_data_options", "read", ampc_data_create(f->c, &silent, &data));
    any("ampc_data_options", "struct_size user one_thread");
    assert_null(data);
    assert_int_equal(ampc_data_create(f->c, &own, &data), AMPC_OK);
    BAD_TRAIN(dataset, data); /* and `data` */
    BAD_TRAIN(eval_dataset, data, .eval_data = "synthetic");
    ampc_data_free(data);
}

TEST_API(test_train_options)
{
    ampc_train_options valid = {.struct_size = sizeof valid, .data = "synthetic", .batch = 4, .steps = 1};
    refuse_bad_values(f, &(options_use){"ampc_train_options", &valid, train_it}, train_rows);
    BAD_TRAIN(data, NULL);
    BAD_TRAIN(data, "nonsense:x");
    BAD_TRAIN(steps, 0);
    BAD_TRAIN(epochs, 1); /* and steps */
    BAD_TRAIN(workers, -2);
    BAD_TRAIN(workers, 1000);
    BAD_TRAIN(metrics, "accuracy"); /* these require eval_data */
    BAD_TRAIN(best, "accuracy");
    BAD_TRAIN(early_stop, "loss");
    BAD_TRAIN(evaluated, ignore_evaluation);
    BAD_TRAIN(best, "accuracy", .eval_data = "synthetic"); /* which requires checkpoint_dir */
    BAD_TRAIN(metrics, "accuracy,r2", .eval_data = "synthetic");
    BAD_TRAIN(early_stop, "accuracy,patience=0", .eval_data = "synthetic");
    any("ampc_train_options", "struct_size seed progress user");
}

TEST(test_everything_has_a_row) { expect_all_rows(); }
