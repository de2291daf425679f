/* fold_norms.c - turns batch normalisation with constant statistics into one scale and shift per channel.
 *
 *     %c = conv %x, @w, @b                         _, .., %m, %r = batch_norm @s, ..
 *     %y, .. = batch_norm %c, @s, @t, ..           %f = mul %r, @s        %h = sub @t, (mul %m, %f)
 *                                           ->     %w' = mul @w, %f       %b' = add (mul @b, %f), %h
 *                                                  %y = conv %x, %w', %b'
 *
 * The steps that read only parameters are hoisted, so weights and bias are computed again only when parameters change.
 * The product may be any of `forms`, and a bias may be added to it before the normalisation, provided that nothing else
 * reads the results. Weights of a low type are rounded once, after the multiplication: if a cast defines them, its
 * operand is multiplied. Otherwise, %y = add (mul %x, %f), %h, which is later fused with its readers.
 *
 * This is not done if the statistics are results, which gradients read. */
#include "runtime/plan/norms.h"
#include "runtime/plan/stages.h"

#include <string.h>

enum { X = IR_IN(batch_norm, x), Y = IR_OUT(batch_norm, y), MAX_BIASES = 2 };

/* ---- products ---------------------------------------------------------------------------------------- */

/* The ops into whose weights a scale can be multiplied. */
typedef struct form {
    ir_op op;
    int w, bias; /* operands; -1: none */
    int group;   /* attribute: how many groups the second dimension of the weights has; -1: only one */
    int trans;   /* attribute: the channels are rows, not columns; -1: they are the first dimension, or see `group` */
} form;

static const form forms[] = {
    {IR_OP_conv, IR_IN(conv, w), IR_IN(conv, bias), -1, -1},
    {IR_OP_conv_grad_input, IR_IN(conv_grad_input, w), -1, IR_ATTR(conv_grad_input, group), -1}, /* ConvTranspose */
    {IR_OP_matmul, IR_IN(matmul, b), IR_IN(matmul, bias), -1, IR_ATTR(matmul, trans_b)},
};

static const form *form_of(const rt_step *s)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (s->kind == RT_STEP_OP && s->op == forms[i].op) return &forms[i];
    return NULL;
}

/* Returns the shape [A,B,C,D] of the weights in which the output channels are A*C. */
static k_view channels_apart(const form *f, const rt_step *s)
{
    const k_view *w = &s->in[f->w];
    const int64_t rows = w->dims[0], columns = w->dims[1], all = k_count(w);
    k_view v = {.dtype = w->dtype, .rank = 4, .dims = {rows, all / rows, 1, 1}};
    if (f->group >= 0) {
        const int64_t groups = s->attr[f->group].i, dims[] = {groups, rows / groups, columns, all / (rows * columns)};
        memcpy(v.dims, dims, sizeof dims);
    } else if (f->trans >= 0 && !s->attr[f->trans].i) {
        const int64_t dims[] = {1, rows, columns, 1};
        memcpy(v.dims, dims, sizeof dims);
    }
    return v;
}

/* ---- constants --------------------------------------------------------------------------------------- */

/* Returns the operand of the cast that defines the value, if it is one that `mul` can read; else the value. */
static uint32_t before_cast(const rt_plan *p, uint32_t value)
{
    const rt_step *def = rt_def(p, value);
    const bool is_read = def && rt_step_has(def, IR_CONVERTS) && ir_dtype_is_float(def->in[0].dtype) &&
                         def->in[0].dtype != IR_f64 && def->out[0].dtype != IR_f64;
    return is_read ? def->in_value[0] : value;
}

/* Whether the value is storage that the plan does not change, or a cast of that. */
static bool is_constant(const rt_plan *p, uint32_t value)
{
    value = before_cast(p, value);
    return rt_is_storage(p, value) && !p->values[rt_root(p, value)].store;
}

/* ---- what can be folded ------------------------------------------------------------------------------ */

/* A normalisation and where it goes. */
typedef struct fold {
    rt_plan *p;
    rt_step *norm, *at; /* new steps are inserted after `at` */
    k_view image;       /* the shape and type of x */
    uint32_t x, y;
    rt_step *product; /* NULL: the image is scaled */
    const form *form;
    rt_step *sum;                /* adds a bias to the product; NULL: none does */
    uint32_t biases[MAX_BIASES]; /* of the product, before the normalisation */
    int n_biases;
    uint32_t factor, shift; /* vectors */
} fold;

static bool has_constants(const rt_plan *p, const rt_step *s)
{
    for (int j = IR_IN(batch_norm, scale); j <= IR_IN(batch_norm, var); j++)
        if (!is_constant(p, s->in_value[j])) return false;
    return true;
}

