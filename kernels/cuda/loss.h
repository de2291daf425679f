/* loss.h - arguments of the kernels in loss.cu. */
#ifndef AMPC_CUDA_LOSS_H
#define AMPC_CUDA_LOSS_H

#include "kernels/cuda/rows.h"

enum { LOSS_TOTAL_BLOCKS = 64 }; /* of the kernel that adds weights: each block of the gradient reads its sums */

/* As the index to ignore: a label like it is as wrong as any other. */
#define LOSS_IGNORES_NONE (-0x7fffffffffffffffLL - 1)

typedef enum loss_reduction { LOSS_NONE, LOSS_SUM, LOSS_MEAN } loss_reduction;

/* The labels of the items, one for each row of classes, and the weights of the classes. */
typedef struct loss_labels {
    const void *label, *weight; /* weight NULL: all 1 */
    int label_dtype, weight_dtype;
    long long ignore;
    int step;                   /* for the fault word */
    int *fault;
} loss_labels;

/* What a block found: its sums of losses and of weights. */
typedef struct loss_sums {
    double loss, weight;
} loss_sums;

typedef struct loss_forward {
    cuda_rows rows;
    loss_labels labels;
    const void *x;
    int dtype;                  /* of x and log_prob */
    int reduction;
    float *loss;                /* reduction none: of each item; NULL: not wanted */
    float *lse;                 /* NULL: not wanted */
    void *log_prob;             /* NULL: not wanted */
    loss_sums *sums;            /* one for each block */
} loss_forward;

typedef struct loss_backward {
    cuda_rows rows;
    loss_labels labels;
    const float *dloss, *lse;
    const void *x;
    void *dx;
    int dtype;                  /* of x and dx */
    int reduction;
    int blocks;                 /* of sums, which hold the weights; 0: all weights are 1 */
    const loss_sums *sums;
} loss_backward;

#endif
