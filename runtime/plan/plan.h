/* plan.h - an entry graph compiled for given sizes and a device: steps, and the buffers they use.
 *
 * The stages of stages.def make a plan: the first turns nodes into steps, the others rewrite the list. Their decisions
 * depend on sizes and on what the backend supports, which is why the graph keeps one node per op and is independent of
 * them. Stages change steps only through plan_edit.h, which keeps definitions and uses up to date.
 *
 * A buffer is memory that one or more values use in turn: a view shares the buffer of its root, and a result may
 * overwrite the buffer of an operand whose last use is this step (trait INPLACE of the op table). A buffer is part of
 * the arena or of the persistent block, is a storage, or is an input of the run. A buffer in the arena may be a part of
 * another one: operands of a concat are computed in its result (concat_parts.c). The workspace of a step is an arena
 * buffer that is live only during that step. Packs (pack_weights.c) are outside of plans, which share them.
 *
 * Storage is committed after all steps: by a copy or, if the new value may be computed directly in the storage, without
 * one. Direct writes are allowed only in the tail of the update phase, in which every op either works in place or does
 * no float arithmetic (colour KEEP): such kernels cannot fail, so a run that fails has not touched storage. On a
 * discrete device, where an earlier kernel may have left a fault, only kernels that check for faults may write
 * directly.
 *
 * A graph with sizes that depend on data has a plan for each of its parts (parts.h). Values that a later part needs
 * are carried: they are kept like outputs, and are in memory like inputs in the plans that read them.
 *
 * A plan that has been made never changes, so sessions share it. What a run needs is an execution of the plan
 * (runtime/session/execution.h). */
#ifndef RT_PLAN_H
#define RT_PLAN_H

#include "ir/graph/parts.h"
#include "ir/base/pipeline.h"
#include "kernels/fused.h"
#include "runtime/backend/backend.h"

typedef struct rt_step rt_step;
typedef struct rt_plan rt_plan;
typedef struct rt_plan_request rt_plan_request;

typedef enum rt_home { RT_ARENA, RT_PERSISTENT, RT_STORAGE, RT_INPUT, RT_CARRIED, RT_PACK } rt_home;

enum { RT_NO_BUFFER = -1, RT_NO_PACK = -1 };
#define RT_NO_VALUE UINT32_MAX

typedef struct rt_buffer {
    rt_home home;
    /* RT_STORAGE: storage id; RT_INPUT: position among the graph's inputs; RT_CARRIED, RT_PACK: position in `carried`
     * or `packs` */
    uint32_t index;
    int64_t bytes;
    int64_t
        offset; /* in the arena (RT_ARENA) or in the persistent block (RT_PERSISTENT); a multiple of the alignment */
    /* RT_ARENA: the live range, as positions of steps; -1: before the first step, n_steps: after the last */
    int first, last;
    /* A part of another buffer, `whole`, which is not a part: `at` is its position there. */
    bool is_part;
    int whole;
    int64_t at;
} rt_buffer;

/* An operand of a step, or the value that an effect reads. */
typedef struct rt_use {
    rt_step *step; /* NULL: an effect */
    int slot;      /* operand index, or index into `effects` */
    struct rt_use *prev, *next;
} rt_use;

/* A store, a selected output statement, or a value that a later part needs. Its value is needed after all steps. */
typedef struct rt_effect {
    const ir_node *node; /* the statement, or the definition of the value that a later part needs */
    uint32_t value;      /* the value to store or output */
    uint32_t state;      /* the storage to commit to; RT_NO_VALUE: an output */
    uint32_t carries;    /* the graph value that a later part needs; RT_NO_VALUE: a statement */
    rt_use use;
} rt_effect;

