/* check.h - observes runs of a session and finds the first NaN or infinity, with the ranges that led to it.
 *
 * A value is a finding if it has a NaN, or an infinity that does not come from a constant of the model: masks consist
 * of infinities on purpose, so neither an infinite constant nor what it makes infinite is a finding. */
#ifndef RT_CHECK_H
#define RT_CHECK_H

#include "runtime/data/loader.h"
#include "runtime/inspect/numbers.h"

typedef struct rt_check rt_check;

/* A value of the last run. */
typedef struct rt_checked {
    const ir_value *value;
    const ir_node *node; /* that has computed it; NULL: an input or storage */
    int output;          /* of the node */
    rt_tensor tensor;    /* name, type and shape, without data */
    rt_numbers numbers;  /* floats only; of other types just `count` */
    bool bad;            /* a finding */
    /* A finding in the backward or update of a module with dynamic loss scaling, with the scale above its minimum: the
     * step is skipped and the scale reduced, as intended. */
    bool excused;
} rt_checked;

/* Called for every value; `data` is the value itself. A status other than AMPC_OK ends the run. */
typedef ampc_status rt_check_fn(void *user, const rt_check *c, const rt_checked *v, const rt_tensor *data, diag *d);

typedef struct rt_check_options {
    /* Ends the run with AMPC_NUMERIC, reported, at the first finding that is not excused; storage is then as it was
     * before the run. */
    bool stops;
    bool strict;       /* no finding is excused */
    rt_check_fn *each; /* NULL: none */
    void *user;
    const rt_loader *feed; /* of the inputs, for the places of samples in texts; NULL: none */
} rt_check_options;

/* The smallest loss scale that the module's dynamic loss scaling sets, at least 1; infinite without it. */
double rt_smallest_scale(const ir_module *m);

/* Observes the session until rt_check_close, which must come before the session is closed. */
ampc_status rt_check_open(rt_session *s, const ir_module *m, const rt_check_options *o, diag *d, rt_check **out);
void rt_check_close(rt_check *c);                           /* NULL allowed */
void rt_check_set_feed(rt_check *c, const rt_loader *feed); /* as in the options */

/* The first finding since the check was opened or cleared; the one that is not excused if there is one. NULL: none. */
const rt_checked *rt_check_found(const rt_check *c);
void rt_check_clear(rt_check *c);
/* What is known of a value, or of the value that it is a view of; NULL: it was not computed. */
const rt_checked *rt_check_value(const rt_check *c, const ir_value *v);

/* The loss scale of the last run; 1: none. */
double rt_check_scale(const rt_check *c);

/* Clears the check and runs the graph on the inputs. If the first finding depends on the loss scale and the graph
 * stores nothing, *finite_scale is the largest scale, by halving, without findings, or 0 if there is none; else NAN. A
 * finding is excused only if dynamic scaling may reach that scale. */
ampc_status rt_check_run(rt_check *c, const ir_graph *g, const rt_tensor *inputs, int n, diag *d, double *finite_scale);

/* ---- texts (check_text.c) ---- */

/* The model node that a finding belongs to: that of a cast which the compiler inserted is the node that reads it. Just
 * the file for an input, storage, and other nodes of the compiler, such as those of the loss. */
diag_loc rt_checked_loc(const rt_checked *v);
/* "'y' f16[2,3] of the forward has 2 infinities, otherwise -3 .. 65504; operands: 'x' -1 .. 4, 'w' -600 .. 512" */
void rt_check_describe(const rt_check *c, const rt_checked *v, char *text, size_t n);
extern const char *const rt_phase_names[IR_PHASE_COUNT]; /* "forward", "backward", "update" */

/* ---- explaining a failed run (explain.c) ---- */

/* Reports AMPC_NUMERIC with the formatted text and the first finding of another run of `graph` on these inputs, with
 * the random numbers of the last one; without a finding, the text alone. `feed` is that of rt_check_options. Changes no
 * storage. Overwrites the outputs of earlier runs. */
ampc_status rt_explain_nonfinite(rt_session *s, const ir_module *m, const ir_graph *graph, const rt_tensor *inputs,
                                 int n, const rt_loader *feed, diag *d, const char *format, ...)
    __attribute__((format(printf, 8, 9)));

#endif
