/* histogram.h - exponents of the values of checked runs, as a plot or a table. */
#ifndef AMPC_TOOLS_HISTOGRAM_H
#define AMPC_TOOLS_HISTOGRAM_H

#include "runtime/inspect/check.h"
#include "runtime/inspect/exponents.h"

/* The values that are told apart. Those of the update are the gradients again and the weights. */
typedef enum histogram_kind {
    HISTOGRAM_WEIGHT,
    HISTOGRAM_ACTIVATION,
    HISTOGRAM_GRADIENT,
    HISTOGRAM_KINDS
} histogram_kind;

typedef struct histogram_row {
    histogram_kind kind;
    const char *tensor, *node; /* of the module; node "" for weights */
    rt_exponents exponents;    /* of gradients: without the loss scale */
} histogram_row;

typedef struct histogram {
    arena *arena;
    VEC(histogram_row *) rows; /* by tensor, in the order of computation; all runs are added up */
    double scale;              /* the loss scale that files show as well; a power of two is exact */
} histogram;

/* Adds a float value of a run at this loss scale. */
void histogram_add(histogram *h, const rt_checked *v, const rt_tensor *data, double run_scale);
/* AMPC_USAGE unless the path ends in .svg, .csv or .json. */
ampc_status histogram_check_path(const char *path, diag *d);
ampc_status histogram_write(const histogram *h, const char *path, const char *title, diag *d);

#endif
