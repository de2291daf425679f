/* test_custom_faults.c - custom operators that do not work: bad tables, failing and wrong functions, models that do not
 * fit, calls of ampc.h from a function. Each is one error that names the node. */
#include "tests/unit/custom_fixture.h"

/* ---- tables ----------------------------------------------------------------------------------- */

#define BAD(text, ...) \
    do { \
        ampc_operator op = scaled_tanh(&h.log); \
        __VA_ARGS__; \
        expect_failure(ampc_operator_register(h.c, &op), AMPC_USAGE, h.c, text); \
    } while (0)

TEST_SCRATCH(test_bad_tables)
{
    handles h;
    open_context(&h);
    BAD("struct_size", op.struct_size = 0);
    BAD("struct_size", op.struct_size = SIZE_MAX);
    BAD("domain is NULL", op.domain = NULL);
    BAD("name is NULL", op.name = NULL);
    BAD("not the name of a domain", op.domain = "");
    BAD("not the name of a domain", op.domain = "com:example");
    BAD("own domain", op.domain = "ai.onnx");
    BAD("not the name of an operator", op.name = "");
    BAD("not the name of an operator", op.name = "Scaled Tanh");
    BAD("not the name of an operator", op.name = "com::Tanh");
    BAD("since", op.since = -1);
    BAD("infer is NULL", op.infer = NULL);
    BAD("no device", op.forward_cpu = NULL; op.gradient_cpu = NULL);
    BAD("gradient needs the forward", op.gradient_cuda = tanh_gradient);
    BAD("gradient needs the forward", op.forward_cpu = NULL; op.forward_cuda = tanh_forward);
    BAD("no device has a gradient", op.gradient_cpu = NULL; op.gradient_operands = 1);
    BAD("'blue' is not a colour", op.colour = "blue");
    BAD("'clear' is not a colour", op.colour = "clear");
    BAD("bits of other types", op.float_types |= 1u << AMPC_I32);
    BAD("bits of other types", op.float_types |= 1);
    BAD("must include f32", op.float_types = 1u << AMPC_F16);
    BAD("white operator must allow", op.colour = "white"; op.float_types = 0);
    ampc_operator op = scaled_tanh(&h.log);
    OK(h.c, ampc_operator_register(h.c, &op));
    expect_failure(ampc_operator_register(h.c, &op), AMPC_USAGE, h.c,
                   "com.example::ScaledTanh of version 1 is registered already");
    op.since = 1; /* what 0 means */
    expect_failure(ampc_operator_register(h.c, &op), AMPC_USAGE, h.c, "registered already");
    op.since = 2;
    OK(h.c, ampc_operator_register(h.c, &op));
    close_all(&h);
}

/* The table is copied. */
TEST_SCRATCH(test_table_of_the_caller)
{
    handles h;
    char domain[] = "com.example", name[] = "ScaledTanh";
    const char *path = write_tanh(t, ONNX_f32);
    open_context(&h);
    ampc_operator op = scaled_tanh(&h.log);
    op.domain = domain;
    op.name = name;
    OK(h.c, ampc_operator_register(h.c, &op));
    memset(domain, '?', sizeof domain - 1);
    memset(name, '?', sizeof name - 1);
    memset(&op, 0, sizeof op);
    OK(h.c, ampc_module_import(h.c, path, NULL, 0, &h.m));
    close_all(&h);
}

/* ---- inference -------------------------------------------------------------------------------- */

typedef struct fake {
    ampc_type type;
    ampc_status status;
    const char *reason;
    bool later; /* only when all sizes are known */
} fake;

static ampc_status fake_infer(ampc_infer_call *call, void *user)
{
    const fake *l = user;
    call->results[0] = call->operands[0];
    if (l->later && call->operands[0].dims[0] < 0) return AMPC_OK;
    if (l->status != AMPC_OK) {
        if (l->reason) snprintf(call->message, call->message_size, "%s", l->reason);
        return l->status;
    }
    call->results[0] = l->type;
    return AMPC_OK;
}

static ampc_status do_nothing(const ampc_call *call, void *user)
{
    (void)call;
    (void)user;
    return AMPC_OK;
}

static ampc_operator faking(fake *l)
{
    return (ampc_operator){.struct_size = sizeof(ampc_operator),
                           .domain = "com.example",
                           .name = "Fake",
                           .infer = fake_infer,
                           .forward_cpu = do_nothing,
                           .user = l};
}

typedef struct fake_row {
    fake fake;
    const char *message;
} fake_row;

