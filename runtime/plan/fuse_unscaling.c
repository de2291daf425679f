/* fuse_unscaling.c - fuses gradient unscaling into the steps that read gradients.
 *
 *     %h = conv_grad_weight ... : f16             %h = conv_grad_weight ... : f16
 *     %d = cast %h : f32                          _, %f1 = check_finite_and_unscale %h, @scale
 *     %b = reduce_sum ... : f32              ->   %b = reduce_sum ... : f32
 *     %u, %v, %f = check_finite_and_unscale       _, %f = check_finite_and_unscale %b, @scale, %f1
 *                        %d, %b, @scale
 *     %w1 = sgd @w, %u, @lr, %f                   %w1 = sgd @w, %h, @lr, %f, @scale
 *
 * If only norms, and optimizers as their gradient, read the results of the finite check, they read the raw gradient and
 * the scale instead (kernels/update.h), and the check computes only its flag. A gradient that was cast only for the
 * check is read before the cast. The check is split into one per type of gradient and, on a discrete device, one for
 * each gradient that is still in the cache right after the step that computes it. Each part passes its results to the
 * next.
 *
 * If the norm of all these gradients is computed, the checks also accumulate their squares, and the norm reads the sums
 * instead of the gradients.
 *
 *     %d = conv_grad_weight %dy, %x : f32         %d = conv_grad_weight %dy, %x : f16
 *
 *     %d = matmul %dy, %x : f32                   %d = matmul %dy, %x : f32
 *                                                 _, _, %f1 = check_finite_and_unscale %dy, %x, @scale
 *
 * On the CPU, the gradient of a weight that is much larger than its factors, of a low type, is checked by them, because
 * memory bounds the check, and so that join_gradients.c can compute it in the update: no sum overflows f32 if no factor
 * is larger than a limit, which no f16 number reaches. It depends on the number of terms, which is not larger than the
 * number of elements of a factor. A factor that exceeds it, 10^17 or so, is found although its products may be finite.
 *
 * If the backend prefers low-precision gradients (low_gradients), a matmul or convolution of low-precision operands
 * whose f32 results are read only by the check writes them in the type of its operands. This rounds an f32 sum once.
 * The check reads the rounded value, so it detects overflow in that rounding.
 *
 * This stage runs before assign_layouts, so that layout conversions apply to raw gradients. */
#include "kernels/update.h"
#include "runtime/backend/alloc.h"
#include "runtime/plan/stages.h"

#include <float.h>
#include <math.h>

/* Sizes of gradients that are checked where they are computed: at least so large that reading them from memory costs
 * more than a launch (4 MiB need a microsecond or two), and smaller than the cache of a large GPU (50 MB on an H100),
 * which also holds other data. */
enum { CHECK_EARLY_FROM = 4 << 20, CHECK_EARLY_TO = 40 << 20 };

/* Marks of steps: NARROWED: their results were narrowed; CAN_UNSCALE + i: they can unscale the results of check i. The
 * mark of a result of the check is 1 + its index. */
enum { NARROWED = 1, CAN_UNSCALE };

/* A product that is checked by its factors is at least so large, and so many times larger than they are. */
enum { CHECK_FACTORS_FROM = 1 << 20, CHECK_FACTORS_RATIO = 4 };

/* A value to check: a gradient, or a factor of one. */
typedef struct checked {
    uint32_t value;
    rt_step *at;  /* the step after which it is checked, or the check that is replaced */
    double limit; /* of a factor; 0: a gradient */
} checked;

/* One check of values that have the same type. */
typedef struct part {
    rt_step *at;
    ir_dtype type;
    double limit;
    int n; /* number of values */
    rt_step *step;
} part;

/* Results that a part passes to the next one; RT_NO_VALUE: none. */
typedef struct partial {
    uint32_t found, squares;
} partial;

/* ---- who reads the results of a check ------------------------------------------------------------ */

static int scale_at(const rt_step *check)
{
    return k_in_at(check->op, check->listed, IR_IN(check_finite_and_unscale, scale));
}
static int found_at(const rt_step *check)
{
    return k_out_at(check->op, check->listed, IR_OUT(check_finite_and_unscale, found_inf));
}
static uint32_t scale_of(const rt_step *check) { return check->in_value[scale_at(check)]; }

