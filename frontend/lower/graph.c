/* graph.c - the pass over the nodes of a graph or subgraph.
 *
 * Each node is lowered to IR nodes, whose types are inferred and whose values are folded immediately, because the
 * next node may need a shape that they compute. */
#include "frontend/lower/lower.h"
#include "ir/graph/parts.h"

#include <string.h>

enum { FOLD_LIMIT = 1 << 18 }; /* elements of a folded value */

static bool read_operands(onnx_node *n, onnx_scope *scope)
{
    const Onnx__NodeProto *p = n->proto;
    const onnx_arity a = onnx_arity_of(n);
    if (n->n_in < a.required)
        onnx_reject(n, "has %d inputs, not %d%s", n->n_in, a.required, a.max == a.required ? "" : " or more");
    if (n->n_in > a.max)
        onnx_reject(n, "has %d inputs, not %d%s", n->n_in, a.max, a.max == a.required ? "" : " at most");
    if (n->n_out < 1 || n->n_out > a.results) onnx_reject(n, "has %d outputs", n->n_out);
    for (int i = 0; i < n->n_in && !n->failed; i++) {
        bool absent = !*p->input[i];
        const bool optional = i >= a.required ? i < a.single : onnx_is_optional(n, i);
        if (absent && !optional) onnx_reject(n, "input %d is missing", i);
        const onnx_item item = absent ? (onnx_item){0} : onnx_item_of(n->importer, scope, p->input[i]);
        n->in[i] = item.value;
        n->in_sequence[i] = item.sequence;
        if (item.sequence && !n->row->sequences)
            onnx_refuse(n, "input %d ('%s') is a sequence or optional, not a tensor", i, p->input[i]);
        if (!absent && !item.value && !item.sequence) return false; /* reported by the node that failed */
    }
    return !n->failed;
}

static void check_sizes(onnx_node *n, const ir_node *node)
{
    for (int i = 0; i < node->n_out && !n->failed; i++) {
        const ir_type *t = &node->out[i]->type;
        if (t->dtype == IR_NO_DTYPE) continue;
        ir_dim count = ir_type_count(n->dims, t);
        int64_t bytes = 0;
        if (ir_dim_is_symbolic(count)) continue;
        if (count == IR_DIM_NONE || !checked_mul(count, (int64_t)ir_dtype_size(t->dtype), &bytes) ||
            bytes > n->importer->max_bytes)
            onnx_reject(n, "the result %s is too large%s", ir_type_print(n->importer->module, t, n->importer->scratch),
                        count == IR_DIM_NONE ? " or too complex" : "");
    }
}

/* Checks and folds the IR nodes that the handler created. */
static void finish_nodes(onnx_node *n, const ir_node *before)
{
    onnx_importer *im = n->importer;
    for (const ir_node *node = before ? before->next : im->graph->first; node; node = node->next) {
        check_sizes(n, node);
        if (!n->failed) ir_fold(im->consts, node, FOLD_LIMIT);
    }
}

static bool is_operand(const onnx_node *n, const ir_value *v)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] == v) return true;
    return false;
}

/* A node without effect (Identity, a Reshape to the same shape, Dropout outside training) stays in the graph as a
 * view, so that mixed precision sees the model as written; the cleanup passes remove it. */
static void keep_identity(onnx_node *n)
{
    for (int i = 0; i < n->n_out && !n->failed; i++) {
        ir_value *v = n->out[i];
        if (!onnx_result_is_used(n, i) || !v || v->kind == IR_VALUE_STORAGE || !ir_dtype_is_float(v->type.dtype) ||
            !is_operand(n, v))
            continue;
        ir_node *view = ir_new(n->b, IR_OP_reshape, 1, v);
        ir_set_list(view, IR_ATTR(reshape, shape), v->type.dims, v->type.rank);
        n->out[i] = ir_done(n->b, view);
        n->failed |= !n->out[i];
    }
}

static void rename_result(onnx_node *n, int i)
{
    const char *path = n->scope->path, *name = n->proto->output[i];
    ir_value_rename(n->out[i], path ? arena_printf(n->importer->scratch, "%s%s", path, name) : name);
}

