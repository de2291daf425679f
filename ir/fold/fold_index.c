/* fold_index.c - known elements selected or replaced by index; counterpart of kernels/places.h. */
#include "ir/fold/fold.h"

#include <string.h>

/* The elements of `data` that item i of the indices addresses: `inner` consecutive ones. */
typedef struct fold_places {
    const ir_const_value *indices;
    fold_view base; /* of the items, along the indices' axes */
    ir_type items;
    int depth;
    int64_t size[IR_MAX_RANK], stride[IR_MAX_RANK], inner, count;
} fold_places;

static fold_places places_of(const fold_state *f)
{
    const ir_type *data = &f->in[0]->type;
    const ir_const_value *indices = f->in[1];
    const bool elements = f->node->op == IR_OP_gather_elements || f->node->op == IR_OP_scatter_elements;
    const int64_t first = f->node->attr[0].i; /* axis or batch */
    const fold_view dense = fold_view_dense(data);
    fold_places p = {.indices = indices, .items = indices->type, .depth = 1, .inner = 1, .count = 1};
    int at = (int)(first < 0 ? first + data->rank : first);
    if (!elements) p.depth = (int)p.items.dims[--p.items.rank];
    for (int k = 0; k < p.depth; k++) {
        p.size[k] = data->dims[at + k];
        p.stride[k] = dense.stride[at + k];
    }
    for (int i = at + p.depth; !elements && i < data->rank; i++) p.inner *= data->dims[i];
    for (int i = 0; i < p.items.rank; i++) {
        p.base.stride[i] = elements ? (i == at ? 0 : dense.stride[i]) : i < at ? dense.stride[i] : 0;
        p.count *= p.items.dims[i];
    }
    return p;
}

/* The first element that item i addresses, or -1 if an index is out of range or symbolic. */
static int64_t place_of(const fold_places *p, int64_t i)
{
    int64_t at = fold_view_at(&p->base, &p->items, i);
    for (int k = 0; k < p->depth; k++) {
        int64_t index = p->indices->ints[i * p->depth + k];
        if (index < 0 && index >= -p->size[k]) index += p->size[k];
        if (index < 0 || index >= p->size[k]) return -1;
        at += index * p->stride[k];
    }
    return at;
}

bool fold_gather_at(const fold_state *f)
{
    const fold_places p = places_of(f);
    for (int64_t i = 0; i < p.count; i++) {
        const int64_t from = place_of(&p, i);
        if (from < 0) return false;
        for (int64_t k = 0; k < p.inner; k++) fold_copy(&f->out[0], i * p.inner + k, f->in[0], from + k);
    }
    return true;
}

/* ---- scatters -------------------------------------------------------------------------------- */

/* IR_FORMULA_none replaces. */
static ir_formula reduction_of(const ir_node *n)
{
    static const ir_formula formulas[] = {[IR_WORD(scatter, none)] = IR_FORMULA_none,
                                          [IR_WORD(scatter, add)] = IR_FORMULA_add,
                                          [IR_WORD(scatter, mul)] = IR_FORMULA_mul,
                                          [IR_WORD(scatter, max)] = IR_FORMULA_max,
                                          [IR_WORD(scatter, min)] = IR_FORMULA_min};
    return formulas[n->attr[IR_ATTR(scatter_nd, reduction)].i];
}

/* Reduces one update into element `to`; false if the result is not known. Sums are rounded like a kernel's. */
static bool update(const fold_state *f, ir_formula formula, int64_t to, int64_t from)
{
    const cells *y = &f->out[0];
    const ir_const_value *updates = f->in[IR_IN(scatter_nd, updates)];
    if (formula == IR_FORMULA_none) {
        fold_copy(y, to, updates, from);
    } else if (y->floats) {
        const double v = fold_float(formula, y->floats[to], updates->floats[from]);
        y->floats[to] = y->type.dtype == IR_f64 ? v : fold_round(IR_f32, v);
    } else {
        y->ints[to] = fold_wrap(y->type.dtype, fold_integer(f, formula, y->ints[to], updates->ints[from]));
        return y->ints[to] != IR_DIM_NONE;
    }
    return true;
}

bool fold_scatter_at(const fold_state *f)
{
    const fold_places p = places_of(f);
    const ir_formula formula = reduction_of(f->node);
    const cells *y = &f->out[0];
    for (int64_t i = 0; i < y->count; i++) fold_copy(y, i, f->in[0], i);
    for (int64_t i = 0; i < p.count; i++) {
        const int64_t to = place_of(&p, i);
        if (to < 0) return false;
        for (int64_t k = 0; k < p.inner; k++)
            if (!update(f, formula, to + k, i * p.inner + k)) return false;
    }
    for (int64_t i = 0; y->floats && i < y->count; i++) y->floats[i] = fold_round(y->type.dtype, y->floats[i]);
    return true;
}

/* ---- bits ------------------------------------------------------------------------------------ */

bool fold_bit_cast(const fold_state *f)
{
    const ir_const_value *x = f->in[0];
    const ir_dtype to = f->out[0].type.dtype;
    for (int64_t i = 0; i < x->count; i++) {
        unsigned char bytes[8];
        if (x->ints && ir_dim_is_symbolic(x->ints[i])) return false;
        if (x->floats) ir_store_f64(x->type.dtype, bytes, x->floats[i]);
        else ir_store_i64(x->type.dtype, bytes, x->ints[i]);
        if (ir_dtype_is_float(to)) f->out[0].floats[i] = ir_load_f64(to, bytes);
        else f->out[0].ints[i] = ir_dim_number(ir_load_i64(to, bytes));
    }
    return true;
}
