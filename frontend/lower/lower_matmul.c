/* lower_matmul.c - MatMul, Gemm. */
#include "frontend/lower/lower.h"

/* MatMul follows NumPy: a vector is a row on the left and a column on the right, and the added axis is removed from
 * the result. */
ir_value *onnx_matmul(onnx_node *n, ir_value *x, ir_value *y)
{
    bool row = x->type.rank == 1, column = y->type.rank == 1;
    if (!x->type.rank || !y->type.rank) {
        onnx_reject(n, "an operand is a scalar");
        return NULL;
    }
    if (row) x = ir_reshape(n->b, x, (ir_dim[]){1, x->type.dims[0]}, 2);
    if (column) y = ir_reshape(n->b, y, (ir_dim[]){y->type.dims[0], 1}, 2);
    ir_value *z = ir_matmul(n->b, x, y, NULL, false, false);
    if (!z) return NULL;
    ir_dim dims[IR_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < z->type.rank; i++) {
        bool drop = (row && i == z->type.rank - 2) || (column && i == z->type.rank - 1);
        if (!drop) dims[rank++] = z->type.dims[i];
    }
    return ir_reshape(n->b, z, dims, rank);
}

void onnx_lower_matmul(onnx_node *n) { n->out[0] = onnx_matmul(n, n->in[0], n->in[1]); }

/* C as the bias operand of matmul: a row of N elements. NULL if C has any other form. */
static ir_value *bias_row(onnx_node *n, ir_value *c, ir_dim columns)
{
    int rank = c->type.rank;
    if (rank < 1 || rank > 2 || c->type.dims[rank - 1] != columns) return NULL;
    if (rank == 2 && c->type.dims[0] != 1) return NULL;
    return ir_reshape(n->b, c, &columns, 1);
}

static ir_value *scaled(onnx_node *n, ir_value *v, double factor)
{
    return factor == 1 ? v : ir_binary(n->b, IR_OP_mul, v, ir_scalar_like(n->b, v, factor));
}

void onnx_lower_gemm(onnx_node *n)
{
    double alpha = onnx_float(n, "alpha", 1), beta = onnx_float(n, "beta", 1);
    bool trans_a = onnx_bool(n, "transA", false), trans_b = onnx_bool(n, "transB", false);
    ir_value *a = n->in[0], *b = n->in[1], *c = beta == 0 ? NULL : onnx_in(n, 2);
    if (a->type.rank != 2 || b->type.rank != 2) {
        onnx_reject(n, "operands have rank %d and %d, not 2", a->type.rank, b->type.rank);
        return;
    }
    ir_dim columns = b->type.dims[trans_b ? 0 : 1];
    ir_value *bias = c && alpha == 1 && beta == 1 ? bias_row(n, c, columns) : NULL;
    ir_value *y = scaled(n, ir_matmul(n->b, a, b, bias, trans_a, trans_b), alpha);
    if (y && c && !bias) {
        ir_type shape = y->type;
        y = ir_binary(n->b, IR_OP_add, y, scaled(n, c, beta));
        if (y && !ir_type_same_shape(&shape, &y->type)) onnx_reject(n, "C does not broadcast to the product");
    }
    n->out[0] = y;
}
