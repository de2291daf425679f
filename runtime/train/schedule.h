/* schedule.h - the learning rate as a function of the accepted steps, so that a skipped step moves nothing.
 *
 *   constant                          lr
 *   linear[,end=E]                    straight from lr to E (default 0)
 *   cosine[,end=E]                    E + (lr - E) * (1 + cos(pi * u)) / 2
 *   step[,every=N][,factor=F]         lr * F^floor(t / N); default F 0.1, N a third of the steps
 *
 * Any of them takes `warmup=W`: the first W steps rise in equal parts, lr/W, 2*lr/W, .. lr, and the curve
 * begins after them; t counts from there, and u is t over the steps that are left. */
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
    int64_t steps;         /* of the whole run; linear and cosine stay at `end` afterwards */
} rt_schedule;

enum { RT_SCHEDULE_TEXT = 256 };

/* `text` NULL: constant. AMPC_USAGE for an unknown name, key or number. */
ampc_status rt_schedule_parse(const char *text, double lr, int64_t steps, diag *d,
                              rt_schedule *out);
/* The rate of the step that follows `accepted` accepted ones. */
double rt_schedule_rate(const rt_schedule *s, int64_t accepted);
/* The rate never changes, whatever is accepted. */
bool rt_schedule_is_constant(const rt_schedule *s);
/* Everything in one line: "cosine,lr=0.1,end=0,warmup=100,steps=4680"; equal text, equal schedule. Terminated. */
void rt_schedule_print(const rt_schedule *s, char text[RT_SCHEDULE_TEXT]);

#endif
