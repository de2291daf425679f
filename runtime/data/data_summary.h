/* data_summary.h - what the values of a data set are, from so many rows as can be read in a short time. */
#ifndef RT_DATA_SUMMARY_H
#define RT_DATA_SUMMARY_H

#include "runtime/data/data.h"

enum { RT_SUMMARY_CHANNELS = 3, RT_SUMMARY_CLASSES = 4096 };

/* Mean and population standard deviation of finite values. */
typedef struct rt_moments {
    int64_t n;
    double mean, squares; /* squares: the sum of squared deviations */
} rt_moments;

double rt_moments_deviation(const rt_moments *m);

typedef struct rt_field_summary {
    int64_t rows;     /* read */
    int64_t failed;   /* rows that could not be read */
    int64_t missing;  /* values that are NaN */
    int64_t infinite; /* values */
    double min, max;  /* of finite values; valid if all.n is not 0 */
    rt_moments all, channel[RT_SUMMARY_CHANNELS];
    int channels;    /* of images; 0: not images */
    int64_t *counts; /* of the numbers 0 .. classes-1 in an integer field of one value per row; NULL: others */
    int64_t classes;
    /* stored images; `images` is 0 without them */
    int64_t images;
    int min_size[3], max_size[3]; /* width, height, channels, each by itself */
} rt_field_summary;

/* Reads rows that are evenly spaced, all of them if about `seconds` are enough for it. A row that cannot be read is
 * reported to `d` and counted; after 16 of them no more are read. AMPC_NO_MEMORY is the only failure. */
ampc_status rt_dataset_summarize(const rt_dataset *ds, size_t index, double seconds, diag *d, rt_field_summary *out);
void rt_field_summary_clear(rt_field_summary *s);

#endif