TEST_SCRATCH(test_inference)
{
    static fake_row rows[] = {
        {{.status = AMPC_REJECTED, .reason = "rank 3 expected"}, "inference failed: rank 3 expected"},
        {{.status = AMPC_UNSUPPORTED}, "inference failed: an operator, gradient or feature is not"},
        {{.status = (ampc_status)99, .reason = "odd\nstatus"}, "inference failed: odd status"},
        {{.status = (ampc_status)-1}, "inference failed: "},
        {{.type = {0}}, "infer has not set the type of result 0"},
        {{.type = {(ampc_dtype)-1, 0, {0}}}, "unknown element type -1 for result 0"},
        {{.type = {(ampc_dtype)14, 0, {0}}}, "unknown element type 14"},
        {{.type = {(ampc_dtype)1000, 0, {0}}}, "unknown element type 1000"},
        {{.type = {AMPC_F32, -1, {0}}}, "rank -1 for result 0"},
        {{.type = {AMPC_F32, 13, {0}}}, "rank 13 for result 0"},
        {{.type = {AMPC_F32, 9, {1, 1, 1, 1, 1, 1, 1, 1, 1}}}, "a model has at most 8 dimensions"},
        {{.type = {AMPC_F32, 2, {1, -1}}}, "invalid size of dimension 1 of result 0"},
        {{.type = {AMPC_F32, 1, {INT64_MIN}}}, "invalid size"},
        {{.type = {AMPC_F32, 1, {INT64_MIN + 1000}}}, "invalid size"}, /* looks like a size that is not known */
        {{.type = {AMPC_F32, 3, {INT64_MAX, INT64_MAX, 4}}}, "too large"},
    };
    node n = custom_node("Fake", "s", "y");
    const char *path = write_network(t, ONNX_f32, &n);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        handles h;
        const ampc_operator op = faking(&rows[i].fake);
        const ampc_status expected = rows[i].fake.status == AMPC_UNSUPPORTED ? AMPC_UNSUPPORTED : AMPC_REJECTED;
        open_context(&h);
        OK(h.c, ampc_operator_register(h.c, &op));
        expect_failure(ampc_module_import(h.c, path, NULL, 0, &h.m), expected, h.c, rows[i].message);
        if (!strstr(ampc_context_message(h.c), "'f' (com.example::Fake)"))
            fail_msg("no node: %s", ampc_context_message(h.c));
        close_all(&h);
    }
}

/* What infer says when all sizes are known has to agree with the module. */
TEST_SCRATCH(test_later_inference)
{
    static fake_row rows[] = {
        {{.later = true, .status = AMPC_REJECTED, .reason = "odd rows"}, "inference failed: odd rows"},
        {{.later = true, .type = {AMPC_F32, 2, {3, 5}}}, "infer has set f32[3,5] for result 0"},
        {{.later = true, .type = {AMPC_F16, 2, {3, 4}}}, "infer has set f16[3,4]"},
        {{.later = true, .type = {AMPC_F32, 1, {3}}}, "infer has set f32[3]"},
        {{.later = true, .type = {AMPC_F32, 2, {3, -4}}}, "invalid size of dimension 1"},
    };
    node n = custom_node("Fake", "s", "y");
    const char *path = write_network(t, ONNX_f32, &n);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        handles h;
        const ampc_operator op = faking(&rows[i].fake);
        open_context(&h);
        open_with(&h, &op, path, NULL);
        expect_failure(run_rows(&h, "infer", 3), AMPC_REJECTED, h.c, rows[i].message);
        assert_non_null(strstr(ampc_context_message(h.c), "com.example::Fake"));
        close_all(&h);
    }
}

/* ---- execution -------------------------------------------------------------------------------- */

TEST_SCRATCH(test_failing_functions)
{
    static const struct {
        ampc_status status, expected;
    } rows[] = {{AMPC_NUMERIC, AMPC_NUMERIC}, {AMPC_NO_MEMORY, AMPC_NO_MEMORY}, {(ampc_status)77, AMPC_REJECTED}};
    const ampc_compile_options o = {.struct_size = sizeof o, .loss = "mse"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        handles h;
        ampc_tensor *in[2], *before, *after;
        open_model(&h, write_tanh(t, ONNX_f32), &o);
        in[0] = make_input(&h, "x", 2, 3);
        in[1] = make_input(&h, "label", 2, 4);
        OK(h.c, ampc_train_step(h.s, in, 2, NULL));
        OK(h.c, ampc_session_get(h.s, "param/w", &before));
        h.log.status = rows[i].status;
        expect_failure(ampc_train_step(h.s, in, 2, NULL), rows[i].expected, h.c,
                       "forward failed: told to fail in two lines");
        assert_non_null(strstr(ampc_context_message(h.c), "'f' (com.example::ScaledTanh)"));
        assert_int_equal(run_rows(&h, "infer", 2), rows[i].expected);
        h.log.status = AMPC_OK;
        OK(h.c, ampc_session_get(h.s, "param/w", &after));
        assert_memory_equal(ampc_tensor_data(before), ampc_tensor_data(after), ampc_tensor_bytes(before));
        OK(h.c, ampc_train_step(h.s, in, 2, NULL)); /* the session goes on */
        ampc_tensor_free(before);
        ampc_tensor_free(after);
        ampc_tensor_free(in[0]);
        ampc_tensor_free(in[1]);
        close_all(&h);
    }
}

