/* padding.h - the index arithmetic of pad, for all devices. The includer defines K_FORMULA (ir/ops/formulas_body.h). */
#ifndef AMPC_PADDING_H
#define AMPC_PADDING_H

#include "ir/ops/words.h"

/* The index in an axis of d elements that supplies position i, which is negative before the start of the axis; -1: the
 * padding constant. `mode` is one of ir_words_pad. */
K_FORMULA int64_t k_pad_source(int64_t i, int64_t d, int mode)
{
    if (i >= 0 && i < d) return i;
    if (d == 0 || mode == IR_WORD(pad, constant)) return -1;
    if (mode == IR_WORD(pad, edge)) return i < 0 ? 0 : d - 1;
    if (mode == IR_WORD(pad, wrap)) return (i % d + d) % d;
    int64_t period = d > 1 ? 2 * (d - 1) : 1, r = (i % period + period) % period; /* reflect */
    return r < d ? r : period - r;
}

#endif
