/* data.h - data sets opened from a SPEC, seeded shuffling, and batches in any dtype.
 *
 *   idx:DIR[,divide=D,mean=M,std=S]  arrays "images" [H,W], pixel p of 0 .. 255 read as (p/D - M)/S with default
 *                             D 255, and "labels" []
 *   npz:FILE                  every array of the file; the first dimension counts samples, except in the arrays that
 *                             the caller describes as whole. If there are arrays with several dimensions, a
 *                             one-dimensional array may have several elements per sample
 *   npy:NAME=FILE,NAME=FILE   the same from .npy files
 *   synthetic[,rows=N]        seeded data for the fields that the caller describes (default 8192 rows)
 *
 * Options after any of them: `limit=N` (only the first N samples) and, except for synthetic, `permute-labels=SEED`
 * (shuffles the labels among the samples; the label array is named labels, label or y). A path cannot contain a
 * comma.
 *
 * Order: epoch e of seed s is a Fisher-Yates shuffle drawn from Philox4x32-10 with key s and stream e. Therefore a
 * position of three numbers determines all following samples, and can be saved and restored. */
#ifndef RT_DATA_H
#define RT_DATA_H

#include "ir/diag.h"
#include "ir/dtype.h"
#include "runtime/data/array.h"
#include "runtime/data/idx.h"

typedef struct rt_dataset rt_dataset;

/* One array as seen by a sample: dims without the sample dimension. If `whole`, the array has no samples, such as the
 * first state of a recurrent network: every batch reads all of it, and dims are those of the array. */
typedef struct rt_field {
    const char *name;
    ir_dtype dtype;
    bool whole;
    int rank;
    int64_t dims[RT_ARRAY_MAX_RANK];
    int64_t bound; /* synthetic integers are drawn from 0 .. bound-1 (0: like 2); otherwise unused */
} rt_field;

/* Position of training in the data; the entry `data/position` of a checkpoint. */
typedef struct rt_position {
    uint64_t seed;
    uint64_t epoch;
    uint64_t batch; /* batches of this epoch already used */
} rt_position;

typedef struct rt_dataset_options {
    rt_split split;         /* idx: train-* or t10k-* files; ignored by the others */
    const rt_field *fields; /* synthetic: the fields to generate (copied); npz, npy: the names of whole arrays */
    size_t n_fields;
    uint64_t seed; /* for synthetic */
} rt_dataset_options;

/* Fails with AMPC_USAGE for a malformed SPEC, AMPC_REJECTED for malformed data, AMPC_IO or AMPC_NO_MEMORY. */
ampc_status rt_dataset_open(const char *spec, const rt_dataset_options *o, diag *d, rt_dataset **out);
void rt_dataset_close(rt_dataset *ds); /* NULL allowed */

int64_t rt_dataset_rows(const rt_dataset *ds);
size_t rt_dataset_field_count(const rt_dataset *ds);
/* The dtype is that of the stored array; f32 for idx images, which are normalised. */
const rt_field *rt_dataset_field(const rt_dataset *ds, size_t index);
int rt_dataset_find(const rt_dataset *ds, const char *name); /* index, or -1 */
int64_t rt_field_elements(const rt_field *f);                /* elements per sample; of all if it is whole */

/* Number of full batches per epoch; a last partial batch is dropped. */
int64_t rt_dataset_batches(const rt_dataset *ds, int64_t batch_size);

/* Training: stores the samples of one batch of the shuffled order at dst, packed as [batch_size, dims...] of `dtype`
 * ([dims...] for a whole field).
 * Values are converted by the rules of ir/dtype.h; idx images in an integer dtype are the raw 0..255. p->batch must
 * be below rt_dataset_batches. Not thread-safe, because the order of one epoch is cached. AMPC_NO_MEMORY is the only
 * failure. */
ampc_status rt_dataset_batch(rt_dataset *ds, const rt_position *p, int64_t batch_size, size_t index, void *dst,
                             ir_dtype dtype);
/* Advances to the next batch, or to the first batch of the next epoch. */
void rt_position_advance(rt_position *p, const rt_dataset *ds, int64_t batch_size);

/* Evaluation: stores samples first .. first+count-1 in stored order at dst. Thread-safe. */
void rt_dataset_slice(const rt_dataset *ds, int64_t first, int64_t count, size_t index, void *dst, ir_dtype dtype);

/* Sets order[0..n-1] to a permutation of 0..n-1, by Fisher-Yates from (seed, stream). */
void rt_shuffle(uint32_t *order, uint32_t n, uint64_t seed, uint64_t stream);

#endif
