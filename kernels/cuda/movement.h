/* movement.h - arguments of the kernels in movement.cu. Strides and offsets are in elements of the size that the kernel
 * moves; outer dimensions first. */
#ifndef AMPC_CUDA_MOVEMENT_H
#define AMPC_CUDA_MOVEMENT_H

#include "kernels/cuda/operand.h"

enum {
    MOVE_BLOCK = 256,
    MOVE_SIZES = 5,     /* kernels exist for elements of 1, 2, 4, 8 and 16 bytes */
    TRANSPOSE_SIZES = 4,
    TRANSPOSE_LEAST = 8, /* fewer rows or columns than this are not worth a tile */
    DIMS_MOST = 32
};

/* Side of the square that a block transposes, for elements of so many bytes. */
#define TRANSPOSE_SIDE(size) ((size) < 4 ? 64 : 32)

typedef struct move_copy {
    const void *src;
    void *dst;
    long long count;
    int rank;
    long long dims[OPERAND_RANK], src_strides[OPERAND_RANK], dst_strides[OPERAND_RANK];
} move_copy;

/* dst[i, j] = src[j, i] for each position of the outer dimensions, which are those of `outer`. */
typedef struct move_transpose {
    move_copy outer;             /* count: positions */
    long long rows, columns;     /* of dst */
    long long src_stride;        /* from column to column of dst in src; rows lie side by side */
    long long dst_stride;        /* from row to row of dst; columns lie side by side */
} move_transpose;

typedef struct move_pad {
    const void *src, *value;     /* value NULL: zero */
    void *dst;
    long long count;             /* of dst */
    int rank;
    char mode;
    long long padded[OPERAND_RANK], plain[OPERAND_RANK], before[OPERAND_RANK], strides[OPERAND_RANK]; /* of src */
} move_pad;

/* Sums along one axis of what padding had copied; x [outer, padded, inner] to y [outer, plain, inner]. */
typedef struct move_unpad {
    const void *x;
    void *y;
    int x_dtype, y_dtype;
    long long outer, padded, plain, inner, before;
    char mode;
} move_unpad;

typedef struct move_choice {
    cuda_operand cond, a, b;     /* expand: a alone */
    void *y;
    int dtype;                   /* an integer type of the elements' size */
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
    long long values[DIMS_MOST];
} move_values;

#endif
