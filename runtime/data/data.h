/* data.h - feeding samples: datasets opened from a SPEC, seeded shuffling, batches in any dtype.
 *
 *   idx:DIR[,divide=D,mean=M,std=S]  arrays "images" [H,W] (pixel p of 0 .. 255 as (p/D - M)/S; D is 255 if not given)
 *                             and "labels" []
 *   npz:FILE                  every array of the file, first dimension = samples; beside arrays of several dimensions,
 *                             one with a single dimension may hold several elements of each sample
 *   npy:NAME=FILE,NAME=FILE   the same from .npy files
 *   synthetic[,rows=N]        seeded data for the fields that the caller describes (default 8192 rows)
 * Further options after any of them: `permute-labels=SEED` (shuffles the labels among the samples: an
 * array named labels, label or y; not for synthetic), `limit=N` (the first N samples). A path holds no
 * comma.
 *
 * Order: epoch e of seed s is a Fisher-Yates shuffle drawn from Philox4x32-10 with key s, stream e. So a
 * position of three numbers says which samples come next, and can be stored and restored. */
#ifndef RT_DATA_H
#define RT_DATA_H

#include "ir/diag.h"
#include "ir/dtype.h"
#include "runtime/data/array.h"
#include "runtime/data/idx.h"

typedef struct rt_dataset rt_dataset;

/* One array as a sample sees it: dims without the sample dimension. */
typedef struct rt_field {
    const char *name;
    ir_dtype dtype;
    int rank;
    int64_t dims[RT_ARRAY_MAX_RANK];
    int64_t bound; /* synthetic integers are drawn from 0 .. bound-1 (0: as 2); else unused */
} rt_field;

/* Where training stands; all of `data/position` of a checkpoint. */
typedef struct rt_position {
    uint64_t seed;
    uint64_t epoch;
    uint64_t batch; /* batches of this epoch already taken */
} rt_position;

typedef struct rt_dataset_options {
    rt_split split;         /* idx: train-* or t10k-* files; others ignore it */
    const rt_field *fields; /* synthetic: what to make up (copied); others ignore it */
    size_t n_fields;
    uint64_t seed; /* synthetic */
} rt_dataset_options;

/* AMPC_USAGE for a SPEC that does not parse, AMPC_REJECTED for malformed data, AMPC_IO, AMPC_NO_MEMORY. */
ampc_status rt_dataset_open(const char *spec, const rt_dataset_options *o, diag *d,
                            rt_dataset **out);
void rt_dataset_close(rt_dataset *ds); /* NULL allowed */

int64_t rt_dataset_rows(const rt_dataset *ds);
size_t rt_dataset_field_count(const rt_dataset *ds);
/* The dtype is the stored one, f32 for idx images (they are normalised). */
const rt_field *rt_dataset_field(const rt_dataset *ds, size_t index);
int rt_dataset_find(const rt_dataset *ds, const char *name); /* index, or -1 */
int64_t rt_field_elements(const rt_field *f);                /* of one sample */
/* One more than the largest value of an integer field (a label's class count); 0 for floats. */
int64_t rt_dataset_bound(const rt_dataset *ds, size_t index);

/* Full batches in an epoch: the last partial batch is dropped. */
int64_t rt_dataset_batches(const rt_dataset *ds, int64_t batch_size);

/* Training: the samples of one batch of the shuffled order, packed [batch_size, dims...] as `dtype`
 * (values by the rules of ir/dtype.h; idx images in an integer dtype are the raw 0..255).
 * p->batch must be below rt_dataset_batches. Not thread-safe (caches the order of one epoch).
 * AMPC_NO_MEMORY is the only failure. */
ampc_status rt_dataset_batch(rt_dataset *ds, const rt_position *p, int64_t batch_size, size_t index,
                             void *dst, ir_dtype dtype);
/* The next position: next batch, or first of the next epoch. */
void rt_position_advance(rt_position *p, const rt_dataset *ds, int64_t batch_size);

/* Evaluation: samples first .. first+count-1 in stored order. Thread-safe. */
void rt_dataset_slice(const rt_dataset *ds, int64_t first, int64_t count, size_t index, void *dst,
                      ir_dtype dtype);

/* order[0..n-1] = a permutation of 0..n-1, by Fisher-Yates from (seed, stream). */
void rt_shuffle(uint32_t *order, uint32_t n, uint64_t seed, uint64_t stream);

#endif