/* Returns the index of the check's result that the step reads in the slot without a view; -1: none. */
static int result_read(const rt_plan *p, const rt_step *check, const rt_step *s, int slot)
{
    if (!rt_step_reads(s, slot)) return -1;
    const int k = p->values[rt_root(p, s->in_value[slot])].mark - 1;
    return k >= 0 && check->out_value[k] == s->in_value[slot] ? k : -1;
}

/* Whether the step can read the raw gradients and the scale instead. */
static bool can_unscale(const rt_plan *p, const rt_step *check, rt_step *s)
{
    int read = 0, direct = 0;
    if (s->mark == CAN_UNSCALE + check->index) return true;
    for (int j = 0; j < s->n_in; j++) {
        read += rt_step_reads(s, j) && p->values[rt_root(p, s->in_value[j])].mark > 0;
        direct += result_read(p, check, s, j) >= 0;
    }
    const bool can = rt_step_has(s, IR_UPDATES) ? read == 1 && result_read(p, check, s, k_update_gradient(s->op)) >= 0
                                                : rt_step_has(s, IR_UNSCALES) && direct == s->n_in;
    if (can) s->mark = CAN_UNSCALE + check->index;
    return can;
}

static bool all_can_unscale(const rt_plan *p, const rt_step *check)
{
    for (int k = 0; k < check->listed; k++)
        for (const rt_use *u = rt_step_writes(check, k) ? rt_uses(p, check->out_value[k]) : NULL; u; u = u->next)
            if (!u->step || !can_unscale(p, check, u->step)) return false;
    return true;
}

static void mark_results(rt_plan *p, const rt_step *check, bool mark)
{
    for (int k = 0; k < check->listed; k++)
        if (rt_step_writes(check, k)) p->values[check->out_value[k]].mark = mark ? k + 1 : 0;
}

/* ---- reading raw gradients ------------------------------------------------------------------------ */

/* Makes the check read gradients that were cast only for it before the cast. */
static void drop_casts(rt_plan *p, rt_step *check)
{
    for (int k = 0; k < check->listed; k++) {
        const uint32_t value = check->in_value[k];
        rt_step *cast = rt_def(p, value);
        if (!cast || !rt_has_one_use(p, value) || check->in[k].dtype != IR_f32) continue;
        if (!rt_step_has(cast, IR_CONVERTS) || !ir_dtype_is_low(cast->in[0].dtype) || cast->out_value[0] != value)
            continue;
        rt_step_read(p, check, k, cast->in_value[0]);
        rt_step_remove(p, cast);
    }
}

/* ---- gradients in the type of their operands ------------------------------------------------------- */

/* Whether the value is read only by the check, as a gradient. */
static bool is_only_checked(const rt_plan *p, const rt_step *check, uint32_t value)
{
    return rt_has_one_use(p, value) && rt_uses(p, value)->step == check && rt_uses(p, value)->slot < check->listed;
}

static bool is_contraction(const rt_step *s)
{
    return ir_op_get(s->op)->colour == IR_WHITE && ir_op_out_attr(s->op) >= 0;
}

/* Whether the step sums an operand of a narrowed matmul. fuse_epilogues.c may fuse it into that matmul, whose library
 * writes both results in one type. */
static bool sums_factor(const rt_plan *p, const rt_step *s)
{
    if (!rt_step_has(s, IR_SUMS)) return false;
    for (const rt_use *u = rt_uses(p, s->in_value[0]); u; u = u->next)
        if (u->step && u->step->mark == NARROWED && is_contraction(u->step)) return true;
    return false;
}

/* Whether all operands have a low type, and all results with readers are f32 gradients that only the check reads. */
static bool can_narrow(const rt_plan *p, const rt_step *check, const rt_step *s)
{
    for (int j = 0; j < s->n_in; j++)
        if (k_present(&s->in[j]) && !ir_dtype_is_low(s->in[j].dtype)) return false;
    for (int k = 0; k < s->n_out; k++) {
        if (!rt_step_writes(s, k) || !rt_uses(p, s->out_value[k])) continue;
        if (s->out[k].dtype != IR_f32 || !is_only_checked(p, check, s->out_value[k])) return false;
    }
    return true;
}

