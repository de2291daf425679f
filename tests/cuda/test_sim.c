/* test_sim.c - the simulator: it computes what CUDA guarantees, and each fault of sim/faults.cu is reported by the sanitizer or
 * check meant to detect it. Sanitizers run in separate processes (sim/faults.c). */
#include <errno.h>
#include <math.h>
#include <signal.h>

#include <sys/wait.h>
#include <unistd.h>

#include "tests/cuda/sim/cudasim_host.h"
#include "tests/test.h"

enum { ORDERS = 3, MAX_COUNT = 4096 };

static const char *launch(const char *name, unsigned blocks, unsigned threads, size_t shared, void **arguments)
{
    const cudasim_kernel *kernel = cudasim_find(name);
    if (!kernel) fail_msg("no kernel %s", name);
    return cudasim_launch(kernel, (cudasim_shape){blocks, 1, 1}, (cudasim_shape){threads, 1, 1}, arguments, shared);
}

static void expect_clean(const char *fault)
{
    if (fault) fail_msg("%s", fault);
}

static void expect_text(const char *text, const char *part)
{
    if (!text || !strstr(text, part)) fail_msg("expected '%s' in: %s", part, text ? text : "(no report)");
}

/* ---- guaranteed behaviour ---- */

static float *ramp(size_t n)
{
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = (float)(1 + i % 5);
    return x;
}

/* Runs a kernel with arguments (in, out); returns the outputs, to be freed. */
static float *run_pair(const char *name, unsigned blocks, unsigned threads, size_t shared)
{
    size_t n = (size_t)blocks * threads;
    float *in = ramp(n), *out = calloc(n, sizeof *out);
    expect_clean(launch(name, blocks, threads, shared, (void *[]){&in, &out}));
    free(in);
    return out;
}

static size_t wrong_reversals(const char *name, unsigned blocks, unsigned threads, size_t shared)
{
    float *out = run_pair(name, blocks, threads, shared), *in = ramp((size_t)blocks * threads);
    size_t wrong = 0;
    for (unsigned b = 0; b < blocks; b++)
        for (unsigned t = 0; t < threads; t++) wrong += !(out[b * threads + t] == in[b * threads + threads - 1 - t]);
    free(in);
    free(out);
    return wrong;
}

static size_t wrong_sums(const char *name, unsigned blocks, unsigned threads)
{
    float *out = run_pair(name, blocks, threads, 0), *in = ramp((size_t)blocks * threads);
    size_t wrong = 0;
    for (unsigned b = 0; b < blocks; b++) {
        float sum = 0, most = 0;
        for (unsigned t = 0; t < threads; t++) {
            sum += in[b * threads + t];
            most = fmaxf(most, in[b * threads + t]);
        }
        for (unsigned t = 0; t < threads; t++) wrong += !(out[b * threads + t] == sum + most);
    }
    free(in);
    free(out);
    return wrong;
}

TEST(test_blocks)
{
    for (int order = 0; order < ORDERS; order++) {
        cudasim_set_order(order, 1);
        assert_int_equal(wrong_reversals("reverse", 5, 96, 0), 0);
        assert_int_equal(wrong_reversals("reverse", 1, 1024, 0), 0);
        assert_int_equal(wrong_reversals("reverse_dynamic", 3, 64, 64 * sizeof(float)), 0);
        assert_int_equal(wrong_sums("sums", 4, 256), 0);
        assert_int_equal(wrong_sums("sums", 2, 1024), 0);
        assert_int_equal(wrong_sums("sums", 1, 32), 0);
    }
}

/* Without a sanitizer, missing barriers change the results, because shared memory is NaN until written. */
TEST(test_faulty_results)
{
    for (int order = 0; order < ORDERS; order++) {
        cudasim_set_order(order, 1);
        assert_int_not_equal(wrong_reversals("reverse_without_barrier", 2, 256, 0), 0);
        assert_int_not_equal(wrong_sums("sums_reusing_slots", 2, 256), 0);
        float *out = run_pair("shared_unwritten", 4, 64, 0);
        for (int i = 0; i < 4 * 64; i++) assert_int_equal(isnan(out[i]) != 0, i % 128 == 0);
        free(out);
        out = run_pair("neighbours_without_syncwarp", 1, 64, 0);
        bool wrong = false;
        for (int i = 0; i < 64; i++) wrong = wrong || isnan(out[i]);
        assert_true(wrong);
        free(out);
    }
}

