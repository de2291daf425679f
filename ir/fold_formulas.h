/* fold_formulas.h - the integer formulas of folding, one for each op that has one (fold_integer.c). */
#ifndef AMPC_FOLD_FORMULAS_H
#define AMPC_FOLD_FORMULAS_H

#include "ir/fold.h"

typedef ir_dim fold_int_unary(ir_dim_table *t, ir_dim a);
typedef ir_dim fold_int_binary(ir_dim_table *t, ir_dim a, ir_dim b);

fold_int_unary fold_int_neg, fold_int_abs, fold_int_sign, fold_int_relu, fold_int_not;
fold_int_binary fold_int_add, fold_int_sub, fold_int_mul, fold_int_div, fold_int_pow, fold_int_min, fold_int_max,
    fold_int_mod, fold_int_fmod, fold_int_equal, fold_int_less, fold_int_less_or_equal, fold_int_greater,
    fold_int_greater_or_equal, fold_int_and, fold_int_or, fold_int_xor;

#endif
