/* svg_plot.h - training curves as SVG: loss, and loss scale on a log2 axis, over steps; or loss over the learning rate.
 * Runs are overlaid. */
#ifndef AMPC_TOOLS_SVG_PLOT_H
#define AMPC_TOOLS_SVG_PLOT_H

#include "ir/base/diag.h"
#include "runtime/train/log.h"

typedef struct plot_run {
    const char *name; /* for the legend; any text */
    const rt_step_record *steps;
    size_t count;
} plot_run;

/* Draws any number of runs and steps, including none; non-finite values leave gaps. The loss scale panel is omitted
 * if every scale is 1. The file is written atomically. */
ampc_status plot_write(const char *path, const char *title, const plot_run *runs, size_t count, diag *d);

/* The loss over the learning rate, on a log10 axis, with a vertical line at the rate `mark` (NAN: none). */
ampc_status plot_write_rates(const char *path, const char *title, const plot_run *runs, size_t count, double mark,
                             diag *d);

/* The first as a malloced string; NULL if memory is exhausted. */
char *plot_render(const char *title, const plot_run *runs, size_t count);

#endif
