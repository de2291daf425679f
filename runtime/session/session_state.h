/* session_state.h - internals shared by the files of the session. */
#ifndef RT_SESSION_STATE_H
#define RT_SESSION_STATE_H

#include "kernels/ranks.h"
#include "runtime/files/weights.h"
#include "runtime/session/execution.h"

#include <pthread.h>

/* Buffers for an input that is not read from the caller's memory: it is converted to the graph's type and, for a
 * discrete device, copied there. They grow on demand. */
typedef struct rt_staging {
    void *host, *device; /* device: NULL if kernels read host memory */
    size_t bytes;
} rt_staging;

/* What a run reports to the host, which reads it later; in host memory of the backend. */
typedef struct rt_report {
    int fault;
    _Alignas(double) unsigned char scalars[RT_READBACK_SCALARS][sizeof(double)]; /* each of its own type */
} rt_report;

typedef struct rt_arena_block {
    void *memory;
    int64_t bytes;
} rt_arena_block;

typedef struct rt_submitted {
    const rt_execution *execution; /* of its first part */
    void *mark;                    /* passed once the report is complete */
    bool reads_back;               /* the run is of readback_graph */
} rt_submitted;

/* Values of `steps` in rt_session.after_launch when no step has run: the frame begins; copies before a step. */
enum { RT_FRAME_BEGINS = -1, RT_COPIES = 0 };

/* Who observes the runs of the session. */
typedef struct rt_observer {
    rt_observe_fn *fn; /* NULL: not observed */
    void *user;
    bool keeps_storage; /* runs do not commit */
    bool counts;        /* fused kernels count their values; the others are shown */
    rt_staging copy;    /* of the value that is shown; `device` is unused */
} rt_observer;

/* Whether a storage is in memory (session_resident.c). */
typedef struct rt_residence {
    ir_data data; /* where it is read from */
    bool loaded;
    bool exposed; /* stays in memory: has been written, a caller may still read it, or its file may be gone */
    int plans;    /* number of plans that read it in each run */
} rt_residence;

/* What sessions share: storage in device memory, what has been computed from it once, and plans. Storage changes only
 * while there is one session, and plans never change, so runs read everything but the lists without the lock. */
typedef struct rt_shared {
    pthread_mutex_t lock;   /* of sessions, plans, packs, selections, and what these lists contain */
    pthread_cond_t planned; /* a plan has been made, or could not be */
    int sessions;
    rt_shared_plan *plans;
    rt_selection *selections;  /* every selection made so far */
    ir_parts *parts;           /* by position of the graph in the module; `count` is 0 if it has one part */
    void *block;               /* device memory of all storage */
    void **storage;            /* by storage id, within the block */
    int64_t changes, *changed; /* number of storage changes; by storage id: number of its last change */
    rt_packed **packs;         /* by storage id */
    rt_weights *weights;       /* the files of the storage; NULL: a discrete device, on which all of it is loaded */
    rt_residence *residence;   /* by storage id; NULL likewise */
} rt_shared;

