/* loss_cases.h - what PyTorch computes for the built-in losses: an output x, its labels, the loss and its gradient. */
#ifndef AMPC_TEST_LOSS_CASES_H
#define AMPC_TEST_LOSS_CASES_H

#include "tests/train/loss_net.h"

static const struct loss_case {
    const char *name, *loss;
    loss_tensor x, label;
    double expected;
    const double *gradient;
} cases[] = {
#define DIMS(...) \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }
#define VALUES(...) \
    (const double[]) { __VA_ARGS__ }
#define TENSOR(...) \
    { \
        __VA_ARGS__ \
    }
#define LOSS(...) {__VA_ARGS__},
#include "tests/train/losses.def"
};

#endif
