/* api.c - loads CUDA libraries, fills the function table and checks what was loaded.
 *
 * A library is open if it has all functions, its major version equals that of the headers and, for the runtime, there
 * is a device. Failures are not cached: the next call tries again. */
#include "kernels/cuda/api.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define TEXT(name) #name
/* Expands macros first, because headers map some names to the versioned names that the library exports. */
#define EXPANDED(name) TEXT(name)

cuda_api cuda;

/* The major version that each library reports; 0 if it reports none. */
static int version_RT(void)
{
    int version = 0;
    return cuda.cudaRuntimeGetVersion(&version) == cudaSuccess ? version / 1000 : 0;
}

static int version_LT(void) { return (int)(cuda.cublasLtGetVersion() / 10000); }

static int version_DNN(void) { return (int)(cuda.cudnnGetVersion() / 10000); }

static int version_RTC(void)
{
    int major = 0, minor = 0;
    return cuda.nvrtcVersion(&major, &minor) == NVRTC_SUCCESS ? major : 0;
}

static int version_NCCL(void)
{
    int version = 0;
    if (cuda.ncclGetVersion(&version) != ncclSuccess) return 0;
    return version < 10000 ? version / 1000 : version / 10000;
}

static const struct library_info {
    const char *title;
    int major;            /* of the headers */
    int (*version)(void); /* of the loaded library */
} libraries[] = {
#define CUDA_LIBRARY(id, name, major, title) {title, major, version_##id},
#include "kernels/cuda/api.def"
};

static const struct function_info {
    cuda_library library;
    const char *name;
    size_t offset;
} functions[] = {
#define CUDA_FUNCTION(id, function) {CUDA_##id, EXPANDED(function), offsetof(cuda_api, function)},
#include "kernels/cuda/api.def"
};

static const cuda_provider *provider = &cuda_system;
static bool is_open[CUDA_LIBRARIES];
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

bool cuda_error_is_absence(cudaError_t e)
{
    return e == cudaErrorStubLibrary || e == cudaErrorInsufficientDriver || e == cudaErrorNoDevice;
}

static ampc_status load_functions(cuda_library library, char *error, size_t error_size)
{
    void *handle = provider->open(library, error, error_size);
    if (!handle) return AMPC_DEVICE;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        const struct function_info *f = &functions[i];
        if (f->library != library) continue;
        void *symbol = provider->symbol(handle, library, f->name);
        if (!symbol) {
            snprintf(error, error_size, "%s is older than this program: it has no %s", libraries[library].title,
                     f->name);
            return AMPC_DEVICE;
        }
        memcpy((char *)&cuda + f->offset, &symbol, sizeof symbol);
    }
    return AMPC_OK;
}

static ampc_status check_version(cuda_library library, char *error, size_t error_size)
{
    int major = libraries[library].version(), required = libraries[library].major;
    if (major == required) return AMPC_OK;
    snprintf(error, error_size, "%s of version %d cannot be used: this program was built for version %d",
             libraries[library].title, major, required);
    return AMPC_DEVICE;
}

static const char *absence(cudaError_t e, int driver)
{
    if (e == cudaErrorStubLibrary) return "the CUDA driver that was found is only a stub for linking";
    if (e == cudaErrorNoDevice) return "no CUDA device is visible";
    return driver ? "the CUDA driver is older than the CUDA runtime needs" : "there is no CUDA driver on this machine";
}

static ampc_status check_device(char *error, size_t error_size)
{
    int count = 0, driver = 0;
    cudaError_t e = cuda.cudaGetDeviceCount(&count);
    if (!e && count > 0) return AMPC_OK;
    if (!e) e = cudaErrorNoDevice;
    if (cuda.cudaDriverGetVersion(&driver)) driver = 0;
    const char *name = cuda.cudaGetErrorName(e);
    if (cuda_error_is_absence(e)) snprintf(error, error_size, "%s (error %d, %s)", absence(e, driver), (int)e, name);
    else
        snprintf(error, error_size, "the CUDA runtime cannot count its devices: %s (error %d, %s)",
                 cuda.cudaGetErrorString(e), (int)e, name);
    return AMPC_DEVICE;
}

static ampc_status open_library(cuda_library library, char *error, size_t error_size)
{
    ampc_status status = load_functions(library, error, error_size);
    if (!status) status = check_version(library, error, error_size);
    if (!status && library == CUDA_RT) status = check_device(error, error_size);
    return status;
}

ampc_status cuda_api_open(cuda_library library, char *error, size_t error_size)
{
    pthread_mutex_lock(&open_lock);
    ampc_status status = is_open[library] ? AMPC_OK : open_library(library, error, error_size);
    is_open[library] = status == AMPC_OK;
    pthread_mutex_unlock(&open_lock);
    return status;
}

void cuda_api_provide(const cuda_provider *from)
{
    pthread_mutex_lock(&open_lock);
    provider = from ? from : &cuda_system;
    memset(is_open, 0, sizeof is_open);
    memset(&cuda, 0, sizeof cuda);
    pthread_mutex_unlock(&open_lock);
}
