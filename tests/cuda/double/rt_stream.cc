/* rt_stream.cc - streams, events and the scheduler of the runtime's double.
 *
 * Eager: each call runs everything that is ready. Lazy: steps run only when something waits for them, and only the necessary ones.
 * Seed: each call runs a few steps of randomly chosen ready streams, and waits run random steps until the condition holds. A
 * destroyed stream finishes its work. */
#include "tests/cuda/double/rt.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace rt {

/* With a seed: how rarely a call runs work, and how many steps at most. Both are so low that work usually piles up. */
enum : size_t { SELDOM = 6, FEW = 5 };
/* How often a wait lets other threads go on. */
enum { PATIENCE = 20000 };

static long how = DOUBLE_EAGER;
static uint64_t dice;
static std::vector<cudaStream_t> streams; /* including destroyed ones with work left */
static std::vector<std::shared_ptr<Capture>> open_captures;

long mode() { return how; }

size_t draw(size_t n)
{
    if (how == DOUBLE_EAGER) return 0;
    if (how == DOUBLE_LAZY) return n - 1;
    dice += 0x9e3779b97f4a7c15u; /* splitmix64 */
    uint64_t z = (dice ^ dice >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return static_cast<size_t>((z ^ z >> 31) % n);
}

/* ---- work ------------------------------------------------------------------------------------ */

struct Run : Work {
    Task task;
    std::vector<void *> touches;
    Question may_run;
    Run(Task t, std::vector<void *> p, Question q) : task(std::move(t)), touches(std::move(p)), may_run(std::move(q)) {}
    bool ready() const override { return !may_run || may_run(); }
    bool step() override
    {
        execute(task, touches);
        return true;
    }
};

void Event::reach(long number)
{
    done = std::max(done, number);
    time = clock_ms;
}

struct Mark : Work {
    std::shared_ptr<Event> event;
    long number;
    explicit Mark(std::shared_ptr<Event> e) : event(std::move(e)), number(++event->recorded) {}
    bool step() override
    {
        event->reach(number);
        return true;
    }
};

struct Wait : Work {
    std::shared_ptr<Event> event;
    long number;
    cudaStream_t stream;
    explicit Wait(std::shared_ptr<Event> e) : event(std::move(e)), number(event->recorded), stream(event->stream) {}
    bool ready() const override { return event->done >= number; }
    bool step() override { return true; }
    cudaStream_t blocker() const override { return stream; }
};

/* ---- the scheduler --------------------------------------------------------------------------- */

static bool is_ready(cudaStream_t stream) { return !stream->queue.empty() && stream->queue.front()->ready(); }

static void step(cudaStream_t stream)
{
    if (stream->queue.front()->step()) stream->queue.pop_front();
    if (stream->queue.empty() && !known(stream, "stream")) {
        streams.erase(std::find(streams.begin(), streams.end(), stream));
        delete stream;
    }
}

/* Runs one step of any ready stream; false: no work left. */
static bool step_any()
{
    std::vector<cudaStream_t> ready;
    std::copy_if(streams.begin(), streams.end(), std::back_inserter(ready), is_ready);
    if (ready.empty()) return false;
    step(ready[draw(ready.size())]);
    return true;
}

/* Runs one step that advances `stream`: its own, or one that its head waits for; any if that is the work of another rank.
 * false: there is none. */
static bool advance(cudaStream_t stream)
{
    if (how != DOUBLE_LAZY) return step_any();
    while (!is_ready(stream)) {
        stream = stream->queue.front()->blocker();
        if (!stream || stream->queue.empty()) return step_any();
    }
    step(stream);
    return true;
}

/* Advances the stream, if need be after another rank, which is a thread, has done its part. */
static void must_advance(cudaStream_t stream)
{
    for (int i = 0; !advance(stream); i++) {
        if (i == PATIENCE) {
            fprintf(stderr, "the double's streams wait for each other\n");
            abort();
        }
        yield();
    }
}

void progress()
{
    if (how == DOUBLE_EAGER)
        while (step_any()) continue;
    if (how >= 0 && draw(SELDOM) == 0)
        for (size_t n = draw(FEW); n > 0 && step_any(); n--) continue;
}

void put(cudaStream_t stream, std::unique_ptr<Work> work)
{
    stream->queue.push_back(std::move(work));
    progress();
}

void wait_stream(cudaStream_t stream)
{
    while (!stream->queue.empty()) must_advance(stream);
}

static void wait_event(Event &event)
{
    while (event.done < event.recorded) must_advance(event.stream);
}

void wait_all()
{
    while (step_any()) continue;
}

cudaError_t submit(cudaStream_t stream, const char *what, Task task, std::vector<void *> touches, Question may_run)
{
    if (!stream->capture) {
        put(stream, std::make_unique<Run>(std::move(task), std::move(touches), std::move(may_run)));
        return fault;
    }
    auto &nodes = stream->capture->nodes;
    nodes.push_back({what, std::move(task), std::move(touches), stream->tail, std::move(may_run), nullptr});
    stream->tail = {nodes.size() - 1};
    return cudaSuccess;
}

void forget_streams()
{
    for (auto stream : streams) delete stream;
    streams.clear();
    open_captures.clear();
}

cudaError_t check_stream(cudaStream_t stream)
{
    if (!stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
        fprintf(stderr, "the double: a call on the default stream, which we never use\n");
        abort();
    }
    if (!known(stream, "stream")) return refuse(cudaErrorInvalidResourceHandle, "no such stream");
    if (stream->capture && stream->capture->invalid)
        return refuse(cudaErrorStreamCaptureInvalidated, "the capture failed before");
    progress();
    return cudaSuccess;
}

/* Rejects calls that are not allowed on a capturing stream. */
static cudaError_t check_not_capturing(cudaStream_t stream, const char *what)
{
    if (cudaError_t e = check_stream(stream)) return e;
    if (!stream->capture) return cudaSuccess;
    return invalidate(*stream->capture, refuse(cudaErrorStreamCaptureUnsupported, "%s of a capturing stream", what));
}

const std::vector<std::shared_ptr<Capture>> &captures() { return open_captures; }

void enter_capture(cudaStream_t stream, const std::shared_ptr<Capture> &capture)
{
    if (capture->streams.empty()) open_captures.push_back(capture);
    stream->capture = capture;
    stream->tail.clear();
    capture->streams.push_back(stream);
}

void end_capture(const std::shared_ptr<Capture> &ended)
{
    std::shared_ptr<Capture> capture = ended;
    for (auto stream : capture->streams) stream->capture.reset();
    open_captures.erase(std::find(open_captures.begin(), open_captures.end(), capture));
}

/* Waiting for an event of a capture adds its dependencies, and adds the stream to the capture if it was not capturing. */
static cudaError_t wait_captured(cudaStream_t stream, const Event &event)
{
    bool is_open = std::find(open_captures.begin(), open_captures.end(), event.capture) != open_captures.end();
    if (!is_open) return refuse(cudaErrorCapturedEvent, "a wait for an event of a capture that has ended");
    if (event.capture->invalid) return refuse(cudaErrorStreamCaptureInvalidated, "the capture failed before");
    if (!stream->capture) enter_capture(stream, event.capture);
    if (stream->capture != event.capture) {
        stream->capture->invalid = true;
        return invalidate(*event.capture, refuse(cudaErrorStreamCaptureMerge, "a wait for an event of another capture"));
    }
    join(stream->tail, event.nodes);
    return cudaSuccess;
}

static cudaError_t check_event(cudaEvent_t event, bool may_be_captured)
{
    if (!known(event, "event")) return refuse(cudaErrorInvalidResourceHandle, "no such event");
    if (may_be_captured || !event->event->capture) return cudaSuccess;
    return invalidate(*event->event->capture,
                      refuse(cudaErrorCapturedEvent, "the event was last recorded in a capture"));
}

} // namespace rt

