/* schedule.h - the learning rate as a function of the accepted steps, so skipped steps do not change it.
 *
 *   constant                          lr
 *   linear[,end=E]                    linear from lr to E (default 0)
 *   cosine[,end=E]                    E + (lr - E) * (1 + cos(pi * u)) / 2
 *   polynomial[,power=P][,end=E]      E + (lr - E) * (1 - u)^P; default P 1
 *   exponential[,factor=F][,every=N]  lr * F^(t / N); default F 0.1, N all steps
 *   step[,factor=F][,every=N]         lr * F^floor(t / N); default F 0.1, N a third of the steps
 *   one-cycle[,rise=R][,div=D][,final_div=E][,anneal=cos|linear]
 *       OneCycleLR of PyTorch, with lr as its max_lr: in R of the steps (default 0.3) from lr/D to lr, then down to
 *       lr/D/E; default D 25, E 10000
 *   plateau[,factor=F][,patience=P][,threshold=T][,cooldown=C][,every=N][,end=E]
 *       ReduceLROnPlateau of PyTorch, of the mean loss of every N accepted steps (default: an epoch): times F, but not
 *       below E, after more than P means in a row that are not smaller than the best times 1 - T; default F 0.1, P 10,
 *       T 1e-4, C 0
 *
 * All of them accept `warmup=W`: the rate of the first W steps rises linearly, lr/W, 2*lr/W, .. lr, and the curve
 * begins after them; t counts from there, and u is t divided by the number of remaining steps. `lr=X` replaces the rate
 * of the optimizer.
 *
 * Pieces separated by ';' follow one another: each but the last needs `steps=N`, its length, and counts its steps from
 * its start. A plateau is a schedule of its own. */
#ifndef RT_SCHEDULE_H
#define RT_SCHEDULE_H

#include "ir/base/diag.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum rt_schedule_kind {
    RT_SCHEDULE_CONSTANT,
    RT_SCHEDULE_LINEAR,
    RT_SCHEDULE_COSINE,
    RT_SCHEDULE_POLYNOMIAL,
    RT_SCHEDULE_EXPONENTIAL,
    RT_SCHEDULE_STEP,
    RT_SCHEDULE_ONE_CYCLE,
    RT_SCHEDULE_PLATEAU
} rt_schedule_kind;
/* By index; NULL past the last. */
const char *rt_schedule_name(int index);
const char *rt_schedule_keys(int index); /* the names of its keys, separated by blanks */
const struct setting *rt_schedule_key(int index);

typedef struct rt_schedule_piece {
    rt_schedule_kind kind;
    double lr, end, factor, power;
    double rise, div, final_div; /* one-cycle */
    int anneal;                  /* one-cycle: 0 along a cosine, 1 linearly */
    double threshold;            /* plateau */
    int64_t patience, cooldown;  /* plateau */
    int64_t warmup, every;       /* every 0: the default of the kind */
    int64_t steps;               /* length; the last value holds afterwards */
} rt_schedule_piece;

enum { RT_SCHEDULE_PIECES = 16, RT_SCHEDULE_TEXT = 4096 };

typedef struct rt_schedule {
    rt_schedule_piece pieces[RT_SCHEDULE_PIECES];
    int count;
} rt_schedule;

/* What a plateau remembers. All zeros: the start. */
typedef struct rt_plateau {
    double sum, best; /* of the means; valid if `means` is not 0 */
    int64_t steps;    /* accepted steps in `sum` */
    int64_t means, bad, cooldown;
    double rate; /* valid if `means` is not 0 */
} rt_plateau;

/* `text` NULL: constant. Fails with AMPC_USAGE for an unknown name, key or number. */
ampc_status rt_schedule_parse(const char *text, double lr, int64_t steps, diag *d, rt_schedule *out);
/* The rate of the step after `accepted` accepted ones. A plateau has its initial rate. */
double rt_schedule_rate(const rt_schedule *s, int64_t accepted);
/* True if the rate is the same for all steps. */
bool rt_schedule_is_constant(const rt_schedule *s);
/* Prints all parameters in one line: "cosine,lr=0.1,end=0,warmup=100,steps=4680". Schedules with equal text are
 * equal. NUL-terminated. */
void rt_schedule_print(const rt_schedule *s, char text[RT_SCHEDULE_TEXT]);

bool rt_schedule_is_plateau(const rt_schedule *s);
/* Counts the loss of an accepted step. `epoch`: the steps of an epoch. */
void rt_plateau_observe(rt_plateau *p, const rt_schedule *s, int64_t epoch, double loss);
/* The rate of the step after `accepted` ones. */
double rt_plateau_rate(const rt_plateau *p, const rt_schedule *s, int64_t accepted);

#endif
