/* device.h - what passes know of a device: numbers for the cost model, from a description file or built in. */
#ifndef AMPC_DEVICE_H
#define AMPC_DEVICE_H

#include "ir/ir.h"

/* What a plan is measured by. */
typedef enum device_measure {
    DEVICE_TIME,      /* predicted time of one run, or of one training step */
    DEVICE_CAST_BYTES /* bytes that the inserted casts of the forward graph write, as --stats counts them */
} device_measure;

typedef struct ir_device {
    const char *name, *text; /* text: one sentence */
    device_measure measure;
    double bandwidth;             /* bytes a second */
    double launch;                /* seconds that a kernel takes beside its work */
    double flops[IR_DTYPE_COUNT]; /* of matrix products and convolutions that read this type, a second */
    double storage; /* price of a byte in a second copy of a constant: part of that of moving it */
    int64_t symbol; /* the size that a symbol of a dimension counts as */
} ir_device;

/* `name`: a built-in description, or the path of a file with lines "KEY = VALUE" (docs/placement.md); NULL: the
 * default, which is the first built-in one. Errors name file and line. In the arena. */
ampc_status device_load(const char *name, arena *a, diag *d, const ir_device **out);

extern const ir_device device_table[]; /* built in; ends with name NULL */

#endif
