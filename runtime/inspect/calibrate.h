/* calibrate.h - collects the statistics of calibration.h from runs of a session.
 *
 * Memory does not depend on the number of runs. What a graph computes is told apart by value, the subgraphs of If, Loop
 * and Scan included; a view has the numbers of what it is a view of. */
#ifndef RT_CALIBRATE_H
#define RT_CALIBRATE_H

#include "runtime/data/loader.h"
#include "runtime/inspect/calibration.h"

typedef struct rt_calibrator rt_calibrator;

typedef struct rt_calibrator_options {
    double limit; /* a value with a larger magnitude is looked up in the data, for its place */
    /* Called for the first NaN or infinity of each tensor that does not come from a constant of the model. */
    void (*on_bad)(void *user, diag_loc loc, const char *text);
    void *user;
} rt_calibrator_options;

/* Statistics are in the arena. The calibrator observes the session while it runs. */
ampc_status rt_calibrator_open(rt_session *s, const ir_module *m, const rt_calibrator_options *o, arena *a, diag *d,
                               rt_calibrator **out);
void rt_calibrator_close(rt_calibrator *c); /* NULL allowed */

/* Runs the graph and adds its values: of @infer inputs and results, of @grad what its backward computes. `feed`: of the
 * inputs, for places; NULL: none. */
ampc_status rt_calibrator_run(rt_calibrator *c, const ir_graph *g, const rt_tensor *inputs, int n,
                              const rt_loader *feed, diag *d);
/* Adds the parameters. */
ampc_status rt_calibrator_weights(rt_calibrator *c, diag *d);

/* The tensors so far; the caller sets the other members. Values within subgraphs that repeat those outside are not
 * listed. */
rt_calibration *rt_calibrator_result(rt_calibrator *c);
/* Of a float value of a graph that has run; NULL: it was not computed. */
const rt_calibrated *rt_calibrator_value(const rt_calibrator *c, const ir_value *v);

#endif
