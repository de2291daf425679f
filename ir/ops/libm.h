/* libm.h - the functions of formulas.def on double, implemented by the C library. Needs K_FORMULA
 * (ir/ops/formulas_body.h). */
#ifndef AMPC_LIBM_H
#define AMPC_LIBM_H

#include "ir/ops/real.h"

#include <math.h>

K_FORMULA double m_exp_double(double x) { return exp(x); }
K_FORMULA double m_decay_double(double x) { return exp(x); }
K_FORMULA double m_log_double(double x) { return log(x); }
K_FORMULA double m_log1p_double(double x) { return log1p(x); }
K_FORMULA double m_tanh_double(double x) { return tanh(x); }
K_FORMULA double m_erf_double(double x) { return erf(x); }
K_FORMULA double m_sqrt_double(double x) { return sqrt(x); }
K_FORMULA double m_floor_double(double x) { return floor(x); }
K_FORMULA double m_ceil_double(double x) { return ceil(x); }
K_FORMULA double m_round_double(double x) { return rint(x); }
K_FORMULA double m_abs_double(double x) { return fabs(x); }
K_FORMULA double m_sin_double(double x) { return sin(x); }
K_FORMULA double m_cos_double(double x) { return cos(x); }
K_FORMULA double m_tan_double(double x) { return tan(x); }
K_FORMULA double m_asin_double(double x) { return asin(x); }
K_FORMULA double m_acos_double(double x) { return acos(x); }
K_FORMULA double m_atan_double(double x) { return atan(x); }
K_FORMULA double m_sinh_double(double x) { return sinh(x); }
K_FORMULA double m_cosh_double(double x) { return cosh(x); }
K_FORMULA double m_asinh_double(double x) { return asinh(x); }
K_FORMULA double m_acosh_double(double x) { return acosh(x); }
K_FORMULA double m_atanh_double(double x) { return atanh(x); }
K_FORMULA double m_pow_double(double x, double y) { return pow(x, y); }
K_FORMULA double m_fmod_double(double x, double y) { return fmod(x, y); }

#define REAL double
#include "ir/ops/gelu_body.h"
#undef REAL

#endif
