/* import.c - the model as a whole: versions, inputs, the one pass over the nodes, outputs.
 *
 * One topological pass does everything: each node is lowered to IR nodes, whose types are
 * inferred and whose values are folded at once, so that the next node finds the shapes that it
 * needs. */
#include "frontend/lower/lower.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

enum { FOLD_LIMIT = 1 << 18 }; /* elements of a folded value */

/* ---- errors ---------------------------------------------------------------------------------- */

diag_loc onnx_loc(const onnx_node *n)
{
    return (diag_loc){.file = n->b->loc.file, .node = n->b->loc.node, .op = n->b->loc.op};
}

void onnx_reject(onnx_node *n, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!n->failed) diag_verror(n->importer->diag, AMPC_REJECTED, onnx_loc(n), format, args);
    va_end(args);
    n->failed = true;
}

void onnx_refuse(onnx_node *n, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!n->failed) diag_verror(n->importer->diag, AMPC_UNSUPPORTED, onnx_loc(n), format, args);
    va_end(args);
    n->failed = true;
}

/* ---- names ----------------------------------------------------------------------------------- */

onnx_binding *onnx_find(const onnx_scope *scope, const char *name)
{
    for (; scope; scope = scope->outer) {
        onnx_binding *b = strmap_get(scope->bindings, name);
        if (b) return b;
    }
    return NULL;
}

ir_value *onnx_value(onnx_importer *im, const onnx_scope *scope, const char *name)
{
    onnx_binding *b = onnx_find(scope, name);
    if (!b || b->value || b->failed) return b && b->value ? onnx_inside(im, b->value) : NULL;
    ir_storage_kind kind = ir_dtype_is_float(b->initializer->dtype) ? IR_PARAM : IR_CONST;
    b->value = onnx_tensor_value(im, kind, name, b->initializer, DIAG_FILE(im->path));
    b->failed = !b->value;
    return b->value;
}

void onnx_bind(onnx_importer *im, onnx_scope *scope, const char *name, ir_value *v)
{
    onnx_binding *b = arena_alloc(im->scratch, sizeof *b);
    b->value = v;
    b->failed = !v;
    strmap_put(scope->bindings, name, b);
}

/* ---- one node -------------------------------------------------------------------------------- */

static bool read_operands(onnx_node *n, onnx_scope *scope)
{
    const Onnx__NodeProto *p = n->proto;
    const onnx_arity a = onnx_arity_of(n);
    if (n->n_in < a.required)
        onnx_reject(n, "has %d inputs, not %d%s", n->n_in, a.required, a.most == a.required ? "" : " or more");
    if (n->n_in > a.most)
        onnx_reject(n, "has %d inputs, not %d%s", n->n_in, a.most, a.most == a.required ? "" : " at most");
    if (n->n_out < 1 || n->n_out > a.results) onnx_reject(n, "has %d outputs", n->n_out);
    for (int i = 0; i < n->n_in && !n->failed; i++) {
        bool absent = !*p->input[i];
        if (absent && (i < a.required || i >= a.single)) onnx_reject(n, "input %d is missing", i);
        n->in[i] = absent ? NULL : onnx_value(n->importer, scope, p->input[i]);
        if (!absent && !n->in[i]) return false; /* reported where it failed */
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
            onnx_reject(n, "the result %s is too large%s",
                        ir_type_print(n->importer->module, t, n->importer->scratch),
                        count == IR_DIM_NONE ? " or too complex" : "");
    }
}

/* Checks and folds the IR nodes that the handler made. */
static void finish_nodes(onnx_node *n, const ir_node *before)
{
    onnx_importer *im = n->importer;
    for (const ir_node *node = before ? before->next : im->graph->first; node; node = node->next) {
        check_sizes(n, node);
        if (!n->failed) ir_fold(im->knowledge, node, FOLD_LIMIT);
    }
}

static bool is_operand(const onnx_node *n, const ir_value *v)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] == v) return true;
    return false;
}

