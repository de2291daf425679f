/* batch.c - makes a batch that an export has fixed symbolic.
 *
 * The first dimension of the inputs becomes a symbol, and inference carries it through the graph. A Reshape names the
 * batch as a number. Samples are contiguous in an operand whose first dimension alone depends on the batch; a first
 * dimension of the result with the same number of elements in every sample therefore is the batch, too. The same
 * holds if another dimension is -1, because a reshape of contiguous samples to so many rows keeps each in its rows.
 *
 * Whether the other nodes allow it is checked when the graph is complete: no node may lose the batch or compute along
 * it, and every node is inferred with two other sizes. */
#include "frontend/lower/lower.h"
#include "ir/graph/exported.h"

#include <string.h>

/* The first dimension of the first input that is a tensor; 0: not a number. */
static int64_t fixed_batch(const onnx_scope *scope)
{
    const Onnx__GraphProto *g = scope->graph;
    for (size_t i = 0; i < g->n_input; i++) {
        const Onnx__TypeProto__Tensor *t = onnx_tensor_type(g->input[i]);
        if (strmap_get(scope->bindings, g->input[i]->name) || !t || !t->shape || !t->shape->n_dim) continue;
        const Onnx__TensorShapeProto__Dimension *d = t->shape->dim[0];
        const bool number = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        return number && d->dim_value > 0 ? d->dim_value : 0;
    }
    return 0;
}

static bool is_declared_symbol(const Onnx__GraphProto *g, const char *name)
{
    for (size_t i = 0; i < g->n_input; i++) {
        const Onnx__TypeProto__Tensor *t = onnx_tensor_type(g->input[i]);
        for (size_t k = 0; t && t->shape && k < t->shape->n_dim; k++)
            if (t->shape->dim[k]->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM &&
                strcmp(t->shape->dim[k]->dim_param, name) == 0)
                return true;
    }
    return false;
}

void onnx_batch_find(onnx_importer *im, const onnx_scope *scope)
{
    onnx_batch *b = &im->batch;
    const char *name = "batch";
    *b = (onnx_batch){.symbol = IR_DIM_NONE, .size = fixed_batch(scope), .nodes = strmap_new(im->scratch)};
    if (!b->size) return;
    if (!im->options->batch || im->options->batch == b->size) {
        im->module->training.exported.batch = (int64_t)b->size;
        return;
    }
    while (is_declared_symbol(scope->graph, name)) name = arena_printf(im->scratch, "%s_", name);
    b->symbol = ir_dim_symbol(im->module->dims, name);
}

void onnx_batch_input(const onnx_importer *im, ir_type *type)
{
    const onnx_batch *b = &im->batch;
    if (b->symbol != IR_DIM_NONE && type->rank && type->dims[0] == b->size) type->dims[0] = b->symbol;
}

/* ---- Reshape ------------------------------------------------------------------------------------- */

/* The size without the batch if it is the batch times a number; 0 otherwise. */
static int64_t per_sample(const onnx_importer *im, ir_dim d)
{
    const ir_dim each = ir_dim_is_symbolic(d) ? ir_dim_div(im->module->dims, d, im->batch.symbol) : IR_DIM_NONE;
    return each == IR_DIM_NONE || ir_dim_is_symbolic(each) || each < 1 ? 0 : each;
}

static bool any_symbolic(const ir_dim *dims, int rank)
{
    for (int i = 0; i < rank; i++)
        if (ir_dim_is_symbolic(dims[i])) return true;
    return false;
}

void onnx_batch_reshape(onnx_node *n, ir_dim *dims, int rank, int unknown)
{
    onnx_importer *im = n->importer;
    const onnx_batch *b = &im->batch;
    const ir_type *x = &n->in[0]->type;
    if (b->symbol == IR_DIM_NONE || !rank || !x->rank || unknown == 0 || ir_dim_is_symbolic(dims[0])) return;
    const int64_t rows = per_sample(im, x->dims[0]);
    if (!rows || any_symbolic(x->dims + 1, x->rank - 1) || any_symbolic(dims + 1, rank - 1)) return;
    const int64_t to = dims[0] % b->size == 0 ? dims[0] / b->size : 0;
    int64_t elements = rows, rest = to;
    for (int i = 1; i < x->rank; i++)
        if (!checked_mul(elements, x->dims[i], &elements)) return;
    for (int i = 1; i < rank; i++)
        if (i != unknown && !checked_mul(rest, dims[i], &rest)) return;
    if (rest < 1 || (unknown < 0 ? rest != elements : elements % rest != 0)) return;
    dims[0] = ir_dim_mul(n->dims, ir_dim_number(to), b->symbol);
    if (strmap_enter(b->nodes, im->builder.loc.node, im)) im->batch.reshaped++;
}

