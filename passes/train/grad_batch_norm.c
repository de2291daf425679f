/* grad_batch_norm.c - gradient of batch normalisation.
 *
 * y = scale (x - m) r + bias, r = 1 / sqrt(v + eps), where m and v are the statistics of the batch in training, and
 * the operands mean and var otherwise. What arrives at y reaches x, scale and bias through one op, batch_norm_grad.
 * With its results, sums over all axes but that of the channels,
 *
 *     dm = -scale r dbias        dv = -scale r^2 dscale / 2
 *
 * which are the gradients of mean and var if these are computed from parameters, as where a weight is standardised.
 * The other results are m and r themselves, and the new running statistics, linear in the old ones and in m and v. */
#include "passes/train/batch_norm_count.h"
#include "passes/train/grad.h"

#define RESULT(name) ir_out(g->n, IR_OUT(batch_norm, name))
#define ARRIVING(name) g->dy[IR_OUT(batch_norm, name)]
#define DX(name) g->dx[IR_IN(batch_norm, name)]
#define MUL(x, y) ir_binary(g->b, IR_OP_mul, x, y)
#define TIMES(x, v) times(g, x, v)

static ir_value *times(grad *g, ir_value *x, double v) { return x ? MUL(x, ir_scalar_like(g->b, x, v)) : NULL; }

/* In f32, or f64 if x is. */
static ir_value *widen(grad *g, ir_value *v)
{
    return v ? ir_cast(g->b, v, X->type.dtype == IR_f64 ? IR_f64 : IR_f32) : NULL;
}

static void add_to(grad *g, ir_value **sum, ir_value *v)
{
    ir_value *wide = v && *sum ? widen(g, v) : v;
    if (v) *sum = *sum ? ir_binary(g->b, IR_OP_add, widen(g, *sum), wide) : v;
}

/* Sets the gradients of x, scale and bias. */
static bool through_y(grad *g)
{
    if (g->primitives) return grad_batch_norm_primitive(g);
    ir_value *in[] = {ARRIVING(y), X, ir_in(g->n, IR_IN(batch_norm, scale)), RESULT(saved_mean), RESULT(saved_rstd)};
    ir_node *n = grad_node(g, IR_OP_batch_norm_grad, 5, in);
    if (!ir_done_all(g->b, n)) return false;
    for (int i = 0; i < 3; i++) g->dx[i] = n->out[i];
    return true;
}

/* The gradients that reach m and v, one number per channel. */
typedef struct statistics {
    ir_value *m, *v;
} statistics;

static void from_y(grad *g, statistics *d)
{
    ir_value *r = RESULT(saved_rstd), *slope = MUL(widen(g, ir_in(g->n, IR_IN(batch_norm, scale))), r);
    add_to(g, &d->m, TIMES(MUL(slope, widen(g, DX(bias))), -1));
    ir_value *dscale = widen(g, DX(scale));
    add_to(g, &d->v, TIMES(MUL(MUL(slope, r), dscale), -0.5));
}

/* m is a result itself; dr/dv = -r^3 / 2. */
static void from_saved(grad *g, statistics *d)
{
    ir_value *r = RESULT(saved_rstd);
    add_to(g, &d->m, ARRIVING(saved_mean));
    if (ARRIVING(saved_rstd)) add_to(g, &d->v, TIMES(MUL(ARRIVING(saved_rstd), MUL(r, MUL(r, r))), -0.5));
}

/* A value per channel, divided by the number of elements of x per channel, with the shape [C,1,..]. */
static ir_value *share(grad *g, ir_value *v)
{
    ir_type shape = ir_type_make(v->type.dtype, X->type.rank - 1, (int64_t[IR_MAX_RANK]){0});
    for (int i = 0; i < shape.rank; i++) shape.dims[i] = i ? 1 : X->type.dims[1];
    return ir_reshape_like(g->b, batch_norm_share(g->b, v, &X->type, 0), &shape);
}

/* m and v are the mean and the variance of x. */
static void into_x(grad *g, const statistics *d)
{
    if (d->m) add_to(g, &DX(x), ir_expand(g->b, share(g, widen(g, d->m)), X->type.dims, X->type.rank));
    if (!d->v) return;
    ir_type shape = ir_type_make(IR_f32, X->type.rank - 1, (int64_t[IR_MAX_RANK]){0});
    for (int i = 0; i < shape.rank; i++) shape.dims[i] = i ? 1 : X->type.dims[1];
    ir_value *m = ir_reshape_like(g->b, widen(g, RESULT(saved_mean)), &shape);
    ir_value *centered = ir_binary(g->b, IR_OP_sub, widen(g, X), m);
    add_to(g, &DX(x), MUL(centered, TIMES(share(g, widen(g, d->v)), 2)));
}

bool grad_batch_norm(grad *g)
{
    const bool training = g->n->attr[IR_ATTR(batch_norm, training)].i;
    const double kept = training ? g->n->attr[IR_ATTR(batch_norm, momentum)].f : 1;
    ir_value *mean_out = widen(g, ARRIVING(mean_out)), *var_out = widen(g, ARRIVING(var_out));
    const bool given = g->required[IR_IN(batch_norm, mean)] || g->required[IR_IN(batch_norm, var)];
    statistics d = {NULL, NULL};
    if (ARRIVING(y) && !through_y(g)) return false;
    from_saved(g, &d);
    if (training) {
        if (mean_out) add_to(g, &d.m, TIMES(mean_out, 1 - kept));
        if (var_out) add_to(g, &d.v, TIMES(var_out, 1 - kept));
        into_x(g, &d);
        d = (statistics){NULL, NULL};
    } else if (ARRIVING(y) && given) from_y(g, &d);
    if (mean_out) add_to(g, &d.m, TIMES(mean_out, kept));
    if (var_out) add_to(g, &d.v, TIMES(var_out, kept));
    DX(mean) = d.m;
    DX(var) = d.v;
    g->zero = training || !ARRIVING(y); /* of operands on which the results in use do not depend */
    return diag_status(g->b->diag) == AMPC_OK;
}
