/* described.c - a device that is not there, known by a description: what planning for it needs.
 *
 * A context with a description has no stream, no memory and no handles. cuDNN plans for the description. Kernels of our
 * own count as loaded. cuBLASLt answers nothing without a device, so it is assumed to have an algorithm for every
 * product and epilogue of matmul.c. The CUDA runtime is not opened.
 *
 * cuDNN looks for a driver by name. The one embedded here (driver/libcuda.c) reports a device and refuses all work. It
 * is loaded only where the machine has no driver, so that it never replaces a real one. */
#include "ir/write_guard.h"
#include "kernels/cuda/cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

extern const unsigned char cuda_driver_image[], cuda_driver_image_end[];

static bool write_image(int file)
{
    const unsigned char *at = cuda_driver_image;
    while (at < cuda_driver_image_end) {
        const write_guard guard = write_guard_begin();
        const ssize_t n = write(file, at, (size_t)(cuda_driver_image_end - at));
        write_guard_end(&guard);
        if (n <= 0) return false;
        at += n;
    }
    return true;
}

/* Later searches for the driver find the library that is loaded under its name. */
void cuda_open_described_driver(void)
{
    char path[64];
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) return;
    const int file = memfd_create("libcuda.so.1", MFD_CLOEXEC);
    if (file < 0) return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (write_image(file)) dlopen(path, RTLD_NOW | RTLD_LOCAL);
    close(file);
}
