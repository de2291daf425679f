/* onednn_version.h - what differs between the versions of oneDNN. Only onednn*.c include it. */
#ifndef AMPC_ONEDNN_VERSION_H
#define AMPC_ONEDNN_VERSION_H

#include "kernels/cpu/onednn.h"

#include <dlfcn.h>
#include <string.h>

/* The layouts of the operands of a primitive; that of the bias is NULL if there is none. */
typedef struct cpu_layouts {
    cpu_layout *x, *w, *bias, *y;
} cpu_layouts;

/* Whether to use this implementation of p. */
typedef bool cpu_dnnl_accept(const_dnnl_primitive_desc_t pd, const cpu_primitive *p);

typedef struct cpu_dnnl_version {
    int major;
    const char *library, *package;
    unsigned fp16; /* bits of the instruction set; 0: this version does not compute in f16 */
    /* Loads the functions that only this version has. Returns the name of one that is missing, or NULL. */
    const char *(*load)(void *library);
    dnnl_status_t (*layout_make)(cpu_layout **out, const cpu_desc *desc, dnnl_data_type_t type);
    dnnl_status_t (*layout_copy)(cpu_layout **out, const cpu_layout *layout);
    void (*layout_free)(cpu_layout *layout);
    dnnl_status_t (*append_tail)(dnnl_post_ops_t ops, cpu_tail tail);
    /* Creates the first descriptor of p that is accepted; dnnl_unimplemented if there is none. */
    dnnl_status_t (*describe)(const cpu_primitive *p, const cpu_layouts *l, const_dnnl_primitive_attr_t attr,
                              cpu_dnnl_accept *accept, dnnl_primitive_desc_t *out);
} cpu_dnnl_version;

/* Loads cpu_dnnl; the result is that of `load` above. */
const char *cpu_dnnl_load(void *library);

/* A step of such a function: sets a function pointer, or returns the name of what is missing. */
#define CPU_DNNL_LOAD(pointer, name) \
    do { \
        void *symbol = dlsym(library, name); \
        if (!symbol) return name; \
        memcpy(&(pointer), &symbol, sizeof symbol); \
    } while (0);

extern const cpu_dnnl_version cpu_onednn_2, cpu_onednn_3;

#endif
