/* trainers.h - which optimizer updates which parameters by which losses. */
#ifndef AMPC_TRAINERS_H
#define AMPC_TRAINERS_H

#include "passes/pass.h"

/* An optimizer with its parameters and losses. A module that is not made from a recipe has one, for all of them. */
typedef struct trainer {
    pass_strings globs;
    const char *optimizer; /* as for --optimizer; NULL: the default */
    pass_strings losses;   /* their names; none: the loss of the graph */
    int line;              /* in the recipe; 0: none */
} trainer;

typedef VEC(trainer) trainer_list;

/* The trainers of the recipe, or else one with the optimizer of the options. */
ampc_status trainers_find(const ir_module *m, const compile_options *o, diag *d, trainer_list *out);
/* The index of the trainer that owns the parameter, or -1. */
int trainers_owner(const trainer_list *t, const ir_storage *param);
/* Fails unless each glob matches a parameter, and no parameter has two owners. */
ampc_status trainers_check(const ir_module *m, const trainer_list *t, diag *d);

/* A named loss of the recipe: LOSS as in --loss. */
typedef struct recipe_loss {
    const char *name, *text;
    int line;
} recipe_loss;

typedef VEC(recipe_loss) recipe_losses;
recipe_losses recipe_find_losses(const ir_module *m);
diag_loc recipe_place(const ir_module *m, int line);

#endif
