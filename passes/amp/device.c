/* device.c - the built-in device descriptions, and the keys of description files: the rows of `keys`. The default
 * description supplies those that are missing. */
#include "passes/amp/device.h"

#include "ir/ops/number.h"
#include "passes/amp/description.h"

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

/* Only the launch of a cast costs time, and every 64 KiB of a second copy costs as much. */
const ir_device device_casts = {
    .name = "casts", .text = "no device: counts casts",
    .measure = DEVICE_TIME, .bandwidth = 1e30, .launch = 1e-12, .storage = 1e18 / 65536, .symbol = 1,
    .flops = {[IR_f64] = 1e60, [IR_f32] = 1e60, [IR_f16] = 1e60, [IR_bf16] = 1e60}};

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

static bool set_measure(ir_device *device, const char *value)
{
    bool time = strcmp(value, "time") == 0;
    device->measure = time ? DEVICE_TIME : DEVICE_CAST_BYTES;
    return time || strcmp(value, "cast-bytes") == 0;
}

static bool set_key(void *user, const char *key, const char *value, int line)
{
    ir_device *device = user;
    double number;
    (void)line;
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
    return description_read(name, NULL, &(description){"device", set_key, device}, d);
}
