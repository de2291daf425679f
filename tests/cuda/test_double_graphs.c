/* test_double_graphs.c - captures and events on the double of the CUDA runtime: the documented capture errors, streams that fork
 * and join, and the times of events, in graphs too. */
#include "tests/cuda/double_fixture.h"

/* ---- captures -------------------------------------------------------------------------------- */

static void start(const fixture *f) { must(cuda.cudaStreamBeginCapture(f->a, cudaStreamCaptureModeRelaxed)); }

/* Ends the capture of stream a, expecting error `expected`. */
static void expect_end(const fixture *f, cudaError_t expected)
{
    cudaGraph_t graph = NULL;
    assert_int_equal(cuda.cudaStreamEndCapture(f->a, &graph), expected);
    assert_null(graph);
}

TEST(capture_errors)
{
    fixture f = begin(DOUBLE_EAGER);
    enum cudaStreamCaptureStatus status;
    float pageable[COUNT];
    cudaKernel_t cold = f.add;
    long long n = COUNT;
    void *arguments[] = {&f.z, &f.x, &f.y, &n};

    start(&f); /* waiting for the capturing stream: 900, then 901 */
    assert_int_equal(cuda.cudaStreamSynchronize(f.a), cudaErrorStreamCaptureUnsupported);
    must(cuda.cudaStreamIsCapturing(f.a, &status));
    assert_int_equal(status, cudaStreamCaptureStatusInvalidated);
    assert_int_equal(launch_scale(f.scale, f.x, 1, 0, f.a), cudaErrorStreamCaptureInvalidated);
    expect_end(&f, cudaErrorStreamCaptureInvalidated);

    start(&f); /* work of a second stream that is not joined */
    must(cuda.cudaEventRecord(f.event, f.a));
    must(cuda.cudaStreamWaitEvent(f.b, f.event, 0));
    must(launch_scale(f.scale, f.x, 1, 0, f.b));
    expect_end(&f, cudaErrorStreamCaptureUnjoined);

    must(cuda.cudaEventRecord(f.other, f.b)); /* not captured */
    start(&f);
    assert_int_equal(cuda.cudaStreamWaitEvent(f.a, f.other, 0), cudaErrorStreamCaptureIsolation);
    expect_end(&f, cudaErrorStreamCaptureInvalidated);

    start(&f); /* the host cannot wait for a captured event */
    must(cuda.cudaEventRecord(f.event, f.a));
    assert_int_equal(cuda.cudaEventSynchronize(f.event), cudaErrorCapturedEvent);
    expect_end(&f, cudaErrorStreamCaptureInvalidated);
    assert_int_equal(cuda.cudaEventQuery(f.event), cudaErrorCapturedEvent);

    start(&f); /* a second capture that waits for the first */
    must(cuda.cudaEventRecord(f.event, f.a));
    must(cuda.cudaStreamBeginCapture(f.b, cudaStreamCaptureModeRelaxed));
    assert_int_equal(cuda.cudaStreamWaitEvent(f.b, f.event, 0), cudaErrorStreamCaptureMerge);
    expect_end(&f, cudaErrorStreamCaptureInvalidated);
    cudaGraph_t graph;
    assert_int_equal(cuda.cudaStreamEndCapture(f.b, &graph), cudaErrorStreamCaptureInvalidated);

    start(&f); /* ended on another stream */
    must(cuda.cudaEventRecord(f.event, f.a));
    must(cuda.cudaStreamWaitEvent(f.b, f.event, 0));
    assert_int_equal(cuda.cudaStreamEndCapture(f.b, &graph), cudaErrorStreamCaptureUnmatched);
    expect_end(&f, cudaErrorStreamCaptureInvalidated);

    start(&f); /* our rules: pinned memory, and no first launch of a kernel */
    assert_int_equal(cuda.cudaMemcpyAsync(f.x, pageable, BYTES, cudaMemcpyHostToDevice, f.a),
                     cudaErrorStreamCaptureUnsupported);
    expect_end(&f, cudaErrorStreamCaptureInvalidated);
    start(&f);
    assert_int_equal(cuda.cudaLaunchKernel((const void *)cold, (dim3){4, 1, 1}, (dim3){256, 1, 1}, arguments, 0, f.a),
                     cudaErrorStreamCaptureUnsupported);
    expect_end(&f, cudaErrorStreamCaptureInvalidated);
    expect_end(&f, cudaErrorInvalidValue); /* there is no capture */
    must(launch_scale(f.scale, f.x, 1, 0, f.a));
    must(cuda.cudaStreamSynchronize(f.a));
}