using namespace rt;

void double_mode(long mode)
{
    how = mode;
    dice = mode > 0 ? static_cast<uint64_t>(mode) * 0x2545f4914f6cdd1du : 0;
    progress();
}

cudaError_t double_enqueue(cudaStream_t stream, const char *what, cudaError_t (*run)(void *), void *state,
                           void (*release)(void *))
{
    auto kept = std::shared_ptr<void>(state, release);
    if (cudaError_t e = check_stream(stream)) return e;
    return submit(stream, what, [=] { return run(kept.get()); });
}

namespace own {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    if (cudaError_t e = unsafe("cudaStreamCreateWithFlags")) return e;
    if (flags != cudaStreamNonBlocking)
        return refuse(cudaErrorNotSupported, "a stream that waits for the default stream, which we never use");
    *out = new CUstream_st;
    streams.push_back(*out);
    enter(*out, "stream", nullptr);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    if (cudaError_t e = check_not_capturing(stream, "destruction")) return e;
    leave(stream);
    if (!stream->queue.empty()) return cudaSuccess;
    streams.erase(std::find(streams.begin(), streams.end(), stream));
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    if (cudaError_t e = check_not_capturing(stream, "synchronisation")) return e;
    wait_stream(stream);
    return fault;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    if (cudaError_t e = check_not_capturing(stream, "a query")) return e;
    if (!stream->queue.empty()) advance(stream);
    return fault ? fault : stream->queue.empty() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle, unsigned flags)
{
    if (cudaError_t e = check_stream(stream)) return e;
    if (cudaError_t e = check_event(handle, true)) return e;
    if (flags) return refuse(cudaErrorNotSupported, "the double does not know flags %u of a wait", flags);
    Event &event = *handle->event;
    if (event.capture) return wait_captured(stream, event);
    if (stream->capture)
        return invalidate(*stream->capture, refuse(cudaErrorStreamCaptureIsolation,
                                                   "a capturing stream waits for what is not captured"));
    put(stream, std::make_unique<Wait>(handle->event));
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    if (flags & ~static_cast<unsigned>(cudaEventDisableTiming | cudaEventBlockingSync))
        return refuse(cudaErrorNotSupported, "the double does not know flags %u of an event", flags);
    *out = new CUevent_st{std::make_shared<Event>()};
    (*out)->event->timing = !(flags & cudaEventDisableTiming);
    enter(*out, "event", drop_as<CUevent_st>);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (cudaError_t e = check_event(event, true)) return e;
    leave(event);
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream)
{
    if (cudaError_t e = check_stream(stream)) return e;
    if (cudaError_t e = check_event(handle, true)) return e;
    Event &event = *handle->event;
    event.stream = stream;
    event.capture = stream->capture;
    event.nodes = stream->tail;
    if (!stream->capture) put(stream, std::make_unique<Mark>(handle->event));
    return cudaSuccess;
}

