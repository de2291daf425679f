/* plan_layout.c - images lie channels last between the ops that prefer it.
 *
 *     conv %x, %w            transpose %x -> %x' [N,H,W,C]        conv reads and writes channels last;
 *     add %c, %b [C,1,1]     transpose %w -> %w'                  the rest sees dense views whose dimensions are
 *     relu                   conv %x', %w'                        in the order of memory: [N,H,W,C], [1,1,1,C]
 *     reduce_mean (2,3)      add, relu, reduce_mean (1,2)
 *
 * Layouts flow forward. A convolution is channels last where the backend likes that for its type, pooling and
 * normalisation where an image that they read is. Ops that work element by element, or along axes that can be renamed,
 * take the layout of what they read. All others read plain tensors, and so do outputs and stores. A tensor is converted
 * at most once each way: right behind the step that makes it, or before the first reader where it comes from outside.
 * Memory order is the same in both layouts where there is one channel, or one position: such a tensor is never
 * converted. */
#include "runtime/backend/alloc.h"
#include "runtime/plan/plan.h"

#include <string.h>

/* How an op takes images that lie channels last. */
typedef enum layout_rule {
    PLAIN_ONLY,
    BY_ELEMENT, /* operands broadcast to the result */
    BY_AXES,    /* a list of axes: the first attribute */
    BY_AXIS,    /* one axis: the first attribute */
    PER_AXIS    /* attributes with one entry an axis */
} layout_rule;

static const layout_rule rules[IR_OP_COUNT] = {
#define FORMULA_OP(op) [IR_OP_##op] = BY_ELEMENT,
#include "ir/formulas.def"
    [IR_OP_cast] = BY_ELEMENT,
    [IR_OP_where] = BY_ELEMENT,
    [IR_OP_select] = BY_ELEMENT,
    [IR_OP_dropout_grad] = BY_ELEMENT,
    [IR_OP_expand] = BY_ELEMENT,
    [IR_OP_reduce_sum] = BY_AXES,
    [IR_OP_reduce_mean] = BY_AXES,
    [IR_OP_concat] = BY_AXIS,
    [IR_OP_pad] = PER_AXIS,
    [IR_OP_pad_grad] = PER_AXIS,
    [IR_OP_slice] = PER_AXIS,
    [IR_OP_slice_grad] = PER_AXIS,
};
_Static_assert(IR_ATTR(reduce_sum, axes) == 0 && IR_ATTR(reduce_mean, axes) == 0 && IR_ATTR(concat, axis) == 0,
               "the attribute with axes is the first");

/* A step that converts, to stand behind (before: false) or before a step of the old list. */
typedef struct conversion {
    rt_step step;
    int at;
    bool before;
    struct conversion *next;
} conversion;

typedef struct layouter {
    rt_plan *p;
    bool *last;      /* by root value: it lies channels last in memory */
    uint32_t *other; /* by root value: the same in the other layout; RT_NO_VALUE: not made */
    int *maker;      /* by root value: the step, or -1: none of the old list */
    conversion **at; /* by step: what stands before and behind it, in order */
} layouter;

/* ---- views ---------------------------------------------------------------------------------------- */

/* Dimension i of an image in memory order is this one of [N,C,spatial]. */
static int dim_at(int i, int rank) { return i == 0 ? 0 : i == rank - 1 ? 1 : i + 1; }

/* Where dimension i of [N,C,spatial] is in memory order. */
static int dim_to(int i, int rank) { return i == 0 ? 0 : i == 1 ? rank - 1 : i - 1; }

/* v with dimensions of one element in front, as many as make it an image of that rank. */
static k_view padded(const k_view *v, int rank)
{
    k_view image = {.dtype = v->dtype, .rank = rank};
    for (int i = 0; i < rank; i++) image.dims[i] = i < rank - v->rank ? 1 : v->dims[i - (rank - v->rank)];
    return image;
}

/* An image that lies channels last as a dense view. */
static k_view in_memory_order(const k_view *image)
{
    k_view v = *image;
    for (int i = 0; i < v.rank; i++) v.dims[i] = image->dims[dim_at(i, v.rank)];
    return v;
}

static bool same_either_way(const k_view *image)
{
    int64_t positions = 1;
    for (int i = 2; i < image->rank; i++) positions *= image->dims[i];
    return image->rank < 3 || positions == 1 || image->dims[1] == 1;
}

static bool same_dims(const k_view *a, const k_view *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) == 0;
}

/* ---- what lies how ----------------------------------------------------------------------------------- */

static uint32_t root_of(const layouter *l, uint32_t value) { return l->p->values[value].root; }

static bool is_last(const layouter *l, uint32_t value) { return value != RT_NO_VALUE && l->last[root_of(l, value)]; }

