/* subgraph.c - lowers the subgraphs of If, Loop and Scan like the main graph, each into a region of the node.
 *
 * The sizes of loop-carried values are found by iteration. The first guess is the size of the initial value; if the
 * subgraph returns another size, it becomes a new symbol and the subgraph is lowered again, until nothing changes.
 * Sizes that the subgraph computes from such symbols are unknown in the enclosing graph, which gets new symbols for
 * them. */
#include "frontend/lower/lower.h"

#include "ir/ops/dim_table.h"

#include <string.h>

/* ---- a subgraph -------------------------------------------------------------------------------- */

/* A subgraph of the node and the types of its inputs, which for Loop and Scan are found by iteration. */
typedef struct source {
    onnx_node *node;
    const Onnx__GraphProto *graph;
    size_t attribute;
    strmap *initializers;   /* their bindings, created once */
    ir_type *inputs;        /* [graph->n_input] */
    size_t symbols;         /* number of dimension atoms that existed before the subgraph */
    onnx_subgraph subgraph; /* the lowered graph */
} source;

static bool bind_names(source *s, onnx_scope *scope)
{
    onnx_importer *im = s->node->importer;
    const Onnx__GraphProto *g = s->graph;
    if (!s->initializers) {
        if (onnx_check_graph(im, scope) != AMPC_OK || onnx_initializers_bind(im, scope) != AMPC_OK) return false;
        s->initializers = scope->bindings;
        scope->bindings = strmap_new(im->scratch);
    }
    for (size_t i = 0; i < g->n_initializer; i++)
        strmap_put(scope->bindings, g->initializer[i]->name, strmap_get(s->initializers, g->initializer[i]->name));
    for (size_t i = 0; i < g->n_input; i++) {
        if (strmap_get(s->initializers, g->input[i]->name)) return false; /* an input with a default */
        ir_value *input = ir_graph_input(im->graph, g->input[i]->name, &s->inputs[i]);
        onnx_bind(im, scope, g->input[i]->name, (onnx_item){.value = input});
    }
    return true;
}

static bool put_outputs(source *s, const onnx_scope *scope)
{
    onnx_importer *im = s->node->importer;
    strmap *names = strmap_new(im->scratch);
    for (size_t i = 0; i < s->graph->n_output; i++) {
        const char *own = s->graph->output[i]->name, *name = own;
        for (int k = 1; !strmap_enter(names, name, im); k++) name = arena_printf(im->scratch, "%s.%d", own, k);
        ir_value *v = onnx_value(im, scope, own);
        if (!v) return false;
        ir_output(&im->builder, name, v);
    }
    return true;
}

static void finish_graph(onnx_importer *im)
{
    onnx_subgraph *b = im->subgraph;
    onnx_remove_unread(b->graph);
    ir_fold_commit(b->consts, b->graph, im->diag);
    onnx_remove_unread(b->graph);
    size_t used = 0;
    for (size_t i = 0; i < b->captures.count; i++)
        if (ir_value_used(b->captures.items[i].input)) b->captures.items[used++] = b->captures.items[i];
        else ir_graph_drop_input(b->graph, b->captures.items[i].input);
    b->captures.count = used;
}

static bool fill_graph(source *s)
{
    onnx_importer *im = s->node->importer;
    onnx_scope scope = {.graph = s->graph,
                        .outer = s->node->scope,
                        .bindings = strmap_new(im->scratch),
                        .node = s->node->index,
                        .call = s->node->scope->call,
                        .path = s->node->scope->path};
    size_t errors = diag_count(im->diag, DIAG_ERROR), stores = im->stores.count;
    bool made = bind_names(s, &scope) && onnx_lower_graph(im, &scope);
    im->builder.loc = (ir_loc){.file = im->path};
    made = made && put_outputs(s, &scope);
    if (made) finish_graph(im);
    if (im->stores.count != stores)
        made = diag_error(im->diag, AMPC_UNSUPPORTED, onnx_loc(s->node), "a subgraph changes a state") == AMPC_OK;
    return made && diag_count(im->diag, DIAG_ERROR) == errors;
}