/* Computes x and y on two streams and adds them on the first one, with or without a join. */
static float forked(long mode)
{
    fixture f = begin(mode);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphInstantiateParams params = {.flags = 0};
    size_t nodes = 0;
    long long n = COUNT;
    void *arguments[] = {&f.z, &f.x, &f.y, &n};
    must(cuda.cudaMemsetAsync(f.y, 0, BYTES, f.a));
    must(cuda.cudaMemsetAsync(f.z, 0, BYTES, f.a));
    for (int warm = 1; warm >= 0; warm--) {
        if (!warm) start(&f);
        must(cuda.cudaEventRecord(f.event, f.a));
        must(cuda.cudaStreamWaitEvent(f.b, f.event, 0));
        must(launch_scale(f.scale, f.x, 1, 1, f.a));
        must(launch_scale(f.scale, f.y, 1, 10, f.b));
        must(launch_scale(f.scale, f.y, 2, 0, f.b));
        must(cuda.cudaEventRecord(f.other, f.b));
        must(cuda.cudaStreamWaitEvent(f.a, f.other, 0));
        must(cuda.cudaLaunchKernel((const void *)f.add, (dim3){4, 1, 1}, (dim3){256, 1, 1}, arguments, 0, f.a));
    }
    must(cuda.cudaStreamEndCapture(f.a, &graph));
    must(cuda.cudaGraphGetNodes(graph, NULL, &nodes));
    assert_int_equal(nodes, 4);
    must(cuda.cudaGraphInstantiateWithParams(&exec, graph, &params));
    must(cuda.cudaGraphDestroy(graph));
    must(cuda.cudaGraphLaunch(exec, f.a));
    must(cuda.cudaGraphLaunch(exec, f.a));
    must(cuda.cudaGraphExecDestroy(exec)); /* launched work still runs */
    return first_of(&f, f.z);
}

TEST(forks_are_joined)
{
    for (int i = 0; i < MODES; i++) assert_true(forked(modes[i]) == 3 + 140); /* x: 1 2 3; y: 20 60 140 */
}

/* ---- events ---------------------------------------------------------------------------------- */

TEST(events_report_completion)
{
    for (int i = 0; i < MODES; i++) {
        fixture f = begin(modes[i]);
        cudaEvent_t first, last;
        float time = -1;
        int queries = 0;
        must(cuda.cudaEventCreateWithFlags(&first, cudaEventDefault));
        must(cuda.cudaEventCreateWithFlags(&last, cudaEventDefault));
        assert_int_equal(cuda.cudaEventElapsedTime(&time, first, last), cudaErrorInvalidResourceHandle);
        must(cuda.cudaEventRecord(first, f.a));
        must(launch_scale(f.scale, f.x, 1, 1, f.a));
        must(cuda.cudaEventRecord(last, f.a));
        if (modes[i] == DOUBLE_LAZY) assert_int_equal(cuda.cudaEventElapsedTime(&time, first, last), cudaErrorNotReady);
        while (cuda.cudaEventQuery(last) == cudaErrorNotReady && queries < 100) queries++;
        assert_true(queries < 100 && (modes[i] != DOUBLE_EAGER || queries == 0));
        must(cuda.cudaEventElapsedTime(&time, first, last));
        assert_true(time > 0);
        must(cuda.cudaEventQuery(f.event)); /* an event that was never recorded has passed */
        must(cuda.cudaEventDestroy(first));
        must(cuda.cudaEventDestroy(last));
        assert_int_equal(cuda.cudaEventQuery(last), cudaErrorInvalidResourceHandle);
    }
}

/* Each replay reaches an external event of a graph between the nodes around it; the event is not part of the capture. */
TEST(events_of_graphs_report_times)
{
    for (int i = 0; i < MODES; i++) {
        fixture f = begin(modes[i]);
        cudaEvent_t events[3];
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        cudaGraphInstantiateParams params = {.flags = 0};
        float time = -1;
        size_t nodes = 0;
        for (int k = 0; k < 3; k++) must(cuda.cudaEventCreateWithFlags(&events[k], cudaEventDefault));
        assert_int_equal(cuda.cudaEventRecordWithFlags(events[0], f.a, cudaEventRecordExternal), cudaErrorInvalidValue);
        start(&f);
        for (int k = 0; k < 3; k++) {
            must(cuda.cudaEventRecordWithFlags(events[k], f.a, cudaEventRecordExternal));
            for (int launches = k + 1; launches > 0; launches--) must(launch_scale(f.scale, f.x, 1, 1, f.a));
        }
        must(cuda.cudaStreamEndCapture(f.a, &graph));
        must(cuda.cudaGraphGetNodes(graph, NULL, &nodes));
        assert_int_equal(nodes, 3 + 1 + 2 + 3);
        must(cuda.cudaGraphInstantiateWithParams(&exec, graph, &params));
        must(cuda.cudaGraphDestroy(graph));
        assert_int_equal(cuda.cudaEventElapsedTime(&time, events[0], events[1]), cudaErrorInvalidResourceHandle);
        for (int replays = 0; replays < 2; replays++) {
            must(cuda.cudaGraphLaunch(exec, f.a));
            must(cuda.cudaStreamSynchronize(f.a));
            for (int k = 0; k < 2; k++) {
                must(cuda.cudaEventElapsedTime(&time, events[k], events[k + 1]));
                assert_true(time == (float)(k + 1)); /* number of launches between them */
            }
        }
        must(cuda.cudaGraphExecDestroy(exec));
        for (int k = 0; k < 3; k++) must(cuda.cudaEventDestroy(events[k]));
    }
}

TEST_GROUP(setup, teardown)