/* Operand j is an image that lies channels last, and is read as the image that it is. */
static bool reads_last(const layouter *l, const rt_step *s, int j)
{
    return is_last(l, s->in_value[j]) && same_dims(&s->in[j], &l->p->values[root_of(l, s->in_value[j])].view);
}

/* ---- conversions ------------------------------------------------------------------------------------- */

/* The transposition that gives `to` from the image `from`, which lies channels last if `last`. */
static bool write_conversion(layouter *l, conversion *c, const ir_node *node, uint32_t from, uint32_t to,
                             const k_view *image, bool last)
{
    rt_plan *p = l->p;
    const int rank = image->rank;
    int64_t *perm = rt_plan_take(p, (size_t)rank, sizeof *perm);
    if (!perm || !rt_step_make(p, &c->step, node, IR_OP_transpose, 1, 1)) return false;
    c->step.kernel = p->backend->kernel(IR_OP_transpose);
    c->step.attr = rt_plan_take(p, 1, sizeof *c->step.attr);
    if (!c->step.attr) return false;
    for (int i = 0; i < rank; i++) perm[i] = last ? dim_to(i, rank) : dim_at(i, rank);
    c->step.attr[IR_ATTR(transpose, perm)].list.items = perm;
    c->step.attr[IR_ATTR(transpose, perm)].list.count = rank;
    rt_step_read(p, &c->step, 0, from);
    rt_step_write(p, &c->step, 0, to);
    c->step.in[0] = last ? in_memory_order(image) : *image;
    c->step.out[0] = last ? *image : in_memory_order(image);
    return true;
}

static void append(conversion **list, conversion *c)
{
    while (*list) list = &(*list)->next;
    *list = c;
}

/* The value whose root is `root`, an image of that shape, in the other layout; made for step `reader` if there is
 * none. */
static uint32_t convert(layouter *l, uint32_t root, const k_view *image, int reader)
{
    rt_plan *p = l->p;
    if (l->other[root] != RT_NO_VALUE && same_dims(&p->values[l->other[root]].view, image)) return l->other[root];
    conversion *c = rt_plan_take(p, 1, sizeof *c);
    uint32_t to = rt_plan_derive(p, root, image);
    if (!c || to == RT_NO_VALUE) return RT_NO_VALUE;
    c->before = l->maker[root] < 0;
    c->at = c->before ? reader : l->maker[root];
    if (!write_conversion(l, c, p->steps[c->at].node, root, to, image, l->last[root])) return RT_NO_VALUE;
    append(&l->at[c->at], c);
    l->last[to] = !l->last[root];
    l->other[to] = RT_NO_VALUE;
    l->maker[to] = -1;
    return l->other[root] = to;
}

/* ---- steps --------------------------------------------------------------------------------------------- */

/* Operand j as the plain tensor that the op expects. */
static bool read_plain(layouter *l, int step, int j)
{
    rt_step *s = &l->p->steps[step];
    if (!is_last(l, s->in_value[j])) return true;
    uint32_t root = root_of(l, s->in_value[j]);
    k_view image = l->p->values[root].view;
    s->in_value[j] = convert(l, root, &image, step);
    return s->in_value[j] != RT_NO_VALUE;
}

static bool read_all_plain(layouter *l, int step)
{
    for (int j = 0; j < l->p->steps[step].n_in; j++)
        if (!read_plain(l, step, j)) return false;
    return true;
}

/* Operand j as an image of that rank that lies channels last; s->in[j] keeps the dimensions of the image. */
static bool read_image(layouter *l, int step, int j, int rank)
{
    rt_step *s = &l->p->steps[step];
    k_view image = padded(&s->in[j], rank);
    if (!reads_last(l, s, j) || s->in[j].rank != rank) {
        if (!read_plain(l, step, j)) return false;
        if (!same_either_way(&image)) s->in_value[j] = convert(l, root_of(l, s->in_value[j]), &image, step);
    }
    s->in[j] = image;
    return s->in_value[j] != RT_NO_VALUE;
}

static void write_image(layouter *l, rt_step *s, int k)
{
    if (s->out_value[k] != RT_NO_VALUE) l->last[s->out_value[k]] = !same_either_way(&s->out[k]);
}

static bool lay_spatial(layouter *l, int step)
{
    rt_step *s = &l->p->steps[step];
    for (int j = 0; j < s->n_in; j++) {
        if (s->in_value[j] == RT_NO_VALUE || s->in[j].rank < 3) continue;
        if (!read_image(l, step, j, s->in[j].rank)) return false;
        s->in[j].channels_last = true;
    }
    for (int k = 0; k < s->n_out; k++) {
        if (s->out[k].rank < 3) continue;
        write_image(l, s, k);
        s->out[k].channels_last = true;
    }
    return true;
}

