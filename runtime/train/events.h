/* events.h - TensorBoard event files: scalars over steps.
 *
 * A file is a sequence of records, each a length, the CRC32C of the length, an Event message and its CRC32C; both
 * checksums are masked. Sources: tensorflow/core/lib/io/record_writer.cc, tensorflow/core/util/event.proto,
 * tensorflow/core/framework/summary.proto. */
#ifndef RT_EVENTS_H
#define RT_EVENTS_H

#include "ir/base/diag.h"

#include <stddef.h>
#include <stdint.h>

typedef struct rt_events rt_events;

typedef struct rt_scalar {
    const char *tag; /* UTF-8; a part before '/' groups the charts */
    double value;    /* stored as f32; may be NaN or infinite */
} rt_scalar;

/* Creates `folder` if necessary, and in it a new file events.out.tfevents.SECONDS.HOST.PID.N. The file begins with the
 * start of a session after step `step`: TensorBoard ignores what earlier files of the folder say about later steps, so
 * that a run resumed at a checkpoint logs each step once. `d` must outlive the events. Fails with AMPC_IO or
 * AMPC_NO_MEMORY. */
ampc_status rt_events_open(const char *folder, uint64_t step, diag *d, rt_events **out);
/* Writes the values of a step as one record with one call, so that a killed process leaves at most one unfinished
 * record, which readers ignore. */
ampc_status rt_events_write(rt_events *e, uint64_t step, const rt_scalar *scalars, size_t n);
/* Flushes all records to the disk. */
ampc_status rt_events_sync(rt_events *e);
ampc_status rt_events_close(rt_events *e); /* NULL allowed */

#endif
