/* nccl.cc - the double of NCCL: ranks are threads of the program.
 *
 * A collective is two operations of its stream. The first copies the values of the rank and destroys the result; the
 * second, which is ready when all ranks have done the first, delivers. Until then a write to the result is a fault, and a
 * read finds destroyed values. Calls may still be in progress when they return, and are only enqueued when the program
 * asks for the state of the communicator. Ranks whose calls differ are a fault. */
#include "tests/cuda/double/inner.h"
#include "tests/cuda/double/rt.h"

extern "C" {
#include "ir/ops/dtype.h"
}

#include <cstring>
#include <map>

namespace
{

struct Signature {
    const char *what;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    bool operator==(const Signature &o) const { return what == o.what && count == o.count && type == o.type && op == o.op; }
};

struct Exchange {
    Signature call;
    std::vector<std::vector<char>> values; /* by rank */
    int arrived = 0, delivered = 0;
};

struct Group {
    int count, joined = 0;
    bool broken = false;
    std::map<long, Exchange> exchanges{}; /* by number */
};

struct Member {
    std::shared_ptr<Group> group;
    int rank;
    long next = 0; /* exchange */
    bool gone = false;
    size_t polls = 0;                    /* until what is in progress is complete */
    std::function<void()> in_progress{}; /* enqueues it */
};

std::map<std::string, std::shared_ptr<Group>> groups;
int ids;
bool silent;
int library = NCCL_VERSION_CODE;

enum : size_t { SLOW = 4 }; /* calls may be in progress for so many polls */

ir_dtype dtype_of(ncclDataType_t t) { return t == ncclFloat16 ? IR_f16 : t == ncclBfloat16 ? IR_bf16 : IR_f32; }

ncclResult_t refused(ncclResult_t e, const char *why)
{
    double_refuse("%s", why);
    return e;
}

/* The sums of element i of all ranks, rounded after each addition, from a rank that depends on i. */
void reduce(const Exchange &x, int count, size_t i, char *to)
{
    const ir_dtype t = dtype_of(x.call.type);
    const size_t at = i * ir_dtype_size(t);
    char sum[8];
    for (int k = 0; k < count; k++) {
        const char *value = x.values[(i / 16 + size_t(k)) % size_t(count)].data() + at;
        if (k == 0) {
            memcpy(sum, value, ir_dtype_size(t));
            continue;
        }
        const double a = ir_load_f64(t, sum), b = ir_load_f64(t, value);
        ir_store_f64(t, sum, x.call.op == ncclMax ? (a > b ? a : b) : a + b);
    }
    memcpy(to + at, sum, ir_dtype_size(t));
}

cudaError_t arrive(Member &m, const Signature &call, const void *send, void *recv, size_t sent, size_t received, long *number)
{
    Exchange &x = m.group->exchanges[*number = m.next++];
    if (x.arrived == 0) {
        x.call = call;
        x.values.resize(size_t(m.group->count));
    }
    if (!(x.call == call))
        return rt::refuse(cudaErrorLaunchFailure, "call %ld of the ranks differs: %s of %zu and %s of %zu", *number,
                          x.call.what, x.call.count, call.what, call.count);
    const char *from = static_cast<const char *>(send);
    x.values[size_t(m.rank)].assign(from, from + sent);
    x.arrived++;
    memset(recv, 0xff, received);
    return cudaSuccess;
}

cudaError_t deliver(Member &m, void *recv, size_t received, long number)
{
    Exchange &x = m.group->exchanges[number];
    char *to = static_cast<char *>(recv);
    if (m.gone) return cudaSuccess;
    for (size_t i = 0; i < received; i++)
        if (to[i] != char(0xff)) return rt::refuse(cudaErrorLaunchFailure, "a result was written before it arrived");
    if (strcmp(x.call.what, "ncclAllGather") == 0)
        for (auto &value : x.values) to = static_cast<char *>(memcpy(to, value.data(), value.size())) + value.size();
    else
        for (size_t i = 0; i < x.call.count; i++) reduce(x, m.group->count, i, to);
    if (++x.delivered == m.group->count) m.group->exchanges.erase(number);
    return cudaSuccess;
}

} // namespace

struct ncclComm {
    std::shared_ptr<Member> member;
};

static void enqueue(const std::shared_ptr<Member> &m, const Signature &call, const void *send, void *recv, size_t sent,
                    size_t received, cudaStream_t stream)
{
    auto number = std::make_shared<long>(0);
    rt::submit(stream, call.what, [=] { return arrive(*m, call, send, recv, sent, received, number.get()); },
               {const_cast<void *>(send), recv});
    rt::submit(stream, "delivery", [=] { return deliver(*m, recv, received, *number); }, {recv}, [=] {
        auto found = m->group->exchanges.find(*number);
        return m->gone || (found != m->group->exchanges.end() && found->second.arrived == m->group->count);
    });
}

