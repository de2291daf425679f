/* rt.cc - the runtime's double: the device, its errors, kernels and their launches (see double.h).
 *
 * Kernels run on the simulator (tests/cuda/sim). Loaded code is only checked for presence; kernels are found by name among those of
 * the program. Kernel arguments are copied at launch. */
#include "tests/cuda/double/rt.h"

#include "tests/cuda/sim/cudasim_host.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

struct CUlib_st {
    std::map<std::string, cudaKernel_t> kernels;
};

struct CUkern_st {
    const cudasim_kernel *kernel;
    bool launched = false;
    size_t most_shared = 48 << 10; /* maximum dynamic shared memory per launch */
};

namespace rt {

enum : size_t { SHARED_LIMIT = 227 << 10 };

struct Object {
    const char *kind;
    void (*drop)(void *);
};
static std::map<void *, Object> objects;
static long operations_to_fault;
static std::string kernel_to_fault;
static int driver_error;
static bool one_device;
long clock_ms;
cudaError_t fault = cudaSuccess;
static thread_local cudaError_t last_error = cudaSuccess;

void enter(void *object, const char *kind, void (*drop)(void *)) { objects[object] = {kind, drop}; }
void leave(const void *object) { objects.erase(const_cast<void *>(object)); }
bool known(const void *object, const char *kind)
{
    auto found = objects.find(const_cast<void *>(object));
    return found != objects.end() && strcmp(found->second.kind, kind) == 0;
}

cudaError_t settle(cudaError_t e)
{
    if (e && e != cudaErrorNotReady) last_error = e;
    return e;
}

cudaError_t refuse(cudaError_t e, const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    double_refuse("%s", text);
    return e;
}

cudaError_t unsafe(const char *what)
{
    bool is_capturing = false;
    for (const auto &capture : captures())
        if (capture->thread == std::this_thread::get_id()) is_capturing = capture->invalid = true;
    if (!is_capturing) return cudaSuccess;
    return refuse(cudaErrorStreamCaptureUnsupported, "%s while a stream is capturing", what);
}

void execute(const Task &task, const std::vector<void *> &touches)
{
    if (fault) return;
    clock_ms++;
    if (operations_to_fault > 0 && --operations_to_fault == 0) {
        fault = refuse(cudaErrorLaunchFailure, "this operation was told to fault");
        return;
    }
    Opened open(touches);
    fault = task();
}

static bool is_alive(cudaKernel_t kernel) { return known(kernel, "kernel"); }

static cudaError_t check_launch(cudaKernel_t kernel, dim3 grid, dim3 block, size_t shared)
{
    const char *name = cudasim_name(kernel->kernel);
    if (shared > kernel->most_shared)
        return refuse(cudaErrorInvalidValue, "%s: %zu bytes of dynamic shared memory, %zu are allowed", name, shared,
                      kernel->most_shared);
    const char *wrong = cudasim_check(kernel->kernel, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared);
    return wrong ? refuse(cudaErrorInvalidConfiguration, "%s: %s", name, wrong) : cudaSuccess;
}

/* Copies the current arguments. */
static std::shared_ptr<std::vector<std::vector<char>>> copy_arguments(const cudasim_kernel *kernel, void **arguments)
{
    auto copies = std::make_shared<std::vector<std::vector<char>>>();
    for (int i = 0; i < cudasim_argument_count(kernel); i++) {
        const char *from = static_cast<const char *>(arguments[i]);
        copies->emplace_back(from, from + cudasim_argument_size(kernel, i));
    }
    return copies;
}

static cudaError_t run_kernel(const cudasim_kernel *kernel, dim3 grid, dim3 block, size_t shared,
                              std::vector<std::vector<char>> &copies)
{
    std::vector<void *> arguments;
    if (kernel_to_fault == cudasim_name(kernel))
        return refuse(cudaErrorLaunchFailure, "%s was told to fault", cudasim_name(kernel));
    for (auto &copy : copies) arguments.push_back(copy.data());
    const char *wrong = cudasim_launch(kernel, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z},
                                       arguments.data(), shared);
    return wrong ? refuse(cudaErrorLaunchFailure, "%s: %s", cudasim_name(kernel), wrong) : cudaSuccess;
}

} // namespace rt

using namespace rt;

/* ---- interface for tests ---- */

void double_reset(void)
{
    forget_streams();
    forget_communicators();
    forget_memory();
    for (auto &entry : objects)
        if (entry.second.drop) entry.second.drop(entry.first);
    objects.clear();
    fault = last_error = cudaSuccess;
    operations_to_fault = 0;
    kernel_to_fault.clear();
    driver_error = 0;
    one_device = false;
    double_fail(0);
    double_mark();
}

void double_enter(void *handle, const char *kind) { enter(handle, kind, nullptr); }
void double_leave(void *handle) { leave(handle); }
bool double_known(void *handle, const char *kind) { return known(handle, kind); }

