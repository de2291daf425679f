/* plan_update.c - in a training step no pass over memory unscales the gradients.
 *
 *     %h = conv_grad_weight ... : f16             %h = conv_grad_weight ... : f16
 *     %d = cast %h : f32                          _, %f1 = check_finite_and_unscale %h, @scale
 *     %b = reduce_sum ... : f32              ->   %b = reduce_sum ... : f32
 *     %u, %v, %f = check_finite_and_unscale       _, %f = check_finite_and_unscale %b, @scale, %f1
 *                        %d, %b, @scale
 *     %w1 = sgd @w, %u, @lr, %f                   %w1 = sgd @w, %h, @lr, %f, @scale
 *
 * Where only optimizers, as their gradient, and norms read what the check makes, they read the raw gradient and the
 * scale instead (kernels/update.h), and the check makes nothing but its flag. A gradient that was cast for the check
 * alone is read before the cast. The check becomes one for each type of gradient, and on a device that is away one for
 * each gradient that its cache still holds right behind the step that makes it. They hand on what they find.
 *
 * Where a norm of all these gradients is wanted, too, the checks also add up their squares, and the norm reads
 * the sums instead of the gradients.
 *
 *     %d = conv_grad_weight %dy, %x : f32         %d = conv_grad_weight %dy, %x : f16
 *
 * Where the backend prefers low gradients (low_gradients), a product of low operands whose f32 results are read by the
 * check alone writes them in the type of its operands. That rounds an f32 sum once, and the check reads the rounded
 * value, so it finds what overflows.
 *
 * Runs before layouts, so that what is converted is the gradient as it is made. */
#include "kernels/update.h"
#include "runtime/backend/alloc.h"
#include "runtime/plan/plan.h"

#include <string.h>

/* Bytes of a gradient that is checked where it is made: more than a launch costs to read from memory (4 MiB are a
 * microsecond or two), less than the cache of such a device (50 MB on an H100), which holds other things, too. */
enum { CHECK_EARLY_FROM = 4 << 20, CHECK_EARLY_TO = 40 << 20 };

/* One check of some gradients, all of a type. */
typedef struct part {
    int at;     /* the old step that it stands behind, or (the check itself) in the place of */
    ir_dtype type;
    int n;      /* gradients */
    rt_step step;
} part;

/* What a part leaves to those behind it; RT_NO_VALUE: nothing. */
typedef struct handed {
    uint32_t found, squares;
} handed;

typedef struct updater {
    rt_plan *p;
    int *maker;       /* by root value: the step, or -1 */
    int *readers;     /* by root value: operands and effects */
    int *out_of;      /* by root value: 1 + which result of the check at hand it is; 0: none */
    bool *gone;       /* by step */
    bool *factor;     /* by root value: an operand of a product that was narrowed */
    part *parts;      /* of all checks, those of a step in order */
    int n_parts;
} updater;

static uint32_t root_of(const updater *u, uint32_t value) { return u->p->values[value].root; }

static int maker_of(const updater *u, uint32_t value) { return u->maker[root_of(u, value)]; }

/* ---- who reads what a check makes ---------------------------------------------------------------- */

static int gradients_of(const rt_step *check) { return check->n_out - 1; }

/* Which result of the check the step reads in the slot, as it is; -1: none. */
static int result_read(const updater *u, const rt_step *check, const rt_step *s, int slot)
{
    if (s->in_value[slot] == RT_NO_VALUE) return -1;
    const int k = u->out_of[root_of(u, s->in_value[slot])] - 1;
    return k >= 0 && check->out_value[k] == s->in_value[slot] ? k : -1;
}

/* Operands of the step that are results of the check, in any form. */
static int results_read(const updater *u, const rt_step *s)
{
    int n = 0;
    for (int j = 0; j < s->n_in; j++)
        n += s->in_value[j] != RT_NO_VALUE && u->out_of[root_of(u, s->in_value[j])] > 0;
    return n;
}

/* The step may read the raw gradients and the scale instead. */
static bool takes_raw(const updater *u, const rt_step *check, const rt_step *s)
{
    const int read = results_read(u, s);
    if (k_updates(s->op)) return read == 1 && result_read(u, check, s, k_update_gradient(s->op)) >= 0;
    if (s->op != IR_OP_global_norm || read != s->n_in) return false;
    for (int j = 0; j < s->n_in; j++)
        if (result_read(u, check, s, j) < 0) return false;
    return true;
}

