/* log.c - an NVTX injection library, as used by profilers (NVTX_INJECTION64_PATH names it), for tests. It appends a line to the
 * file named by AMPC_NVTX_LOG when a range starts ("range NAME") and ends ("range end"). */
#include <nvtx3/nvToolsExt.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *out;
static int depth;

static int NVTX_API push(const char *name)
{
    fprintf(out, "range %s\n", name);
    fflush(out);
    return depth++;
}

static int NVTX_API pop(void)
{
    fprintf(out, "range end\n");
    fflush(out);
    return --depth;
}

int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);
int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
    const char *path = getenv("AMPC_NVTX_LOG");
    const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned size = 0;
    if (!path || !callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size)) return 0;
    if (size <= NVTX_CBID_CORE_RangePop || !(out = fopen(path, "a"))) return 0;
    *table[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
