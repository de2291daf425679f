/* test_tuning.c - races between the algorithms of the libraries, and the cache of their results. */

#include "kernels/epilogue.h"
#include "tests/cuda/calls.h"
#include "tests/cuda/double/double.h"
#include "tests/test.h"
#include "tests/tier.h"

/* Prepares a matmul and a convolution in a new context; returns how often anything was timed. */
static long races(bool tune)
{
    call product, windowed;
    open_context(tune);
    double_mark();
    call_matmul(&product, (int64_t[]){24, 40}, (int64_t[]){40, 16}, (int64_t[]){24, 16});
    call_convolution(&windowed, IR_OP_conv, &windows[N_WINDOWS - 2], IR_f16, IR_f16);
    if (call_prepare(&product) != AMPC_OK || call_prepare(&windowed) != AMPC_OK) fail_msg("%s", call_error);
    long timed = double_count("cudaEventElapsedTime");
    if (timed) assert_true(double_count("cublasLtMatmul") + double_count("cudnnBackendExecute") > timed);
    call_release(&product);
    call_release(&windowed);
    close_context();
    return timed;
}

#define TEST_TUNING(name) TEST_WITH(make_cache, drop_cache, void *unused, name)

TEST_TUNING(races_are_run_once)
{
    assert_int_equal(races(false), 0);
    assert_null(cache_file("r", NULL));
    assert_true(races(true) > 0);
    const char *text = cache_file("r", NULL);
    assert_non_null(text);
    assert_non_null(strstr(text, "matmul f16->f16 24x16x40 bias\n"));
    assert_non_null(strstr(text, "cuDNN "));
    assert_int_equal(races(true), 0);
    assert_int_equal(races(false), 0);
}

/* Prepares attention of `queries` queries in a new context; returns how often anything was timed. */
static long attention_races(bool tune, int64_t queries)
{
    const int64_t q[] = {1, 2, queries, 8}, lse[] = {1, 2, queries, 2};
    k_view in[] = {view(IR_f16, 4, q), view(IR_f16, 4, q), view(IR_f16, 4, q), {.dtype = IR_NO_DTYPE}};
    call c = {.args = {.op = IR_OP_attention, .in = in, .out = c.out, .n_in = 4, .n_out = 2, .attr = c.attr}};
    open_context(tune);
    c.args.ctx = &call_ctx;
    c.attr[IR_ATTR(attention, scale)].f = 0.5;
    c.out[0] = view(IR_f16, 4, q);
    c.out[1] = view(IR_f32, 4, lse);
    double_mark();
    if (call_prepare(&c) != AMPC_OK) fail_msg("%s", call_error);
    const long timed = double_count("cudaEventElapsedTime");
    assert_int_equal(timed > 0, double_count("cudnnBackendExecute") > 0);
    call_release(&c);
    close_context();
    return timed;
}

static size_t old_version(void) { return 90000; }

/* cuDNN, unless it is too old, competes with our kernel if the context tunes and the sequences are long. */
TEST_TUNING(attention_is_raced)
{
    enum { RUNS = 4, SHORT = 255, LONG = 256 };
    tier_print_part("attention", RUNS);
    if (!tier_is_due(0, RUNS)) skip();
    assert_int_equal(attention_races(false, LONG), 0);
    assert_int_equal(attention_races(true, SHORT), 0);
    assert_true(attention_races(true, LONG) > 0);
    const char *text = cache_file("r", NULL);
    assert_non_null(text);
    assert_non_null(strstr(text, ", own or cuDNN\n"));
    assert_int_equal(attention_races(true, LONG), 0);
    size_t (*const version)(void) = cuda.cudnnGetVersion;
    cuda.cudnnGetVersion = old_version;
    assert_int_equal(attention_races(true, LONG), 0);
    cuda.cudnnGetVersion = version;
}

