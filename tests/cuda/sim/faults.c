/* faults.c - runs one kernel of faults.cu under the sanitizer that this program was built with.
 *
 *   usage: PROGRAM KERNEL BLOCKS THREADS SHARED_BYTES
 *
 * The kernel's first argument is an array of positive floats, one per thread of the grid; its other arguments are zeroed arrays of
 * the same size. Exits with 3 if the simulator reports a fault, else 0; a sanitizer exits with its own status. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/cuda/sim/cudasim_host.h"

int main(int argc, char **argv)
{
    enum { MAX_ARGUMENTS = 8 };
    const cudasim_kernel *kernel = argc == 5 ? cudasim_find(argv[1]) : NULL;
    if (!kernel || cudasim_argument_count(kernel) > MAX_ARGUMENTS) {
        fprintf(stderr, "usage: %s KERNEL BLOCKS THREADS SHARED_BYTES\n", argv[0]);
        return 2;
    }
    unsigned blocks = (unsigned)atoi(argv[2]), threads = (unsigned)atoi(argv[3]);
    size_t shared = (size_t)atoi(argv[4]), n = (size_t)blocks * threads;
    float *arrays[MAX_ARGUMENTS];
    void *arguments[MAX_ARGUMENTS];
    int count = cudasim_argument_count(kernel);
    for (int i = 0; i < count; i++) {
        arguments[i] = &arrays[i];
        arrays[i] = calloc(n, sizeof *arrays[i]);
    }
    for (size_t i = 0; i < n; i++) arrays[0][i] = (float)(1 + i % 5);
    const char *fault = cudasim_launch(kernel, (cudasim_shape){blocks, 1, 1}, (cudasim_shape){threads, 1, 1}, arguments,
                                       shared);
    if (fault) fprintf(stderr, "%s\n", fault);
    for (int i = 0; i < count; i++) free(arrays[i]);
    return fault ? 3 : 0;
}
