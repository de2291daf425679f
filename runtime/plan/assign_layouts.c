/* assign_layouts.c - runs convolution chains in NHWC.
 *
 *     conv %x, %w            transpose %x -> %x' [N,H,W,C]        conv reads and writes NHWC;
 *     add %c, %b [C,1,1]     transpose %w -> %w'                  the other ops see dense views with dimensions
 *     relu                   conv %x', %w'                        in memory order: [N,H,W,C], [1,1,1,C]
 *     reduce_mean (2,3)      add, relu, reduce_mean (1,2)
 *
 * Layouts propagate forward. A convolution uses NHWC if the backend prefers that for its type; pooling and
 * normalisation use it if an image that they read does. Elementwise ops, and ops along axes that can be renumbered,
 * inherit the layout of their operands. All other ops, outputs and stores read plain tensors (NCHW). A tensor is
 * converted at most once per direction: right after the step that defines it or, if no step does, before its first
 * reader. With one channel or one position both layouts have the same memory order; such a tensor is never
 * converted. */
#include "kernels/convolution.h"
#include "runtime/plan/stages.h"

_Static_assert(IR_ATTR(reduce_sum, axes) == 0 && IR_ATTR(reduce_mean, axes) == 0 && IR_ATTR(concat, axis) == 0,
               "the attribute with axes is the first");

/* Marks of the transposes that this stage inserts, by where they are. The mark of a root value is the id of the same
 * image in the other layout; 0: none. */
enum { BEFORE_READER = 1, AFTER_DEF };

/* ---- views ---------------------------------------------------------------------------------------- */

/* Returns the index in [N,C,spatial] of dimension i in memory order. */
static int dim_at(int i, int rank) { return i == 0 ? 0 : i == rank - 1 ? 1 : i + 1; }

/* Returns the index in memory order of dimension i of [N,C,spatial]. */
static int dim_to(int i, int rank) { return i == 0 ? 0 : i == 1 ? rank - 1 : i - 1; }

/* Returns v as an image of that rank, with leading dimensions of size 1. */
static k_view padded(const k_view *v, int rank)
{
    k_view image = {.dtype = v->dtype, .rank = rank};
    for (int i = 0; i < rank; i++) image.dims[i] = i < rank - v->rank ? 1 : v->dims[i - (rank - v->rank)];
    return image;
}

/* Returns an NHWC image as a dense view. */
static k_view in_memory_order(const k_view *image)
{
    k_view v = *image;
    for (int i = 0; i < v.rank; i++) v.dims[i] = image->dims[dim_at(i, v.rank)];
    return v;
}

static bool is_layout_invariant(const k_view *image)
{
    int64_t positions = 1;
    for (int i = 2; i < image->rank; i++) positions *= image->dims[i];
    return image->rank < 3 || positions == 1 || image->dims[1] == 1;
}

/* ---- layouts ------------------------------------------------------------------------------------------- */

static bool is_nhwc(const rt_plan *p, uint32_t value)
{
    return value != RT_NO_VALUE && p->values[rt_root(p, value)].channels_last;
}

/* Whether operand j is an NHWC image and is read with the dimensions of that image. */
static bool reads_nhwc(const rt_plan *p, const rt_step *s, int j)
{
    return is_nhwc(p, s->in_value[j]) && rt_same_dims(&s->in[j], &p->values[rt_root(p, s->in_value[j])].view);
}

/* ---- conversions ------------------------------------------------------------------------------------- */

/* Makes the transpose that converts image `from` to the new value `to`. */
static rt_step *make_conversion(rt_plan *p, const ir_node *node, uint32_t from, uint32_t to)
{
    const k_view image = p->values[to].view;
    const bool nhwc = p->values[from].channels_last;
    int64_t *perm = rt_plan_alloc(p, (size_t)image.rank, sizeof *perm);
    rt_step *s = rt_step_new(p, node, IR_OP_transpose, 1, 1);
    if (!perm || !s) return NULL;
    for (int i = 0; i < image.rank; i++) perm[i] = nhwc ? dim_to(i, image.rank) : dim_at(i, image.rank);
    s->attr[IR_ATTR(transpose, perm)].list.items = perm;
    s->attr[IR_ATTR(transpose, perm)].list.count = image.rank;
    rt_step_read(p, s, 0, from);
    rt_step_write(p, s, 0, to);
    *(nhwc ? &s->in[0] : &s->out[0]) = in_memory_order(&image);
    *(nhwc ? &s->out[0] : &s->in[0]) = image;
    p->values[to].channels_last = !nhwc;
    return s;
}

/* Inserts a conversion after the image's definition and the conversions that follow it, or before the reader if no step
 * of the graph defines the image. */
static void insert_conversion(rt_plan *p, rt_step *s, rt_step *def, rt_step *reader)
{
    s->mark = def && !def->mark ? AFTER_DEF : BEFORE_READER;
    if (s->mark == BEFORE_READER) {
        rt_step_insert_before(p, s, reader);
        return;
    }
    while (def->next && def->next->mark == AFTER_DEF) def = def->next;
    rt_step_insert_after(p, s, def);
}

