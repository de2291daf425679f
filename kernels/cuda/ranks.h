/* ranks.h - arguments of the kernels in ranks.cu. */
#ifndef AMPC_CUDA_RANKS_H
#define AMPC_CUDA_RANKS_H

enum {
    RANKS_BLOCK = 256,
    RANKS_UNIT = RANKS_BLOCK * 8, /* elements per block and iteration */
    RANKS_SPANS = 512             /* tensors per launch, passed as kernel argument */
};

/* One tensor, which is packed from element `at` on. Starts at unit `first` of the launch. */
typedef struct ranks_span {
    void *tensor;
    long long at, count;
    int dtype, first;
} ranks_span;

typedef struct ranks_table {
    int spans, units;
    int wire;           /* the type of the packed elements */
    void *packed;       /* all tensors of the call */
    const float *share; /* pack: factor; NULL: 1 */
    ranks_span span[RANKS_SPANS];
} ranks_table;

#endif
