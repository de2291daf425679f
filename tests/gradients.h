/* gradients.h - what frontend/onnx.def says about an operand. */
#ifndef TESTS_GRADIENTS_H
#define TESTS_GRADIENTS_H

#include <stdbool.h>
#include <string.h>

static const struct {
    const char *op, *operands;
} gradient_table[] = {
#define OPERATOR(op, since, bf16, types, colour, operands) {#op, operands},
#include "frontend/onnx.def"
};

/* The mark of operand i: '*', '-', '#'; ' ' for none; 0 if there is no such operand. */
static inline char gradient_mark(const char *op, int i)
{
    for (size_t k = 0; k < sizeof gradient_table / sizeof *gradient_table; k++) {
        if (strcmp(gradient_table[k].op, op) != 0) continue;
        const char *at = gradient_table[k].operands;
        for (; i > 0; i--) {
            const char *end = strchr(at, ' ');
            if (!end) return strstr(at, "...") ? ' ' : 0;
            at = end + 1;
        }
        return strchr("*-#", *at) ? *at : ' ';
    }
    return 0;
}

static inline bool gradient_of_any(const char *op)
{
    char mark;
    for (int i = 0; i < 16 && (mark = gradient_mark(op, i)); i++)
        if (mark == ' ' || mark == '*') return true;
    return false;
}

#endif
