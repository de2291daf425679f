/* test_double.c - the double of the CUDA runtime: a correct program is correct however slow the device is, each of its faulty
 * variants is detected, every call can be made to fail, and invalid copies and launches are rejected. */
#include "tests/cuda/double_fixture.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REPLAYS = 3 };

/* Runs a function in a child process; returns whether it exited normally. */
static bool survives(void (*run)(void))
{
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* replaces the test framework's handler */
        signal(SIGABRT, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr)) _exit(9);
        run();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ---- a program ------------------------------------------------------------------------------- */

/* x = 1, 2, ...; computes x = 2 x + 1 three times from a graph and reads it back on a second stream. */
typedef struct program {
    bool no_wait, no_sync, read_device, allocate; /* faults to inject */
    cudaStream_t work, back;
    cudaEvent_t ready;
    cudaLibrary_t library;
    cudaKernel_t scale;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    float *x, *device, *result; /* x and result are pinned, device is on the device */
    long wrong;                 /* number of wrong values */
} program;

#define TRY(call) \
    do { \
        cudaError_t error_ = cuda.call; \
        if (error_) return error_; \
    } while (0)

static cudaError_t record(program *p)
{
    cudaGraphInstantiateParams params = {.flags = 0};
    cudaError_t inside;
    void *more = NULL;
    TRY(cudaStreamBeginCapture(p->work, cudaStreamCaptureModeRelaxed));
    inside = launch_scale(p->scale, p->device, 2, 1, p->work);
    if (p->allocate && !inside) inside = cuda.cudaMalloc(&more, 16);
    TRY(cudaStreamEndCapture(p->work, &p->graph));
    if (inside) return inside;
    TRY(cudaGraphInstantiateWithParams(&p->exec, p->graph, &params));
    return cudaSuccess;
}

static cudaError_t prepare(program *p)
{
    static const char code[] = "anything";
    TRY(cudaStreamCreateWithFlags(&p->work, cudaStreamNonBlocking));
    TRY(cudaStreamCreateWithFlags(&p->back, cudaStreamNonBlocking));
    TRY(cudaEventCreateWithFlags(&p->ready, cudaEventDisableTiming));
    TRY(cudaLibraryLoadData(&p->library, code, NULL, NULL, 0, NULL, NULL, 0));
    TRY(cudaLibraryGetKernel(&p->scale, p->library, "double_test_scale"));
    TRY(cudaMallocHost((void **)&p->x, BYTES));
    TRY(cudaMallocHost((void **)&p->result, BYTES));
    TRY(cudaMalloc((void **)&p->device, BYTES));
    TRY(cudaMemsetAsync(p->device, 0, BYTES, p->work));
    cudaError_t warm = launch_scale(p->scale, p->device, 1, 0, p->work);
    return warm ? warm : record(p);
}

static cudaError_t run(program *p)
{
    for (int i = 0; i < COUNT; i++) p->x[i] = (float)(i + 1);
    TRY(cudaMemcpyAsync(p->device, p->x, BYTES, cudaMemcpyHostToDevice, p->work));
    for (int i = 0; i < REPLAYS; i++) TRY(cudaGraphLaunch(p->exec, p->work));
    TRY(cudaEventRecord(p->ready, p->work));
    if (!p->no_wait) TRY(cudaStreamWaitEvent(p->back, p->ready, 0));
    TRY(cudaMemcpyAsync(p->result, p->device, BYTES, cudaMemcpyDeviceToHost, p->back));
    if (!p->no_sync) TRY(cudaStreamSynchronize(p->back));
    const float *seen = p->read_device ? p->device : p->result;
    for (int i = 0; i < COUNT; i++) p->wrong += seen[i] != (float)(8 * (i + 1) + 7);
    TRY(cudaStreamSynchronize(p->work));
    TRY(cudaStreamSynchronize(p->back));
    return cudaSuccess;
}

static cudaError_t release(program *p)
{
    cudaError_t e = cudaSuccess, last;
#define RELEASE(member, call) \
    if (p->member && (last = cuda.call(p->member))) e = last
    RELEASE(exec, cudaGraphExecDestroy);
    RELEASE(graph, cudaGraphDestroy);
    RELEASE(device, cudaFree);
    RELEASE(x, cudaFreeHost);
    RELEASE(result, cudaFreeHost);
    RELEASE(library, cudaLibraryUnload);
    RELEASE(ready, cudaEventDestroy);
    RELEASE(work, cudaStreamDestroy);
    RELEASE(back, cudaStreamDestroy);
#undef RELEASE
    return e;
}

