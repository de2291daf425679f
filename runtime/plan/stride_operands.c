/* stride_operands.c - lets steps read parts of a value, and write them, where they are.
 *
 *     %q, %k, %v = split %x                       %s = gelu (%x at 0)          parts that are contiguous
 *     %s = gelu %q                          ->    %y = matmul (%x at 64), ..
 *     %y = matmul %k, ..
 *
 *     %q, %k, %v = split %x                       %t = attention (%x, strided), (%x, strided), ..
 *     %q' = transpose %q                    ->
 *     %y = attention %q', ..                      %t has the memory order of the transposed result
 *     %t = transpose %y
 *
 *     %dq, .. = attention_grad ..
 *     %dq' = transpose %dq                  ->    (%dx, strided), .. = attention_grad ..
 *     %dx = concat %dq', ..
 *
 * A copy that only moves elements is removed if all its readers can read its operand instead: at any strides, if their
 * kernels are able to (trait STRIDED), and contiguous, aligned parts in any case. Likewise, one that reads only what
 * such kernels write is removed if these can write its result instead. An operand lives as long as its parts, so very
 * small parts are copied. */
#include "kernels/walk.h"
#include "runtime/backend/alloc.h"
#include "runtime/plan/spread.h"
#include "runtime/plan/stages.h"

#include <stdlib.h>

enum {
    FEW = 4,    /* a part that is smaller than one of so many is copied */
    LONGEST = 6 /* of a chain of copies that is followed */
};

static bool is_transpose(const rt_step *s) { return rt_step_is(s, IR_OP_transpose); }
static bool is_concat(const rt_step *s) { return rt_step_is(s, IR_OP_concat); }

/* Whether the view shows the elements of its value in row-major order, of which there are some. */
static bool is_plain(const k_view *v)
{
    return k_present(v) && !v->packed && !v->channels_last && !v->strides && v->as == IR_NO_DTYPE && k_count(v) > 0;
}

static void permutation(const rt_step *s, int *perm, int *inverse)
{
    for (int i = 0; i < s->in[0].rank; i++) {
        perm[i] = (int)s->attr[IR_ATTR(transpose, perm)].list.items[i];
        inverse[perm[i]] = i;
    }
}

/* Sets *out to the view of the shape of *v that the spread describes, which is possible, and *at to its beginning in
 * bytes; false: out of memory. */
static bool make_view(rt_plan *p, const k_view *v, const rt_spread *s, k_view *out, int64_t *at)
{
    int64_t strides[IR_MAX_RANK];
    if (!rt_spread_strides(s, v, strides)) return false;
    int64_t *kept = rt_plan_alloc(p, IR_MAX_RANK, sizeof *kept);
    if (!kept) return false;
    for (int i = 0; i < v->rank; i++) kept[i] = strides[i];
    *out = *v;
    out->strides = kept;
    *at = s->at * (int64_t)ir_dtype_size(v->dtype);
    return true;
}

/* ---- operands ---------------------------------------------------------------------------------------- */

static bool is_copy(const rt_step *s)
{
    return (is_transpose(s) || rt_step_is(s, IR_OP_split) || rt_step_is(s, IR_OP_slice)) && rt_step_reads(s, 0) &&
           is_plain(&s->in[0]);
}

static bool slice_axes(const rt_step *s, rt_spread *x)
{
    const ir_attr *start = &s->attr[IR_ATTR(slice, start)], *step = &s->attr[IR_ATTR(slice, step)];
    k_view rest = s->in[0]; /* the axes that are sliced already have the size of the result */
    for (int i = 0; i < rest.rank; i++) {
        if (step->list.items[i] != 1) return false;
        if (!rt_spread_slice(x, &rest, i, start->list.items[i], s->out[0].dims[i])) return false;
        rest.dims[i] = s->out[0].dims[i];
    }
    return true;
}

/* Turns the spread of the operand of a copy into that of result k; whether that is one. */
static bool copy_spread(const rt_step *s, int k, rt_spread *x)
{
    int perm[IR_MAX_RANK], inverse[IR_MAX_RANK];
    if (rt_step_is(s, IR_OP_slice)) return slice_axes(s, x);
    if (is_transpose(s)) {
        permutation(s, perm, inverse);
        return rt_spread_permute(x, &s->in[0], perm);
    }
    const int64_t *sizes = s->attr[IR_ATTR(split, sizes)].list.items;
    int64_t start = 0;
    for (int i = 0; i < k; i++) start += sizes[i];
    return rt_spread_slice(x, &s->in[0], k_axis_number(s->attr[IR_ATTR(split, axis)].i, s->in[0].rank), start,
                           sizes[k]);
}

/* A chain of copies: result `result` of the last one is a part of the operand of the first one, `base`. */
typedef struct chain {
    uint32_t base;
    rt_spread spread;
} chain;