TEST_SCRATCH(test_no_gradient)
{
    handles h;
    const ampc_compile_options o = {.struct_size = sizeof o, .loss = "mse"};
    const char *path = write_tanh(t, ONNX_f32);
    open_context(&h);
    ampc_operator op = scaled_tanh(&h.log);
    op.gradient_cpu = NULL;
    OK(h.c, ampc_operator_register(h.c, &op));
    OK(h.c, ampc_module_import(h.c, path, NULL, 0, &h.m));
    expect_failure(ampc_module_compile(h.m, &o), AMPC_UNSUPPORTED, h.c,
                   "operator com.example::ScaledTanh has no gradient");
    ampc_module_free(h.m);
    h.m = NULL;
    OK(h.c, ampc_module_import(h.c, path, NULL, 0, &h.m)); /* it can be run */
    OK(h.c, ampc_module_compile(h.m, NULL));
    OK(h.c, ampc_session_open(h.m, &one_thread, &h.s));
    OK(h.c, run_rows(&h, "infer", 3));
    close_all(&h);
}

TEST_SCRATCH(test_other_devices)
{
    handles h;
    const char *path = write_tanh(t, ONNX_f32);
    open_context(&h);
    ampc_operator op = scaled_tanh(&h.log);
    op.forward_cpu = op.gradient_cpu = NULL;
    op.forward_cuda = tanh_forward;
    OK(h.c, ampc_operator_register(h.c, &op));
    const ampc_dim three = {"N", 3};
    OK(h.c, ampc_module_import(h.c, path, &three, 1, &h.m));
    OK(h.c, ampc_module_compile(h.m, NULL));
    ampc_status status = ampc_session_open(h.m, &one_thread, &h.s);
    if (status == AMPC_OK) status = run_rows(&h, "infer", 3);
    expect_failure(status, AMPC_UNSUPPORTED, h.c, "operator com.example::ScaledTanh has no function on device cpu");
    close_all(&h);
}

/* ---- models ----------------------------------------------------------------------------------- */

static void expect_refusal(scratch *t, node *n, int type, unsigned types, ampc_status status, const char *text)
{
    handles h;
    const char *path = write_network(t, type, n);
    open_context(&h);
    ampc_operator op = scaled_tanh(&h.log);
    op.float_types = types;
    OK(h.c, ampc_operator_register(h.c, &op));
    expect_failure(ampc_module_import(h.c, path, NULL, 0, &h.m), status, h.c, text);
    close_all(&h);
}

TEST_SCRATCH(test_models)
{
    node n = custom_node("ScaledTanh", "s", "y");
    node_tensor(&n, "table", TENSOR_FLOATS("", "2", 1, 2));
    expect_refusal(t, &n, ONNX_f32, ALL_FLOATS, AMPC_UNSUPPORTED, "cannot read attribute 'table'");
    n = custom_node("ScaledTanh", "s", "y");
    expect_refusal(t, &n, ONNX_f64, 0, AMPC_UNSUPPORTED, "does not allow f64");
    n = custom_node("ScaledTanh", "s", "y");
    for (int i = 0; i < 65; i++) wire_text(&n, 1, "s");
    expect_refusal(t, &n, ONNX_f32, ALL_FLOATS, AMPC_UNSUPPORTED, "at most 64 operands and results");
    n = custom_node("ScaledTanh", "s", "y,");
    for (int i = 0; i < 65; i++) wire_text(&n, 2, i == 64 ? "z" : "");
    expect_refusal(t, &n, ONNX_f32, ALL_FLOATS, AMPC_UNSUPPORTED, "at most 64 operands and results");
}

TEST_SCRATCH(test_mixed_operands)
{
    handles h;
    model m = model_new(17);
    model_input(&m, "a", ONNX_f32, "2,3");
    model_input(&m, "b", ONNX_f16, "2,3");
    node n = custom_node("SquaredDifference", "a,b", "y");
    model_add(&m, &n);
    model_output(&m, "y", ONNX_f32, NULL);
    const char *path = write_model(t, &m, 1);
    open_context(&h);
    ampc_operator op = squared_difference(&h.log);
    OK(h.c, ampc_operator_register(h.c, &op));
    expect_failure(ampc_module_import(h.c, path, NULL, 0, &h.m), AMPC_REJECTED, h.c, "must agree: f32 and f16");
    close_all(&h);
}

