/* tune.h - between the search of tune and what it measures. */
#ifndef TOOLS_TUNE_H
#define TOOLS_TUNE_H

#include "passes/amp/cost.h"
#include "runtime/train/scoring.h"
#include "tools/run.h"

enum { TUNE_PARTS = 4 };

/* A change from fp32: on the samples for choosing, on those held out, and of all, with a margin for their spread. */
typedef struct tune_change {
    double chosen, upper, held;
} tune_change;

typedef struct tune_operator {
    const char *name, *op;
    VEC(pass_price *) prices; /* squared, of its nodes */
    double predicted, measured;
} tune_operator;

typedef struct tune_plan {
    bool *low; /* by operator */
    double predicted;
    int64_t cost;
    tune_change change;
} tune_plan;

typedef struct tuning {
    run_context *c;
    char metric[RT_METRIC_NAME];
    double limit;
    rt_metric_choices metrics; /* none: error or loss */
    rt_dataset *data;
    int64_t choosing, held, runs;
    run_variant f32;
    float **outputs; /* of fp32, by batch and output */
    int64_t *counts; /* of their elements */
    int64_t not_finite;
    double *norms;             /* by output: the mean square of a sample's norm */
    double *difference, *norm; /* squares of the latest run, by output and batch */
    int n_outputs;
    double baseline[TUNE_PARTS + 1];
    VEC(tune_operator) operators;
    VEC(tune_plan) tried;
    strmap *by_name;
    strmap *prices;
    int64_t f32_cost, profile_cost;
    const ir_device *device; /* of the costs */
} tuning;

/* The model as a list, or a budget, has it; `f32`: all in fp32. Every value is rounded to its type, as in other
 * runtimes. */
ampc_status tune_compile(const tuning *t, run_variant *v, const char *list, const pass_budget *budget, bool f32);

bool tune_limits_error(const tuning *t);
/* Runs the samples batch by batch; keeps the outputs of fp32, or compares with them. */
ampc_status tune_run_error(tuning *t, run_variant *v, bool keep, tune_change *out);
/* The metric of parts of the samples for choosing, and of those held out. */
ampc_status tune_run_metric(tuning *t, run_variant *v, double values[TUNE_PARTS + 1]);

/* All in fp32. */
tune_plan tune_new_plan(const tuning *t);
/* The plan as the text of a list. */
const char *tune_list(const tuning *t, const tune_plan *p, bool comments);
/* Compiles the plan as a list, runs it, and notes its cost and change: if it holds the budget, the larger change with
 * and without fusion. */
ampc_status tune_measure(tuning *t, tune_plan *p);
bool tune_holds(const tuning *t, const tune_change *c);

#endif
