/* rt.h - the parts of the runtime's double.
 *
 *   rt.cc         device, errors, libraries of kernels, launches       rt_stream.cc  streams, events, the scheduler
 *   rt_memory.cc  device and pinned memory, copies                     rt_graph.cc   capture, graphs, replay
 *
 * Device work is a Task: a closure that can run any number of times. submit() appends it to a stream or, during capture, to the
 * graph. A stream is a queue of Work (tasks, event marks, waits, replays), and the scheduler executes steps of streams whose head
 * is ready. The provider's lock protects all of it. */
#ifndef TESTS_CUDA_DOUBLE_RT_H
#define TESTS_CUDA_DOUBLE_RT_H

#include "tests/cuda/double/double.h"

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace rt
{

using Task = std::function<cudaError_t()>;
using Question = std::function<bool()>;

/* ---- objects and rejections (rt.cc) ---- */

/* Registers a handle given to the program, to detect stale handles; `drop` (may be NULL) frees handles that were leaked. */
void enter(void *object, const char *kind, void (*drop)(void *object));
template <class T> void drop_as(void *object) { delete static_cast<T *>(object); }
void leave(const void *object);
bool known(const void *object, const char *kind);

cudaError_t refuse(cudaError_t e, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Rejects a call that is not allowed during capture with error 900, and invalidates all captures. */
cudaError_t unsafe(const char *what);
extern cudaError_t fault;          /* device fault; sticky */
cudaError_t settle(cudaError_t e); /* records an error for cudaGetLastError */
/* Counts the operation, makes device memory accessible (all of it, or only the allocations of the addresses in `touches`), runs the
 * task and records faults. */
extern long clock_ms; /* device clock: every operation lasts one millisecond */
void execute(const Task &task, const std::vector<void *> &touches);

/* ---- memory ---- */

enum class Side { host, pinned, device, broken };
Side side_of(const void *p, size_t bytes);
/* Makes device memory accessible during its lifetime, as in execute. */
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
    Question may_run;
    std::shared_ptr<Event> event; /* recorded instead of running the task; NULL: run the task */
};

struct Capture {
    cudaStream_t origin;
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    bool invalid = false;
    std::vector<Node> nodes;
    std::vector<cudaStream_t> streams; /* including the origin */
};

/* Invalidates the capture with an error, and returns the error. */
cudaError_t invalidate(Capture &capture, cudaError_t e);
/* Adds the dependencies in `more` to `tail`. */
void join(std::vector<size_t> &tail, const std::vector<size_t> &more);
void enter_capture(cudaStream_t stream, const std::shared_ptr<Capture> &capture);

/* ---- streams and events ---- */

struct Work {
    virtual ~Work() = default;
    virtual bool ready() const { return true; }
    virtual bool step() = 0;                                 /* true: finished */
    virtual cudaStream_t blocker() const { return nullptr; } /* the stream whose progress makes this ready */
};

struct Event {
    long recorded = 0, done = 0; /* marks put into streams, and marks reached */
    long time = 0;               /* clock_ms when the last mark was reached */
    bool timing = true;
    cudaStream_t stream = nullptr;
    std::shared_ptr<Capture> capture; /* the capture that contains the last mark */
    std::vector<size_t> nodes;

    void reach(long number);
};

void put(cudaStream_t stream, std::unique_ptr<Work> work); /* and runs work as the mode requires */
/* may_run: whether it can run although it is its turn (NULL: always). */
cudaError_t submit(cudaStream_t stream, const char *what, Task task, std::vector<void *> touches = {},
                   Question may_run = nullptr);
/* Common check of all calls on a stream: an error if the stream does not exist or its capture is invalid. Using the default stream
 * aborts the program. */
cudaError_t check_stream(cudaStream_t stream);
void wait_stream(cudaStream_t stream);
void wait_all();
void progress(); /* called by each call, may run some work */
void forget_streams();
void forget_communicators(); /* nccl.cc */
void yield();                /* lets other threads call the double (provider.cc) */
long mode();
size_t draw(size_t n);                                   /* chosen by the mode, in 0 .. n-1 */
const std::vector<std::shared_ptr<Capture>> &captures(); /* active ones */
void end_capture(const std::shared_ptr<Capture> &capture);

} // namespace rt

struct CUevent_st {
    std::shared_ptr<rt::Event> event;
};

struct CUstream_st {
    std::deque<std::unique_ptr<rt::Work>> queue;
    std::shared_ptr<rt::Capture> capture;
    std::vector<size_t> tail; /* nodes on which the next captured node depends */
};

/* The double's functions with the types of the headers, one per row of the table. */
namespace own
{
#define OWN_RT(function) decltype(::function) function;
#define OWN_LT(function)
#define OWN_DNN(function)
#define OWN_RTC(function)
#define OWN_NCCL(function)
#define CUDA_FUNCTION(id, function) OWN_##id(function)
#include "kernels/cuda/api.def"
#undef OWN_RT
} // namespace own

#endif
