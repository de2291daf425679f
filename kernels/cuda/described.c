/* described.c - a device known only by a description, with everything that planning for it needs.
 *
 * The context of a described device has no stream, memory or handles. cuDNN creates plans for the description, and our
 * own kernels count as loaded. cuBLASLt answers no queries without a device, so matmul.c assumes that it has an
 * algorithm for every matmul and epilogue. The CUDA runtime is not opened.
 *
 * cuDNN looks for a driver by name. The driver embedded here (driver/libcuda.c) reports one device and rejects all
 * work. It is loaded only if the machine has no driver, so it never replaces a real one. */
#include "ir/base/write_guard.h"
#include "kernels/cuda/cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

extern const unsigned char cuda_driver_image[], cuda_driver_image_end[];

/* Once loaded, the library is found by later dlopen calls for its name. */
void cuda_open_described_driver(void)
{
    char path[64];
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) return;
    const int file = memfd_create("libcuda.so.1", MFD_CLOEXEC);
    if (file < 0) return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (write_guarded(file, cuda_driver_image, (size_t)(cuda_driver_image_end - cuda_driver_image)))
        dlopen(path, RTLD_NOW | RTLD_LOCAL);
    close(file);
}
