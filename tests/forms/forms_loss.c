/* forms_loss.c - generators of the losses. */
#include "tests/forms/form.h"

static void draw_loss(drawing *w, const form *f)
{
    static const char *const reductions[] = {"mean", "sum", "none"};
    node n = {0};
    const bool is_softmax = f->op[0] == 'S';
    const tensor x = any_operand(w, f, 2, 4);
    const int reduction = choose(w->c, 3);
    tensor shape = {0}, classes = {0};
    for (int i = 0; i < x.rank; i++)
        if (i != 1) push_axis(&shape, &x, i);
    push_axis(&classes, &x, 1);
    const values range = {0, (double)x.dims[1]};
    const tensor label = new_tensor(w, choose(w->c, 2) ? ONNX_int64 : ONNX_int32, range, &shape, false);
    node_operand(w, &n, &x);
    node_operand(w, &n, &label);
    if (rarely(w->c, 3)) {
        const tensor weight = new_tensor(w, w->type, (values){0.3, 2}, &classes, true);
        node_operand(w, &n, &weight);
    }
    node_text(&n, "reduction", reductions[reduction]);
    if (rarely(w->c, 3)) node_int(&n, "ignore_index", choose(w->c, 3) - 1);
    form_add(w, f, &n, is_softmax && rarely(w->c, 3) ? 2 : 1);
}

const form forms_loss[] = {
    {"SoftmaxCrossEntropyLoss", draw_loss, "f", -2, 2, NULL, false},
    {"NegativeLogLikelihoodLoss", draw_loss, "f", -2, 2, NULL, false},
    {0},
};
