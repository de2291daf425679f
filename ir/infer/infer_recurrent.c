/* infer_recurrent.c - recurrent networks. */
#include "ir/infer/infer.h"

typedef struct sizes {
    ir_dim steps, batch, hidden;
    int64_t gates, saved; /* columns of x and of the result `gates` per hidden unit */
} sizes;

static const int64_t gates_of_cell[] = {[IR_WORD(cell, rnn)] = 1, [IR_WORD(cell, gru)] = 3, [IR_WORD(cell, lstm)] = 4};

static ir_type shape(int rank, ir_dim a, ir_dim b, ir_dim c) { return infer_untyped(rank, (ir_dim[]){a, b, c}); }

/* Operands and attributes that another cell has. */
static ampc_status expect_cell(const inference *x)
{
    const int64_t cell = infer_attr(x, "cell")->i;
    const char *only = NULL;
    if (cell != IR_WORD(cell, lstm)) {
        if (ir_in_named(x->node, "c0")) only = "c0";
        if (ir_in_named(x->node, "peephole")) only = "peephole";
        if (ir_in_named(x->node, "dlast_c")) only = "dlast_c";
        if (infer_attr(x, "input_forget")->i) only = "input_forget";
    }
    if (cell != IR_WORD(cell, gru) && infer_attr(x, "linear_before_reset")->i) only = "linear_before_reset";
    if (only) return infer_reject(x, "cell %s has no %s", ir_words_cell[cell], only);
    return AMPC_OK;
}

static void set_gates(const inference *x, sizes *s)
{
    s->gates = gates_of_cell[infer_attr(x, "cell")->i];
    s->saved = s->gates + (infer_attr(x, "linear_before_reset")->i != 0);
}

/* Checks r, the initial states, peephole and lengths. */
static ampc_status expect_operands(const inference *x, const sizes *s)
{
    const ir_type r = shape(2, ir_dim_mul(x->dims, s->hidden, s->gates), s->hidden, 0),
                  state = shape(2, s->batch, s->hidden, 0), lengths = shape(1, s->batch, 0, 0),
                  peephole = shape(2, 3, s->hidden, 0);
    TRY(infer_expect_operand(x, "r", &r));
    TRY(infer_expect_operand(x, "h0", &state));
    TRY(infer_expect_operand(x, "c0", &state));
    TRY(infer_expect_operand(x, "peephole", &peephole));
    return infer_expect_operand(x, "lengths", &lengths);
}

ampc_status infer_recurrent(const inference *x)
{
    const ir_type *in = infer_operand(x, "x"), *r = infer_operand(x, "r");
    sizes s = {0};
    TRY(expect_cell(x));
    set_gates(x, &s);
    if (in->rank != 3) return infer_reject(x, "x must have 3 dimensions, is %s", infer_show(x, in));
    if (r->rank != 2) return infer_reject(x, "r must have 2 dimensions, is %s", infer_show(x, r));
    s.steps = in->dims[0], s.batch = in->dims[1], s.hidden = r->dims[1];
    TRY(expect_operands(x, &s));
    const ir_type columns = shape(3, s.steps, s.batch, ir_dim_mul(x->dims, s.hidden, s.gates));
    TRY(infer_expect_operand(x, "x", &columns));
    if (infer_operand(x, "bias")) {
        if (!infer_attr(x, "linear_before_reset")->i) return infer_reject(x, "bias needs linear_before_reset");
        const ir_type bias = shape(1, s.hidden, 0, 0);
        TRY(infer_expect_operand(x, "bias", &bias));
    }
    const ir_type states = shape(3, s.steps, s.batch, s.hidden), last = shape(2, s.batch, s.hidden, 0);
    TRY(infer_result(x, IR_OUT(recurrent, y), states));
    TRY(infer_result(x, IR_OUT(recurrent, last_h), last));
    TRY(infer_result(x, IR_OUT(recurrent, last_c), last));
    TRY(infer_result(x, IR_OUT(recurrent, cells), states));
    return infer_result(x, IR_OUT(recurrent, gates),
                        shape(3, s.steps, s.batch, ir_dim_mul(x->dims, s.hidden, s.saved)));
}

ampc_status infer_recurrent_grad(const inference *x)
{
    const ir_type *y = infer_operand(x, "y");
    sizes s = {0};
    TRY(expect_cell(x));
    set_gates(x, &s);
    if (y->rank != 3) return infer_reject(x, "y must have 3 dimensions, is %s", infer_show(x, y));
    s.steps = y->dims[0], s.batch = y->dims[1], s.hidden = y->dims[2];
    TRY(expect_operands(x, &s));
    const ir_type gates = shape(3, s.steps, s.batch, ir_dim_mul(x->dims, s.hidden, s.saved)),
                  dx = shape(3, s.steps, s.batch, ir_dim_mul(x->dims, s.hidden, s.gates)),
                  last = shape(2, s.batch, s.hidden, 0);
    TRY(infer_expect_operand(x, "dy", y));
    TRY(infer_expect_operand(x, "cells", y));
    TRY(infer_expect_operand(x, "gates", &gates));
    TRY(infer_expect_operand(x, "dlast_h", &last));
    TRY(infer_expect_operand(x, "dlast_c", &last));
    TRY(infer_result(x, IR_OUT(recurrent_grad, dx), dx));
    TRY(infer_result(x, IR_OUT(recurrent_grad, dproduct), dx));
    TRY(infer_result(x, IR_OUT(recurrent_grad, previous), shape(3, s.steps, s.batch, s.hidden)));
    TRY(infer_result(x, IR_OUT(recurrent_grad, reset), shape(3, s.steps, s.batch, s.hidden)));
    TRY(infer_result(x, IR_OUT(recurrent_grad, dh0), last));
    TRY(infer_result(x, IR_OUT(recurrent_grad, dc0), last));
    return infer_result(x, IR_OUT(recurrent_grad, dpeephole), shape(2, 3, s.hidden, 0));
}