static bool is_known(ncclComm_t comm) { return rt::known(comm, "communicator"); }

static ncclResult_t begin(const Signature &call, const void *send, void *recv, size_t received, ncclComm_t comm,
                          cudaStream_t stream)
{
    if (!is_known(comm)) return refused(ncclInvalidArgument, "no such communicator");
    const std::shared_ptr<Member> m = comm->member;
    if (m->in_progress || m->polls || m->group->joined < m->group->count)
        return refused(ncclInvalidUsage, "a call before the one in progress is complete");
    if (call.type != ncclFloat16 && call.type != ncclBfloat16 && call.type != ncclFloat32)
        return refused(ncclInvalidArgument, "a type that the double does not know");
    const size_t sent = call.count * ir_dtype_size(dtype_of(call.type));
    if (!call.count || !double_on_device(send, sent) || !double_on_device(recv, received))
        return refused(ncclInvalidArgument, "memory that is not the device's");
    if (rt::check_stream(stream)) return ncclUnhandledCudaError;
    auto work = [=] { enqueue(m, call, send, recv, sent, received, stream); };
    m->polls = rt::draw(SLOW);
    if (m->polls) m->in_progress = work;
    else work();
    return m->polls ? ncclInProgress : ncclSuccess;
}

void double_silent(bool is_silent) { silent = is_silent; }
void double_nccl(int version) { library = version; }
bool double_has_nccl(void) { return library; }
void double_break(void)
{
    for (auto &entry : groups) entry.second->broken = true;
}

namespace rt
{
void forget_communicators()
{
    groups.clear();
    silent = false;
    library = NCCL_VERSION_CODE;
}
} // namespace rt

namespace own
{

ncclResult_t ncclGetVersion(int *version)
{
    *version = library;
    return ncclSuccess;
}
const char *ncclGetErrorString(ncclResult_t e) { return e == ncclSuccess ? "no error" : "an error of the double"; }
const char *ncclGetLastError(ncclComm_t) { return double_reason(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "group %d", ++ids);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int count, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    std::shared_ptr<Group> &group = groups[id.internal];
    *comm = nullptr;
    if (config->magic != 0xcafebeef || config->blocking != 0)
        return refused(ncclInvalidArgument, "a communicator whose calls wait without a limit");
    if (!group) group = std::make_shared<Group>(Group{count});
    if (strncmp(id.internal, "group ", 6) != 0 || group->count != count || rank < 0 || rank >= count)
        return refused(ncclInvalidArgument, "ranks that do not belong together");
    group->joined++;
    *comm = new ncclComm{std::make_shared<Member>(Member{group, rank})};
    (*comm)->member->polls = 1 + rt::draw(SLOW);
    rt::enter(*comm, "communicator", rt::drop_as<ncclComm>);
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    if (!is_known(comm)) return refused(ncclInvalidArgument, "no such communicator");
    Member &m = *comm->member;
    *state = m.group->broken ? ncclRemoteError : ncclSuccess;
    if (*state != ncclSuccess) return ncclSuccess;
    *state = ncclInProgress;
    if (m.group->joined < m.group->count || (m.polls && --m.polls)) return ncclSuccess;
    if (m.in_progress) m.in_progress();
    m.in_progress = nullptr;
    *state = ncclSuccess;
    return ncclSuccess;
}

static ncclResult_t end(ncclComm_t comm, bool breaks)
{
    if (!is_known(comm)) return refused(ncclInvalidArgument, "no such communicator");
    comm->member->gone = true;
    if (breaks && !silent) comm->member->group->broken = true;
    rt::leave(comm);
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    if (!is_known(comm)) return refused(ncclInvalidArgument, "no such communicator");
    comm->member->polls = 1 + rt::draw(SLOW);
    return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return end(comm, false); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return end(comm, true); }

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream)
{
    return begin({"ncclAllReduce", count, type, op}, send, recv, count * ir_dtype_size(dtype_of(type)), comm, stream);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    const size_t ranks = is_known(comm) ? size_t(comm->member->group->count) : 0;
    return begin({"ncclAllGather", count, type, ncclSum}, send, recv, count * ir_dtype_size(dtype_of(type)) * ranks, comm,
                 stream);
}

} // namespace own

#undef OWN_NCCL
#define OWN_RT(function)
static const double_function functions[] = {
#define OWN_NCCL(function) {#function, reinterpret_cast<void (*)(void)>(&own::function)},
#define CUDA_FUNCTION(id, function) OWN_##id(function)
#include "kernels/cuda/api.def"
    {nullptr, nullptr}};

const double_library double_nccl_library = {false, functions};