static void narrow(rt_plan *p, rt_step *s)
{
    const ir_dtype type = s->in[0].dtype;
    s->attr[ir_op_out_attr(s->op)].dtype = type;
    s->mark = NARROWED;
    for (int k = 0; k < s->n_out; k++)
        if (rt_step_writes(s, k)) rt_plan_retype(p, s->out_value[k], type);
}

/* Matmuls and convolutions come first, because sums depend on whether they were narrowed. */
static void narrow_gradients(rt_plan *p, const rt_step *check)
{
    for (int sums = 0; sums < 2; sums++)
        for (int k = 0; k < check->listed; k++) {
            rt_step *s = rt_def(p, check->in_value[k]);
            if (!s || check->in[k].dtype != IR_f32 || !(sums ? sums_factor(p, s) : is_contraction(s))) continue;
            if (can_narrow(p, check, s)) narrow(p, s);
        }
}

/* ---- unscaling where gradients are read ------------------------------------------------------------- */

static bool unscale_in_update(rt_plan *p, const rt_step *check, rt_step *s)
{
    const int slot = k_update_gradient(s->op), k = result_read(p, check, s, slot);
    rt_step_read(p, s, slot, check->in_value[k]);
    return rt_step_read_extra(p, s, K_SLOT(update, scale), scale_of(check));
}

/* Whether the step is the norm of all gradients of the check, in their order. */
static bool is_norm_of_all(const rt_plan *p, const rt_step *check, const rt_step *s)
{
    if (!rt_step_has(s, IR_UNSCALES) || rt_step_has(s, IR_UPDATES) || s->n_in != check->listed) return false;
    for (int j = 0; j < s->n_in; j++)
        if (result_read(p, check, s, j) != j) return false;
    return true;
}

/* Makes a norm that replaces s, with `listed` operands, absent at first. */
static rt_step *replace_norm(rt_plan *p, const rt_step *s, int listed)
{
    rt_step *norm = rt_step_new(p, s->node, s->op, listed, s->n_out);
    for (int k = 0; norm && k < s->n_out; k++) rt_step_write(p, norm, k, s->out_value[k]);
    return norm;
}

/* `squares`: the sums of squares of all gradients, or RT_NO_VALUE. */
static bool unscale_in_norm(rt_plan *p, const rt_step *check, rt_step *s, uint32_t squares)
{
    const bool joined = squares != RT_NO_VALUE && is_norm_of_all(p, check, s);
    rt_step *norm = replace_norm(p, s, joined ? 0 : s->listed);
    if (!norm) return false;
    for (int j = 0; j < norm->listed; j++) rt_step_read(p, norm, j, check->in_value[result_read(p, check, s, j)]);
    if (!(joined ? rt_step_read_extra(p, norm, K_SLOT(norm, squares), squares)
                 : rt_step_read_extra(p, norm, K_SLOT(norm, scale), scale_of(check))))
        return false;
    rt_step_insert_before(p, norm, s);
    rt_step_remove(p, s);
    return true;
}

static bool unscale_in_readers(rt_plan *p, const rt_step *check, uint32_t squares)
{
    for (int k = 0; k < check->listed; k++)
        for (const rt_use *u; rt_step_writes(check, k) && (u = rt_uses(p, check->out_value[k])) != NULL;) {
            rt_step *s = u->step;
            if (!(rt_step_has(s, IR_UPDATES) ? unscale_in_update(p, check, s) : unscale_in_norm(p, check, s, squares)))
                return false;
        }
    return true;
}

/* Sets *squares to a new value for the sums of squares that the last part computes, or to RT_NO_VALUE if no norm can
 * read them. */
