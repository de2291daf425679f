/* log.h - the JSONL step log and the progress line of a run. */
#ifndef RT_LOG_H
#define RT_LOG_H

#include "runtime/train/evaluate.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One step. Written as
 * {"step":..,"epoch":..,"loss":..,"lr":..,"scale":..,"skipped":..,"grad_norm":..,"samples_s":..,"t":..}; non-finite
 * numbers become null, because JSON cannot represent them. */
typedef struct rt_step_record {
    uint64_t step; /* 1-based */
    double epoch;  /* epochs completed, including the fraction */
    double loss;   /* unscaled */
    double lr;
    double scale;     /* loss scale; 1 without scaling */
    uint64_t skipped; /* skipped steps so far */
    double grad_norm; /* NAN if not measured */
    double samples_s;
    int64_t samples; /* in this step; not logged */
    double t;        /* seconds since the run began */
} rt_step_record;

/* A field of a step record: a double, or a uint64_t below 2^53 if `format` is NULL. */
typedef struct rt_step_field {
    const char *key;
    size_t offset;
    const char *format; /* of the JSON number */
    bool charted;       /* worth a chart over the steps */
} rt_step_field;
enum { RT_STEP_FIELDS = 9 };
extern const rt_step_field rt_step_fields[RT_STEP_FIELDS];
double rt_step_value(const rt_step_field *f, const rt_step_record *s);

/* A field of the header line: text, or a number if text is NULL. */
typedef struct rt_log_field {
    const char *key;
    const char *text;
    double number;
} rt_log_field;

typedef struct rt_log rt_log;

/* Position at which a run with checkpoints resumes. */
typedef struct rt_log_resume {
    const char *folder; /* checkpoint folder: recorded in the header, identifies the lines of this run */
    uint64_t step;      /* last step in the checkpoint; RT_LOG_NOT_RESUMED: a new run */
} rt_log_resume;
#define RT_LOG_NOT_RESUMED UINT64_MAX

/* Opens `path` for appending (creates it if necessary) and writes {"run":{fields}}. Each line is written with one
 * call, so a killed process loses at most the last line; an unfinished last line is terminated first. A resumed run
 * first removes, from the end of the file, the lines of runs with the same folder about later steps, so that each
 * step is logged once. Lines of other runs stay; readers treat a repeated step as a rewind to it. `resume` may be
 * NULL: no checkpoints. `d` must outlive the log. Fails with AMPC_IO or AMPC_NO_MEMORY. */
ampc_status rt_log_open(const char *path, const rt_log_field *fields, size_t n, const rt_log_resume *resume, diag *d,
                        rt_log **out);
ampc_status rt_log_step(rt_log *log, const rt_step_record *s);
/* Writes {"eval":{"step":..,"loss":..,METRIC:..}}, the values of an evaluation after that step. */
ampc_status rt_log_eval(rt_log *log, uint64_t step, const rt_eval *eval);
/* Flushes all lines to the disk, if the file is on one. Fails with AMPC_IO. */
ampc_status rt_log_sync(rt_log *log);
ampc_status rt_log_close(rt_log *log); /* NULL allowed */

/* Reads the steps of a log in order and applies rewinds. Headers and evaluations are skipped, null becomes NAN, and an
 * unfinished last line is ignored; any other malformed line is rejected with its number. *steps is malloced. */
ampc_status rt_log_read(const char *path, diag *d, rt_step_record **steps, size_t *count);

/* ---- progress ---- */

typedef struct rt_progress {
    rt_step_record now;
    uint64_t steps;      /* of the entire run, 0: unknown */
    uint64_t epochs;     /* of the entire run, 0: unknown */
    double seconds_left; /* negative: unknown */
} rt_progress;

typedef enum rt_progress_style {
    RT_PROGRESS_LINE, /* one plain line, for logs */
    RT_PROGRESS_BAR,  /* `columns` wide at most; ASCII */
    RT_PROGRESS_FINE  /* the same with UTF-8 bar characters */
} rt_progress_style;

/* Formats the line into dst (n bytes, NUL-terminated), without newline or cursor motion; returns its length in bytes.
 * Example: "epoch 3/10 [=====>    ] 412/4680  loss 0.2417  scale 65536  skipped 0  18.4k/s  0:03 left". To fit, the
 * bar shrinks first, then parts are dropped from the right. */
size_t rt_progress_format(char *dst, size_t n, const rt_progress *p, rt_progress_style style, size_t columns);

#endif