static cudaError_t run_program(program *p)
{
    cudaError_t e = prepare(p);
    if (!e) e = run(p);
    cudaError_t end = release(p);
    return e ? e : end;
}

static void expect_nothing_left(void)
{
    char left[256];
    if (double_live(left, sizeof left)) fail_msg("left: %s", left);
}

TEST(right_in_every_mode)
{
    for (int i = 0; i < MODES; i++) {
        program p = {.wrong = 0};
        double_reset();
        double_mode(modes[i]);
        assert_int_equal(run_program(&p), cudaSuccess);
        assert_int_equal(p.wrong, 0);
        expect_nothing_left();
    }
}

/* Number of modes in which the fault shows. */
static int modes_that_catch(const program *faulty)
{
    int caught = 0;
    for (int i = 0; i < MODES; i++) {
        program p = *faulty;
        double_reset();
        double_mode(modes[i]);
        assert_int_equal(run_program(&p), cudaSuccess);
        caught += p.wrong > 0;
    }
    return caught;
}

TEST(missing_wait_is_caught)
{
    assert_true(modes_that_catch(&(program){.no_wait = true}) >= 4); /* all but eager mode, and lucky seeds */
}

TEST(missing_synchronisation_is_caught) { assert_true(modes_that_catch(&(program){.no_sync = true}) >= 4); }

static void read_device_memory(void) { run_program(&(program){.read_device = true}); }

TEST(host_reads_are_caught) { assert_false(survives(read_device_memory)); }

TEST(allocation_while_capturing_is_caught)
{
    program p = {.allocate = true};
    double_reset();
    assert_int_equal(run_program(&p), cudaErrorStreamCaptureInvalidated);
    assert_non_null(strstr(double_reason(), ""));
    expect_nothing_left();
}

/* A call that releases something does so even if it fails, so there is never a leak. */
TEST(every_call_may_fail)
{
    program correct = {.wrong = 0};
    double_reset();
    assert_int_equal(run_program(&correct), cudaSuccess);
    long calls = double_count("*");
    assert_true(calls > 25);
    for (int mode = 0; mode < 3; mode++)
        for (long n = 1; n <= calls; n++) {
            program p = {.wrong = 0};
            double_reset();
            double_mode(modes[mode]);
            double_fail(n);
            cudaError_t e = run_program(&p);
            if (!double_failed() || !e) fail_msg("call %ld, %s: not reported", n, double_failed());
            expect_nothing_left();
        }
}

TEST(every_operation_may_fault)
{
    for (long n = 1; n <= 7; n++)
        for (int mode = 0; mode < MODES; mode++) {
            program p = {.wrong = 0};
            double_reset();
            double_mode(modes[mode]);
            double_fault(n);
            assert_int_equal(run_program(&p), cudaErrorLaunchFailure);
            assert_int_equal(cuda.cudaGetLastError(), cudaErrorLaunchFailure);
            assert_int_equal(cuda.cudaGetLastError(), cudaErrorLaunchFailure); /* the fault is sticky */
            expect_nothing_left();
        }
}

TEST(calls_are_counted)
{
    program p = {.wrong = 0};
    double_reset();
    assert_int_equal(prepare(&p), cudaSuccess);
    double_mark();
    assert_int_equal(run(&p), cudaSuccess);
    assert_int_equal(double_count("cudaGraphLaunch"), REPLAYS);
    assert_int_equal(double_count("cudaMemcpyAsync"), 2);
    assert_int_equal(double_count("cudaMemcpyAsync D2H"), 1);
    assert_int_equal(double_count("cudaMalloc"), 0);
    assert_int_equal(double_count("cudaStreamSynchronize"), 3);
    assert_int_equal(double_count("*"), 1 + REPLAYS + 1 + 1 + 1 + 3);
    assert_int_equal(release(&p), cudaSuccess);
}

/* ---- memory ---------------------------------------------------------------------------------- */

TEST(memory_is_poisoned_and_limited)
{
    fixture f = begin(DOUBLE_EAGER);
    void *p = NULL, *q = NULL;
    size_t available = 0, total = 0;
    assert_true(first_of(&f, f.y) != first_of(&f, f.y)); /* NaN */
    double_memory(1 << 20);
    assert_int_equal(cuda.cudaMalloc(&p, 1 << 20), cudaErrorMemoryAllocation);
    must(cuda.cudaMalloc(&p, 1 << 19));
    must(cuda.cudaMemGetInfo(&available, &total));
    assert_int_equal(total, 1 << 20);
    assert_int_equal(available, (1 << 19) - 3 * BYTES);
    must(cuda.cudaFree(p));
    must(cuda.cudaMalloc(&q, 100));
    assert_int_equal((uintptr_t)q % 256, 0);
    assert_int_equal((uintptr_t)q % 512, 256); /* no more alignment than CUDA guarantees */
    assert_int_equal(cuda.cudaFree((char *)q + 8), cudaErrorInvalidValue);
    assert_int_equal(cuda.cudaFree(p), cudaErrorInvalidValue); /* double free */
}

