/* order.h - which rows of the stored data a data set has, and in which order.
 *
 * Everything here is a function of the SPEC, the seed and the epoch, so training resumes with the same samples. */
#ifndef RT_ORDER_H
#define RT_ORDER_H

#include "runtime/data/column.h"
#include "runtime/data/data.h"

/* Zero-initialise; rt_order_clear frees it. */
typedef struct rt_order {
    int64_t rows;      /* of the data set, at least 1 */
    uint32_t *part;    /* [rows], the stored row of each; NULL: the first `rows` ones */
    uint32_t *labels;  /* [stored rows up to the limit], the row whose label each has; NULL: its own */
    bool in_file;      /* order=file: not shuffled */
    uint32_t *shuffle; /* [rows], the order of one epoch; NULL: not computed yet */
    uint64_t seed, epoch;
} rt_order;

/* Applies the options of every kind of data to `stored` rows: limit, permute-labels, validation, order. `overlap` is
 * that of rt_columns: no row of a part overlaps one of the other. Fails with AMPC_REJECTED if a part has no rows, or
 * AMPC_NO_MEMORY. */
ampc_status rt_order_open(const rt_data_spec *spec, rt_split split, int64_t stored, int64_t overlap, diag *d,
                          rt_order *out);
void rt_order_clear(rt_order *o);

/* Sets rows[0..n-1] to the stored rows of samples first .. first+n-1 of an epoch. Not thread-safe, because the
 * order of one epoch is kept. AMPC_NO_MEMORY is the only failure. */
ampc_status rt_order_epoch(rt_order *o, uint64_t seed, uint64_t epoch, int64_t first, int64_t n, uint32_t *rows);
/* The stored row of sample i in the order of the file. Thread-safe. */
static inline int64_t rt_order_row(const rt_order *o, int64_t i) { return o->part ? o->part[i] : i; }

#endif