/* ---- calls from a function -------------------------------------------------------------------- */

static ampc_status calling_infer(ampc_infer_call *call, void *user)
{
    handles *h = user;
    ampc_module *m = NULL;
    call->results[0] = call->operands[0];
    assert_int_equal(ampc_module_import(h->c, MLP, NULL, 0, &m), AMPC_USAGE);
    ampc_context_free(h->c); /* rejected */
    return AMPC_OK;
}

static ampc_status calling_forward(const ampc_call *call, void *user)
{
    handles *h = user;
    double v;
    assert_int_equal(ampc_session_get_number(h->s, "state/lr", &v), AMPC_USAGE);
    ampc_session_free(h->s);
    ampc_module_free(h->m);
    memcpy(call->results[0].data, call->operands[0].data, call->results[0].bytes);
    return AMPC_OK;
}

TEST_SCRATCH(test_calls)
{
    handles h;
    node n = custom_node("Caller", "s", "y");
    const char *path = write_network(t, ONNX_f32, &n);
    open_context(&h);
    const ampc_operator op = {.struct_size = sizeof op,
                              .domain = "com.example",
                              .name = "Caller",
                              .infer = calling_infer,
                              .forward_cpu = calling_forward,
                              .user = &h};
    open_with(&h, &op, path, NULL);
    OK(h.c, run_rows(&h, "infer", 3));
    close_all(&h);
}

/* ---- damaged modules -------------------------------------------------------------------------- */

static char *replace(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    if (!at) fail_msg("no %s in %s", from, text);
    const size_t size = strlen(text) + strlen(to) + 1;
    char *out = malloc(size);
    assert_non_null(out);
    snprintf(out, size, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return out;
}

/* A module whose text was edited is rejected, or what was edited is found when a session is opened. */
TEST_SCRATCH(test_edited_modules)
{
    static const struct {
        const char *from, *to, *text;
    } rows[] = {
        {"[t:t]", "[t:]", "layout"},
        {"[t:t]", "[tt:t]", "layout"},
        {"[t:t]", "[t:tt]", "layout"},
        {"\"alpha\"=1.5", "\"alpha\"", "expected '='"},
        {"\"alpha\"=1.5", "\"alpha\"=x", "expected a number"},
        {"\"alpha\"=1.5", "\"alpha\"=1.5,", "a name in quotes"},
        {"f32 \"alpha\"", "f16 \"alpha\"", "a name in quotes"},
        {"f32 \"alpha\"", "i64 \"alpha\"", "not a 64-bit integer"},
        {"gradients=\"d\"", "gradients=\"dd\"", "gradients"},
        {"gradients=\"d\"", "gradients=\"?\"", "gradients"},
        {"op_type=\"ScaledTanh\"", "op_type=\"ScaledTanh\", since=2", "not registered"},
        {"op_type=\"ScaledTanh\"", "op_type=\"Other\"", "not registered"},
    };
    handles h;
    size_t size;
    const ampc_dim three = {"N", 3};
    const char *path = scratch_path(t, "m.ir");
    scratch_path(t, "m.safetensors");
    open_context(&h);
    const ampc_operator op = scaled_tanh(&h.log);
    OK(h.c, ampc_operator_register(h.c, &op));
    OK(h.c, ampc_module_import(h.c, write_tanh(t, ONNX_f32), &three, 1, &h.m));
    OK(h.c, ampc_module_compile(h.m, NULL));
    OK(h.c, ampc_module_save(h.m, path));
    ampc_module_free(h.m);
    char *sealed = scratch_read(t, "m.ir", &size), *seal = strstr(sealed, "\nend xxh3=");
    assert_non_null(seal);
    seal[1] = '\0';
    char *text = replace(sealed, "sealed ", "");
    free(sealed);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *edited = replace(text, rows[i].from, rows[i].to);
        h.m = NULL;
        h.s = NULL;
        scratch_write(t, "m.ir", edited, strlen(edited));
        ampc_status status = ampc_module_load(h.c, path, &h.m);
        if (status == AMPC_OK) status = ampc_session_open(h.m, &one_thread, &h.s);
        if (status == AMPC_OK) status = run_rows(&h, "infer", 3);
        if (status == AMPC_OK || !strstr(ampc_context_message(h.c), rows[i].text))
            fail_msg("%s: status %d, expected '%s' in: %s", rows[i].to, (int)status, rows[i].text,
                     ampc_context_message(h.c));
        ampc_session_free(h.s);
        ampc_module_free(h.m);
        free(edited);
    }
    free(text);
    ampc_context_free(h.c);
}
