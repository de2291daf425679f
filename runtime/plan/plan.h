/* plan.h - an entry graph under one binding of its symbols, as a flat array of steps over one arena.
 *
 *     graph, sizes -> values, steps -> raw gradients -> norms in parts -> layouts -> products -> casts in products
 *     -> what is kept -> epilogues -> programs -> neighbours in order -> buffers -> kernels prepared -> offsets
 *     -> groups
 *
 * Steps begin as the nodes of the graph. Stages between (one file each) rewrite the list: what is decided there needs
 * sizes and what the backend can do, so that the graph stays one node an op and knows nothing of it.
 *
 * A buffer is memory that one or more values hold in turn: a view shares the buffer of what it looks at, and a
 * result may take over the buffer of an operand that dies with the step (trait INPLACE of the op table). Buffers
 * live in the arena, are a storage, or are an input of the run. Workspace of a step is an arena buffer that lives
 * for that step.
 *
 * Storage commits when all steps are done: by a copy, or without one where the new value may be computed in the
 * storage itself. That is allowed only in the tail of the update phase, where every op either computes in place or
 * is no float business (colour KEEP): such kernels cannot fail, so a run that fails has not touched storage. On a
 * device that is away, where an earlier kernel may leave a fault, only ops whose kernels look at it may write there. */
#ifndef RT_PLAN_H
#define RT_PLAN_H

#include "ir/ir.h"
#include "kernels/program.h"
#include "runtime/backend/backend.h"
#include "runtime/session/session.h"

typedef enum rt_home { RT_ARENA, RT_KEPT, RT_STORAGE, RT_INPUT } rt_home;

enum {
    RT_NO_BUFFER = -1,
    RT_SLOTS = 2 /* sets of inputs on an away device: one is filled while the other is read */
};
#define RT_NO_VALUE UINT32_MAX

typedef struct rt_buffer {
    rt_home home;
    uint32_t index; /* RT_STORAGE: storage id; RT_INPUT: position among the graph's inputs */
    int64_t bytes;
    int64_t offset; /* RT_ARENA: in the arena, RT_KEPT: in kept_block; a multiple of the backend's alignment */
    /* RT_ARENA: the steps during which it is taken; -1: before the first, n_steps: after the last */
    int first, last;
} rt_buffer;

/* A store or a selected output statement: what it reads is wanted when all steps are done. */
typedef struct rt_effect {
    const ir_node *node;
    uint32_t value; /* that it reads */
} rt_effect;

/* A value of the graph under the binding, or one that the plan makes beside them. */
typedef struct rt_value {
    const ir_value *value; /* which it is or, derived, stands for; NULL: does not occur in this plan */
    bool derived;
    k_view view;   /* shape and dtype; data NULL */
    uint32_t root; /* the value whose memory it is a view of, or its own id */
    /* of a root: */
    int buffer;   /* RT_NO_BUFFER: not wanted by anyone */
    int last_use; /* last step that reads it; n_steps: an output or a commit does; -1: none */
    bool is_output;
    const rt_effect *store; /* that commits the value, or (storage) that commits to it */
} rt_value;

typedef struct rt_step {
    const ir_node *node; /* that it computes, or one of them; names it in errors */
    ir_op op;            /* of the node; IR_OP_COUNT: the step is a program */
    const k_kernel *kernel;
    void *state;
    int n_in, n_out;     /* views beyond them, up to the slots of the op, are absent */
    uint32_t *in_value, *out_value; /* RT_NO_VALUE: absent */
    k_view *in, *out;
    int *in_buffer, *out_buffer;
    ir_attr *attr;       /* DIMS as numbers */
    k_program *program;  /* see kernels/kernel.h; NULL: none */
    size_t workspace_bytes;
    int workspace; /* buffer or RT_NO_BUFFER */
    int together;  /* steps from this one on that run in one call (plan_group.c); 1: alone */
    bool kept;     /* see n_kept */
} rt_step;

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
    rt_step *steps;
    rt_effect *effects; /* in the order of the graph */
    rt_buffer *buffers;
    rt_copy *before, *after; /* snapshots of what outputs and commits need unchanged; commits */
    rt_output *outputs;
    uint32_t n_values, values_room;
    int n_steps, n_effects, n_buffers, n_before, n_after, n_outputs;
    int safe_from; /* steps from here on cannot fail and may write storage */
    int n_kept;    /* the first steps: they run only when storage has changed since (plan_keep.c) */
    bool has_offsets; /* buffers in the arena have their places: arena_bytes is known */
    int64_t arena_bytes, kept_bytes;
    void *kept_block; /* device memory, kept_bytes; NULL until the session gives it; freed with the plan */
    int64_t kept_at;  /* the last change of storage (session_state.h) that what is kept reflects; 0: none */
    bool warm;                    /* has run: everything that loads lazily is loaded */
    void *recordings[RT_SLOTS];   /* of an away device, by slot of the inputs; NULL: none */
    k_args *calls;         /* room for those of the largest group */
    rt_block *pool;        /* what belongs to steps */
    struct rt_plan *next;  /* in the session's cache */
};

/* Looks at the plan after each stage; a status other than AMPC_OK, which it has reported, ends the planning. */
struct rt_plan_watch {
    ampc_status (*after)(void *user, const char *stage, const rt_plan *p);
    void *user;
};

/* What to plan. Everything that it points to but `sizes` and `watch` must outlive the plan. */
typedef struct rt_plan_request {
    const ir_graph *graph;
    const rt_selection *selection; /* the outputs to compute; NULL: all */
    const int64_t *sizes;          /* by symbol of the module; -1: unbound */
    const rt_backend *backend;
    const k_context *ctx;          /* kernels are prepared under it */
    /* Ops may become one step: the same bits, but for a rounding left out (kernels/epilogue.h) and the rounding of
     * weight gradients on a backend with low_gradients (plan_update.c). */
    bool fuse;
    const rt_plan_watch *watch; /* NULL: nobody watches the stages */
} rt_plan_request;

