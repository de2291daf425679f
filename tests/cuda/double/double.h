/* double.h - a CUDA installation without a device, for tests: what a test may ask of it, and what the doubles of the
 * libraries ask of each other.
 *
 * The double stands behind the table of functions (kernels/cuda/api.h) as one more provider. Its runtime works like a
 * device that is as late as the rules allow: nothing asynchronous has happened when a call returns, streams advance in
 * an order that only events and synchronisation decide, and device memory is closed to the host except while device
 * work runs. What the double does not know it refuses, and says so; it never guesses. Where our own rules are stricter
 * than CUDA's (no default stream, pinned memory for copies of a graph, no allocation and no first launch of a kernel
 * while capturing), the double enforces ours. */
#ifndef TESTS_CUDA_DOUBLE_H
#define TESTS_CUDA_DOUBLE_H

#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- for tests ---- */

/* Becomes the provider. Reads the environment:
 *   AMPC_DOUBLE_MODE=eager|lazy|SEED   as double_mode          AMPC_DOUBLE_FAIL=N      as double_fail
 *   AMPC_DOUBLE_TRACE=FILE             as double_trace         AMPC_DOUBLE_MEMORY=N    as double_memory
 *   AMPC_DOUBLE_DRIVER=ERROR           as double_driver        AMPC_DOUBLE_FAULT=N     as double_fault
 *   AMPC_DOUBLE_FAULT=KERNEL           as double_fault_kernel */
void double_install(void);
/* Forgets all objects, pending work, faults and failures; every handle and device pointer becomes invalid. */
void double_reset(void);

/* When device work runs: at once, only when something waits for it, or at times chosen by a seed (>= 0). */
enum { DOUBLE_EAGER = -2, DOUBLE_LAZY = -1 };
void double_mode(long mode);
/* The n-th call from now that returns a status fails (0: none does). A call that gives something back does so and then
 * reports the failure. */
void double_fail(long n);
const char *double_failed(void); /* the function that was made to fail; NULL: none so far */
/* The n-th operation on the device from now faults: everything afterwards reports it (0: none does). */
void double_fault(long n);
void double_fault_kernel(const char *name); /* each launch of this kernel faults ("": of none) */
void double_memory(size_t bytes); /* the device's memory */
void double_driver(int error);    /* what cudaGetDeviceCount reports; 0: one device */
/* Refuses the i-th algorithm of the heuristics of cuBLASLt, for each bit i, as not supported: when it is checked, and
 * when it is to run. */
void double_refuse_algorithms(unsigned checked, unsigned run);

/* Calls since the last mark. `what`: a function, a function with its note as traces show it ("cudaMemcpyAsync D2H"),
 * or "*" for all that return a status. */
void double_mark(void);
long double_count(const char *what);
/* One line for each call: NAME [NOTE] -> STATUS [WHY]. At the end of the program the number of calls (as double_fail
 * counts) and what was not given back. NULL: none. */
void double_trace(const char *path);
/* Objects and memory that exist; `text` (may be NULL) gets their kinds. */
int double_live(char *text, size_t size);
/* Why a call was last refused. */
const char *double_reason(void);

/* ---- for the doubles of libraries ---- */

typedef struct double_function {
    const char *name;
    void (*function)(void); /* in truth of the function's own type */
} double_function;

/* A library: the functions of its own; `real`: the others are those of the installed library, else there are none. */
typedef struct double_library {
    bool real;
    const double_function *functions; /* ends with a row without name */
} double_library;

extern const double_library double_rt;
extern const double_library double_lt;
extern const double_library double_dnn __attribute__((weak)); /* absent: there is no such library */
extern const double_library double_rtc __attribute__((weak));

/* Enqueues work of a library, or records it where the stream is capturing: `run` is called each time the work runs,
 * with device memory open; `release` once when it can run no more. `what` must be a literal. A failure of `run` is a
 * fault of the device. */
cudaError_t double_enqueue(cudaStream_t stream, const char *what, cudaError_t (*run)(void *state), void *state,
                           void (*release)(void *state));
/* What the double of NVRTC has to do where code is loaded; false: it is not code. */
bool double_load_code(const void *code);
/* Whether all these bytes lie in one allocation on the device. */
bool double_on_device(const void *p, size_t bytes);
/* Handles of a library: entered while they exist, for double_live and against stale ones. `kind` is a literal. */
void double_enter(void *handle, const char *kind);
void double_leave(void *handle);
bool double_known(void *handle, const char *kind);
/* Says in traces what a call is about (a literal), and why it was refused. */
void double_note(const char *note);
void double_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

#ifdef __cplusplus
}
#endif
#endif
