/* libcuda.c - a substitute CUDA driver for machines without one. cuDNN's engines that are compiled at run time need a
 * driver to be planned. It reports one device and accepts code; all other calls fail. */
enum { SUCCESS = 0, NOT_SUPPORTED = 801, CUDA_13 = 13000 };

static int something; /* target of all handles */

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

/* Functions that must exist but are never called. */
#define REFUSED(name) \
    int name(void); \
    int name(void) { return NOT_SUPPORTED; }
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