/* ---- other operators ----------------------------------------------------------------------------- */

ir_dim onnx_batch_size(const onnx_importer *im, ir_dim from, ir_dim to)
{
    const int64_t each = im->batch.symbol == IR_DIM_NONE ? 0 : per_sample(im, from);
    int64_t fixed;
    return each && checked_mul(each, im->batch.size, &fixed) && to == fixed ? from : to;
}

ir_value **onnx_batch_operands(onnx_node *n, int axis)
{
    const onnx_batch *b = &n->importer->batch;
    ir_value **in = arena_array(n->importer->scratch, (size_t)n->n_in + 1, sizeof(ir_value *));
    bool repeats = false;
    for (int i = 0; i < n->n_in; i++) {
        in[i] = n->in[i];
        repeats |= b->symbol != IR_DIM_NONE && b->size == 1 && axis && in[i]->type.dims[0] == b->symbol;
    }
    for (int i = 0; i < n->n_in && repeats; i++) {
        ir_type t = in[i]->type;
        if (t.dims[0] != 1) continue;
        t.dims[0] = b->symbol;
        in[i] = ir_expand(n->b, in[i], t.dims, t.rank);
    }
    return in;
}

/* ---- the check ----------------------------------------------------------------------------------- */

typedef struct checker {
    const onnx_importer *im;
    int64_t *sizes; /* -1: the batch */
    int problems;
} checker;

static bool depends_on_batch(const checker *c, ir_dim d)
{
    int64_t size;
    return !ir_dim_eval(c->im->module->dims, d, c->sizes, &size, NULL);
}

static bool has_batch(const checker *c, const ir_value *v)
{
    bool found = false;
    for (int i = 0; v && i < v->type.rank; i++) found |= depends_on_batch(c, v->type.dims[i]);
    return found;
}

/* Whether a result depends on all samples without being a single number, such as a loss. */
static bool loses_batch(const checker *c, const ir_node *n)
{
    bool had = false, has = n->n_out == 0, single = true;
    for (int i = 0; i < n->n_in; i++) had |= has_batch(c, ir_in(n, i));
    for (int i = 0; i < n->n_out; i++) {
        has |= has_batch(c, n->out[i]);
        for (int k = 0; k < n->out[i]->type.rank; k++) single &= n->out[i]->type.dims[k] == 1;
    }
    return had && !has && !single;
}

static bool is_batch_axis(const checker *c, const ir_value *x, int64_t axis)
{
    if (axis < 0) axis += x->type.rank;
    return axis >= 0 && axis < x->type.rank && depends_on_batch(c, x->type.dims[axis]);
}

/* Whether the attribute makes the node compute along the batch: the attribute is an axis, or marks an op over the first
 * dimension, which is the time of a recurrent network; the iterations of a scan leave results that no sample has. */
static bool is_along_batch(const checker *c, const ir_node *n, const char *slot, const ir_attr *attribute)
{
    const ir_value *x = ir_in(n, 0);
    bool along = false;
    if (strcmp(slot, "axis") == 0) return is_batch_axis(c, x, attribute->i);
    if (strcmp(slot, "cell") == 0) return is_batch_axis(c, x, 0);
    for (int i = 0; strcmp(slot, "axes") == 0 && i < attribute->list.count; i++)
        along |= is_batch_axis(c, x, attribute->list.items[i]);
    for (int i = 0; strcmp(slot, "scanned") == 0 && attribute->i && i < n->n_out; i++)
        along |= !has_batch(c, n->out[i]);
    return along;
}

static bool mixes_samples(const checker *c, const ir_node *n)
{
    const ir_op_info *info = ir_op_get(n->op);
    bool operands = false, results = n->n_out == 0, mixes = false;
    for (int i = 0; i < n->n_in; i++) operands |= has_batch(c, ir_in(n, i));
    for (int i = 0; i < n->n_out; i++) results |= has_batch(c, n->out[i]);
    for (int i = 0; operands && results && ir_in(n, 0) && i < info->n_attr; i++)
        mixes |= is_along_batch(c, n, info->attr[i].name, &n->attr[i]);
    return mixes;
}