static int result_of(const rt_step *s, uint32_t value)
{
    int k = 0;
    while (s->out_value[k] != value) k++;
    return k;
}

/* Finds the chain of up to `most` copies that ends with result k of s; whether it has so many. */
static bool find_chain(const rt_plan *p, const rt_step *s, int k, int most, chain *c)
{
    c->base = rt_root(p, s->in_value[0]);
    const rt_step *before = rt_def(p, c->base);
    if (most == 1) c->spread = rt_spread_dense(k_count(&s->in[0]));
    else if (!before || !is_copy(before) || !find_chain(p, before, result_of(before, c->base), most - 1, c))
        return false;
    return copy_spread(s, k, &c->spread);
}

/* Whether the reader can read such a part in that operand. */
static bool can_read(const rt_plan *p, const rt_use *u, const rt_spread *x)
{
    int64_t strides[IR_MAX_RANK];
    const rt_step *s = u->step;
    if (!s || s->hoisted || !is_plain(&s->in[u->slot])) return false;
    if (rt_step_is_strided(s)) return rt_spread_strides(x, &s->in[u->slot], strides);
    const int64_t at = x->at * (int64_t)ir_dtype_size(s->in[u->slot].dtype);
    return rt_spread_is_dense(x) && at % p->backend->alignment == 0 && s->kind != RT_STEP_PACK &&
           !rt_step_has(s, IR_BODIES | IR_SPATIAL | IR_UPDATES);
}

/* Whether the part would keep alive memory of many times its size. */
static bool is_small(const k_view *part, const k_view *whole) { return k_count(part) * FEW < k_count(whole); }

/* Whether all readers of the result can read the part that the chain shows. */
static bool can_replace(const rt_plan *p, const k_view *result, uint32_t value, const chain *c)
{
    const rt_value *base = &p->values[c->base];
    if (base->channels_last || base->view.packed || is_small(result, &base->view)) return false;
    for (const rt_use *u = rt_uses(p, value); u; u = u->next)
        if (!can_read(p, u, &c->spread)) return false;
    return true;
}

/* Lets the reader read the part. */
static bool read_part(rt_plan *p, const rt_use *u, const chain *c)
{
    k_view view;
    int64_t at;
    rt_step *s = u->step;
    const int slot = u->slot;
    if (!make_view(p, &s->in[slot], &c->spread, &view, &at)) return false;
    const uint32_t part = rt_plan_new_view(p, c->base, c->base, &view);
    if (part == RT_NO_VALUE) return false;
    rt_step_read(p, s, slot, part);
    s->in_at[slot] = at;
    return true;
}

/* Lets the readers of result k of a copy read its operand, or that of an earlier copy, if they all can. */
static bool skip_result(rt_plan *p, rt_step *s, int k)
{
    const uint32_t value = s->out_value[k];
    chain c;
    int n = LONGEST;
    if (rt_root(p, value) != value || !is_plain(&s->out[k]) || is_small(&s->out[k], &s->in[0])) return true;
    while (n > 0 && !(find_chain(p, s, k, n, &c) && can_replace(p, &s->out[k], value, &c))) n--;
    if (n == 0) return true;
    for (const rt_use *u; (u = rt_uses(p, value)) != NULL;)
        if (!read_part(p, u, &c)) return false;
    rt_step_write(p, s, k, RT_NO_VALUE);
    return true;
}

static bool skip_copy(rt_plan *p, rt_step *s)
{
    bool writes = false;
    for (int k = 0; k < s->n_out; k++) {
        if (rt_step_writes(s, k) && !skip_result(p, s, k)) return false;
        writes |= rt_step_writes(s, k);
    }
    if (!writes) rt_step_remove(p, s);
    return true;
}

/* ---- results ----------------------------------------------------------------------------------------- */

/* A result that becomes a part of the result of a later copy. */
typedef struct target {
    rt_step *step;
    int k;
    rt_spread spread;
} target;

/* Turns the spread of the result of a transpose into that of its operand. */
static bool undo_transpose(const rt_step *s, rt_spread *x)
{
    int perm[IR_MAX_RANK], inverse[IR_MAX_RANK];
    permutation(s, perm, inverse);
    return rt_spread_permute(x, &s->out[0], inverse);
}

/* Sets *x to the place of operand j in the result of a transpose or concat. */
static bool place_operand(const rt_step *s, int j, rt_spread *x)
{
    *x = rt_spread_dense(k_count(&s->out[0]));
    if (is_transpose(s)) return undo_transpose(s, x);
    const int axis = k_axis_number(s->attr[IR_ATTR(concat, axis)].i, s->out[0].rank);
    int64_t start = 0;
    for (int i = 0; i < j; i++) start += s->in[i].dims[axis];
    return rt_spread_slice(x, &s->out[0], axis, start, s->in[j].dims[axis]);
}