/* The engines of created plans, in order, and whether they compile their kernel. */
static struct {
    int64_t engine;
    bool compiles;
} planned[64];
static int n_planned;
static cudnnStatus_t (*set_attribute)(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
                                      cudnnBackendAttributeType_t, int64_t, const void *);

static void record_engine(cudnnBackendDescriptor_t config)
{
    cudnnBackendDescriptor_t engine;
    cudnnBackendBehaviorNote_t notes[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t n;
    assert_int_equal(cuda.cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine), 0);
    assert_int_equal(cuda.cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                   1, &n, &engine),
                     0);
    assert_int_equal(cuda.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n,
                                                   &planned[n_planned].engine),
                     0);
    assert_int_equal(cuda.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                                   CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &n, notes),
                     0);
    planned[n_planned].compiles = false;
    while (n-- > 0) planned[n_planned].compiles |= notes[n] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    n_planned++;
    cuda.cudnnBackendDestroyDescriptor(engine);
}

static cudnnStatus_t record_plans(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                  cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) record_engine(*(const cudnnBackendDescriptor_t *)values);
    return set_attribute(d, name, type, count, values);
}

/* No engine races twice before all have raced once, and engines that compile come last. */
TEST_TUNING(distinct_engines_race_first)
{
    static const window_row small = {"small", 2, 2, 16, 16, 1, {8, 8}, {3, 3}, 1, 1, 1, 1};
    int distinct = 0;
    for (int o = 0; o < 3; o++) {
        call c;
        open_context(true);
        assert_int_equal(cuda_open_dnn(&call_ctx), AMPC_OK);
        set_attribute = cuda.cudnnBackendSetAttribute;
        cuda.cudnnBackendSetAttribute = record_plans;
        n_planned = 0;
        call_convolution(&c, convolutions[o], &small, IR_f16, IR_f16);
        call_channels_last(&c);
        const ampc_status status = call_prepare(&c);
        cuda.cudnnBackendSetAttribute = set_attribute;
        if (status != AMPC_OK) fail_msg("%s", call_error);
        for (int i = 0, repeats = 0; i < n_planned; i++) {
            bool again = false;
            for (int j = 0; j < i; j++) again |= planned[j].engine == planned[i].engine;
            if (i > 0 && planned[i - 1].compiles && !planned[i].compiles)
                fail_msg("engine %d after one that compiles", (int)planned[i].engine);
            if (!again && repeats && !planned[i].compiles)
                fail_msg("engine %d first races at position %d, after repeats", (int)planned[i].engine, i);
            repeats += again;
            distinct += !again;
        }
        call_release(&c);
        close_context();
    }
    assert_true(distinct > 3 * 3);
}

/* A choice made with another order of candidates is a separate entry. */
TEST_TUNING(choices_depend_on_the_order)
{
    char text[4096], order[32];
    assert_true(races(true) > 0);
    snprintf(text, sizeof text, "%s", cache_file("r", NULL));
    snprintf(order, sizeof order, ", order %d|", DNN_RULES);
    char *at = strstr(text, order);
    assert_non_null(at);
    at[strlen(", order ")]++;
    assert_non_null(cache_file("w", text));
    assert_true(races(true) > 0);
}

/* A matmul that also sums an operand is a different race from the plain matmul. */
TEST_TUNING(races_depend_on_the_epilogue)
{
    call product;
    assert_true(races(true) > 0);
    open_context(true);
    double_mark();
    call_matmul(&product, (int64_t[]){24, 40}, (int64_t[]){40, 16}, (int64_t[]){24, 16});
    product.in[2].dtype = IR_NO_DTYPE;
    product.out[1 + K_SLOT(epilogue, sum_b)] = view(IR_f16, 1, (int64_t[]){16});
    product.args.n_out = 1 + K_SLOT(epilogue, n_out);
    assert_int_equal(cuda_supports_epilogue(&product.args), AMPC_OK);
    assert_int_equal(double_count("cudaEventElapsedTime"), 0);
    if (call_prepare(&product) != AMPC_OK) fail_msg("%s", call_error);
    assert_true(double_count("cudaEventElapsedTime") > 0);
    call_release(&product);
    close_context();
    assert_non_null(strstr(cache_file("r", NULL), "matmul f16->f16 24x16x40 sum b\n"));
}