/* A value of the graph with its sizes, or a value that a stage has added. */
typedef struct rt_value {
    const ir_value *value; /* the graph value that it is or, if derived, stands for; NULL: unused in this plan */
    bool derived;
    bool carried;           /* defined by an earlier part */
    bool counted;           /* by a fused step, in a plan that counts */
    bool channels_last;     /* an image [N,C,spatial] stored as [N,spatial,C] */
    bool invariant;         /* of a root: changes only if storage is written (hoist_invariants.c) */
    k_view view;            /* shape and dtype; data is NULL */
    uint32_t root;          /* the value whose memory it is a view of, or its own id */
    rt_step *def;           /* the step that writes it; NULL: a view, storage, an input, or unused in this plan */
    int mark;               /* scratch space of the current stage; 0 when a stage begins */
    int64_t part_at;        /* of a part of the result of a concat: where it begins, in bytes (concat_parts.c) */
    const rt_effect *store; /* the effect that commits to this storage, or that commits this result */
    /* For roots only: */
    rt_use *uses; /* of the value and its views; in step order when a stage begins, effects last */
    int buffer;   /* RT_NO_BUFFER: unused, or not assigned yet */
    int last_use; /* the last step that reads it; n_steps: an output or commit reads it; -1: none */
    bool is_output;
} rt_value;

typedef enum rt_step_kind {
    RT_STEP_OP,    /* one op of the op table, possibly with an epilogue (kernels/epilogue.h) */
    RT_STEP_FUSED, /* several elementwise ops in one fused kernel (kernels/fused.h) */
    RT_STEP_PACK   /* brings a value into the format of the result's view (pack_weights.c) */
} rt_step_kind;

/* A region that a step runs: a plan of its own, whose arena is at the start of the step's workspace. */
typedef struct rt_body {
    const ir_region *region;
    rt_plan *plan; /* NULL before plan_subgraphs */
    int *operand;  /* by input: the operand that it captures; -1: the op passes it */
    int *own;      /* the positions of the inputs that the op passes */
    int n_own;
} rt_body;

/* What an `if` or `loop` runs (control.c), executed by session_control.c. */
typedef struct rt_control {
    rt_body bodies[2]; /* then_branch and else_branch, or body */
    int n_bodies;
    bool repeats; /* a loop */
    int *result;  /* by output of the bodies: the result of the step, or -1 */
    /* of a loop: */
    ir_loop_form form;
    int64_t fixed_at;             /* in the workspace: iteration number and condition */
    int64_t *state_at, *slice_at; /* by carried or scanned value: its place in the workspace, -1: in the result */
} rt_control;

struct rt_step {
    rt_step *prev, *next; /* in the list of steps */
    int index;            /* position when the stage began; -1: inserted since, or removed */
    rt_step_kind kind;
    const ir_node *node; /* the node that it computes, or one of them; named in errors */
    ir_op op;            /* that of `node` for RT_STEP_FUSED; of the reader for RT_STEP_PACK */
    const k_kernel *kernel;
    void *state;
    int n_in, n_out;                /* further views, up to the slots of the op, are absent */
    int listed;                     /* as in k_args */
    uint32_t *in_value, *out_value; /* RT_NO_VALUE: absent */
    k_view *in, *out;
    int64_t *in_at, *out_at; /* where a view with strides begins in the memory of its value, in bytes; else 0 */
    int *in_buffer, *out_buffer;
    rt_use *uses;        /* by operand */
    ir_attr *attr;       /* by slot; DIMS are evaluated to numbers */
    k_fused *fused;      /* RT_STEP_FUSED: the fused kernel; RT_STEP_OP: the activation of its epilogue, or NULL */
    rt_control *control; /* of a step that runs subgraphs instead of a kernel; NULL before plan_subgraphs */
    size_t workspace_bytes;
    int workspace; /* a buffer or RT_NO_BUFFER */
    int batch;     /* number of steps that share one launch, starting with this one; 1: alone */
    int mark;      /* scratch space of the current stage; 0 when a stage begins */
    bool hoisted;  /* see rt_plan.n_hoisted */
    int pack;      /* RT_STEP_PACK of a storage: position in rt_plan.packs; else RT_NO_PACK */
};

