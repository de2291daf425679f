/* backend.h - the interface of devices to plans and sessions, and the list of devices.
 *
 * A device either works synchronously in host memory, or it is discrete: it has its own memory, and calls enqueue work
 * that it executes asynchronously, in order. Operations that only discrete devices need have a table of their own. */
#ifndef RT_BACKEND_H
#define RT_BACKEND_H

#include "ir/base/diag.h"
#include "kernels/kernel.h"

#ifdef AMPC_WITH_CUDA
#define RT_BACKEND_MAP(X) X(cpu) X(cuda)
#else
#define RT_BACKEND_MAP(X) X(cpu)
#endif

typedef struct rt_device_ops rt_device_ops;

typedef struct rt_backend {
    const char *name;  /* as in --device */
    int64_t alignment; /* of addresses in arena and storage; a power of two */
    /* Opens device number `index` and its libraries for ctx. AMPC_DEVICE, with the reason in ctx->error. */
    ampc_status (*open)(k_context *ctx, int index);
    int (*count)(void); /* the number of devices; NULL: there is one */
    /* What a user must know about the open device; see cpu_notice in kernels/kernel.h. NULL: nothing. */
    bool (*notice)(char *text, size_t size);
    /* Opens a device that is only described (device_file.h), for planning. NULL: the backend has no described
     * devices. */
    ampc_status (*describe)(k_context *ctx, const char *text, int multiprocessors);
    void (*close)(k_context *ctx);
    void (*before_run)(k_context *ctx);              /* called before the steps of a run are issued; NULL: not needed */
    const k_kernel *(*kernel)(ir_op op);             /* NULL: there is no kernel for this op */
    const k_kernel *fused;                           /* executes fused kernels (kernels/fused.h); NULL: none */
    const k_kernel *tails;                           /* see cpu_tails in kernels/kernel.h; NULL: none */
    const k_kernel *grad_update;                     /* see cpu_grad_update in kernels/kernel.h; NULL: none */
    bool (*joins_update)(const k_args *args);        /* see cpu_joins_update in kernels/kernel.h */
    const k_kernel *check_factors;                   /* see cpu_check_factors in kernels/update.h; NULL: none */
    ampc_status (*absorbs)(const k_args *args);      /* cpu_ and cuda_supports_epilogue, kernels/kernel.h */
    bool (*computes)(ir_dtype t);                    /* see cpu_computes in kernels/kernel.h; NULL: all float types */
    double (*speed)(ir_dtype t);                     /* see cpu_speed in kernels/kernel.h; NULL: low types are fast */
    bool (*rounds)(const k_args *args, int operand); /* see cpu_rounds in kernels/kernel.h; NULL: no kernel does */
    bool (*channels_last)(ir_dtype t);               /* whether convolutions of type t are faster in NHWC */
    bool plain_weights; /* convolutions bring weights into a layout of their own, so these stay [M,C,kernel] in NHWC */
    bool pads;          /* products of low types are slow unless the rows of matrices are multiples of 8 elements */
    bool low_gradients; /* matmuls and convolutions write weight gradients fastest in the type of their operands */
    /* Allocates device memory with undefined contents. On failure *out is NULL: AMPC_NO_MEMORY, or AMPC_DEVICE for an
     * earlier fault, with the reason in ctx->error. */
    ampc_status (*alloc)(const k_context *ctx, size_t bytes, void **out);
    void (*free)(const k_context *ctx, void *memory);
    /* Copy within the device. `commit` writes storage and does nothing after a fault (kernels/kernel.h). */
    ampc_status (*copy)(const k_context *ctx, void *dst, const void *src, size_t bytes);
    ampc_status (*commit)(const k_context *ctx, void *dst, const void *src, size_t bytes);
    const rt_device_ops *device_ops; /* NULL: works in host memory */
} rt_backend;

