/* plan_norm.c - batch normalisation in two parts, where what reads it works element by element.
 *
 *     %y, .. = batch_norm %x, ..           _, .., %m, %r = batch_norm %x, ..       the statistics
 *     %z = relu %y                  ->     %c = sub %x, %m    %n = mul %c, %r      in f32; with what reads %y
 *                                          %s = mul %n, %scale   %y = add %s, %bias    they become one program
 *
 * So that the image is read twice and written once. With running statistics the first part does not look at the image:
 * it is given the scale in its place, as an image of one position, and may be kept (plan_keep.c). */
#include "kernels/pointwise.h"
#include "runtime/backend/alloc.h"
#include "runtime/plan/plan.h"

static const bool by_element[IR_OP_COUNT] = {
#define FORMULA_OP(op) [IR_OP_##op] = true,
#include "ir/formulas.def"
    [IR_OP_cast] = true,
};

enum { PARTS = 4 }; /* steps of the second part */

/* Some step reads y element by element. Found for all batch normalisations in one walk: by value. */
static void find_readers(const rt_plan *p, bool *read)
{
    for (int i = 0; i < p->n_steps; i++) {
        const rt_step *s = &p->steps[i];
        for (int j = 0; j < s->n_in; j++)
            if (s->in_value[j] != RT_NO_VALUE && by_element[s->op] && k_count(&s->in[j]) == k_count(&s->out[0]))
                read[p->values[s->in_value[j]].root] = true;
    }
}

/* Result k of the step, made if the graph does not want it. */
static uint32_t want(rt_plan *p, rt_step *s, int k, const k_view *view)
{
    if (s->out_value[k] != RT_NO_VALUE) return s->out_value[k];
    const uint32_t value = rt_plan_derive(p, s->out_value[IR_OUT(batch_norm, y)], view);
    if (value == RT_NO_VALUE) return RT_NO_VALUE;
    rt_step_write(p, s, k, value);
    if (s->n_out <= k) s->n_out = k + 1;
    return value;
}

/* One step of the second part: of an image and a vector with an element a channel. */
static bool add_part(rt_plan *p, rt_step *part, ir_op op, const ir_node *node, uint32_t image, uint32_t vector,
                     const k_view *of, uint32_t to)
{
    if (!rt_step_make(p, part, node, op, 2, 1)) return false;
    part->kernel = p->backend->kernel(op);
    rt_step_read(p, part, 0, image);
    rt_step_read(p, part, 1, vector);
    part->in[0].rank = of->rank;
    part->in[1].rank = of->rank - 1; /* [C,1,1] */
    for (int i = 0; i < of->rank; i++) part->in[0].dims[i] = of->dims[i];
    for (int i = 1; i < part->in[1].rank; i++) part->in[1].dims[i] = 1;
    rt_step_write(p, part, 0, to);
    return true;
}

/* The first part in place of the step, the second in `parts`. */
static bool split(rt_plan *p, rt_step *s, rt_step *parts)
{
    const k_view x = s->in[IR_IN(batch_norm, x)];
    const uint32_t y = s->out_value[IR_OUT(batch_norm, y)], scale = s->in_value[IR_IN(batch_norm, scale)];
    k_view vector = {.dtype = x.dtype == IR_f64 ? IR_f64 : IR_f32, .rank = 1, .dims = {x.dims[1]}};
    k_view image = x;
    image.dtype = vector.dtype;
    const uint32_t mean = want(p, s, IR_OUT(batch_norm, saved_mean), &vector);
    const uint32_t rstd = want(p, s, IR_OUT(batch_norm, saved_rstd), &vector);
    uint32_t last = s->in_value[IR_IN(batch_norm, x)];
    const uint32_t vectors[PARTS] = {mean, rstd, scale, s->in_value[IR_IN(batch_norm, bias)]};
    static const ir_op ops[PARTS] = {IR_OP_sub, IR_OP_mul, IR_OP_mul, IR_OP_add};
    if (mean == RT_NO_VALUE || rstd == RT_NO_VALUE) return false;
    for (int i = 0; i < PARTS; i++) {
        uint32_t to = i == PARTS - 1 ? y : rt_plan_derive(p, y, &image);
        if (to == RT_NO_VALUE || !add_part(p, &parts[i], ops[i], s->node, last, vectors[i], &x, to)) return false;
        last = to;
    }
    s->out_value[IR_OUT(batch_norm, y)] = RT_NO_VALUE;
    s->out[IR_OUT(batch_norm, y)] = (k_view){.dtype = IR_NO_DTYPE};
    if (!s->attr[IR_ATTR(batch_norm, training)].i) {
        rt_step_read(p, s, IR_IN(batch_norm, x), scale);
        s->in[IR_IN(batch_norm, x)].rank = 2;
        s->in[IR_IN(batch_norm, x)].dims[0] = 1;
        s->in[IR_IN(batch_norm, x)].dims[1] = x.dims[1];
    }
    return true;
}

static bool splits(const rt_plan *p, const rt_step *s, const bool *read)
{
    if (s->op != IR_OP_batch_norm || s->out_value[IR_OUT(batch_norm, y)] == RT_NO_VALUE) return false;
    const bool wide = s->in[0].dtype == IR_f64, wide_scale = s->in[IR_IN(batch_norm, scale)].dtype == IR_f64;
    if (wide != wide_scale || (wide && p->backend->away)) return false; /* the parts compute in one type */
    return k_count(&s->in[0]) > 0 && read[s->out_value[IR_OUT(batch_norm, y)]];
}

static bool split_all(rt_plan *p, const bool *read)
{
    int n = 0, found = 0;
    for (int i = 0; i < p->n_steps; i++) found += splits(p, &p->steps[i], read);
    if (!found) return true;
    rt_step *steps = rt_plan_take(p, (size_t)(p->n_steps + PARTS * found), sizeof *steps);
    if (!steps) return false;
    for (int i = 0; i < p->n_steps; i++) {
        rt_step *s = &steps[n++];
        *s = p->steps[i];
        if (!splits(p, s, read)) continue;
        if (!split(p, s, s + 1)) return false;
        n += PARTS;
    }
    p->steps = steps;
    p->n_steps = n;
    return true;
}

bool rt_plan_split_norms(rt_plan *p)
{
    if (!p->backend->program) return true;
    bool *read = rt_alloc(p->n_values, sizeof *read);
    if (!read) return false;
    find_readers(p, read);
    bool done = split_all(p, read);
    rt_free(read);
    return done;
}