TEST(test_indices)
{
    const cudasim_kernel *kernel = cudasim_find("indices");
    struct parcel {
        long long a;
        short b;
        bool c;
    } parcel = {100, 20, true};
    double d = 3000;
    short s = 4;
    assert_int_equal(cudasim_argument_count(kernel), 4);
    assert_int_equal(cudasim_argument_size(kernel, 0), sizeof(void *));
    assert_int_equal(cudasim_argument_size(kernel, 1), sizeof parcel);
    assert_int_equal(cudasim_argument_size(kernel, 2), sizeof d);
    assert_int_equal(cudasim_argument_size(kernel, 3), sizeof s);
    for (int order = 0; order < ORDERS; order++) {
        cudasim_set_order(order, 7);
        static const cudasim_shape grids[] = {{1, 1, 1}, {2, 1, 1}, {3, 1, 1}, {3, 2, 2}};
        for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
            unsigned n = grids[g].x * grids[g].y * grids[g].z * 64, *out = calloc(n, sizeof *out);
            expect_clean(
                cudasim_launch(kernel, grids[g], (cudasim_shape){8, 4, 2}, (void *[]){&out, &parcel, &d, &s}, 0));
            for (unsigned i = 0; i < n; i++) assert_int_equal(out[i], 3125);
            free(out);
        }
    }
}

/* Descending is the reverse of ascending; shuffled is neither, and depends on its seed. */
TEST(test_orders)
{
    enum { N = 256 };
    int *seen[4];
    for (int run = 0; run < 4; run++) {
        cudasim_set_order(run < ORDERS ? run : CUDASIM_SHUFFLED, run < ORDERS ? 3 : 4);
        int counter = 0, *counts = &counter;
        seen[run] = calloc(N, sizeof **seen);
        expect_clean(launch("sequence", 4, 64, 0, (void *[]){&counts, &seen[run]}));
    }
    int as_ascending = 0, as_other_seed = 0;
    for (int i = 0; i < N; i++) {
        assert_int_equal(seen[0][i], i);
        assert_int_equal(seen[1][i], N - 1 - i);
        as_ascending += seen[2][i] == i;
        as_other_seed += seen[2][i] == seen[3][i];
    }
    assert_in_range(as_ascending, 0, N / 2);
    assert_in_range(as_other_seed, 0, N / 2);
    for (int run = 0; run < 4; run++) free(seen[run]);
}

/* The expected result of shuffling lane * 10 from lane `from`; `inside`: whether that is in the segment. */
static int shuffled(int lane, int from, bool inside) { return (inside ? from : lane) * 10; }

TEST(test_lanes)
{
    for (int order = 0; order < ORDERS; order++) {
        cudasim_set_order(order, 2);
        int *out = calloc(32 * 16, sizeof *out);
        expect_clean(launch("lanes", 1, 32, 0, (void *[]){&out}));
        for (int i = 0; i < 32; i++) {
            const int expected[16] = {50,
                                      shuffled(i, i / 8 * 8 + 5, true),
                                      shuffled(i, i - 3, i >= 3),
                                      shuffled(i, i - 3, i % 16 >= 3),
                                      shuffled(i, i + 3, i + 3 < 32),
                                      shuffled(i, i + 3, i % 4 == 0),
                                      shuffled(i, i ^ 9, true),
                                      shuffled(i, i ^ 9, (i ^ 9) < i / 8 * 8 + 8),
                                      0x49249249,
                                      1,
                                      1,
                                      31 * 16,
                                      -7,
                                      -1,
                                      0xff ^ 64,
                                      2 * (i ^ 1) + 1 + (i ^ 2)};
            for (int k = 0; k < 16; k++)
                if (out[i * 16 + k] != expected[k])
                    fail_msg("lane %d, result %d: %d, expected %d", i, k, out[i * 16 + k], expected[k]);
        }
        free(out);
    }
}