struct rt_device_ops {
    /* Called after all steps have been prepared and before any runs, for work that is done for several kernels at once,
     * such as compiling. */
    ampc_status (*prepared)(const k_context *ctx);
    /* Allocates host memory for asynchronous copies; errors as for alloc. */
    ampc_status (*alloc_host)(const k_context *ctx, size_t bytes, void **out);
    void (*free_host)(const k_context *ctx, void *memory);
    /* Free bytes of the device; 0: unknown. */
    int64_t (*free_bytes)(const k_context *ctx);

    /* Enqueue copies. The host memory must be from alloc_host and must not be touched until a later mark has passed. */
    ampc_status (*upload)(const k_context *ctx, void *dst, const void *src, size_t bytes);
    ampc_status (*download)(const k_context *ctx, void *dst, const void *src, size_t bytes);
    ampc_status (*clear_fault)(const k_context *ctx);
    ampc_status (*download_fault)(const k_context *ctx, int *dst);

    /* Uploads concurrently with the enqueued work, which must not use `dst`. Work enqueued after join_prefetches
     * waits for all of them. */
    ampc_status (*prefetch)(const k_context *ctx, void *dst, const void *src, size_t bytes);
    ampc_status (*join_prefetches)(const k_context *ctx);

    /* A mark is a point in the order of work. The first use creates it, each later one moves it. */
    ampc_status (*mark)(const k_context *ctx, void **mark);
    bool (*passed)(const k_context *ctx, void *mark);
    ampc_status (*wait)(const k_context *ctx, void *mark); /* NULL: wait for all work */
    void (*unmark)(const k_context *ctx, void *mark);      /* NULL allowed */
    /* Like mark, but the mark also records the device's time. In a recording, each replay sets it again. */
    ampc_status (*mark_time)(const k_context *ctx, void **mark);
    /* Milliseconds between two timed marks, both of which must have passed. */
    ampc_status (*elapsed)(const k_context *ctx, void *first, void *last, double *milliseconds);

    /* Profilers show the work enqueued between the two under that name. */
    void (*begin_range)(const k_context *ctx, const char *name);
    void (*end_range)(const k_context *ctx);

    /* Work enqueued between record and finish is recorded instead of executed; replay executes it, with the same
     * addresses. Each record needs a finish; if that fails, *recording is NULL. */
    ampc_status (*record)(const k_context *ctx);
    ampc_status (*finish)(const k_context *ctx, void **recording);
    ampc_status (*replay)(const k_context *ctx, void *recording);
    void (*forget)(const k_context *ctx, void *recording); /* NULL allowed */
};

#define RT_BACKEND_EXTERN(name) extern const rt_backend rt_backend_##name;
RT_BACKEND_MAP(RT_BACKEND_EXTERN)
#undef RT_BACKEND_EXTERN

/* Returns the devices of this build: "cpu, cuda". */
const char *rt_devices(void);
/* Returns the backend whose devices can be described by a file; NULL: this build has none. */
const rt_backend *rt_backend_describable(void);
/* Whether a device, or one that is described by a file of this name, `pads`. */
bool rt_device_pads(const char *device);
/* The low type that makes a device faster: f16, or bf16 on a CPU that is at least a fifth faster in it than in f32;
 * IR_NO_DTYPE: none. *times: products per second in bf16 relative to f32; 0: a CPU without instructions for bf16.
 * Fails if the libraries of a CPU cannot be opened. */
ampc_status rt_device_low_type(const char *device, diag *d, ir_dtype *out, double *times);
/* The type of f32, bf16 and f16 in which the device is fastest, if that is at least a fifth faster than t; IR_NO_DTYPE:
 * none. *times: how many times as fast. Fails likewise. */
ampc_status rt_device_faster_type(const char *device, ir_dtype t, diag *d, ir_dtype *out, double *times);
/* Returns the backend of "NAME" or "NAME:INDEX"; NULL: there is no such device, or the index is malformed. */
const rt_backend *rt_backend_find(const char *device, int *index);

#endif
