/* test_refusals.c - behaviour if a library rejects a call: if an algorithm of cuBLASLt is not supported, another one runs; a device
 * fault is never mistaken for that; errors name their library. Also tests launch limits. */
#include "kernels/cuda/dnn.h"
#include "kernels/cuda/generate.h"
#include "runtime/session/session.h"
#include "tests/cuda/double/double.h"
#include "tests/test.h"

/* A matmul whose batch dimensions are shared differently, so that each run calls the library twice. */
enum {
    M = 3,
    K = 4,
    N = 2,
    BATCH = 2,
    CALLS = 2,
    RUNS = 4,
    RECORDED = 2 /* runs that are captured, after one that is walked */
};

static const char product[] = "ampc-ir 3\ngraph @g(@a : f32[2,1,3,4], @b : f32[2,2,4,2]) {\nforward:\n"
                              "  %y = matmul @a, @b : f32[2,2,3,2] !MatMul \"named\"\n  output \"y\" = %y\n}\n";

typedef struct fixture {
    diag *d;
    ir_module *module;
    rt_session *s;
} fixture;

static void open_fixture(fixture *f)
{
    *f = (fixture){.d = diag_new(NULL, NULL)};
    if (ir_parse(product, strlen(product), "product.ir", f->d, &f->module) != AMPC_OK)
        fail_msg("%s", diag_first_error(f->d));
    const rt_session_options o = {.device = "cuda", .no_tune = true};
    if (rt_session_open(f->module, &o, f->d, &f->s) != AMPC_OK) fail_msg("%s", diag_first_error(f->d));
}

static void close_fixture(fixture *f)
{
    double_refuse_algorithms(0, 0);
    double_fail(0);
    rt_session_close(f->s);
    ir_module_free(f->module);
    diag_free(f->d);
}

static void fill(float *a, int n, int from)
{
    for (int i = 0; i < n; i++) a[i] = (float)((from + i * 7) % 11 - 5);
}

/* Runs once; a successful run must have the right result. */
static ampc_status run(fixture *f)
{
    float a[BATCH * M * K], b[BATCH * BATCH * K * N];
    const rt_tensor in[] = {{.name = "a", .dtype = IR_f32, .rank = 4, .dims = {BATCH, 1, M, K}, .data = a},
                            {.name = "b", .dtype = IR_f32, .rank = 4, .dims = {BATCH, BATCH, K, N}, .data = b}};
    fill(a, BATCH * M * K, 1);
    fill(b, BATCH * BATCH * K * N, 3);
    diag_clear(f->d);
    const ampc_status status = rt_session_run(f->s, "g", in, 2, f->d);
    if (status != AMPC_OK) return status;
    const float *y = rt_session_output(f->s, "y")->data;
    for (int i = 0; i < BATCH * BATCH * M * N; i++) {
        const int item = i / (M * N), row = i / N % M, column = i % N;
        float sum = 0;
        for (int k = 0; k < K; k++) sum += a[(item / BATCH * M + row) * K + k] * b[(item * K + k) * N + column];
        assert_float_equal(y[i], sum, 0);
    }
    return status;
}

/* Expects the right result in every run; `first`: library calls in the first run. */
static void expect_runs(unsigned checked, unsigned refused, long first)
{
    fixture f;
    double_refuse_algorithms(checked, refused);
    open_fixture(&f);
    double_mark();
    if (run(&f) != AMPC_OK) fail_msg("%s", diag_first_error(f.d));
    assert_int_equal(double_count("cublasLtMatmul"), first);
    double_mark();
    for (int i = 1; i < RUNS; i++)
        if (run(&f) != AMPC_OK) fail_msg("%s", diag_first_error(f.d));
    assert_int_equal(double_count("cublasLtMatmul"), RECORDED * CALLS);
    close_fixture(&f);
}

TEST(another_algorithm_runs)
{
    expect_runs(0, 0, CALLS);
    expect_runs(0, 1, 1 + CALLS);
    expect_runs(0, 7, 3 + CALLS);
    expect_runs(1, 1, CALLS);     /* already rejected by the check */
    expect_runs(2, 3, 1 + CALLS); /* the first is rejected, and the second is last */
    expect_runs(15, 0, CALLS);    /* if the check rejects all of them, it is ignored */
}

