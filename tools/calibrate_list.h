/* calibrate_list.h - which lines of a list file keep fp16 from overflowing, from statistics of a run in fp32. */
#ifndef AMPC_TOOLS_CALIBRATE_LIST_H
#define AMPC_TOOLS_CALIBRATE_LIST_H

#include "runtime/inspect/calibrate.h"
#include "tools/run.h"

/* A line of [tensors] or, if the tensor is within one operator or a fused one, of [nodes]. */
typedef struct calibrated_line {
    bool is_node;
    const char *name;
    const rt_calibrated *tensor; /* the tensor that overflows */
    const char *reason;
} calibrated_line;

typedef struct calibrated_list {
    VEC(calibrated_line) lines;
    VEC(const rt_calibrated *) safe; /* overflow in fp16, but are fp32 without a line */
    VEC(const rt_calibrated *) near; /* within a factor 2 of the limit */
    int places;                      /* the lines heal so many parts of the graph without a node in common */
    int nodes;                       /* operators that touch a tensor of the lines */
    int white;                       /* of these, matrix products and convolutions */
    bool heals;                      /* the model compiled with the lines has no such tensor in fp16 */
} calibrated_list;

/* `c` has statistics of the infer graph `g`; `limit` is the largest magnitude that fp16 may have. The model is compiled
 * several times, with the options of `t`, for this program and for other runtimes. */
ampc_status calibrate_lines(const tool *t, const rt_calibrator *c, const ir_graph *g, double limit,
                            calibrated_list *out);

#endif
