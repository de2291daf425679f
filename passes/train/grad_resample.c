/* grad_resample.c - gradients of resizing and of samples at positions and in regions. */
#include "passes/train/grad.h"

bool grad_resize(grad *g)
{
    ir_node *n = grad_node(g, IR_OP_resize_grad, 1, &D);
    return (g->dx[0] = ir_done(g->b, grad_shaped(n, IR_ATTR(resize_grad, shape), X))) != NULL;
}

bool grad_grid_sample(grad *g)
{
    ir_node *n = grad_node(g, IR_OP_grid_sample_grad, 3, (ir_value *[]){grad_cast_like(g, D, X), X, ir_in(g->n, 1)});
    if (!ir_done_all(g->b, n)) return false;
    g->dx[0] = ir_out(n, IR_OUT(grid_sample_grad, dx));
    g->dx[1] = ir_out(n, IR_OUT(grid_sample_grad, dgrid));
    return true;
}

bool grad_roi_align(grad *g)
{
    ir_value *in[] = {grad_cast_like(g, D, X), X, ir_in(g->n, IR_IN(roi_align, rois)),
                      ir_in(g->n, IR_IN(roi_align, batch))};
    return (g->dx[0] = ir_done(g->b, grad_node(g, IR_OP_roi_align_grad, 4, in))) != NULL;
}

/* Resizing is linear, so the gradient of its gradient is a resizing. */
bool grad_resize_grad(grad *g)
{
    ir_node *n = grad_node(g, IR_OP_resize, 1, &D);
    return (g->dx[0] = ir_done(g->b, grad_shaped(n, IR_ATTR(resize, shape), X))) != NULL;
}
