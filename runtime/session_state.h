/* session_state.h - what session.c and session_inputs.c share. */
#ifndef RT_SESSION_STATE_H
#define RT_SESSION_STATE_H

#include "runtime/plan.h"
#include "runtime/session.h"

/* Memory for inputs that are given in another type than the graph's; grows to what the runs need. */
typedef struct rt_staging {
    void *data;
    size_t bytes;
} rt_staging;

struct rt_session {
    const ir_module *module;
    const rt_backend *backend;
    k_context ctx;
    char error[512];
    size_t n_symbols;
    int64_t *fixed, *sizes; /* by symbol: from the options; of the run at hand */
    void **storage;         /* by storage id */
    int64_t storage_bytes;
    char *arena;
    int64_t arena_bytes;
    rt_plan *plans;      /* the one used last first */
    void **inputs;       /* of the run at hand, by position in its graph */
    rt_staging *staging; /* by the same position */
    size_t n_inputs;     /* room in both */
    rt_tensor *outputs;  /* of the last run */
    int n_outputs, output_room;
    rt_step_hook *hook;
    void *hook_user;
};

/* ---- session_inputs.c ---- */

/* Solves the symbols of g from the shapes of the inputs into s->sizes and checks the shapes. Inputs may be missing. */
ampc_status rt_inputs_bind(rt_session *s, const ir_graph *g, const rt_tensor *inputs, int n,
                           diag *d);
/* Points s->inputs at the data of every input of the plan's graph, converted where the type differs. */
ampc_status rt_inputs_gather(rt_session *s, const rt_plan *p, const rt_tensor *inputs, int n,
                             diag *d);

#endif
