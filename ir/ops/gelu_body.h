/* gelu_body.h - template over REAL: what gelu multiplies its operand by (the gate), and the derivative of gelu (the
 * slope), of elementary functions. Needs K_FORMULA and R(m_erf) .. (ir/ops/formulas_body.h). */

/* The normal distribution. */
K_FORMULA REAL R(m_gelu_gate)(REAL x) { return (REAL)0.5 * (1 + R(m_erf)(x * (REAL)0.70710678118654752)); }

K_FORMULA REAL R(m_gelu_slope)(REAL x)
{
    return R(m_gelu_gate)(x) + x * ((REAL)0.39894228040143268 * R(m_exp)((REAL)-0.5 * x * x));
}

/* tanh of sqrt(2/pi) (x + 0.044715 x^3) */
K_FORMULA REAL R(gelu_tanh)(REAL x) { return R(m_tanh)((REAL)0.79788456080286536 * x * (1 + (REAL)0.044715 * x * x)); }

K_FORMULA REAL R(m_gelu_tanh_gate)(REAL x) { return (REAL)0.5 * (1 + R(gelu_tanh)(x)); }

K_FORMULA REAL R(m_gelu_tanh_slope)(REAL x)
{
    const REAL t = R(gelu_tanh)(x), inner = (REAL)0.79788456080286536 * (1 + (REAL)0.134145 * x * x);
    return (REAL)0.5 * (1 + t) + (REAL)0.5 * x * (1 - t * t) * inner;
}
