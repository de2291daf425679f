/* formula_map.h - the formulas of formulas.h by the form of their loop: those of all number types, of floats alone, of
 * integers and bool alone. Beside them stand div_count (floats: the operand over a number) and square (floats: pow
 * with the exponent 2, where a device tells it apart). */
#ifndef AMPC_FORMULA_MAP_H
#define AMPC_FORMULA_MAP_H

/* clang-format off */
#define FORMULAS_ALL(UNARY, BINARY, COMPARE, BOUNDED)                                              \
    UNARY(neg) UNARY(abs) UNARY(sign) UNARY(relu)                                                  \
    BINARY(add) BINARY(sub) BINARY(mul) BINARY(div) BINARY(pow) BINARY(min) BINARY(max)            \
    BINARY(mod) BINARY(fmod)                                                                       \
    COMPARE(equal) COMPARE(less) COMPARE(less_or_equal) COMPARE(greater) COMPARE(greater_or_equal) \
    BOUNDED(clip)
#define FORMULAS_FLOAT(UNARY, BINARY, BOUNDED_GRAD)                                                \
    UNARY(floor) UNARY(ceil) UNARY(round) UNARY(sqrt) UNARY(reciprocal) UNARY(exp) UNARY(log)      \
    UNARY(sin) UNARY(cos) UNARY(tanh) UNARY(sigmoid) UNARY(erf) UNARY(softplus) UNARY(gelu)        \
    UNARY(gelu_tanh)                                                                               \
    BINARY(relu_grad) BINARY(sigmoid_grad) BINARY(tanh_grad) BINARY(erf_grad) BINARY(gelu_grad)    \
    BINARY(gelu_tanh_grad) BOUNDED_GRAD(clip_grad)
#define FORMULAS_BOOL(UNARY, COMPARE) UNARY(not) COMPARE(and) COMPARE(or) COMPARE(xor)
/* clang-format on */

#endif