/* Records the event as a graph node, which each replay reaches; the event does not become part of the capture. */
static void record_node(CUstream_st &stream, const std::shared_ptr<Event> &event)
{
    auto &nodes = stream.capture->nodes;
    nodes.push_back({"event", nullptr, {}, stream.tail, nullptr, event});
    stream.tail = {nodes.size() - 1};
    event->capture.reset();
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream, unsigned flags)
{
    if (flags == cudaEventRecordDefault) return own::cudaEventRecord(handle, stream);
    if (cudaError_t e = check_stream(stream)) return e;
    if (cudaError_t e = check_event(handle, true)) return e;
    if (flags != cudaEventRecordExternal)
        return refuse(cudaErrorNotSupported, "the double does not know flags %u of recording an event", flags);
    double_note("external");
    if (!stream->capture) return refuse(cudaErrorInvalidValue, "an external event outside of a capture");
    record_node(*stream, handle->event);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t handle)
{
    if (cudaError_t e = check_event(handle, false)) return e;
    if (cudaError_t e = unsafe("cudaEventQuery")) return e;
    Event &event = *handle->event;
    if (event.done < event.recorded) advance(event.stream);
    return fault ? fault : event.done < event.recorded ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle)
{
    if (cudaError_t e = check_event(handle, false)) return e;
    wait_event(*handle->event);
    return fault;
}

/* Uses the device's clock: one millisecond per operation between the two events. */
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t first, cudaEvent_t last)
{
    for (cudaEvent_t handle : {first, last}) {
        if (cudaError_t e = check_event(handle, false)) return e;
        const Event &event = *handle->event;
        if (!event.timing || !event.recorded)
            return refuse(cudaErrorInvalidResourceHandle, "an event without a time");
        if (event.done < event.recorded) return cudaErrorNotReady;
    }
    *milliseconds = static_cast<float>(last->event->time - first->event->time);
    return fault;
}

} // namespace own
