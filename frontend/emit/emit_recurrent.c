/* emit_recurrent.c - LSTM, GRU, RNN from an op whose operand is already multiplied with W: W is the identity. */
#include "frontend/emit/emit.h"
#include "frontend/lower/lower.h"

static const char *const operators[] = {
    [IR_WORD(cell, rnn)] = "RNN", [IR_WORD(cell, gru)] = "GRU", [IR_WORD(cell, lstm)] = "LSTM"};

/* The value with an axis for the direction, in front. */
static const char *with_direction(emitter *e, const ir_node *n, const char *name)
{
    return name ? emit_call(e, n, "Unsqueeze", name, emit_i64s(e, (int64_t[]){0}, 1)) : NULL;
}

static const char *operand(emitter *e, const ir_node *n, int i)
{
    const ir_value *v = ir_in(n, i);
    return v ? with_direction(e, n, emit_value_as(e, v, ir_in(n, 0)->type.dtype)) : NULL;
}

static const char *zeros(emitter *e, const ir_node *n, const int64_t *dims, int rank)
{
    const char *name = emit_call(e, n, "ConstantOfShape", emit_i64s(e, dims, rank), NULL);
    return rank == 2 ? emit_call(e, n, "EyeLike", name, NULL) : name;
}

/* Zeros and, for the last gate, the bias of its products with R. */
static const char *biases(emitter *e, const ir_node *n, int64_t rows, int64_t hidden)
{
    const ir_value *bias = ir_in(n, IR_IN(recurrent, bias));
    const ir_dtype type = ir_in(n, 0)->type.dtype;
    if (!bias) return NULL;
    const char *rest = zeros(e, n, (int64_t[]){2 * rows - hidden}, 1), *last = emit_value_as(e, bias, type);
    const char *name = emit_name(e, "biases");
    rest = type == IR_f32 ? rest : emit_cast_of(e, n, rest, type);
    emit_op op = emit_helper(e, n, "Concat");
    emit_in(&op, rest);
    emit_in(&op, last);
    emit_int(&op, "axis", 0);
    emit_out(&op, name);
    emit_end(&op);
    return with_direction(e, n, name);
}

static const char *peepholes(emitter *e, const ir_node *n)
{
    const ir_value *p = ir_in(n, IR_IN(recurrent, peephole));
    if (!p) return NULL;
    const char *name = emit_value_as(e, p, ir_in(n, 0)->type.dtype);
    return emit_call(e, n, "Reshape", name, emit_i64s(e, (int64_t[]){1, -1}, 2));
}

static const char *lengths(emitter *e, const ir_node *n)
{
    const ir_value *v = ir_in(n, IR_IN(recurrent, lengths));
    if (!v) return NULL;
    return v->type.dtype == IR_i32 ? emit_value(e, v) : emit_cast_of(e, n, emit_value(e, v), IR_i32);
}

static void put_activations(emit_op *op, const ir_node *n, int count)
{
    const char *names[3];
    double alpha[3], beta[3];
    int alphas = 0, betas = 0;
    for (int i = 0; i < count; i++) {
        const ir_attr *a = &n->attr[IR_ATTR(recurrent, f) + 3 * i];
        const onnx_activation f = onnx_activation_of((int)a[0].i);
        names[i] = f.name;
        if (f.parameters > 0) alpha[alphas++] = a[1].f;
        if (f.parameters > 1) beta[betas++] = a[2].f;
    }
    emit_texts(op, "activations", names, count);
    if (alphas) emit_floats(op, "activation_alpha", alpha, alphas);
    if (betas) emit_floats(op, "activation_beta", beta, betas);
}

static void put_attributes(emit_op *op, const ir_node *n, int cell, int64_t hidden)
{
    const ir_attr *attr = n->attr;
    emit_int(op, "hidden_size", hidden);
    if (attr[IR_ATTR(recurrent, reverse)].i) emit_text(op, "direction", "reverse");
    if (attr[IR_ATTR(recurrent, clip)].f > 0) emit_float(op, "clip", attr[IR_ATTR(recurrent, clip)].f);
    if (attr[IR_ATTR(recurrent, input_forget)].i) emit_int(op, "input_forget", 1);
    if (attr[IR_ATTR(recurrent, linear_before_reset)].i) emit_int(op, "linear_before_reset", 1);
    put_activations(op, n, cell == IR_WORD(cell, rnn) ? 1 : cell == IR_WORD(cell, gru) ? 2 : 3);
}

/* Writes the operator and defines the results, which have no axis for the direction. */
static void put_node(emitter *e, const ir_node *n, const char *const *in, int count, int64_t hidden)
{
    static const int axes[] = {1, 0, 0};
    const int cell = (int)n->attr[IR_ATTR(recurrent, cell)].i, results = cell == IR_WORD(cell, lstm) ? 3 : 2;
    const char *names[3];
    emit_op op = emit_begin(e, n, operators[cell]);
    for (int i = 0; i < count; i++) emit_in(&op, in[i]);
    put_attributes(&op, n, cell, hidden);
    for (int i = 0; i < results; i++) {
        names[i] = emit_name(e, arena_printf(e->arena, "%s.directions", n->out[i]->name));
        emit_out(&op, names[i]);
    }
    emit_end(&op);
    for (int i = 0; i < results; i++) {
        if (!ir_value_used(n->out[i])) continue;
        const char *flat = emit_call(e, n, "Squeeze", names[i], emit_i64s(e, (int64_t[]){axes[i]}, 1));
        emit_define(e, n, i, flat, ir_in(n, 0)->type.dtype);
    }
}

void emit_recurrent(emitter *e, const ir_node *n)
{
    const ir_type *x = &ir_in(n, 0)->type, *r = &ir_in(n, IR_IN(recurrent, r))->type;
    const bool lstm = n->attr[IR_ATTR(recurrent, cell)].i == IR_WORD(cell, lstm);
    bool read = ir_value_used(n->out[IR_OUT(recurrent, cells)]) || ir_value_used(n->out[IR_OUT(recurrent, gates)]);
    read |= !lstm && ir_value_used(n->out[IR_OUT(recurrent, last_c)]);
    if (read || ir_dim_is_symbolic(r->dims[0])) {
        emit_refuse(e, n,
                    read ? "other nodes read the states of all steps" : "the number of hidden units must be known");
        return;
    }
    const int64_t rows = r->dims[0], hidden = r->dims[1];
    const char *identity = zeros(e, n, (int64_t[]){rows, rows}, 2);
    if (x->dtype != IR_f32) identity = emit_cast_of(e, n, identity, x->dtype);
    const char *in[8] = {emit_value(e, ir_in(n, 0))};
    in[1] = with_direction(e, n, identity);
    in[2] = operand(e, n, IR_IN(recurrent, r));
    in[3] = biases(e, n, rows, hidden);
    in[4] = lengths(e, n);
    in[5] = operand(e, n, IR_IN(recurrent, h0));
    in[6] = operand(e, n, IR_IN(recurrent, c0));
    in[7] = peepholes(e, n);
    put_node(e, n, in, lstm ? 8 : 6, hidden);
}