typedef struct rt_copy {
    int from, to; /* buffers */
} rt_copy;

/* A storage in the format of a kernel. Equal packs are in the same memory. */
typedef struct rt_pack {
    uint32_t storage;
    ir_dtype type; /* that the elements are rounded to */
    const k_format *format;
} rt_pack;

typedef struct rt_block rt_block;

typedef struct rt_output {
    const char *name; /* NULL: a later part needs it */
    uint32_t value;   /* value id */
    uint32_t carries; /* as in rt_effect */
    int buffer;
} rt_output;

/* A set of output statements of one graph. */
typedef struct rt_selection {
    struct rt_selection *next; /* in the list of all selections */
    const ir_graph *graph;
    int n;
    const char *names[]; /* the statements' own strings, in graph order */
} rt_selection;

struct rt_plan {
    const ir_graph *graph;
    const rt_selection *selection; /* the outputs to compute; NULL: all */
    const rt_backend *backend;
    const k_context *ctx;  /* under which kernels are prepared; NULL: the plan has been made */
    const ir_parts *parts; /* of the graph; NULL: it has only one */
    int part;              /* the part that this plan runs */
    int64_t *sizes;        /* by symbol */
    size_t n_symbols;
    uint32_t *carried;               /* the root values that earlier parts define and this one reads */
    rt_value *values;                /* by value id; derived values follow those of the graph */
    rt_step *first_step, *last_step; /* the current list */
    rt_step **steps;                 /* the steps in order when the stage began */
    rt_effect *effects;              /* in graph order */
    rt_buffer *buffers;
    rt_copy *before, *after; /* before: snapshots of values that outputs and commits need unchanged; after: commits */
    rt_output *outputs;
    uint32_t n_values, max_values;
    int n_steps, max_steps, n_effects, n_buffers, n_before, n_after, n_outputs, n_carried;
    bool fuse, no_pack, nested, observed, counted; /* of the request */
    bool reads_host; /* some step reads a condition on the host, so runs cannot be recorded */
    bool edited;     /* steps or uses have changed since the stage began */
    int safe_from;   /* steps from this one on cannot fail and may write storage */
    int *joins;      /* join_collectives.c; NULL: no step is joined */
    int n_hoisted;   /* the first n_hoisted steps run only if storage has changed since (hoist_invariants.c) */
    int n_packs;     /* the first n_packs of them fill the packs of storage, in order */
    rt_pack *packs;
    bool has_offsets; /* arena_bytes and the arena offsets of buffers are valid */
    int64_t arena_bytes, persistent_bytes;
    int max_batch, max_views; /* the largest launch: number of its steps, and of their views (rt_step_views) */
    rt_block *pool;           /* blocks of rt_plan_alloc */
};

/* ---- making a plan ---- */

/* When a stage runs: RT_FUSING is skipped if every op remains a separate step, RT_COUNTING unless the plan counts. */
typedef enum rt_when { RT_ALWAYS, RT_FUSING, RT_COUNTING } rt_when;

typedef struct rt_stage {
    const char *name, *text;
    rt_when when;
    ampc_status (*run)(rt_plan *p, diag *d);
} rt_stage;
/* The stages in order, terminated by a row without a name. */
extern const rt_stage rt_stages[];

/* What to plan. All pointers except `sizes`, `ctx` and `pipeline` must stay valid for the lifetime of the plan. */
struct rt_plan_request {
    const ir_graph *graph;
    const rt_selection *selection; /* the outputs to compute; NULL: all */
    const int64_t *sizes;          /* by symbol of the module; -1: unbound */
    const ir_parts *parts;         /* of the graph; NULL: it has only one */
    int part;
    const rt_backend *backend;
    const k_context *ctx; /* the context under which kernels are prepared; only used while the plan is made */
    /* Whether stages may combine ops into one step. Fused kernels keep the bits of their ops; layouts, matmuls,
     * epilogues, folded and split normalisations change the order of operations and omit roundings to a low type, and
     * weight gradients are rounded on a backend with low_gradients (fuse_unscaling.c). */
    bool fuse;
    bool no_pack; /* weights stay as they are (pack_weights.c) */
    bool nested;  /* the graph is a subgraph: nothing is hoisted, because every run of the step runs all of it */
    /* No result overwrites an operand, and storage changes only after all steps, so that an observer sees the operands
     * of a step after it, and can stop the run. Not with `fuse`. */
    bool observed;
    /* With `observed`: elementwise ops and normalisations are fused, with the same bits, and count their values; the
     * observer sees the others. Only where kernels run in host memory. */
    bool counted;
    const pipeline_options *pipeline; /* NULL: stages are verified in assertion builds, nothing is printed */
};