static bool all_take_raw(const updater *u, const rt_step *check)
{
    const rt_plan *p = u->p;
    for (int i = 0; i < p->n_steps; i++)
        if (results_read(u, &p->steps[i]) && !takes_raw(u, check, &p->steps[i])) return false;
    for (int i = 0; i < p->n_effects; i++)
        if (u->out_of[root_of(u, p->effects[i].value)]) return false;
    return true;
}

static void mark_results(updater *u, const rt_step *check, bool mark)
{
    for (int k = 0; k < gradients_of(check); k++)
        if (check->out_value[k] != RT_NO_VALUE) u->out_of[check->out_value[k]] = mark ? k + 1 : 0;
}

/* ---- reading raw gradients ------------------------------------------------------------------------ */

/* Gradients that were cast for the check alone are read before the cast. */
static void drop_casts(updater *u, rt_step *check)
{
    for (int k = 0; k < gradients_of(check); k++) {
        const uint32_t value = check->in_value[k];
        const int at = maker_of(u, value);
        if (at < 0 || u->readers[root_of(u, value)] > 1 || check->in[k].dtype != IR_f32) continue;
        const rt_step *cast = &u->p->steps[at];
        if (cast->op != IR_OP_cast || !ir_dtype_is_low(cast->in[0].dtype) || cast->out_value[0] != value) continue;
        rt_step_read(u->p, check, k, cast->in_value[0]);
        u->gone[at] = true;
    }
}

/* ---- gradients in the type of their operands ------------------------------------------------------- */

/* Nothing reads the value but the check, as a gradient. */
static bool only_checked(const updater *u, const rt_step *check, uint32_t value)
{
    int k = 0;
    while (k < gradients_of(check) && root_of(u, check->in_value[k]) != root_of(u, value)) k++;
    return k < gradients_of(check) && u->readers[root_of(u, value)] == 1;
}

static bool is_product(const rt_step *s) { return ir_op_get(s->op)->colour == IR_WHITE && ir_op_out_attr(s->op) >= 0; }

/* A sum of an operand of a narrowed product, which may become a part of that product: its library writes both in one
 * type (plan_epilogue.c). */
static bool sums_factor(const updater *u, const rt_step *s)
{
    return s->op == IR_OP_reduce_sum && u->factor[root_of(u, s->in_value[0])];
}

/* All operands are low, and all results that are read are f32 gradients for the check alone. */
static bool may_narrow(const updater *u, const rt_step *check, const rt_step *s)
{
    for (int j = 0; j < s->n_in; j++)
        if (k_present(&s->in[j]) && !ir_dtype_is_low(s->in[j].dtype)) return false;
    for (int k = 0; k < s->n_out; k++) {
        const uint32_t value = s->out_value[k];
        if (value == RT_NO_VALUE || u->readers[value] == 0) continue;
        if (s->out[k].dtype != IR_f32 || !only_checked(u, check, value)) return false;
    }
    return true;
}

static void narrow(updater *u, rt_step *check, rt_step *s)
{
    const ir_dtype type = s->in[0].dtype;
    rt_value *values = u->p->values;
    s->attr[ir_op_out_attr(s->op)].dtype = type;
    for (int j = 0; j < s->n_in; j++)
        if (s->in_value[j] != RT_NO_VALUE) u->factor[root_of(u, s->in_value[j])] = true;
    for (int k = 0; k < s->n_out; k++)
        if (s->out_value[k] != RT_NO_VALUE) values[s->out_value[k]].view.dtype = s->out[k].dtype = type;
    for (int k = 0; k < gradients_of(check); k++) {
        const uint32_t value = check->in_value[k];
        if (maker_of(u, value) != (int)(s - u->p->steps)) continue;
        values[value].view.dtype = type; /* a view of the result */
        rt_step_read(u->p, check, k, value);
    }
}

/* Products first, because they decide on the sums. */
static void narrow_gradients(updater *u, rt_step *check)
{
    for (int sums = 0; sums < 2; sums++)
        for (int k = 0; k < gradients_of(check); k++) {
            const int at = maker_of(u, check->in_value[k]);
            rt_step *s = at < 0 ? NULL : &u->p->steps[at];
            if (!s || check->in[k].dtype != IR_f32 || !(sums ? sums_factor(u, s) : is_product(s))) continue;
            if (may_narrow(u, check, s)) narrow(u, check, s);
        }
}

static bool let_update(updater *u, const rt_step *check, rt_step *s)
{
    const int slots = ir_op_get(s->op)->n_in, slot = k_update_gradient(s->op), k = result_read(u, check, s, slot);
    if (!rt_step_widen(u->p, s, K_UPDATE_EXTRA_IN, 0)) return false;
    rt_step_read(u->p, s, slot, check->in_value[k]);
    rt_step_read(u->p, s, slots + K_UPDATE_SCALE, check->in_value[gradients_of(check)]);
    return true;
}

