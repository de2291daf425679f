/* test_api_misuse.c - ampc.h used wrongly: calls in the wrong order, the words of messages, struct versions, early frees. */
#include "tests/unit/api_calls.h"

TEST(test_order)
{
    ampc_context *c = NULL;
    ampc_module *m = NULL;
    ampc_session *s = NULL;
    ampc_compile_options o = {.struct_size = sizeof o, .loss = "hinge"};
    assert_int_equal(ampc_context_create(NULL, &c), AMPC_OK);
    OK(c, ampc_module_import(c, MLP, NULL, 0, &m));
    expect_failure(ampc_session_open(m, &one_thread, &s), AMPC_USAGE, c, "not compiled");
    expect_failure(ampc_module_compile(m, &o), AMPC_USAGE, c, "hinge");
    expect_failure(ampc_module_compile(m, NULL), AMPC_USAGE, c, "failed before");
    ampc_module_free(m);
    OK(c, ampc_module_import(c, MLP, NULL, 0, &m));
    OK(c, ampc_module_compile(m, &training));
    expect_failure(ampc_module_compile(m, &training), AMPC_USAGE, c, "already");
    ampc_session_options where = {.struct_size = sizeof where, .threads = 1, .device = "abacus"};
    expect_failure(ampc_session_open(m, &where, &s), AMPC_DEVICE, c, "abacus");
    OK(c, ampc_session_open(m, &one_thread, &s));
    assert_int_equal(ampc_session_run(s, "infer", NULL, 0), AMPC_REJECTED);
    ampc_session_free(s);
    ampc_module_free(m);
    ampc_context_free(c);
}

/* Messages say what to change in the words of ampc.h. */
TEST(test_words)
{
    static const char *const muon = "*,muon=1";
    static const struct {
        ampc_compile_options options;
        const char *text;
    } rows[] = {
        {{.loss = "ce", .loss_output = "y"},
         "error: ampc_compile_options.loss and ampc_compile_options.loss_output exclude each other"},
        {{.loss = "ce,axis=x"}, "error: ampc_compile_options.loss: axis must be an integer from -8 to 7, not 'x'"},
        {{.loss = "ce", .optimizer = "sgd,lr=much"}, "error: ampc_compile_options.optimizer: lr must be a number"},
        {{.loss = "ce", .groups = &muon, .n_groups = 1},
         "error: ampc_compile_options.groups: muon=1 needs the optimizer muon; set ampc_compile_options.optimizer to "
         "muon"},
        {{.loss = "ce", .hysteresis = 2, .decr_every_n_nan_or_inf = 2},
         "error: ampc_compile_options.hysteresis: replaces the count of overflowing steps: not with "
         "ampc_compile_options.decr_every_n_nan_or_inf"},
        {{.white = "Gemm", .black = "Gemm"}, "error: the options name operator 'Gemm' as white and as black"},
        {{.loss = "ce", .train = "nothing", .freeze = "w*"},
         "error: ampc_compile_options.train: 'nothing' matches no parameter"},
        {{.normalize = "mean"}, "error: ampc_compile_options.normalize: mean needs a value: a number"},
        {{.loss = "ce", .grad_penalty = "L2:all,1"}, "error: ampc_compile_options.grad_penalty: expected L2:input"},
    };
    const ampc_context_options strict = {.struct_size = sizeof strict, .strict = 1};
    ampc_context *c;
    ampc_module *m;
    assert_int_equal(ampc_context_create(&strict, &c), AMPC_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ampc_compile_options o = rows[i].options;
        o.struct_size = sizeof o;
        OK(c, ampc_module_import(c, MLP, NULL, 0, &m));
        assert_int_not_equal(ampc_module_compile(m, &o), AMPC_OK);
        if (!strstr(ampc_context_message(c), rows[i].text))
            fail_msg("expected '%s' in: %s", rows[i].text, ampc_context_message(c));
        ampc_module_free(m);
    }
    ampc_session *s;
    ampc_train_options o = {.struct_size = sizeof o, .data = "synthetic", .batch = 4, .steps = 1};
    OK(c, ampc_module_import(c, MLP, NULL, 0, &m));
    OK(c, ampc_module_compile(m, NULL));
    OK(c, ampc_session_open(m, &one_thread, &s));
    expect_failure(ampc_train(s, &o), AMPC_UNSUPPORTED, c, "it has no loss; set ampc_compile_options.loss to KIND");
    ampc_session_free(s);
    ampc_module_free(m);
    ampc_context_free(c);
}

