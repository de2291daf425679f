/* split_norms.c - splits batch normalisation into statistics and pointwise ops if its readers are pointwise.
 *
 *     %y, .. = batch_norm %x, ..           _, .., %m, %r = batch_norm %x, ..       computes the statistics
 *     %z = relu %y                  ->     %c = sub %x, %m    %n = mul %c, %r      in f32; later fused with
 *                                          %s = mul %n, %scale   %y = add %s, %bias    the readers of %y
 *
 * Plans that count keep the bits of the op, whose factor is the product of scale and an f64 %r:
 *     %c = sub %x, %mean    %s = mul %c, %factor    %y = add %s, %bias
 *
 * The image is then read twice and written once. With running statistics (those that fold_norms leaves) the first part
 * does not read the image: the scale is passed as a dummy 1x1 image, so that the step can be hoisted. */
#include "runtime/plan/norms.h"
#include "runtime/plan/stages.h"

enum { PARTS = 4 }; /* the largest number of pointwise steps */

/* ---- parts of a normalisation ------------------------------------------------------------------------ */

bool rt_norm_is_divisible(const rt_plan *p, const rt_step *s)
{
    if (s->op != IR_OP_batch_norm || !rt_step_writes(s, IR_OUT(batch_norm, y))) return false;
    const bool wide = s->in[0].dtype == IR_f64, wide_scale = s->in[IR_IN(batch_norm, scale)].dtype == IR_f64;
    if (wide != wide_scale || (wide && p->backend->device_ops)) return false; /* all parts compute in one type */
    return k_count(&s->in[0]) > 0;
}

k_view rt_norm_vector(const rt_step *s)
{
    const k_view *x = &s->in[IR_IN(batch_norm, x)];
    return (k_view){.dtype = x->dtype == IR_f64 ? IR_f64 : IR_f32, .rank = 1, .dims = {x->dims[1]}};
}

uint32_t rt_norm_result(rt_plan *p, rt_step *s, int k)
{
    if (!rt_step_writes(s, k)) {
        const k_view vector = rt_norm_vector(s);
        const uint32_t value = rt_plan_new_value(p, s->out_value[IR_OUT(batch_norm, y)], &vector);
        if (value == RT_NO_VALUE) return RT_NO_VALUE;
        rt_step_write(p, s, k, value);
    }
    return s->out_value[k];
}

rt_step *rt_norm_part(rt_plan *p, const ir_node *node, ir_op op, uint32_t image, uint32_t vector, const k_view *x,
                      uint32_t to)
{
    rt_step *part = rt_step_new(p, node, op, 2, 1);
    if (!part) return NULL;
    rt_step_read(p, part, 0, image);
    rt_step_read(p, part, 1, vector);
    part->in[1].rank = x->rank - 1; /* [C,1,1] */
    part->in[1].dims[0] = x->dims[1];
    for (int i = 1; i < part->in[1].rank; i++) part->in[1].dims[i] = 1;
    rt_step_write(p, part, 0, to);
    return part;
}

void rt_norm_drop_image(rt_plan *p, rt_step *s)
{
    const int x = IR_IN(batch_norm, x);
    const int64_t channels = s->in[x].dims[1];
    rt_step_read(p, s, x, s->in_value[IR_IN(batch_norm, scale)]);
    s->in[x].rank = 2;
    s->in[x].dims[0] = 1;
    s->in[x].dims[1] = channels;
}

/* ---- the stage --------------------------------------------------------------------------------------- */

/* Whether a step reads y elementwise, without broadcasting it. */
static bool has_pointwise_use(const rt_plan *p, uint32_t y)
{
    for (const rt_use *u = rt_uses(p, y); u; u = u->next)
        if (u->step && rt_step_has(u->step, IR_ELEMENTWISE) &&
            k_count(&u->step->in[u->slot]) == k_count(&u->step->out[0]))
            return true;
    return false;
}

/* Pointwise steps, each with the result of the one before and a vector. */
typedef struct parts {
    int n;
    ir_op op[PARTS];
    uint32_t vector[PARTS];
} parts;

/* Inserts a step on vectors after *at, which becomes that step, and returns its result. b may be absent. */
static uint32_t add_vector(rt_plan *p, rt_step **at, ir_op op, uint32_t a, uint32_t b, uint32_t of, ir_dtype type)
{
    k_view view = p->values[a].view;
    view.dtype = type;
    const uint32_t to = rt_plan_new_value(p, of, &view);
    rt_step *s = to == RT_NO_VALUE ? NULL : rt_step_new(p, (*at)->node, op, b == RT_NO_VALUE ? 1 : 2, 1);
    if (!s) return RT_NO_VALUE;
    rt_step_read(p, s, 0, a);
    if (b != RT_NO_VALUE) rt_step_read(p, s, 1, b);
    rt_step_write(p, s, 0, to);
    rt_step_insert_after(p, s, *at);
    *at = s;
    return to;
}