void double_fault(long n) { operations_to_fault = n; }
void double_fault_kernel(const char *name) { kernel_to_fault = name; }
void double_driver(int error) { driver_error = error; }
void double_one_device(bool is_one) { one_device = is_one; }

int double_live(char *text, size_t size)
{
    std::map<std::string, int> kinds;
    for (auto &entry : objects)
        if (strcmp(entry.second.kind, "kernel") != 0) kinds[entry.second.kind]++;
    std::string line;
    int total = 0;
    for (auto &kind : kinds) {
        line += (total ? ", " : "") + std::to_string(kind.second) + " " + kind.first;
        total += kind.second;
    }
    if (text) snprintf(text, size, "%s", line.c_str());
    return total;
}

namespace own {

/* ---- versions and errors ---- */

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = driver_error ? 0 : CUDART_VERSION;
    return cudaSuccess;
}

/* The errors that the double returns. */
#define ERRORS(X)                                                                                                      \
    X(cudaSuccess, "no error")                                                                                         \
    X(cudaErrorInvalidValue, "invalid argument")                                                                       \
    X(cudaErrorMemoryAllocation, "out of memory")                                                                      \
    X(cudaErrorInitializationError, "initialization error")                                                            \
    X(cudaErrorInvalidConfiguration, "invalid configuration argument")                                                 \
    X(cudaErrorStubLibrary, "CUDA driver is a stub library")                                                           \
    X(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version")                     \
    X(cudaErrorNoDevice, "no CUDA-capable device is detected")                                                         \
    X(cudaErrorInvalidDevice, "invalid device ordinal")                                                                \
    X(cudaErrorInvalidResourceHandle, "invalid resource handle")                                                       \
    X(cudaErrorInvalidKernelImage, "device kernel image is invalid")                                                   \
    X(cudaErrorSymbolNotFound, "named symbol not found")                                                               \
    X(cudaErrorNotReady, "device not ready")                                                                           \
    X(cudaErrorIllegalAddress, "an illegal memory access was encountered")                                             \
    X(cudaErrorLaunchFailure, "unspecified launch failure")                                                            \
    X(cudaErrorNotSupported, "operation not supported")                                                                \
    X(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing")                           \
    X(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture")                    \
    X(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences")                  \
    X(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began")                         \
    X(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work")                                            \
    X(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream")                      \
    X(cudaErrorStreamCaptureImplicit, "operation would make the legacy stream depend on a capturing blocking stream")  \
    X(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream")               \
    X(cudaErrorStreamCaptureWrongThread, "attempt to terminate a thread-local capture sequence from another thread")   \
    X(cudaErrorUnknown, "unknown error")

const char *cudaGetErrorName(cudaError_t e)
{
    switch (e) {
#define NAME(code, text)                                                                                               \
    case code: return #code;
        ERRORS(NAME)
#undef NAME
    default: return "an error that the double does not know";
    }
}

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
#define SENTENCE(code, text)                                                                                           \
    case code: return text;
        ERRORS(SENTENCE)
#undef SENTENCE
    default: return "an error that the double does not know";
    }
}

cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaGetLastError()
{
    cudaError_t e = last_error;
    last_error = fault;
    return e;
}

/* ---- the device ---- */

/* The digits of the devices. */
static std::string visible_devices()
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    std::string devices;
    for (const char *c = list ? list : "0"; *c; c++)
        if (*c >= '0' && *c <= '9') devices += *c;
    return devices;
}

/* Of this thread, whose devices are others than those of another thread. */
static int thread_number()
{
    static std::atomic<int> next;
    static thread_local const int number = next++;
    return number;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    const std::string visible = visible_devices();
    *count = 0;
    if (driver_error) return static_cast<cudaError_t>(driver_error);
    *count = static_cast<int>(visible.size());
    return *count ? cudaSuccess : cudaErrorNoDevice;
}

static cudaError_t check_device(int device)
{
    int count = 0;
    cudaError_t e = cudaGetDeviceCount(&count);
    return e                         ? e
           : device < 0 || device >= count ? refuse(cudaErrorInvalidDevice, "device %d of %d", device, count)
                                           : cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return check_device(0);
}