/* Asks about a convolution that sums its result; races: whether that times anything. */
static ampc_status supports_statistics(const window_row *r, bool races)
{
    call c;
    open_context(true);
    call_convolution(&c, IR_OP_conv, r, IR_f16, IR_f16);
    call_channels_last(&c);
    c.in[IR_IN(conv, bias)].dtype = IR_NO_DTYPE;
    for (int i = 0; i < K_SLOT(statistics, n_out); i++) c.out[c.args.n_out++] = view(IR_f32, 1, &r->filters);
    double_mark();
    const ampc_status status = cuda_supports_epilogue(&c.args);
    if ((double_count("cudaEventElapsedTime") > 0) != races) fail_msg("status %d: %s", status, call_error);
    close_context();
    return status;
}

/* The sums of a convolution race against a separate pass, once. */
TEST_TUNING(statistics_must_pay)
{
    static const window_row rows[] = {{"3x3", 2, 1, 8, 8, 1, {5, 5}, {3, 3}, 1, 1, 1, 1},
                                      {"1x1", 2, 1, 8, 8, 1, {5, 5}, {1, 1}, 1, 1, 0, 0}};
    for (int i = 0; i < 2; i++) {
        char text[8192], *at;
        const ampc_status status = supports_statistics(&rows[i], true);
        if (status != AMPC_UNSUPPORTED && status != AMPC_OK) fail_msg("%s", call_error);
        assert_int_equal(supports_statistics(&rows[i], false), status);
        snprintf(text, sizeof text, "%s", cache_file("r", NULL));
        assert_non_null(strstr(text, "conv with or without sums f16 n1 g1 8 to 8, 5 by "));
        for (at = strstr(text, "conv with or without"); at > text && at[-1] != '\n';) at--;
        *at = '1' - (*at - '0');
        assert_non_null(cache_file("w", text));
        assert_int_equal(supports_statistics(&rows[i], false), status == AMPC_OK ? AMPC_UNSUPPORTED : AMPC_OK);
        assert_non_null(cache_file("w", ""));
    }
}

TEST_TUNING(damaged_cache_is_ignored)
{
    assert_true(races(true) > 0);
    assert_non_null(cache_file("w", "x\tmatmul\n999999999999\n\n7\t"));
    assert_true(races(true) > 0);
    assert_int_equal(races(true), 0);
}

/* A cached number without a candidate is ignored. */
TEST_TUNING(a_stale_choice_is_measured_again)
{
    char text[4096];
    assert_true(races(true) > 0);
    snprintf(text, sizeof text, "%s", cache_file("r", NULL));
    for (char *line = text; *line; line = strchr(line, '\n') + 1) *line = '7', line[1] = '7'; /* 77... */
    assert_non_null(cache_file("w", text));
    assert_true(races(true) > 0);
}

TEST_TUNING(unwritable_cache_is_ignored)
{
    setenv("XDG_CACHE_HOME", "/dev/null", 1);
    assert_true(races(true) > 0);
    assert_true(races(true) > 0);
}

/* Without memory there is no race. */
TEST_TUNING(out_of_memory_skips_the_race)
{
    double_memory((size_t)CUDA_LT_WORKSPACE + (1 << 16));
    call product;
    open_context(true);
    double_mark();
    call_matmul(&product, (int64_t[]){2000, 4000}, (int64_t[]){4000, 1000}, (int64_t[]){2000, 1000});
    assert_int_equal(call_prepare(&product), AMPC_OK);
    assert_int_equal(double_count("cudaEventElapsedTime"), 0);
    call_release(&product);
    close_context();
    double_memory((size_t)1 << 30);
}

TEST_GROUP(no_cache, NULL)