/* Whether y is needed, and the pointwise steps can have the bits of the op. */
static bool is_exact(const rt_plan *p, const rt_step *s)
{
    const int rstd = IR_OUT(batch_norm, saved_rstd);
    for (int j = 0; j <= IR_IN(batch_norm, var); j++)
        if (s->in[j].dtype != IR_f32) return false;
    return !s->attr[IR_ATTR(batch_norm, training)].i && rt_uses(p, s->out_value[IR_OUT(batch_norm, y)]) &&
           !(rt_step_writes(s, rstd) && rt_uses(p, s->out_value[rstd]));
}

/* The steps that have the bits of the op. The factor is computed after *at. */
static bool find_exact(rt_plan *p, rt_step *s, rt_step **at, parts *out)
{
    const uint32_t y = s->out_value[IR_OUT(batch_norm, y)], scale = s->in_value[IR_IN(batch_norm, scale)];
    k_view wide = rt_norm_vector(s);
    wide.dtype = IR_f64;
    const uint32_t rstd = rt_plan_new_value(p, y, &wide);
    if (rstd == RT_NO_VALUE) return false;
    rt_step_write(p, s, IR_OUT(batch_norm, saved_rstd), rstd);
    const uint32_t wide_scale = add_vector(p, at, IR_OP_cast, scale, RT_NO_VALUE, y, IR_f64);
    if (wide_scale == RT_NO_VALUE) return false;
    const uint32_t product = add_vector(p, at, IR_OP_mul, rstd, wide_scale, y, IR_f64);
    if (product == RT_NO_VALUE) return false;
    const uint32_t factor = add_vector(p, at, IR_OP_cast, product, RT_NO_VALUE, y, IR_f32);
    *out = (parts){3,
                   {IR_OP_sub, IR_OP_mul, IR_OP_add},
                   {s->in_value[IR_IN(batch_norm, mean)], factor, s->in_value[IR_IN(batch_norm, bias)]}};
    return factor != RT_NO_VALUE;
}

static bool find_parts(rt_plan *p, rt_step *s, parts *out)
{
    const uint32_t mean = rt_norm_result(p, s, IR_OUT(batch_norm, saved_mean));
    const uint32_t rstd = rt_norm_result(p, s, IR_OUT(batch_norm, saved_rstd));
    *out = (parts){PARTS,
                   {IR_OP_sub, IR_OP_mul, IR_OP_mul, IR_OP_add},
                   {mean, rstd, s->in_value[IR_IN(batch_norm, scale)], s->in_value[IR_IN(batch_norm, bias)]}};
    return mean != RT_NO_VALUE && rstd != RT_NO_VALUE;
}

/* Reduces the step to the statistics and inserts the pointwise steps after it. */
static bool split(rt_plan *p, rt_step *s)
{
    const k_view x = s->in[IR_IN(batch_norm, x)];
    const uint32_t y = s->out_value[IR_OUT(batch_norm, y)];
    uint32_t from = s->in_value[IR_IN(batch_norm, x)];
    k_view image = x;
    rt_step *at = s;
    parts all;
    image.dtype = rt_norm_vector(s).dtype;
    if (!(p->counted ? find_exact(p, s, &at, &all) : find_parts(p, s, &all))) return false;
    rt_step_write(p, s, IR_OUT(batch_norm, y), RT_NO_VALUE);
    for (int i = 0; i < all.n; i++) {
        const uint32_t to = i == all.n - 1 ? y : rt_plan_new_value(p, y, &image);
        rt_step *part = to == RT_NO_VALUE ? NULL : rt_norm_part(p, s->node, all.op[i], from, all.vector[i], &x, to);
        if (!part) return false;
        rt_step_insert_after(p, part, at);
        from = to;
        at = part;
    }
    if (!s->attr[IR_ATTR(batch_norm, training)].i) rt_norm_drop_image(p, s);
    return true;
}

ampc_status rt_stage_split_norms(rt_plan *p, diag *d)
{
    (void)d;
    for (int i = 0; i < p->n_steps && p->backend->fused; i++) {
        rt_step *s = p->steps[i];
        if (!rt_norm_is_divisible(p, s)) continue;
        if (!(p->counted ? is_exact(p, s) : has_pointwise_use(p, s->out_value[IR_OUT(batch_norm, y)]))) continue;
        if (!split(p, s)) return AMPC_NO_MEMORY;
    }
    return AMPC_OK;
}
