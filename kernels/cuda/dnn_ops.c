/* dnn_ops.c - the operations of cuDNN graphs (see dnn.h). */
#include "kernels/cuda/dnn.h"

/* ---- convolution ----------------------------------------------------------------------------- */

/* Creates the convolution descriptor: strides, dilations and padding. */
static dnn_descriptor describe_windows(dnn_graph *g, const conv_geometry *c)
{
    const int skip = c->spatial == 1; /* leading axes of size 1 */
    const int64_t axes = c->spatial + skip;
    int64_t stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1}, before[3] = {0}, after[3] = {0};
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    for (int i = 0; i < c->spatial; i++) {
        stride[i + skip] = c->stride[i];
        dilation[i + skip] = c->dilation[i];
        before[i + skip] = c->before[i];
        after[i + skip] = c->after[i];
    }
    dnn_descriptor d = dnn_make(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &axes);
    dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, axes, stride);
    dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, axes, dilation);
    dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, axes, before);
    dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, axes, after);
    dnn_finish(g, d);
    return d;
}

/* Attribute names of the three convolution operations. */
static const struct operation {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t windows, x, w, y, alpha, beta;
} operations[] = {
/* clang-format off */
#define OPERATION(type, name, x, w, y) \
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_##type##_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_CONV_DESC, \
     CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##x, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##w, \
     CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##y, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_ALPHA, \
     CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_BETA}
    /* clang-format on */
    [CONV_FORWARD] = OPERATION(FORWARD, FORWARD, X, W, Y),
    [CONV_GRAD_INPUT] = OPERATION(BACKWARD_DATA, BWD_DATA, DX, W, DY),
    [CONV_GRAD_WEIGHT] = OPERATION(BACKWARD_FILTER, BWD_FILTER, X, DW, DY),
};

void dnn_append_convolution(dnn_graph *g, conv_kind kind, const conv_geometry *c, const dnn_descriptor *xwy)
{
    const struct operation *o = &operations[kind];
    const float alpha = 1, beta = 0;
    dnn_descriptor windows = describe_windows(g, c), op = dnn_make(g, o->type);
    dnn_set_descriptor(g, op, o->windows, windows);
    dnn_set_descriptor(g, op, o->x, xwy[0]);
    dnn_set_descriptor(g, op, o->w, xwy[1]);
    dnn_set_descriptor(g, op, o->y, xwy[2]);
    dnn_set(g, op, o->alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
    dnn_set(g, op, o->beta, CUDNN_TYPE_FLOAT, 1, &beta);
    dnn_append(g, op);
}

/* ---- pointwise ------------------------------------------------------------------------------- */

/* The type in which an operation computes. */
static cudnnDataType_t math_of(cudnnPointwiseMode_t mode)
{
    switch (mode) {
    case CUDNN_POINTWISE_GEN_INDEX: return CUDNN_DATA_INT32;
    case CUDNN_POINTWISE_CMP_GE: return CUDNN_DATA_BOOLEAN;
    default: return CUDNN_DATA_FLOAT;
    }
}

/* Creates an operation and sets its mode. axis: NULL for modes without one. */
static dnn_descriptor make_pointwise(dnn_graph *g, cudnnPointwiseMode_t mode, const int64_t *axis)
{
    const cudnnDataType_t math = math_of(mode);
    dnn_descriptor how = dnn_make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    dnn_set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    dnn_set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &math);
    if (axis) dnn_set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, axis);
    dnn_finish(g, how);
    dnn_descriptor op = dnn_make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    return op;
}

void dnn_append_pointwise(dnn_graph *g, cudnnPointwiseMode_t mode, dnn_descriptor x, dnn_descriptor b, dnn_descriptor y)
{
    dnn_descriptor op = make_pointwise(g, mode, NULL);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b) dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    dnn_append(g, op);
}

void dnn_append_pointwise_grad(dnn_graph *g, cudnnPointwiseMode_t mode, dnn_descriptor dy, dnn_descriptor x,
                               dnn_descriptor dx)
{
    dnn_descriptor op = make_pointwise(g, mode, NULL);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx);
    dnn_append(g, op);
}

void dnn_append_index(dnn_graph *g, int64_t axis, dnn_descriptor x, dnn_descriptor y)
{
    dnn_descriptor op = make_pointwise(g, CUDNN_POINTWISE_GEN_INDEX, &axis);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    dnn_append(g, op);
}

void dnn_append_select(dnn_graph *g, dnn_descriptor x, dnn_descriptor b, dnn_descriptor condition, dnn_descriptor y)
{
    dnn_descriptor op = make_pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, NULL);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, condition);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    dnn_append(g, op);
}

/* ---- products -------------------------------------------------------------------------------- */

void dnn_append_matmul(dnn_graph *g, dnn_descriptor a, dnn_descriptor b, dnn_descriptor y)
{
    const cudnnDataType_t math = CUDNN_DATA_FLOAT;
    dnn_descriptor how = dnn_make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    dnn_set(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &math);
    dnn_finish(g, how);
    dnn_descriptor op = dnn_make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y);
    dnn_append(g, op);
}

/* ---- statistics ------------------------------------------------------------------------------ */

void dnn_append_statistics(dnn_graph *g, dnn_descriptor x, dnn_descriptor sum, dnn_descriptor squares)
{
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    const cudnnDataType_t math = CUDNN_DATA_FLOAT;
    dnn_descriptor op = dnn_make(g, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    dnn_set(g, op, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
    dnn_set(g, op, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &math);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, x);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares);
    dnn_append(g, op);
}

/* ---- reductions ------------------------------------------------------------------------------ */

void dnn_append_reduction(dnn_graph *g, cudnnReduceTensorOp_t operator, dnn_descriptor x, dnn_descriptor y)
{
    const cudnnDataType_t math = CUDNN_DATA_FLOAT;
    dnn_descriptor how = dnn_make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    dnn_set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &operator);
    dnn_set(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &math);
    dnn_finish(g, how);
    dnn_descriptor op = dnn_make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    dnn_append(g, op);
}
