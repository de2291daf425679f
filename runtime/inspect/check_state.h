/* check_state.h - a check while it observes; private to check*.c. */
#ifndef RT_CHECK_STATE_H
#define RT_CHECK_STATE_H

#include "runtime/inspect/check.h"

/* What is known of the values of a graph, by id. */
typedef struct known {
    const ir_graph *graph;
    rt_checked *values; /* `value` NULL: not computed yet */
} known;

struct rt_check {
    rt_session *session;
    rt_check_options options;
    known *graphs;
    size_t n_graphs;
    double scale, least; /* the loss scale of the run, and the smallest one; infinite: nothing is excused */
    rt_checked found;    /* `value` NULL: none */
    char place[256];     /* of the sample that has it; "": unknown */
    bool searching;      /* for a loss scale: findings are kept, nothing is called */
};

/* Makes a place for every value of the module's graphs; freed by rt_check_close. */
ampc_status rt_check_reserve(rt_check *c, const ir_module *m, diag *d);
/* The values of a graph, by id. */
rt_checked *rt_check_values(const rt_check *c, const ir_graph *g);

#endif
