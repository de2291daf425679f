/* double.h - test doubles of the CUDA libraries, which need no device: the interface for tests, and what the doubles provide to
 * each other.
 *
 * The double is a provider of the function table (kernels/cuda/api.h). Its runtime behaves like the slowest legal device: no
 * asynchronous operation has completed when a call returns, only events and synchronisation order streams, and the host cannot
 * access device memory except while device work runs. Calls that the double does not support fail with a message; it never guesses.
 * Where our rules are stricter than CUDA's (no default stream, pinned memory for copies in graphs, no allocation and no first
 * launch of a kernel during capture), the double enforces ours. */
#ifndef TESTS_CUDA_DOUBLE_H
#define TESTS_CUDA_DOUBLE_H

#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- for tests ---- */

/* Installs the double as provider. Reads the environment:
 *   AMPC_DOUBLE_MODE=eager|lazy|SEED   as double_mode          AMPC_DOUBLE_FAIL=N      as double_fail
 *   AMPC_DOUBLE_TRACE=FILE             as double_trace         AMPC_DOUBLE_MEMORY=N    as double_memory
 *   AMPC_DOUBLE_DRIVER=ERROR           as double_driver        AMPC_DOUBLE_FAULT=N     as double_fault
 *   AMPC_DOUBLE_FAULT=KERNEL           as double_fault_kernel */
void double_install(void);
/* Discards all objects, pending work, faults and failures; all handles and device pointers become invalid. */
void double_reset(void);

/* When device work runs: immediately, only when something waits for it, or at times chosen by a seed (>= 0). */
enum { DOUBLE_EAGER = -2, DOUBLE_LAZY = -1 };
void double_mode(long mode);
/* Makes the n-th call of this thread from now that returns a status fail (0: none). A call that releases something does
 * so before it reports the failure. */
void double_fail(long n);
const char *double_failed(void); /* the function that was made to fail; NULL if none yet */
/* Makes the n-th device operation from now fault (0: none); all later calls report the fault. */
void double_fault(long n);
void double_fault_kernel(const char *name); /* every launch of this kernel faults ("": none) */
void double_memory(size_t bytes);           /* size of device memory */
void double_driver(int error);              /* status of cudaGetDeviceCount; 0: success */
void double_one_device(bool is_one);        /* threads have the same devices; else each has others */
/* Rejects algorithm i of cuBLASLt's heuristics as not supported if bit i is set: in AlgoCheck, and when run. */
void double_refuse_algorithms(unsigned checked, unsigned run);

/* Counts calls since the last mark. `what` is a function, a function with its note as shown in traces ("cudaMemcpyAsync D2H"), or
 * "*" for all calls that return a status. */
void double_mark(void);
long double_count(const char *what);
/* Writes one line per call: NAME [NOTE] -> STATUS [WHY]; and at program end the number of calls (as counted by double_fail) and all
 * leaks. NULL: no trace. */
void double_trace(const char *path);
/* Number of live objects and allocations; `text` (may be NULL) receives their kinds. */
int double_live(char *text, size_t size);
/* Why a call was last rejected. */
const char *double_reason(void);

/* NCCL: all communicators report from now on that another rank is gone; the end of a rank is hidden from the others. */
void double_break(void);
void double_silent(bool is_silent);
void double_nccl(int version); /* of the library, like 22703; 0: it is missing */

/* ---- for the library doubles ---- */

typedef struct double_function {
    const char *name;
    void (*function)(void); /* cast from the function's real type */
} double_function;

/* A library: its own functions. If `real`, the remaining functions come from the installed library, else they are missing. */
typedef struct double_library {
    bool real;
    const double_function *functions; /* terminated by a row without name */
} double_library;

extern const double_library double_rt;
extern const double_library double_lt;
extern const double_library double_nccl_library;
bool double_has_nccl(void);
extern const double_library double_dnn __attribute__((weak)); /* NULL if the library is missing */
extern const double_library double_rtc __attribute__((weak));

/* Enqueues work of a library, or records it if the stream is capturing. `run` is called each time the work runs, with device memory
 * accessible; `release` is called once when it cannot run again. `what` must be a literal. A failure of `run` is a device fault. */
cudaError_t double_enqueue(cudaStream_t stream, const char *what, cudaError_t (*run)(void *state), void *state,
                           void (*release)(void *state));
/* Called when code is loaded, for the double of NVRTC; returns false if it is not valid code. */
bool double_load_code(const void *code);
/* Whether all these bytes are inside one device allocation. */
bool double_on_device(const void *p, size_t bytes);
/* Registers handles of a library while they exist, for double_live and to detect stale handles. `kind` is a literal. */
void double_enter(void *handle, const char *kind);
void double_leave(void *handle);
bool double_known(void *handle, const char *kind);
/* Annotate the current call in traces with what it is about (a literal), or with why it was rejected. */
void double_note(const char *note);
void double_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

#ifdef __cplusplus
}
#endif
#endif
