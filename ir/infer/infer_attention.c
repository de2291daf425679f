/* infer_attention.c - attention and its gradient. */
#include "ir/infer/infer.h"

/* The shapes that operands and results have besides q, k and v. */
typedef struct shapes {
    ir_type y, lse;
} shapes;

/* Checks that k and v have the leading dimensions of q, of which the last one may be a multiple of theirs. */
static ampc_status expect_keys(const inference *x, const ir_type *q)
{
    const ir_type *k = infer_operand(x, "k"), *v = infer_operand(x, "v");
    ir_type keys = *q, values;
    if (k->rank == q->rank && q->rank > 2) {
        const ir_dim heads = k->dims[q->rank - 3], queries = q->dims[q->rank - 3];
        keys.dims[q->rank - 3] = heads;
        if (!ir_dim_may_equal(x->dims, heads, queries) && ir_dim_div(x->dims, queries, heads) == IR_DIM_NONE)
            return infer_reject(x, "%s items of k do not divide %s of q", infer_show_dim(x, heads),
                                infer_show_dim(x, queries));
    }
    if (k->rank == q->rank) keys.dims[q->rank - 2] = k->dims[q->rank - 2];
    TRY(infer_expect_operand(x, "k", &keys));
    values = *k;
    if (v->rank == k->rank) values.dims[k->rank - 1] = v->dims[k->rank - 1];
    return infer_expect_operand(x, "v", &values);
}

static ampc_status expect_mask(const inference *x, const ir_type *q)
{
    const ir_type *mask = infer_operand(x, "mask");
    ir_type scores = infer_untyped(q->rank, q->dims), both;
    scores.dims[q->rank - 1] = infer_operand(x, "k")->dims[q->rank - 2];
    scores.dtype = q->dtype;
    if (!mask) return AMPC_OK;
    if (mask->dtype != IR_bool && !ir_dtype_is_float(mask->dtype))
        return infer_reject(x, "mask must be bool or a float type, is %s", ir_dtype_name(mask->dtype));
    if (ir_broadcast(x->dims, mask, &scores, &both) && ir_type_may_have_shape(x->dims, &both, &scores)) return AMPC_OK;
    return infer_reject(x, "mask %s does not broadcast to the scores %s", infer_show(x, mask), infer_show(x, &scores));
}

/* rng: the number of that operand. */
static ampc_status expect_operands(const inference *x, int rng, shapes *s)
{
    const ir_type *q = infer_operand(x, "q");
    TRY(infer_expect_rank(x, 0, 2, IR_MAX_RANK));
    TRY(expect_keys(x, q));
    TRY(expect_mask(x, q));
    if (infer_in(x, rng)) TRY(infer_expect_rng(x, infer_in(x, rng)));
    s->y = s->lse = infer_untyped(q->rank, q->dims);
    s->y.dims[q->rank - 1] = infer_operand(x, "v")->dims[q->rank - 1];
    s->lse.dims[q->rank - 1] = 2;
    return AMPC_OK;
}

ampc_status infer_attention(const inference *x)
{
    shapes s;
    TRY(expect_operands(x, IR_IN(attention, rng), &s));
    TRY(infer_result(x, IR_OUT(attention, y), s.y));
    return infer_result(x, IR_OUT(attention, lse), s.lse);
}

ampc_status infer_attention_grad(const inference *x)
{
    static const char *const operands[] = {"q", "k", "v"};
    shapes s;
    TRY(expect_operands(x, IR_IN(attention_grad, rng), &s));
    TRY(infer_expect_operand(x, "y", &s.y));
    TRY(infer_expect_operand(x, "dy", &s.y));
    TRY(infer_expect_operand(x, "lse", &s.lse));
    for (int i = 0; i < 3; i++) {
        ir_type type = *infer_operand(x, operands[i]);
        type.dtype = IR_NO_DTYPE;
        TRY(infer_result(x, i, type));
    }
    return AMPC_OK;
}
