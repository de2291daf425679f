/* column.h - the fields of a data set and how their rows are read: what every kind of data implements.
 *
 * A kind of data is a function rt_open_KIND that adds columns, and a row in kinds.c. Everything that is the same for
 * all kinds (limits, splits, shuffles, permuted labels, batches, prefetching) is done above the columns, by row number.
 */
#ifndef RT_COLUMN_H
#define RT_COLUMN_H

#include "ir/base/diag.h"
#include "runtime/data/codebook.h"
#include "runtime/data/data_spec.h"
#include "runtime/data/field.h"

/* The randomness of one use of a sample; NULL where samples are read unchanged (evaluation, prediction). */
typedef struct rt_draw {
    uint64_t seed, epoch;
} rt_draw;

typedef struct rt_column rt_column;
/* One field of a data set and how its rows are read. */
struct rt_column {
    rt_field field; /* the name is malloced and owned */
    /* Stores row `row` (for a whole field: all of it, and `row` is 0) at dst, converted to `dtype` by the rules of
     * dtype.h. Thread-safe. Fails with AMPC_IO, AMPC_REJECTED (the message names file and entry) or AMPC_NO_MEMORY.
     * */
    ampc_status (*read)(const rt_column *c, int64_t row, const rt_draw *draw, void *dst, ir_dtype dtype, diag *d);
    /* The width, height and channels of the stored image; NULL: the rows are not images in files. */
    ampc_status (*image_size)(const rt_column *c, int64_t row, diag *d, int size[3]);
    void (*close)(rt_column *c); /* frees the state; NULL: nothing to free */
    void *state;                 /* several columns may share one, which one of them closes */
};

/* What reading a row costs, which decides where batches are read by default. */
typedef enum rt_reading {
    RT_IN_MEMORY,    /* a copy: in the training thread */
    RT_DECODED,      /* files are read or decoded: ahead, in another thread */
    RT_CALLING_ONLY, /* never in another thread */
} rt_reading;

/* The columns of a data set. Zero-initialise; rt_columns_clear closes them, also after a failed opener. */
typedef struct rt_columns {
    rt_column *items;
    size_t count;
    int64_t rows;    /* 1 .. INT32_MAX */
    int64_t overlap; /* a row shares elements of the file with so many rows before it, and after it */
    rt_reading reading;
    rt_codebook codes; /* names of the numbers, and means */
    /* Writes the place of a row in the files, "d.csv:7"; NULL: rows have only numbers. `source` is its own. */
    void (*locate)(const void *source, int64_t row, char *text, size_t n);
    void (*close_source)(void *source);
    void *source;
} rt_columns;

/* Adds a column with a copy of f->name. On failure (AMPC_NO_MEMORY) the state is still the caller's. */
ampc_status rt_columns_add(rt_columns *all, const rt_column *c, diag *d);
void rt_columns_clear(rt_columns *all);

/* Converts the n elements of a row to the type that is read. AMPC_REJECTED if one is beyond its range. */
ampc_status rt_column_convert(const rt_column *c, int64_t row, void *dst, ir_dtype dtype, const void *from,
                              ir_dtype from_dtype, size_t n, diag *d);

/* Adds a column for the rows of an array in memory, whose data it then owns (a->data becomes NULL). The first dimension
 * counts the rows, unless `whole`. The column is named a->name. */
ampc_status rt_columns_add_array(rt_columns *all, rt_array *a, bool whole, diag *d);

/* Names of the field that the first float input of a model reads, and of the labels; both end with NULL. */
extern const char *const rt_input_names[], *const rt_label_names[];
/* The first column with one of the names; -1: none. */
int rt_columns_find(const rt_columns *all, const char *const *names);
/* Replaces the labels by the input, as an autoencoder reads them. Fails with AMPC_USAGE if there is no such field. */
ampc_status rt_columns_repeat_input(rt_columns *all, const rt_data_spec *spec, diag *d);

struct rt_dataset_options;
/* Opens one kind of data: adds its columns to *out and sets the number of rows. Fails like rt_dataset_open. */
typedef ampc_status rt_opener(const rt_data_spec *spec, const struct rt_dataset_options *o, diag *d, rt_columns *out);

#endif
