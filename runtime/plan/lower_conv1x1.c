/* lower_conv1x1.c - lowers 1x1 convolutions to matmuls on discrete devices.
 *
 * If the convolution kernel has one element, each position is multiplied on its own: an NHWC image is a matrix with one
 * row per position.
 *
 *     y [P,M]  = conv x [P,C], w [M,C], bias       matmul x, w (transposed), bias
 *     dx [P,C] = conv_grad_input dy [P,M], w       matmul dy, w
 *     dw [M,C] = conv_grad_weight dy, x            matmul dy (transposed), x
 *     dbias    =                                   reduce_sum dy
 *
 * cuBLASLt supports low-precision operands with f32 results, for which cuDNN would have to compile an engine. */
#include "runtime/plan/stages.h"

/* The convolutions and their matmuls. The convolution kernel is operand w_in or, if w_in < 0, result 0. */
static const struct rule {
    ir_op op;
    int strides, pads, group; /* attributes */
    int w_in, bias, dbias;    /* operands, a result; -1: none */
    bool trans_a, trans_b;
} rules[] = {
/* clang-format off */
#define RULE(name, w_in, bias, dbias, trans_a, trans_b) \
    {IR_OP_##name, IR_ATTR(name, strides), IR_ATTR(name, pads), IR_ATTR(name, group), w_in, bias, dbias, trans_a, \
     trans_b}
    /* clang-format on */
    RULE(conv, IR_IN(conv, w), IR_IN(conv, bias), -1, false, true),
    RULE(conv_grad_input, IR_IN(conv_grad_input, w), -1, -1, false, false),
    RULE(conv_grad_weight, -1, -1, IR_OUT(conv_grad_weight, dbias), true, false),
#undef RULE
};

/* Convolutions that sum their result stay (fuse_norm_sums.c). */
static const struct rule *find_rule(const rt_step *s)
{
    if (s->n_out > ir_op_get(s->op)->n_out) return NULL;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].op == s->op) return &rules[i];
    return NULL;
}

static bool all_are(const ir_attr *list, int64_t value)
{
    for (int i = 0; i < list->list.count; i++)
        if (list->list.items[i] != value) return false;
    return true;
}

static bool is_needed(const rt_plan *p, const rt_step *s, int k)
{
    return k >= 0 && rt_step_writes(s, k) && rt_uses(p, s->out_value[k]);
}

static bool applies(const rt_plan *p, const struct rule *r, const rt_step *s)
{
    const k_view *w = r->w_in < 0 ? &s->out[0] : &s->in[r->w_in];
    if (!k_present(&s->in[0]) || !w->channels_last || (r->w_in < 0 && !is_needed(p, s, 0))) return false;
    for (int i = 2; i < w->rank; i++)
        if (w->dims[i] != 1) return false;
    return s->attr[r->group].i == 1 && all_are(&s->attr[r->strides], 1) && all_are(&s->attr[r->pads], 0);
}

/* Returns an image as a matrix with one row per position. */
static k_view matrix_of(const k_view *image)
{
    k_view m = {.dtype = image->dtype, .rank = 2, .dims = {image->dims[0], image->dims[1]}};
    for (int i = 2; i < image->rank; i++) m.dims[0] *= image->dims[i];
    return m;
}

static void read_matrix(rt_plan *p, rt_step *to, int i, const rt_step *s, int j)
{
    rt_step_read(p, to, i, s->in_value[j]);
    to->in[i] = matrix_of(&s->in[j]);
}

static bool make_matmul(rt_plan *p, const struct rule *r, rt_step *s)
{
    const bool biased = r->bias >= 0 && rt_step_reads(s, r->bias);
    const k_view y = matrix_of(&s->out[0]);
    rt_step *to = rt_step_new(p, s->node, IR_OP_matmul, biased ? 3 : 2, 1);
    if (!to) return false;
    to->attr[IR_ATTR(matmul, trans_a)].i = r->trans_a;
    to->attr[IR_ATTR(matmul, trans_b)].i = r->trans_b;
    to->attr[IR_ATTR(matmul, out)].dtype = y.dtype;
    read_matrix(p, to, IR_IN(matmul, a), s, 0);
    read_matrix(p, to, IR_IN(matmul, b), s, 1);
    if (biased) rt_step_read(p, to, IR_IN(matmul, bias), s->in_value[r->bias]);
    rt_step_write(p, to, 0, s->out_value[0]);
    to->out[0] = y;
    rt_step_insert_before(p, to, s);
    return true;
}

/* Adds the bias gradient, which is the sum over all positions. */
static bool make_sum(rt_plan *p, rt_step *s, int dbias)
{
    int64_t *axes = rt_plan_alloc(p, 1, sizeof *axes); /* {0} */
    rt_step *to = rt_step_new(p, s->node, IR_OP_reduce_sum, 1, 1);
    if (!axes || !to) return false;
    to->attr[IR_ATTR(reduce_sum, axes)].list.items = axes;
    to->attr[IR_ATTR(reduce_sum, axes)].list.count = 1;
    to->attr[IR_ATTR(reduce_sum, out)].dtype = s->out[dbias].dtype;
    read_matrix(p, to, 0, s, IR_IN(conv_grad_weight, dy));
    rt_step_write(p, to, 0, s->out_value[dbias]);
    rt_step_insert_before(p, to, s);
    return true;
}

_Static_assert(IR_IN(conv, x) == 0 && IR_IN(conv_grad_input, dy) == 0 && IR_IN(conv_grad_weight, dy) == 0 &&
                   IR_IN(conv, w) == 1 && IR_IN(conv_grad_input, w) == 1 && IR_IN(conv_grad_weight, x) == 1,
               "operands 0 and 1 are those of the matmul");

ampc_status rt_stage_lower_conv1x1(rt_plan *p, diag *d)
{
    (void)d;
    for (int i = 0; i < p->n_steps && p->backend->device_ops; i++) {
        rt_step *s = p->steps[i];
        const struct rule *r = find_rule(s);
        if (!r || !applies(p, r, s)) continue;
        if (!make_matmul(p, r, s)) return AMPC_NO_MEMORY;
        if (is_needed(p, s, r->dbias) && !make_sum(p, s, r->dbias)) return AMPC_NO_MEMORY;
        rt_step_remove(p, s);
    }
    return AMPC_OK;
}
