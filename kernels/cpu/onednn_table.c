/* onednn_table.c - the functions that both versions of oneDNN have. */
#include "kernels/cpu/onednn_version.h"

#include <dlfcn.h>
#include <string.h>

cpu_dnnl_table cpu_dnnl;
dnnl_engine_t cpu_dnnl_engine;

const char *cpu_dnnl_load(void *library)
{
    void *symbol;
#define FUNCTION(result, name, types) \
    symbol = dlsym(library, "dnnl_" #name); \
    if (!symbol) return "dnnl_" #name; \
    memcpy(&cpu_dnnl.name, &symbol, sizeof symbol);
#include "kernels/cpu/onednn.def"
    return NULL;
}