/* Whole numbers have exact products: all forms of loads, and both types. */
static void expect_products(const char *kernel)
{
    float *a = malloc(256 * sizeof *a), *b = malloc(256 * sizeof *b), *out = calloc(4 * 256, sizeof *out);
    for (int i = 0; i < 256; i++) a[i] = (float)(i * 7 % 23 - 11), b[i] = (float)(i * 5 % 19 - 9);
    expect_clean(launch(kernel, 1, 32, 0, (void *[]){&a, &b, &out}));
    for (int i = 0; i < 4 * 256; i++) {
        float expected = 0;
        for (int k = 0; k < 16; k++) expected += a[i % 256 / 16 * 16 + k] * b[k * 16 + i % 16];
        if (out[i] != expected)
            fail_msg("%s, form %d, (%d, %d): %g, expected %g", kernel, i / 256, i % 256 / 16, i % 16, (double)out[i],
                     (double)expected);
    }
    free(a);
    free(b);
    free(out);
}

TEST(test_products)
{
    for (int order = 0; order < ORDERS; order++) {
        cudasim_set_order(order, 2);
        expect_products("product_f16");
        expect_products("product_bf16");
    }
    cudasim_set_order(CUDASIM_ASCENDING, 0);
}

TEST(test_pairs)
{
    float *in = ramp(32);
    unsigned *out = calloc(64, sizeof *out);
    in[0] = 1, in[1] = 0x1.01p0f; /* between two bf16, of which the even one is 1 */
    expect_clean(launch("pairs", 1, 32, 0, (void *[]){&in, &out}));
    assert_int_equal(out[0], 0xc0003c00);
    assert_int_equal(out[1], 0xc0003f80);
    assert_int_equal(out[2], 0xc0043c04);
    assert_int_equal(out[3], 0xc0003f80);
    free(in);
    free(out);
}

TEST(test_votes)
{
    int *out = calloc(3, sizeof *out);
    expect_clean(launch("votes", 3, 160, 0, (void *[]){&out}));
    for (int b = 0; b < 3; b++) assert_int_equal(out[b], 1 + 100 + 10000 * 80);
    free(out);
}

TEST(test_atomics)
{
    int out[11] = {0, 0, 0, 0, 0, -1, 0, 0, 0, 0, 5}, *p = out;
    unsigned long long wide = 1, *q = &wide;
    static const int expected[11] = {64 * 127, -256, -127, 127, -1, 0, 0, 8, 128, 7, 7};
    cudasim_set_order(CUDASIM_ASCENDING, 0);
    expect_clean(launch("atomics", 2, 64, 0, (void *[]){&p, &q}));
    for (int i = 0; i < 11; i++)
        if (out[i] != expected[i]) fail_msg("atomic %d: %d, expected %d", i, out[i], expected[i]);
    assert_true(wide == 1 + (128ull << 33));
}

/* ---- rejected launches, and faults that end a kernel ---- */