static bool can_fold(const rt_plan *p, const rt_step *s)
{
    if (!rt_norm_is_divisible(p, s) || s->attr[IR_ATTR(batch_norm, training)].i || !has_constants(p, s)) return false;
    for (int k = Y + 1; k < s->n_out; k++)
        if (rt_step_writes(s, k) && rt_uses(p, s->out_value[k])) return false;
    return true;
}

/* Whether the view broadcasts one element per channel to the image. */
static bool is_per_channel(const k_view *v, const k_view *image)
{
    const int channel = v->rank - (image->rank - 1); /* the dimension of the channels */
    return channel >= 0 && channel < v->rank && v->dims[channel] == image->dims[1] && k_count(v) == image->dims[1];
}

static bool is_sum(const rt_step *s)
{
    return s->kind == RT_STEP_OP && ir_formula_of(s->op, s->attr) == IR_FORMULA_add;
}

/* Looks for a bias added to a product: the step that defines the image. */
static void find_sum(fold *f)
{
    rt_step *s = f->product;
    if (!s || !is_sum(s) || !rt_has_one_use(f->p, s->out_value[0])) return;
    for (int j = 0; j < 2; j++) {
        const bool biased = is_constant(f->p, s->in_value[1 - j]) && is_per_channel(&s->in[1 - j], &f->image);
        if (!biased || !rt_same_view(&s->in[j], &f->image) || !rt_same_view(&s->out[0], &f->image)) continue;
        f->sum = s;
        f->product = rt_def(f->p, s->in_value[j]);
        f->biases[f->n_biases++] = s->in_value[1 - j];
        return;
    }
}

/* Whether the product has a bias operand in use. */
static bool has_bias(const fold *f) { return f->form->bias >= 0 && rt_step_reads(f->product, f->form->bias); }

/* Whether the weights and the bias of the product can be replaced. */
static bool is_foldable(const fold *f)
{
    const rt_step *s = f->product;
    const k_view *w = &s->in[f->form->w];
    if (!rt_has_one_use(f->p, s->out_value[0]) || !rt_same_view(&s->out[0], &f->image)) return false;
    if (!rt_same_view(&f->p->values[f->y].view, &f->image)) return false;
    if (f->form->trans >= 0 && (w->rank != 2 || f->image.rank != 2)) return false;
    if (k_count(w) == 0 || (w->dtype == IR_f64) != (f->image.dtype == IR_f64)) return false;
    return is_constant(f->p, s->in_value[f->form->w]) &&
           (!has_bias(f) || is_constant(f->p, s->in_value[f->form->bias]));
}

/* Finds the product; without one, the image is scaled. */
static void find_product(fold *f)
{
    f->product = rt_def(f->p, f->x);
    find_sum(f);
    f->form = f->product ? form_of(f->product) : NULL;
    if (f->form && is_foldable(f)) {
        if (has_bias(f)) f->biases[f->n_biases++] = f->product->in_value[f->form->bias];
        return;
    }
    f->product = f->sum = NULL;
    f->n_biases = 0;
}

/* ---- vectors ----------------------------------------------------------------------------------------- */

static bool append(fold *f, rt_step *s)
{
    if (!s) return false;
    rt_step_insert_after(f->p, s, f->at);
    f->at = s;
    return true;
}

/* Appends a step on two vectors and returns its result; RT_NO_VALUE: out of memory. */
static uint32_t combine(fold *f, ir_op op, uint32_t a, uint32_t b, ir_dtype type)
{
    const uint32_t operands[] = {a, b};
    k_view vector = {.dtype = type, .rank = 1, .dims = {f->image.dims[1]}};
    if (a == RT_NO_VALUE || b == RT_NO_VALUE) return RT_NO_VALUE;
    const uint32_t to = rt_plan_new_value(f->p, f->y, &vector);
    rt_step *s = to == RT_NO_VALUE ? NULL : rt_step_new(f->p, f->norm->node, op, 2, 1);
    if (!s) return RT_NO_VALUE;
    for (int j = 0; j < 2; j++) {
        rt_step_read(f->p, s, j, operands[j]);
        vector.dtype = s->in[j].dtype;
        s->in[j] = vector;
    }
    rt_step_write(f->p, s, 0, to);
    append(f, s);
    return to;
}

/* The type of the shift: that of a bias operand, or the one in which images are scaled. A library on a device fuses
 * only a bias of the image's type. */
static ir_dtype shift_type(const fold *f, ir_dtype computed)
{
    return f->product && f->form->bias >= 0 && f->p->backend->device_ops ? f->image.dtype : computed;
}