/* Whether all readers of the result can read it at such strides, except for one that reads it once. */
static bool others_can_read(const rt_plan *p, uint32_t value, const rt_step *except, const rt_spread *x)
{
    int64_t strides[IR_MAX_RANK];
    int n = 0;
    for (const rt_use *u = rt_uses(p, value); u; u = u->next) {
        if (u->step == except && n++ == 0) continue;
        if (!rt_step_is_strided(u->step) || u->step->hoisted || !is_plain(&u->step->in[u->slot])) return false;
        if (!rt_spread_strides(x, &u->step->in[u->slot], strides)) return false;
    }
    return true;
}

/* Finds the result that operand j is, possibly transposed for nothing else; whether it can be written in its place. */
static bool find_target(const rt_plan *p, const rt_step *s, int j, target *t)
{
    int64_t strides[IR_MAX_RANK];
    if (!rt_step_reads(s, j) || !is_plain(&s->in[j]) || !place_operand(s, j, &t->spread)) return false;
    const rt_step *reader = s;
    uint32_t value = rt_root(p, s->in_value[j]);
    for (; is_transpose(rt_def(p, value)) && rt_has_one_use(p, value); value = rt_root(p, reader->in_value[0])) {
        reader = rt_def(p, value);
        if (!is_plain(&reader->in[0]) || !undo_transpose(reader, &t->spread)) return false;
    }
    t->step = rt_def(p, value);
    if (!rt_step_is_strided(t->step) || t->step->hoisted || p->values[value].store) return false;
    t->k = result_of(t->step, value);
    return is_plain(&t->step->out[t->k]) && rt_spread_strides(&t->spread, &t->step->out[t->k], strides) &&
           others_can_read(p, value, reader, &t->spread);
}

static int compare(const void *a, const void *b)
{
    const target *x = a, *y = b;
    return x->step->index != y->step->index ? x->step->index - y->step->index : x->k - y->k;
}

/* Removes the transposes between the result and `end`, which have no other readers. */
static void remove_transposes(rt_plan *p, uint32_t value, const rt_step *end)
{
    for (const rt_use *u = rt_uses(p, value); u; u = u->next) {
        rt_step *s = u->step;
        if (rt_step_is_strided(s) || s == end) continue;
        remove_transposes(p, s->out_value[0], end);
        rt_step_remove(p, s);
        return;
    }
}

/* Lets the step write its result, and others read it, as a part of `whole`, which the first target defines. */
static bool write_part(rt_plan *p, const target *t, uint32_t whole, bool is_first)
{
    const uint32_t old = t->step->out_value[t->k];
    const k_view shape = t->step->out[t->k];
    const uint32_t value = is_first ? whole : rt_plan_new_view(p, whole, whole, &p->values[whole].view);
    if (value == RT_NO_VALUE) return false;
    rt_step_write(p, t->step, t->k, value);
    if (!make_view(p, &shape, &t->spread, &t->step->out[t->k], &t->step->out_at[t->k])) return false;
    const chain c = {whole, t->spread};
    for (const rt_use *u; (u = rt_uses(p, old)) != NULL;)
        if (!read_part(p, u, &c)) return false;
    return true;
}

/* Removes a transpose or concat whose operands can be written in their places. */
static bool place_results(rt_plan *p, rt_step *s)
{
    const uint32_t whole = s->out_value[0];
    target *targets = rt_alloc((size_t)s->n_in, sizeof *targets);
    int n = 0;
    bool done = targets != NULL;
    if (done && rt_root(p, whole) == whole && is_plain(&s->out[0]))
        while (n < s->n_in && find_target(p, s, n, &targets[n])) n++;
    if (done && n == s->n_in) {
        qsort(targets, (size_t)n, sizeof *targets, compare);
        for (int i = 0; i < n; i++) remove_transposes(p, targets[i].step->out_value[targets[i].k], s);
        rt_step_remove(p, s);
        for (int i = 0; i < n && done; i++) done = write_part(p, &targets[i], whole, i == 0);
    }
    rt_free(targets);
    return done;
}

ampc_status rt_stage_stride_operands(rt_plan *p, diag *d)
{
    (void)d;
    for (int i = p->n_steps - 1; i >= 0; i--) {
        rt_step *s = p->steps[i];
        if (s->index >= 0 && (is_transpose(s) || is_concat(s)) && !place_results(p, s)) return AMPC_NO_MEMORY;
    }
    for (int i = p->n_steps - 1; i >= 0; i--) {
        rt_step *s = p->steps[i];
        if (s->index >= 0 && is_copy(s) && !skip_copy(p, s)) return AMPC_NO_MEMORY;
    }
    return AMPC_OK;
}
