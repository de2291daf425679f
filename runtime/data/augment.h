/* augment.h - random changes of training samples: functions of (seed, epoch, row), so that training resumes with the
 * same ones. */
#ifndef RT_AUGMENT_H
#define RT_AUGMENT_H

#include "ir/base/philox.h"
#include "runtime/data/column.h"

/* What a block of random words is drawn for: the first one of each use. */
enum {
    RT_DRAW_FLIP_AND_CROP = 0,
    RT_DRAW_PARTNER = 1,
    RT_DRAW_BOX = 16,
    RT_DRAW_SHARE = 32,
    RT_DRAWS_PER_ROW = 1 << 16
};

static inline philox_words rt_draw_block(const rt_draw *draw, int64_t row, unsigned use)
{
    const uint64_t key = draw->seed ^ 0x6175676d656e7421; /* the streams of `seed` itself shuffle */
    return philox_block(key, draw->epoch, (uint64_t)row * RT_DRAWS_PER_ROW + use);
}

/* Applies the options flip and crop of the SPEC to the images in *all, a field named images or x, and likewise to
 * labels that have a value for each pixel. Fails with AMPC_USAGE if there are no images or they are smaller than the
 * padding; does nothing without these options. */
ampc_status rt_augment(const rt_data_spec *spec, const struct rt_dataset_options *o, diag *d, rt_columns *all);

#endif