static void bind_results(onnx_node *n, onnx_scope *scope, uint32_t first_id)
{
    for (int i = n->n_out; i-- > 0;) { /* of several names of a value, the first one remains */
        const onnx_item item = n->failed ? (onnx_item){0} : (onnx_item){n->out[i], n->out_sequence[i]};
        const ir_value *v = item.value;
        if (!onnx_result_is_used(n, i)) continue;
        if (v && v->kind == IR_VALUE_RESULT && v->def->id >= first_id) rename_result(n, i);
        onnx_bind(n->importer, scope, n->proto->output[i], item);
    }
}

static void run_handler(onnx_node *n)
{
    size_t errors = diag_count(n->importer->diag, DIAG_ERROR);
    n->row->lower(n);
    if (n->row != n->importer->opaque) onnx_check_attributes(n);
    for (int i = 0; i < n->n_out && !n->failed; i++) {
        bool missing = onnx_result_is_used(n, i) && !n->out[i] && !n->out_sequence[i];
        if (missing && diag_count(n->importer->diag, DIAG_ERROR) == errors)
            onnx_refuse(n, "output %d is not supported", i);
        n->failed |= missing;
    }
}

void onnx_remove_after(onnx_importer *im, const ir_node *before)
{
    ir_graph *g = im->graph;
    while (g->last != before) ir_node_remove(g->last);
}

static void undo(onnx_node *n, const ir_node *before)
{
    onnx_remove_after(n->importer, before);
    memset(n->out, 0, (size_t)n->n_out * sizeof *n->out);
    memset(n->out_sequence, 0, (size_t)n->n_out * sizeof *n->out_sequence);
    memset(n->attr_read, 0, n->proto->n_attribute * sizeof *n->attr_read);
    n->failed = false;
}

/* A node may only seem malformed because sizes are unknown until run time. */
static bool reads_symbols(const onnx_node *n)
{
    bool symbolic = false;
    for (int i = 0; i < n->n_in; i++) symbolic |= n->in[i] && !ir_type_is_static(&n->in[i]->type);
    return symbolic;
}

void onnx_keep_opaque(onnx_node *n)
{
    n->row = n->importer->opaque;
    n->row->lower(n);
}

/* An opaque node has only tensors. */
static bool reads_sequences(const onnx_node *n)
{
    bool any = false;
    for (int i = 0; i < n->n_in; i++) any |= n->in_sequence[i] != NULL;
    return any;
}

/* If opaque nodes are allowed, a trial run with discarded messages finds out whether the node can be lowered. During
 * the trial of an If with a known condition, the nodes of its branch are not tried separately: either all of them are
 * lowered or the If becomes opaque. The nodes of a function are tried one by one. */
static void lower_or_make_opaque(onnx_node *n, ir_node *before)
{
    onnx_importer *im = n->importer;
    diag *outer = im->diag, *trial = im->trial;
    if (outer == trial || n->row == im->opaque || n->row == im->function) {
        run_handler(n);
        return;
    }
    diag_clear(trial);
    im->diag = im->builder.diag = trial;
    run_handler(n);
    im->diag = im->builder.diag = outer;
    bool has_messages = n->failed || diag_count(trial, DIAG_WARNING) || diag_count(trial, DIAG_REMARK);
    if (!has_messages) return;
    bool unsupported = diag_status(trial) == AMPC_UNSUPPORTED || reads_symbols(n);
    if (n->failed && unsupported && !reads_sequences(n)) n->row = im->opaque;
    undo(n, before);
    run_handler(n);
}

/* ---- composite operators --------------------------------------------------------------------- */

static bool is_folded(const onnx_node *n)
{
    for (int i = 0; i < n->n_out; i++)
        if (onnx_result_is_used(n, i) && !ir_const_get(n->importer->consts, n->out[i])) return false;
    return true;
}

/* Whether the nodes of a lowered operator are replaced by one opaque node. The op of its row, alone, is written back as
 * it is. */
static bool stays_whole(const onnx_node *n, const ir_node *before)
{
    const ir_graph *g = n->importer->graph;
    const ir_node *first = before ? before->next : g->first;
    if (n->failed || n->in_parts || !n->row->composite || !n->importer->composites || !first) return false;
    if (n->row->domain) return !is_folded(n);
    if (first == g->last && (int)first->op == n->arg) return false;
    return strmap_get(n->importer->composites, n->row->op) && !is_folded(n);
}