TEST(copies_are_checked)
{
    fixture f = begin(DOUBLE_EAGER);
    float pageable[COUNT];
    const struct {
        void *dst;
        const void *src;
        size_t bytes;
        enum cudaMemcpyKind kind;
    } bad[] = {{f.x, f.y, BYTES, cudaMemcpyHostToDevice},
               {f.host, f.y, BYTES, cudaMemcpyDeviceToDevice},
               {f.x, f.host, BYTES + 4, cudaMemcpyHostToDevice},
               {f.x + 1, f.y, BYTES, cudaMemcpyDeviceToDevice},
               {f.host, f.host, 4, cudaMemcpyDeviceToHost},
               {pageable, f.host, 4, cudaMemcpyDeviceToHost},
               {f.host + COUNT / 2, f.x, BYTES, cudaMemcpyDeviceToHost}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (cuda.cudaMemcpyAsync(bad[i].dst, bad[i].src, bad[i].bytes, bad[i].kind, f.a) != cudaErrorInvalidValue)
            fail_msg("copy %zu was accepted", i);
}

TEST(pageable_memory_is_read_at_the_call)
{
    fixture f = begin(DOUBLE_LAZY);
    float pageable[COUNT] = {1};
    must(cuda.cudaMemcpyAsync(f.x, pageable, BYTES, cudaMemcpyHostToDevice, f.a));
    pageable[0] = 2; /* was read at the call */
    assert_true(first_of(&f, f.x) == 1);
    f.host[0] = 3;
    must(cuda.cudaMemcpyAsync(f.y, f.host, BYTES, cudaMemcpyHostToDevice, f.a));
    f.host[0] = 4; /* is read when the copy runs */
    assert_true(first_of(&f, f.y) == 4);
    float factor = 2, *x = f.x, term = 0;
    long long n = COUNT;
    void *arguments[] = {&x, &n, &factor, &term};
    must(cuda.cudaLaunchKernel((const void *)f.scale, (dim3){4, 1, 1}, (dim3){256, 1, 1}, arguments, 0, f.a));
    factor = 100; /* was copied at the launch */
    assert_true(first_of(&f, f.x) == 2);
}

/* ---- launches -------------------------------------------------------------------------------- */

TEST(launches_are_checked)
{
    fixture f = begin(DOUBLE_EAGER);
    long long n = COUNT;
    float one = 1;
    void *arguments[] = {&f.x, &n, &one, &one};
    const void *scale = (const void *)f.scale;
    cudaKernel_t none = NULL;
    assert_int_equal(cuda.cudaLaunchKernel(scale, (dim3){1, 1, 1}, (dim3){512, 1, 1}, arguments, 0, f.a),
                     cudaErrorInvalidConfiguration); /* exceeds its launch bounds */
    assert_int_equal(cuda.cudaLaunchKernel(scale, (dim3){0, 1, 1}, (dim3){32, 1, 1}, arguments, 0, f.a),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(cuda.cudaLaunchKernel(scale, (dim3){1, 1, 1}, (dim3){32, 1, 1}, arguments, 64 << 10, f.a),
                     cudaErrorInvalidValue);
    must(cuda.cudaKernelSetAttributeForDevice(f.scale, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10, 0));
    must(cuda.cudaLaunchKernel(scale, (dim3){1, 1, 1}, (dim3){32, 1, 1}, arguments, 64 << 10, f.a));
    assert_int_equal(cuda.cudaLibraryGetKernel(&none, f.library, "double_test_none"), cudaErrorSymbolNotFound);
    must(cuda.cudaLibraryUnload(f.library));
    assert_int_equal(cuda.cudaLaunchKernel(scale, (dim3){1, 1, 1}, (dim3){32, 1, 1}, arguments, 0, f.a),
                     cudaErrorInvalidResourceHandle);
}

static void use_default_stream(void)
{
    fixture f = begin(DOUBLE_EAGER);
    cuda.cudaMemsetAsync(f.x, 0, BYTES, NULL);
}

TEST(default_stream_ends_the_program) { assert_false(survives(use_default_stream)); }

TEST_GROUP(setup, teardown)