/* Lowers a subgraph into s->subgraph. On failure the importer is restored and im->inner has the reason. */
static bool lower_graph(source *s)
{
    onnx_node *n = s->node;
    onnx_importer *im = n->importer, before = *im;
    s->subgraph = (onnx_subgraph){.outer = im->subgraph, .graph = ir_body_new(im->module)};
    s->subgraph.consts = ir_const_map_new(im->scratch, s->subgraph.graph);
    s->symbols = im->module->dims->atoms.count;
    im->subgraph = &s->subgraph;
    im->graph = s->subgraph.graph;
    im->consts = s->subgraph.consts;
    im->diag = im->inner;
    im->builder = ir_builder_at_end(im->graph, im->diag);
    im->builder.nameless = true;
    bool made = fill_graph(s);
    im->subgraph = before.subgraph;
    im->graph = before.graph;
    im->consts = before.consts;
    im->diag = before.diag;
    im->builder = before.builder;
    if (made) return true;
    im->rng = before.rng;
    im->streams = before.streams;
    im->stores.count = before.stores.count;
    return false;
}

static const ir_type *output_type(const source *s, size_t i)
{
    const ir_node *n = s->subgraph.graph->last;
    for (size_t k = s->graph->n_output - 1; k > i; k--) n = n->prev;
    return &ir_in(n, 0)->type;
}

/* Whether a dimension of a subgraph can be expressed in the enclosing graph; atoms created in the subgraph have no
 * meaning there. */
static bool is_visible_outside(const onnx_node *n, size_t symbols, ir_dim d)
{
    if (!ir_dim_is_symbolic(d)) return true;
    const expression *x = ir_dim_expression(n->dims, d);
    for (int i = 0; i < x->count; i++)
        for (uint32_t k = 0; k < x->terms[i].degree; k++)
            if (x->terms[i].atoms[k] >= symbols) return false;
    return true;
}

/* ---- declared types ------------------------------------------------------------------------------ */

static bool declared_size(const Onnx__TypeProto__Tensor *t, int axis, ir_dim *out)
{
    const Onnx__TensorShapeProto__Dimension *d = t->shape->dim[axis];
    if (d->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE || d->dim_value < 0) return false;
    *out = d->dim_value;
    return true;
}

/* `type`, refined by the sizes that the subgraph declares for its input. */
static ir_type input_type(const Onnx__ValueInfoProto *info, ir_type type)
{
    const Onnx__TypeProto__Tensor *t = onnx_tensor_type(info);
    if (!t || !t->shape || (int)t->shape->n_dim != type.rank) return type;
    for (int i = 0; i < type.rank; i++) declared_size(t, i, &type.dims[i]);
    return type;
}

/* Sets the type of a result of the node. Sizes unknown in the enclosing graph are the declared ones, or new symbols. */
static void set_result(onnx_node *n, onnx_subgraphs *out, int i, ir_type type)
{
    const Onnx__TypeProto__Tensor *declared = onnx_tensor_type(onnx_find_declared(n, n->proto->output[i]));
    bool shaped = declared && declared->shape && (int)declared->shape->n_dim == type.rank;
    for (int k = 0; k < type.rank; k++)
        if (type.dims[k] == IR_DIM_NONE && !(shaped && declared_size(declared, k, &type.dims[k])))
            type.dims[k] = onnx_unknown_dim(n, i, k);
    out->types[i] = type;
}

/* ---- If ------------------------------------------------------------------------------------------ */

static bool join(onnx_node *n, const ir_type *a, const ir_type *b, ir_type *out, size_t symbols)
{
    if (a->dtype != b->dtype || a->rank != b->rank) return false;
    *out = *a;
    for (int k = 0; k < a->rank; k++)
        if (a->dims[k] != b->dims[k] || !is_visible_outside(n, symbols, a->dims[k])) out->dims[k] = IR_DIM_NONE;
    return true;
}

