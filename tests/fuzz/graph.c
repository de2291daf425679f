/* graph.c - implements graph.h. The slots of an op define what it accepts. Two tables by op add constraints
 * that slots cannot express, such as convolution weights having the channels of the input: shapes of operands
 * and list attributes. */
#include "tests/fuzz/graph.h"

#include <stdio.h>
#include <string.h>

enum { MAX_POOL = 64, MAX_NODES = 24, MAX_LIST = 2 * IR_MAX_RANK, MAX_VARIADIC = 4 };

typedef struct drawing {
    choices *c;
    ir_module *m;
    ir_graph *g;
    ir_builder b;
    ir_value *pool[MAX_POOL];
    int n_pool, made;
    bool empty; /* makes sizes of 0 frequent */
} drawing;

static const ir_dtype floats[] = {IR_f32, IR_f32, IR_f32, IR_f32, IR_f16, IR_bf16, IR_f64};
static const ir_dtype integers[] = {IR_i64, IR_i64, IR_i32, IR_i16, IR_i8, IR_u8, IR_u16, IR_u32, IR_u64};

static ir_dtype draw_dtype(choices *c, ir_group group)
{
    switch (group) {
    case IR_GROUP_F:
    case IR_GROUP_G: return CHOOSE(c, floats);
    case IR_GROUP_F32: return IR_f32;
    case IR_GROUP_I:
    case IR_GROUP_W: return CHOOSE(c, integers);
    case IR_GROUP_B: return IR_bool;
    case IR_GROUP_N: return rarely(c, 5) ? CHOOSE(c, integers) : CHOOSE(c, floats);
    default: return rarely(c, 8) ? IR_bool : draw_dtype(c, IR_GROUP_N);
    }
}

/* ---- dimensions ------------------------------------------------------------------------------------------------ */

static ir_dim draw_dim(drawing *w)
{
    static const int8_t sizes[] = {1, 2, 3, 4, 2, 3, 1, 0, 5, 8};
    static const char *const symbols[] = {"N", "N", "N", "M", "N+1", "2*N", "floor((N+1)/2)", "N*M"};
    const char *end;
    if (w->empty && choose(w->c, 2)) return 0;
    return rarely(w->c, 5) ? ir_dim_parse(w->m->dims, CHOOSE(w->c, symbols), &end) : CHOOSE(w->c, sizes);
}

static ir_dim draw_number(drawing *w)
{
    static const int8_t sizes[] = {1, 2, 3, 4, 2, 3, 1, 0, 5};
    return w->empty && choose(w->c, 2) ? 0 : CHOOSE(w->c, sizes);
}

static ir_type draw_type(drawing *w, ir_dtype t, bool fixed)
{
    static const int8_t ranks[] = {2, 2, 3, 4, 1, 4, 3, 0, 5, 2};
    ir_type type = {.dtype = t, .rank = CHOOSE(w->c, ranks)};
    for (int i = 0; i < type.rank; i++) type.dims[i] = fixed ? draw_number(w) : draw_dim(w);
    return type;
}

