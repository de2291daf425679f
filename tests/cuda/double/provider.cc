/* provider.cc - the double as a provider: the entry point of each function, and the function that it calls.
 *
 * Every function of the table has its own entry point, which takes the lock, counts, fails the call selected by
 * double_fail, and writes the trace. It calls the double's function or, if there is none, that of the installed library. */
#include "tests/cuda/double/inner.h"
#include "tests/cuda/double/rt.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>

cuda_api double_inner;

static std::recursive_mutex lock;
static std::map<std::string, long> counts;
static long calls, calls_to_failure;
static std::thread::id thread_to_fail;
static const char *failed;
static FILE *trace;
static std::string note, reason;

/* ---- entry points ------------------------------------------------------------------------------- */

enum Function {
#define CUDA_FUNCTION(id, function) ID_##function,
#include "kernels/cuda/api.def"
};

/* The status of an injected failure, for each status type; 0 is success for all of them. */
static cudaError_t failure(cudaError_t, Function f)
{
    return f == ID_cudaMalloc || f == ID_cudaMallocHost ? cudaErrorMemoryAllocation : cudaErrorUnknown;
}
static cublasStatus_t failure(cublasStatus_t, Function) { return CUBLAS_STATUS_EXECUTION_FAILED; }
static cudnnStatus_t failure(cudnnStatus_t, Function) { return CUDNN_STATUS_EXECUTION_FAILED; }
static nvrtcResult failure(nvrtcResult, Function) { return NVRTC_ERROR_INTERNAL_ERROR; }
static ncclResult_t failure(ncclResult_t, Function) { return ncclSystemError; }

/* Functions that report the status of other calls. */
static bool is_question(Function f) { return f == ID_cudaGetLastError || f == ID_cudaPeekAtLastError; }

/* Whether a failing call still releases its object. */
static bool gives_back(const char *name)
{
    return strstr(name, "Destroy") || strstr(name, "Free") || strstr(name, "Unload") || strstr(name, "EndCapture") ||
           strstr(name, "Abort");
}

/* Frees the graph of a capture whose end was made to fail. */
template <class... A> static void discard(A...) {}
static void discard(cudaStream_t, cudaGraph_t *graph)
{
    if (*graph) own::cudaGraphDestroy(*graph);
    *graph = nullptr;
}

static bool is_told_to_fail(const char *name)
{
    calls++;
    if (std::this_thread::get_id() != thread_to_fail) return false;
    if (calls_to_failure <= 0 || --calls_to_failure > 0) return false;
    failed = name;
    reason = "this call was told to fail";
    return true;
}

static void write_trace(const char *name, int status)
{
    counts[name]++;
    if (!note.empty()) counts[std::string(name) + " " + note]++;
    if (!trace) return;
    fprintf(trace, "%s%s%s -> %d%s%s\n", name, note.empty() ? "" : " ", note.c_str(), status,
            status ? " " : "", status ? reason.c_str() : "");
    fflush(trace);
}

static cudaError_t settled(cudaError_t e) { return rt::settle(e); }
template <class R> static R settled(R r) { return r; }
static cudaError_t fault_of(cudaError_t) { return rt::fault; }
template <class R> static R fault_of(R) { return R(0); }

template <class R, class... A> static R pass(Function id, const char *name, R (*inner)(A...), A... a)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    note.clear();
    reason.clear();
    R broken = fault_of(R(0));
    if (is_told_to_fail(name)) broken = failure(R(0), id);
    R result = broken;
    if (!broken || gives_back(name)) result = inner(a...);
    if (broken) {
        if (gives_back(name)) discard(a...);
        result = broken;
    }
    write_trace(name, static_cast<int>(result));
    return settled(result);
}

/* Queries of names, versions and sizes cannot fail. */
template <class R, class... A> static R ask(const char *name, R (*inner)(A...), A... a)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    counts[name]++;
    return inner(a...);
}

template <class R> struct is_status : std::false_type {};
template <> struct is_status<cudaError_t> : std::true_type {};
template <> struct is_status<cublasStatus_t> : std::true_type {};
template <> struct is_status<cudnnStatus_t> : std::true_type {};
template <> struct is_status<nvrtcResult> : std::true_type {};
template <> struct is_status<ncclResult_t> : std::true_type {};

/* Function names as template arguments. */
#define CUDA_FUNCTION(id, function) static constexpr char NAME_##function[] = #function;
#include "kernels/cuda/api.def"

template <class F, F cuda_api::*field, Function id, const char *name> struct EntryPoint;
template <class R, class... A, R (*cuda_api::*field)(A...), Function id, const char *name>
struct EntryPoint<R (*)(A...), field, id, name> {
    static R call(A... a)
    {
        if constexpr (is_status<R>::value)
            if (!is_question(id)) return pass<R, A...>(id, name, double_inner.*field, a...);
        return ask<R, A...>(name, double_inner.*field, a...);
    }
};

