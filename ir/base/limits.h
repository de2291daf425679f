/* limits.h - minimum and maximum of numbers that users can set, where ir/base/options.def does not have them. Each is a
 * pair for use in initializers and calls. */
#ifndef AMPC_LIMITS_H
#define AMPC_LIMITS_H

/* compiling */
#define LIMITS_LOSS_SCALE 1e-30, 1e32 /* times the largest accumulate, finite in f32 */
#define LIMITS_INCR_RATIO 1, 1e6
#define LIMITS_DECR_RATIO 1e-6, 1
#define LIMITS_EVERY_N 1, 1e9 /* steps before the loss scale changes */
#define LIMITS_WEIGHT_DECAY 0, 1e6
#define LIMITS_MOMENTUM 0, 1
#define LIMITS_BETA 0, 0.9999999999 /* less than 1 because Adam divides by 1 - beta^t */
#define LIMITS_EPS 0, 1
#define LIMITS_LOSS_WEIGHT -1e6, 1e6
#define LIMITS_AXIS -8, 7
#define LIMITS_LABEL -9007199254740992, 9007199254740992 /* exact in a double */
#define LIMITS_SHARE 0, 1
#define LIMITS_CLASS 0, 1e9
#define LIMITS_NOT_NEGATIVE 0, 1e6
#define LIMITS_POSITIVE 1e-6, 1e6
#define LIMITS_OPTIONAL_SHARE -1, 1 /* negative: none */
#define LIMITS_LR_DECAY 0, 1e6
#define LIMITS_MEAN -1e6, 1e6      /* of an input that is normalised */
#define LIMITS_PENALTY 1e-30, 1e30 /* weight of the penalty of the gradient */
#define LIMITS_PENALTY_TARGET 0, 1e30
/* running */
#define LIMITS_RATE 0, 1e6
#define LIMITS_BATCH 1, 1e9
#define LIMITS_MOST_STEPS 1e15
#define LIMITS_STEPS 1, LIMITS_MOST_STEPS
#define LIMITS_WORKERS -1, 256 /* threads that read data; negative: none */
#define LIMITS_PATIENCE 1, 1e9 /* evaluations */
#define LIMITS_MIN_DELTA 0, 1e30

/* False for NaN. */
static inline int is_within(double v, double low, double high) { return v >= low && v <= high; }

#endif
