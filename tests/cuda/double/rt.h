/* rt.h - the parts of the runtime's double.
 *
 *   rt.cc         device, errors, libraries of kernels, launches       rt_stream.cc  streams, events, the scheduler
 *   rt_memory.cc  device and pinned memory, copies                     rt_graph.cc   capture, graphs, replay
 *
 * Device work is a Task: a closure that can run any number of times. submit() puts it at the end of a stream, or into
 * the graph that the stream is recording. A stream is a queue of Work (tasks, marks of events, waits, replays); the
 * scheduler takes steps of streams whose head is ready. All of it is guarded by the lock of the provider. */
#ifndef TESTS_CUDA_DOUBLE_RT_H
#define TESTS_CUDA_DOUBLE_RT_H

#include "tests/cuda/double/double.h"

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace rt {

using Task = std::function<cudaError_t()>;

/* ---- objects and refusals (rt.cc) ---- */

/* Every handle that a program holds is entered here, so that a stale one is known as such; `drop` (may be NULL) frees
 * one that was never given back. */
void enter(void *object, const char *kind, void (*drop)(void *object));
template <class T> void drop_as(void *object) { delete static_cast<T *>(object); }
void leave(const void *object);
bool known(const void *object, const char *kind);

cudaError_t refuse(cudaError_t e, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A call that must not be made while anything is being captured: 900, and the captures are invalid. */
cudaError_t unsafe(const char *what);
extern cudaError_t fault; /* of the device; it stays */
cudaError_t settle(cudaError_t e); /* keeps an error for cudaGetLastError */
/* Counts, opens device memory (all of it, or what holds the addresses in `touches`), runs, keeps a fault. */
extern long clock_ms; /* of the device: an operation takes a millisecond, whatever it does */
void execute(const Task &task, const std::vector<void *> &touches);

/* ---- memory ---- */

enum class Side { host, pinned, device, broken };
Side side_of(const void *p, size_t bytes);
/* While it exists, device memory is open, as for execute. */
struct Opened {
    explicit Opened(const std::vector<void *> &touches);
    ~Opened();
    Opened(const Opened &) = delete;
    std::vector<void *> touches;
};
void forget_memory();

/* ---- capture ---- */

struct Event;

struct Node {
    const char *what;
    Task task;
    std::vector<void *> touches;
    std::vector<size_t> after;
    std::shared_ptr<Event> event; /* recorded instead of running the task; NULL: a task */
};

struct Capture {
    cudaStream_t origin;
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    bool invalid = false;
    std::vector<Node> nodes;
    std::vector<cudaStream_t> streams; /* with the origin */
};

/* Ends a stream's capture attempts with an error, which it returns. */
cudaError_t invalidate(Capture &capture, cudaError_t e);
/* The dependencies that `more` adds to `tail`. */
void join(std::vector<size_t> &tail, const std::vector<size_t> &more);
void enter_capture(cudaStream_t stream, const std::shared_ptr<Capture> &capture);

/* ---- streams and events ---- */

struct Work {
    virtual ~Work() = default;
    virtual bool ready() const { return true; }
    virtual bool step() = 0;                               /* true: finished */
    virtual cudaStream_t blocker() const { return nullptr; } /* whose progress makes this ready */
};

struct Event {
    long recorded = 0, done = 0; /* marks put into streams, and reached */
    long time = 0;               /* clock_ms when the last was reached */
    bool timing = true;
    cudaStream_t stream = nullptr;
    std::shared_ptr<Capture> capture; /* the last mark was put into this */
    std::vector<size_t> nodes;

    void reach(long number);
};

void put(cudaStream_t stream, std::unique_ptr<Work> work); /* and lets the mode have its way */
cudaError_t submit(cudaStream_t stream, const char *what, Task task, std::vector<void *> touches = {});
/* What a call on a stream begins with: an error for a stream that is not there or whose capture is invalid. The default
 * stream ends the program. */
cudaError_t check_stream(cudaStream_t stream);
void wait_stream(cudaStream_t stream);
void wait_all();
void progress(); /* a call was made: some work may run */
void forget_streams();
long mode();
size_t draw(size_t n); /* by the mode: 0 .. n-1 */
const std::vector<std::shared_ptr<Capture>> &captures(); /* under way */
void end_capture(const std::shared_ptr<Capture> &capture);

} // namespace rt

struct CUevent_st {
    std::shared_ptr<rt::Event> event;
};

struct CUstream_st {
    std::deque<std::unique_ptr<rt::Work>> queue;
    std::shared_ptr<rt::Capture> capture;
    std::vector<size_t> tail; /* nodes that the next captured one depends on */
};

/* The functions of the double, of the types that the headers give them: one for each row of the table. */
namespace own {
#define OWN_RT(function) decltype(::function) function;
#define OWN_LT(function)
#define OWN_DNN(function)
#define OWN_RTC(function)
#define CUDA_FUNCTION(id, function) OWN_##id(function)
#include "kernels/cuda/api.def"
#undef OWN_RT
} // namespace own

#endif