static bool lay_by_element(layouter *l, int step)
{
    rt_step *s = &l->p->steps[step];
    const int rank = s->out[0].rank;
    for (int j = 0; j < s->n_in; j++) {
        if (s->in_value[j] == RT_NO_VALUE || s->in[j].rank == 0) continue;
        if (!read_image(l, step, j, rank)) return false;
        s->in[j] = in_memory_order(&s->in[j]);
    }
    write_image(l, s, 0);
    s->out[0] = in_memory_order(&s->out[0]);
    return true;
}

/* The attributes with every axis where it is in memory. */
static bool rename_axes(layouter *l, rt_step *s, int rank)
{
    const ir_op_info *info = ir_op_get(s->op);
    const layout_rule rule = rules[s->op];
    ir_attr *attr = rt_plan_take(l->p, (size_t)info->n_attr, sizeof *attr);
    if (!attr) return false;
    memcpy(attr, s->attr, (size_t)info->n_attr * sizeof *attr);
    s->attr = attr;
    if (rule == BY_AXIS) attr[0].i = dim_to(k_axis_number(attr[0].i, rank), rank);
    for (int i = 0; i < info->n_attr; i++) {
        const bool lists = info->attr[i].kind == IR_SLOT_INTS || info->attr[i].kind == IR_SLOT_DIMS;
        const int count = lists ? attr[i].list.count : 0;
        if (!count || rule == BY_AXIS) continue;
        int64_t *items = rt_plan_take(l->p, (size_t)count, sizeof *items);
        if (!items) return false;
        for (int j = 0; j < count; j++)
            items[j] = rule == BY_AXES ? dim_to(k_axis_number(attr[i].list.items[j], rank), rank)
                                       : attr[i].list.items[dim_at(j, rank)];
        attr[i].list.items = items;
    }
    return true;
}

/* concat, pad, slice: images in, images out. */
static bool lay_along_axes(layouter *l, int step)
{
    rt_step *s = &l->p->steps[step];
    const int rank = s->in[0].rank;
    for (int j = 0; j < s->n_in; j++) {
        if (s->in_value[j] == RT_NO_VALUE || s->in[j].rank != rank) continue;
        if (!read_image(l, step, j, rank)) return false;
        s->in[j] = in_memory_order(&s->in[j]);
    }
    write_image(l, s, 0);
    s->out[0] = in_memory_order(&s->out[0]);
    return rename_axes(l, s, rank);
}

/* What a reduction without keepdims leaves is in the order of the plain tensor. */
static bool keeps_order(const rt_step *s)
{
    bool folded[IR_MAX_RANK] = {false};
    bool channels = false, positions = false;
    if (s->out[0].rank == s->in[0].rank) return true;
    for (int i = 0; i < s->attr[0].list.count; i++)
        folded[k_axis_number(s->attr[0].list.items[i], s->in[0].rank)] = true;
    for (int i = 1; i < s->in[0].rank; i++)
        if (!folded[i] && s->in[0].dims[i] > 1) *(i == 1 ? &channels : &positions) = true;
    return !(channels && positions);
}

static bool lay_reduction(layouter *l, int step)
{
    rt_step *s = &l->p->steps[step];
    const int rank = s->in[0].rank;
    if (!keeps_order(s)) return read_all_plain(l, step);
    if (!read_image(l, step, 0, rank)) return false;
    s->in[0] = in_memory_order(&s->in[0]);
    if (s->out[0].rank == rank) {
        write_image(l, s, 0);
        s->out[0] = in_memory_order(&s->out[0]);
    }
    return rename_axes(l, s, rank);
}

/* ---- which steps -------------------------------------------------------------------------------------- */

/* A convolution of a type that the backend likes channels last. */
static bool prefers_last(const rt_plan *p, const rt_step *s)
{
    const bool convolution = s->op == IR_OP_conv || s->op == IR_OP_conv_grad_input || s->op == IR_OP_conv_grad_weight;
    return convolution && p->backend->channels_last(s->in[0].dtype);
}

/* It reads an image that lies channels last, and gives images of that rank or none. */
static bool any_reads_last(const layouter *l, const rt_step *s)
{
    for (int j = 0; j < s->n_in; j++)
        if (reads_last(l, s, j) && (rules[s->op] != BY_ELEMENT || s->in[j].rank == s->out[0].rank)) return true;
    return false;
}

