/* resample.h - arguments of the kernels in resample.cu. */
#ifndef AMPC_CUDA_RESAMPLE_H
#define AMPC_CUDA_RESAMPLE_H

#ifndef __cplusplus
#include "kernels/resizing.h"
#else
#include "kernels/resample.h"
#endif

enum {
    RESAMPLE_BLOCK = 256,
    RESAMPLE_AXES = 12,    /* IR_MAX_RANK */
    RESAMPLE_GROUP = 3,    /* axes that one launch resizes */
    RESAMPLE_MAX_TAPS = 64 /* per result in one launch, unless one axis has more */
};

/* A table: result o combines `counts` elements from `starts` on, with weights [out][taps]. */
typedef struct resample_taps {
    int *starts, *counts;
    float *weights;
    long long out;
    int taps;
} resample_taps;

/* The tables of some axes; `users` are those of the transposes. */
typedef struct resample_tables {
    int n;
    resample_axis axes[RESAMPLE_AXES];
    resample_taps forward[RESAMPLE_AXES], users[RESAMPLE_AXES];
} resample_tables;

/* One axis of a launch and the copied axes after it (`inner` elements); `taps.starts` NULL: copied. */
typedef struct resample_dim {
    resample_taps taps;
    long long in, inner;
} resample_dim;

typedef struct resample_pass {
    const void *x;
    void *y;
    int x_dtype, y_dtype;
    float outside;
    long long outside_integer;
    long long count; /* of results */
    resample_dim dims[RESAMPLE_GROUP];
} resample_pass;

#endif