static void check_node(checker *c, const ir_node *n)
{
    const onnx_importer *im = c->im;
    const bool loses = loses_batch(c, n);
    if (!loses && !mixes_samples(c, n)) return;
    c->problems++;
    diag_error(im->diag, AMPC_UNSUPPORTED, ir_diag_loc(n), "the result '%s', %s, %s", n->out[0]->name,
               ir_type_print(im->module, &n->out[0]->type, im->scratch),
               loses ? "has no batch" : "is computed along the batch");
}

static ampc_status check_nodes(const onnx_importer *im)
{
    const size_t n = ir_dim_symbol_count(im->module->dims);
    size_t symbol;
    checker c = {im, arena_array(im->scratch, n + 1, sizeof *c.sizes), 0};
    ir_dim_is_symbol(im->module->dims, im->batch.symbol, &symbol);
    for (size_t i = 0; i < n; i++) c.sizes[i] = i == symbol ? -1 : 1;
    for (const ir_node *node = im->graph->first; node && !c.problems; node = node->next) check_node(&c, node);
    return c.problems ? diag_status(im->diag) : AMPC_OK;
}

/* Two sizes, so that no coincidence hides a number that should be the batch. */
static ampc_status check_sizes(const onnx_importer *im)
{
    const size_t n = ir_dim_symbol_count(im->module->dims);
    int64_t *sizes = arena_array(im->scratch, n + 1, sizeof *sizes);
    ampc_status status = AMPC_OK;
    if (n != 1) return AMPC_OK; /* other symbols have sizes that only a run knows */
    for (int k = 2; k <= 3 && status == AMPC_OK; k++) {
        sizes[0] = k * im->batch.size + 1;
        ir_binding *binding = ir_binding_new(im->graph, sizes);
        if (!binding) return diag_error(im->diag, AMPC_NO_MEMORY, DIAG_FILE(im->path), "out of memory");
        for (const ir_node *node = im->graph->first; node && status == AMPC_OK; node = node->next)
            status = ir_binding_check(binding, node, im->diag);
        ir_binding_free(binding);
    }
    return status;
}

/* The table of names is not ordered, so they are listed as the nodes of the graph are. */
static const char *reshaped_names(const onnx_importer *im)
{
    enum { SHOWN = 4 };
    const char *text = "", *last = NULL;
    int count = 0;
    for (const ir_node *n = im->graph->first; n && count < SHOWN; n = n->next) {
        if (!n->loc.node || n->loc.node == last || !strmap_get(im->batch.nodes, n->loc.node)) continue;
        last = n->loc.node;
        text = arena_printf(im->scratch, "%s%s%s", text, count++ ? ", " : "", last);
    }
    if (im->batch.reshaped > count)
        text = arena_printf(im->scratch, "%s and %d more", text, im->batch.reshaped - count);
    return text;
}

ampc_status onnx_batch_check(onnx_importer *im, bool lowered)
{
    const onnx_batch *b = &im->batch;
    const diag_loc loc = DIAG_FILE(im->path);
    const ir_exporter_info *exporter = ir_exporter_get(im->module);
    if (b->symbol == IR_DIM_NONE) return AMPC_OK;
    ampc_status status = lowered ? check_nodes(im) : diag_status(im->diag);
    if (status == AMPC_OK) status = check_sizes(im);
    if (status != AMPC_OK) {
        diag_note(im->diag, loc,
                  "the export fixed the batch at %lld, and the node above needs that number; leave out %s, or export "
                  "again with %s",
                  (long long)b->size, diag_option_name(im->diag, OPTION_batch), exporter->batch);
        return status;
    }
    const char *symbol = ir_dim_print(im->module->dims, b->symbol, im->scratch);
    if (!b->reshaped)
        diag_note(im->diag, loc, "the batch, %lld in the file, is the symbol %s", (long long)b->size, symbol);
    else
        diag_note(im->diag, loc, "the batch, %lld in the file, is the symbol %s, also in %d Reshape node%s: %s",
                  (long long)b->size, symbol, b->reshaped, b->reshaped == 1 ? "" : "s", reshaped_names(im));
    return AMPC_OK;
}
