/* libcuda.c - a driver that is asked and never works: what the engines of cuDNN that are compiled at run time want to
 * find before they let themselves be planned. It says that there is one device and that code can be loaded; every
 * other call is refused. */
enum { SUCCESS = 0, NOT_SUPPORTED = 801, CUDA_13 = 13000 };

static int something; /* what handles point to */

int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuDeviceGetCount(int *count);
int cuLibraryLoadData(void **library);
int cuLibraryGetKernel(void **kernel);
int cuLibraryUnload(void *library);

int cuInit(unsigned flags)
{
    (void)flags;
    return SUCCESS;
}

int cuDriverGetVersion(int *version)
{
    *version = CUDA_13;
    return SUCCESS;
}

int cuDeviceGetCount(int *count)
{
    *count = 1;
    return SUCCESS;
}

int cuLibraryLoadData(void **library)
{
    *library = &something;
    return SUCCESS;
}

int cuLibraryGetKernel(void **kernel)
{
    *kernel = &something;
    return SUCCESS;
}

int cuLibraryUnload(void *library)
{
    (void)library;
    return SUCCESS;
}

/* Looked for, and not to be called. */
#define REFUSED(name)                                                                                        \
    int name(void);                                                                                          \
    int name(void)                                                                                           \
    {                                                                                                        \
        return NOT_SUPPORTED;                                                                                \
    }
REFUSED(cuGetExportTable)
REFUSED(cuGetErrorName)
REFUSED(cuGetErrorString)
REFUSED(cuCtxGetCurrent)
REFUSED(cuCtxGetLimit)
REFUSED(cuCtxPopCurrent)
REFUSED(cuCtxPushCurrent)
REFUSED(cuStreamGetCtx)
REFUSED(cuLinkCreate)
REFUSED(cuLinkAddData)
REFUSED(cuLinkComplete)
REFUSED(cuLinkDestroy)
REFUSED(cuLaunchKernel)
REFUSED(cuLaunchCooperativeKernel)
REFUSED(cuLaunchKernelEx)
REFUSED(cuDeviceGet)
REFUSED(cuLibraryLoadFromFile)
REFUSED(cuKernelSetAttribute)
REFUSED(cuKernelGetAttribute)
REFUSED(cuOccupancyMaxPotentialClusterSize)
