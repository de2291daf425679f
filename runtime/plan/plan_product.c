/* plan_product.c - convolutions that are matrix products become matmul, on devices that are away.
 *
 * Where the kernel has one element, every position is multiplied by itself: channels last, an image is a matrix with a
 * row a position.
 *
 *     y [P,M]  = conv x [P,C], w [M,C], bias       matmul x, w (transposed), bias
 *     dx [P,C] = conv_grad_input dy [P,M], w       matmul dy, w
 *     dw [M,C] = conv_grad_weight dy, x            matmul dy (transposed), x
 *     dbias    =                                   reduce_sum dy
 *
 * cuBLASLt writes f32 from low operands, for which cuDNN would compile an engine first. */
#include "runtime/backend/alloc.h"
#include "runtime/plan/plan.h"

static bool all_are(const ir_attr *list, int64_t value)
{
    for (int i = 0; i < list->list.count; i++)
        if (list->list.items[i] != value) return false;
    return true;
}

typedef struct shape_attrs {
    int strides, pads, group, out;
} shape_attrs;

static bool is_product(const rt_step *s, const k_view *w)
{
    static const shape_attrs attrs[IR_OP_COUNT] = {
#define ATTRS(op) [IR_OP_##op] = {IR_ATTR(op, strides), IR_ATTR(op, pads), IR_ATTR(op, group), IR_ATTR(op, out)}
        ATTRS(conv), ATTRS(conv_grad_input), ATTRS(conv_grad_weight),
#undef ATTRS
    };
    const shape_attrs *a = &attrs[s->op];
    if (s->in[0].dtype == IR_NO_DTYPE || !w->channels_last) return false;
    for (int i = 2; i < w->rank; i++)
        if (w->dims[i] != 1) return false;
    return s->attr[a->group].i == 1 && all_are(&s->attr[a->strides], 1) && all_are(&s->attr[a->pads], 0);
}

/* An image as a matrix with a row a position. */
static k_view matrix_of(const k_view *image)
{
    k_view m = {.dtype = image->dtype, .rank = 2, .dims = {image->dims[0], image->dims[1]}};
    for (int i = 2; i < image->rank; i++) m.dims[0] *= image->dims[i];
    return m;
}

static void read_matrix(rt_step *to, int i, const rt_step *from, int j)
{
    to->in_value[i] = from->in_value[j];
    to->in[i] = matrix_of(&from->in[j]);
}

static bool make_product(rt_plan *p, rt_step *to, const rt_step *s, int a, int b, int bias, bool trans_a, bool trans_b)
{
    if (!rt_step_make(p, to, s->node, IR_OP_matmul, bias >= 0 ? 3 : 2, 1)) return false;
    to->kernel = p->backend->kernel(IR_OP_matmul);
    to->kept = s->kept;
    to->attr = rt_plan_take(p, (size_t)ir_op_get(IR_OP_matmul)->n_attr, sizeof *to->attr);
    if (!to->attr) return false;
    to->attr[IR_ATTR(matmul, trans_a)].i = trans_a;
    to->attr[IR_ATTR(matmul, trans_b)].i = trans_b;
    to->attr[IR_ATTR(matmul, out)].dtype = s->out[0].dtype;
    read_matrix(to, IR_IN(matmul, a), s, a);
    read_matrix(to, IR_IN(matmul, b), s, b);
    if (bias >= 0) {
        to->in_value[IR_IN(matmul, bias)] = s->in_value[bias];
        to->in[IR_IN(matmul, bias)] = s->in[bias];
    }
    to->out_value[0] = s->out_value[0];
    to->out[0] = matrix_of(&s->out[0]);
    return true;
}

/* The gradient of the bias: the sum over all positions. */
static bool make_sum(rt_plan *p, rt_step *to, const rt_step *s)
{
    const int dbias = IR_OUT(conv_grad_weight, dbias);
    int64_t *axes = rt_plan_take(p, 1, sizeof *axes); /* {0} */
    if (!axes || !rt_step_make(p, to, s->node, IR_OP_reduce_sum, 1, 1)) return false;
    to->kernel = p->backend->kernel(IR_OP_reduce_sum);
    to->kept = s->kept;
    to->attr = rt_plan_take(p, (size_t)ir_op_get(IR_OP_reduce_sum)->n_attr, sizeof *to->attr);
    if (!to->attr) return false;
    to->attr[IR_ATTR(reduce_sum, axes)].list.items = axes;
    to->attr[IR_ATTR(reduce_sum, axes)].list.count = 1;
    to->attr[IR_ATTR(reduce_sum, out)].dtype = s->out[dbias].dtype;
    read_matrix(to, 0, s, IR_IN(conv_grad_weight, dy));
    to->out_value[0] = s->out_value[dbias];
    to->out[0] = s->out[dbias];
    return true;
}

static bool wanted(const rt_step *s, int k, const int *readers)
{
    return k < s->n_out && s->out_value[k] != RT_NO_VALUE && readers[s->out_value[k]] > 0;
}

/* Writes what the step becomes; how many steps, or 0: out of memory. */
static int rewrite(rt_plan *p, const rt_step *s, rt_step *to, const int *readers)
{
    if (s->op == IR_OP_conv && is_product(s, &s->in[IR_IN(conv, w)])) {
        const int bias = IR_IN(conv, bias);
        const bool biased = bias < s->n_in && s->in_value[bias] != RT_NO_VALUE;
        return make_product(p, to, s, IR_IN(conv, x), IR_IN(conv, w), biased ? bias : -1, false, true);
    }
    if (s->op == IR_OP_conv_grad_input && is_product(s, &s->in[IR_IN(conv_grad_input, w)]))
        return make_product(p, to, s, IR_IN(conv_grad_input, dy), IR_IN(conv_grad_input, w), -1, false, false);
    const int dw = IR_OUT(conv_grad_weight, dw), dbias = IR_OUT(conv_grad_weight, dbias);
    if (s->op == IR_OP_conv_grad_weight && wanted(s, dw, readers) && is_product(s, &s->out[dw])) {
        if (!make_product(p, to, s, IR_IN(conv_grad_weight, dy), IR_IN(conv_grad_weight, x), -1, true, false)) return 0;
        if (!wanted(s, dbias, readers)) return 1;
        return make_sum(p, to + 1, s) ? 2 : 0;
    }
    *to = *s;
    return 1;
}

bool rt_plan_find_products(rt_plan *p)
{
    if (!p->backend->away) return true;
    rt_step *steps = rt_plan_take(p, 2 * (size_t)p->n_steps, sizeof *steps);
    int *readers = rt_plan_readers(p), n = 0, written = steps && readers;
    for (int i = 0; i < p->n_steps && written; i++) n += written = rewrite(p, &p->steps[i], &steps[n], readers);
    rt_free(readers);
    if (!written) return false;
    p->steps = steps;
    p->n_steps = n;
    return true;
}
