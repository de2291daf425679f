/* cudasim_host.h - the execution model as its users see it: kernels by name, launches, options.
 *
 * The kernels of a program are those of the .cu files linked into it (each AMPC_KERNEL registers one). A launch runs
 * the whole grid on the calling thread before it returns; launches of several threads wait for each other. Texts
 * that are returned stay valid until the calling thread's next call. */
#ifndef CUDASIM_HOST_H
#define CUDASIM_HOST_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cudasim_kernel cudasim_kernel;
typedef struct cudasim_shape { /* the bytes of CUDA's dim3 */
    unsigned x, y, z;
} cudasim_shape;

/* NULL when no .cu file of this program has it. Of equal names (modules opened later) the newest is found. At its first
 * call it opens the shared object CUDASIM_MODULE of the environment, whose kernels so take the place of the program's. */
const cudasim_kernel *cudasim_find(const char *name);
/* All kernels, newest first: NULL begins, NULL ends. */
const cudasim_kernel *cudasim_next(const cudasim_kernel *previous);

const char *cudasim_name(const cudasim_kernel *kernel);
const char *cudasim_file(const cudasim_kernel *kernel); /* the .cu file, as the compiler was told */
int cudasim_argument_count(const cudasim_kernel *kernel);
size_t cudasim_argument_size(const cudasim_kernel *kernel, int argument);
/* From __launch_bounds__; 0: the kernel has none. */
unsigned cudasim_max_threads(const cudasim_kernel *kernel);

/* What a real launch refuses at the call: shapes and sizes beyond the device's limits or the kernel's bounds. In
 * strict mode also blocks that are no multiple of a warp and kernels without bounds. NULL: nothing is wrong. */
const char *cudasim_check(const cudasim_kernel *kernel, cudasim_shape grid, cudasim_shape block, size_t shared);

/* Runs the kernel; arguments[i] points to argument_size(i) bytes. NULL, or what went wrong: a refused launch, or the
 * fault that ended the kernel (divergence, deadlock, trap) with places and threads. With CUDASIM_LOG in the environment
 * every launch is a line on stderr. */
const char *cudasim_launch(const cudasim_kernel *kernel, cudasim_shape grid, cudasim_shape block,
                           void *const *arguments, size_t shared);

/* The order of blocks, warps and lanes. Before the first call: CUDASIM_ORDER (0, 1, or 2:SEED) of the environment. */
enum { CUDASIM_ASCENDING, CUDASIM_DESCENDING, CUDASIM_SHUFFLED };
void cudasim_set_order(int order, unsigned seed);
/* Strict (the default, or CUDASIM_STRICT=0): all threads of the block reach every barrier, and all lanes of a full
 * warp every warp operation; where it is off, threads that returned are not waited for. */
void cudasim_set_strict(bool strict);

/* "plain", "asan" or "tsan": what watches the kernels of this program. */
const char *cudasim_watcher(void);

#ifdef __cplusplus
}
#endif
#endif
