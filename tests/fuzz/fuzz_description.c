/* fuzz_description.c - arbitrary bytes as the description of a consumer and of a device. */
#include "passes/amp/consumer.h"
#include "passes/amp/device.h"
#include "tests/fuzz/memory_file.h"

#include <setjmp.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_one(const char *path, bool is_device, arena *a, diag *d)
{
    const consumer *c;
    const ir_device *of;
    const ampc_status status = is_device ? device_load(path, a, d, &of) : consumer_load(path, a, d, &c);
    if (status != diag_status(d)) abort();
    if (!is_device && status == AMPC_OK && (!c->name || !c->text || !c->patterns)) abort();
}

static void run(const uint8_t *data, size_t size, bool is_device)
{
    memory_file file = memory_file_open(data, size);
    arena *a = arena_new(0);
    diag *d = diag_new(NULL, NULL);
    jmp_buf guard;
    if (a && d && !setjmp(guard)) {
        arena_set_guard(a, &guard);
        read_one(file.path, is_device, a, d);
    }
    diag_free(d);
    arena_free(a);
    memory_file_close(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    run(data, size, false);
    run(data, size, true);
    return 0;
}