/* The norm is one of all gradients of the check, in their order. */
static bool norm_of_all(const updater *u, const rt_step *check, const rt_step *s)
{
    if (s->op != IR_OP_global_norm || s->n_in != gradients_of(check)) return false;
    for (int j = 0; j < s->n_in; j++)
        if (result_read(u, check, s, j) != j) return false;
    return true;
}

/* The norm with other operands, still absent. */
static bool remake_norm(updater *u, rt_step *s, int n_in)
{
    const rt_step old = *s;
    if (!rt_step_make(u->p, s, old.node, old.op, n_in, old.n_out)) return false;
    s->kernel = old.kernel;
    s->attr = old.attr;
    for (int k = 0; k < old.n_out; k++)
        if (old.out_value[k] != RT_NO_VALUE) rt_step_write(u->p, s, k, old.out_value[k]);
    return true;
}

/* squares: the sums of all gradients, or RT_NO_VALUE. */
static bool let_norm(updater *u, const rt_step *check, rt_step *s, uint32_t squares)
{
    const rt_step old = *s;
    if (squares != RT_NO_VALUE && norm_of_all(u, check, s)) {
        if (!remake_norm(u, s, K_NORM_JOINED_IN)) return false;
        rt_step_read(u->p, s, K_NORM_SQUARES, squares);
        return true;
    }
    if (!remake_norm(u, s, old.n_in + K_NORM_EXTRA_IN)) return false;
    for (int j = 0; j < old.n_in; j++)
        rt_step_read(u->p, s, j, check->in_value[result_read(u, check, &old, j)]);
    rt_step_read(u->p, s, old.n_in + K_NORM_SCALE, check->in_value[gradients_of(check)]);
    return true;
}

static bool let_read_raw(updater *u, const rt_step *check, uint32_t squares)
{
    for (int i = 0; i < u->p->n_steps; i++) {
        rt_step *s = &u->p->steps[i];
        if (!results_read(u, s)) continue;
        if (!(k_updates(s->op) ? let_update(u, check, s) : let_norm(u, check, s, squares))) return false;
    }
    return true;
}

/* The sums of squares that the last part of the check leaves; RT_NO_VALUE where no norm could read them. */
static bool make_squares(updater *u, const rt_step *check, uint32_t *squares)
{
    const rt_plan *p = u->p;
    const k_view view = {.dtype = IR_f64, .rank = 1, .dims = {p->backend->away ? K_SQUARE_SUMS : 1}};
    int i = 0;
    *squares = RT_NO_VALUE;
    while (i < p->n_steps && !norm_of_all(u, check, &p->steps[i])) i++;
    if (i == p->n_steps || check->out_value[gradients_of(check)] == RT_NO_VALUE) return true;
    *squares = rt_plan_derive(u->p, p->steps[i].out_value[0], &view);
    return *squares != RT_NO_VALUE;
}

/* ---- the check in parts ----------------------------------------------------------------------------- */

/* The step behind which gradient k is checked: that which makes it, or the check itself. */
static int place_of(const updater *u, const rt_step *check, int k)
{
    const int here = (int)(check - u->p->steps), maker = maker_of(u, check->in_value[k]);
    const size_t bytes = k_bytes(&check->in[k]);
    const bool cached = bytes >= CHECK_EARLY_FROM && bytes < CHECK_EARLY_TO;
    const bool early = u->p->backend->away && cached && maker_of(u, check->in_value[gradients_of(check)]) < maker;
    return early ? maker : here;
}

/* That which gradients of this type at this place go to, in the order of places. */
static part *part_for(updater *u, int first, int at, ir_dtype type)
{
    int i = u->n_parts;
    for (int j = first; j < u->n_parts; j++)
        if (u->parts[j].at == at && u->parts[j].type == type) return &u->parts[j];
    for (; i > first && u->parts[i - 1].at > at; i--) u->parts[i] = u->parts[i - 1];
    u->n_parts++;
    u->parts[i] = (part){.at = at, .type = type};
    return &u->parts[i];
}