/* A node that changes nothing (Identity, a Reshape to the same shape, Dropout outside training) stays in the graph as
 * a view, so that mixed precision sees the model as it was written; the clean-ups drop it. */
static void keep_identity(onnx_node *n)
{
    for (int i = 0; i < n->n_out && !n->failed; i++) {
        ir_value *v = n->out[i];
        if (!onnx_wants(n, i) || v->kind == IR_VALUE_STORAGE || !ir_dtype_is_float(v->type.dtype) ||
            !is_operand(n, v))
            continue;
        ir_node *view = ir_new(n->b, IR_OP_reshape, 1, v);
        ir_set_list(view, IR_ATTR(reshape, shape), v->type.dims, v->type.rank);
        n->out[i] = ir_done(n->b, view);
        n->failed |= !n->out[i];
    }
}

static void bind_results(onnx_node *n, onnx_scope *scope, uint32_t first_id)
{
    for (int i = n->n_out; i-- > 0;) { /* of several names that a value has, the first one stays */
        ir_value *v = n->failed ? NULL : n->out[i];
        if (!onnx_wants(n, i)) continue;
        if (v && v->kind == IR_VALUE_RESULT && v->def->id >= first_id) ir_value_rename(v, n->proto->output[i]);
        onnx_bind(n->importer, scope, n->proto->output[i], v);
    }
}

/* Its operands are those of the schema, if it has one. */
static const onnx_row foreign_row = {.op = "", .lower = onnx_lower_foreign};

static void run_handler(onnx_node *n)
{
    size_t errors = diag_count(n->importer->diag, DIAG_ERROR);
    n->row->lower(n);
    if (n->row != &foreign_row) onnx_check_attributes(n);
    for (int i = 0; i < n->n_out && !n->failed; i++) {
        bool missing = onnx_wants(n, i) && !n->out[i];
        if (missing && diag_count(n->importer->diag, DIAG_ERROR) == errors)
            onnx_refuse(n, "output %d", i);
        n->failed |= missing;
    }
}

static void undo(onnx_node *n, const ir_node *before)
{
    ir_graph *g = n->importer->graph;
    while (g->last != before) {
        for (int i = 0; i < ir_body_count(g->last); i++)
            ir_graph_remove(n->importer->module, ir_body_get(g->last, i).graph);
        ir_node_remove(g->last);
    }
    memset(n->out, 0, (size_t)n->n_out * sizeof *n->out);
    memset(n->attr_read, 0, n->proto->n_attribute * sizeof *n->attr_read);
    n->failed = false;
}

/* Sizes that are known at run time only may be why a node seems malformed. */
static bool reads_symbols(const onnx_node *n)
{
    bool symbolic = false;
    for (int i = 0; i < n->n_in; i++)
        symbolic |= n->in[i] && !ir_type_is_static(&n->in[i]->type);
    return symbolic;
}

/* With foreign nodes allowed: a first attempt, whose messages nobody sees, tells whether the node
 * can be lowered. Within the attempt on an If, its nodes are lowered or the If is carried. */
static void lower_or_carry(onnx_node *n, ir_node *before)
{
    onnx_importer *im = n->importer;
    diag *own = im->diag, *trial = im->trial;
    if (own == trial || n->row == &foreign_row) {
        run_handler(n);
        return;
    }
    diag_clear(trial);
    im->diag = im->builder.diag = trial;
    run_handler(n);
    im->diag = im->builder.diag = own;
    bool told = n->failed || diag_count(trial, DIAG_WARNING) || diag_count(trial, DIAG_REMARK);
    if (!told) return;
    bool unsupported = diag_status(trial) == AMPC_UNSUPPORTED || reads_symbols(n);
    if (n->failed && unsupported) n->row = &foreign_row;
    undo(n, before);
    run_handler(n);
}