struct rt_session {
    const ir_module *module;
    const rt_backend *backend;
    int device; /* its number */
    rt_shared *shared;
    k_context ctx;
    char error[512];
    k_ranks muted;          /* rt_session_mute */
    void *joined, **wholes; /* session_shards.c: the tensor that is read; by storage id, those that were written */
    bool is_open, sync_launch, fuse, no_pack;
    const volatile sig_atomic_t *stop; /* rt_session_watch; NULL: never */
    double stop_seen;                  /* when a loop first saw it; 0: not yet */
    bool stopped;
    bool plan_only; /* nothing is allocated: plans are only made and printed */
    size_t n_symbols;
    int64_t *fixed, *sizes; /* by symbol: from the options; of the current run */
    void **mirrors;         /* by storage id: host copies for a discrete device; NULL: not read yet */
    int64_t storage_bytes;
    int max_parts;
    rt_arena_block *arenas;   /* [max_parts]: plans of the same part share one, because only one of them runs */
    rt_execution **run;       /* [max_parts]: the executions of the last run by part */
    int n_run;                /* number of parts of the last run */
    rt_execution *executions; /* most recently used first */
    const rt_plan **planned;  /* [max_parts]: the plans of the last planning by part */
    int n_planned;
    const rt_selection **selected; /* by position of the graph in the module; NULL: all outputs */
    void **inputs;                 /* of the current run, by position in its graph */
    rt_staging *staging;           /* [RT_SLOTS][n_inputs], by slot and position */
    void *slot_marks[RT_SLOTS];    /* the last run that read the slot */
    size_t n_inputs;               /* capacity of both */
    rt_tensor *outputs;            /* of the last run; on a discrete device without data until requested */
    rt_staging *fetched;           /* host copies of the outputs */
    int n_outputs, output_capacity;
    rt_execution *last;   /* of the first part of the last run; NULL: none, or it could not be submitted */
    ampc_status fetching; /* first failure since the last run to copy an output from a discrete device */
    int64_t runs;         /* number of runs submitted */
    void *host_word;      /* 8 bytes in host memory of the backend, for conditions; NULL: not used yet */
    rt_submitted ring[RT_READBACK_RUNS];
    rt_report *reports; /* [RT_READBACK_RUNS], and one for repeated runs */
    const ir_graph *readback_graph;
    rt_readback readback[RT_READBACK_SCALARS]; /* with allocated names */
    int n_readback;
    char *codes;          /* NULL: unknown */
    int64_t free_at_open; /* free bytes of the device when the session was opened; 0: unknown */
    /* Called after each launch while a run is issued: it ran `steps` steps from `first` on. NULL: not called. */
    ampc_status (*after_launch)(const rt_frame *f, int first, int steps, diag *d);
    struct rt_points *points; /* of after_launch when profiling */
    rt_observer observer;     /* of after_launch when observing */
};

static inline rt_frame rt_entry_frame(rt_session *s, const rt_execution *x)
{
    return (rt_frame){s, x, s->arenas[x->plan->part].memory, s->inputs, -1};
}
/* The address of a buffer of an entry graph's plan. */
static inline void *rt_session_address(rt_session *s, const rt_execution *x, int buffer)
{
    const rt_frame f = rt_entry_frame(s, x);
    return rt_address(&f, buffer);
}

/* ---- session_shards.c ---- */

void rt_shards_close(rt_session *s);

/* ---- session_initial.c ---- */

/* Makes the bytes of a shard or a low copy of those of the whole tensor. */
void rt_storage_derive(const rt_session *s, int i, const void *whole, void *to);
struct rt_weights;
/* Reads the initial value of a storage; `source`: itself, or the parameter that it is derived from. */
ampc_status rt_storage_read(rt_session *s, struct rt_weights *w, const ir_storage *storage, const ir_storage *source,
                            void *to, diag *d);

/* ---- session_parts.c ---- */

/* Finds the parts of all graphs, unless another session has; rejects a bound size that depends on data. */
ampc_status rt_parts_open(rt_session *s, diag *d);
/* The parts of a graph; NULL: it has only one. */
const ir_parts *rt_parts_of(const rt_session *s, const ir_graph *g);
/* AMPC_UNSUPPORTED if the device cannot run a graph with parts. */
ampc_status rt_parts_require(const rt_session *s, const ir_graph *g, diag *d);
/* Sets the sizes that part `part` of a run needs, which the parts before it have computed. */
ampc_status rt_parts_read_sizes(rt_session *s, const ir_graph *g, int part, diag *d);
/* Sets these sizes to their bounds, for planning without data. */
void rt_parts_assume_sizes(rt_session *s, const ir_graph *g, int part);
/* Points the carried values of an execution to the memory of the earlier parts of the run. */
void rt_parts_carry(rt_session *s, rt_execution *x);

/* ---- session_select.c ---- */