/* The part's step: its gradients, the scale, and what the part before it left. */
static bool write_part(updater *u, const rt_step *check, part *t, handed before, handed made)
{
    rt_plan *p = u->p;
    const int n_in = t->n + 1 + (before.found != RT_NO_VALUE) + (before.squares != RT_NO_VALUE);
    int n = 0;
    if (!rt_step_make(p, &t->step, check->node, check->op, n_in, t->n + 1 + (made.squares != RT_NO_VALUE)))
        return false;
    t->step.kernel = check->kernel;
    t->step.attr = check->attr;
    for (int k = 0; k < gradients_of(check); k++)
        if (place_of(u, check, k) == t->at && check->in[k].dtype == t->type)
            rt_step_read(p, &t->step, n++, check->in_value[k]);
    rt_step_read(p, &t->step, n, check->in_value[gradients_of(check)]);
    if (before.found != RT_NO_VALUE) rt_step_read(p, &t->step, n + 1, before.found);
    if (before.squares != RT_NO_VALUE) rt_step_read(p, &t->step, n + 2, before.squares);
    rt_step_write(p, &t->step, n, made.found);
    if (made.squares != RT_NO_VALUE) rt_step_write(p, &t->step, n + 1, made.squares);
    return true;
}

/* A value like this one; none for none. */
static bool derive_alike(updater *u, uint32_t of, uint32_t *like)
{
    *like = RT_NO_VALUE;
    if (of == RT_NO_VALUE) return true;
    const k_view view = u->p->values[of].view;
    *like = rt_plan_derive(u->p, of, &view);
    return *like != RT_NO_VALUE;
}

/* squares: as let_norm. */
static bool divide(updater *u, const rt_step *check, uint32_t squares)
{
    const int first = u->n_parts, flag = gradients_of(check);
    const handed all = {check->out_value[flag], squares};
    handed before = {RT_NO_VALUE, RT_NO_VALUE};
    if (all.found == RT_NO_VALUE) return true;
    for (int k = 0; k < gradients_of(check); k++) part_for(u, first, place_of(u, check, k), check->in[k].dtype)->n++;
    for (int i = first; i < u->n_parts; i++) {
        handed made = all;
        if (i + 1 < u->n_parts &&
            !(derive_alike(u, all.found, &made.found) && derive_alike(u, all.squares, &made.squares)))
            return false;
        if (!write_part(u, check, &u->parts[i], before, made)) return false;
        before = made;
    }
    return true;
}

static bool rewrite(updater *u, int at)
{
    rt_step *check = &u->p->steps[at];
    mark_results(u, check, true);
    uint32_t squares;
    const bool may = gradients_of(check) > 0 && all_take_raw(u, check);
    if (may) drop_casts(u, check);
    if (may && u->p->backend->low_gradients) narrow_gradients(u, check);
    const bool done = !may || (make_squares(u, check, &squares) && let_read_raw(u, check, squares) &&
                               divide(u, check, squares));
    mark_results(u, check, false);
    u->gone[at] = may;
    return done;
}

/* ---- all of them ------------------------------------------------------------------------------------- */

/* What is left of the old steps, and the parts behind where they belong. */
static bool write_steps(updater *u)
{
    rt_plan *p = u->p;
    rt_step *steps = rt_plan_take(p, (size_t)(p->n_steps + u->n_parts), sizeof *steps);
    int n = 0;
    if (!steps) return false;
    for (int i = 0; i < p->n_steps; i++) {
        if (!u->gone[i]) steps[n++] = p->steps[i];
        for (int j = 0; j < u->n_parts; j++)
            if (u->parts[j].at == i) steps[n++] = u->parts[j].step;
    }
    p->steps = steps;
    p->n_steps = n;
    return true;
}

static bool rewrite_checks(updater *u)
{
    for (int i = 0; i < u->p->n_steps; i++)
        if (u->p->steps[i].op == IR_OP_check_finite_and_unscale && !rewrite(u, i)) return false;
    return write_steps(u);
}

bool rt_plan_update(rt_plan *p)
{
    size_t most = 0; /* parts: one a gradient */
    for (int i = 0; i < p->n_steps; i++)
        if (p->steps[i].op == IR_OP_check_finite_and_unscale) most += (size_t)p->steps[i].n_in;
    if (!most) return true;
    updater u = {.p = p};
    u.maker = rt_plan_makers(p);
    u.readers = rt_plan_readers(p);
    u.out_of = rt_alloc(p->n_values + 2 * most, sizeof *u.out_of); /* parts make up to two values each */
    u.gone = rt_alloc((size_t)p->n_steps, sizeof *u.gone);
    u.factor = rt_alloc(p->n_values + 2 * most, sizeof *u.factor);
    u.parts = rt_alloc(most, sizeof *u.parts);
    const bool done = u.maker && u.readers && u.out_of && u.gone && u.factor && u.parts && rewrite_checks(&u);
    rt_free(u.maker);
    rt_free(u.readers);
    rt_free(u.out_of);
    rt_free(u.gone);
    rt_free(u.factor);
    rt_free(u.parts);
    return done;
}