TEST(test_refusals)
{
    const cudasim_kernel *sums = cudasim_find("sums"), *lanes = cudasim_find("lanes");
    const cudasim_shape one = {1, 1, 1};
    assert_null(cudasim_find("no_such_kernel"));
    assert_int_equal(cudasim_max_threads(sums), 1024);
    assert_int_equal(cudasim_max_threads(lanes), 32);
    assert_int_equal(cudasim_max_threads(cudasim_find("unbounded")), 0);
    assert_null(cudasim_check(sums, one, (cudasim_shape){32, 8, 4}, 0));
    expect_text(cudasim_check(lanes, one, (cudasim_shape){64, 1, 1}, 0), "__launch_bounds__ says");
    expect_text(cudasim_check(sums, one, (cudasim_shape){1025, 1, 1}, 0), "more than 1024 threads");
    expect_text(cudasim_check(sums, one, (cudasim_shape){48, 1, 1}, 0), "not a multiple of 32");
    expect_text(cudasim_check(sums, one, (cudasim_shape){0, 1, 1}, 0), "an empty grid or block");
    expect_text(cudasim_check(sums, (cudasim_shape){1, 65536, 1}, (cudasim_shape){32, 1, 1}, 0), "a grid beyond");
    expect_text(cudasim_check(sums, one, (cudasim_shape){32, 1, 1}, 228 << 10), "227 KiB");
    expect_text(cudasim_check(cudasim_find("unbounded"), one, (cudasim_shape){32, 1, 1}, 0), "no __launch_bounds__");
    cudasim_set_strict(false);
    assert_null(cudasim_check(sums, one, (cudasim_shape){48, 1, 1}, 0));
    assert_null(cudasim_check(cudasim_find("unbounded"), one, (cudasim_shape){33, 1, 1}, 0));
    cudasim_set_strict(true);
}

static void expect_fault(const char *name, unsigned threads, const char *first, const char *second)
{
    for (int order = 0; order < ORDERS; order++) {
        cudasim_set_order(order, 5);
        float *in = ramp(2048), *out = calloc(2048, sizeof *out);
        const char *fault = launch(name, 2, threads, 0, (void *[]){&in, &out});
        expect_text(fault, name);
        expect_text(fault, first);
        expect_text(fault, second);
        free(in);
        free(out);
    }
    /* The simulator remains usable after a fault. */
    assert_int_equal(wrong_sums("sums", 2, 256), 0);
}

/* Both places of a divergent barrier are named; their line numbers are found in the source. */
TEST(test_divergence)
{
    FILE *source = fopen(AMPC_SOURCE_DIR "/tests/cuda/sim/faults.cu", "r");
    char line[256], places[2][64] = {"", ""};
    bool inside = false;
    assert_non_null(source);
    for (int number = 1, n = 0; fgets(line, sizeof line, source); number++) {
        inside = inside ? line[0] != '}' : strstr(line, "KERNEL(divergent_barrier") != NULL;
        if (inside && n < 2 && strstr(line, "__syncthreads"))
            snprintf(places[n++], sizeof places[0], "faults.cu:%d (__syncthreads)", number);
    }
    fclose(source);
    expect_fault("divergent_barrier", 64, places[0], places[1]);
}

TEST(test_faults)
{
    expect_fault("return_before_barrier", 64, "(__syncthreads) and thread (63,0,0) has returned", "faults.cu:");
    expect_fault("barrier_in_one_warp", 64, "all threads wait:", "(__shfl_xor_sync)");
    expect_fault("barrier_in_one_warp", 32, "all threads wait:", "(__syncthreads)");
    expect_fault("half_a_warp", 64, "mask 0x0000ffff, not that of a whole warp", "(__shfl_xor_sync)");
    expect_fault("lanes_returned", 32, "has returned", "(__shfl_xor_sync)");
    expect_fault("product_in_half_a_warp", 32, "(mma)", "(__shfl_xor_sync)");
    expect_fault("wrong_width", 64, "width 12", "(__shfl_down_sync)");
    expect_fault("reverse_dynamic", 64, "the launch has none", "dynamic shared memory");
    float minus = -1, *in = malloc(32 * sizeof *in), *out = calloc(32, sizeof *out);
    for (int i = 0; i < 32; i++) in[i] = i == 9 ? minus : 1;
    expect_text(launch("trap", 1, 32, 0, (void *[]){&in, &out}), "thread (9,0,0) is at");
    free(in);
    free(out);
}

static sigjmp_buf after_crash;
static void leave_kernel(int number)
{
    (void)number;
    siglongjmp(after_crash, 1);
}

