/* cudasim_host.h - host interface of the simulator: finding kernels by name, launches, options.
 *
 * The kernels of a program are those of the .cu files linked into it (each AMPC_KERNEL registers one). A launch runs the whole grid
 * on the calling thread before it returns; concurrent launches are serialised. Returned texts stay valid until the calling thread's
 * next call. */
#ifndef CUDASIM_HOST_H
#define CUDASIM_HOST_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cudasim_kernel cudasim_kernel;
typedef struct cudasim_shape { /* same layout as CUDA's dim3 */
    unsigned x, y, z;
} cudasim_shape;

/* Finds a kernel; NULL if no .cu file of this program has it. If several modules define it, the newest wins. The first call loads
 * the shared object named by the environment variable CUDASIM_MODULE, whose kernels thus override those of the program. */
const cudasim_kernel *cudasim_find(const char *name);
/* Iterates over all kernels, newest first; starts and ends with NULL. */
const cudasim_kernel *cudasim_next(const cudasim_kernel *previous);

const char *cudasim_name(const cudasim_kernel *kernel);
const char *cudasim_file(const cudasim_kernel *kernel); /* the .cu file, as passed to the compiler */
int cudasim_argument_count(const cudasim_kernel *kernel);
size_t cudasim_argument_size(const cudasim_kernel *kernel, int argument);
/* From __launch_bounds__; 0 if the kernel has none. */
unsigned cudasim_max_threads(const cudasim_kernel *kernel);

/* Returns why a real launch would fail at the call: shapes and sizes beyond the device's limits or the kernel's bounds; in strict
 * mode also block sizes that are not a multiple of a warp, and kernels without bounds. NULL if the launch is valid. */
const char *cudasim_check(const cudasim_kernel *kernel, cudasim_shape grid, cudasim_shape block, size_t shared);

/* Runs the kernel; arguments[i] points to argument_size(i) bytes. Returns NULL or an error: a rejected launch, or the fault that
 * ended the kernel (divergence, deadlock, trap) with places and threads. If CUDASIM_LOG is set in the environment, prints a line
 * per launch to stderr. */
const char *cudasim_launch(const cudasim_kernel *kernel, cudasim_shape grid, cudasim_shape block,
                           void *const *arguments, size_t shared);

/* The order of blocks, warps and lanes. The default is CUDASIM_ORDER (0, 1, or 2:SEED) from the environment. */
enum { CUDASIM_ASCENDING, CUDASIM_DESCENDING, CUDASIM_SHUFFLED };
void cudasim_set_order(int order, unsigned seed);
/* Strict mode (the default unless CUDASIM_STRICT=0): all threads of the block must reach every barrier, and all lanes of a full
 * warp every warp operation. Otherwise threads that returned are ignored. */
void cudasim_set_strict(bool strict);

/* The sanitizer that checks the kernels of this program: "plain" (none), "asan" or "tsan". */
const char *cudasim_watcher(void);

#ifdef __cplusplus
}
#endif
#endif
