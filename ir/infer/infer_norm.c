/* infer_norm.c - batch and layer normalisation. */
#include "ir/infer/infer.h"

static ampc_status expect_channels(const inference *x, const char *const *slots, size_t count, ir_type *channels)
{
    const ir_type *in = infer_operand(x, "x");
    if (in->rank < 2) return infer_reject(x, "x must have at least 2 dimensions, is %s", infer_show(x, in));
    *channels = infer_untyped(1, &in->dims[1]);
    for (size_t i = 0; i < count; i++) TRY(infer_expect_operand(x, slots[i], channels));
    return AMPC_OK;
}

/* Result 0 has the shape of x, all others have shape `rest`. */
static ampc_status set_results(const inference *x, ir_type rest)
{
    ir_type first = *infer_operand(x, "x");
    first.dtype = IR_NO_DTYPE;
    TRY(infer_result(x, 0, first));
    for (int i = 1; i < x->node->n_out; i++) TRY(infer_result(x, i, rest));
    return AMPC_OK;
}

ampc_status infer_batch_norm(const inference *x)
{
    static const char *const slots[] = {"scale", "bias", "mean", "var"};
    ir_type channels;
    TRY(expect_channels(x, slots, 4, &channels));
    return set_results(x, channels);
}

ampc_status infer_batch_norm_grad(const inference *x)
{
    static const char *const slots[] = {"scale", "saved_mean", "saved_rstd"};
    ir_type channels;
    TRY(expect_channels(x, slots, 3, &channels));
    TRY(infer_expect_operand(x, "dy", infer_operand(x, "x")));
    return set_results(x, channels);
}

/* Splits the shape of x at `axis`: `normalised` has the dimensions from the axis on, `reduced` has 1 in their place. */
static ampc_status split_shape(const inference *x, ir_type *normalised, ir_type *reduced)
{
    const ir_type *in = infer_operand(x, "x");
    int axis;
    TRY(infer_axis(x, in->rank, &axis));
    *normalised = infer_untyped(in->rank - axis, in->dims + axis);
    *reduced = infer_untyped(in->rank, in->dims);
    for (int i = axis; i < in->rank; i++) reduced->dims[i] = 1;
    return AMPC_OK;
}

ampc_status infer_layer_norm(const inference *x)
{
    ir_type normalised, reduced;
    TRY(split_shape(x, &normalised, &reduced));
    TRY(infer_expect_operand(x, "scale", &normalised));
    TRY(infer_expect_operand(x, "bias", &normalised));
    return set_results(x, reduced);
}

ampc_status infer_layer_norm_grad(const inference *x)
{
    ir_type normalised, reduced;
    TRY(split_shape(x, &normalised, &reduced));
    TRY(infer_expect_operand(x, "dy", infer_operand(x, "x")));
    TRY(infer_expect_operand(x, "scale", &normalised));
    TRY(infer_expect_operand(x, "mean", &reduced));
    TRY(infer_expect_operand(x, "rstd", &reduced));
    if (!infer_operand(x, "scale")) normalised.dtype = x->group[IR_GROUP_F32];
    return set_results(x, normalised);
}