static bool refuse(onnx_node *n, const char *why)
{
    diag_error(n->importer->inner, AMPC_UNSUPPORTED, onnx_loc(n), "%s", why);
    return false;
}

static bool check_branch(onnx_node *n, const Onnx__GraphProto *g)
{
    if (g->n_input) onnx_reject(n, "a branch has inputs");
    if ((int)g->n_output < n->n_out) onnx_reject(n, "the branch has %zu outputs, the node %d", g->n_output, n->n_out);
    return !n->failed;
}

/* Whether the sizes differ whatever the symbols are: such a node converts, but cannot run. */
static bool differ_in_numbers(const ir_type *a, const ir_type *b)
{
    bool differ = false;
    for (int k = 0; k < a->rank && a->rank == b->rank; k++)
        differ |= a->dims[k] != b->dims[k] && !ir_dim_is_symbolic(a->dims[k]) && !ir_dim_is_symbolic(b->dims[k]);
    return differ;
}

/* Both branches must return the same types. */
static bool lower_branches(onnx_node *n, source *graphs, size_t count, onnx_subgraphs *out)
{
    for (size_t i = 0; i < count; i++) {
        if (!check_branch(n, graphs[i].graph) || !lower_graph(&graphs[i])) return false;
    }
    for (int i = 0; i < n->n_out; i++) {
        ir_type type = *output_type(&graphs[0], (size_t)i);
        const ir_type *other = output_type(&graphs[count - 1], (size_t)i);
        if (!n->importer->trial && differ_in_numbers(&type, other))
            return refuse(n, "its branches return different sizes");
        if (!join(n, &type, other, &type, graphs[0].symbols)) return refuse(n, "its branches return different types");
        if (onnx_result_is_used(n, i)) set_result(n, out, i, type);
    }
    return true;
}

/* ---- Loop, Scan ---------------------------------------------------------------------------------- */

typedef struct iteration {
    source *source;
    int first_state; /* first loop-carried operand; its subgraph input is at `fixed` */
    int fixed;       /* leading inputs of the subgraph: iteration count and condition */
    int fixed_out;
    int states, slices; /* number of loop-carried operands and, for Scan, of sliced ones */
} iteration;

static int64_t axis_of(onnx_node *n, const char *attribute, int i, int rank)
{
    onnx_list axes = onnx_ints(n, attribute);
    ir_dim axis = i < axes.count ? axes.items[i] : 0;
    return axis < 0 ? axis + rank : axis;
}

static bool slice_type(onnx_node *n, const iteration *it, int i, ir_type *out)
{
    const ir_type *operand = &n->in[it->first_state + it->states + i]->type;
    int64_t axis = axis_of(n, "scan_input_axes", i, operand->rank);
    if (axis < 0 || axis >= operand->rank) return false;
    *out = *operand;
    out->rank--;
    for (int k = (int)axis; k < out->rank; k++) out->dims[k] = operand->dims[k + 1];
    return true;
}

static bool set_inputs(onnx_node *n, const iteration *it)
{
    source *s = it->source;
    int count = it->fixed + it->states + it->slices;
    if ((int)s->graph->n_input != count || (int)s->graph->n_output < it->fixed_out + it->states)
        return refuse(n, "its body has another number of inputs or outputs than it needs");
    s->inputs = arena_array(n->importer->scratch, (size_t)count + 1, sizeof *s->inputs);
    for (int i = 0; i < it->fixed; i++) s->inputs[i] = ir_type_scalar(i ? IR_bool : IR_i64);
    for (int i = 0; i < it->states + it->slices; i++) {
        ir_type type = n->in[it->first_state + i] ? n->in[it->first_state + i]->type : (ir_type){0};
        if (!n->in[it->first_state + i]) return refuse(n, "an operand is missing");
        if (i >= it->states && !slice_type(n, it, i - it->states, &type))
            return refuse(n, "a scanned operand lacks the axis that is scanned");
        s->inputs[it->fixed + i] = input_type(s->graph->input[it->fixed + i], type);
    }
    return true;
}