/* Appends the computation of factor and shift, which includes the biases. */
static bool make_vectors(fold *f)
{
    rt_step *s = f->norm;
    const ir_dtype computed = rt_norm_vector(s).dtype, type = shift_type(f, computed);
    const uint32_t mean = rt_norm_result(f->p, s, IR_OUT(batch_norm, saved_mean));
    const uint32_t rstd = rt_norm_result(f->p, s, IR_OUT(batch_norm, saved_rstd));
    f->factor = combine(f, IR_OP_mul, rstd, s->in_value[IR_IN(batch_norm, scale)], computed);
    const uint32_t moved = combine(f, IR_OP_mul, mean, f->factor, computed);
    f->shift = combine(f, IR_OP_sub, s->in_value[IR_IN(batch_norm, bias)], moved, f->n_biases ? computed : type);
    for (int i = 0; i < f->n_biases; i++) {
        const uint32_t scaled = combine(f, IR_OP_mul, before_cast(f->p, f->biases[i]), f->factor, computed);
        f->shift = combine(f, IR_OP_add, scaled, f->shift, i == f->n_biases - 1 ? type : computed);
    }
    return f->shift != RT_NO_VALUE;
}

/* ---- images and products ----------------------------------------------------------------------------- */

/* Appends to = image * factor or image + shift. */
static bool append_part(fold *f, ir_op op, uint32_t image, uint32_t vector, uint32_t to)
{
    return to != RT_NO_VALUE && append(f, rt_norm_part(f->p, f->norm->node, op, image, vector, &f->image, to));
}

static bool scale_image(fold *f)
{
    k_view scaled = f->image;
    scaled.dtype = f->p->values[f->factor].view.dtype;
    const uint32_t product = rt_plan_new_value(f->p, f->y, &scaled);
    return append_part(f, IR_OP_mul, f->x, f->factor, product) && append_part(f, IR_OP_add, product, f->shift, f->y);
}

/* Appends the multiplication of the product's weights and returns its result. */
static uint32_t scale_weights(fold *f)
{
    const uint32_t w = f->product->in_value[f->form->w];
    const k_view whole = f->product->in[f->form->w];
    k_view apart = channels_apart(f->form, f->product);
    const uint32_t to = rt_plan_new_value(f->p, w, &whole);
    rt_step *s = to == RT_NO_VALUE ? NULL : rt_step_new(f->p, f->norm->node, IR_OP_mul, 2, 1);
    if (!s) return RT_NO_VALUE;
    rt_step_read(f->p, s, 0, before_cast(f->p, w));
    rt_step_read(f->p, s, 1, f->factor);
    rt_step_write(f->p, s, 0, to);
    s->out[0] = apart;
    apart.dtype = s->in[0].dtype;
    s->in[0] = apart;
    apart.dtype = s->in[1].dtype;
    apart.dims[1] = apart.dims[3] = 1;
    s->in[1] = apart;
    append(f, s);
    return to;
}

/* Removes the cast that defines the value if nothing reads it any more. */
static void drop_cast(rt_plan *p, uint32_t value)
{
    rt_step *def = rt_def(p, value);
    if (def && rt_step_has(def, IR_CONVERTS) && !rt_uses(p, value)) rt_step_remove(p, def);
}

static void replace(fold *f, int operand, uint32_t value)
{
    const uint32_t old = rt_step_reads(f->product, operand) ? f->product->in_value[operand] : RT_NO_VALUE;
    rt_step_read(f->p, f->product, operand, value);
    if (old != RT_NO_VALUE) drop_cast(f->p, old);
}

/* The product moves after the vectors, which may depend on later casts. */
static bool fold_product(fold *f)
{
    const uint32_t w = scale_weights(f);
    if (w == RT_NO_VALUE) return false;
    if (f->sum) {
        rt_step_remove(f->p, f->sum);
        drop_cast(f->p, f->biases[0]);
    }
    replace(f, f->form->w, w);
    rt_step_move_after(f->p, f->product, f->at);
    f->at = f->product;
    if (f->form->bias < 0) return append_part(f, IR_OP_add, f->product->out_value[0], f->shift, f->y);
    replace(f, f->form->bias, f->shift);
    rt_step_write(f->p, f->product, 0, f->y);
    return true;
}

static bool fold_norm(rt_plan *p, rt_step *s)
{
    fold f = {.p = p, .norm = s, .at = s, .image = s->in[X], .x = s->in_value[X], .y = s->out_value[Y]};
    find_product(&f);
    if (!make_vectors(&f)) return false;
    rt_step_write(p, s, Y, RT_NO_VALUE);
    rt_norm_drop_image(p, s);
    return f.product ? fold_product(&f) : scale_image(&f);
}

ampc_status rt_stage_fold_norms(rt_plan *p, diag *d)
{
    (void)d;
    for (int i = 0; i < p->n_steps && p->backend->fused && !p->nested; i++)
        if (can_fold(p, p->steps[i]) && !fold_norm(p, p->steps[i])) return AMPC_NO_MEMORY;
    return AMPC_OK;
}