struct Entry {
    cuda_library library;
    const char *name;
    size_t offset; /* in cuda_api */
    void (*entry_point)(void);
};

static const Entry entries[] = {
#define CUDA_FUNCTION(id, function)                                                                                    \
    {CUDA_##id, #function, offsetof(cuda_api, function),                                                               \
     reinterpret_cast<void (*)(void)>(                                                                                 \
         &EntryPoint<decltype(cuda_api::function), &cuda_api::function, ID_##function, NAME_##function>::call)},
#include "kernels/cuda/api.def"
};

void rt::yield()
{
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.lock();
}

/* ---- the provider ---------------------------------------------------------------------------- */

static const double_library *library_of(cuda_library library)
{
    switch (library) {
    case CUDA_RT: return &double_rt;
    case CUDA_LT: return &double_lt;
    case CUDA_DNN: return &double_dnn;
    case CUDA_RTC: return &double_rtc;
    case CUDA_NCCL: return double_has_nccl() ? &double_nccl_library : nullptr;
    default: return nullptr;
    }
}

static void *find(const double_library *from, void *real, cuda_library library, const char *name)
{
    for (const double_function *f = from->functions; f->name; f++)
        if (strcmp(f->name, name) == 0) return reinterpret_cast<void *>(f->function);
    return real ? cuda_system.symbol(real, library, name) : nullptr;
}

static void configure();

static void *open_double(cuda_library library, char *error, size_t error_size)
{
    const double_library *from = library_of(library);
    void *real = nullptr;
    configure();
    if (!from) {
        snprintf(error, error_size, "this program has no double of that library");
        return nullptr;
    }
    if (from->real && !(real = cuda_system.open(library, error, error_size))) return nullptr;
    for (const Entry &entry : entries)
        if (entry.library == library) {
            void *function = find(from, real, library, entry.name);
            memcpy(reinterpret_cast<char *>(&double_inner) + entry.offset, &function, sizeof function);
        }
    return const_cast<double_library *>(from);
}

static void *entry_point_of(void *, cuda_library, const char *name)
{
    for (const Entry &entry : entries) {
        void *target;
        memcpy(&target, reinterpret_cast<char *>(&double_inner) + entry.offset, sizeof target);
        if (strcmp(entry.name, name) == 0 && target) return reinterpret_cast<void *>(entry.entry_point);
    }
    return nullptr;
}

extern "C" const cuda_provider double_provider = {open_double, entry_point_of};

/* ---- interface for tests ------------------------------------------------------------------------ */

void double_fail(long n)
{
    calls_to_failure = n;
    thread_to_fail = std::this_thread::get_id();
    failed = nullptr;
}
const char *double_failed(void) { return failed; }
const char *double_reason(void) { return reason.c_str(); }
void double_note(const char *text) { note = text; }

void double_refuse(const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    reason = text;
}

void double_mark(void)
{
    counts.clear();
    calls = 0;
}

long double_count(const char *what)
{
    if (strcmp(what, "*") == 0) return calls;
    auto found = counts.find(what);
    return found == counts.end() ? 0 : found->second;
}

static void close_trace()
{
    char left[256];
    if (!trace) return;
    fprintf(trace, "calls %ld\n", calls);
    if (double_live(left, sizeof left)) fprintf(trace, "left %s\n", left);
    fclose(trace);
    trace = nullptr;
}

void double_trace(const char *path)
{
    close_trace();
    if (!path) return;
    trace = fopen(path, "w");
    if (!trace) {
        perror(path);
        abort();
    }
}

static long setting(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

/* Reads the environment once. This cannot happen before main, because the double's static objects are constructed in unspecified
 * order. */
static void configure()
{
    static bool is_done;
    if (is_done) return;
    is_done = true;
    const char *mode = getenv("AMPC_DOUBLE_MODE");
    const bool is_lazy = mode && strcmp(mode, "lazy") == 0, is_seed = mode && *mode >= '0' && *mode <= '9';
    double_mode(is_lazy ? static_cast<long>(DOUBLE_LAZY) : is_seed ? atol(mode) : static_cast<long>(DOUBLE_EAGER));
    double_fail(setting("AMPC_DOUBLE_FAIL", 0));
    const char *to_fault = getenv("AMPC_DOUBLE_FAULT");
    if (to_fault && *to_fault >= '0' && *to_fault <= '9') double_fault(atol(to_fault));
    else double_fault_kernel(to_fault ? to_fault : "");
    double_driver(static_cast<int>(setting("AMPC_DOUBLE_DRIVER", 0)));
    if (long bytes = setting("AMPC_DOUBLE_MEMORY", 0)) double_memory(static_cast<size_t>(bytes));
    double_trace(getenv("AMPC_DOUBLE_TRACE"));
    atexit(close_trace);
}

void double_install(void)
{
    configure();
    cuda_api_provide(&double_provider);
}
