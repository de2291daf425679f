/* data.h - data sets opened from a SPEC, seeded shuffling, and batches in any dtype.
 *
 * docs/data.md lists the kinds of data and their options; kinds.c is the table of kinds. A data set of n samples is a
 * selection of the rows that its columns can read: limit=N, then permute-labels=SEED, then the part that validation=F
 * leaves for training (RT_TRAIN) or holds out (RT_TEST), then the order of an epoch or, with order=file, of the file.
 *
 * Order: epoch e of seed s is a Fisher-Yates shuffle drawn from Philox4x32-10 with key s and stream e. Therefore a
 * position of three numbers determines all following samples, and can be saved and restored. */
#ifndef RT_DATA_H
#define RT_DATA_H

#include "ir/base/diag.h"
#include "ir/ops/dtype.h"
#include "runtime/data/column.h"
#include "runtime/data/field.h"
#include "runtime/data/idx.h"
#include "runtime/data/source.h"

typedef struct rt_dataset rt_dataset;

/* Position of training in the data; the entry `data/position` of a checkpoint. */
typedef struct rt_position {
    uint64_t seed;
    uint64_t epoch;
    uint64_t batch; /* batches of this epoch already used */
} rt_position;

typedef struct rt_dataset_options {
    rt_split split; /* which part of the data: idx reads train-* or t10k-* files, validation=F splits any kind */
    /* The inputs of the entry graph, with the dims of a sample: what synthetic data generate, which arrays of an .npz
     * or .npy file are whole, and sizes that other kinds derive from the model. Names are copied. */
    const rt_field *fields;
    size_t n_fields;
    uint64_t seed; /* for synthetic */
    /* The names and means of the training (rt_dataset_codes), by which evaluations and predictions read; NULL: derived
     * from the data. */
    const char *codes;
    /* The data are described without a model: sizes that it would determine are chosen, with a note, and missing values
     * are allowed. */
    bool describes;
} rt_dataset_options;

/* The field that describes the labels of the loss; NULL: none. */
const rt_field *rt_labels_described(const rt_dataset_options *o);

/* Fails with AMPC_USAGE for a malformed SPEC, AMPC_REJECTED for malformed data, AMPC_IO or AMPC_NO_MEMORY. */
ampc_status rt_dataset_open(const char *spec, const rt_dataset_options *o, diag *d, rt_dataset **out);
/* Opens data that the caller holds or produces (source.h); `codes` as in rt_dataset_options. Fails with AMPC_USAGE if
 * the description is malformed or names other classes than `codes`, or with AMPC_NO_MEMORY. */
ampc_status rt_dataset_open_source(const rt_source *source, rt_split split, const char *codes, diag *d,
                                   rt_dataset **out);
void rt_dataset_close(rt_dataset *ds); /* NULL allowed */
/* From now on, closing does nothing: a thread still reads the data, perhaps for ever. */
void rt_dataset_abandon(rt_dataset *ds);

int64_t rt_dataset_rows(const rt_dataset *ds);
/* Shuffles the stored order, so that the first samples stand for all. AMPC_NO_MEMORY. */
ampc_status rt_dataset_shuffle(rt_dataset *ds, uint64_t seed, diag *d);
size_t rt_dataset_field_count(const rt_dataset *ds);
/* The dtype is that of the stored array; f32 for idx images, which are normalised. */
const rt_field *rt_dataset_field(const rt_dataset *ds, size_t index);
int rt_dataset_find(const rt_dataset *ds, const char *name); /* index, or -1 */
rt_reading rt_dataset_reading(const rt_dataset *ds);
/* What the numbers of the data stand for, and the means in place of missing values. */
const rt_codebook *rt_dataset_codes(const rt_dataset *ds);
const rt_names *rt_dataset_classes(const rt_dataset *ds); /* the names of the classes; NULL: unknown */

/* Writes where a stored row is in the files of the data ("d.csv:7", "cats/5.png"), or its number, from 0. */
void rt_dataset_locate(const rt_dataset *ds, int64_t row, char *text, size_t n);
/* The stored row of sample i in the order of the file. */
int64_t rt_dataset_row(const rt_dataset *ds, int64_t i);

/* Number of full batches per epoch; a last partial batch is dropped. */
int64_t rt_dataset_batches(const rt_dataset *ds, int64_t batch_size);
/* Makes it a multiple of `window`: an epoch ends after the last whole window. */
void rt_dataset_set_window(rt_dataset *ds, int64_t window);

/* Training: sets rows[0..n-1] to the stored rows of samples first .. first+n-1 of one batch. p->batch must be below
 * rt_dataset_batches. Not thread-safe, because the order of one epoch is kept. AMPC_NO_MEMORY is the only failure. */
ampc_status rt_dataset_order(rt_dataset *ds, const rt_position *p, int64_t batch_size, int64_t first, int64_t n,
                             uint32_t *rows, diag *d);
/* Stores these rows of field `index` at dst, packed as [n, dims...] of `dtype` ([dims...] for a whole field). Values
 * are converted by the rules of dtype.h; idx images in an integer dtype are the raw 0..255. Fails like the `read` of
 * a column. Thread-safe. */
ampc_status rt_dataset_read(const rt_dataset *ds, const uint32_t *rows, int64_t n, const rt_draw *draw, size_t index,
                            void *dst, ir_dtype dtype, diag *d);
/* Advances to the next batch, or to the first batch of the next epoch. */
void rt_position_advance(rt_position *p, const rt_dataset *ds, int64_t batch_size);

/* Evaluation: stores samples first .. first+count-1 in stored order at dst, without randomness. Fails like the `read`
 * of a column. Thread-safe. */
ampc_status rt_dataset_slice(const rt_dataset *ds, int64_t first, int64_t count, size_t index, void *dst,
                             ir_dtype dtype, diag *d);

/* Sets size to the width, height and channels of the stored image of a row. AMPC_UNSUPPORTED, without a message: the
 * field has no images. Otherwise fails like the `read` of a column. */
ampc_status rt_dataset_image_size(const rt_dataset *ds, int64_t row, size_t index, diag *d, int size[3]);

/* Sets order[0..n-1] to a permutation of 0..n-1, by Fisher-Yates from (seed, stream). */
void rt_shuffle(uint32_t *order, uint32_t n, uint64_t seed, uint64_t stream);

#endif
