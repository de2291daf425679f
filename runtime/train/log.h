/* log.h - what a run leaves behind and shows: JSONL step log, progress line. */
#ifndef RT_LOG_H
#define RT_LOG_H

#include "ir/diag.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One step. Written as {"step":..,"epoch":..,"loss":..,"lr":..,"scale":..,"skipped":..,"grad_norm":..,
 * "samples_s":..,"t":..}; numbers that are not finite become null, as JSON has none. */
typedef struct rt_step {
    uint64_t step; /* 1-based */
    double epoch;  /* epochs done, with fraction */
    double loss;   /* unscaled */
    double lr;
    double scale;     /* loss scale; 1 without scaling */
    uint64_t skipped; /* skipped steps so far */
    double grad_norm; /* NAN when not measured */
    double samples_s;
    double t; /* seconds since the run began */
} rt_step;

/* A field of the header line: text, or a number when text is NULL. */
typedef struct rt_log_field {
    const char *key;
    const char *text;
    double number;
} rt_log_field;

typedef struct rt_log rt_log;

/* Where a run with checkpoints goes on. */
typedef struct rt_log_resume {
    const char *folder; /* of the checkpoints: recorded in the header, and says which lines are of this run */
    uint64_t step;      /* the last one that the checkpoint has; RT_LOG_NOT_RESUMED: the run begins */
} rt_log_resume;
#define RT_LOG_NOT_RESUMED UINT64_MAX

/* Appends to `path` (made when absent), one whole line a write, so that a killed process loses at most the last
 * line; an unfinished last line is ended first. Writes {"run":{fields}}. A run that goes on from a checkpoint first
 * cuts off what runs with the same folder wrote at the end about later steps, so that each step stands there once;
 * what others wrote stays (readers take a step that comes again as a rewind to it). `resume` may be NULL: no
 * checkpoints. AMPC_IO, AMPC_NO_MEMORY. `d` must outlive the log. */
ampc_status rt_log_open(const char *path, const rt_log_field *fields, size_t n, const rt_log_resume *resume, diag *d,
                        rt_log **out);
ampc_status rt_log_step(rt_log *log, const rt_step *s);
/* Brings all lines to the disk, as far as the file has one. AMPC_IO. */
ampc_status rt_log_sync(rt_log *log);
ampc_status rt_log_close(rt_log *log); /* NULL allowed */

/* The steps of a log, in order, rewinds applied; header lines are skipped, a null becomes NAN, an
 * unfinished last line is ignored, any other malformed line is refused with its number. *steps is
 * malloced. */
ampc_status rt_log_read(const char *path, diag *d, rt_step **steps, size_t *count);

/* ---- progress ---- */

typedef struct rt_progress {
    rt_step now;
    uint64_t steps;      /* of the whole run, 0: unknown */
    uint64_t epochs;     /* of the whole run, 0: unknown */
    double seconds_left; /* negative: unknown */
} rt_progress;

typedef enum rt_progress_style {
    RT_PROGRESS_LINE, /* one plain line, for logs */
    RT_PROGRESS_BAR,  /* fits `columns`; ASCII */
    RT_PROGRESS_FINE  /* the same with UTF-8 bar characters */
} rt_progress_style;

/* Writes the line into dst (n bytes, terminated), without newline or cursor motion; returns its length
 * in bytes. Example: "epoch 3/10 [=====>    ] 412/4680  loss 0.2417  scale 65536  skipped 0  18.4k/s
 * 0:03 left". The bar shrinks first, then parts are left out from the right. */
size_t rt_progress_format(char *dst, size_t n, const rt_progress *p, rt_progress_style style,
                          size_t columns);

#endif