/* Lowering has found the types of the results. */
static void make_whole(onnx_node *n, const ir_node *before)
{
    n->types = arena_array(n->importer->scratch, (size_t)n->n_out + 1, sizeof *n->types);
    for (int i = 0; i < n->n_out; i++)
        if (onnx_result_is_used(n, i)) n->types[i] = n->out[i]->type;
    undo(n, before);
    n->row = n->importer->opaque;
    run_handler(n);
}

/* ---- the nodes -------------------------------------------------------------------------------- */

/* What copies of a body compute at compile time counts like nodes, because it needs memory. */
static void charge_folding(onnx_node *n, const ir_node *before)
{
    enum { ELEMENTS_PER_NODE = 256 };
    const ir_node *node = before ? before->next : n->importer->graph->first;
    int64_t elements = 0;
    for (; node; node = node->next)
        for (int i = 0; i < node->n_out; i++) {
            const ir_const_value *c = ir_const_get(n->importer->consts, node->out[i]);
            elements += c ? c->count : 0;
        }
    onnx_charge(n, elements / ELEMENTS_PER_NODE);
}

static bool lower_node(onnx_importer *im, onnx_scope *scope, size_t index)
{
    const bool of_file = scope->graph == im->file->model->graph;
    const Onnx__NodeProto *p = onnx_resolve(im, scope, of_file ? onnx_ties_node(im, index) : scope->graph->node[index]);
    const onnx_row *row = onnx_find_row(im, p);
    onnx_node n = {.importer = im,
                   .b = &im->builder,
                   .dims = im->module->dims,
                   .scope = scope,
                   .proto = p,
                   .row = row ? row : im->opaque,
                   .index = index,
                   .opset = im->opset,
                   .n_in = (int)p->n_input,
                   .n_out = (int)p->n_output};
    n.arg = n.row->arg;
    n.letters = n.row->letters;
    while (n.n_in && !*p->input[n.n_in - 1]) n.n_in--;
    while (n.n_out && !*p->output[n.n_out - 1]) n.n_out--;
    n.in = arena_array(im->scratch, (size_t)n.n_in + 1, sizeof *n.in);
    n.out = arena_array(im->scratch, (size_t)n.n_out + 1, sizeof *n.out);
    n.in_sequence = arena_array(im->scratch, (size_t)n.n_in + 1, sizeof *n.in_sequence);
    n.out_sequence = arena_array(im->scratch, (size_t)n.n_out + 1, sizeof *n.out_sequence);
    n.attr_read = arena_array(im->scratch, p->n_attribute + 1, sizeof *n.attr_read);
    im->builder.loc = (ir_loc){.file = im->path,
                               .op = arena_intern(im->arena, p->op_type),
                               .node = onnx_node_name(im, scope, p, im->node_index++)};

    ir_node *before = im->graph->last;
    uint32_t first_id = im->graph->node_ids;
    onnx_check_attribute_names(&n);
    bool ready = read_operands(&n, scope);
    if (ready && im->trial) lower_or_make_opaque(&n, before);
    else if (ready) run_handler(&n);
    if (ready) keep_identity(&n);
    if (ready) finish_nodes(&n, before);
    if (ready && scope->path) charge_folding(&n, before);
    if (ready && stays_whole(&n, before)) make_whole(&n, before);
    n.failed |= !ready;
    bind_results(&n, scope, first_id);
    ir_node *made = before ? before->next : im->graph->first;
    for (; made; made = made->next) ir_name_results(made);
    return !n.failed;
}

bool onnx_lower_graph(onnx_importer *im, onnx_scope *scope)
{
    const Onnx__GraphProto *g = scope->graph;
    size_t errors = diag_count(im->diag, DIAG_ERROR);
    bool ok = true;
    for (size_t i = 0; i < g->n_node; i++) ok &= lower_node(im, scope, i);
    if (!scope->path) { /* the sizes in a body may differ from copy to copy */
        onnx_check_declared(im, scope, g->value_info, g->n_value_info);
        onnx_check_declared(im, scope, g->output, g->n_output);
    }
    return ok && diag_count(im->diag, DIAG_ERROR) == errors;
}

void onnx_remove_unread(ir_graph *g)
{
    for (ir_node *n = g->last, *before; n; n = before) {
        before = n->prev;
        bool read = !(ir_op_get(n->op)->traits & IR_PURE) || ir_trim_is_needed(n);
        for (int i = 0; i < n->n_out; i++) read |= ir_value_used(n->out[i]);
        if (!read) ir_node_remove(n);
    }
}
