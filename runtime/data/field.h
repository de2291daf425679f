/* field.h - what one field of a data set looks like to a sample. */
#ifndef RT_FIELD_H
#define RT_FIELD_H

#include "runtime/data/array.h"

/* One array as seen by a sample: dims without the sample dimension. If `whole`, the array has no samples, such as the
 * first state of a recurrent network: every batch reads all of it, and dims are those of the array. */
typedef struct rt_field {
    const char *name;
    ir_dtype dtype;
    bool whole;
    int rank;
    int64_t dims[RT_ARRAY_MAX_RANK];
    bool label;      /* of a described input: the labels of the loss; otherwise unused */
    int64_t ignored; /* of these labels: what the loss leaves out; INT64_MIN: nothing */
    int64_t bound;   /* of a described input of integers: they are below it; 0: unknown (drawn from 0 and 1) */
} rt_field;

int64_t rt_field_elements(const rt_field *f); /* elements per sample; of all if it is whole */

#endif