static bool lower_node(onnx_importer *im, onnx_scope *scope, size_t index)
{
    const Onnx__NodeProto *p = scope->graph->node[index];
    const onnx_row *row = onnx_find_row(im, p);
    onnx_node n = {.importer = im,
                   .b = &im->builder,
                   .dims = im->module->dims,
                   .scope = scope,
                   .proto = p,
                   .row = row ? row : &foreign_row,
                   .index = index,
                   .opset = im->opset,
                   .n_in = (int)p->n_input,
                   .n_out = (int)p->n_output};
    n.arg = n.row->arg;
    while (n.n_in && !*p->input[n.n_in - 1]) n.n_in--;
    while (n.n_out && !*p->output[n.n_out - 1]) n.n_out--;
    n.in = arena_array(im->scratch, (size_t)n.n_in + 1, sizeof *n.in);
    n.out = arena_array(im->scratch, (size_t)n.n_out + 1, sizeof *n.out);
    n.attr_read = arena_array(im->scratch, p->n_attribute + 1, sizeof *n.attr_read);
    im->builder.loc = (ir_loc){.file = im->path,
                               .op = arena_intern(im->arena, p->op_type),
                               .node = onnx_node_name(im, p, im->node_index++)};

    ir_node *before = im->graph->last;
    uint32_t first_id = im->graph->node_ids;
    onnx_check_attribute_names(&n);
    bool ready = read_operands(&n, scope);
    if (ready && im->trial)
        lower_or_carry(&n, before);
    else if (ready)
        run_handler(&n);
    if (ready) keep_identity(&n);
    if (ready) finish_nodes(&n, before);
    n.failed |= !ready;
    bind_results(&n, scope, first_id);
    ir_node *made = before ? before->next : im->graph->first;
    for (; made; made = made->next) ir_name_results(made);
    return !n.failed;
}

/* ---- declared types -------------------------------------------------------------------------- */

static void check_declared(onnx_importer *im, const onnx_scope *scope,
                           const Onnx__ValueInfoProto *info)
{
    const onnx_binding *b = strmap_get(scope->bindings, info->name);
    const Onnx__TypeProto__Tensor *declared = info->type && info->type->value_case ==
                                                                ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE
                                                  ? info->type->tensor_type
                                                  : NULL;
    if (!b || !b->value || !declared) return;
    const ir_type *t = &b->value->type;
    diag_loc loc = {.file = im->path};
    if (declared->elem_type && onnx_type_dtype(declared->elem_type) != t->dtype)
        diag_error(im->diag, AMPC_REJECTED, loc, "value '%s' is declared as %s, but is %s",
                   info->name, onnx_type_name(declared->elem_type), ir_dtype_name(t->dtype));
    const Onnx__TensorShapeProto *shape = declared->shape;
    if (!shape) return;
    bool same = (int)shape->n_dim == t->rank;
    for (int i = 0; i < t->rank && same; i++) {
        const Onnx__TensorShapeProto__Dimension *d = shape->dim[i];
        bool number = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        same = !number || ir_dim_is_symbolic(t->dims[i]) || d->dim_value == t->dims[i];
    }
    if (!same)
        diag_error(im->diag, AMPC_REJECTED, loc,
                   "the declared shape of '%s' contradicts the computed one, %s", info->name,
                   ir_type_print(im->module, t, im->scratch));
}

bool onnx_lower_graph(onnx_importer *im, onnx_scope *scope)
{
    const Onnx__GraphProto *g = scope->graph;
    size_t errors = diag_count(im->diag, DIAG_ERROR);
    bool ok = true;
    for (size_t i = 0; i < g->n_node; i++) ok &= lower_node(im, scope, i);
    for (size_t i = 0; i < g->n_value_info; i++) check_declared(im, scope, g->value_info[i]);
    for (size_t i = 0; i < g->n_output; i++) check_declared(im, scope, g->output[i]);
    return ok && diag_count(im->diag, DIAG_ERROR) == errors;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static ir_dim input_dim(onnx_importer *im, const char *input, int i,
                        const Onnx__TensorShapeProto__Dimension *d, bool *used)
{
    if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE)
        return d->dim_value >= 0 ? ir_dim_number(d->dim_value) : IR_DIM_NONE;
    const char *name = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM
                           ? d->dim_param
                           : "";
    if (!*name) name = arena_printf(im->scratch, "%s_dim%d", input, i);
    for (int k = 0; k < im->options->n_dims; k++)
        if (strcmp(im->options->dims[k].name, name) == 0) {
            if (used) used[k] = true;
            return im->options->dims[k].size;
        }
    return ir_dim_symbol(im->module->dims, name);
}