TEST(all_refused_is_an_error)
{
    fixture f;
    double_refuse_algorithms(0, 15);
    open_fixture(&f);
    double_mark();
    assert_int_equal(run(&f), AMPC_DEVICE);
    assert_int_equal(double_count("cublasLtMatmul"), 4);
    const char *error = diag_first_error(f.d);
    if (!strstr(error, "cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED (") || !strstr(error, "4 algorithms") ||
        !strstr(error, "named"))
        fail_msg("%s", error);
    close_fixture(&f);
}

/* Once an algorithm has run, a rejection of it is an error. */
TEST(what_ran_is_not_replaced)
{
    fixture f;
    open_fixture(&f);
    assert_int_equal(run(&f), AMPC_OK);
    double_refuse_algorithms(0, 1);
    assert_int_equal(run(&f), AMPC_DEVICE); /* the run that captures */
    if (!strstr(diag_first_error(f.d), "CUBLAS_STATUS_NOT_SUPPORTED")) fail_msg("%s", diag_first_error(f.d));
    close_fixture(&f);
}

/* Errors other than rejections. */
TEST(faults_are_not_tried_again)
{
    fixture f;
    bool seen = false;
    for (long n = 1; !seen; n++) {
        open_fixture(&f);
        double_mark();
        double_fail(n);
        const ampc_status status = run(&f);
        seen = double_failed() && strcmp(double_failed(), "cublasLtMatmul") == 0;
        if (seen) {
            assert_int_equal(status, AMPC_DEVICE);
            assert_int_equal(double_count("cublasLtMatmul"), 1);
            const char *error = diag_first_error(f.d);
            if (!strstr(error, "cublasLtMatmul: CUBLAS_STATUS_EXECUTION_FAILED (")) fail_msg("%s", error);
        }
        if (!double_failed()) fail_msg("no call of cublasLtMatmul was made to fail");
        close_fixture(&f);
    }
}

/* ---- names ------------------------------------------------------------------------------------------- */

static char error[512];
static k_context ctx = {.threads = 1, .error = error, .error_size = sizeof error};

static int open_context(void **state)
{
    (void)state;
    error[0] = '\0';
    if (cuda_context_open(&ctx, 0) != AMPC_OK) fail_msg("%s", error);
    return 0;
}

static int close_context(void **state)
{
    (void)state;
    cuda_context_close(&ctx);
    return 0;
}

static void expect_error(const char *part)
{
    if (!strstr(error, part)) fail_msg("'%s' has no '%s'", error, part);
}

#define TEST_REFUSALS(name) TEST_WITH(open_context, close_context, void *unused, name)

TEST_REFUSALS(errors_have_names)
{
    assert_int_equal(cuda_open_lt(&ctx), AMPC_OK);
    assert_int_equal(cuda_lt_status(&ctx, CUBLAS_STATUS_ARCH_MISMATCH, "cublasLtMatmul(x)"), AMPC_DEVICE);
    expect_error("cublasLtMatmul: CUBLAS_STATUS_ARCH_MISMATCH (the function requires");
    assert_int_equal(cuda_lt_status(&ctx, CUBLAS_STATUS_ALLOC_FAILED, "cublasLtCreate"), AMPC_NO_MEMORY);
    expect_error("cublasLtCreate: CUBLAS_STATUS_ALLOC_FAILED (");
    assert_int_equal(cuda_open_dnn(&ctx), AMPC_OK);
    assert_int_equal(cuda_dnn_status(&ctx, CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "cudnnBackendFinalize(d)"), AMPC_DEVICE);
    expect_error("cudnnBackendFinalize: CUDNN_STATUS_NOT_SUPPORTED_SHAPE");
    assert_int_equal(cuda_dnn_status(&ctx, CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, "cudnnCreate"),
                     AMPC_NO_MEMORY);
    expect_error("cudnnCreate: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED");
}

