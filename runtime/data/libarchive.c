/* libarchive.c - opens libarchive and finds its functions. */
#include "runtime/data/libarchive.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

static rt_libarchive table;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_open;

static ampc_status load(diag *d)
{
    void *library = dlopen("libarchive.so.13", RTLD_NOW | RTLD_LOCAL), *symbol;
    if (!library)
        return diag_error(d, AMPC_DEVICE, DIAG_NOWHERE, "libarchive cannot be opened (package libarchive13): %s",
                          dlerror());
#define LOAD(name) \
    symbol = dlsym(library, #name); \
    if (!symbol) return diag_error(d, AMPC_DEVICE, DIAG_NOWHERE, "libarchive.so.13 has no " #name); \
    memcpy(&table.name, &symbol, sizeof symbol);
    RT_LIBARCHIVE_MAP(LOAD)
#undef LOAD
    is_open = true;
    return AMPC_OK;
}

ampc_status rt_libarchive_open(diag *d, const rt_libarchive **out)
{
    pthread_mutex_lock(&lock);
    const ampc_status s = is_open ? AMPC_OK : load(d);
    pthread_mutex_unlock(&lock);
    if (s == AMPC_OK) *out = &table;
    return s;
}
