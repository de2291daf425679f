/* emit_matmul.c - matmul: Gemm for transposed matrices or with a bias, otherwise MatMul with Transpose and Add nodes
 * as needed. */
#include "frontend/emit/emit.h"

#include <string.h>

static void gemm(emitter *e, const ir_node *n)
{
    emit_op op = emit_begin(e, n, "Gemm");
    emit_operands(&op);
    emit_int(&op, "transA", n->attr[IR_ATTR(matmul, trans_a)].i);
    emit_int(&op, "transB", n->attr[IR_ATTR(matmul, trans_b)].i);
    emit_result(&op, 0, ir_in(n, 0)->type.dtype);
    emit_end(&op);
}

/* Operand i, with its last two axes swapped if `swap`. */
static const char *factor(emitter *e, const ir_node *n, int i, bool swap)
{
    const ir_value *v = ir_in(n, i);
    const char *name = emit_value(e, v);
    if (!swap) return name;
    int rank = v->type.rank;
    int64_t perm[IR_MAX_RANK];
    for (int k = 0; k < rank; k++) perm[k] = k;
    perm[rank - 2] = rank - 1, perm[rank - 1] = rank - 2;
    const char *swapped = emit_name(e, arena_printf(e->arena, "%s.T", name));
    emit_op op = emit_helper(e, n, "Transpose");
    emit_in(&op, name);
    emit_ints(&op, "perm", perm, rank);
    emit_out(&op, swapped);
    emit_end(&op);
    ir_type type = v->type;
    type.dims[rank - 2] = v->type.dims[rank - 1], type.dims[rank - 1] = v->type.dims[rank - 2];
    emit_declare(e, swapped, &type);
    return swapped;
}

static void product(emitter *e, const ir_node *n)
{
    const char *a = factor(e, n, 0, n->attr[IR_ATTR(matmul, trans_a)].i),
               *b = factor(e, n, 1, n->attr[IR_ATTR(matmul, trans_b)].i);
    const ir_value *bias = ir_in(n, IR_IN(matmul, bias));
    ir_dtype type = ir_in(n, 0)->type.dtype;
    emit_op op = emit_begin(e, n, "MatMul");
    emit_in(&op, a);
    emit_in(&op, b);
    if (!bias) {
        emit_result(&op, 0, type);
        emit_end(&op);
        return;
    }
    const char *name = emit_name(e, arena_printf(e->arena, "%s.product", n->out[0]->name));
    emit_out(&op, name);
    emit_end(&op);
    if (type == IR_f16 || type == IR_bf16) emit_inexact(e); /* the product is rounded before the bias is added */
    ir_type sum = n->out[0]->type;
    sum.dtype = type;
    emit_declare(e, name, &sum);
    emit_op add = emit_helper(e, n, "Add");
    emit_in(&add, name);
    emit_in(&add, emit_value(e, bias));
    emit_result(&add, 0, type);
    emit_end(&add);
}

void emit_matmul(emitter *e, const ir_node *n)
{
    bool matrices = ir_in(n, 0)->type.rank == 2 && ir_in(n, 1)->type.rank == 2;
    bool more = ir_in(n, IR_IN(matmul, bias)) || n->attr[IR_ATTR(matmul, trans_a)].i ||
                n->attr[IR_ATTR(matmul, trans_b)].i;
    bool was_gemm = n->loc.op && strcmp(n->loc.op, "Gemm") == 0;
    if (matrices && (more || was_gemm)) gemm(e, n);
    else product(e, n);
}
