/* backend.h - what a device offers to plans and sessions, and the one list of devices.
 *
 * A device either works in the host's memory and is done when a call returns, or it is away: it has memory and a
 * time of its own, and calls enqueue work that is done in their order. What only such a device needs is rt_away. */
#ifndef RT_BACKEND_H
#define RT_BACKEND_H

#include "kernels/kernel.h"

#ifdef AMPC_WITH_CUDA
#define RT_BACKEND_MAP(X) X(cpu) X(cuda)
#else
#define RT_BACKEND_MAP(X) X(cpu)
#endif

typedef struct rt_away rt_away;

typedef struct rt_backend {
    const char *name;  /* as in --device */
    int64_t alignment; /* of addresses in arena and storage; a power of two */
    /* Opens device number `index` and its libraries for ctx. AMPC_DEVICE with the reason in ctx->error. */
    ampc_status (*open)(k_context *ctx, int index);
    /* Opens a device that is only described (device_file.h), for planning alone. NULL: not for this kind of device. */
    ampc_status (*describe)(k_context *ctx, const char *text, int multiprocessors);
    void (*close)(k_context *ctx);
    void (*before_run)(k_context *ctx);  /* called before a run is walked; NULL: there is nothing to do */
    const k_kernel *(*kernel)(ir_op op); /* NULL: no kernel runs for this op */
    const k_kernel *program;             /* the kernel of programs (kernels/program.h) */
    ampc_status (*absorbs)(const k_args *args); /* cpu_absorbs, cuda_absorbs in kernels/kernel.h */
    bool (*computes)(ir_dtype t); /* cpu_computes in kernels/kernel.h; NULL: all float types */
    bool (*rounds)(const k_args *args, int operand); /* cpu_rounds in kernels/kernel.h; NULL: no kernel does */
    bool (*channels_last)(ir_dtype t);          /* convolutions of that type are at their best so */
    bool low_gradients; /* matrix products and convolutions write weight gradients best in the type of their operands */
    /* Device memory, contents undefined. AMPC_NO_MEMORY, or AMPC_DEVICE for an earlier fault, with the reason in
     * ctx->error; *out is NULL then. */
    ampc_status (*alloc)(const k_context *ctx, size_t bytes, void **out);
    void (*free)(const k_context *ctx, void *memory);
    /* Within the device. `commit` writes storage, and does nothing after a fault (kernels/kernel.h). */
    ampc_status (*copy)(const k_context *ctx, void *dst, const void *src, size_t bytes);
    ampc_status (*commit)(const k_context *ctx, void *dst, const void *src, size_t bytes);
    const rt_away *away; /* NULL: works in the host's memory */
} rt_backend;

struct rt_away {
    /* How many calls of the op may run as one (1: they may not), and such calls: neighbours in the plan that agree in
     * attributes, types and operands without dimensions, each in memory of its own. */
    int (*together)(ir_op op);
    ampc_status (*run_together)(const k_args *args, int n);
    /* Called when steps have been prepared, before any of them runs: what can be made for several at once. */
    ampc_status (*prepared)(const k_context *ctx);
    /* Host memory that copies may read and write while the host goes on; as alloc. */
    ampc_status (*alloc_host)(const k_context *ctx, size_t bytes, void **out);
    void (*free_host)(const k_context *ctx, void *memory);
    /* Device bytes that are free; 0: not known. */
    int64_t (*room)(const k_context *ctx);

    /* Enqueued; the host's side is alloc_host memory, untouched until a later mark has passed. */
    ampc_status (*upload)(const k_context *ctx, void *dst, const void *src, size_t bytes);
    ampc_status (*download)(const k_context *ctx, void *dst, const void *src, size_t bytes);
    ampc_status (*clear_fault)(const k_context *ctx);
    ampc_status (*download_fault)(const k_context *ctx, int *dst);

    /* Uploads beside the enqueued work, which must not use `dst`; after join_ahead later work waits for all of them. */
    ampc_status (*upload_ahead)(const k_context *ctx, void *dst, const void *src, size_t bytes);
    ampc_status (*join_ahead)(const k_context *ctx);

    /* A mark is a point in the order of work; made on first use, moved by the next. */
    ampc_status (*mark)(const k_context *ctx, void **mark);
    bool (*passed)(const k_context *ctx, void *mark);
    ampc_status (*wait)(const k_context *ctx, void *mark); /* NULL: for everything */
    void (*unmark)(const k_context *ctx, void *mark);      /* NULL allowed */
    /* A mark that notes the device's time, too. Recorded, each replay sets it again. */
    ampc_status (*mark_time)(const k_context *ctx, void **mark);
    /* Milliseconds between two such marks; work must have passed both. */
    ampc_status (*elapsed)(const k_context *ctx, void *first, void *last, double *milliseconds);

    /* Profilers show what is enqueued between the two under that name. */
    void (*begin_range)(const k_context *ctx, const char *name);
    void (*end_range)(const k_context *ctx);

    /* What is enqueued between record and finish is kept instead of done; replay does it, at the same addresses.
     * finish is called after each record; a failure leaves *recording NULL. */
    ampc_status (*record)(const k_context *ctx);
    ampc_status (*finish)(const k_context *ctx, void **recording);
    ampc_status (*replay)(const k_context *ctx, void *recording);
    void (*forget)(const k_context *ctx, void *recording); /* NULL allowed */
};

#define RT_BACKEND_EXTERN(name) extern const rt_backend rt_backend_##name;
RT_BACKEND_MAP(RT_BACKEND_EXTERN)
#undef RT_BACKEND_EXTERN

/* The devices of this build: "cpu, cuda". */
const char *rt_devices(void);
/* The backend whose devices may be described; NULL: this build has none. */
const rt_backend *rt_backend_describable(void);
/* The backend of "NAME" or "NAME:INDEX"; NULL: no such device, or a malformed index. */
const rt_backend *rt_backend_find(const char *device, int *index);

#endif
