/* execution.h - what a session needs to run a plan.
 *
 * A plan never changes once it has been made (plan.h). What runs change, and the memory that they use, belongs to an
 * execution: each session has one for each plan that it runs. What is computed from storage once for a plan belongs to
 * its rt_shared_plan, which the executions of all sessions read. */
#ifndef RT_EXECUTION_H
#define RT_EXECUTION_H

#include "runtime/plan/plan.h"
#include "runtime/session/session.h"

typedef struct rt_execution rt_execution;

/* Memory of one or more packs, which is freed with the last of them. */
typedef struct rt_pack_block {
    void *memory;
    int packs;
} rt_pack_block;

/* The memory of a pack (session_shared.c). */
typedef struct rt_packed {
    struct rt_packed *next; /* of the same storage */
    rt_pack key;
    void *memory;         /* NULL: there is none while the contents are out of date */
    rt_pack_block *block; /* that the memory is in */
    int plans;            /* number of plans that read it */
    int64_t at;           /* number of the storage change that the contents reflect; 0: none */
} rt_packed;

/* A block of hoisted values, which equal plans read. */
typedef struct rt_hoisted {
    void *memory;
    int plans;  /* number of plans that read it */
    int64_t at; /* number of the last storage change that the values reflect; 0: none */
} rt_hoisted;

/* A plan, and the memory of its hoisted values and packs. All sessions with equal requests share it
 * (session_plans.c). */
typedef struct rt_shared_plan {
    struct rt_shared_plan *next;
    rt_plan_request request; /* with `sizes` of its own, and no pointers that are only valid while the plan is made */
    int threads;
    bool tune, plan_only;
    const custom_op *custom; /* the last operator that the caller has registered; NULL: none */
    const void *owner;       /* the device context that the states of kernels belong to; NULL: none */
    rt_plan *plan;           /* NULL: it is being made */
    int executions;          /* number of those that read it */
    /* Before the first run: */
    bool *kept;          /* by storage id: whether runs read it (session_resident.c); NULL: not counted yet */
    rt_hoisted *hoisted; /* NULL: not needed, or not yet */
    rt_packed **packs;   /* by position in the plan's packs; NULL: not yet */
} rt_shared_plan;

struct rt_execution {
    rt_execution *next; /* in the session's cache */
    const rt_plan *plan;
    rt_shared_plan *shared; /* NULL: the plan is that of a subgraph */
    bool is_open;           /* everything that runs need has been allocated */
    bool warm;              /* has run, so everything that is loaded lazily is loaded */
    void **bound;           /* by step: what its kernel has bound */
    rt_execution **bodies;  /* by step: of its subgraphs, by position in rt_control.bodies; unused if no step has any */
    void **inputs;          /* of a subgraph, by position: addresses in the current run */
    void **carried;         /* by position in the plan: addresses of values of earlier parts */
    k_args *calls;          /* of the launch that is being issued, and their views */
    k_view *views;
    int64_t persistent_at; /* number of the last storage change that hoisted values and packs are known to reflect */
    void *recordings[RT_SLOTS]; /* recorded runs on a discrete device, by input slot; NULL: none */
};

/* A plan while it runs: that of an entry graph, or of a subgraph. */
typedef struct rt_frame {
    rt_session *session;
    const rt_execution *execution;
    char *arena;
    void *const *inputs;
    int outer_step; /* of a subgraph: the step of the entry graph's plan that runs it, which faults name; -1: none */
} rt_frame;

/* ---- session_plans.c ---- */

/* Finds the plan that a session has made for an equal request, or makes it. The caller releases it. */
ampc_status rt_plans_find(rt_session *s, const rt_plan_request *request, diag *d, rt_shared_plan **out);
/* Frees the plan, and its block and packs if no other plan reads them, unless there are other executions. */
void rt_plans_release(rt_session *s, rt_shared_plan *e);

/* ---- execution.c ---- */

/* Returns an execution of the plan, which it owns from now on; NULL: out of memory. */
rt_execution *rt_execution_new(rt_shared_plan *shared);
/* Allocates what runs need, before the first one. */
ampc_status rt_execution_open(rt_session *s, rt_execution *x, diag *d);
/* Frees the execution and releases its plan. */
void rt_execution_free(rt_session *s, rt_execution *x);
/* Discards all recordings of the session, because addresses that they contain have changed. */
void rt_executions_forget(rt_session *s);
/* The current address of a buffer; NULL for RT_NO_BUFFER. */
void *rt_address(const rt_frame *f, int buffer);
/* The arguments of the kernels of n steps, with addresses; valid until the next call for this execution. */
const k_args *rt_execution_calls(const rt_frame *f, int first, int n);

#endif
