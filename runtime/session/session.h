/* session.h - a module made runnable: storage in memory, one plan per entry graph and shape binding.
 *
 * Run side: plain allocation, every failure is a status with a message in the diag. A session belongs to one thread
 * at a time.
 *
 * Some devices work while the host goes on. rt_session_run waits for the results; rt_session_submit does not, and
 * what a training loop wants to know of each run is kept for it (rt_session_keep) until it looks. */
#ifndef AMPC_SESSION_H
#define AMPC_SESSION_H

#include "ir/ir.h"
#include "kernels/kernel.h"

typedef struct rt_session rt_session;

typedef struct rt_session_options {
    const char *device; /* "cpu", "cuda" or "cuda:N"; what is not there is refused with AMPC_DEVICE. With plan_only also
                         * the file that describes a GPU (device_file.h) */
    int threads;        /* 0: all cores of the process */
    int deterministic;  /* 0: off; T: work is split for T threads whatever the cores */
    /* By symbol index of the module, -1: from the inputs of each run; NULL: all from inputs. */
    int64_t *symbol_sizes;
    const char *weights_dir; /* folder against which relative weight files are opened; NULL: "." */
    bool sync_launch;        /* wait after every step, so that a device's error names its node */
    bool no_tune;            /* take the algorithms that a device's libraries propose, without timing them */
    bool plan_only;          /* for rt_session_plan and rt_session_print_plan alone: weights are not read, no memory is
                              * allocated for storage, nothing is timed or compiled */
    bool no_fuse;            /* every op is a step of its own; also where the module says so (meta "fuse" = "off") */
} rt_session_options;

/* The module must outlive the session and not change. Loads all storage. */
ampc_status rt_session_open(const ir_module *m, const rt_session_options *o, diag *d,
                            rt_session **out);
void rt_session_close(rt_session *s); /* NULL allowed */
/* The sizes of symbols that the options bound, by index; -1: open. */
const int64_t *rt_session_sizes(const rt_session *s);

/* One input of a run: dtype and shape are checked against the graph's; symbols take their size from here. Data is
 * only read. Integer inputs may be given as any integer type and float inputs as any float type (converted). */
typedef struct rt_tensor {
    const char *name;
    ir_dtype dtype;
    int rank;
    int64_t dims[IR_MAX_RANK];
    void *data;
} rt_tensor;

/* Runs an entry graph and waits for it. The results stay valid until the next run of the session. On failure (also
 * half way) storage is as it was before the run. */
ampc_status rt_session_run(rt_session *s, const char *graph, const rt_tensor *inputs, int n,
                           diag *d);
/* From now on runs of the graph compute only these output statements, and all that it stores; names NULL: all of
 * them, as before the first call. Plans of other selections are kept. AMPC_REJECTED for a graph or a name that there
 * is not. */
ampc_status rt_session_select(rt_session *s, const char *graph, const char *const *names, int n, diag *d);
/* An output statement of the last run by name; the data belongs to the session. NULL: there is none, or an away
 * device could not give it, which rt_session_fetched then says. */
const rt_tensor *rt_session_output(rt_session *s, const char *name);
/* The graph of the last run, when it has an output statement of this name that was not selected; else NULL. */
const char *rt_session_not_selected(const rt_session *s, const char *name);
int rt_session_output_count(const rt_session *s);
const rt_tensor *rt_session_output_at(rt_session *s, int i); /* the same by position; name is the statement's name */
/* For a caller that has read what it wants of the last run: AMPC_OK, or why the device could not give a result
 * (AMPC_DEVICE, AMPC_NO_MEMORY; reported). */
ampc_status rt_session_fetched(rt_session *s, diag *d);

/* ---- runs that are not waited for ---- */

enum { RT_KEPT_RUNS = 16, RT_KEPT_SCALARS = 8 };

/* An output statement; storage as a run found it; storage as it left it. */
typedef enum rt_kept_kind { RT_KEEP_OUTPUT, RT_KEEP_BEFORE, RT_KEEP_AFTER } rt_kept_kind;
typedef struct rt_keep {
    const char *name;
    rt_kept_kind kind;
} rt_keep;

/* Names up to RT_KEPT_SCALARS scalars that are kept of each run of the graph; they replace those named before. */
ampc_status rt_session_keep(rt_session *s, const char *graph, const rt_keep *what, int n, diag *d);
/* As rt_session_run, without waiting; inputs may be reused at once. *run: its number, for the two below, which take
 * those of the last RT_KEPT_RUNS runs. */
