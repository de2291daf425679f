/* fuse_norm_grads.c - the gradient of a batch normalisation computes that of a relu after it (kernels/norm_grad.h).
 *
 *     %z = relu(normalised %x)
 *     %d = relu_slope %g, %z            ->   %dx, .. = batch_norm_grad %g, %x, .., bias
 *     %dx, .. = batch_norm_grad %d, %x, ..
 *
 * The operand of the relu is then computed again from x, which the gradient reads anyway. That is exact if the forward
 * pass computed it by the steps that split_norms has made. Otherwise, as after the sum with a residual, z is read:
 *
 *     %z = relu(normalised %x + %r)
 *     %s = add %g, %h                   ->   %dx, .., %d = batch_norm_grad %g, %x, .., %z, %h
 *     %d = relu_slope %s, %z
 *     %dx, .. = batch_norm_grad %d, %x, ..
 *
 * The step runs where the first one that it replaces did, since %d may have other readers. */
#include "kernels/norm_grad.h"
#include "runtime/plan/stages.h"

#include <string.h>

/* The gradient of a relu: value `d` from the gradients g and, if present, h, where y is positive. */
typedef struct slope {
    rt_step *step;
    uint32_t d, g, h, y;
} slope;

/* ---- the gradient of a relu -------------------------------------------------------------------------- */

/* Returns the whole value of that type that an argument of a fused kernel reads, or RT_NO_VALUE. */
static uint32_t dense_operand(const rt_step *s, int arg, ir_dtype type)
{
    if (arg >= 0) return RT_NO_VALUE;
    const k_operand *o = &s->fused->operands[~arg];
    return o->dense && s->in[o->in].dtype == type ? s->in_value[o->in] : RT_NO_VALUE;
}

static bool is_formula(const k_instruction *c, ir_formula formula, ir_dtype type)
{
    return ir_formula_of(c->op, c->attr) == formula && c->type == type;
}

/* Finds the slope in a fused kernel that computes nothing but it and a sum before. */
static bool find_in_program(rt_step *s, slope *out)
{
    const k_fused *f = s->fused;
    const int last = f->n_code - 1;
    const k_instruction *c = &f->code[last];
    if (last > 1 || f->n_results != 1 || f->results[0].from != last || f->results[0].fold != K_EACH || f->commits ||
        !is_formula(c, IR_FORMULA_relu_slope, s->out[0].dtype))
        return false;
    *out = (slope){s, s->out_value[0], dense_operand(s, c->arg[0], c->type), RT_NO_VALUE,
                   dense_operand(s, c->arg[1], c->type)};
    if (last == 0 || c->arg[0] != 0 || !is_formula(&f->code[0], IR_FORMULA_add, c->type)) return last == 0;
    out->g = dense_operand(s, f->code[0].arg[0], c->type);
    out->h = dense_operand(s, f->code[0].arg[1], c->type);
    return out->h != RT_NO_VALUE;
}

static bool find_slope(rt_step *s, slope *out)
{
    if (s->kind == RT_STEP_FUSED) {
        if (!find_in_program(s, out)) return false;
    } else {
        if (ir_formula_of(s->op, s->attr) != IR_FORMULA_relu_slope || !rt_same_view(&s->in[0], &s->out[0]) ||
            !rt_same_view(&s->in[1], &s->out[0]))
            return false;
        *out = (slope){s, s->out_value[0], s->in_value[0], RT_NO_VALUE, s->in_value[1]};
    }
    return out->g != RT_NO_VALUE && out->y != RT_NO_VALUE;
}

/* ---- recomputing the operand of a relu ----------------------------------------------------------------- */

/* Whether the operand of the fused kernel has one element per channel of x, an image or its matrix. */
static bool is_per_channel(const rt_plan *p, const rt_step *norm, const rt_step *s, const k_operand *o)
{
    const k_view *x = &norm->in[IR_IN(batch_norm_grad, x)];
    const bool last = p->values[rt_root(p, norm->in_value[IR_IN(batch_norm_grad, x)])].channels_last;
    const int after = last ? 0 : x->rank - 2; /* axes after the channels */
    k_view vector = {.dtype = IR_f32, .rank = 1 + after, .dims = {x->dims[1]}}, image = *x;
    for (int i = 1; i <= after; i++) vector.dims[i] = 1;
    for (int i = 1; i < x->rank && last; i++) image.dims[i] = i < x->rank - 1 ? x->dims[i + 1] : x->dims[1];
    const k_walk walk = k_walk_broadcast(&vector, &image);
    return ir_dtype_is_float(s->in[o->in].dtype) && k_count(&s->in[o->in]) == x->dims[1] &&
           (o->dense || memcmp(&o->walk, &walk, sizeof walk) == 0);
}

/* Returns the bias of the normalisation if y is the relu of what it has made of x, and is computed by the steps of
 * split_norms; else RT_NO_VALUE. */
