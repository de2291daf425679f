/* session.h - a module on a device: its storage, and a plan per entry graph, sizes and selection of outputs.
 *
 * Every failure, including a failed allocation, is returned as a status and reported in the diag. A session may be used
 * by one thread at a time. Several sessions of a module can share one copy of the storage and of the values that plans
 * compute from it once, such as weights in the formats of kernels; different threads may use them at the same time.
 * Nothing can write storage while it is shared.
 *
 * Some devices run asynchronously. rt_session_run waits for the results. rt_session_submit does not; the scalars that a
 * training loop needs of each run (rt_session_select_scalars) can be collected later, for the last RT_READBACK_RUNS
 * runs. */
#ifndef AMPC_SESSION_H
#define AMPC_SESSION_H

#include "ir/graph/ir.h"
#include "ir/base/pipeline.h"
#include "kernels/kernel.h"

#include <signal.h>

typedef struct rt_session rt_session;

typedef struct rt_session_options {
    const char *device; /* "cpu" (also NULL), "cuda" or "cuda:N"; AMPC_DEVICE if it is not available. With plan_only
                         * also the path of a file that describes a GPU (device_file.h) */
    int threads;        /* 0: all cores available to the process */
    int deterministic;  /* 0: off; T: work is divided among T threads regardless of the number of cores */
    /* By symbol index of the module; -1: bound by the inputs of each run. NULL: all symbols are. */
    int64_t *symbol_sizes;
    const char *weights_dir; /* directory that relative paths of weight files refer to; NULL: "." */
    bool sync_launch;        /* wait after every step, so that a device error names its node */
    bool no_tune;            /* use the algorithms that the device's libraries propose, without timing them */
    bool plan_only;          /* only for planning (rt_session_plan): weights are not read,
                              * storage is not allocated, nothing is timed or compiled */
    custom_ops *custom;      /* operators of the caller, which must outlive the session; NULL: none */
    k_ranks *ranks; /* of a distributed training (kernels/ranks.h), which must outlive the session; NULL: none */
    /* Use the storage and the device of this session of the same module, which another thread must not use meanwhile;
     * `device` and `weights_dir` are then ignored. Either may be closed first. NULL: storage of its own. */
    rt_session *share;
    bool no_pack; /* weights are not brought into the formats of kernels (plan.h) */
    bool no_fuse; /* every op is a separate step; a module can request this as well (`unfused`) */
} rt_session_options;

/* Opens a session and loads all storage. The module must outlive the session and stay unchanged. *out is NULL on
 * error. */
ampc_status rt_session_open(const ir_module *m, const rt_session_options *o, diag *d, rt_session **out);
void rt_session_close(rt_session *s); /* NULL allowed */
/* What the numbers of the data that trained the session stand for (runtime/data/codebook.h), as text; NULL: unknown. A
 * checkpoint has it. The session keeps a copy. AMPC_NO_MEMORY. */
const char *rt_session_codes(const rt_session *s);
ampc_status rt_session_set_codes(rt_session *s, const char *codes, diag *d);
/* From now on a run of this rank does not involve the others: a collective op keeps its own operands. For a run that
 * not all ranks make to its end. */
void rt_session_mute(rt_session *s);
/* Returns the sizes of the symbols that the options bound, by index; -1: unbound. */
const int64_t *rt_session_sizes(const rt_session *s);

/* A tensor of a run. The dtype and shape of an input are checked against the graph, and its dimensions bind symbols;
 * its data is only read. Integer inputs may have any integer type and float inputs any float type; the session converts
 * them. */
typedef struct rt_tensor {
    const char *name;
    ir_dtype dtype;
    int rank;
    int64_t dims[IR_MAX_RANK];
    void *data;
} rt_tensor;

/* Runs an entry graph and waits for it. The results stay valid until the next run of the session. If the run fails,
 * even halfway, storage is as it was before. AMPC_USAGE: the graph stores, and the storage is shared. */
ampc_status rt_session_run(rt_session *s, const char *graph, const rt_tensor *inputs, int n, diag *d);
/* For a program that a signal may ask to stop, which sets *stop; NULL ends the watch. From then on the loops of a run
 * have half a second: then the run is abandoned. It fails without a message, storage is as it was before, and
 * rt_session_stopped is true until the watch ends. */
void rt_session_watch(rt_session *s, const volatile sig_atomic_t *stop);
bool rt_session_stopped(const rt_session *s);
/* Restricts later runs of the graph to these outputs and all its stores. NULL selects all outputs, as initially. Plans
 * of other selections stay cached. AMPC_REJECTED if the graph or a name does not exist. */
