/* device_file.c - reads and checks the description of a device (see device_file.h). */
#include "runtime/session/device_file.h"
#include "ir/base/input_file.h"
#include "runtime/files/json.h"
#include "runtime/backend/memory.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 20 };

/* The properties that cuDNN requires. */
static const struct property {
    const char *name;
    enum { NUMBER, POSITIVE, NUMBERS, WORDS } kind; /* NUMBERS: three integers */
} properties[] = {
    {"cudaDeviceId", NUMBER},
    {"deviceName", WORDS},
    {"deviceVer", POSITIVE},
    {"driverVer", NUMBER},
    {"isTccDriver", NUMBER},
    {"l2CacheSize", NUMBER},
    {"maxBlockSize", NUMBERS},
    {"maxCtasPerSM", POSITIVE},
    {"maxGridSize", NUMBERS},
    {"maxRegistersPerSM", POSITIVE},
    {"maxSharedMemoryPerBlock", POSITIVE},
    {"maxSharedMemoryPerBlockOptin", POSITIVE},
    {"maxThreadsPerBlock", POSITIVE},
    {"maxThreadsPerSM", POSITIVE},
    {"memClockRateKHz", NUMBER},
    {"multiProcessorCount", POSITIVE},
    {"pciDeviceId", NUMBER},
    {"regsPerBlock", POSITIVE},
    {"reservedSharedMemoryPerBlock", NUMBER},
    {"smClockRateKHz", NUMBER},
    {"supportCoopLaunch", NUMBER},
    {"totalGlobalMem", POSITIVE},
    {"warpSize", POSITIVE},
};

static bool is_numbers(const json_t *v)
{
    if (!json_is_array(v) || json_array_size(v) != 3) return false;
    for (size_t i = 0; i < 3; i++)
        if (!json_is_integer(json_array_get(v, i))) return false;
    return true;
}

/* Returns what the value should be; NULL: it is valid. */
static const char *expected_value(const struct property *p, const json_t *v)
{
    switch (p->kind) {
    case NUMBER: return json_is_integer(v) ? NULL : "an integer";
    case POSITIVE: return json_is_integer(v) && json_integer_value(v) > 0 ? NULL : "a positive integer";
    case NUMBERS: return is_numbers(v) ? NULL : "a list of three integers";
    case WORDS: return json_is_string(v) ? NULL : "a string";
    }
    return NULL;
}

static ampc_status check_properties(const json_t *root, const char *path, diag *d)
{
    if (!json_is_object(root))
        return diag_error(d, AMPC_REJECTED, DIAG_FILE(path), "not a device description: no JSON object");
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++) {
        const char *name = properties[i].name;
        const json_t *v = json_object_get(root, name);
        if (!v)
            return diag_error(d, AMPC_REJECTED, DIAG_FILE(path),
                              "not a device description: the property '%s' is missing", name);
        const char *expected = expected_value(&properties[i], v);
        if (expected)
            return diag_error(d, AMPC_REJECTED, DIAG_FILE(path), "the property '%s' must be %s", name, expected);
    }
    return AMPC_OK;
}

static ampc_status parse(rt_device_file *f, const char *path, diag *d)
{
    json_error_t e;
    json_t *root;
    ampc_status parsed = rt_json_parse(f->text, strlen(f->text), false, &e, &root);
    if (parsed == AMPC_NO_MEMORY) return rt_no_memory(d);
    if (parsed != AMPC_OK)
        return diag_error(d, parsed, (diag_loc){.file = path, .line = e.line, .column = e.column},
                          "not a device description: %s", e.text);
    ampc_status status = check_properties(root, path, d);
    const json_int_t n = json_integer_value(json_object_get(root, "multiProcessorCount"));
    f->multiprocessors = n < INT_MAX ? (int)n : INT_MAX;
    json_decref(root);
    return status;
}

ampc_status rt_device_file_read(const char *path, diag *d, rt_device_file *out)
{
    *out = (rt_device_file){0};
    size_t n;
    TRY(input_read(path, MAX_BYTES, "not a device description: 1 MiB or more", d, &out->text, &n));
    return parse(out, path, d);
}

void rt_device_file_clear(rt_device_file *f)
{
    free(f->text);
    f->text = NULL;
}