static uint32_t find_bias(const rt_plan *p, const rt_step *norm, uint32_t y)
{
    static const struct {
        ir_formula formula;
        int operand; /* of batch_norm_grad; -1: the bias */
    } parts[] = {{IR_FORMULA_add, -1},
                 {IR_FORMULA_mul, IR_IN(batch_norm_grad, scale)},
                 {IR_FORMULA_mul, IR_IN(batch_norm_grad, saved_rstd)},
                 {IR_FORMULA_sub, IR_IN(batch_norm_grad, saved_mean)}};
    const int n = sizeof parts / sizeof *parts, x = IR_IN(batch_norm_grad, x);
    const rt_step *s = rt_def(p, y);
    uint32_t bias = RT_NO_VALUE;
    int k = 0;
    if (!s || s->kind != RT_STEP_FUSED) return RT_NO_VALUE;
    while (s->out_value[k] != rt_root(p, y)) k++;
    const k_instruction *c = &s->fused->code[s->fused->results[k].from];
    if (s->fused->results[k].fold != K_EACH || !is_formula(c, IR_FORMULA_relu, norm->in[x].dtype)) return RT_NO_VALUE;
    for (int i = 0; i < n; i++) {
        if (c->arg[0] < 0) return RT_NO_VALUE;
        c = &s->fused->code[c->arg[0]];
        if (!is_formula(c, parts[i].formula, i == 0 ? norm->in[x].dtype : IR_f32) || c->arg[1] >= 0) return RT_NO_VALUE;
        const k_operand *o = &s->fused->operands[~c->arg[1]];
        const uint32_t value = s->in_value[o->in];
        if (!is_per_channel(p, norm, s, o)) return RT_NO_VALUE;
        if (parts[i].operand < 0) bias = value;
        else if (rt_root(p, norm->in_value[parts[i].operand]) != rt_root(p, value)) return RT_NO_VALUE;
    }
    const uint32_t source = dense_operand(s, c->arg[0], norm->in[x].dtype);
    if (source == RT_NO_VALUE || rt_root(p, source) != rt_root(p, norm->in_value[x])) return RT_NO_VALUE;
    return p->values[bias].view.dtype == norm->in[IR_IN(batch_norm_grad, scale)].dtype ? bias : RT_NO_VALUE;
}

/* ---- the stage --------------------------------------------------------------------------------------- */

/* Whether the value, if present, can be read in place of the gradient that the normalisation reads. */
static bool has_layout(const rt_plan *p, uint32_t value, const rt_step *norm)
{
    const int dy = IR_IN(batch_norm_grad, dy);
    if (value == RT_NO_VALUE) return true;
    return p->values[rt_root(p, value)].channels_last == p->values[rt_root(p, norm->in_value[dy])].channels_last &&
           k_count(&p->values[value].view) == k_count(&norm->in[dy]);
}

/* Whether the gradient of a normalisation reads the slope as its dy, and could run in the place of that. */
static bool can_take(const rt_plan *p, const rt_use *u, const slope *d)
{
    const rt_step *s = u->step;
    if (!s || s->kind != RT_STEP_OP || s->op != IR_OP_batch_norm_grad || u->slot != IR_IN(batch_norm_grad, dy))
        return false;
    for (int j = 0; j < s->n_in; j++) {
        const rt_step *def = rt_def(p, s->in_value[j]);
        if (j != u->slot && def && def->index >= d->step->index) return false;
    }
    return s->n_in == ir_op_get(s->op)->n_in && k_count(&s->in[0]) > 0 && has_layout(p, d->g, s) &&
           has_layout(p, d->h, s) && has_layout(p, d->y, s);
}

static rt_step *find_norm(const rt_plan *p, const slope *d)
{
    for (const rt_use *u = rt_uses(p, d->d); u; u = u->next)
        if (can_take(p, u, d)) return u->step;
    return NULL;
}

/* Lets the step read the value in an extra slot, with the shape and layout of that view. */
static bool read_extra(rt_plan *p, rt_step *s, int slot, uint32_t value, const k_view *as)
{
    const k_view view = *as;
    if (value == RT_NO_VALUE) return true;
    if (!rt_step_read_extra(p, s, slot, value)) return false;
    s->in[k_extra_in_at(s->op, s->listed, slot)] = view;
    return true;
}

static ampc_status fuse(rt_plan *p, const slope *d, rt_step *norm)
{
    const int dy = IR_IN(batch_norm_grad, dy);
    const k_view view = norm->in[dy];
    const bool others = !rt_has_one_use(p, d->d);
    const uint32_t bias = others ? RT_NO_VALUE : find_bias(p, norm, d->y);
    rt_step_redirect(p, norm, dy, d->g);
    if (!read_extra(p, norm, K_SLOT(relu, addend), d->h, &view) ||
        (bias == RT_NO_VALUE && !read_extra(p, norm, K_SLOT(relu, y), d->y, &view)) ||
        (bias != RT_NO_VALUE && !rt_step_read_extra(p, norm, K_SLOT(relu, bias), bias)))
        return AMPC_NO_MEMORY;
    rt_step_move_after(p, norm, d->step);
    rt_step_remove(p, d->step);
    if (!others) return AMPC_OK;
    if (!rt_step_write_extra(p, norm, K_SLOT(relu, masked), d->d)) return AMPC_NO_MEMORY;
    norm->out[k_extra_out_at(norm->op, norm->listed, K_SLOT(relu, masked))] = view;
    return AMPC_OK;
}

ampc_status rt_stage_fuse_norm_grads(rt_plan *p, diag *d)
{
    (void)d;
    for (int i = 0; i < p->n_steps && p->backend->device_ops; i++) {
        slope found;
        if (!find_slope(p->steps[i], &found)) continue;
        rt_step *norm = find_norm(p, &found);
        if (norm) TRY(fuse(p, &found, norm));
    }
    return AMPC_OK;
}