/* Returns the image `root`, which has that shape, in the other layout; inserts a conversion for `reader` if there is
 * none. RT_NO_VALUE: out of memory. */
static uint32_t convert(rt_plan *p, uint32_t root, const k_view *image, rt_step *reader)
{
    const uint32_t converted = (uint32_t)p->values[root].mark;
    if (converted && rt_same_dims(&p->values[converted].view, image)) return converted;
    rt_step *def = p->values[root].def;
    const uint32_t to = rt_plan_new_value(p, root, image);
    if (to == RT_NO_VALUE) return RT_NO_VALUE;
    rt_step *s = make_conversion(p, (def && !def->mark ? def : reader)->node, root, to);
    if (!s) return RT_NO_VALUE;
    insert_conversion(p, s, def, reader);
    p->values[root].mark = (int)to;
    return to;
}

/* ---- steps --------------------------------------------------------------------------------------------- */

/* Makes operand j the plain tensor that the op expects. */
static bool read_plain(rt_plan *p, rt_step *s, int j)
{
    if (!is_nhwc(p, s->in_value[j])) return true;
    const uint32_t root = rt_root(p, s->in_value[j]);
    const k_view image = p->values[root].view;
    const uint32_t plain = convert(p, root, &image, s);
    if (plain != RT_NO_VALUE) rt_step_redirect(p, s, j, plain);
    return plain != RT_NO_VALUE;
}

static bool read_all_plain(rt_plan *p, rt_step *s)
{
    for (int j = 0; j < s->n_in; j++)
        if (!read_plain(p, s, j)) return false;
    return true;
}

/* Makes operand j an NHWC image of that rank. s->in[j] keeps the dimension order [N,C,spatial]. */
static bool read_image(rt_plan *p, rt_step *s, int j, int rank)
{
    const k_view image = padded(&s->in[j], rank);
    if (!reads_nhwc(p, s, j) || s->in[j].rank != rank) {
        if (!read_plain(p, s, j)) return false;
        if (!is_layout_invariant(&image)) {
            const uint32_t nhwc = convert(p, rt_root(p, s->in_value[j]), &image, s);
            if (nhwc == RT_NO_VALUE) return false;
            rt_step_redirect(p, s, j, nhwc);
        }
    }
    s->in[j] = image;
    return true;
}

static void write_image(rt_plan *p, const rt_step *s, int k)
{
    if (s->out_value[k] != RT_NO_VALUE) p->values[s->out_value[k]].channels_last = !is_layout_invariant(&s->out[k]);
}

static bool is_convolution(const rt_step *s)
{
    return rt_step_has(s, IR_SPATIAL) && ir_op_get(s->op)->colour == IR_WHITE;
}

/* Whether the view is the weight of a convolution, or its gradient, which the backend leaves plain. */
static bool is_plain_weight(const rt_plan *p, const rt_step *s, const k_view *v)
{
    const k_args args = rt_step_args(p, s);
    return p->backend->plain_weights && is_convolution(s) && conv_of(&args).w == v;
}

static bool assign_spatial(rt_plan *p, rt_step *s)
{
    for (int j = 0; j < s->n_in; j++) {
        if (s->in_value[j] == RT_NO_VALUE || s->in[j].rank < 3) continue;
        if (is_plain_weight(p, s, &s->in[j])) {
            if (!read_plain(p, s, j)) return false;
            continue;
        }
        if (!read_image(p, s, j, s->in[j].rank)) return false;
        s->in[j].channels_last = true;
    }
    for (int k = 0; k < s->n_out; k++) {
        if (s->out[k].rank < 3 || is_plain_weight(p, s, &s->out[k])) continue;
        write_image(p, s, k);
        s->out[k].channels_last = true;
    }
    return true;
}

/* Makes the result, and the operands with at min_rank `min_rank` dimensions, dense NHWC images of that rank. */
static bool assign_dense(rt_plan *p, rt_step *s, int min_rank, int rank)
{
    for (int j = 0; j < s->n_in; j++) {
        if (s->in_value[j] == RT_NO_VALUE || s->in[j].rank < min_rank) continue;
        if (!read_image(p, s, j, rank)) return false;
        s->in[j] = in_memory_order(&s->in[j]);
    }
    if (s->out[0].rank != rank) return true;
    write_image(p, s, 0);
    s->out[0] = in_memory_order(&s->out[0]);
    return true;
}

static bool assign_pointwise(rt_plan *p, rt_step *s) { return assign_dense(p, s, 1, s->out[0].rank); }

/* Returns item i of a list attribute for an image of that rank in memory order. */
static int64_t permuted_item(const rt_step *s, const ir_attr *list, int i, int rank)
{
    if (rt_step_has(s, IR_SUMS | IR_MEANS)) return dim_to(k_axis_number(list->list.items[i], rank), rank);
    return list->list.items[dim_at(i, rank)];
}

