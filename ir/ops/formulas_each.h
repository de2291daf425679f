/* formulas_each.h - formulas_body.h for int64_t and uint64_t, for float if WITH_FLOAT is defined, and for double if
 * WITH_DOUBLE is. CARRIER_BODY, if defined, names a template over REAL that is included with each of them; TOTAL is the
 * type of long sums of REAL there. */
#ifndef CARRIER_BODY
#define CARRIER_BODY "ir/ops/real.h"
#endif

#define REAL_IS_FLOAT
#define TOTAL double
#ifdef WITH_DOUBLE
#define REAL double
#include "ir/ops/formulas_body.h"
#include CARRIER_BODY
#undef REAL
#endif
#ifdef WITH_FLOAT
#define REAL float
#include "ir/ops/formulas_body.h"
#include CARRIER_BODY
#undef REAL
#endif
#undef TOTAL
#undef REAL_IS_FLOAT

#define TOTAL REAL
#define REAL int64_t
#include "ir/ops/formulas_body.h"
#include CARRIER_BODY
#undef REAL

#define REAL_IS_UNSIGNED
#define REAL uint64_t
#include "ir/ops/formulas_body.h"
#include CARRIER_BODY
#undef REAL
#undef REAL_IS_UNSIGNED
#undef TOTAL

#undef WITH_FLOAT
#undef WITH_DOUBLE
#undef CARRIER_BODY
