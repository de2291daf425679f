/* plan.h - an entry graph under one binding of its symbols, as a list of steps over one arena.
 *
 * A plan is made by the stages of stages.def: the first turns nodes into steps, the others rewrite the list. What they
 * decide needs sizes and what the backend supports, so that the graph stays one node per op and knows nothing of it.
 * Steps are changed through plan_edit.h only, which keeps definitions and uses up to date.
 *
 * A buffer is memory that one or more values hold in turn: a view shares the buffer of the value that it looks at, and
 * a result may take over the buffer of an operand that dies with the step (trait INPLACE of the op table). Buffers are
 * in the arena, are a storage, or are an input of the run. Workspace of a step is an arena buffer that lives for that
 * step.
 *
 * Storage commits when all steps are done: by a copy, or without one where the new value may be computed in the
 * storage itself. That is allowed only in the tail of the update phase, where every op either computes in place or
 * does no float arithmetic (colour KEEP): such kernels cannot fail, so a run that fails has not touched storage. On a
 * discrete device, where an earlier kernel may leave a fault, only ops whose kernels check for it may write there. */
#ifndef RT_PLAN_H
#define RT_PLAN_H

#include "ir/ir.h"
#include "kernels/program.h"
#include "runtime/backend/backend.h"

typedef struct rt_step rt_step;
typedef struct rt_plan rt_plan;

typedef enum rt_home { RT_ARENA, RT_PERSISTENT, RT_STORAGE, RT_INPUT } rt_home;

enum {
    RT_NO_BUFFER = -1,
    RT_SLOTS = 2 /* sets of inputs on a discrete device: one is filled while the other is read */
};
#define RT_NO_VALUE UINT32_MAX

typedef struct rt_buffer {
    rt_home home;
    uint32_t index; /* RT_STORAGE: storage id; RT_INPUT: position among the graph's inputs */
    int64_t bytes;
    int64_t offset; /* RT_ARENA: in the arena, RT_PERSISTENT: in persistent_block; a multiple of the alignment */
    /* RT_ARENA: the steps during which it is in use; -1: before the first, n_steps: after the last */
    int first, last;
} rt_buffer;

/* An operand of a step, or what an effect reads. */
typedef struct rt_use {
    rt_step *step; /* NULL: an effect */
    int slot;      /* which operand, or which effect */
    struct rt_use *prev, *next;
} rt_use;

/* A store or a selected output statement: the value that it reads is needed when all steps are done. */
typedef struct rt_effect {
    const ir_node *node;
    uint32_t value; /* that it reads */
    uint32_t state; /* the storage that it commits to; RT_NO_VALUE: an output */
    rt_use use;
} rt_effect;

/* A value of the graph under the binding, or one that the plan adds to them. */
typedef struct rt_value {
    const ir_value *value; /* which it is or, derived, stands for; NULL: does not occur in this plan */
    bool derived;
    bool channels_last; /* an image [N,C,spatial] that is stored as [N,spatial,C] */
    k_view view;        /* shape and dtype; data NULL */
    uint32_t root;      /* the value whose memory it is a view of, or its own id */
    rt_step *def;       /* that writes it; NULL: a view, storage, an input, or not in this plan */
    int mark;           /* for the stage that runs; 0 at its start */
    const rt_effect *store; /* storage: that commits to it; a root with a buffer: that commits it */
    /* of a root: */
    rt_use *uses; /* of it and of its views: in the order of the steps at the start of a stage, then the effects */
    int buffer;   /* RT_NO_BUFFER: nobody reads it */
    int last_use; /* last step that reads it; n_steps: an output or a commit does; -1: none */
    bool is_output;
} rt_value;

typedef enum rt_step_kind {
    RT_STEP_OP,   /* one op of the op table, perhaps with an epilogue (kernels/epilogue.h) */
    RT_STEP_FUSED /* several ops that work element by element (kernels/program.h) */
} rt_step_kind;

struct rt_step {
    rt_step *prev, *next; /* in the plan */
    int index;            /* position when the stage began; -1: not yet, or no longer in the plan */
    rt_step_kind kind;
    const ir_node *node; /* that it computes, or one of them; names it in errors */
    ir_op op;            /* RT_STEP_OP: which; RT_STEP_FUSED: that of the node */
    const k_kernel *kernel;
    void *state;
    int n_in, n_out; /* views beyond them, up to the slots of the op, are absent */
    uint32_t *in_value, *out_value; /* RT_NO_VALUE: absent */
    k_view *in, *out;
    int *in_buffer, *out_buffer;
    rt_use *uses;       /* by operand */
    ir_attr *attr;      /* DIMS as numbers */
    k_program *program; /* RT_STEP_FUSED: what it computes; RT_STEP_OP: the activation of its epilogue, or NULL */
    size_t workspace_bytes;
    int workspace; /* buffer or RT_NO_BUFFER */
    int batch;     /* steps from this one on that run in one launch; 1: alone */
    int mark;      /* for the stage that runs; 0 at its start */
    bool hoisted;  /* see n_hoisted */
};

typedef struct rt_copy {
    int from, to; /* buffers */
} rt_copy;

typedef struct rt_block rt_block;

typedef struct rt_output {
    const char *name;
    uint32_t value; /* id */
    int buffer;
} rt_output;

/* A set of output statements of a graph. */
typedef struct rt_selection {
    struct rt_selection *next; /* in the session */
    const ir_graph *graph;
    int n;
    const char *names[]; /* those of the statements themselves, in their order */
} rt_selection;