ampc_status onnx_declared_type(onnx_importer *im, const char *what,
                               const Onnx__ValueInfoProto *info, bool *used, ir_type *out)
{
    diag_loc loc = DIAG_FILE(im->path);
    bool tensor = info->type && info->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    const Onnx__TypeProto__Tensor *t = tensor ? info->type->tensor_type : NULL;
    if (!t)
        return diag_error(im->diag, AMPC_UNSUPPORTED, loc, "%s '%s' is not a tensor", what,
                          info->name);
    if (onnx_type_dtype(t->elem_type) == IR_NO_DTYPE)
        return diag_error(im->diag, AMPC_UNSUPPORTED, loc,
                          "%s '%s' has element type %s, which is not supported", what, info->name,
                          onnx_type_name(t->elem_type));
    if (!t->shape)
        return diag_error(im->diag, AMPC_UNSUPPORTED, loc, "%s '%s' has no shape", what,
                          info->name);
    if (t->shape->n_dim > ONNX_MAX_RANK)
        return diag_error(im->diag, AMPC_UNSUPPORTED, loc,
                          "%s '%s' has rank %zu, at most %d is supported", what, info->name,
                          t->shape->n_dim, ONNX_MAX_RANK);
    *out = (ir_type){.dtype = onnx_type_dtype(t->elem_type), .rank = (int)t->shape->n_dim};
    for (int i = 0; i < out->rank; i++) {
        out->dims[i] = input_dim(im, info->name, i, t->shape->dim[i], used);
        if (out->dims[i] == IR_DIM_NONE)
            return diag_error(im->diag, AMPC_REJECTED, loc,
                              "dimension %d of %s '%s' is negative", i, what, info->name);
    }
    if (ir_type_count(im->module->dims, out) == IR_DIM_NONE)
        return diag_error(im->diag, AMPC_REJECTED, loc, "%s '%s' is too large", what,
                          info->name);
    return AMPC_OK;
}

/* The value that the caller gives to an input while compiling, or NULL. */
static ir_value *bound_constant(onnx_importer *im, const char *name, bool *used)
{
    for (int i = 0; i < im->options->n_constants; i++) {
        const onnx_constant *c = &im->options->constants[i];
        if (strcmp(c->name, name) != 0) continue;
        used[i] = true;
        return ir_constant(&im->builder, name, &c->type, c->bytes);
    }
    return NULL;
}

/* An initializer wins over an input of its name: it is the input's default, and in old files
 * every weight is one. */
static ampc_status bind_inputs(onnx_importer *im, onnx_scope *scope)
{
    const onnx_import_options *o = im->options;
    bool *dims_used = arena_array(im->scratch, (size_t)o->n_dims + 1, sizeof *dims_used);
    bool *constants_used = arena_array(im->scratch, (size_t)o->n_constants + 1,
                                       sizeof *constants_used);
    for (size_t i = 0; i < scope->graph->n_input; i++) {
        const Onnx__ValueInfoProto *info = scope->graph->input[i];
        ir_value *v = bound_constant(im, info->name, constants_used);
        if (!v && strmap_get(scope->bindings, info->name)) continue;
        if (!v) {
            ir_type type;
            TRY(onnx_declared_type(im, "graph input", info, dims_used, &type));
            v = ir_graph_input(im->graph, info->name, &type);
        }
        onnx_bind(im, scope, info->name, v);
    }
    for (int i = 0; i < o->n_dims; i++)
        if (!dims_used[i])
            return diag_error(im->diag, AMPC_USAGE, DIAG_FILE(im->path),
                              "no input has a dimension '%s'", o->dims[i].name);
    for (int i = 0; i < o->n_constants; i++)
        if (!constants_used[i])
            return diag_error(im->diag, AMPC_USAGE, DIAG_FILE(im->path), "there is no input '%s'",
                              o->constants[i].name);
    return AMPC_OK;
}

