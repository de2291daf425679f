/* recurrent_body.h - template over REAL (formulas_body.h), for all devices: one hidden unit of one cell at one step,
 * forward and backward. The includer defines K_FORMULA.
 *
 * Names are those of ONNX: i, o, f, c are the operands of the LSTM's activations, z, r, n those of the GRU's; d... is a
 * gradient. */

/* The slope of each function at x, where its value is y. */
#define AT_OF_A x
#define AT_OF_Y y
#define FORMULA_SLOPE(op, name, variable, curved) \
    K_FORMULA REAL R(name##_slope_at)(REAL x, REAL y, REAL p, REAL q) \
    { \
        (void)x, (void)y; \
        return R(name##_slope)(AT_##variable, p, q); \
    }
#include "ir/ops/formulas.def"
#undef AT_OF_A
#undef AT_OF_Y

K_FORMULA REAL R(activation_value)(int word, REAL p, REAL q, REAL x)
{
#define ACTIVATION(name, value, slope) \
    if (word == IR_WORD(activation, name)) return value;
#include "kernels/recurrent.def"
    return x;
}

K_FORMULA REAL R(activation_slope)(int word, REAL p, REAL q, REAL x, REAL y)
{
#define ACTIVATION(name, value, slope) \
    if (word == IR_WORD(activation, name)) return (REAL)(slope);
#include "kernels/recurrent.def"
    return y;
}

K_FORMULA REAL R(bounded)(REAL x, REAL clip) { return x > clip ? clip : x < -clip ? -clip : x; }

/* The value of a gate; `word` is a.word, perhaps known at compile time. */
K_FORMULA REAL R(gate)(const recurrent_shape *s, recurrent_activation a, int word, REAL x)
{
    return R(activation_value)(word, (REAL)a.p, (REAL)a.q, R(bounded)(x, (REAL)s->clip));
}

/* The derivative of a gate of value y. */
K_FORMULA REAL R(gate_slope)(const recurrent_shape *s, recurrent_activation a, int word, REAL x, REAL y)
{
    const REAL clip = (REAL)s->clip;
    return x > clip || x < -clip ? 0 : R(activation_slope)(word, (REAL)a.p, (REAL)a.q, x, y);
}

/* ---- LSTM ------------------------------------------------------------------------------------ */

typedef struct R(lstm_weights) {
    REAL i, o, f;
} R(lstm_weights); /* the peepholes of a unit */
typedef struct R(lstm_gates) {
    REAL i, o, f, c;
} R(lstm_gates); /* operands of activations, or their gradients */
typedef struct R(lstm_state) {
    REAL h, c;
} R(lstm_state);

/* Completes the operands by the peepholes, and steps. */
K_FORMULA R(lstm_state)
    R(lstm_step)(const recurrent_shape *s, int f, int g, int h, const R(lstm_weights) * p, R(lstm_gates) * x, REAL c)
{
    R(lstm_state) to;
    x->i += p->i * c;
    x->f += p->f * c;
    const REAL in = R(gate)(s, s->f, f, x->i), forget = s->input_forget ? 1 - in : R(gate)(s, s->f, f, x->f);
    to.c = forget * c + in * R(gate)(s, s->g, g, x->c);
    x->o += p->o * to.c;
    to.h = R(gate)(s, s->f, f, x->o) * R(activation_value)(h, (REAL)s->h.p, (REAL)s->h.q, to.c);
    return to;
}

/* x: the completed operands; c: the state before the step, after it; d: gradients of h and c after the step. Returns
 * the gradients of the operands and, in *d, of c before the step. */
K_FORMULA R(lstm_gates) R(lstm_back)(const recurrent_shape *s, int f, int g, int h, const R(lstm_weights) * p,
                                     const R(lstm_gates) * x, REAL before, REAL c, R(lstm_state) * d)
{
    R(lstm_gates) to;
    const REAL in = R(gate)(s, s->f, f, x->i), out = R(gate)(s, s->f, f, x->o);
    const REAL forget = s->input_forget ? 1 - in : R(gate)(s, s->f, f, x->f), new_c = R(gate)(s, s->g, g, x->c);
    const REAL shown = R(activation_value)(h, (REAL)s->h.p, (REAL)s->h.q, c);
    to.o = d->h * shown * R(gate_slope)(s, s->f, f, x->o, out);
    const REAL dc = d->c + d->h * out * R(activation_slope)(h, (REAL)s->h.p, (REAL)s->h.q, c, shown) + to.o * p->o;
    to.c = dc * in * R(gate_slope)(s, s->g, g, x->c, new_c);
    to.i = dc * (s->input_forget ? new_c - before : new_c) * R(gate_slope)(s, s->f, f, x->i, in);
    to.f = s->input_forget ? 0 : dc * before * R(gate_slope)(s, s->f, f, x->f, forget);
    d->c = dc * forget + to.i * p->i + to.f * p->f;
    return to;
}

/* ---- GRU ------------------------------------------------------------------------------------- */

typedef struct R(gru_gates) {
    REAL z, r, n, inner;
} R(gru_gates); /* inner: what r multiplies if linear_before_reset */

/* The state after the step; h: before it. */
K_FORMULA REAL R(gru_step)(const recurrent_shape *s, int f, int g, const R(gru_gates) * x, REAL h)
{
    const REAL z = R(gate)(s, s->f, f, x->z);
    return (1 - z) * R(gate)(s, s->g, g, x->n) + z * h;
}

/* d: gradient of h after the step. Returns the gradients of z and n, and in *direct the part of that of h before the
 * step that does not pass through products. */
K_FORMULA R(gru_gates)
    R(gru_back)(const recurrent_shape *s, int f, int g, const R(gru_gates) * x, REAL h, REAL d, REAL *direct)
{
    R(gru_gates) to;
    const REAL z = R(gate)(s, s->f, f, x->z), n = R(gate)(s, s->g, g, x->n);
    to.z = d * (h - n) * R(gate_slope)(s, s->f, f, x->z, z);
    to.n = d * (1 - z) * R(gate_slope)(s, s->g, g, x->n, n);
    to.r = to.inner = 0;
    *direct = d * z;
    return to;
}

/* The gradients of r and, in *d, of the factor that it multiplies; *d is that of the product of both. */
K_FORMULA REAL R(gru_reset_back)(const recurrent_shape *s, int f, REAL x, REAL factor, REAL *d)
{
    const REAL r = R(gate)(s, s->f, f, x), product = *d;
    *d = product * r;
    return product * factor * R(gate_slope)(s, s->f, f, x, r);
}

/* ---- RNN ------------------------------------------------------------------------------------- */

K_FORMULA REAL R(rnn_step)(const recurrent_shape *s, int f, REAL x) { return R(gate)(s, s->f, f, x); }

K_FORMULA REAL R(rnn_back)(const recurrent_shape *s, int f, REAL x, REAL d)
{
    return d * R(gate_slope)(s, s->f, f, x, R(gate)(s, s->f, f, x));
}
