/* forms_matmul.c - generators of the matrix products. */
#include "tests/forms/form.h"

static void draw_matmul(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 1, 4);
    tensor shape = {0};
    const int rank = rarely(w->c, 4) ? 1 : 2 + choose(w->c, 3);
    for (int i = 0; i < rank - 2; i++) { /* batch axes, which broadcast from the right */
        const int axis = x.rank - rank + i;
        if (axis < 0) push_size(&shape, some_size(w));
        else if (rarely(w->c, 3)) push_size(&shape, 1);
        else push_axis(&shape, &x, axis);
    }
    push_axis(&shape, &x, x.rank - 1);
    if (rank > 1) push_size(&shape, any_size(w));
    const tensor y = new_operand(w, f, &shape);
    node_operand(w, &n, &x);
    node_operand(w, &n, &y);
    form_add(w, f, &n, 1);
}

static void draw_gemm(drawing *w, const form *f)
{
    node n = {0};
    const bool trans_a = rarely(w->c, 3), trans_b = choose(w->c, 2);
    const tensor a = any_operand(w, f, 2, 2);
    const int64_t columns = any_size(w);
    tensor shape = {0}, bias = {0};
    if (trans_b) push_size(&shape, columns);
    push_axis(&shape, &a, trans_a ? 0 : 1);
    if (!trans_b) push_size(&shape, columns);
    const tensor b = new_operand(w, f, &shape);
    node_operand(w, &n, &a);
    node_operand(w, &n, &b);
    if (w->m.opset < 11 || choose(w->c, 4)) {
        const int rank = choose(w->c, 3);
        if (rank > 1 && rarely(w->c, 3)) push_size(&bias, 1);
        else if (rank > 1) push_axis(&bias, &a, trans_a ? 1 : 0);
        if (rank > 0) push_size(&bias, rarely(w->c, 4) ? 1 : columns);
        const tensor c = new_operand(w, f, &bias);
        node_operand(w, &n, &c);
    }
    node_int_or_default(w, &n, "transA", trans_a, 0);
    node_int_or_default(w, &n, "transB", trans_b, 0);
    if (rarely(w->c, 3)) node_float(&n, "alpha", (float)any_real(w, -1, 2));
    if (rarely(w->c, 3)) node_float(&n, "beta", (float)any_real(w, -1, 2));
    form_add(w, f, &n, 1);
}

/* Each operand has some of the letters in any order; each letter is in the result or summed. */
static void draw_einsum(drawing *w, const form *f)
{
    node n = {0};
    char equation[64] = "", *at = equation;
    tensor sizes = {0};
    bool used[4] = {false};
    const int operands = 1 + choose(w->c, 3);
    for (int i = 0; i < 4; i++) push_size(&sizes, some_size(w));
    for (int i = 0; i < operands; i++) {
        const int first = choose(w->c, 4), count = 1 + choose(w->c, 3);
        tensor shape = {0};
        if (i) *at++ = ',';
        for (int k = 0; k < count; k++) {
            const int letter = (first + k * (i % 2 ? 3 : 1)) % 4;
            used[letter] = true;
            *at++ = (char)('i' + letter);
            push_axis(&shape, &sizes, letter);
        }
        const tensor x = new_operand(w, f, &shape);
        node_operand(w, &n, &x);
    }
    if (choose(w->c, 4)) {
        *at++ = '-', *at++ = '>';
        for (int i = 3; i >= 0; i--)
            if (used[i] && choose(w->c, 2)) *at++ = (char)('i' + i);
    }
    *at = '\0';
    node_text(&n, "equation", equation);
    form_add(w, f, &n, 1);
}

const form forms_matmul[] = {
    {"MatMul", draw_matmul, "f", -1, 1, NULL, false},
    {"Gemm", draw_gemm, "f", -1, 1, NULL, false},
    {"Einsum", draw_einsum, "f", -2, 2, NULL, false},
    {0},
};