cudaError_t cudaSetDevice(int device) { return check_device(device); }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device)
{
    if (cudaError_t e = check_device(device)) return e;
    size_t available = 0;
    *properties = {};
    snprintf(properties->name, sizeof properties->name, "a double of NVIDIA H200");
    own::cudaMemGetInfo(&available, &properties->totalGlobalMem);
    const int number = one_device ? 0 : thread_number();
    properties->uuid.bytes[0] = visible_devices()[static_cast<size_t>(device)];
    memcpy(properties->uuid.bytes + 4, &number, sizeof number);
    properties->major = 9;
    properties->multiProcessorCount = 132;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->sharedMemPerBlock = 48 << 10;
    properties->sharedMemPerBlockOptin = SHARED_LIMIT;
    properties->sharedMemPerMultiprocessor = 228 << 10;
    properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
    properties->l2CacheSize = 1 << 20; /* small, because races overwrite all of it before each run */
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    cudaDeviceProp properties;
    if (cudaError_t e = own::cudaGetDeviceProperties(&properties, device)) return e;
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = properties.major; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = properties.minor; return cudaSuccess;
    case cudaDevAttrMultiProcessorCount: *value = properties.multiProcessorCount; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = SHARED_LIMIT; return cudaSuccess;
    case cudaDevAttrL2CacheSize: *value = properties.l2CacheSize; return cudaSuccess;
    default: return refuse(cudaErrorNotSupported, "the double does not know device attribute %d", attribute);
    }
}

cudaError_t cudaDeviceSynchronize()
{
    if (cudaError_t e = unsafe("cudaDeviceSynchronize")) return e;
    wait_all();
    return fault;
}

/* ---- kernels ---- */

cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code, cudaJitOption *, void **, unsigned jit_options,
                                cudaLibraryOption *, void **, unsigned options)
{
    if (cudaError_t e = unsafe("cudaLibraryLoadData")) return e;
    if (!code) return refuse(cudaErrorInvalidValue, "no code");
    if (!double_load_code(code)) return cudaErrorInvalidKernelImage;
    if (jit_options || options) return refuse(cudaErrorNotSupported, "the double knows no options of libraries");
    *library = new CUlib_st;
    enter(*library, "library", drop_as<CUlib_st>);
    return cudaSuccess;
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library)
{
    if (!known(library, "library")) return refuse(cudaErrorInvalidResourceHandle, "no such library");
    if (cudaError_t e = unsafe("cudaLibraryUnload")) return e;
    for (auto &entry : library->kernels) {
        leave(entry.second);
        delete entry.second;
    }
    leave(library);
    delete library;
    return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *out, cudaLibrary_t library, const char *name)
{
    if (!known(library, "library")) return refuse(cudaErrorInvalidResourceHandle, "no such library");
    cudaKernel_t &kernel = library->kernels[name];
    if (!kernel) {
        const cudasim_kernel *found = cudasim_find(name);
        if (!found) {
            library->kernels.erase(name);
            return refuse(cudaErrorSymbolNotFound, "no kernel %s in this program", name);
        }
        kernel = new CUkern_st{found};
        enter(kernel, "kernel", drop_as<CUkern_st>);
    }
    *out = kernel;
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *function)
{
    auto kernel = static_cast<cudaKernel_t>(const_cast<void *>(function));
    if (!is_alive(kernel)) return refuse(cudaErrorInvalidResourceHandle, "no such kernel");
    unsigned most = cudasim_max_threads(kernel->kernel);
    *attributes = {};
    attributes->maxThreadsPerBlock = static_cast<int>(most ? most : 1024);
    attributes->maxDynamicSharedSizeBytes = static_cast<int>(kernel->most_shared);
    attributes->binaryVersion = attributes->ptxVersion = 90;
    return cudaSuccess;
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute attribute, int value, int device)
{
    if (!is_alive(kernel)) return refuse(cudaErrorInvalidResourceHandle, "no such kernel");
    if (cudaError_t e = check_device(device)) return e;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return refuse(cudaErrorNotSupported, "the double does not know kernel attribute %d", attribute);
    if (value < 0 || static_cast<size_t>(value) > SHARED_LIMIT)
        return refuse(cudaErrorInvalidValue, "%d bytes of dynamic shared memory", value);
    kernel->most_shared = static_cast<size_t>(value);
    return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                             cudaStream_t stream)
{
    auto kernel = static_cast<cudaKernel_t>(const_cast<void *>(function));
    if (cudaError_t e = check_stream(stream)) return e;
    if (!is_alive(kernel)) return refuse(cudaErrorInvalidResourceHandle, "no such kernel");
    double_note(cudasim_name(kernel->kernel));
    if (cudaError_t e = check_launch(kernel, grid, block, shared)) return e;
    if (stream->capture && !kernel->launched)
        return invalidate(*stream->capture, refuse(cudaErrorStreamCaptureUnsupported,
                                                   "the first launch of %s, which loads it, while capturing",
                                                   cudasim_name(kernel->kernel)));
    kernel->launched = true;
    const cudasim_kernel *code = kernel->kernel;
    auto copies = copy_arguments(code, arguments);
    return submit(stream, cudasim_name(code),
                  [=] { return run_kernel(code, grid, block, shared, *copies); });
}

} // namespace own

static const double_function functions[] = {
#define OWN_RT(function) {#function, reinterpret_cast<void (*)(void)>(&own::function)},
#define CUDA_FUNCTION(id, function) OWN_##id(function)
#include "kernels/cuda/api.def"
    {nullptr, nullptr}};

const double_library double_rt = {false, functions};