/* A broadcast whose operand is the same either way gives what its readers want: those that read an image beside it. */
static bool wanted_last(const layouter *l, int step, int depth)
{
    const uint32_t made = l->p->steps[step].out_value[0];
    for (int i = step + 1; i < l->p->n_steps; i++) {
        const rt_step *s = &l->p->steps[i];
        for (int j = 0; j < s->n_in; j++) {
            if (s->in_value[j] != made) continue;
            if (rt_step_has(s, IR_SPATIAL) || any_reads_last(l, s)) return true;
            if (rules[s->op] == BY_ELEMENT && s->n_in == 1 && depth > 0) return wanted_last(l, i, depth - 1);
        }
    }
    return false;
}

static bool lay_step(layouter *l, int step)
{
    const rt_step *s = &l->p->steps[step];
    const layout_rule rule = rules[s->op];
    if (rt_step_has(s, IR_SPATIAL))
        return s->in[0].rank >= 3 && (prefers_last(l->p, s) || any_reads_last(l, s)) ? lay_spatial(l, step)
                                                                                     : read_all_plain(l, step);
    if (s->op == IR_OP_expand && s->out[0].rank >= 3 && s->in[0].rank > 0) {
        k_view image = padded(&s->in[0], s->out[0].rank);
        if (same_either_way(&image) && wanted_last(l, step, 4)) return lay_by_element(l, step);
    }
    if (!any_reads_last(l, s)) return read_all_plain(l, step);
    switch (rule) {
    case BY_ELEMENT: return lay_by_element(l, step);
    case BY_AXES: return lay_reduction(l, step);
    case BY_AXIS:
    case PER_AXIS: return lay_along_axes(l, step);
    case PLAIN_ONLY: break;
    }
    return read_all_plain(l, step);
}

/* Outputs and stores read plain tensors. */
static bool lay_effects(layouter *l)
{
    rt_plan *p = l->p;
    for (int i = 0; i < p->n_effects; i++) {
        uint32_t value = p->effects[i].value, root = root_of(l, value);
        if (!l->last[root]) continue;
        k_view image = p->values[root].view, seen = p->values[value].view;
        uint32_t plain = convert(l, root, &image, 0);
        if (plain == RT_NO_VALUE) return false;
        uint32_t view = plain; /* through which the effect sees it */
        if (!same_dims(&image, &seen)) {
            view = rt_plan_derive(p, value, &seen);
            if (view == RT_NO_VALUE) return false;
            p->values[view].root = plain;
        }
        p->effects[i].value = view;
    }
    return true;
}

/* The old list with the conversions in it. */
static bool merge(layouter *l)
{
    rt_plan *p = l->p;
    int n = 0, converted = 0;
    for (int i = 0; i < p->n_steps; i++)
        for (conversion *c = l->at[i]; c; c = c->next) converted++;
    rt_step *steps = rt_plan_take(p, (size_t)(p->n_steps + converted), sizeof *steps);
    if (!steps) return false;
    for (int i = 0; i < p->n_steps; i++) {
        for (conversion *c = l->at[i]; c; c = c->next)
            if (c->before) steps[n++] = c->step;
        steps[n++] = p->steps[i];
        for (conversion *c = l->at[i]; c; c = c->next)
            if (!c->before) steps[n++] = c->step;
    }
    p->steps = steps;
    p->n_steps = n;
    return true;
}

static bool lay_all(layouter *l)
{
    rt_plan *p = l->p;
    for (uint32_t v = 0; v < p->n_values; v++) {
        l->other[v] = RT_NO_VALUE;
        l->maker[v] = -1;
    }
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->steps[i].n_out; k++)
            if (p->steps[i].out_value[k] != RT_NO_VALUE) l->maker[p->steps[i].out_value[k]] = i;
    for (int i = 0; i < p->n_steps; i++)
        if (!lay_step(l, i)) return false;
    return lay_effects(l) && merge(l);
}

static bool any_prefers_last(const rt_plan *p)
{
    for (int i = 0; i < p->n_steps; i++)
        if (prefers_last(p, &p->steps[i])) return true;
    return false;
}

bool rt_plan_lay_out(rt_plan *p)
{
    if (!any_prefers_last(p)) return true;
    size_t most = p->n_values + (size_t)p->n_effects; /* every reader may want a conversion or two */
    for (int i = 0; i < p->n_steps; i++) most += 2 * (size_t)p->steps[i].n_in;
    layouter l = {.p = p};
    l.last = rt_alloc(most, sizeof *l.last);
    l.other = rt_alloc(most, sizeof *l.other);
    l.maker = rt_alloc(most, sizeof *l.maker);
    l.at = rt_alloc((size_t)p->n_steps, sizeof *l.at);
    bool done = l.last && l.other && l.maker && l.at && lay_all(&l);
    rt_free(l.last);
    rt_free(l.other);
    rt_free(l.maker);
    rt_free(l.at);
    return done;
}
