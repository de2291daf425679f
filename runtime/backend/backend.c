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

bool rt_device_pads(const char *device)
{
    int index;
    const rt_backend *b = rt_backend_find(device ? device : "cpu", &index);
    if (!b) b = rt_backend_describable();
    return b && b->pads;
}

/* Opens what the backend of the CPU needs to know its instructions. *out is NULL if the device is not a CPU. */
static ampc_status open_cpu(const char *device, diag *d, const rt_backend **out)
{
    char text[256] = "";
    k_context ctx = {.error = text, .error_size = sizeof text, .threads = 1};
    int index;
    const rt_backend *b = rt_backend_find(device ? device : "cpu", &index);
    *out = NULL;
    if (!b || !b->computes) return AMPC_OK;
    const ampc_status status = b->open(&ctx, index);
    if (status == AMPC_NO_MEMORY) return diag_error(d, status, DIAG_FILE(b->name), "out of memory");
    if (status != AMPC_OK) return diag_error(d, status, DIAG_FILE(b->name), "%s", text);
    b->close(&ctx);
    *out = b;
    return AMPC_OK;
}

static const double WORTH = 1.2; /* a type is chosen or recommended if it is so many times as fast */

ampc_status rt_device_low_type(const char *device, diag *d, ir_dtype *out, double *times)
{
    const rt_backend *cpu;
    *out = IR_NO_DTYPE;
    *times = 0;
    TRY(open_cpu(device, d, &cpu));
    if (!cpu) *out = IR_f16;
    if (!cpu || !cpu->computes(IR_bf16)) return AMPC_OK;
    *times = cpu->speed(IR_bf16);
    if (*times == 0 || *times >= WORTH) *out = IR_bf16; /* 0: it could not be measured */
    return AMPC_OK;
}

ampc_status rt_device_faster_type(const char *device, ir_dtype t, diag *d, ir_dtype *out, double *times)
{
    static const ir_dtype types[] = {IR_f32, IR_bf16, IR_f16};
    const rt_backend *cpu;
    *out = IR_NO_DTYPE;
    TRY(open_cpu(device, d, &cpu));
    const double own = cpu && cpu->speed ? cpu->speed(t) : 0;
    double best = own;
    for (size_t i = 0; own > 0 && i < sizeof types / sizeof *types; i++) {
        if (cpu->speed(types[i]) < WORTH * best) continue;
        best = cpu->speed(types[i]);
        *out = types[i];
    }
    *times = own > 0 ? best / own : 0;
    return AMPC_OK;
}
