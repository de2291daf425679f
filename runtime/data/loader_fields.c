/* loader_fields.c - opens data that follow the model, by the field that each input of an entry graph needs. */
#include "runtime/backend/memory.h"
#include "runtime/data/loader.h"
#include "runtime/data/sizing.h"

#include <stdlib.h>

static int64_t smaller_bound(int64_t a, int64_t b)
{
    if (!a || !b) return a ? a : b;
    return a < b ? a : b;
}

/* The size of what the operand indexes; 0: it indexes nothing, or the size is not known. */
static int64_t indexed_size(const ir_use *use)
{
    const ir_node *n = use->user;
    const ir_slot *slot = ir_op_in_slot(n->op, use->index, n->n_in);
    const ir_indexed indexed = slot->indexed;
    const int classes = slot->label ? ir_op_find_attr(n->op, "classes") : -1;
    if (classes >= 0 && n->attr[classes].i) return n->attr[classes].i;
    const ir_type *t = &ir_in(n, 0)->type, *indices = &use->value->type;
    if (indexed == IR_INDEXED_NONE) return 0;
    const int64_t tuple = indexed == IR_INDEXED_TUPLE ? indices->dims[indices->rank - 1] : 1;
    int64_t axis = indexed == IR_INDEXED_FIRST ? 0 : indexed == IR_INDEXED_SECOND ? 1 : n->attr[0].i, size = 0;
    if (axis < 0) axis += t->rank;
    for (int64_t k = axis; k < axis + tuple && k < t->rank; k++)
        if (!ir_dim_is_symbolic(t->dims[k])) size = smaller_bound(size, t->dims[k]);
    return size;
}

/* One more than the largest index that integer v may contain: the size of the smallest table that it or an integer
 * computed from it indexes, or the number of classes if it is the label of the loss. 0: it indexes nothing. `depth`
 * limits the search, which visits shared values once per path. */
enum { MAX_SEARCH_DEPTH = 6 };
static int64_t bound_below(const ir_value *v, int depth)
{
    int64_t bound = 0;
    for (const ir_use *u = v->first_use; u; u = u->next) {
        bound = smaller_bound(bound, indexed_size(u));
        for (int i = 0; depth && i < u->user->n_out; i++)
            if (ir_dtype_is_int(u->user->out[i]->type.dtype))
                bound = smaller_bound(bound, bound_below(u->user->out[i], depth - 1));
    }
    return bound;
}

/* Whether v is the input or a view, part or conversion of it. */
static bool comes_from(const ir_value *v, const ir_value *input)
{
    while (v && v->kind == IR_VALUE_RESULT && v->def->n_in > 0) v = ir_in(v->def, 0);
    return v && v == input;
}

int64_t rt_loader_ignored_label(const ir_graph *g)
{
    const ir_value *input = ir_input_by_role(g, IR_INPUT_label);
    for (const ir_node *n = g->first; n; n = n->next) {
        const ir_value *label = ir_label(n);
        if (label && (!input || comes_from(label, input))) return n->attr[ir_op_find_attr(n->op, "ignore_index")].i;
    }
    return INT64_MIN;
}

/* Sets the dimensions of one sample: those of the input, with the sample axis replaced by the number of rows per
 * sample, or left out if that is 1. */
static void describe_sample(const rt_sizing *z, const ir_value *v, int axis, rt_field *f)
{
    int64_t dims[IR_MAX_RANK];
    *f = (rt_field){.name = v->name, .dtype = v->type.dtype, .whole = axis < 0};
    f->label = v == ir_input_by_role(z->graph, IR_INPUT_label);
    f->ignored = f->label ? rt_loader_ignored_label(z->graph) : INT64_MIN;
    if (ir_dtype_is_int(v->type.dtype)) f->bound = bound_below(v, MAX_SEARCH_DEPTH);
    if (!rt_sizing_shape(z, v, dims)) return;
    for (int k = 0; k < v->type.rank; k++) {
        if (k == axis) dims[k] = z->batch > 0 && dims[k] % z->batch == 0 ? dims[k] / z->batch : 1;
        if (k != axis || dims[k] != 1) f->dims[f->rank++] = dims[k];
    }
}

ampc_status rt_loader_fields(const ir_graph *g, const int64_t *sizes, diag *d, rt_field **fields, size_t *n)
{
    rt_sizing z = {0};
    rt_field *all = calloc(g->inputs.count + 1, sizeof *all);
    int *axes = calloc(g->inputs.count + 1, sizeof *axes);
    ampc_status status = all && axes ? rt_sizing_open_smallest(&z, g, sizes, d) : rt_no_memory(d);
    if (status == AMPC_OK) {
        for (size_t i = 0; i < g->inputs.count; i++) axes[i] = rt_sizing_axis(&z, g->inputs.items[i]);
        rt_sizing_set_unbound(&z);
        for (size_t i = 0; i < g->inputs.count; i++) describe_sample(&z, g->inputs.items[i], axes[i], &all[i]);
    }
    rt_sizing_close(&z);
    free(axes);
    *n = g->inputs.count;
    if (status == AMPC_OK) *fields = all;
    else free(all);
    return status;
}

/* ---- data for a graph ---- */

ampc_status rt_loader_keep_codes(rt_session *s, const rt_dataset *data, diag *d)
{
    char *codes = rt_codebook_print(rt_dataset_codes(data));
    ampc_status status = codes ? rt_session_set_codes(s, codes, d) : rt_no_memory(d);
    free(codes);
    return status;
}

ampc_status rt_loader_open_data(rt_session *s, const ir_graph *g, const char *spec, rt_split split, uint64_t seed,
                                diag *d, rt_dataset **out)
{
    rt_field *fields = NULL;
    const bool trains = g && g->role == IR_GRAPH_train_step;
    rt_dataset_options o = {.split = split, .seed = seed, .codes = trains ? NULL : rt_session_codes(s)};
    if (g) TRY(rt_loader_fields(g, rt_session_sizes(s), d, &fields, &o.n_fields));
    o.fields = fields;
    ampc_status status = rt_dataset_open(spec, &o, d, out);
    if (status == AMPC_OK && trains) {
        status = rt_loader_keep_codes(s, *out, d);
        if (status != AMPC_OK) rt_dataset_close(*out);
        if (status != AMPC_OK) *out = NULL;
    }
    free(fields);
    return status;
}