/* Structs of older programs are shorter, those of newer programs longer. */
TEST(test_struct_sizes)
{
    ampc_context *c;
    ampc_module *m;
    struct {
        ampc_compile_options current;
        char more[16];
    } newer = {.current = training};
    ampc_compile_options older = {.struct_size = offsetof(ampc_compile_options, loss), .loss = "not read"}, unset = {0};
    struct {
        size_t struct_size;
        const char *name;
        int64_t guard;
    } info = {.struct_size = 16, .guard = 77};
    assert_int_equal(ampc_context_create(NULL, &c), AMPC_OK);
    OK(c, ampc_module_import(c, MLP, NULL, 0, &m));
    OK(c, ampc_module_input(m, "forward", 0, (ampc_input_info *)&info));
    assert_string_equal(info.name, "x");
    assert_int_equal(info.guard, 77);
    expect_failure(ampc_module_compile(m, &unset), AMPC_USAGE, c, "struct_size");
    newer.current.struct_size = sizeof newer;
    newer.more[3] = 1;
    expect_failure(ampc_module_compile(m, &newer.current), AMPC_USAGE, c, "newer version");
    OK(c, ampc_module_compile(m, &older));
    ampc_module_free(m);
    newer.more[3] = 0;
    OK(c, ampc_module_import(c, MLP, NULL, 0, &m));
    OK(c, ampc_module_compile(m, &newer.current));
    ampc_input_info infer_input = {.struct_size = sizeof infer_input};
    OK(c, ampc_module_input(m, "infer", 0, &infer_input));
    assert_int_equal(infer_input.rank, 2);
    assert_int_equal(infer_input.dims[0], -1);
    assert_int_equal(infer_input.dims[1], 4);
    assert_string_equal(infer_input.dim_names[0], "N");
    assert_null(infer_input.dim_names[1]);
    expect_failure(ampc_module_input(m, "infer", 1, &infer_input), AMPC_USAGE, c, "1 inputs");
    ampc_module_free(m);
    ampc_context_free(c);
}

static void count_messages(void *user, ampc_log_level level, const char *message)
{
    assert_int_equal(level, AMPC_LOG_ERROR);
    assert_non_null(strstr(message, "/nowhere.onnx"));
    ++*(int *)user;
}

TEST(test_log_and_free_order)
{
    int messages = 0;
    const ampc_context_options o = {.struct_size = sizeof o, .log = count_messages, .user = &messages};
    ampc_context *c;
    ampc_module *m;
    ampc_session *s;
    assert_int_equal(ampc_context_create(&o, &c), AMPC_OK);
    assert_int_equal(ampc_module_import(c, "/nowhere.onnx", NULL, 0, &m), AMPC_IO);
    assert_int_equal(messages, 1);
    ampc_context_free(c);
    assert_int_equal(ampc_context_create(NULL, &c), AMPC_OK);
    OK(c, ampc_module_import(c, MLP, NULL, 0, &m));
    OK(c, ampc_module_compile(m, &training));
    OK(c, ampc_session_open(m, &one_thread, &s));
    ampc_context_free(c);
    ampc_module_free(m);
    double step;
    assert_int_equal(ampc_session_get_number(s, "state/step", &step), AMPC_OK);
    ampc_session_free(s);
    ampc_session_free(NULL);
    ampc_module_free(NULL);
    ampc_context_free(NULL);
    ampc_tensor_free(NULL);
    assert_string_equal(ampc_status_name(AMPC_DEVICE), "AMPC_DEVICE");
    assert_non_null(strchr(ampc_version(), '.'));
}
