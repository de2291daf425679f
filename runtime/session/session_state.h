/* session_state.h - what the files of the session share. */
#ifndef RT_SESSION_STATE_H
#define RT_SESSION_STATE_H

#include "runtime/plan/plan.h"
#include "runtime/session/session.h"

/* Where an input lies that is not read from the caller's memory: converted to the graph's type and, for an away
 * device, sent there. Grows to what the runs need. */
typedef struct rt_staging {
    void *host, *device; /* device: NULL where host memory is read */
    size_t bytes;
} rt_staging;

/* A scalar to keep of each run. */
typedef struct rt_kept {
    char *name;
    rt_kept_kind kind;
} rt_kept;

/* What a run leaves behind for a reader that lags behind the device; in host memory of the backend. */
typedef struct rt_report {
    int fault;
    unsigned char scalars[RT_KEPT_SCALARS][8];
} rt_report;

typedef struct rt_submitted {
    const rt_plan *plan;
    void *mark; /* passed when the report is complete */
    bool keeps; /* a run of the graph whose scalars are kept */
} rt_submitted;

struct rt_session {
    const ir_module *module;
    const rt_backend *backend;
    k_context ctx;
    char error[512];
    bool is_open, sync_launch, fuse;
    bool plan_only; /* nothing has memory: plans are made and looked at */
    size_t n_symbols;
    int64_t *fixed, *sizes; /* by symbol: from the options; of the run at hand */
    void *storage_block;    /* device memory: all storage */
    void **storage;         /* by storage id, in the block */
    void **mirrors;         /* by storage id: host copies of an away device's, NULL until asked for */
    int64_t storage_bytes;
    int64_t changes, *changed; /* how often storage may have changed; by storage id: the number of its last change */
    void *arena;
    int64_t arena_bytes;
    rt_plan *plans;      /* the one used last first */
    rt_selection *selections;      /* all that were ever selected */
    const rt_selection **selected; /* by position of the graph in the module; NULL: all outputs */
    void **inputs;       /* of the run at hand, by position in its graph */
    rt_staging *staging; /* [RT_SLOTS][n_inputs], by slot and position */
    void *slot_marks[RT_SLOTS]; /* the last run that read the slot */
    size_t n_inputs;     /* room in both */
    rt_tensor *outputs;  /* of the last run; an away device's have no data until asked for */
    rt_staging *fetched; /* host copies of them */
    int n_outputs, output_room;
    rt_plan *last;       /* plan of the last run; NULL: there was none, or it could not be submitted */
    ampc_status fetching; /* the first failure since the last run to fetch a result from an away device */
    int64_t runs;        /* submitted so far */
    rt_submitted ring[RT_KEPT_RUNS];
    rt_report *reports;  /* [RT_KEPT_RUNS], and one for runs that are repeated */
    const ir_graph *kept_graph;
    rt_kept kept[RT_KEPT_SCALARS];
    int n_kept;
    int64_t room;               /* free bytes of the device when the session was opened; 0: not known */
    struct rt_points *points;   /* noted while a run is walked; NULL: it is not profiled */
};

/* The diag's error for a backend call that failed, with the reason that it left in s->error. */
ampc_status rt_device_error(rt_session *s, ampc_status status, diag *d);
/* The same for memory: `what` needs `bytes`. */
ampc_status rt_memory_error(rt_session *s, ampc_status status, diag *d, const char *what, int64_t bytes);
/* Host memory for copies to and from the device; plain memory where that is the host. */
ampc_status rt_host_alloc(rt_session *s, size_t bytes, void **out);
void rt_host_free(rt_session *s, void *memory); /* NULL allowed */
#define RT_DEVICE(s, d, call)                                                                      \
    do {                                                                                           \
        ampc_status called_ = (call);                                                              \
        if (called_ != AMPC_OK) return rt_device_error(s, called_, d);                             \
    } while (0)

/* Addresses have changed: recordings hold the old ones. */
void rt_session_forget(rt_session *s);

/* ---- session_select.c ---- */

/* What runs of the graph compute now; NULL: all outputs. Equal selections are the same object. */
const rt_selection *rt_session_selection(const rt_session *s, const ir_graph *g);
void rt_session_free_selections(rt_session *s);

/* ---- session_device.c ---- */

/* Sets backend, context and what the options say of both. */
ampc_status rt_device_open(rt_session *s, const rt_session_options *o, diag *d);
/* Before a run, when its memory is there: AMPC_DEVICE when the calling thread cannot have the threads that the session
 * was opened with, AMPC_NO_MEMORY when kernels would find too little. */
ampc_status rt_device_enter(const rt_session *s, const rt_plan *p, diag *d);

/* ---- session_inputs.c ---- */

/* Solves the symbols of g from the shapes of the inputs into s->sizes and checks the shapes. Inputs may be missing. */
ampc_status rt_inputs_bind(rt_session *s, const ir_graph *g, const rt_tensor *inputs, int n,
                           diag *d);
/* Points s->inputs at the data of every input of the plan's graph, converted where the type differs and, for an away
 * device, enqueued for its memory. `slot`: the staging to use. */
ampc_status rt_inputs_gather(rt_session *s, const rt_plan *p, const rt_tensor *inputs, int n,
                             int slot, diag *d);
void rt_inputs_free(rt_session *s);

/* ---- session_run.c ---- */

/* Enqueues the whole of a planned run (on a device that is not away: does it). */
ampc_status rt_run_enqueue(rt_session *s, rt_plan *p, int slot, diag *d);
/* Its parts: makes again what is kept of storage that has changed; records a run; replays a recording (NULL: walks the
 * steps). */
ampc_status rt_run_refresh(rt_session *s, rt_plan *p, diag *d);
ampc_status rt_run_record(rt_session *s, rt_plan *p, void **recording, diag *d);
ampc_status rt_run_once(rt_session *s, rt_plan *p, void *recording, diag *d);
/* Whether runs of the plan are recordings. */
bool rt_run_records(const rt_session *s, const rt_plan *p);
/* The error of a fault word that was set. */
ampc_status rt_run_fault(const rt_plan *p, int fault, diag *d);

/* ---- session_time.c ---- */

/* While a run is walked, after each call: it ran `steps` steps from `first` on (0: copies before that step). The first
 * point of a run is its start. */
ampc_status rt_note_point(rt_session *s, const rt_plan *p, int first, int steps, diag *d);

/* ---- session.c ---- */

/* The outputs of a run of the plan are those of the session. */
void rt_outputs_collect(rt_session *s, const rt_plan *p);

/* ---- session_kept.c ---- */

ampc_status rt_kept_open(rt_session *s, diag *d);
void rt_kept_close(rt_session *s);
/* Around the work of a run: takes what is kept from before it; from after it, and its fault. */
ampc_status rt_kept_before(rt_session *s, const rt_plan *p, diag *d);
ampc_status rt_kept_after(rt_session *s, const rt_plan *p, diag *d);

#endif
