/* lanes.c - vector loops over contiguous carriers (see cpu.h). */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"

#define WITH_REDUCTIONS
#define WITH_FLOAT
#define WITH_DOUBLE
#define CARRIER_BODY "kernels/cpu/lanes_body.h"
#include "ir/ops/formulas_each.h"
