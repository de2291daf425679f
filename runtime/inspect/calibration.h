/* calibration.h - statistics of the tensors of a model, added up over many runs, and the JSON file that holds them
 * (docs/calibration.md). */
#ifndef RT_CALIBRATION_H
#define RT_CALIBRATION_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "ir/ops/exponents.h"

typedef enum rt_calibrated_kind {
    RT_CALIBRATED_WEIGHT,
    RT_CALIBRATED_INPUT,
    RT_CALIBRATED_ACTIVATION,
    RT_CALIBRATED_GRADIENT,
    RT_CALIBRATED_KINDS
} rt_calibrated_kind;
extern const char *const rt_calibrated_kinds[RT_CALIBRATED_KINDS]; /* "weight", "input", .. */

typedef struct rt_calibrated {
    const char *name;      /* of the tensor */
    const char *node, *op; /* that computes it, or the ONNX node that it was lowered from; "" for weights and inputs */
    rt_calibrated_kind kind;
    ir_exponents numbers; /* of gradients: without the loss scale */
    const char *place;    /* of the sample with the largest magnitude, where that is above a limit; NULL: unknown */
} rt_calibrated;

typedef struct rt_calibration {
    const char *model;            /* its file */
    int64_t samples;              /* 0: unknown */
    double scale;                 /* a loss scale that the file shows gradients with as well; a power of two is exact */
    VEC(rt_calibrated *) tensors; /* in the order of computation */
} rt_calibration;

/* The exponent of the loss scale, which only gradients have. */
int rt_calibration_shift(const rt_calibration *c, rt_calibrated_kind kind);

ampc_status rt_calibration_write(const rt_calibration *c, const char *path, diag *d);
/* Everything is in the arena. AMPC_REJECTED if the file is not what rt_calibration_write writes. `large` of
 * rt_calibrated.numbers is derived from the share. */
ampc_status rt_calibration_read(const char *path, arena *a, diag *d, rt_calibration *out);

#endif
