/* loss.h - arguments of the kernels in loss.cu. */
#ifndef AMPC_CUDA_LOSS_H
#define AMPC_CUDA_LOSS_H

#include "ir/ops/words.h"
#include "kernels/cuda/rows.h"

enum {
    LOSS_TOTAL_BLOCKS = 64, /* that sum weights; every block of the gradient reads all sums */
    LOSS_WIDE_BLOCK = 512   /* threads per long row that is read twice: few rows at a time, which stay in the cache */
};

/* Value of `ignore` if no index is ignored: a label with this value is out of range like any other. */
#define LOSS_IGNORES_NONE (-0x7fffffffffffffffLL - 1)

/* Labels, one per row of classes, and class weights. */
typedef struct loss_labels {
    const void *label, *weight; /* weight NULL: all 1 */
    int label_dtype, weight_dtype;
    long long ignore, classes; /* classes: of each row; the rest of it is padding */
    int step;                  /* for the fault word */
    int *fault;
} loss_labels;

/* Partial sums of one block: losses and weights. */
typedef struct loss_sums {
    double loss, weight;
} loss_sums;

typedef struct loss_forward {
    cuda_rows rows;
    loss_labels labels;
    const void *x;
    int dtype;       /* of x and log_prob */
    int reduction;   /* ir_words_loss */
    float *loss;     /* per row with reduction none; NULL: not wanted */
    float *lse;      /* NULL: not wanted */
    void *log_prob;  /* NULL: not wanted */
    loss_sums *sums; /* one per block */
} loss_forward;

typedef struct loss_backward {
    cuda_rows rows;
    loss_labels labels;
    const float *dloss, *lse;
    const void *x;
    void *dx;         /* may be x */
    int dtype;        /* of x and dx */
    int reduction;    /* ir_words_loss */
    int blocks;       /* entries of `sums`, which hold the weights; 0: all weights are 1 */
    loss_sums *sums;  /* one per block of these */
    float *loss;      /* per row with reduction none; NULL: not wanted */
    loss_sums *items; /* for the loss, one per block; of kernels that compute lse */
} loss_backward;

#endif
