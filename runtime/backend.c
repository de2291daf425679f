/* backend.c - devices by name. */
#include "runtime/backend.h"

#include <string.h>

static const rt_backend *const backends[] = {
#define LISTED(name) &rt_backend_##name,
    RT_BACKEND_MAP(LISTED)
#undef LISTED
};

const rt_backend *rt_backend_find(const char *name)
{
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (strcmp(backends[i]->name, name) == 0) return backends[i];
    return NULL;
}