/* ---- the model ------------------------------------------------------------------------------- */

static ampc_status check_versions(onnx_importer *im, const Onnx__ModelProto *m)
{
    diag_loc loc = DIAG_FILE(im->path);
    if (!m->graph) return diag_error(im->diag, AMPC_REJECTED, loc, "the model has no graph");
    if (m->ir_version <= 0)
        return diag_error(im->diag, AMPC_REJECTED, loc, "ir_version is %lld",
                          (long long)m->ir_version);
    if (m->ir_version > ONNX_IR_VERSION_LAST)
        TRY(diag_warning(im->diag, loc, "IR version %lld is newer than this importer (%d)",
                         (long long)m->ir_version, ONNX_IR_VERSION_LAST));
    int64_t opset = 0;
    for (size_t i = 0; i < m->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *import = m->opset_import[i];
        if (import->version <= 0)
            return diag_error(im->diag, AMPC_REJECTED, loc, "opset version %lld",
                              (long long)import->version);
        if (!onnx_is_default_domain(import->domain)) continue;
        if (opset)
            return diag_error(im->diag, AMPC_REJECTED, loc,
                              "two opset imports of the default domain");
        opset = import->version;
    }
    if (!opset)
        return diag_error(im->diag, AMPC_REJECTED, loc, "no opset import of the default domain");
    if (opset < ONNX_OPSET_FIRST || opset > ONNX_OPSET_LAST)
        return diag_error(im->diag, AMPC_UNSUPPORTED, loc, "opset %lld is not supported (%d to %d)",
                          (long long)opset, ONNX_OPSET_FIRST, ONNX_OPSET_LAST);
    if (m->n_training_info)
        diag_remark(im->diag, loc, "the training information of the model is not used");
    im->opset = (int)opset;
    ir_meta_set(im->module, "opset", arena_printf(im->scratch, "%d", im->opset));
    return AMPC_OK;
}

static ampc_status emit_outputs(onnx_importer *im, const onnx_scope *scope)
{
    const Onnx__GraphProto *g = scope->graph;
    strmap *seen = strmap_new(im->scratch);
    im->builder.loc = (ir_loc){.file = im->path};
    if (!g->n_output)
        return diag_error(im->diag, AMPC_REJECTED, DIAG_FILE(im->path), "the graph has no output");
    for (size_t i = 0; i < g->n_output; i++) {
        const char *name = g->output[i]->name;
        if (strmap_get(seen, name))
            return diag_error(im->diag, AMPC_REJECTED, DIAG_FILE(im->path),
                              "graph output '%s' is given twice", name);
        strmap_put(seen, name, im);
        ir_value *v = onnx_value(im, scope, name);
        if (!v) return diag_status(im->diag);
        ir_output(&im->builder, name, v);
    }
    im->builder.phase = IR_UPDATE;
    for (size_t i = 0; i < im->stores.count; i++)
        ir_store(&im->builder, im->stores.items[i].state, im->stores.items[i].value);
    return AMPC_OK;
}

void onnx_remove_unread(ir_graph *g)
{
    for (ir_node *n = g->last, *before; n; n = before) {
        before = n->prev;
        bool read = !(ir_op_get(n->op)->traits & IR_PURE);
        for (int i = 0; i < n->n_out; i++) read |= ir_value_used(n->out[i]);
        if (!read) ir_node_remove(n);
    }
}

