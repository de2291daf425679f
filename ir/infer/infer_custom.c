/* infer_custom.c - custom operators and their gradients: the types that the importer has got from the operator's own
 * inference are attributes of the node. */
#include "ir/infer/infer.h"

#include <string.h>

_Static_assert((int)IR_WORD(colour, white) == (int)IR_WHITE && (int)IR_WORD(colour, black) == (int)IR_BLACK &&
                   (int)IR_WORD(colour, gray) == (int)IR_GRAY && (int)IR_WORD(colour, clear) == (int)IR_CLEAR,
               "the words of the attribute are the colours");

/* The letter of operand i in `gradients`, '-' if there is none. */
static char gradient_of(const char *gradients, int i) { return i < (int)strlen(gradients) ? gradients[i] : '-'; }

/* Checks the letters and returns the number of operands with a gradient, or -1 after an error. */
static int count_gradients(const inference *x, int n_in)
{
    const char *gradients = infer_attr(x, "gradients")->s;
    int count = 0;
    bool ok = strlen(gradients) == (size_t)n_in && strspn(gradients, "d-") == (size_t)n_in;
    for (int i = 0; ok && i < n_in; i++) {
        count += gradients[i] == 'd';
        ok = gradients[i] != 'd' || ir_dtype_is_float(infer_in(x, i)->dtype);
    }
    if (ok) return count;
    infer_reject(x, "gradients \"%s\" do not fit %d operands", gradients, n_in);
    return -1;
}

ampc_status infer_custom(const inference *x)
{
    if (*infer_attr(x, "gradients")->s && count_gradients(x, x->node->n_in) < 0) return AMPC_REJECTED;
    return infer_opaque(x);
}

bool ir_node_stops(const ir_node *n, int i)
{
    if (n->op != IR_OP_custom) return ir_op_stops(n->op, i);
    const char *gradients = n->attr[IR_ATTR(custom, gradients)].s;
    return *gradients && gradient_of(gradients, i) == '-';
}

/* ---- the gradient ----------------------------------------------------------------------------- */

/* Operand `first` + k must have the type of the k-th float result; the results start at operand n_in. */
static ampc_status check_result_gradients(const inference *x, int n_in, int n_out)
{
    int at = n_in + n_out;
    for (int i = n_in; i < n_in + n_out; i++) {
        const ir_type *result = infer_in(x, i);
        if (!ir_dtype_is_float(result->dtype)) continue;
        if (at == x->node->n_in) return infer_reject(x, "result %d has no gradient", i - n_in);
        const ir_type *gradient = infer_in(x, at++);
        if (gradient->dtype != result->dtype)
            return infer_reject(x, "the gradient of result %d is %s, not %s", i - n_in, infer_show(x, gradient),
                                infer_show(x, result));
        TRY(infer_expect(x, at - 1, result));
    }
    return at == x->node->n_in ? AMPC_OK : infer_reject(x, "has %d operands, expected %d", x->node->n_in, at);
}

ampc_status infer_custom_grad(const inference *x)
{
    const int n_in = ir_layout_operands(x->node), n_out = ir_layout_results(x->node);
    if (x->node->n_in < n_in + n_out) return infer_reject(x, "its layout does not fit %d operands", x->node->n_in);
    TRY(check_result_gradients(x, n_in, n_out));
    const int count = count_gradients(x, n_in);
    if (count < 0) return AMPC_REJECTED;
    if (count != x->node->n_out) return infer_reject(x, "has %d results, expected %d", x->node->n_out, count);
    for (int i = 0, k = 0; i < n_in; i++)
        if (infer_attr(x, "gradients")->s[i] == 'd') TRY(infer_result(x, k++, *infer_in(x, i)));
    return AMPC_OK;
}
