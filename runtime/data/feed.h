/* feed.h - which array of a data set fills which input of an entry graph, and the buffers in between.
 *
 * An input reads the field with its own name; otherwise the input that the loss reads as labels uses a field "labels",
 * "label" or "y", and the first float input uses "images" or "x". Its shape is the graph's with the batch symbol bound
 * to the number of samples (sizing.h); the samples must fill it exactly. So 28x28 images feed f32[N,1,28,28], and
 * labels of 128 tokens a sample feed i64[128*N]. Open symbols other than the batch are sizes of the data. */
#ifndef RT_FEED_H
#define RT_FEED_H

#include "runtime/data/data.h"
#include "runtime/session/session.h"

typedef struct rt_feed rt_feed;

/* The only batch that the graph accepts under the sizes of symbols by index (-1: open); 0: any. */
int64_t rt_feed_fixed_batch(const ir_graph *g, const int64_t *sizes);
/* `sizes`: those that the session has (rt_session_sizes), NULL: none. `batch` 0: the fixed batch of the graph
 * (AMPC_USAGE when it has none). AMPC_REJECTED when an input finds no field, or one of another shape (all of them are
 * reported), AMPC_USAGE when `batch` is not the graph's fixed one. */
ampc_status rt_feed_open(const ir_graph *g, rt_dataset *data, const int64_t *sizes,
                         int64_t batch, diag *d, rt_feed **out);
void rt_feed_close(rt_feed *f); /* NULL allowed */

int64_t rt_feed_batch(const rt_feed *f);
bool rt_feed_is_fixed(const rt_feed *f); /* the graph accepts this batch only */
int rt_feed_count(const rt_feed *f);
/* The inputs as the last call below filled them, [rt_feed_count]. */
const rt_tensor *rt_feed_inputs(const rt_feed *f);
/* Whether an integer input reads the field. */
bool rt_feed_reads_integers(const rt_feed *f, int field);

/* One training batch. AMPC_NO_MEMORY is the only failure. */
ampc_status rt_feed_take(rt_feed *f, const rt_position *p, diag *d);
/* Samples first .. first+count-1 in stored order, 0 < count <= batch. A fixed batch is filled up with copies of the
 * last sample. AMPC_REJECTED when `count` samples do not fill an input whose size is not proportional to them. */
ampc_status rt_feed_slice(rt_feed *f, int64_t first, int64_t count, diag *d);
/* The samples that the inputs hold, copies included. */
int64_t rt_feed_samples(const rt_feed *f);

/* The field with the labels, or -1. */
int rt_feed_label_field(const ir_graph *g, const rt_dataset *data);

/* One more than the largest index that integer input `v` may hold: the smallest table that it indexes, or the number
 * of classes of the loss that it labels. 0: it indexes nothing. */
int64_t rt_feed_bound(const ir_value *v);
/* Fields to make up for synthetic data, one for each input of the graph. `sizes`: of symbols by index, -1 or NULL: not
 * given, then 1. The names are the module's; *fields is malloced. */
ampc_status rt_feed_fields(const ir_graph *g, const int64_t *sizes, diag *d, rt_field **fields,
                           size_t *n);

#endif
