/* infer_training.c - random ops, loss scaling, stores and outputs. */
#include "ir/infer/infer.h"

#include <string.h>

ampc_status infer_expect_rng(const inference *x, const ir_type *rng)
{
    const ir_type expected = ir_type_make(IR_i64, 1, (int64_t[]){2});
    if (ir_type_equal(rng, &expected)) return AMPC_OK;
    return infer_reject(x, "rng must be %s, is %s", infer_show(x, &expected), infer_show(x, rng));
}

ampc_status infer_random(const inference *x)
{
    ir_type y;
    ir_dtype t = infer_attr(x, "type")->dtype;
    TRY(infer_expect_rng(x, infer_in(x, IR_IN(random, rng))));
    TRY(infer_shape(x, &y));
    if (!ir_dtype_is_float(t)) return infer_reject(x, "type must be a float type, is %s", ir_dtype_name(t));
    y.dtype = t;
    return infer_result(x, 0, y);
}

ampc_status infer_dropout(const inference *x)
{
    TRY(infer_expect_rng(x, infer_in(x, IR_IN(dropout, rng))));
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

static ampc_status count_ranks(const inference *x, int64_t *ranks)
{
    *ranks = infer_attr(x, "ranks")->i;
    if (*ranks < 1) return infer_reject(x, "ranks must be at least 1, is %lld", (long long)*ranks);
    if (x->node->n_out == x->node->n_in) return AMPC_OK;
    return infer_reject(x, "has %d operands, but %d results", x->node->n_in, x->node->n_out);
}

/* Each result is a slice of its operand. */
ampc_status infer_rank_parts(const inference *x)
{
    int64_t ranks;
    TRY(count_ranks(x, &ranks));
    for (int i = 0; i < x->node->n_in; i++) {
        if (!ir_type_is_static(infer_in(x, i)))
            return infer_reject(x, "operand %d must have a known size, is %s", i, infer_show(x, infer_in(x, i)));
        ir_type slice = ir_type_shard(infer_in(x, i), ranks);
        slice.dtype = IR_NO_DTYPE;
        TRY(infer_result(x, i, slice));
    }
    return AMPC_OK;
}

/* Reads the next of the shapes. */
static ampc_status next_shape(const inference *x, const ir_attr *shapes, int *at, ir_type *out)
{
    const int64_t rank = *at < shapes->list.count ? shapes->list.items[(*at)++] : -1;
    if (rank < 0 || rank > IR_MAX_RANK || rank > shapes->list.count - *at)
        return infer_reject(x, "shapes must be the rank and the dimensions of each result");
    int64_t count = 1;
    for (int64_t i = 0; i < rank; i++)
        if (shapes->list.items[*at + i] < 0 || !checked_mul(count, shapes->list.items[*at + i], &count))
            return infer_reject(x, "shapes must be the rank and the dimensions of each result");
    *out = ir_type_make(infer_attr(x, "wire")->dtype, (int)rank, shapes->list.items + *at);
    *at += (int)rank;
    return AMPC_OK;
}

ampc_status infer_all_gather(const inference *x)
{
    int64_t ranks;
    int at = 0;
    const ir_attr *shapes = infer_attr(x, "shapes");
    const ir_dtype wire = infer_attr(x, "wire")->dtype;
    TRY(count_ranks(x, &ranks));
    if (!ir_dtype_is_float(wire)) return infer_reject(x, "wire must be a float type, is %s", ir_dtype_name(wire));
    for (int i = 0; i < x->node->n_in; i++) {
        ir_type whole;
        TRY(next_shape(x, shapes, &at, &whole));
        ir_type slice = ir_type_shard(&whole, ranks);
        slice.dtype = IR_NO_DTYPE;
        TRY(infer_expect(x, i, &slice));
        TRY(infer_result(x, i, whole));
    }
    return at == shapes->list.count ? AMPC_OK : infer_reject(x, "has more shapes than operands");
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