/* A process that jumps out of a crashed kernel, as CMocka does, cannot launch another one, and ends rather than waits. */
static void crash(bool launch_again)
{
    float *nothing = NULL;
    signal(SIGSEGV, leave_kernel);
    if (!sigsetjmp(after_crash, 1)) (void)launch("sums", 2, 64, 0, (void *[]){&nothing, &nothing});
    if (launch_again) (void)wrong_sums("sums", 2, 64);
    exit(0);
}

TEST(test_crash)
{
    for (int again = 0; again < 2; again++) {
        int ends[2], status;
        char said[256] = "";
        assert_int_equal(pipe(ends), 0);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            dup2(ends[1], STDERR_FILENO);
            close(STDOUT_FILENO); /* has what this process has not written yet */
            crash(again);
        }
        close(ends[1]);
        for (size_t n = 0; n < sizeof said - 1;) {
            const ssize_t got = read(ends[0], said + n, sizeof said - 1 - n);
            if (got <= 0) break;
            n += (size_t)got;
        }
        close(ends[0]);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), again);
        if (again) expect_text(said, "a kernel crashed in this process");
    }
}

/* In non-strict mode, threads that returned are ignored, and a part of a warp may meet. */
TEST(test_not_strict)
{
    cudasim_set_strict(false);
    for (int order = 0; order < ORDERS; order++) {
        cudasim_set_order(order, 11);
        float *out = run_pair("return_before_barrier", 1, 64, 0);
        for (int i = 0; i < 64; i++) assert_true(out[i] == (i < 63 ? (float)(1 + i % 5) : 0));
        free(out);
        out = run_pair("half_a_warp", 1, 64, 0);
        for (int i = 0; i < 64; i++)
            assert_true(out[i] == (float)(1 + i % 5) + (i % 32 < 16 ? (float)(1 + (i ^ 1) % 5) : 0));
        free(out);
    }
    cudasim_set_strict(true);
}

/* ---- sanitizers ---- */

static char *read_all(FILE *pipe)
{
    size_t used = 0, size = 1 << 16;
    char *text = malloc(size);
    for (size_t got; (got = fread(text + used, 1, size - used - 1, pipe)) > 0;) {
        used += got;
        if (size - used < 2) text = realloc(text, size *= 2);
    }
    text[used] = 0;
    return text;
}

/* Runs a command to completion; returns its output, to be freed. */
static char *output_of(const char *command, int *status)
{
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    char *text = read_all(pipe);
    *status = pclose(pipe);
    return text;
}

typedef struct watched {
    const char *kernel, *launch; /* BLOCKS THREADS SHARED_BYTES */
    const char *report[3];       /* parts of the sanitizer's report; none: no finding */
} watched;

static void expect_watched(const char *watcher, const watched *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char command[512];
        int status;
        snprintf(command, sizeof command, AMPC_BUILD_DIR "/tests/cuda/cuda_faults_%s %s %s 2>&1", watcher,
                 rows[i].kernel, rows[i].launch);
        char *text = output_of(command, &status);
        bool reported = status != 0;
        if (reported != (rows[i].report[0] != NULL))
            fail_msg("%s: %s watched by %s: %s", rows[i].kernel, reported ? "reported" : "not reported", watcher, text);
        for (int k = 0; k < 3 && rows[i].report[k]; k++) expect_text(text, rows[i].report[k]);
        free(text);
    }
}

#define OVERFLOW "AddressSanitizer: ", "-buffer-overflow"
static const watched asan_rows[] = {
    {"reverse", "5 96 0", {NULL}},
    {"reverse", "1 1024 0", {NULL}},
    {"reverse_dynamic", "3 64 256", {NULL}},
    {"sums", "4 256 0", {NULL}},
    {"neighbours", "2 64 0", {NULL}},
    {"count", "4 64 0", {NULL}},
    {"last_block", "4 64 0", {NULL}},
    {"shared_one_too_far", "1 64 0", {OVERFLOW, "kernel shared_one_too_far, block (0,0,0), thread (63,0,0)"}},
    {"dynamic_one_too_far", "1 64 256", {OVERFLOW, "kernel dynamic_one_too_far, block (0,0,0), thread (63,0,0)"}},
    {"global_one_too_far", "2 64 0", {OVERFLOW, "kernel global_one_too_far, block (1,0,0), thread (63,0,0)"}},
    {"misaligned", "1 64 0", {"faults.cu", "misaligned address"}},
    {"divergent_barrier", "2 64 0", {"divergent_barrier", "(__syncthreads) and thread"}},
    {"barrier_in_one_warp", "2 64 0", {"all threads wait"}},
};

