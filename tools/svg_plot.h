/* svg_plot.h - training curves as SVG: loss, and loss scale on a log2 axis, over steps; runs overlaid. */
#ifndef AMPC_TOOLS_SVG_PLOT_H
#define AMPC_TOOLS_SVG_PLOT_H

#include "ir/diag.h"
#include "runtime/train/log.h"

typedef struct plot_run {
    const char *name; /* legend; any text, escaped */
    const rt_step *steps;
    size_t count;
} plot_run;

/* Any number of runs and steps, including none; values that are not finite leave gaps. The loss scale panel is left
 * out if no run has a scale other than 1. Written atomically. */
ampc_status plot_write(const char *path, const char *title, const plot_run *runs,
                          size_t count, diag *d);

/* The same as a string (malloc); NULL if out of memory. */
char *plot_render(const char *title, const plot_run *runs, size_t count);

#endif
