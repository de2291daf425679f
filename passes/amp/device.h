/* device.h - the numbers about a device that the cost model uses, built in or from a description file. */
#ifndef AMPC_DEVICE_H
#define AMPC_DEVICE_H

#include "ir/graph/ir.h"

/* The quantity that placement minimises. */
typedef enum device_measure {
    DEVICE_TIME,      /* predicted time of one run or training step */
    DEVICE_CAST_BYTES /* bytes written by the inserted casts of the forward graph, as counted by --stats */
} device_measure;

typedef struct ir_device {
    const char *name, *text; /* text: a one-sentence description */
    device_measure measure;
    double bandwidth;             /* in bytes per second */
    double launch;                /* overhead of a kernel, in seconds */
    double flops[IR_DTYPE_COUNT]; /* of matrix products and convolutions with operands of that type, per second */
    double storage; /* cost of a byte in a second copy of a constant, as a fraction of the cost of moving it */
    int64_t symbol; /* assumed size of symbolic dimensions */
} ir_device;

/* `name`: a built-in description, or the path of a file with lines "KEY = VALUE" (docs/placement.md); NULL: the first
 * built-in one. Errors include file and line. *out is allocated in the arena. */
ampc_status device_load(const char *name, arena *a, diag *d, const ir_device **out);

extern const ir_device device_table[]; /* terminated by a NULL name */
extern const ir_device
    device_casts; /* no device: counts casts, and weights above 64 KiB that are stored in two types */

#endif