ampc_status rt_session_submit(rt_session *s, const char *graph, const rt_tensor *inputs, int n,
                              diag *d, int64_t *run);
bool rt_session_done(const rt_session *s, int64_t run); /* collecting it would not wait */
/* Waits for a run. A fault that the device met is the status; storage is then as it was before that run. scalars (may
 * be NULL): one for each that is kept, NAN where the run computed none. */
ampc_status rt_session_collect(rt_session *s, int64_t run, diag *d, double *scalars);

/* ---- repeating the last run ---- */

/* Each repetition is a complete run, which updates storage, on the inputs that the last run left on the device: nothing
 * is converted or copied. (If the device reads the caller's memory, that memory must still be valid.) A fault is
 * returned as the status; storage is then as it was before the repetition that met it. A run must have been submitted
 * before. */

/* Repeats warmup + n times. ms: the milliseconds of each of the last n. A device that works while the host goes on gets
 * all runs back to back, and its own clock measures the time from the end of one run to the end of the next. */
ampc_status rt_session_time(rt_session *s, int64_t warmup, int64_t n, diag *d, double *ms);
/* Whether times are by the clock of the device; else they are the host's. */
bool rt_session_has_clock(const rt_session *s);

/* One call within a run: of the kernel of one step, or of several steps that run together. */
typedef struct rt_launch {
    int step, steps;     /* its first step in the plan, how many; 0 steps: copies before or after those of the plan */
    const char *op;      /* "matmul", "program"; "copy" */
    const ir_node *node; /* that the first step computes; NULL: copies */
    double start_ms, ms; /* start: the sum of the times before it */
} rt_launch;
typedef void rt_launch_fn(void *user, const rt_launch *launch);

/* `runs` repetitions, timed launch by launch; then `each` is called for every launch in order, with the median of its
 * times. Steps whose results the plan keeps from run to run are not repeated. */
ampc_status rt_session_profile(rt_session *s, int runs, diag *d, rt_launch_fn *each, void *user);

/* ---- storage: parameters, BN statistics, optimizer slots, @lr, @loss_scale ... ---- */

int rt_session_storage_count(const rt_session *s);
/* Name, type and kind; data is NULL. */
void rt_session_storage_at(const rt_session *s, int i, rt_tensor *out, ir_storage_kind *kind);
/* Index by name, -1: there is none. */
int rt_session_storage_find(const rt_session *s, const char *name);
/* The same with the bytes as they are after all runs so far: the live ones, or a copy of an away device's. Valid until
 * the next run or read of the same storage. AMPC_DEVICE, AMPC_NO_MEMORY. */
ampc_status rt_session_read(rt_session *s, int i, diag *d, rt_tensor *out);
/* rt_session_read by name; AMPC_REJECTED when there is none. */
ampc_status rt_session_storage(rt_session *s, const char *name, diag *d, rt_tensor *out);
/* New bytes, seen by all later runs. `bytes` may be what rt_session_read gave. */
ampc_status rt_session_write(rt_session *s, int i, const void *bytes, diag *d);
/* A scalar by name, converted. AMPC_REJECTED when there is none. */
ampc_status rt_session_get_number(rt_session *s, const char *name, diag *d, double *value);
ampc_status rt_session_set_number(rt_session *s, const char *name, double value, diag *d);
/* Dropout draws by this key from now on; 0: by the one that it has. */
ampc_status rt_session_seed(rt_session *s, uint64_t seed, diag *d);

/* Bytes that a run of `graph` under the current binding needs: arena (activations, workspace) and storage. */
typedef struct rt_memory {
    int64_t arena, storage;
    /* How much less of the device's memory is free than when the session was opened; 0: not known. */
    int64_t used;
} rt_memory;
ampc_status rt_session_memory(rt_session *s, const char *graph, const rt_tensor *inputs, int n,
                              diag *d, rt_memory *out);

/* The plan of `graph` under the current binding (plan.h); the session owns it. watch (may be NULL) sees its stages, if
 * the session does not have it already. */
typedef struct rt_plan rt_plan;
typedef struct rt_plan_watch rt_plan_watch;
ampc_status rt_session_plan(rt_session *s, const char *graph, const rt_tensor *inputs, int n,
                            const rt_plan_watch *watch, diag *d, const rt_plan **out);
/* The plan as text: steps, offsets, in-place marks (expect tests; malloc'ed, freed by the caller). */
ampc_status rt_session_print_plan(rt_session *s, const char *graph, const rt_tensor *inputs, int n,
                                  diag *d, char **out);

#endif
