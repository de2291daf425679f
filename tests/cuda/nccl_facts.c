/* nccl_facts.c - sizes, places and values of kernels/cuda/nccl.h (FACTS=nccl_facts_own) or of NCCL's own header
 * (FACTS=nccl_facts_theirs, THEIRS), which test_ranks.c compares. Every function is called, but only for its type. */
#include <cuda_runtime_api.h>

#ifdef THEIRS
#include <nccl.h>
#else
#include "kernels/cuda/nccl.h"
#endif

extern const long FACTS[64];

#define NO ((ncclComm_t)NULL)
#define PLACE(member) (long)offsetof(ncclConfig_t, member)
#define TYPE(call) (long)sizeof(call)
const long FACTS[64] = {
    NCCL_MAJOR,
    ncclSuccess,
    ncclUnhandledCudaError,
    ncclSystemError,
    ncclInternalError,
    ncclInvalidArgument,
    ncclInvalidUsage,
    ncclRemoteError,
    ncclInProgress,
    ncclSum,
    ncclMax,
    ncclFloat16,
    ncclFloat32,
    ncclBfloat16,
    (long)sizeof(ncclUniqueId),
    PLACE(magic),
    PLACE(version),
    PLACE(blocking),
    PLACE(cgaClusterSize),
    PLACE(minCTAs),
    PLACE(maxCTAs),
    PLACE(netName),
    PLACE(splitShare),
    TYPE(ncclGetVersion((int *)NULL)),
    TYPE(*ncclGetErrorString(ncclSuccess)),
    TYPE(*ncclGetLastError(NO)),
    TYPE(ncclGetUniqueId((ncclUniqueId *)NULL)),
    TYPE(ncclCommInitRankConfig((ncclComm_t *)NULL, 1, (ncclUniqueId){""}, 0, (ncclConfig_t *)NULL)),
    TYPE(ncclCommGetAsyncError(NO, (ncclResult_t *)NULL)),
    TYPE(ncclCommFinalize(NO)),
    TYPE(ncclCommDestroy(NO)),
    TYPE(ncclCommAbort(NO)),
    TYPE(ncclAllReduce(NULL, NULL, (size_t)1, ncclFloat32, ncclSum, NO, (cudaStream_t)NULL)),
    TYPE(ncclAllGather(NULL, NULL, (size_t)1, ncclFloat32, NO, (cudaStream_t)NULL)),
};
