/* backend.c - finds devices by name. */
#include "runtime/backend/backend.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const rt_backend *const backends[] = {
#define LISTED(name) &rt_backend_##name,
    RT_BACKEND_MAP(LISTED)
#undef LISTED
};

const char *rt_devices(void)
{
#define NAMED(name) ", " #name
    return &(RT_BACKEND_MAP(NAMED))[2];
#undef NAMED
}

static bool parse_index(const char *text, int *index)
{
    char *end;
    *index = 0;
    if (!*text) return true;
    long v = text[0] == ':' && text[1] >= '0' && text[1] <= '9' ? strtol(text + 1, &end, 10) : -1;
    if (v < 0 || v > INT_MAX || *end) return false;
    *index = (int)v;
    return true;
}

const rt_backend *rt_backend_describable(void)
{
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (backends[i]->describe) return backends[i];
    return NULL;
}

const rt_backend *rt_backend_find(const char *device, int *index)
{
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
        size_t n = strlen(backends[i]->name);
        if (strncmp(device, backends[i]->name, n) == 0 && parse_index(device + n, index)) return backends[i];
    }
    return NULL;
}
