/* trainers.h - which optimizer updates which parameters by which losses. */
#ifndef AMPC_TRAINERS_H
#define AMPC_TRAINERS_H

#include "passes/pass.h"

typedef VEC(ir_trainer) trainer_list;

/* The trainers of the recipe, or else one with the optimizer of the options. */
ampc_status trainers_find(const ir_module *m, const compile_options *o, diag *d, trainer_list *out);
/* The index of the trainer that owns the parameter, or -1. */
int trainers_owner(const trainer_list *t, const ir_storage *param);
/* Fails unless each glob matches a parameter, and no parameter has two owners. */
ampc_status trainers_check(const ir_module *m, const trainer_list *t, diag *d);

/* A line of the recipe, for messages. */
diag_loc recipe_place(const ir_module *m, int line);

#endif
