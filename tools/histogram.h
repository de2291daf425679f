/* histogram.h - exponents of the values of checked runs, as a plot or a table. */
#ifndef AMPC_TOOLS_HISTOGRAM_H
#define AMPC_TOOLS_HISTOGRAM_H

#include "runtime/inspect/calibration.h"
#include "runtime/inspect/check.h"

typedef struct histogram {
    arena *arena;
    rt_calibration values; /* of all runs */
    strmap *by_name;       /* made by the first value */
} histogram;

/* Adds a float value of a run at this loss scale. */
void histogram_add(histogram *h, const rt_checked *v, const rt_tensor *data, double run_scale);
/* AMPC_USAGE unless the path ends in .svg, .csv or .json. */
ampc_status histogram_check_path(const char *path, diag *d);
ampc_status histogram_write(const rt_calibration *c, const char *path, diag *d);

#endif