ampc_status rt_session_select(rt_session *s, const char *graph, const char *const *names, int n, diag *d);
/* Returns an output of the last run by name; the session owns the data. NULL: there is no such output, or it could not
 * be copied from a discrete device, which rt_session_fetched reports. */
const rt_tensor *rt_session_output(rt_session *s, const char *name);
/* Returns the name of the last run's graph if that has an output of this name that was not selected; else NULL. */
const char *rt_session_not_selected(const rt_session *s, const char *name);
int rt_session_output_count(const rt_session *s);
const rt_tensor *rt_session_output_at(rt_session *s, int i); /* like rt_session_output, by position */
/* Call this after reading the outputs of a run. Returns AMPC_OK, or reports the first failure to copy an output from
 * the device (AMPC_DEVICE, AMPC_NO_MEMORY). */
ampc_status rt_session_fetched(rt_session *s, diag *d);

/* ---- asynchronous runs ---- */

enum {
    RT_SLOTS = 2, /* sets of inputs on a discrete device: one is filled while the other is read */
    RT_READBACK_RUNS = 16,
    RT_READBACK_SCALARS = 8
};

/* An output; storage before the run; storage after the run. */
typedef enum rt_readback_kind { RT_READBACK_OUTPUT, RT_READBACK_BEFORE, RT_READBACK_AFTER } rt_readback_kind;
typedef struct rt_readback {
    const char *name;
    rt_readback_kind kind;
} rt_readback;

/* Selects up to RT_READBACK_SCALARS scalars to read back from each run of the graph; replaces the earlier selection. */
ampc_status rt_session_select_scalars(rt_session *s, const char *graph, const rt_readback *what, int n, diag *d);
/* Like rt_session_run, but does not wait; the caller may reuse the inputs at once. *run is the number of the run for
 * rt_session_done and rt_session_collect, which accept those of the last RT_READBACK_RUNS runs. */
ampc_status rt_session_submit(rt_session *s, const char *graph, const rt_tensor *inputs, int n, diag *d, int64_t *run);
bool rt_session_done(const rt_session *s, int64_t run); /* collecting it would not wait */
/* Waits for a run. The status reports a fault of the device; storage is then as it was before that run. scalars (may be
 * NULL) receives one number per selected scalar, NAN if the run did not compute it. */
ampc_status rt_session_collect(rt_session *s, int64_t run, diag *d, double *scalars);

/* ---- repeating the last run ---- */

/* Each repetition is a complete run, which updates storage, with the inputs that the last run left on the device:
 * nothing is converted or copied. If the device reads the caller's memory, that memory must still be valid. A fault is
 * returned as the status; storage is then as it was before the repetition with the fault. A run must have been
 * submitted before. */

/* Repeats the run warmup + n times and sets ms[i] to the milliseconds of each of the last n. An asynchronous device
 * runs all repetitions back to back, and its own clock measures from the end of one to the end of the next. */
ampc_status rt_session_time(rt_session *s, int64_t warmup, int64_t n, diag *d, double *ms);
/* Whether the device's clock measures times; otherwise the host's does. */
bool rt_session_has_clock(const rt_session *s);

/* One launch within a run: one step, or a batch of steps. */
typedef struct rt_launch {
    int step, steps;     /* first step in the plan, number of steps; 0 steps: copies before or after the plan's steps */
    const char *op;      /* "matmul", "program"; "copy" */
    const ir_node *node; /* of the first step; NULL: copies */
    double start_ms, ms; /* start_ms: sum of the times of earlier launches */
} rt_launch;
typedef void rt_launch_fn(void *user, const rt_launch *launch);

/* Repeats the run `runs` times with a time for each launch; then calls `each` for every launch in order, with the
 * median of its times. Hoisted steps are not repeated. */
ampc_status rt_session_profile(rt_session *s, int runs, diag *d, rt_launch_fn *each, void *user);

/* ---- observing ---- */

/* A value of an observed run. */
typedef struct rt_observed {
    const ir_value *value;
    const ir_node *node; /* that has computed it; NULL: an input of the graph, or storage */
    int output;          /* of the node */
    /* The data are valid during the call. A device that works in host memory shows the value itself: what the function
     * writes there is what later steps read. */
    rt_tensor tensor;
} rt_observed;
/* Another status than AMPC_OK ends the run with it; storage is then as it was before the run. */
typedef ampc_status rt_observe_fn(void *user, const rt_observed *o, diag *d);

/* From now on runs are observed, until `fn` is NULL: every op is a step of its own (as with no_fuse), is launched alone
 * and waited for, and `fn` is called for each of its results before the next one runs. Inputs and storage that a run
 * reads come before its first step. In an `if` or `loop`, the values of its subgraph come in every iteration, before
 * the results of the op itself. Views (reshape) have no step and are not shown. An observed run needs more memory than
 * others; its plans are cached apart. */