ampc_status rt_plan_make(const rt_plan_request *r, diag *d, rt_plan **out);
void rt_plan_free(rt_plan *p); /* NULL allowed */

/* Of steps all of whose results are empty, on every device: it does nothing. */
extern const k_kernel rt_idle_kernel;
/* Where tensors without elements and workspace of no bytes lie on every device, so that kernels may compute addresses
 * in them: NULL is what is absent. Nobody reads or writes it. */
extern char rt_nothing[];
/* Where a buffer is, given the arena's base, storage by id and inputs by position. */
void *rt_plan_address(const rt_plan *p, int buffer, char *base, void *const *storage,
                      void *const *inputs);
/* The call of a step as far as the plan knows it: the session sets addresses. */
k_args rt_step_args(const rt_plan *p, const rt_step *s);
/* "matmul", "program". */
const char *rt_step_name(const rt_step *s);
/* The plan as a table (malloc'ed); NULL when memory is exhausted. Of a plan that is still being made (rt_plan_watch),
 * what is known so far. */
char *rt_plan_print(const rt_plan *p);
/* The names of the stages in their order; NULL behind the last. */
const char *rt_plan_stage(int i);

/* ---- plan_cost.c: what one run of the plan moves and computes ---- */

/* bytes: operands read and results written, each once, whole; workspace and what stays in a cache do not count, nor do
 * absent operands and results that are dropped. flops: of matmuls and convolutions, 2 for a multiply-add; 0 elsewhere.
 * Both 0 for a step whose results are kept: it does not run again. Known once values have buffers. */
typedef struct rt_cost {
    int64_t bytes, flops;
} rt_cost;
rt_cost rt_step_cost(const rt_plan *p, const rt_step *s);

typedef struct rt_plan_totals {
    int launches;                    /* calls of kernels, where steps that run together are one */
    int copies;                      /* snapshots and commits, which are not steps */
    int64_t bytes, flops, copy_bytes; /* bytes and flops of the steps; what the copies read and write */
} rt_plan_totals;
rt_plan_totals rt_plan_sum(const rt_plan *p);

/* ---- between the files of the plan ---- */

/* Zeroed memory that lives as long as the plan; NULL: out of memory. */
void *rt_plan_take(rt_plan *p, size_t count, size_t size);
/* A step of n_in operands and n_out results that are still absent, with room for the slots of the op. False: out of
 * memory. */
bool rt_step_make(rt_plan *p, rt_step *s, const ir_node *node, ir_op op, int n_in, int n_out);
void rt_step_read(const rt_plan *p, rt_step *s, int i, uint32_t value);
void rt_step_write(const rt_plan *p, rt_step *s, int i, uint32_t value);
bool rt_step_has(const rt_step *s, unsigned trait);
/* More operands or results, absent so far, behind the slots of the op (kernels/update.h). False: out of memory. */
bool rt_step_widen(rt_plan *p, rt_step *s, int n_in, int n_out);
/* The first step of the tail of the plan in which no step can fail. */
int rt_plan_safe_from(const rt_plan *p);
/* A value beside those of the graph that stands for `of`, with memory of its own; RT_NO_VALUE: out of memory. */
uint32_t rt_plan_derive(rt_plan *p, uint32_t of, const k_view *view);

/* By root value, as the list of steps stands: the step that makes it, or -1; how many operands of steps and effects
 * read it. The caller's, freed by rt_free; NULL: out of memory. */
int *rt_plan_makers(const rt_plan *p);
int *rt_plan_readers(const rt_plan *p);

/* No pass over memory unscales the gradients of a training step, and products make them in a low type where the backend
 * prefers it. False: out of memory. */
bool rt_plan_update(rt_plan *p);
/* Batch normalisation leaves to programs what they can do of it. False: out of memory. */
bool rt_plan_split_norms(rt_plan *p);
/* Images lie channels last between the ops that prefer it. False: out of memory. */
bool rt_plan_lay_out(rt_plan *p);
/* Convolutions by kernels of one element become products. False: out of memory. */
bool rt_plan_find_products(rt_plan *p);
/* Products round storage and inputs themselves, where that costs nothing. False: out of memory. */
bool rt_plan_round(rt_plan *p);
/* What depends on parameters alone is computed once and kept. False: out of memory. */
bool rt_plan_keep(rt_plan *p);
/* Matmuls take what follows them into their epilogues. A failure is the device's, with its reason in ctx->error, or
 * AMPC_NO_MEMORY. */
ampc_status rt_plan_absorb(rt_plan *p);
/* Runs of ops that work element by element become programs. False: out of memory. */
bool rt_plan_fuse(rt_plan *p);
/* Steps that an away device could run in one call stand together. False: out of memory. */
bool rt_plan_gather(rt_plan *p);
/* Decides on buffers: views, in-place results, storage written directly, snapshots and commits. False: out of
 * memory. */
bool rt_plan_place(rt_plan *p);
/* Gives the arena buffers their offsets (plan_pack.c). False: out of memory. */
bool rt_plan_pack(rt_plan *p);
/* To a multiple of the backend's alignment. */
static inline int64_t rt_plan_rounded(const rt_plan *p, int64_t bytes)
{
    return (bytes + p->backend->alignment - 1) & -p->backend->alignment;
}
int rt_plan_add_buffer(rt_plan *p, rt_buffer b);
/* Decides which steps run together. False: out of memory. */
bool rt_plan_group(rt_plan *p);

#endif