static ampc_status import_model(onnx_importer *im)
{
    const Onnx__ModelProto *m = im->file->model;
    TRY(check_versions(im, m));
    onnx_scope scope = {.graph = m->graph, .bindings = strmap_new_borrowing(im->scratch)};
    strmap_reserve(scope.bindings, m->graph->n_initializer + m->graph->n_node);
    size_t errors = diag_count(im->diag, DIAG_ERROR);
    TRY(onnx_check_graph(im, &scope));
    TRY(onnx_initializers_bind(im, &scope));
    im->declarations = onnx_declarations(m->graph, im->scratch);
    im->ties = onnx_ties_find(m->graph, !im->options->tied, im->declarations, im->scratch);
    TRY(bind_inputs(im, &scope));
    bool lowered = onnx_lower_graph(im, &scope);
    if (lowered) TRY(emit_outputs(im, &scope));
    if (diag_count(im->diag, DIAG_ERROR) != errors) return diag_status(im->diag);
    if (!lowered) return diag_error(im->diag, AMPC_UNSUPPORTED, DIAG_FILE(im->path), "the graph cannot be lowered");
    onnx_remove_unread(im->graph); /* first, so that only what is really read becomes a constant */
    ir_fold_commit(im->knowledge, im->graph, im->diag);
    onnx_remove_unread(im->graph);
    onnx_classify_parameters(im);
    ir_module_sweep(im->module);
    return AMPC_OK;
}

static int64_t half_of_memory(void)
{
    int64_t pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE), bytes;
    return pages > 0 && checked_mul(pages, size, &bytes) ? bytes / 2 : INT64_MAX;
}

/* The importer's parts, in their two arenas; runs under the guard of import_file. */
static ampc_status import_guarded(onnx_file *f, const onnx_import_options *o, diag *d, diag *trial, diag *inner,
                                  ir_module *m, arena *scratch)
{
    static const onnx_import_options defaults = {0};
    onnx_importer im = {.file = f,
                        .options = o ? o : &defaults,
                        .module = m,
                        .arena = m->arena,
                        .scratch = scratch,
                        .diag = d,
                        .trial = trial,
                        .inner = inner};
    im.path = arena_strdup(im.arena, f->path);
    im.max_bytes = im.options->max_tensor_bytes ? im.options->max_tensor_bytes : half_of_memory();
    im.graph = ir_graph_new(m, "forward");
    im.builder = ir_builder_at_end(im.graph, d);
    im.builder.nameless = true;
    im.knowledge = ir_knowledge_new(scratch, im.graph);
    onnx_body own = {.graph = im.graph, .knowledge = im.knowledge};
    im.body = &own;
    im.rows = onnx_rows(scratch);
    return import_model(&im);
}

static ampc_status import_file(onnx_file *f, const onnx_import_options *o, diag *d, ir_module **out)
{
    ir_module *m = ir_module_new();
    arena *scratch = arena_new(0);
    bool foreign = o && o->foreign;
    diag *trial = foreign ? diag_new(NULL, NULL) : NULL, *inner = foreign ? diag_new(NULL, NULL) : NULL;
    ampc_status status = AMPC_NO_MEMORY;
    jmp_buf guard;
    if (m && scratch && ((trial && inner) || !foreign) && !setjmp(guard)) {
        arena_set_guard(m->arena, &guard);
        arena_set_guard(scratch, &guard);
        status = import_guarded(f, o, d, trial, inner, m, scratch);
        arena_set_guard(m->arena, NULL);
    } else {
        diag_error(d, status, DIAG_FILE(f->path), "out of memory");
    }
    arena_free(scratch);
    diag_free(trial);
    diag_free(inner);
    if (status == AMPC_OK)
        *out = m;
    else
        ir_module_free(m);
    return status;
}

ampc_status onnx_import(const char *path, const onnx_import_options *o, diag *d, ir_module **out)
{
    *out = NULL;
    onnx_file *f;
    TRY(onnx_file_open(path, d, &f));
    ampc_status status = import_file(f, o, d, out);
    onnx_file_close(f);
    return status;
}

ampc_status onnx_import_memory(const void *data, size_t size, const char *name,
                               const onnx_import_options *o, diag *d, ir_module **out)
{
    *out = NULL;
    onnx_file *f;
    TRY(onnx_file_wrap(data, size, name, d, &f));
    ampc_status status = import_file(f, o, d, out);
    onnx_file_close(f);
    return status;
}