void rt_session_observe(rt_session *s, rt_observe_fn *fn, void *user);
/* The same, except that a device that works in host memory fuses elementwise ops and normalisations, which keep the
 * bits of their results, and counts what they compute and read in the caches: `count` is called for these values, which
 * `fn` does not see. */
void rt_session_observe_counts(rt_session *s, rt_observe_fn *fn, k_count_fn *count, void *user);
/* Adds the n numbers of a tensor in host memory, on the threads of the session. */
void rt_session_count(const rt_session *s, const rt_tensor *t, int64_t n, ir_exponents *to);
/* Until the observation ends, runs change no storage. */
void rt_session_keep_storage(rt_session *s);

/* ---- storage: parameters, BN statistics, optimizer slots, @lr, @loss_scale ... ---- */

int rt_session_storage_count(const rt_session *s);
/* Sets *out to name, type and shape, with data NULL. kind may be NULL. */
void rt_session_storage_at(const rt_session *s, int i, rt_tensor *out, ir_storage_kind *kind);
/* Like rt_session_storage_at, with the contents after all runs so far: the live memory, or a copy of a discrete
 * device's. Valid until the next run or read of the same storage. AMPC_DEVICE, AMPC_NO_MEMORY. */
ampc_status rt_session_read(rt_session *s, int i, diag *d, rt_tensor *out);
/* Sets the contents for all later runs. `bytes` may be the data that rt_session_read returned. AMPC_USAGE while the
 * storage is shared. */
ampc_status rt_session_write(rt_session *s, int i, const void *bytes, diag *d);

/* ---- session_shards.c: storage of which each rank has a slice ---- */

bool rt_session_is_shard(const rt_session *s, int i);
bool rt_session_is_derived(const rt_session *s, int i); /* it follows a parameter that is a shard */
/* Like rt_session_storage_at, with the shape of the whole tensor. */
void rt_session_whole_at(const rt_session *s, int i, rt_tensor *out);
/* On rank 0: bytes of the tensor of a shard, from the first one on, in order (rt_tensor_source). Until it calls
 * rt_session_end_wholes, the others must be in rt_session_serve_wholes. All do nothing in a session without shards. */
typedef struct rt_whole {
    rt_session *session;
    int storage;
    diag *diag;
} rt_whole;
ampc_status rt_session_read_whole(void *source, uint64_t offset, void *dst, size_t n);
ampc_status rt_session_end_wholes(rt_session *s, diag *d);
ampc_status rt_session_serve_wholes(rt_session *s, diag *d);
/* Like rt_session_write, with the whole tensor. The other ranks have their slices of a shard after
 * rt_session_share_whole, which is collective. */
ampc_status rt_session_write_whole(rt_session *s, int i, const void *bytes, diag *d);
ampc_status rt_session_share_whole(rt_session *s, int i, diag *d);

/* Reads or sets a scalar by name, with conversion. AMPC_REJECTED if there is no such scalar. */
ampc_status rt_session_get_number(rt_session *s, const char *name, diag *d, double *value);
ampc_status rt_session_set_number(rt_session *s, const char *name, double value, diag *d);
/* Sets the key of the random numbers for dropout; 0: leaves it unchanged. */
ampc_status rt_session_seed(rt_session *s, uint64_t seed, diag *d);

/* Bytes that a run of `graph` needs for the given inputs; if sizes depend on data, the maximum. arena: activations,
 * workspace, hoisted values and packs. */
typedef struct rt_memory {
    int64_t arena, storage;
    /* Decrease of the device's free memory since the session was opened; 0: unknown. */
    int64_t used;
} rt_memory;
ampc_status rt_session_memory(rt_session *s, const char *graph, const rt_tensor *inputs, int n, diag *d,
                              rt_memory *out);

/* Returns the plan of `graph` for the given inputs (plan.h), owned by the session. rt_session_planned returns that of
 * any part of the graph that was planned last, with sizes that depend on data at their bounds; NULL: it has no such
 * part. If a plan is not cached yet, `options` (may be NULL) tells what to check and print after each of its stages. */
typedef struct rt_plan rt_plan;
ampc_status rt_session_plan(rt_session *s, const char *graph, const rt_tensor *inputs, int n,
                            const pipeline_options *options, diag *d, const rt_plan **out);
const rt_plan *rt_session_planned(const rt_session *s, int part);
/* The memory of the packs that the plan of this part reads and none of the parts before it. */
int64_t rt_session_pack_bytes(const rt_session *s, int part);

#endif
