/* svg_plot.h - training curves as SVG: loss, and loss scale on a log2 axis, over steps; runs overlaid. */
#ifndef RT_SVG_PLOT_H
#define RT_SVG_PLOT_H

#include "ir/diag.h"
#include "runtime/train/log.h"

typedef struct rt_plot_run {
    const char *name; /* legend; any text, escaped */
    const rt_step *steps;
    size_t count;
} rt_plot_run;

/* Any number of runs and steps, also none; values that are not finite leave gaps. The panel of the loss
 * scale is left out when no run has a scale other than 1. Written atomically. */
ampc_status rt_plot_write(const char *path, const char *title, const rt_plot_run *runs,
                          size_t count, diag *d);

/* The same into memory (malloc, terminated); NULL when memory is exhausted. */
char *rt_plot_render(const char *title, const rt_plot_run *runs, size_t count);

#endif