static bool make_squares(rt_plan *p, const rt_step *check, uint32_t *squares)
{
    const k_view view = {.dtype = IR_f64, .rank = 1, .dims = {p->backend->device_ops ? K_SQUARE_SUMS : 1}};
    *squares = RT_NO_VALUE;
    if (!rt_step_writes(check, 0) || !rt_step_writes(check, found_at(check))) return true;
    const rt_use *u = rt_uses(p, check->out_value[0]);
    while (u && !is_norm_of_all(p, check, u->step)) u = u->next;
    if (!u) return true;
    *squares = rt_plan_new_value(p, u->step->out_value[0], &view);
    return *squares != RT_NO_VALUE;
}

/* ---- splitting the check -------------------------------------------------------------------------- */

/* Returns the step after which gradient k is checked: its definition, or the check itself. */
static rt_step *place_of(const rt_plan *p, rt_step *check, int k)
{
    rt_step *def = rt_def(p, check->in_value[k]);
    const rt_step *scale = rt_def(p, scale_of(check));
    const size_t bytes = k_bytes(&check->in[k]);
    const bool cached = bytes >= CHECK_EARLY_FROM && bytes < CHECK_EARLY_TO;
    const bool early = p->backend->device_ops && cached && def && !rt_step_has(def, IR_COLLECTIVE) &&
                       (!scale || scale->index < def->index);
    return early ? def : check;
}

static bool is_in_part(const rt_plan *p, const checked *c, const part *t)
{
    return t->at == c->at && t->limit == c->limit && t->type == p->values[c->value].view.dtype;
}

/* Returns the part for such values, adding it in step order if needed. */
static part *find_part(const rt_plan *p, part *parts, int *n, const checked *c)
{
    int i = *n;
    for (int j = 0; j < *n; j++)
        if (is_in_part(p, c, &parts[j])) return &parts[j];
    for (; i > 0 && parts[i - 1].at->index > c->at->index; i--) parts[i] = parts[i - 1];
    ++*n;
    parts[i] = (part){.at = c->at, .type = p->values[c->value].view.dtype, .limit = c->limit};
    return &parts[i];
}

/* Whether the step is an f32 product of two factors of a low type that are faster to read, and nothing else. A factor
 * that is read in another type, or a bias, would be an exception. */
static bool has_small_factors(const rt_plan *p, const rt_step *s)
{
    size_t bytes = 0;
    if (!s || !is_contraction(s) || !rt_step_has(s, IR_EPILOGUE | IR_SPATIAL) || s->out[0].dtype != IR_f32)
        return false;
    for (int j = 0; j < s->n_in; j++) {
        if (!rt_step_reads(s, j)) continue;
        if (j > 1 || !ir_dtype_is_low(s->in[j].dtype) || p->values[s->in_value[j]].view.dtype != s->in[j].dtype)
            return false;
        bytes += k_bytes(&s->in[j]);
    }
    return k_bytes(&s->out[0]) >= CHECK_FACTORS_FROM && bytes <= k_bytes(&s->out[0]) / CHECK_FACTORS_RATIO;
}

/* Appends what is checked instead of gradient k: its factors where they are multiplied, or the gradient itself. */
static int add_checked(const rt_plan *p, rt_step *check, int k, bool by_factors, checked *list)
{
    rt_step *def = rt_def(p, check->in_value[k]);
    list[0] = (checked){check->in_value[k], place_of(p, check, k), 0};
    if (!by_factors || !has_small_factors(p, def) || check->in_value[k] != def->out_value[0]) return 1;
    const double limit = sqrt(FLT_MAX / (double)k_count(&def->in[0]));
    list[0] = (checked){def->in_value[0], def, limit};
    list[1] = (checked){def->in_value[1], def, limit};
    return 2;
}

static bool read_partial(rt_plan *p, rt_step *s, partial before)
{
    if (before.found != RT_NO_VALUE && !rt_step_read_extra(p, s, K_SLOT(check, found_before), before.found))
        return false;
    return before.squares == RT_NO_VALUE || rt_step_read_extra(p, s, K_SLOT(check, squares_before), before.squares);
}

/* Lets the step check factors. */
static bool check_factors(rt_plan *p, rt_step *s, double limit)
{
    s->attr = rt_plan_alloc(p, 1, sizeof *s->attr);
    if (!s->attr) return false;
    s->attr[0].f = limit;
    s->kernel = p->backend->check_factors;
    return true;
}