#define RACE(kernel) "ThreadSanitizer: data race", "cudasim: kernel " kernel ", block"
static const watched tsan_rows[] = {
    {"reverse", "5 96 0", {NULL}},
    {"reverse", "2 1024 0", {NULL}},
    {"reverse_dynamic", "8 64 256", {NULL}},
    {"sums", "8 256 0", {NULL}},
    {"neighbours", "8 64 0", {NULL}},
    {"count", "8 64 0", {NULL}},
    {"last_block", "8 64 0", {NULL}},
    {"product_f16", "32 32 0", {NULL}},
    {"reverse_without_barrier", "1 64 0", {RACE("reverse_without_barrier"), "reverse_body"}},
    {"sums_reusing_slots", "1 256 0", {RACE("sums_reusing_slots"), "sums_body"}},
    {"neighbours_without_syncwarp", "1 32 0", {RACE("neighbours_without_syncwarp"), "neighbours_body"}},
    {"shuffle_as_fence", "1 32 0", {RACE("shuffle_as_fence"), "faults.cu"}},
    {"product_without_syncwarp", "32 32 0", {RACE("product_without_syncwarp"), "cudasim_load_row"}},
    {"count_without_atomic", "2 32 0", {RACE("count_without_atomic"), "faults.cu"}},
    {"all_write_one", "1 32 0", {RACE("all_write_one"), "faults.cu"}},
    {"last_block_without_release", "8 64 0", {RACE("last_block_without_release"), "last_block_body"}},
    {"last_block_without_acquire", "8 64 0", {RACE("last_block_without_acquire"), "last_block_body"}},
    {"divergent_barrier", "2 64 0", {"divergent_barrier", "(__syncthreads) and thread"}},
};

TEST(test_asan) { expect_watched("asan", asan_rows, sizeof asan_rows / sizeof *asan_rows); }
TEST(test_tsan) { expect_watched("tsan", tsan_rows, sizeof tsan_rows / sizeof *tsan_rows); }

/* CPUs without a context switch in fiber.cc use the C library's. */
TEST(test_ucontext)
{
    static const watched rows[] = {
        {"sums", "4 256 0", {NULL}},
        {"reverse", "2 1024 0", {NULL}},
        {"return_before_barrier", "2 64 0", {"thread (63,0,0) has returned"}},
    };
    expect_watched("ucontext", rows, sizeof rows / sizeof *rows);
}

/* ---- what does not compile ---- */

TEST(test_words)
{
    static const struct {
        const char *subgraph, *message;
    } rows[] = {
        {"*x = 1;", NULL},
        {"atomicAdd(x, 1.0f);", "float atomics are not deterministic"},
        {"*x = (float)__activemask();", "__activemask"},
        {"*x = c; } __constant__ float c; __global__ void other() {", "kernel data must be passed as arguments"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char command[1024];
        int status;
        snprintf(command, sizeof command,
                 "echo 'extern \"C\" __global__ void __launch_bounds__(32) k(float *x) { %s }' | " AMPC_CXX
                 " -x c++ -std=gnu++17 -fsyntax-only -w -I" AMPC_SOURCE_DIR " -isystem " AMPC_CUDA_INCLUDE
                 " -include " AMPC_SOURCE_DIR "/tests/cuda/sim/cudasim.h - 2>&1",
                 rows[i].subgraph);
        char *text = output_of(command, &status);
        assert_int_equal(status != 0, rows[i].message != NULL);
        if (rows[i].message) expect_text(text, rows[i].message);
        free(text);
    }
}
