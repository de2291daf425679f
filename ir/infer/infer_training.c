/* infer_training.c - random ops, loss scaling, stores and outputs. */
#include "ir/infer/infer.h"

#include <string.h>

static ampc_status check_rng(const inference *x, const ir_type *rng)
{
    const ir_type expected = ir_type_make(IR_i64, 1, (int64_t[]){2});
    if (ir_type_equal(rng, &expected)) return AMPC_OK;
    return infer_reject(x, "rng must be %s, is %s", infer_show(x, &expected), infer_show(x, rng));
}

ampc_status infer_random(const inference *x)
{
    ir_type y;
    ir_dtype t = infer_attr(x, "type")->dtype;
    TRY(check_rng(x, infer_in(x, IR_IN(random, rng))));
    TRY(infer_shape(x, &y));
    if (!ir_dtype_is_float(t)) return infer_reject(x, "type must be a float type, is %s", ir_dtype_name(t));
    y.dtype = t;
    return infer_result(x, 0, y);
}

ampc_status infer_dropout(const inference *x)
{
    TRY(check_rng(x, infer_in(x, IR_IN(dropout, rng))));
    ir_type y = *infer_in(x, IR_IN(dropout, x));
    y.dtype = IR_NO_DTYPE;
    TRY(infer_result(x, IR_OUT(dropout, y), y));
    return infer_result(x, IR_OUT(dropout, mask), y);
}

/* Each result is like its operand. */
ampc_status infer_all_reduce(const inference *x)
{
    const ir_dtype wire = infer_attr(x, "wire")->dtype;
    if (!ir_dtype_is_float(wire)) return infer_reject(x, "wire must be a float type, is %s", ir_dtype_name(wire));
    if (x->node->n_out != x->node->n_in)
        return infer_reject(x, "has %d operands, but %d results", x->node->n_in, x->node->n_out);
    for (int i = 0; i < x->node->n_in; i++) TRY(infer_result(x, i, *infer_in(x, i)));
    return AMPC_OK;
}

ampc_status infer_rank_number(const inference *x) { return infer_result(x, 0, (ir_type){.dtype = IR_f32}); }

/* One result per gradient, then found_inf. */
ampc_status infer_unscale(const inference *x)
{
    int n = x->node->n_in - 1;
    if (x->node->n_out != n + 1)
        return infer_reject(x, "has %d gradients, but %d results for them", n, x->node->n_out - 1);
    TRY(infer_expect_scalar(x, n));
    for (int i = 0; i < n; i++) {
        ir_type y = *infer_in(x, i);
        y.dtype = IR_NO_DTYPE;
        TRY(infer_result(x, i, y));
    }
    return infer_result(x, n, (ir_type){0});
}

/* Each result replaces one of the operands after found_inf. */
ampc_status infer_update_loss_scaling(const inference *x)
{
    for (int i = 0; i < x->node->n_in; i++) TRY(infer_expect_scalar(x, i));
    for (int i = 0; i < x->node->n_out; i++) TRY(infer_result(x, i, *infer_in(x, i + 1)));
    return AMPC_OK;
}

ampc_status infer_store(const inference *x)
{
    const ir_value *state = ir_in(x->node, IR_IN(store, state));
    const ir_type *value = infer_in(x, IR_IN(store, value));
    if (state->kind != IR_VALUE_STORAGE || state->storage->kind == IR_CONST)
        return infer_reject(x, "only a parameter or a state can be stored");
    if (!ir_type_equal(&state->storage->type, value))
        return infer_reject(x, "@%s is %s, the value is %s", state->name, infer_show(x, &state->storage->type),
                            infer_show(x, value));
    return AMPC_OK;
}

ampc_status infer_output(const inference *x)
{
    return *x->node->attr[IR_ATTR(output, name)].s ? AMPC_OK : infer_reject(x, "an output needs a name");
}

static ir_type shape_of(const inference *x, int i)
{
    ir_type shape = *infer_in(x, i);
    shape.dtype = IR_NO_DTYPE;
    return shape;
}

ampc_status infer_norm_parts(const inference *x)
{
    const ir_type a = shape_of(x, IR_IN(norm_parts, a));
    TRY(infer_expect(x, IR_IN(norm_parts, b), &a));
    return infer_result(x, 0, infer_untyped(2, (ir_dim[]){2, IR_NORM_PARTS}));
}

ampc_status infer_trust_ratio(const inference *x)
{
    const ir_type parts = infer_untyped(2, (ir_dim[]){2, IR_NORM_PARTS});
    TRY(infer_expect(x, 0, &parts));
    return infer_result(x, 0, infer_untyped(1, (ir_dim[]){1}));
}

/* Like `same`, but for the operand `ratio`, which has one element. It does not count as scalar, because calls in one
 * launch have different ones. */
ampc_status infer_scaled_update(const inference *x)
{
    const ir_type shape = shape_of(x, 0), one = infer_untyped(1, (ir_dim[]){1});
    for (int i = 0; i < x->node->n_in; i++) {
        const bool ratio = strcmp(infer_slot(x, i)->name, "ratio") == 0;
        TRY(infer_slot(x, i)->scalar ? infer_expect_scalar(x, i) : infer_expect(x, i, ratio ? &one : &shape));
    }
    for (int i = 0; i < x->node->n_out; i++) TRY(infer_result(x, i, shape));
    return AMPC_OK;
}