/* Permutes the attributes to memory order. */
static bool permute_attrs(rt_plan *p, rt_step *s, int rank)
{
    const ir_op_info *info = ir_op_get(s->op);
    if (rt_step_has(s, IR_BY_AXIS)) s->attr[0].i = dim_to(k_axis_number(s->attr[0].i, rank), rank);
    for (int i = 0; i < info->n_attr && !rt_step_has(s, IR_BY_AXIS); i++) {
        const bool lists = info->attr[i].kind == IR_SLOT_INTS || info->attr[i].kind == IR_SLOT_DIMS;
        const int count = lists ? s->attr[i].list.count : 0;
        int64_t *items = count ? rt_plan_alloc(p, (size_t)count, sizeof *items) : NULL;
        if (!count) continue;
        if (!items) return false;
        for (int j = 0; j < count; j++) items[j] = permuted_item(s, &s->attr[i], j, rank);
        s->attr[i].list.items = items;
    }
    return true;
}

/* For concat, pad, slice and reductions, whose operands and results are images. */
static bool assign_along_axes(rt_plan *p, rt_step *s)
{
    const int rank = s->in[0].rank;
    return assign_dense(p, s, rank, rank) && permute_attrs(p, s, rank);
}

/* Whether the result of a reduction has the same memory order as that of the plain tensor, or is an image itself. */
static bool preserves_order(const rt_step *s)
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

/* ---- which steps -------------------------------------------------------------------------------------- */

/* Whether the step is a convolution of a type for which the backend prefers NHWC. */
static bool prefers_nhwc(const rt_plan *p, const rt_step *s)
{
    return is_convolution(s) && p->backend->channels_last(s->in[0].dtype);
}

static bool broadcasts(const rt_step *s) { return rt_step_has(s, IR_ELEMENTWISE | IR_EXPANDS); }

/* Whether the step reads an NHWC image and, if it broadcasts, has a result of the same rank. */
static bool any_reads_nhwc(const rt_plan *p, const rt_step *s)
{
    for (int j = 0; j < s->n_in; j++)
        if (reads_nhwc(p, s, j) && (!broadcasts(s) || s->in[j].rank == s->out[0].rank)) return true;
    return false;
}

/* Whether the result of a broadcast should be NHWC because a reader is spatial or reads other NHWC images. The operand
 * must have the same memory order in both layouts. */
static bool should_be_nhwc(const rt_plan *p, const rt_step *s, int depth)
{
    for (const rt_use *u = rt_uses(p, s->out_value[0]); u; u = u->next) {
        const rt_step *reader = u->step;
        if (!reader || reader->in_value[u->slot] != s->out_value[0]) continue;
        if (rt_step_has(reader, IR_SPATIAL) || any_reads_nhwc(p, reader)) return true;
        if (broadcasts(reader) && reader->n_in == 1 && depth > 0) return should_be_nhwc(p, reader, depth - 1);
    }
    return false;
}

static bool assign_step(rt_plan *p, rt_step *s)
{
    const bool reads = any_reads_nhwc(p, s);
    if (rt_step_has(s, IR_SPATIAL))
        return s->in[0].rank >= 3 && (reads || prefers_nhwc(p, s)) ? assign_spatial(p, s) : read_all_plain(p, s);
    if (rt_step_has(s, IR_EXPANDS) && s->out[0].rank >= 3 && s->in[0].rank > 0) {
        const k_view image = padded(&s->in[0], s->out[0].rank);
        if (is_layout_invariant(&image) && should_be_nhwc(p, s, 4)) return assign_pointwise(p, s);
    }
    if (reads && broadcasts(s)) return assign_pointwise(p, s);
    if (reads && rt_step_has(s, IR_SUMS | IR_MEANS) && preserves_order(s)) return assign_along_axes(p, s);
    if (reads && rt_step_has(s, IR_BY_AXIS | IR_PER_AXIS)) return assign_along_axes(p, s);
    return read_all_plain(p, s);
}

/* Lets an output or store read a plain tensor. */
static bool read_plain_effect(rt_plan *p, rt_effect *e)
{
    const uint32_t root = rt_root(p, e->value);
    const k_view image = p->values[root].view, shape = p->values[e->value].view;
    if (!p->values[root].channels_last) return true;
    const uint32_t plain = convert(p, root, &image, p->steps[0]);
    if (plain == RT_NO_VALUE) return false;
    const bool same_shape = rt_same_dims(&image, &shape);
    const uint32_t view = same_shape ? plain : rt_plan_new_view(p, e->value, plain, &shape);
    if (view != RT_NO_VALUE) rt_effect_read(p, e, view);
    return view != RT_NO_VALUE;
}

static bool any_prefers_nhwc(const rt_plan *p)
{
    for (int i = 0; i < p->n_steps; i++)
        if (prefers_nhwc(p, p->steps[i])) return true;
    return false;
}

ampc_status rt_stage_assign_layouts(rt_plan *p, diag *d)
{
    (void)d;
    if (!any_prefers_nhwc(p)) return AMPC_OK;
    for (int i = 0; i < p->n_steps; i++)
        if (!assign_step(p, p->steps[i])) return AMPC_NO_MEMORY;
    for (int i = 0; i < p->n_effects; i++)
        if (!read_plain_effect(p, &p->effects[i])) return AMPC_NO_MEMORY;
    return AMPC_OK;
}