/* Makes the part's step, which reads its values, the scale and the results of the previous part. */
static bool write_part(rt_plan *p, rt_step *check, const checked *list, int listed, part *t, partial before,
                       partial made)
{
    const ir_op_info *info = ir_op_get(check->op);
    rt_step *s = rt_step_new(p, check->node, check->op, k_in_at(check->op, t->n, info->n_in),
                             k_out_at(check->op, t->n, info->n_out));
    int n = 0;
    if (!s) return false;
    for (int k = 0; k < listed; k++)
        if (is_in_part(p, &list[k], t)) rt_step_read(p, s, n++, list[k].value);
    rt_step_read(p, s, scale_at(s), scale_of(check));
    rt_step_write(p, s, found_at(s), made.found);
    t->step = s;
    if (t->limit > 0 && !check_factors(p, s, t->limit)) return false;
    return read_partial(p, s, before) &&
           (made.squares == RT_NO_VALUE || rt_step_write_extra(p, s, K_SLOT(check, squares), made.squares));
}

/* Sets *like to a new value of the same shape and type as `of`, or to RT_NO_VALUE if that is absent. */
static bool new_value_like(rt_plan *p, uint32_t of, uint32_t *like)
{
    *like = of == RT_NO_VALUE ? RT_NO_VALUE : rt_plan_new_value(p, of, &p->values[of].view);
    return of == RT_NO_VALUE || *like != RT_NO_VALUE;
}

static bool write_parts(rt_plan *p, rt_step *check, const checked *list, int listed, part *parts, int n,
                        uint32_t squares)
{
    const partial all = {check->out_value[found_at(check)], squares};
    partial before = {RT_NO_VALUE, RT_NO_VALUE};
    for (int i = 0; i < n; i++) {
        partial made = all;
        if (i + 1 < n && !(new_value_like(p, all.found, &made.found) && new_value_like(p, all.squares, &made.squares)))
            return false;
        if (!write_part(p, check, list, listed, &parts[i], before, made)) return false;
        before = made;
    }
    for (int i = n - 1; i >= 0; i--) rt_step_insert_after(p, parts[i].step, parts[i].at);
    return true;
}

/* Replaces the check by its parts. `squares` is as in unscale_in_norm. */
static bool divide(rt_plan *p, rt_step *check, uint32_t squares)
{
    int n = 0, listed = 0;
    if (!rt_step_writes(check, found_at(check))) return true;
    const size_t most = 2 * (size_t)check->listed;
    part *parts = rt_alloc(most, sizeof *parts);
    checked *list = rt_alloc(most, sizeof *list);
    bool done = parts && list;
    const bool by_factors = p->backend->check_factors && squares == RT_NO_VALUE && !rt_def(p, scale_of(check));
    for (int k = 0; k < check->listed && done; k++) listed += add_checked(p, check, k, by_factors, list + listed);
    for (int k = 0; k < listed; k++) find_part(p, parts, &n, &list[k])->n++;
    done = done && write_parts(p, check, list, listed, parts, n, squares);
    rt_free(parts);
    rt_free(list);
    return done;
}

static bool rewrite(rt_plan *p, rt_step *check)
{
    uint32_t squares;
    drop_casts(p, check);
    if (p->backend->low_gradients) narrow_gradients(p, check);
    if (!make_squares(p, check, &squares) || !unscale_in_readers(p, check, squares)) return false;
    if (!divide(p, check, squares)) return false;
    mark_results(p, check, false);
    rt_step_remove(p, check);
    return true;
}

ampc_status rt_stage_fuse_unscaling(rt_plan *p, diag *d)
{
    (void)d;
    for (int i = 0; i < p->n_steps; i++) {
        rt_step *s = p->steps[i];
        if (!rt_step_has(s, IR_CHECKS) || s->listed == 0) continue;
        mark_results(p, s, true);
        if (!all_can_unscale(p, s)) mark_results(p, s, false);
        else if (!rewrite(p, s)) return AMPC_NO_MEMORY;
    }
    return AMPC_OK;
}
