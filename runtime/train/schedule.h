/* schedule.h - the learning rate as a function of the accepted steps, so skipped steps do not change it.
 *
 *   constant                          lr
 *   linear[,end=E]                    linear from lr to E (default 0)
 *   cosine[,end=E]                    E + (lr - E) * (1 + cos(pi * u)) / 2
 *   step[,every=N][,factor=F]         lr * F^floor(t / N); default F 0.1, N a third of the steps
 *
 * All of them accept `warmup=W`: the rate of the first W steps rises linearly, lr/W, 2*lr/W, .. lr, and the curve
 * begins after them; t counts from there, and u is t divided by the number of remaining steps. */
#ifndef RT_SCHEDULE_H
#define RT_SCHEDULE_H

#include "ir/diag.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum rt_schedule_kind {
    RT_SCHEDULE_CONSTANT,
    RT_SCHEDULE_LINEAR,
    RT_SCHEDULE_COSINE,
    RT_SCHEDULE_STEP
} rt_schedule_kind;

typedef struct rt_schedule {
    rt_schedule_kind kind;
    double lr;
    double end;
    double factor;
    int64_t warmup, every; /* every 0: a third of `steps` after the warm-up */
    int64_t steps;         /* of the entire run; linear and cosine stay at `end` afterwards */
} rt_schedule;

enum { RT_SCHEDULE_TEXT = 256 };

/* `text` NULL: constant. Fails with AMPC_USAGE for an unknown name, key or number. */
ampc_status rt_schedule_parse(const char *text, double lr, int64_t steps, diag *d, rt_schedule *out);
/* The rate of the step after `accepted` accepted ones. */
double rt_schedule_rate(const rt_schedule *s, int64_t accepted);
/* True if the rate is the same for all steps. */
bool rt_schedule_is_constant(const rt_schedule *s);
/* Prints all parameters in one line: "cosine,lr=0.1,end=0,warmup=100,steps=4680". Schedules with equal text are
 * equal. NUL-terminated. */
void rt_schedule_print(const rt_schedule *s, char text[RT_SCHEDULE_TEXT]);

#endif
