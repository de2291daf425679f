/* backend.h - what a device offers to plans and sessions, and the one list of devices. */
#ifndef RT_BACKEND_H
#define RT_BACKEND_H

#include "kernels/kernel.h"

#define RT_BACKEND_MAP(X) X(cpu)

typedef struct rt_backend {
    const char *name; /* as in --device */
    /* Opens the device and its libraries; may be called again. AMPC_DEVICE with the reason in `error`. */
    ampc_status (*open)(char *error, size_t error_size);
    const k_kernel *(*kernel)(ir_op op); /* NULL: no kernel runs for this op */
    void *(*alloc)(
        size_t bytes); /* 64-byte aligned device memory, contents undefined; NULL: exhausted */
    void (*free)(void *memory);
    void (*copy)(void *dst, const void *src, size_t bytes);   /* within the device */
    void (*upload)(void *dst, const void *src, size_t bytes); /* from host memory */
} rt_backend;

#define RT_BACKEND_EXTERN(name) extern const rt_backend rt_backend_##name;
RT_BACKEND_MAP(RT_BACKEND_EXTERN)
#undef RT_BACKEND_EXTERN

const rt_backend *rt_backend_find(const char *name); /* NULL: no such device */

#endif
