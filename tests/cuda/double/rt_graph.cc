/* rt_graph.cc - capture, graphs and their replay in the runtime's double.
 *
 * A capture collects the tasks of its streams as nodes with their dependencies: the stream's previous node and those from events. A
 * replay runs the nodes in any order that respects the dependencies, one per scheduler step, interleaved with other streams. Two
 * replays of one executable graph never overlap. */
#include "tests/cuda/double/rt.h"

#include <algorithm>

struct CUgraph_st {
    std::vector<rt::Node> nodes;
};

namespace rt {

struct Executable {
    std::vector<Node> nodes;
    cudaStream_t running = nullptr;
};

} // namespace rt

struct CUgraphExec_st {
    std::shared_ptr<rt::Executable> code;
};

namespace rt {

cudaError_t invalidate(Capture &capture, cudaError_t e)
{
    capture.invalid = true;
    return e;
}

void join(std::vector<size_t> &tail, const std::vector<size_t> &more)
{
    for (size_t node : more)
        if (std::find(tail.begin(), tail.end(), node) == tail.end()) tail.push_back(node);
}

/* Whether the tails of all streams of a capture precede the tail of its origin. */
static bool is_joined(const Capture &capture)
{
    std::vector<bool> reached(capture.nodes.size());
    std::vector<size_t> work = capture.origin->tail;
    while (!work.empty()) {
        size_t node = work.back();
        work.pop_back();
        if (reached[node]) continue;
        reached[node] = true;
        const auto &after = capture.nodes[node].after;
        work.insert(work.end(), after.begin(), after.end());
    }
    return std::all_of(capture.streams.begin(), capture.streams.end(), [&](cudaStream_t stream) {
        return std::all_of(stream->tail.begin(), stream->tail.end(), [&](size_t node) { return reached[node]; });
    });
}

struct Replay : Work {
    std::shared_ptr<Executable> code;
    cudaStream_t stream;
    std::vector<bool> done;
    size_t left;
    bool started = false;

    Replay(std::shared_ptr<Executable> c, cudaStream_t s)
        : code(std::move(c)), stream(s), done(code->nodes.size()), left(code->nodes.size())
    {
    }
    bool ready() const override
    {
        return (started || !code->running) && (left == 0 || !ready_nodes().empty());
    }
    cudaStream_t blocker() const override { return started ? nullptr : code->running; }
    bool step() override
    {
        code->running = stream;
        started = true;
        if (left > 0) run_one();
        if (left == 0) code->running = nullptr;
        return left == 0;
    }
    std::vector<size_t> ready_nodes() const
    {
        std::vector<size_t> ready;
        for (size_t i = 0; i < done.size(); i++) {
            const Node &node = code->nodes[i];
            if (!done[i] && std::all_of(node.after.begin(), node.after.end(), [&](size_t k) { return done[k]; }) &&
                (!node.may_run || node.may_run()))
                ready.push_back(i);
        }
        return ready;
    }
    void run_one()
    {
        const std::vector<size_t> ready = ready_nodes();
        size_t chosen = ready[draw(ready.size())];
        const Node &node = code->nodes[chosen];
        if (node.event)
            node.event->reach(++node.event->recorded);
        else
            execute(node.task, node.touches);
        done[chosen] = true;
        left--;
    }
};

} // namespace rt

using namespace rt;

namespace own {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
    if (cudaError_t e = check_stream(stream)) return e;
    if (stream->capture)
        return invalidate(*stream->capture, refuse(cudaErrorInvalidValue, "the stream is capturing already"));
    auto capture = std::make_shared<Capture>();
    capture->origin = stream;
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    enter_capture(stream, capture);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    *out = nullptr;
    if (!known(stream, "stream")) return check_stream(stream);
    std::shared_ptr<Capture> capture = stream->capture;
    if (!capture) return refuse(cudaErrorInvalidValue, "the stream is not capturing");
    if (capture->origin != stream)
        return invalidate(*capture, refuse(cudaErrorStreamCaptureUnmatched, "the capture began in another stream"));
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
        return refuse(cudaErrorStreamCaptureWrongThread, "the capture began in another thread");
    bool joined = is_joined(*capture);
    end_capture(capture);
    if (capture->invalid) return refuse(cudaErrorStreamCaptureInvalidated, "the capture failed before");
    if (!joined) return refuse(cudaErrorStreamCaptureUnjoined, "work of another stream was not joined");
    *out = new CUgraph_st{std::move(capture->nodes)};
    enter(*out, "graph", drop_as<CUgraph_st>);
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    if (!known(stream, "stream")) return check_stream(stream);
    *status = !stream->capture           ? cudaStreamCaptureStatusNone
              : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

static cudaError_t check_graph(cudaGraph_t graph)
{
    return known(graph, "graph") ? cudaSuccess : refuse(cudaErrorInvalidValue, "no such graph");
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    if (cudaError_t e = check_graph(graph)) return e;
    if (nodes) return refuse(cudaErrorNotSupported, "the double only counts the nodes of a graph");
    *count = graph->nodes.size();
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    if (cudaError_t e = check_graph(graph)) return e;
    leave(graph);
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t *out, cudaGraph_t graph, cudaGraphInstantiateParams *params)
{
    *out = nullptr;
    params->errNode_out = nullptr;
    params->result_out = cudaGraphInstantiateError;
    if (cudaError_t e = check_graph(graph)) return e;
    if (cudaError_t e = unsafe("cudaGraphInstantiateWithParams")) return e;
    if (params->flags & ~static_cast<unsigned long long>(cudaGraphInstantiateFlagUpload))
        return refuse(cudaErrorNotSupported, "the double does not know flags %llu of a graph", params->flags);
    if (params->flags)
        if (cudaError_t e = check_stream(params->uploadStream)) return e;
    *out = new CUgraphExec_st{std::make_shared<Executable>()};
    (*out)->code->nodes = graph->nodes;
    enter(*out, "executable graph", drop_as<CUgraphExec_st>);
    params->result_out = cudaGraphInstantiateSuccess;
    return cudaSuccess;
}

static cudaError_t check_executable(cudaGraphExec_t exec, cudaStream_t stream)
{
    if (cudaError_t e = check_stream(stream)) return e;
    if (!known(exec, "executable graph")) return refuse(cudaErrorInvalidValue, "no such executable graph");
    if (!stream->capture) return cudaSuccess;
    return invalidate(*stream->capture,
                      refuse(cudaErrorNotSupported, "the double does not know graphs inside of graphs"));
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) { return check_executable(exec, stream); }

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    if (cudaError_t e = check_executable(exec, stream)) return e;
    put(stream, std::make_unique<Replay>(exec->code, stream));
    return fault;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    if (!known(exec, "executable graph")) return refuse(cudaErrorInvalidValue, "no such executable graph");
    leave(exec);
    delete exec;
    return cudaSuccess;
}

} // namespace own