int rt_output_count(const ir_graph *g); /* number of output statements */
/* Returns the current selection of the graph; NULL: all outputs. Equal selections are the same object. */
const rt_selection *rt_session_selection(const rt_session *s, const ir_graph *g);
void rt_session_free_selections(rt_shared *h);

/* ---- session_device.c ---- */

/* Reports a failed backend call, with the reason that it left in s->error, and returns its status. */
ampc_status rt_device_error(rt_session *s, ampc_status status, diag *d);
/* The same for a failed allocation: `what` needs `bytes`. */
ampc_status rt_memory_error(rt_session *s, ampc_status status, diag *d, const char *what, int64_t bytes);
/* Allocates host memory for copies to and from the device; plain memory if the device works in host memory. */
ampc_status rt_host_alloc(rt_session *s, size_t bytes, void **out);
void rt_host_free(rt_session *s, void *memory); /* NULL allowed */
#define RT_DEVICE(s, d, call) \
    do { \
        ampc_status called_ = (call); \
        if (called_ != AMPC_OK) return rt_device_error(s, called_, d); \
    } while (0)

/* AMPC_USAGE if the session can only plan. */
ampc_status rt_device_require(const rt_session *s, diag *d);
/* Sets the backend, the context and the options that concern them. */
ampc_status rt_device_open(rt_session *s, const rt_session_options *o, diag *d);
/* Called before a run, once its memory is allocated. AMPC_DEVICE if the calling thread cannot have the threads that the
 * session was opened with; AMPC_NO_MEMORY if too little memory is left for kernels. */
ampc_status rt_device_enter(const rt_session *s, const rt_execution *x, diag *d);

/* ---- session_inputs.c ---- */

/* Solves the symbols of g from the shapes of the inputs into s->sizes, and checks the shapes. Inputs may be missing. */
ampc_status rt_inputs_bind(rt_session *s, const ir_graph *g, const rt_tensor *inputs, int n, diag *d);
/* Points s->inputs at the data of every input of the plan's graph. Inputs of another type are converted; for a discrete
 * device, the copies are enqueued. `slot` selects the staging buffers. */
ampc_status rt_inputs_gather(rt_session *s, const rt_plan *p, const rt_tensor *inputs, int n, int slot, diag *d);
void rt_inputs_free(rt_session *s);

/* ---- session_run.c ---- */

/* Enqueues a planned run; a device that works in host memory executes it. */
ampc_status rt_run_enqueue(rt_session *s, rt_execution *x, int slot, diag *d);
/* The parts of a run. refresh: recomputes hoisted values whose storage has changed. record: records a run without
 * executing it. once: replays a recording or, if that is NULL, issues the steps. */
ampc_status rt_run_refresh(rt_session *s, rt_execution *x, diag *d);
ampc_status rt_run_record(rt_session *s, const rt_execution *x, void **recording, diag *d);
ampc_status rt_run_once(rt_session *s, rt_execution *x, void *recording, diag *d);
/* Whether runs of the plan are recorded. A plan that reads a condition on the host is not. */
bool rt_run_records(const rt_session *s, const rt_execution *x);
/* Reports the error that a fault word describes. */
ampc_status rt_run_fault(const rt_plan *p, int fault, diag *d);

/* ---- session_observe.c ---- */

void rt_observer_free(rt_session *s);

/* ---- session_control.c ---- */

/* A step with subgraphs while it runs. */
typedef struct rt_control_run {
    rt_session *session;
    const rt_step *step;
    const k_args *args;         /* with addresses */
    const rt_execution *bodies; /* by position in rt_control.bodies */
    int body;                   /* the one to run, whose inputs are set; -1: the step has run */
    int64_t iteration, count;   /* of a loop; count: the largest number of iterations */
} rt_control_run;
/* Finds the first subgraph to run. */
ampc_status rt_control_begin(rt_control_run *r, diag *d);
/* Copies the outputs of the subgraph that has run, and finds the next. */
ampc_status rt_control_next(rt_control_run *r, diag *d);

/* ---- session_shared.c ---- */

