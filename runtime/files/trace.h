/* trace.h - Chrome traces: what a run did when, for chrome://tracing and Perfetto.
 *
 * The file is the JSON array form of Google's "Trace Event Format": one complete event ("ph": "X") per span, in
 * microseconds since the trace was opened, and metadata events that name the lanes. The file appears at the end of the
 * run, complete (atomic_file.h). */
#ifndef RT_TRACE_H
#define RT_TRACE_H

#include "ir/base/diag.h"

typedef struct rt_trace rt_trace;

/* Lanes are drawn one below the other; each is a thread id of the trace. */
typedef enum rt_lane {
    RT_LANE_STEPS,
    RT_LANE_DATA,
    RT_LANE_FILES,
    RT_LANE_EVALUATION,
    RT_LANE_REDUCTIONS,
    RT_LANE_COUNT
} rt_lane;

/* Begins a file that replaces `path` when it is closed. `d` must outlive the trace. Fails with AMPC_IO or
 * AMPC_NO_MEMORY. */
ampc_status rt_trace_open(const char *path, diag *d, rt_trace **out);
/* Appends a span from `began`, a value of rt_trace_now, until now. Does nothing if t is NULL. May be called by several
 * threads, of which one at a time may use the diag. A failure is reported, and returned by rt_trace_close. */
void rt_trace_span(rt_trace *t, rt_lane lane, const char *name, double began);
/* Seconds of the monotonic clock. */
double rt_trace_now(void);
/* Ends the file and puts it in place, unless the run failed before its first span: then the old file stays. Fails with
 * AMPC_IO or AMPC_NO_MEMORY if anything could not be written. NULL allowed. */
ampc_status rt_trace_close(rt_trace *t, bool succeeded);

#endif