/* Makes a plan, which the caller frees with rt_plan_free. On failure the error is reported and *out is unchanged. */
ampc_status rt_plan_make(const rt_plan_request *r, diag *d, rt_plan **out);
void rt_plan_free(rt_plan *p); /* NULL allowed */

/* Checks that a plan, finished or unfinished, is consistent: definitions precede uses, use lists match the operands,
 * types and layouts agree, and arena buffers are live where they are used. A violation is a bug in `stage` that no
 * graph can cause; it is reported as AMPC_REJECTED. */
ampc_status rt_plan_verify(const rt_plan *p, const char *stage, diag *d);

/* ---- reading a plan ---- */

/* The axis of scanned operand or stacked result i of a loop, from that attribute. */
int rt_loop_axis(const rt_step *s, int attr, int i, int rank);

/* The no-op kernel of steps that write no elements, on every device. */
extern const k_kernel rt_idle_kernel;
/* The memory of empty buffers, and of what has no address yet or needs none. */
extern char rt_placeholder[];
/* The value of the graph whose memory holds v, a view of it or rows that a trim has cut from it. */
const ir_value *rt_plan_source(const ir_value *v);
/* Returns the arguments of a step's kernel, without addresses. */
k_args rt_step_args(const rt_plan *p, const rt_step *s);
/* The number of views that kernels may look at: operands and results, up to the slots of the op. */
static inline int rt_step_operands(const rt_step *s)
{
    const int slots = s->kind == RT_STEP_FUSED ? 0 : ir_op_get(s->op)->n_in;
    return s->n_in > slots ? s->n_in : slots;
}
static inline int rt_step_results(const rt_step *s)
{
    const int slots = s->kind == RT_STEP_FUSED ? 0 : ir_op_get(s->op)->n_out;
    return s->n_out > slots ? s->n_out : slots;
}
static inline int rt_step_views(const rt_step *s) { return rt_step_operands(s) + rt_step_results(s); }
const char *rt_step_name(const rt_step *s);
/* Returns the plan as a table, which the caller frees, or NULL if out of memory. The table of an unfinished
 * plan omits what is not known yet. */
char *rt_plan_print(const rt_plan *p);

/* The cost of a step, valid once values have buffers. bytes: operands read plus results written, each counted once and
 * in full, or the part that the step reads or writes (chain_concats.c); workspace, absent operands and dropped results
 * do not count, and caches are not modelled. flops: of matmuls, convolutions and their gradients, 2 per multiply-add; 0
 * for other steps. Both are 0 for a hoisted step, which does not run again. */
typedef struct rt_cost {
    int64_t bytes, flops;
} rt_cost;
rt_cost rt_step_cost(const rt_plan *p, const rt_step *s);

typedef struct rt_plan_totals {
    int launches;                     /* kernel launches; a batch counts as one */
    int copies;                       /* snapshots and commits, which are not steps */
    int64_t bytes, flops, copy_bytes; /* bytes and flops of the steps; bytes that the copies read and write */
} rt_plan_totals;
rt_plan_totals rt_plan_sum(const rt_plan *p);
/* The memory of the packs that the plan of part `part` reads and none of the parts before it. */
int64_t rt_plan_pack_bytes(const rt_plan *const *parts, int part);

#endif