/* Makes s->shared, with memory for the storage unless the session only plans; or uses that of `other`, unless NULL. */
ampc_status rt_shared_open(rt_session *s, rt_session *other, diag *d);
/* Frees what no other session uses. The executions of the session must have been freed. */
void rt_shared_close(rt_session *s);
/* Whether both requests lead to equal plans, apart from the states of kernels. */
bool rt_shared_agree(const rt_shared_plan *a, const rt_shared_plan *b);
/* Points the plan to the block of its hoisted values and to its packs, which may be new. The caller holds the lock. */
ampc_status rt_shared_provide(rt_session *s, rt_shared_plan *e, diag *d);
/* Frees the block and packs of a plan if no other plan reads them. The caller holds the lock. */
void rt_shared_drop(rt_session *s, rt_shared_plan *e);
/* Runs hoisted steps [first, end). */
typedef ampc_status rt_compute(rt_session *s, const rt_execution *x, int first, int end, diag *d);
/* Lets `compute` run the hoisted steps whose values are out of date, unless another session has done so already. */
ampc_status rt_shared_refresh(rt_session *s, rt_execution *x, rt_compute *compute, diag *d);
/* Notes a change of a storage by its id, whose packs are dropped; and those that a run of the plan has made. A plan's
 * own stores do not make its hoisted values stale, because it updates them together with the storage; it has no packs
 * of what it stores. */
void rt_shared_change(rt_session *s, uint32_t storage);
void rt_shared_stored(rt_session *s, rt_execution *x);
/* AMPC_USAGE if other sessions share the storage: `what` would be changed, or what the graph stores. */
ampc_status rt_shared_require_sole(rt_session *s, const char *what, diag *d);
ampc_status rt_shared_require_stores(rt_session *s, const ir_graph *g, diag *d);

/* ---- session_resident.c: on a device that works in host memory; else all functions do nothing ---- */

/* Opens the files of all storage. `dir` as in rt_session_options.weights_dir. */
ampc_status rt_resident_open(rt_session *s, const char *dir, diag *d);
void rt_resident_close(rt_shared *h);
/* Reads the storage if it is not in memory. The caller holds the lock. */
ampc_status rt_resident_need(rt_session *s, uint32_t id, diag *d);
/* Likewise without the lock, for a caller that keeps the address: the storage stays in memory. */
ampc_status rt_resident_expose(rt_session *s, uint32_t id, diag *d);
/* The storage differs from its file from now on. */
void rt_resident_written(rt_session *s, uint32_t id);
/* Returns the memory of the storage to the system, unless a plan or a caller reads it. The caller holds the lock. */
void rt_resident_drop(rt_session *s, uint32_t id);
/* Counts the plan as a reader of the storage that its runs read, apart from hoisted steps, and reads that storage. The
 * caller holds the lock. */
ampc_status rt_resident_provide(rt_session *s, rt_shared_plan *e, diag *d);
/* Bytes of the storage that runs of the plans of the last planning need in memory. */
int64_t rt_resident_bytes(const rt_session *s);
void rt_resident_release(rt_session *s, const rt_shared_plan *e); /* the caller holds the lock */

/* ---- session_storage.c ---- */

int64_t rt_storage_bytes(const rt_session *s);
/* Reads the initial data of all storage, or opens its files (session_resident.c); `dir` as in
 * rt_session_options.weights_dir. */
ampc_status rt_storage_load(rt_session *s, const char *dir, diag *d);

/* ---- session_outputs.c ---- */

/* Makes the outputs of the last run those of the session, in the order of the graph. */
void rt_outputs_collect(rt_session *s);

/* ---- session_readback.c ---- */

ampc_status rt_readback_open(rt_session *s, diag *d);
void rt_readback_close(rt_session *s);
/* Called before and after the work of a run: the first reads back the scalars from before the run, the second those
 * from after it, and its fault. */
ampc_status rt_readback_begin(rt_session *s, const rt_execution *x, diag *d);
ampc_status rt_readback_end(rt_session *s, const rt_execution *x, diag *d);

#endif