struct rt_plan {
    const ir_graph *graph;
    const rt_selection *selection; /* the outputs that it computes; NULL: all */
    const rt_backend *backend;
    const k_context *ctx;
    int64_t *sizes; /* by symbol */
    size_t n_symbols;
    rt_value *values; /* by value id, derived ones behind those of the graph */
    rt_step *first_step, *last_step; /* the steps as they are now */
    rt_step **steps;                 /* the steps as they were when the stage began */
    rt_effect *effects;              /* in the order of the graph */
    rt_buffer *buffers;
    rt_copy *before, *after; /* snapshots of what outputs and commits need unchanged; commits */
    rt_output *outputs;
    uint32_t n_values, max_values;
    int n_steps, max_steps, n_effects, n_buffers, n_before, n_after, n_outputs;
    bool edited;    /* steps or uses have changed since the stage began */
    int safe_from;  /* steps from here on cannot fail and may write storage */
    int n_hoisted;  /* the first steps: they run only when storage has changed since (hoist_invariants.c) */
    bool has_offsets; /* arena_bytes and the offsets of buffers in the arena are known */
    int64_t arena_bytes, persistent_bytes;
    void *persistent_block; /* device memory; NULL until the session allocates it; freed with the plan */
    int64_t persistent_at;  /* the last change of storage (session_state.h) that its contents reflect; 0: none */
    bool warm;                  /* has run: everything that loads lazily is loaded */
    void *recordings[RT_SLOTS]; /* of a discrete device, by slot of the inputs; NULL: none */
    k_args *calls;              /* room for those of the largest batch */
    rt_block *pool;             /* the memory of steps */
    struct rt_plan *next;       /* in the session's cache */
};

/* ---- making a plan ---- */

typedef struct rt_stage {
    const char *name, *text;
    bool fuses; /* skipped where every op stays a step of its own */
    ampc_status (*run)(rt_plan *p, diag *d);
} rt_stage;
/* The stages in their order, ended by one without a name. */
extern const rt_stage rt_stages[];

/* Sees the plan after each stage; a status other than AMPC_OK, which it has reported, ends the planning. */
typedef struct rt_plan_watch {
    ampc_status (*after)(void *user, const rt_stage *stage, double seconds, const rt_plan *p);
    void *user;
} rt_plan_watch;

/* What to plan. Everything that it points to but `sizes` and `watch` must outlive the plan. */
typedef struct rt_plan_request {
    const ir_graph *graph;
    const rt_selection *selection; /* the outputs to compute; NULL: all */
    const int64_t *sizes;          /* by symbol of the module; -1: unbound */
    const rt_backend *backend;
    const k_context *ctx;          /* kernels are prepared under it */
    /* Ops may become one step: the same bits, but for a rounding left out (kernels/epilogue.h) and the rounding of
     * weight gradients on a backend with low_gradients (fuse_unscaling.c). */
    bool fuse;
    const rt_plan_watch *watch; /* sees the stages; NULL: none */
} rt_plan_request;

ampc_status rt_plan_make(const rt_plan_request *r, diag *d, rt_plan **out);
void rt_plan_free(rt_plan *p); /* NULL allowed */

/* verify.c: whether a plan, perhaps one that is still being made, is consistent: definitions come before uses, use
 * lists are those of the operands, types and layouts agree, buffers are in the arena while they live. A violation is an
 * error of the stage, which no graph can cause: AMPC_REJECTED. */
ampc_status rt_plan_verify(const rt_plan *p, const char *stage, diag *d);

/* ---- reading a plan ---- */

/* The kernel of steps all of whose results are empty, on every device: it does nothing. */
extern const k_kernel rt_idle_kernel;
/* The address of tensors without elements and of workspace of no bytes on every device, so that kernels may compute
 * addresses in them: NULL is what is absent. Nobody reads or writes it. */
extern char rt_nothing[];
/* The address of a buffer, given the arena's base, storage by id and inputs by position. */
void *rt_plan_address(const rt_plan *p, int buffer, char *base, void *const *storage,
                      void *const *inputs);
/* The call of a step as far as the plan knows it: the session sets addresses. */
k_args rt_step_args(const rt_plan *p, const rt_step *s);
/* "matmul", "program". */
const char *rt_step_name(const rt_step *s);
/* The plan as a table (malloc'ed); NULL when memory is exhausted. Of a plan that is still being made (rt_plan_watch),
 * what is known so far. */
char *rt_plan_print(const rt_plan *p);

/* bytes: operands read and results written, each once, whole; workspace and what stays in a cache do not count, nor do
 * absent operands and results that are dropped. flops: of matmuls and convolutions, 2 for a multiply-add; 0 elsewhere.
 * Both 0 for a hoisted step: it does not run again. Known once values have buffers. */
typedef struct rt_cost {
    int64_t bytes, flops;
} rt_cost;
rt_cost rt_step_cost(const rt_plan *p, const rt_step *s);

typedef struct rt_plan_totals {
    int launches;                     /* calls of kernels, where steps of a batch are one */
    int copies;                       /* snapshots and commits, which are not steps */
    int64_t bytes, flops, copy_bytes; /* bytes and flops of the steps; what the copies read and write */
} rt_plan_totals;
rt_plan_totals rt_plan_sum(const rt_plan *p);

#endif