/* cuDNN reports a reason in addition to the status name. */
TEST_REFUSALS(reasons_are_told)
{
    dnn_graph g = dnn_begin(&ctx);
    dnn_finish(&g, dnn_make(&g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
    assert_int_equal(g.status, AMPC_DEVICE);
    expect_error("cudnnBackendFinalize: CUDNN_STATUS_BAD_PARAM");
    const char *reason = strchr(error, '(');
    assert_true(reason && strlen(reason) > 4 && error[strlen(error) - 1] == ')');
    const dnn_plan *plan;
    assert_int_equal(dnn_plan_of(&g, "nothing", &plan), AMPC_DEVICE); /* frees the graph */
}

TEST_REFUSALS(nvrtc_says_what_is_wrong)
{
    const cuda_generated *kernel;
    setenv("XDG_CACHE_HOME", "/dev/null", 1);
    assert_int_equal(cuda_generate(&ctx, strdup("(int *x) { y[0] = 1; }\n"), &kernel), AMPC_OK);
    assert_int_equal(cuda_prepared(&ctx), AMPC_DEVICE);
    expect_error("NVRTC_ERROR_COMPILATION");
    expect_error("\"y\" is undefined");
}

/* ---- launches ---------------------------------------------------------------------------------------- */

TEST_REFUSALS(a_grid_has_a_limit)
{
    const k_args args = {.ctx = &ctx};
    void *none = NULL;
    int64_t n = 0;
    void *arguments[] = {&none, &none, &n, &cuda_of(&ctx)->fault};
    cudaKernel_t kernel;
    assert_int_equal(cuda_find(&ctx, CUDA_FAMILY_commit, "commit", &kernel), AMPC_OK);
    double_mark();
    const int64_t most = INT32_MAX, wrapped = ((int64_t)1 << 32) + 1; /* would be 1 as unsigned */
    assert_int_equal(cuda_launch(&args, kernel, most + 1, CUDA_BLOCK, 0, arguments), AMPC_UNSUPPORTED);
    expect_error("2147483648 blocks");
    assert_int_equal(cuda_launch(&args, kernel, wrapped, CUDA_BLOCK, 0, arguments), AMPC_UNSUPPORTED);
    assert_int_equal(double_count("cudaLaunchKernel"), 0);
    assert_int_equal(cuda_launch(&args, kernel, 1, CUDA_BLOCK, 0, arguments), AMPC_OK);
    assert_int_equal(double_count("cudaLaunchKernel"), 1);
}

TEST_REFUSALS(grids_fill_the_device)
{
    const k_args args = {.ctx = &ctx};
    cuda_of(&ctx)->multiprocessors = 5;
    assert_int_equal(cuda_grid(&args, 1 << 20, 1), 5 * CUDA_BLOCKS_EACH);
    assert_int_equal(cuda_grid(&args, 9, 4), 3);
    assert_int_equal(cuda_grid(&args, 0, 4), 0);
    cuda_of(&ctx)->multiprocessors = 300;
    assert_int_equal(cuda_grid(&args, 1 << 20, 1), 300 * CUDA_BLOCKS_EACH);
}

/* Sums over rows and columns, by blocks and over their partial sums. */
static const char sums[] =
    "ampc-ir 3\nparam @scale : f32[4] = [1, 2, 3, 4]\nparam @bias : f32[4] = [4, 3, 2, 1]\n"
    "param @one : f32[1] = [1]\nstate @mean : f32[1] = zero\nstate @var : f32[1] = zero\n"
    "graph @g(@x : f32[20000,4], @label : i64[20000], @i : f32[400,1,20,20]) {\nforward:\n"
    "  %c = reduce_sum @x {axes=[0], keepdims=false} : f32[4]\n  output \"c\" = %c\n"
    "  %r = reduce_mean @x {axes=[0,1], keepdims=false} : f32[]\n  output \"r\" = %r\n"
    "  %n = global_norm @x : f32[]\n  output \"n\" = %n\n"
    "  %loss, %lse, %p = softmax_cross_entropy @x, @label : f32[], f32[20000], f32[20000,4]\n  output \"loss\" = "
    "%loss\n"
    "  %y, %m, %v, %sm, %sr = batch_norm @i, @one, @one, @mean, @var {training=true} :"
    " f32[400,1,20,20], f32[1], f32[1], f32[1], f32[1]\n"
    "  output \"y\" = %y\n  output \"m\" = %m\n  output \"v\" = %v\n"
    "  %z, %mu, %rstd = layer_norm @x, @scale, @bias : f32[20000,4], f32[20000,1], f32[20000,1]\n"
    "  %dx, %ds, %db = layer_norm_grad %z, @x, @scale, %mu, %rstd : f32[20000,4], f32[4], f32[4]\n"
    "  output \"ds\" = %ds\n  output \"db\" = %db\n}\n";

enum { ITEMS = 20000, CLASSES = 4 };

static int processors;
static cudaError_t (*get_attribute)(int *, enum cudaDeviceAttr, int);

static cudaError_t other_device(int *value, enum cudaDeviceAttr attribute, int device)
{
    if (attribute != cudaDevAttrMultiProcessorCount) return get_attribute(value, attribute, device);
    *value = processors;
    return cudaSuccess;
}

/* Returns all outputs on a device with `count` multiprocessors, concatenated; malloc'ed. */
static char *outputs_on(int count, size_t *bytes)
{
    static float x[ITEMS * CLASSES], i[400 * 20 * 20];
    static int64_t label[ITEMS];
    fixture f = {.d = diag_new(NULL, NULL)};
    char *all = NULL;
    for (int k = 0; k < ITEMS * CLASSES; k++) x[k] = 1.0f / (float)(k % 977 + 1);
    for (int k = 0; k < 400 * 20 * 20; k++) i[k] = 1.0f / (float)(k % 1913 + 1);
    for (int k = 0; k < ITEMS; k++) label[k] = k % CLASSES;
    const rt_tensor in[] = {{.name = "x", .dtype = IR_f32, .rank = 2, .dims = {ITEMS, CLASSES}, .data = x},
                            {.name = "label", .dtype = IR_i64, .rank = 1, .dims = {ITEMS}, .data = label},
                            {.name = "i", .dtype = IR_f32, .rank = 4, .dims = {400, 1, 20, 20}, .data = i}};
    if (ir_parse(sums, strlen(sums), "sums.ir", f.d, &f.module) != AMPC_OK) fail_msg("%s", diag_first_error(f.d));
    processors = count;
    const rt_session_options o = {.device = "cuda", .no_tune = true};
    if (rt_session_open(f.module, &o, f.d, &f.s) != AMPC_OK) fail_msg("%s", diag_first_error(f.d));
    if (rt_session_run(f.s, "g", in, 3, f.d) != AMPC_OK) fail_msg("%s", diag_first_error(f.d));
    *bytes = 0;
    for (int k = 0; k < rt_session_output_count(f.s); k++) {
        const rt_tensor *t = rt_session_output_at(f.s, k);
        size_t size = ir_dtype_size(t->dtype);
        for (int r = 0; r < t->rank; r++) size *= (size_t)t->dims[r];
        all = realloc(all, *bytes + size);
        assert_non_null(all);
        memcpy(all + *bytes, t->data, size);
        *bytes += size;
    }
    close_fixture(&f);
    return all;
}

/* Our kernels sum in the same order on every device, although grids differ. */
TEST_REFUSALS(sums_do_not_depend_on_the_device)
{
    size_t bytes, other;
    get_attribute = cuda.cudaDeviceGetAttribute;
    cuda.cudaDeviceGetAttribute = other_device;
    char *small = outputs_on(1, &bytes), *large = outputs_on(300, &other);
    cuda.cudaDeviceGetAttribute = get_attribute;
    assert_int_equal(bytes, other);
    assert_memory_equal(small, large, bytes);
    free(small);
    free(large);
}

/* A failed copy of results is reported once per run; the next run's results are available again. */
TEST(results_that_do_not_come_back)
{
    fixture f;
    open_fixture(&f);
    for (long n = 1; n <= 3; n++) {
        assert_int_equal(run(&f), AMPC_OK);
        assert_int_equal(rt_session_fetched(f.s, f.d), AMPC_OK);
        rt_session_close(f.s);
        assert_int_equal(rt_session_open(f.module, &(rt_session_options){.device = "cuda", .no_tune = true}, f.d, &f.s),
                         AMPC_OK);
        float a[BATCH * M * K] = {0}, b[BATCH * BATCH * K * N] = {0};
        const rt_tensor in[] = {{.name = "a", .dtype = IR_f32, .rank = 4, .dims = {BATCH, 1, M, K}, .data = a},
                                {.name = "b", .dtype = IR_f32, .rank = 4, .dims = {BATCH, BATCH, K, N}, .data = b}};
        assert_int_equal(rt_session_run(f.s, "g", in, 2, f.d), AMPC_OK);
        double_fail(n); /* host memory, the copy, the wait */
        assert_null(rt_session_output(f.s, "y"));
        if (!double_failed()) fail_msg("call %ld was not made", n);
        assert_int_not_equal(rt_session_fetched(f.s, f.d), AMPC_OK);
        assert_int_not_equal(diag_first_error(f.d)[0], 0);
        double_fail(0);
        assert_int_equal(run(&f), AMPC_OK);
    }
    close_fixture(&f);
}