/* Turns sizes that the subgraph changes into symbols. True: there were some. */
static bool free_sizes(onnx_node *n, const iteration *it, bool (*is_free)[IR_MAX_RANK], bool *fits)
{
    source *s = it->source;
    bool changed = false;
    for (int i = 0; i < it->states; i++) {
        ir_type *in = &s->inputs[it->fixed + i];
        const ir_type *out = output_type(s, (size_t)(it->fixed_out + i));
        *fits &= in->dtype == out->dtype && in->rank == out->rank;
        for (int k = 0; k < in->rank && *fits; k++) {
            if (in->dims[k] == out->dims[k] || is_free[i][k]) continue;
            const char *name = s->graph->input[it->fixed + i]->name;
            in->dims[k] = ir_dim_symbol(n->dims,
                                        arena_printf(n->importer->scratch, "%s.%s_dim%d", n->b->loc.node, name, k));
            changed = is_free[i][k] = true;
        }
    }
    return changed;
}

static bool lower_until_stable(onnx_node *n, const iteration *it)
{
    bool(*is_free)[IR_MAX_RANK] = arena_array(n->importer->scratch, (size_t)it->states + 1, sizeof *is_free);
    bool fits = true;
    for (;;) {
        if (!lower_graph(it->source)) return false;
        bool changed = free_sizes(n, it, is_free, &fits);
        if (changed && !n->importer->trial) return refuse(n, "a loop-carried value changes its size");
        if (fits && !changed) return true;
        if (!fits) return refuse(n, "a loop-carried value changes type");
    }
}

/* The type of a loop-carried value after the loop. It is the initial value if there was no iteration. */
static ir_type state_type(onnx_node *n, const iteration *it, int i)
{
    ir_type type = n->in[it->first_state + i]->type;
    const ir_type *inner = &it->source->inputs[it->fixed + i], *after;
    after = output_type(it->source, (size_t)(it->fixed_out + i));
    for (int k = 0; k < type.rank; k++)
        if (type.dims[k] != inner->dims[k] || type.dims[k] != after->dims[k]) type.dims[k] = IR_DIM_NONE;
    return type;
}

/* The type of a per-iteration result, stacked over all iterations. */
static bool stacked_type(onnx_node *n, const iteration *it, int i, ir_type *out)
{
    const ir_type *one = output_type(it->source, (size_t)(it->fixed_out + it->states + i));
    int64_t axis = it->slices ? axis_of(n, "scan_output_axes", i, one->rank + 1) : 0;
    if (axis < 0 || axis > one->rank || one->rank == ONNX_MAX_RANK) return false;
    *out = ir_type_make(one->dtype, 0, NULL);
    out->rank = one->rank + 1;
    for (int k = 0, from = 0; k < out->rank; k++) {
        if (k == axis) {
            const ir_type *operand = it->slices ? &n->in[it->first_state + it->states]->type : NULL;
            out->dims[k] = operand ? operand->dims[axis_of(n, "scan_input_axes", 0, operand->rank)]
                                   : onnx_loop_trips(n, &it->source->subgraph, it->source->graph);
            continue;
        }
        ir_dim d = one->dims[from++];
        out->dims[k] = is_visible_outside(n, it->source->symbols, d) ? d : IR_DIM_NONE;
    }
    return true;
}

static bool lower_iteration(onnx_node *n, const iteration *it, onnx_subgraphs *out)
{
    if (it->states < 0 || !set_inputs(n, it) || !lower_until_stable(n, it)) return false;
    for (int i = 0; i < n->n_out; i++) {
        ir_type type;
        if (i < it->states) type = state_type(n, it, i);
        else if (it->fixed_out + i >= (int)it->source->graph->n_output || !stacked_type(n, it, i - it->states, &type))
            return refuse(n, "a result has no output of the body, or lacks the axis that is stacked");
        if (onnx_result_is_used(n, i)) set_result(n, out, i, type);
    }
    return true;
}