static void set_dims(ir_type *t, int rank, const ir_dim *dims)
{
    t->rank = rank;
    for (int i = 0; i < rank; i++) t->dims[i] = dims[i];
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

static ir_value *keep(drawing *w, ir_value *v)
{
    if (v && v->type.dtype != IR_NO_DTYPE) w->pool[w->n_pool < MAX_POOL ? w->n_pool++ : choose(w->c, MAX_POOL)] = v;
    return v;
}

static ir_value *draw_storage(drawing *w, const ir_type *type)
{
    static const ir_storage_kind kinds[] = {IR_PARAM, IR_PARAM, IR_CONST, IR_STATE};
    char name[16], bytes[4096];
    const bool is_float = ir_dtype_is_float(type->dtype);
    ir_storage_kind kind = CHOOSE(w->c, kinds);
    snprintf(name, sizeof name, "s%d", w->made++);
    if (kind == IR_PARAM && type->dtype != IR_f32) kind = IR_CONST;
    ir_storage *s = ir_storage_new(w->m, kind, name, type);
    const size_t size = ir_dtype_size(type->dtype), n = (size_t)ir_storage_bytes(s) / size;
    if (n * size <= sizeof bytes && !rarely(w->c, 8)) {
        for (size_t i = 0; i < n; i++) {
            const int small = (int)(choices_word(w->c) % 5) - 1;
            if (is_float) ir_store_f64(type->dtype, bytes + i * size, small * 0.5);
            else ir_store_i64(type->dtype, bytes + i * size, type->dtype == IR_bool ? small & 1 : small);
        }
        ir_storage_set(w->m, s, bytes);
    }
    s->frozen = kind == IR_PARAM && rarely(w->c, 6);
    return keep(w, ir_graph_storage(w->g, s));
}

/* Creates a value of that type without operands: an input or, if the shape is static, a storage. */
static ir_value *draw_source(drawing *w, const ir_type *type)
{
    char name[16];
    if (ir_type_is_static(type) && choose(w->c, 4)) return draw_storage(w, type);
    snprintf(name, sizeof name, "x%d", w->made++);
    return keep(w, ir_graph_input(w->g, name, type));
}

/* Picks a value of the pool, of dtype t unless that is IR_NO_DTYPE. NULL if the first candidates do not fit. */
static ir_value *pick(drawing *w, ir_dtype t, ir_group group)
{
    for (int attempt = 0; attempt < 6 && w->n_pool; attempt++) {
        const int back = choose(w->c, w->n_pool);
        ir_value *v = w->pool[choose(w->c, 2) ? w->n_pool - 1 - back / 3 : back];
        const ir_dtype has = v->type.dtype;
        bool fits = t == IR_NO_DTYPE || has == t;
        if (group == IR_GROUP_F || group == IR_GROUP_G) fits = fits && ir_dtype_is_float(has);
        if (group == IR_GROUP_F32) fits = fits && has == IR_f32;
        if (group == IR_GROUP_N) fits = fits && has != IR_bool;
        if (group == IR_GROUP_I || group == IR_GROUP_W) fits = fits && ir_dtype_is_int(has);
        if (group == IR_GROUP_B) fits = fits && has == IR_bool;
        if (fits) return v;
    }
    return NULL;
}

/* ---- shapes of operands that follow from the first ------------------------------------------------------------- */

static int axis_of(drawing *w, const ir_type *x) { return x->rank ? choose(w->c, x->rank) : 0; }

/* Operand i of grid_sample, roi_align or roi_align_grad: positions and regions for an image x, or for a result x. */
static bool sample_shape(drawing *w, ir_op op, int i, const ir_type *x, ir_type *out)
{
    ir_dim dims[IR_MAX_RANK];
    const bool back = op == IR_OP_roi_align_grad;
    if (x->rank < 3) return false;
    if (op == IR_OP_grid_sample) {
        dims[0] = x->dims[0];
        for (int k = 1; k < x->rank - 1; k++) dims[k] = draw_number(w);
        dims[x->rank - 1] = x->rank - 2;
        return set_dims(out, x->rank, dims), true;
    }
    if (back && i == 1) return set_dims(out, 4, (const ir_dim[]){1 + choose(w->c, 2), x->dims[1], 3, 2}), true;
    return set_dims(out, i == 1 + back ? 2 : 1, (const ir_dim[]){back ? x->dims[0] : 2, 4}), true;
}

/* Operand i of a recurrent op whose cell is lstm, for x [T,B,4*H]. */
static bool recurrent_shape(int i, const ir_type *x, ir_type *out)
{
    if (x->rank != 3 || ir_dim_is_symbolic(x->dims[2])) return false;
    const ir_dim hidden = x->dims[2] / 4;
    if (i == 1) return set_dims(out, 2, (const ir_dim[]){x->dims[2], hidden}), true;
    if (i == 6) return set_dims(out, 1, x->dims + 1), true;
    return set_dims(out, 2, (const ir_dim[]){i == 5 ? 3 : x->dims[1], hidden}), true;
}

/* Computes the shape of operand i of op from the shape x of operand 0. False: any shape is valid, preferably
 * that of operand 0. */
static bool related_shape(drawing *w, ir_op op, int i, const ir_type *x, ir_type *out)
{
    const ir_dim m = draw_number(w);
    const ir_dim channels[] = {x->rank > 1 ? x->dims[1] : 1};
    ir_dim dims[IR_MAX_RANK];
    switch (op) {
    case IR_OP_matmul:
        if (i == 2) return set_dims(out, 1, &m), true;
        if (x->rank < 2) return false;
        set_dims(out, 2, (const ir_dim[]){x->dims[x->rank - 1 - choose(w->c, 2) / (choose(w->c, 3) + 1)], m});
        return true;
    case IR_OP_conv:
        dims[0] = m;
        for (int k = 1; k < x->rank; k++) dims[k] = 1 + choose(w->c, 3);
        if (x->rank > 1) dims[1] = channels[0];
        set_dims(out, i == 2 ? 1 : x->rank, dims);
        return true;
    case IR_OP_batch_norm: return set_dims(out, 1, channels), true;
    case IR_OP_layer_norm: return set_dims(out, x->rank ? 1 : 0, &x->dims[x->rank ? x->rank - 1 : 0]), true;
    case IR_OP_softmax_cross_entropy:
    case IR_OP_nll_loss:
        if (i == 2) return set_dims(out, 1, channels), true;
        if (x->rank < 2) return false;
        dims[0] = x->dims[0];
        for (int k = 2; k < x->rank; k++) dims[k - 1] = x->dims[k];
        return set_dims(out, x->rank - 1, dims), true;
    case IR_OP_dropout: return set_dims(out, 1, (const ir_dim[]){2}), true;
    case IR_OP_pad: return set_dims(out, 0, NULL), true;
    case IR_OP_grid_sample:
    case IR_OP_roi_align:
    case IR_OP_roi_align_grad: return sample_shape(w, op, i, x, out);
    case IR_OP_recurrent: return recurrent_shape(i, x, out);
    default: return false;
    }
}

/* ---- operands -------------------------------------------------------------------------------------------------- */

static bool is_mandatory(const ir_slot *slot) { return slot->kind != IR_SLOT_OPT; }

/* Returns the dtype already bound to the group in this node. */
static ir_dtype group_type(const ir_op_info *info, ir_value *const *in, int n, ir_group group)
{
    for (int i = 0; i < n; i++) {
        const ir_slot *slot = ir_op_in_slot((ir_op)(info - ir_op_infos), i, n);
        const bool shared = group != IR_GROUP_I && group != IR_GROUP_U;
        if (shared && in[i] && slot && slot->group == group) return in[i]->type.dtype;
    }
    return IR_NO_DTYPE;
}

/* The first of n operands that need not be a scalar: the others tend to have its shape. */
static const ir_value *first_tensor(ir_op op, ir_value *const *in, int n)
{
    const ir_op_info *info = ir_op_get(op);
    for (int i = 0; i < n; i++)
        if (in[i] && !info->in[i < info->n_in ? i : info->n_in - 1].scalar) return in[i];
    return NULL;
}

static ir_value *draw_operand(drawing *w, ir_op op, const ir_slot *slot, ir_value *const *in, int i)
{
    const ir_dtype known = group_type(ir_op_get(op), in, i, slot->group);
    const ir_value *leader = first_tensor(op, in, i);
    const ir_type *first = leader ? &leader->type : NULL;
    const ir_dtype t = known != IR_NO_DTYPE ? known : draw_dtype(w->c, slot->group);
    ir_type type;
    if (i && in[0] && rarely(w->c, 12)) return in[0];
    if (slot->scalar && !rarely(w->c, 12)) {
        set_dims(&type, 0, NULL);
        type.dtype = t;
        return draw_source(w, &type);
    }
    if (!i && !rarely(w->c, 8)) {
        ir_value *v = pick(w, known, slot->group);
        if (v) return v;
    }
    if (first && related_shape(w, op, i, first, &type)) {
        type.dtype = t;
    } else {
        ir_value *v = pick(w, known, slot->group);
        if (v && (!i || (first && ir_type_same_shape(&v->type, first)))) return v;
        if (v && rarely(w->c, 4)) return v;
        if (first && choose(w->c, 4)) type = *first;
        else type = draw_type(w, t, choose(w->c, 2));
        if (first && rarely(w->c, 4)) type.rank = 0;
        if (first && type.rank && rarely(w->c, 4)) type.dims[axis_of(w, &type)] = 1;
        type.dtype = t;
    }
    return draw_source(w, &type);
}

static int draw_operands(drawing *w, ir_op op, ir_value **in)
{
    const ir_op_info *info = ir_op_get(op);
    int n = info->n_in + (info->variadic_in >= 0 ? choose(w->c, MAX_VARIADIC) : 0);
    for (int i = 0; i < n; i++) {
        const ir_slot *slot = ir_op_in_slot(op, i, n);
        in[i] = slot && (is_mandatory(slot) || choose(w->c, 2)) ? draw_operand(w, op, slot, in, i) : NULL;
    }
    return n;
}

/* ---- attributes ------------------------------------------------------------------------------------------------ */

static bool is_named(const ir_slot *slot, const char *name) { return strcmp(slot->name, name) == 0; }

/* Draws a shape for x with regrouped elements or one expanded dimension. */
static int draw_shape(drawing *w, ir_op op, const ir_type *x, int64_t *list)
{
    int n = 0;
    for (int i = 0; i < x->rank; i++) list[n++] = x->dims[i];
    if (op == IR_OP_expand) {
        for (int i = 0; i < n; i++)
            if (list[i] == 1) list[i] = draw_dim(w);
        return n;
    }
    if (op != IR_OP_reshape) {
        if (n && rarely(w->c, 3)) list[axis_of(w, x)] = draw_number(w);
        return n;
    }
    if (n > 1 && choose(w->c, 2)) {
        const int at = choose(w->c, n - 1);
        list[at] = ir_dim_mul(w->m->dims, list[at], list[at + 1]);
        for (n--; at + 1 < n;) {
            memmove(&list[at + 1], &list[at + 2], (size_t)(n - at - 1) * sizeof *list);
            break;
        }
    } else if (n < IR_MAX_RANK) {
        const int at = choose(w->c, n + 1);
        memmove(&list[at + 1], &list[at], (size_t)(n - at) * sizeof *list);
        list[at] = 1;
        n++;
    }
    return n;
}

static int draw_permutation(drawing *w, int n, int64_t *list)
{
    for (int i = 0; i < n; i++) {
        const int k = choose(w->c, i + 1);
        list[i] = list[k];
        list[k] = i;
    }
    return n;
}

static int draw_axes(drawing *w, const ir_type *x, int64_t *list)
{
    int n = 0;
    for (int i = 0; i < x->rank; i++)
        if (choose(w->c, 2)) list[n++] = i;
    return n;
}

/* Splits a dimension into parts; the last part is the remainder. */
static int draw_parts(drawing *w, int axis, const ir_type *x, int n, int64_t *list)
{
    ir_dim rest = axis >= 0 && axis < x->rank ? x->dims[axis] : 0;
    for (int i = 0; i < n; i++) {
        const bool last = i == n - 1;
        const ir_dim most = ir_dim_is_symbolic(rest) || rest < 0 ? 2 : rest;
        list[i] = last ? rest : most ? choose(w->c, (int)most + 1) : 0;
        rest = ir_dim_sub(w->m->dims, rest, list[i]);
    }
    return n;
}

/* Draws `n` small numbers, mostly `usual`. */
static int draw_small(drawing *w, int n, int64_t usual, int64_t *list)
{
    for (int i = 0; i < n; i++) list[i] = rarely(w->c, 4) ? choose(w->c, 8) / 2 - rarely(w->c, 8) : usual;
    return n;
}

static int draw_list(drawing *w, const ir_node *n, const ir_slot *slot, int64_t *list)
{
    const ir_type none = {0}, *x = ir_in(n, 0) ? &ir_in(n, 0)->type : &none;
    const int spatial = x->rank > 2 ? x->rank - 2 : 0;
    if (is_named(slot, "perm")) return draw_permutation(w, x->rank, list);
    if (is_named(slot, "axes")) return draw_axes(w, x, list);
    if (is_named(slot, "sizes")) return draw_parts(w, (int)n->attr[IR_ATTR(split, axis)].i, x, n->n_out, list);
    if (is_named(slot, "shape")) return draw_shape(w, n->op, x, list);
    if (is_named(slot, "kernel")) return draw_small(w, spatial, 2, list);
    if (is_named(slot, "strides") || is_named(slot, "dilations")) return draw_small(w, spatial, 1, list);
    if (is_named(slot, "pads")) return draw_small(w, 2 * spatial, 0, list);
    if (is_named(slot, "step")) return draw_small(w, x->rank, 1, list);
    if (is_named(slot, "before") || is_named(slot, "after") || is_named(slot, "start"))
        return draw_small(w, x->rank, 0, list);
    if (n->op == IR_OP_roi_align || n->op == IR_OP_roi_align_grad) { /* size */
        for (int i = 0; i < 2; i++)
            list[i] = n->op == IR_OP_roi_align || x->rank < 4 ? 1 + choose(w->c, 2) : x->dims[2 + i];
        return 2;
    }
    if (n->op == IR_OP_slice) { /* size */
        for (int i = 0; i < x->rank; i++) list[i] = choose(w->c, 2) ? x->dims[i] : choose(w->c, 3);
        return x->rank;
    }
    const int count = n->op == IR_OP_iota ? 1 : choose(w->c, 3);
    for (int i = 0; i < count; i++) list[i] = draw_dim(w);
    return count;
}

static void draw_fields(const drawing *w, ir_node *n, int i)
{
    static const int64_t whole[] = {0, -1, INT64_MAX};
    static const float reals[] = {0, -0.5f, 1e30f};
    const ir_field fields[] = {{.name = "i", .kind = 'i', .i = INT64_MIN},
                               {.name = "f=\n\"", .kind = 'f', .f = (double)0.1f},
                               {.name = "", .kind = 's', .s = "other\n"},
                               {.name = "I", .kind = 'I', .count = choose(w->c, 4), .ints = whole},
                               {.name = "F", .kind = 'F', .count = choose(w->c, 4), .floats = reals}};
    ir_set_fields(n, i, fields, choose(w->c, 6));
}

static void draw_attribute(drawing *w, ir_node *n, int i)
{
    static const double numbers[] = {0, 0.5, 1, 0.9, 1e-5, 2, -1, 1e30};
    static const int64_t integers_[] = {0, 1, -1, 2, 3, -2, 1, 100, INT64_MIN, INT64_MAX};
    const ir_slot *slot = &ir_op_get(n->op)->attr[i];
    int64_t list[MAX_LIST];
    /* Lists are always set, since empty ones are mostly invalid. */
    const bool has_length = slot->kind == IR_SLOT_INTS || slot->kind == IR_SLOT_DIMS;
    if (!has_length && choose(w->c, 2)) return;
    switch (slot->kind) {
    case IR_SLOT_INT: ir_set_int(n, i, is_named(slot, "axis") ? choose(w->c, 4) - 1 : CHOOSE(w->c, integers_)); return;
    case IR_SLOT_BOOL: ir_set_bool(n, i, choose(w->c, 2)); return;
    case IR_SLOT_FLOAT:
    case IR_SLOT_DOUBLE: ir_set_float(n, i, CHOOSE(w->c, numbers)); return;
    case IR_SLOT_DTYPE: ir_set_dtype(n, i, draw_dtype(w->c, is_named(slot, "type") ? IR_GROUP_I : IR_GROUP_U)); return;
    case IR_SLOT_STR: ir_set_str(n, i, "other"); return;
    case IR_SLOT_ONE_OF: {
        int count = 0;
        while (slot->words[count]) count++;
        ir_set_int(n, i, choose(w->c, count));
        return;
    }
    case IR_SLOT_FIELDS: draw_fields(w, n, i); return;
    default: ir_set_list(n, i, list, draw_list(w, n, slot, list));
    }
}

/* ---- nodes ----------------------------------------------------------------------------------------------------- */

static ir_node *draw_node(drawing *w, ir_op op)
{
    const ir_op_info *info = ir_op_get(op);
    ir_value *in[IR_MAX_RANK + MAX_VARIADIC] = {NULL};
    if (graph_is_opaque(op) || info->traits & IR_EFFECT) return NULL;
    const int n_in = draw_operands(w, op, in);
    const int n_out = info->variadic_out >= 0 ? info->n_out + choose(w->c, MAX_VARIADIC) : 0;
    ir_node *n = ir_new_array(&w->b, op, n_in, in, op == IR_OP_check_finite_and_unscale ? n_in : n_out);
    for (int i = 0; n && i < info->n_attr; i++) draw_attribute(w, n, i);
    if (!ir_done_all(&w->b, n)) return NULL;
    for (int i = 0; i < n->n_out; i++) keep(w, n->out[i]);
    return n;
}

static void draw_outputs(drawing *w)
{
    char name[16];
    const int count = 1 + choose(w->c, 3);
    for (int i = 0; i < count && w->n_pool; i++) {
        snprintf(name, sizeof name, "y%d", i);
        ir_output(&w->b, name, w->pool[w->n_pool - 1 - choose(w->c, w->n_pool) / 3]);
    }
}

static bool draw_graph(drawing *w)
{
    ir_type type = draw_type(w, CHOOSE(w->c, floats), false);
    draw_source(w, &type);
    const int count = 1 + choose(w->c, MAX_NODES);
    for (int i = 0; i < count; i++) draw_node(w, (ir_op)choose(w->c, IR_OP_COUNT));
    draw_outputs(w);
    return true;
}

static bool draw_one(drawing *w, ir_op op)
{
    char name[16];
    const ir_node *n = draw_node(w, op);
    for (int i = 0; n && i < n->n_out; i++) {
        snprintf(name, sizeof name, "y%d", i);
        if (n->out[i]->type.dtype != IR_NO_DTYPE) ir_output(&w->b, name, n->out[i]);
    }
    return n;
}

/* Draws a graph of one op, or a whole graph for IR_OP_COUNT. */
static ir_module *draw(choices *c, ir_op op)
{
    ir_module *m = ir_module_new();
    diag *d = diag_new(NULL, NULL);
    jmp_buf guard;
    volatile bool good = false;
    if (m && d && !setjmp(guard)) {
        arena_set_guard(m->arena, &guard);
        drawing w = {.c = c, .m = m, .g = ir_graph_new(m, "forward"), .empty = op != IR_OP_COUNT};
        w.g->role = IR_GRAPH_forward;
        w.b = ir_builder_at_end(w.g, d);
        good = op == IR_OP_COUNT ? draw_graph(&w) : draw_one(&w, op);
        ir_module_remove_dead(m);
        ir_graph_renumber(w.g);
    }
    if (m) arena_set_guard(m->arena, NULL);
    diag_free(d);
    if (good) return m;
    ir_module_free(m);
    return NULL;
}

ir_module *graph_draw(choices *c) { return draw(c, IR_OP_COUNT); }

ir_module *graph_draw_empty(choices *c, ir_op op) { return draw(c, op); }
