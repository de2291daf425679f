/* device.c - the built-in device descriptions, and the reader of description files.
 *
 * A file consists of lines "KEY = VALUE" and comments that start with '#'. Keys are the rows of `keys`; the default
 * description supplies those that are missing. */
#include "passes/amp/device.h"

#include "ir/base/input_file.h"
#include "ir/ops/number.h"

#include <stdlib.h>
#include <string.h>

// clang-format off
const ir_device device_table[] = {
    {.name = "gpu", .text = "a data-centre GPU at half the rates of its data sheet",
     .measure = DEVICE_TIME, .bandwidth = 1.2e12, .launch = 2e-6, .storage = 0.01, .symbol = 16,
     .flops = {[IR_f64] = 5e12, [IR_f32] = 10e12, [IR_f16] = 120e12, [IR_bf16] = 120e12}},
    {.name = "cpu", .text = "two AVX-512 cores that multiply in f32 regardless of the type",
     .measure = DEVICE_TIME, .bandwidth = 10e9, .launch = 3e-6, .storage = 0.01, .symbol = 16,
     .flops = {[IR_f64] = 50e9, [IR_f32] = 100e9, [IR_f16] = 90e9, [IR_bf16] = 180e9}},
    {.name = "bytes", .text = "no device: counts the bytes that casts write",
     .measure = DEVICE_CAST_BYTES, .bandwidth = 1, .symbol = 1},
    {.name = NULL},
};

#define AT(member) offsetof(ir_device, member)
static const struct {
    const char *key;
    size_t offset;
    bool positive; /* whether 0 is invalid */
} keys[] = {
    {"bandwidth", AT(bandwidth), true}, {"launch", AT(launch), false},         {"storage", AT(storage), false},
    {"flops.f64", AT(flops[IR_f64]), true}, {"flops.f32", AT(flops[IR_f32]), true},
    {"flops.f16", AT(flops[IR_f16]), true}, {"flops.bf16", AT(flops[IR_bf16]), true},
};
// clang-format on

enum { LONGEST = 1 << 20 };

static char *trim(char *text)
{
    text += strspn(text, " \t\r\n");
    size_t n = strlen(text);
    while (n && strchr(" \t\r\n", text[n - 1])) text[--n] = '\0';
    return text;
}

static bool set_measure(ir_device *device, const char *value)
{
    bool time = strcmp(value, "time") == 0;
    device->measure = time ? DEVICE_TIME : DEVICE_CAST_BYTES;
    return time || strcmp(value, "cast-bytes") == 0;
}

/* Returns false if the key is unknown or the value is invalid. */
static bool set_key(ir_device *device, const char *key, const char *value)
{
    double number;
    if (strcmp(key, "measure") == 0) return set_measure(device, value);
    if (strcmp(key, "symbol") == 0)
        return ir_int_parse(value, &device->symbol) && device->symbol > 0 && device->symbol <= (int64_t)1 << 31;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strcmp(key, keys[i].key) != 0) continue;
        if (!ir_float_parse(value, &number) || !(number >= 0) || (keys[i].positive && number <= 0)) return false;
        memcpy((char *)device + keys[i].offset, &number, sizeof number);
        return true;
    }
    return false;
}

static ampc_status read_line(ir_device *device, char *line, diag_loc loc, diag *d)
{
    line[strcspn(line, "#")] = '\0';
    char *key = trim(line), *equals = strchr(key, '=');
    if (!*key) return AMPC_OK;
    if (!equals) return diag_error(d, AMPC_REJECTED, loc, "expected 'KEY = VALUE', found '%s'", key);
    *equals = '\0';
    const char *name = trim(key), *value = trim(equals + 1);
    if (set_key(device, name, value)) return AMPC_OK;
    return diag_error(d, AMPC_REJECTED, loc, "'%s = %s' is not a valid line of a device description", name, value);
}

static ampc_status read_file(const char *path, ir_device *device, diag *d)
{
    char *text, *rest, *line;
    size_t length;
    TRY(input_read(path, LONGEST, "not a device description: 1 MiB or more", d, &text, &length));
    rest = text;
    for (int number = 1; (line = strsep(&rest, "\n")); number++)
        read_line(device, line, (diag_loc){.file = path, .line = number, .column = 1}, d);
    free(text);
    return diag_status(d);
}

ampc_status device_load(const char *name, arena *a, diag *d, const ir_device **out)
{
    *out = &device_table[0];
    if (!name) return AMPC_OK;
    for (const ir_device *device = device_table; device->name; device++)
        if (strcmp(device->name, name) == 0) {
            *out = device;
            return AMPC_OK;
        }
    ir_device *device = arena_alloc(a, sizeof *device);
    *device = device_table[0];
    device->name = arena_strdup(a, name);
    *out = device;
    return read_file(name, device, d);
}