static bool lower_loop(onnx_node *n, source *subgraph, size_t count, onnx_subgraphs *out)
{
    (void)count;
    iteration it = {.source = subgraph, .first_state = 2, .fixed = 2, .fixed_out = 1};
    if (n->n_in > 2) it.states = n->n_in - 2;
    return lower_iteration(n, &it, out);
}

static bool lower_scan(onnx_node *n, source *subgraph, size_t count, onnx_subgraphs *out)
{
    (void)count;
    int64_t slices = onnx_int(n, "num_scan_inputs", 0);
    if (slices < 1 || slices > n->n_in) return refuse(n, "num_scan_inputs is out of range");
    const iteration it = {.source = subgraph, .states = n->n_in - (int)slices, .slices = (int)slices};
    return lower_iteration(n, &it, out);
}

/* ---- the node ------------------------------------------------------------------------------------ */

static const struct {
    const char *op;
    int since;
    size_t graphs;
    bool (*lower)(onnx_node *n, source *graphs, size_t count, onnx_subgraphs *out);
    ir_op becomes;
} rows[] = {{"If", 1, 2, lower_branches, IR_OP_if},
            {"Loop", 1, 1, lower_loop, IR_OP_loop},
            {"Scan", 9, 1, lower_scan, IR_OP_loop}};

/* Collects captured values, each once. */
static void collect_captures(onnx_importer *im, onnx_subgraphs *out, const onnx_subgraph *b)
{
    for (size_t i = 0; i < b->captures.count; i++) {
        size_t k = 0;
        while (k < out->values.count && out->values.items[k] != b->captures.items[i].outer) k++;
        if (k == out->values.count) vec_push(im->scratch, &out->values, b->captures.items[i].outer);
    }
}

static source *find_graphs(onnx_node *n, size_t *count)
{
    const Onnx__NodeProto *p = n->proto;
    source *graphs = arena_array(n->importer->scratch, p->n_attribute + 1, sizeof *graphs);
    *count = 0;
    for (size_t i = 0; i < p->n_attribute; i++)
        if (p->attribute[i]->g) graphs[(*count)++] = (source){.node = n, .graph = p->attribute[i]->g, .attribute = i};
    return graphs;
}

static bool lower_all(onnx_node *n, source *graphs, size_t count, onnx_subgraphs *out)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].op, n->proto->op_type) != 0 || !onnx_is_default_domain(n->proto->domain)) continue;
        if (count != rows[i].graphs || n->opset < rows[i].since)
            return refuse(n, "a subgraph is missing, or there is one too many");
        out->op = rows[i].becomes;
        return rows[i].lower(n, graphs, count, out);
    }
    return refuse(n, "it is not an ONNX operator");
}

bool onnx_lower_subgraphs(onnx_node *n, onnx_subgraphs *out)
{
    onnx_importer *im = n->importer;
    size_t count;
    source *graphs = find_graphs(n, &count);
    *out = (onnx_subgraphs){.types = arena_array(im->scratch, (size_t)n->n_out + 1, sizeof *out->types)};
    if (!count) return false;
    if (!lower_all(n, graphs, count, out)) {
        if (im->diag != im->inner && !n->failed) {
            diag_remark(im->diag, onnx_loc(n), "its subgraphs stay in f32: %s", diag_first_error(im->inner));
            diag_clear(im->inner);
        }
        n->failed |= !im->trial;
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        vec_push(im->scratch, &out->graphs, graphs[i].subgraph);
        vec_push(im->scratch, &out->attributes, n->proto->attribute[graphs[i].attribute]->name);
        collect_captures(im, out, &graphs[i].subgraph);
    }
    return true;
}
