/* onednn_table.c - the functions that both versions of oneDNN have. */
#include "kernels/cpu/onednn_version.h"

cpu_dnnl_table cpu_dnnl;
dnnl_engine_t cpu_dnnl_engine;

const char *cpu_dnnl_load(void *library)
{
#define FUNCTION(result, name, types) CPU_DNNL_LOAD(cpu_dnnl.name, "dnnl_" #name)
#include "kernels/cpu/onednn.def"
    return NULL;
}
