/* lanes.c - vector loops over contiguous carriers (see cpu.h). */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"
#include "ir/real.h"

#define WITH_REDUCTIONS
#define LOWEST (-INFINITY)
#define HIGHEST INFINITY
#define REAL_IS_FLOAT
#define TOTAL double
#define REAL double
#include "ir/formulas_body.h"
#include "kernels/cpu/lanes_body.h"
#include "kernels/cpu/lanes_fold.h"
#undef REAL
#define REAL float
#include "ir/formulas_body.h"
#include "kernels/cpu/lanes_body.h"
#include "kernels/cpu/lanes_fold.h"
#undef REAL
#undef TOTAL
#undef REAL_IS_FLOAT
#undef LOWEST
#undef HIGHEST
#define LOWEST INT64_MIN
#define HIGHEST INT64_MAX
#define TOTAL int64_t
#define REAL int64_t
#include "ir/formulas_body.h"
#include "kernels/cpu/lanes_fold.h"
#undef REAL
#undef TOTAL
#undef LOWEST
#undef HIGHEST
#define LOWEST 0
#define HIGHEST UINT64_MAX
#define REAL_IS_UNSIGNED
#define TOTAL uint64_t
#define REAL uint64_t
#include "ir/formulas_body.h"
#include "kernels/cpu/lanes_fold.h"
