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

/* Opens what the backend of the CPU needs to know its instructions; NULL: it is not a CPU, or cannot be opened. */
static const rt_backend *opened_cpu(const char *device)
{
    char text[256];
    k_context ctx = {.error = text, .error_size = sizeof text, .threads = 1};
    int index;
    const rt_backend *b = rt_backend_find(device ? device : "cpu", &index);
    if (!b || !b->computes || b->open(&ctx, index) != AMPC_OK) return NULL;
    b->close(&ctx);
    return b;
}

ir_dtype rt_device_low_type(const char *device)
{
    const rt_backend *cpu = opened_cpu(device);
    if (!cpu) return IR_f16;
    return cpu->computes(IR_bf16) ? IR_bf16 : IR_NO_DTYPE;
}

ir_dtype rt_device_faster_type(const char *device, ir_dtype t, double *times)
{
    static const double WORTH = 1.2;
    static const ir_dtype types[] = {IR_f32, IR_bf16, IR_f16};
    const rt_backend *cpu = opened_cpu(device);
    const double own = cpu && cpu->speed ? cpu->speed(t) : 0;
    ir_dtype best = IR_NO_DTYPE;
    *times = WORTH;
    for (size_t i = 0; own > 0 && i < sizeof types / sizeof *types; i++) {
        if (cpu->speed(types[i]) < *times * own) continue;
        *times = cpu->speed(types[i]) / own;
        best = types[i];
    }
    return best;
}
