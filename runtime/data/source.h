/* source.h - data sets whose rows are in the caller's memory or come from the caller's function.
 *
 * Memory is borrowed: it must stay valid and unchanged until the data set is closed. */
#ifndef RT_SOURCE_H
#define RT_SOURCE_H

#include "runtime/data/column.h"

typedef struct rt_source_field {
    rt_field field;   /* copied; the name is not empty */
    const void *data; /* [rows, dims...] ([dims...] if it is whole), packed; NULL: read by the function */
} rt_source_field;

typedef struct rt_source {
    const rt_source_field *fields;
    size_t n_fields;
    int64_t rows; /* 1 .. INT32_MAX */
    /* Stores row `row` of field `field` at dst, packed and in the dtype of the field; nonzero: it failed, which ends
     * the reading of data with AMPC_IO. The rows of a batch are asked for in any order, some more than once, and those
     * of batches that are read ahead perhaps for nothing; the same row must always have the same contents, so that
     * training can be resumed. Called by several threads at once unless `one_thread`. NULL if all fields are in memory.
     * */
    int (*read)(void *user, int64_t row, size_t field, void *dst);
    void *user;
    bool one_thread; /* the function is only called by the thread that trains or evaluates */
    /* Those of every kind of data, and `classes`, such as "validation=0.1,order=file,classes=cat+dog"; NULL: none. */
    const char *options;
} rt_source;

/* Adds a column for each field, except for the options: see rt_dataset_open_source. */
ampc_status rt_source_columns(const rt_source *source, diag *d, rt_columns *out);

#endif
