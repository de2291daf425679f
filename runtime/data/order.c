/* order.c - limits, parts and shuffles.
 *
 * The validation part consists of rows drawn by `split-seed`, which is part of the SPEC and not the seed of the
 * training: `train --seed 2` and `eval` must agree about which samples were held out. */
#include "runtime/data/order.h"

#include "ir/base/philox.h"
#include "runtime/backend/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Streams from 0 on are those of the epochs. */
#define SPLIT_STREAM UINT64_MAX

void rt_shuffle(uint32_t *order, uint32_t n, uint64_t seed, uint64_t stream)
{
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = (uint32_t)philox_below(philox_bits(seed, stream, n - i), i), last = order[i - 1];
        order[i - 1] = order[j];
        order[j] = last;
    }
}

void rt_order_clear(rt_order *o)
{
    free(o->part);
    free(o->labels);
    free(o->shuffle);
    *o = (rt_order){0};
}

static int ascending(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Where the rows for validation begin in `all`, after `others` other rows. */
static int64_t arrange(const rt_order *o, const rt_data_spec *spec, int64_t overlap, int64_t others, uint32_t *all)
{
    const uint64_t seed = spec->o.split_seed;
    if (!o->in_file && !overlap) rt_shuffle(all, (uint32_t)o->rows, seed, SPLIT_STREAM);
    else
        for (int64_t i = 0; i < o->rows; i++) all[i] = (uint32_t)i;
    if (o->in_file || !overlap) return others;
    const int64_t drawn = (int64_t)philox_below(philox_bits(seed, SPLIT_STREAM, 0), (uint64_t)others + 1);
    const bool trains = drawn > overlap || drawn + overlap < others;
    return trains ? drawn : others;
}

/* Keeps one part of the rows. The last ones of a shuffled order (of the file with order=file) are for validation. Of
 * rows that overlap, a sequence drawn from the file is, and the `overlap` rows on either side of it are in no part. */
static ampc_status keep_part(rt_order *o, const rt_data_spec *spec, int64_t overlap, double fraction, rt_split split,
                             diag *d)
{
    const int64_t held_out = llround((double)o->rows * fraction), others = o->rows - held_out;
    if (held_out < 1 || others <= overlap)
        return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE,
                          "data '%s': validation=%g of %lld samples leaves no sample for %s%s", spec->spec, fraction,
                          (long long)o->rows, held_out < 1 ? "validation" : "training",
                          held_out < 1 || !overlap ? "" : " that shares nothing with those for validation");
    uint32_t *all = malloc((size_t)o->rows * sizeof *all);
    if (!all) return rt_no_memory(d);
    const int64_t begin = arrange(o, spec, overlap, others, all), end = begin + held_out;
    int64_t n = 0;
    for (int64_t i = 0; i < o->rows; i++) {
        const bool kept = split == RT_TRAIN ? i < begin - overlap || i >= end + overlap : i >= begin && i < end;
        if (kept) all[n++] = all[i];
    }
    qsort(all, (size_t)n, sizeof *all, ascending);
    o->rows = n;
    o->part = all;
    return AMPC_OK;
}

ampc_status rt_order_open(const rt_data_spec *spec, rt_split split, int64_t stored, int64_t overlap, diag *d,
                          rt_order *out)
{
    const int64_t limit = spec->o.limit;
    *out = (rt_order){.rows = limit && limit < stored ? limit : stored, .in_file = spec->o.order == RT_ORDER_FILE};
    if (rt_spec_has(spec, "permute-labels")) {
        out->labels = malloc((size_t)out->rows * sizeof *out->labels);
        if (!out->labels) return rt_no_memory(d);
        rt_shuffle(out->labels, (uint32_t)out->rows, spec->o.permute_labels, 0);
    }
    const double validation = spec->o.validation;
    return validation > 0 ? keep_part(out, spec, overlap, validation, split, d) : AMPC_OK;
}

static ampc_status prepare(rt_order *o, uint64_t seed, uint64_t epoch)
{
    if (o->in_file || (o->shuffle && o->seed == seed && o->epoch == epoch)) return AMPC_OK;
    if (!o->shuffle) o->shuffle = malloc((size_t)o->rows * sizeof *o->shuffle);
    if (!o->shuffle) return AMPC_NO_MEMORY;
    rt_shuffle(o->shuffle, (uint32_t)o->rows, seed, epoch);
    o->seed = seed;
    o->epoch = epoch;
    return AMPC_OK;
}

ampc_status rt_order_epoch(rt_order *o, uint64_t seed, uint64_t epoch, int64_t first, int64_t n, uint32_t *rows)
{
    TRY(prepare(o, seed, epoch));
    for (int64_t i = 0; i < n; i++) rows[i] = (uint32_t)rt_order_row(o, o->in_file ? first + i : o->shuffle[first + i]);
    return AMPC_OK;
}
