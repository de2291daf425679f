/* movement.h - arguments of the kernels in movement.cu. Strides and offsets count elements of the size that the kernel
 * moves; dimensions are ordered from outermost to innermost. */
#ifndef AMPC_CUDA_MOVEMENT_H
#define AMPC_CUDA_MOVEMENT_H

#include "kernels/cuda/operand.h"

enum {
    MOVE_BLOCK = 256,
    MOVE_SIZES = 5, /* kernels exist for elements of 1, 2, 4, 8 and 16 bytes */
    TRANSPOSE_SIZES = 4,
    MIN_TRANSPOSE = 8, /* with fewer rows or columns, tiling does not pay off */
    MAX_DIMS = 32
};

/* Side of the square tile that a block transposes, for elements of `size` bytes. */
#define TRANSPOSE_SIDE(size) ((size) < 4 ? 64 : 32)

typedef struct move_copy {
    const void *src;
    void *dst;
    long long count;
    int rank;
    long long dims[OPERAND_RANK], src_strides[OPERAND_RANK], dst_strides[OPERAND_RANK];
} move_copy;

/* dst[i, j] = src[j, i] for each position of the outer dimensions given by `outer`. */
typedef struct move_transpose {
    move_copy outer;         /* count: number of outer positions */
    long long rows, columns; /* of dst */
    long long src_stride;    /* between columns of dst, in src; rows are adjacent there */
    long long dst_stride;    /* between rows of dst; columns are adjacent */
} move_transpose;

/* `mode` is of ir_words_pad, also below. */
typedef struct move_pad {
    const void *src, *value; /* value NULL: pad with 0 */
    void *dst;
    long long count; /* of dst */
    int rank, mode;
    long long padded[OPERAND_RANK], plain[OPERAND_RANK], before[OPERAND_RANK], strides[OPERAND_RANK]; /* of src */
} move_pad;

/* Gradient of padding along one axis: sums copies; x [outer, padded, inner] to y [outer, plain, inner]. */
typedef struct move_unpad {
    const void *x;
    void *y;
    int x_dtype, y_dtype;
    long long outer, padded, plain, inner, before;
    int mode;
} move_unpad;

typedef struct move_choice {
    cuda_operand cond, a, b; /* expand uses only a */
    void *y;
    int dtype; /* an integer type of the element size */
    long long count;
} move_choice;

typedef struct move_triangle {
    const void *x;
    void *y;
    int dtype, upper;
    long long rows, columns, k, count;
} move_triangle;

typedef struct move_values {
    void *y;
    int dtype, count;
    long long values[MAX_DIMS];
} move_values;

#endif
