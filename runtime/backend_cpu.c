/* backend_cpu.c - the processor as a device: the reference, and the default. */
#include "runtime/alloc.h"
#include "runtime/backend.h"

#include <string.h>

static void copy(void *dst, const void *src, size_t bytes)
{
    if (bytes) memcpy(dst, src, bytes);
}

const rt_backend rt_backend_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .kernel = cpu_kernel,
    .alloc = rt_alloc_block,
    .free = rt_free,
    .copy = copy,
    .upload = copy,
};
