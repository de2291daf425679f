/* optimizer_options.h - what --optimizer, --group and --no-decay request. */
#ifndef AMPC_OPTIMIZER_OPTIONS_H
#define AMPC_OPTIMIZER_OPTIONS_H

#include "passes/pass.h"

enum { OPTIMIZER_ATTRS = 8, OPTIMIZER_STATES = 4, OPTIMIZER_SETTINGS = 8 }; /* maximum of any optimizer */

/* Settings that are not attributes of ops; an eps1 of NaN is that of the type. */
enum { ADAFACTOR_BETA2_DECAY, ADAFACTOR_EPS1, ADAFACTOR_EPS2, ADAFACTOR_D };
enum { MUON_WEIGHT_DECAY, MUON_NS_STEPS, MUON_NS_A, MUON_NS_B, MUON_NS_C, MUON_EPS, MUON_ADJUST };
enum { MUON_ORIGINAL, MUON_MATCH_RMS_ADAMW, MUON_SPECTRAL_UNCLAMPED }; /* MUON_ADJUST */

/* What is computed before the op (LARS, Adafactor), or between it and the one that finishes the update (LAMB, Muon). */
typedef enum optimizer_stage {
    OPTIMIZER_NO_STAGE,
    OPTIMIZER_RATIOS,
    OPTIMIZER_ADAFACTOR,
    OPTIMIZER_MUON
} optimizer_stage;

typedef struct optimizer {
    ir_op op;
    ir_op finish; /* applies result 0 of op to the parameter; IR_OP_COUNT: op updates the parameter */
    optimizer_stage stage;
    double lr, lr_factor; /* lr_factor: of the common learning rate */
    double weight_decay;
    double attr[OPTIMIZER_ATTRS];  /* by attribute slot of the op */
    double trust[OPTIMIZER_ATTRS]; /* by attribute slot of trust_ratio */
    double setting[OPTIMIZER_SETTINGS];
    const struct optimizer *rest; /* updates the parameters that this one does not update; NULL: it updates all */
} optimizer;

/* The settings of one parameter. */
typedef struct optimizer_group {
    double lr_factor;
    double weight_decay; /* NaN: that of the optimizer */
    int muon;            /* 0 or 1; -1: as the parameter is */
    bool frozen;
} optimizer_group;

/* text: NAME{,KEY=VALUE}; NULL: sgd. */
ampc_status optimizer_parse(const char *text, arena *a, diag *d, optimizer *out);

/* Checks --group; warns of globs that match no parameter of the module. */
ampc_status optimizer_check_groups(const ir_module *m, const compile_options *o, diag *d);

/* The optimizer of the graph that computes an update from more than one element and norms; NULL: there is none. */
const char *optimizer_mixing(const ir_graph *g);

/* The settings of a parameter: those of the optimizer, changed by each matching --group in turn. The groups have been
 * checked. */
optimizer_group optimizer_group_of(const ir_storage *param, const compile_options *o, arena *a);

#endif
