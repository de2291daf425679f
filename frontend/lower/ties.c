/* ties.c - undoes what an exporter did to tensors of the network, where that is exact.
 *
 * The TorchScript exporter keeps one of several equal initializers and turns the others into Identity nodes that read
 * it; the optimizer of torch.onnx (dynamo) makes all nodes read the same initializer. In a network with fresh weights,
 * the scales and running variances of all BatchNormalizations of the same size become one tensor, and so do those of
 * all LayerNormalizations. dynamo also removes biases that are zero, and writes a weight that is read as it is and
 * transposed as two tensors.
 *
 * The tensors that are separated again are
 *   operands                      that the signature of the program shows to be another tensor (signature.c)
 *   results of an Identity        that reads a float initializer of which several names are read. An Identity of the
 *                                 network itself has a generated name, or metadata declares the initializer.
 *   running statistics            that something else or several modules read too. Modules are identified by the four
 *                                 tensors that they read; one module may be used several times.
 * Other initializers that several nodes read directly are shared weights. Removed biases are zeros again, and copies
 * are computed from the tensor that they were copied from, if the values show how. The importer and the exporter of
 * trained values use the same table, so a tensor has the same name in both. */
#include "frontend/lower/lower.h"
#include "frontend/read/external.h"

#include <string.h>

enum { MEAN = 3, VARIANCE = 4 }; /* operands of BatchNormalization */

typedef struct tensor { /* of the network */
    bool elsewhere;     /* read as anything but a running statistic */
    const char *owner;  /* module that keeps the original as its statistic; NULL: none so far */
} tensor;

typedef struct alias { /* a name of a float initializer: its own, or that of an Identity */
    const char *name;
    size_t initializer;
    bool read, elsewhere;
    tensor *tensor;
} alias;

typedef struct node_ties {
    const onnx_tie **at; /* by operand */
    size_t count;
    bool renames; /* an Identity */
} node_ties;

struct onnx_ties {
    onnx_file *file;
    const Onnx__GraphProto *graph;
    strmap *declarations;
    diag *diag;
    arena *arena;
    const onnx_signature *signature;
    VEC(alias *) aliases;
    strmap *by_name;    /* name -> alias * */
    size_t *names_read; /* by initializer: number of its names that are read */
    strmap *modules;    /* module -> onnx_tie * of its statistic */
    strmap *used_names; /* names in the graph; NULL: not collected yet */
    strmap *named;      /* tensor of the signature -> onnx_tie * */
    node_ties *nodes;
    onnx_tie **first;       /* by initializer; the last: of zeros */
    onnx_derived **derived; /* by initializer */
    bool untie;
};

static bool is_operator(const Onnx__NodeProto *n, const char *name)
{
    return onnx_is_default_domain(n->domain) && strcmp(n->op_type, name) == 0;
}

static bool is_batch_norm(const Onnx__NodeProto *n)
{
    return is_operator(n, "BatchNormalization") && n->n_input > VARIANCE;
}

/* ---- names of initializers --------------------------------------------------------------------- */

static void add_alias(onnx_ties *t, const char *name, size_t initializer, tensor *of)
{
    alias *a = arena_alloc(t->arena, sizeof *a);
    *a = (alias){.name = name, .initializer = initializer, .tensor = of};
    strmap_put(t->by_name, name, a);
    vec_push(t->arena, &t->aliases, a);
}

/* The initializer's name that an Identity created by an exporter reads; NULL: any other node. */
static const alias *merged(const onnx_ties *t, const Onnx__NodeProto *n)
{
    if (!is_operator(n, "Identity") || n->n_input != 1 || n->n_output != 1) return NULL;
    const alias *a = strmap_get(t->by_name, n->input[0]);
    bool operation = !a || onnx_is_generated(n->output[0]) ||
                     strmap_get(t->declarations, t->graph->initializer[a->initializer]->name);
    return operation ? NULL : a;
}

static void find_aliases(onnx_ties *t)
{
    const Onnx__GraphProto *g = t->graph;
    for (size_t i = 0; i < g->n_initializer; i++)
        if (ir_dtype_is_float(onnx_type_dtype(g->initializer[i]->data_type)))
            add_alias(t, g->initializer[i]->name, i, arena_alloc(t->arena, sizeof(tensor)));
    for (size_t i = 0; i < g->n_node && t->aliases.count; i++) {
        const alias *a = merged(t, g->node[i]);
        if (a) add_alias(t, g->node[i]->output[0], a->initializer, a->tensor);
    }
}

static void read_name(onnx_ties *t, const char *name, bool elsewhere)
{
    alias *a = strmap_get(t->by_name, name);
    if (!a) return;
    t->names_read[a->initializer] += !a->read;
    a->read = true;
    a->elsewhere |= elsewhere;
}

/* Graph outputs do not count as readers: they show the tensor but do not need one of their own. */
static void read_graph(onnx_ties *t, const Onnx__GraphProto *g)
{
    for (size_t i = 0; i < g->n_node; i++) {
        const Onnx__NodeProto *n = g->node[i];
        size_t statistics = is_batch_norm(n) ? MEAN : is_operator(n, "Shape") ? 0 : n->n_input;
        for (size_t k = 0; k < n->n_input && !merged(t, n); k++) read_name(t, n->input[k], k < statistics);
        for (size_t k = 0; k < n->n_attribute; k++) {
            if (n->attribute[k]->g) read_graph(t, n->attribute[k]->g);
            for (size_t j = 0; j < n->attribute[k]->n_graphs; j++) read_graph(t, n->attribute[k]->graphs[j]);
        }
    }
}

/* ---- separation -------------------------------------------------------------------------------- */

static onnx_tie **list_of(const onnx_ties *t, size_t initializer)
{
    return &t->first[initializer == SIZE_MAX ? t->graph->n_initializer : initializer];
}

static onnx_tie *new_tie(onnx_ties *t, const char *name, size_t initializer)
{
    onnx_tie *tie = arena_alloc(t->arena, sizeof *tie), **first = list_of(t, initializer);
    *tie = (onnx_tie){.name = name, .initializer = initializer, .next = *first};
    *first = tie;
    return tie;
}

static void put_tie(onnx_ties *t, size_t node, size_t operand, const onnx_tie *tie)
{
    node_ties *n = &t->nodes[node];
    const size_t inputs = t->graph->node[node]->n_input, count = operand < inputs ? inputs : operand + 1;
    if (n->count < count) {
        const onnx_tie **at = arena_array(t->arena, count, sizeof(onnx_tie *));
        if (n->count) memcpy(at, n->at, n->count * sizeof(onnx_tie *));
        n->at = at;
        n->count = count;
    }
    n->at[operand] = tie;
}

/* Statistics are separated even without `untie`. */
static void separate_aliases(onnx_ties *t)
{
    for (size_t i = 0; i < t->graph->n_node; i++) {
        const Onnx__NodeProto *n = t->graph->node[i];
        alias *a = merged(t, n) ? strmap_get(t->by_name, n->output[0]) : NULL;
        if (!a || !a->read || t->names_read[a->initializer] < 2 || (a->elsewhere && !t->untie)) continue;
        put_tie(t, i, 0, new_tie(t, a->name, a->initializer));
        t->nodes[i].renames = true;
        a->tensor = arena_alloc(t->arena, sizeof *a->tensor);
    }
    for (size_t i = 0; i < t->aliases.count; i++)
        t->aliases.items[i]->tensor->elsewhere |= t->aliases.items[i]->elsewhere;
}

static strmap *names_of(const Onnx__GraphProto *g, arena *a)
{
    strmap *names = strmap_new(a);
    for (size_t i = 0; i < g->n_initializer; i++) strmap_put(names, g->initializer[i]->name, names);
    for (size_t i = 0; i < g->n_input; i++) strmap_put(names, g->input[i]->name, names);
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i]->n_output; k++) strmap_put(names, g->node[i]->output[k], names);
    return names;
}

/* Named after the node, because the initializer is named after something else. */
static const char *statistic_name(onnx_ties *t, size_t node, int operand)
{
    const char *own = t->graph->node[node]->name, *kind = operand == MEAN ? "running_mean" : "running_var";
    const char *base = *own ? own : arena_printf(t->arena, "BatchNormalization_%zu", node);
    const char *name = arena_printf(t->arena, "%s.%s", base, kind);
    if (!t->used_names) t->used_names = names_of(t->graph, t->arena);
    if (strmap_get(t->used_names, name)) name = arena_printf(t->arena, "%s.%zu.%s", base, node, kind);
    while (strmap_get(t->used_names, name)) name = arena_printf(t->arena, "%s.s", name);
    strmap_put(t->used_names, name, t);
    return name;
}

/* Text that identifies a module: equal for nodes that use the same module. */
static const char *module_of(onnx_ties *t, size_t node, int operand, bool merged_with_parameter)
{
    const char *text = arena_printf(t->arena, "%d", operand);
    if (merged_with_parameter) return arena_printf(t->arena, "%s %zu", text, node);
    for (int i = 1; i <= VARIANCE; i++) {
        const char *name = t->graph->node[node]->input[i];
        const alias *a = strmap_get(t->by_name, name);
        text = a ? arena_printf(t->arena, "%s %p", text, (void *)a->tensor)
                 : arena_printf(t->arena, "%s '%s'", text, name);
    }
    return text;
}

static void separate_statistic(onnx_ties *t, size_t node, int operand)
{
    const alias *a = strmap_get(t->by_name, t->graph->node[node]->input[operand]);
    if (!a || onnx_tie_at(t, node, (size_t)operand)) return;
    const char *module = module_of(t, node, operand, a->tensor->elsewhere);
    if (!a->tensor->elsewhere && !a->tensor->owner) a->tensor->owner = module;
    if (a->tensor->owner && strcmp(a->tensor->owner, module) == 0) return;
    onnx_tie *tie = strmap_get(t->modules, module);
    if (!tie) {
        tie = new_tie(t, statistic_name(t, node, operand), a->initializer);
        strmap_put(t->modules, module, tie);
    }
    put_tie(t, node, (size_t)operand, tie);
}

/* ---- tensors of the signature -------------------------------------------------------------------- */

static bool is_statistic(const onnx_ties *t, const onnx_reading *r)
{
    return is_batch_norm(t->graph->node[r->node]) && (r->operand == MEAN || r->operand == VARIANCE);
}

static void declare(onnx_ties *t, const onnx_spec *s)
{
    static const onnx_declared kinds[] = {ONNX_DECLARED_CONSTANT, ONNX_DECLARED_PARAMETER};
    strmap_put(t->declarations, s->target, (void *)(uintptr_t)&kinds[s->parameter]);
}

static void separate_merged(onnx_ties *t, const onnx_reading *r)
{
    const Onnx__GraphProto *g = t->graph;
    const size_t *initializer = strmap_get(t->signature->initializers, g->node[r->node]->input[r->operand]);
    onnx_tie *tie = strmap_get(t->named, r->spec->target);
    if (!initializer || !(t->untie || is_statistic(t, r))) return;
    if (tie && tie->initializer != *initializer) return;
    if (!tie) {
        tie = new_tie(t, r->spec->target, *initializer);
        strmap_put(t->named, tie->name, tie);
        declare(t, r->spec);
    }
    put_tie(t, r->node, (size_t)r->operand, tie);
}

static int64_t int_attribute(const Onnx__NodeProto *n, const char *name, int64_t otherwise)
{
    for (size_t i = 0; i < n->n_attribute; i++)
        if (strcmp(n->attribute[i]->name, name) == 0) return n->attribute[i]->i;
    return otherwise;
}

/* The number of elements of the bias that belongs to this weight; 0: unknown. */
static int64_t bias_size(const Onnx__NodeProto *n, const Onnx__TensorProto *weight)
{
    int64_t size = 0;
    if (weight->n_dims < 2) return 0;
    if (is_operator(n, "Conv")) return weight->dims[0];
    if (is_operator(n, "Gemm")) return weight->dims[int_attribute(n, "transB", 0) ? 0 : 1];
    if (is_operator(n, "ConvTranspose")) checked_mul(weight->dims[1], int_attribute(n, "group", 1), &size);
    return size;
}

static onnx_tie *zeros(onnx_ties *t, const char *name, const Onnx__TensorProto *weight, int64_t count)
{
    enum { LIMIT = 1 << 24 };
    const ir_dtype dtype = onnx_type_dtype(weight->data_type);
    if (count < 1 || count > LIMIT || !ir_dtype_is_float(dtype)) return NULL;
    onnx_tensor *z = arena_alloc(t->arena, sizeof *z);
    *z = (onnx_tensor){.name = name,
                       .type = (onnx_type)weight->data_type,
                       .dtype = dtype,
                       .rank = 1,
                       .dims = {count},
                       .count = count,
                       .size = (size_t)count * ir_dtype_size(dtype)};
    onnx_tie *tie = new_tie(t, name, SIZE_MAX);
    tie->zeros = z;
    return tie;
}

/* A bias that other nodes still read is in the file. */
static onnx_tie *stored(onnx_ties *t, const char *name)
{
    onnx_tie *tie = arena_alloc(t->arena, sizeof *tie);
    *tie = (onnx_tie){.name = name};
    return tie;
}

static void restore_dropped(onnx_ties *t, const onnx_reading *r)
{
    const Onnx__NodeProto *n = t->graph->node[r->node];
    const size_t *weight = n->n_input > 1 ? strmap_get(t->signature->initializers, n->input[1]) : NULL;
    const bool room = n->n_input == 2 || (n->n_input == 3 && !*n->input[2]);
    onnx_tie *tie = strmap_get(t->named, r->spec->target);
    if (!t->untie || !weight || !room) return;
    const Onnx__TensorProto *w = t->graph->initializer[*weight];
    const int64_t count = bias_size(n, w);
    if (tie && (!tie->zeros || tie->zeros->count != count)) return;
    if (!tie) tie = r->spec->whole ? stored(t, r->spec->target) : zeros(t, r->spec->target, w, count);
    if (!tie) return;
    if (tie->zeros) strmap_put(t->named, tie->name, tie);
    declare(t, r->spec);
    put_tie(t, r->node, (size_t)r->operand, tie);
}

/* ---- copies -------------------------------------------------------------------------------------- */

static ampc_status read_part(const onnx_ties *t, const onnx_tensor *from, size_t offset, size_t size, void *out)
{
    if (!from->path) {
        memcpy(out, (const char *)from->bytes + offset, size);
        return AMPC_OK;
    }
    const int64_t at = from->offset + (int64_t)offset;
    if (strcmp(from->path, t->file->path) == 0) return onnx_bytes_copy(&t->file->bytes, (size_t)at, size, t->diag, out);
    return onnx_external_read(t->file, (onnx_range){from->path, at}, size, t->diag, out);
}

enum { PART = 1 << 20 }; /* bytes that are compared at once */

static ampc_status compare(const onnx_ties *t, const onnx_tensor *x, const onnx_tensor *y, char *buffers, bool *equal)
{
    *equal = x->size == y->size;
    for (size_t done = 0, n; done < x->size && *equal; done += n) {
        n = x->size - done < PART ? x->size - done : PART;
        TRY(read_part(t, x, done, n, buffers));
        TRY(read_part(t, y, done, n, buffers + PART));
        *equal = memcmp(buffers, buffers + PART, n) == 0;
    }
    return AMPC_OK;
}

/* Compares row i of x with column i of y. */
static ampc_status compare_transposed(const onnx_ties *t, const onnx_tensor *x, const onnx_tensor *y, char *buffers,
                                      bool *equal)
{
    const size_t element = ir_dtype_size(x->dtype), rows = (size_t)x->dims[0], columns = (size_t)x->dims[1];
    const size_t most = PART / (columns * element);
    *equal = most > 0;
    for (size_t row = 0, n; row < rows && *equal; row += n) {
        n = rows - row < most ? rows - row : most;
        TRY(read_part(t, x, row * columns * element, n * columns * element, buffers));
        for (size_t c = 0; c < columns && *equal; c++) {
            TRY(read_part(t, y, (c * rows + row) * element, n * element, buffers + PART));
            for (size_t i = 0; i < n && *equal; i++)
                *equal = memcmp(buffers + (i * columns + c) * element, buffers + PART + i * element, element) == 0;
        }
    }
    return AMPC_OK;
}

/* Whether the sizes other than 1 are the same, in this order. */
static bool same_sizes(const onnx_tensor *x, const onnx_tensor *y)
{
    int i = 0, k = 0;
    for (;; i++, k++) {
        while (i < x->rank && x->dims[i] == 1) i++;
        while (k < y->rank && y->dims[k] == 1) k++;
        if (i == x->rank || k == y->rank) return i == x->rank && k == y->rank;
        if (x->dims[i] != y->dims[k]) return false;
    }
}

/* A matrix that is its own transpose may be either, so it is neither. */
static ampc_status derive(onnx_ties *t, const onnx_copy *c, char *buffers)
{
    onnx_tensor x, y;
    bool same = false, transposed = false;
    TRY(onnx_tensor_describe(t->arena, t->file, t->graph->initializer[c->source], t->diag, &x));
    TRY(onnx_tensor_describe(t->arena, t->file, t->graph->initializer[c->initializer], t->diag, &y));
    if (x.dtype != y.dtype || x.size != y.size || !x.count) return AMPC_OK;
    const bool swapped = x.rank == 2 && y.rank == 2 && x.dims[0] == y.dims[1] && x.dims[1] == y.dims[0];
    if (same_sizes(&x, &y)) TRY(compare(t, &x, &y, buffers, &same));
    if (swapped) TRY(compare_transposed(t, &x, &y, buffers, &transposed));
    if (same && transposed && x.dims[0] > 1) return AMPC_OK;
    if (!same && !transposed) return AMPC_OK;
    onnx_derived *d = arena_alloc(t->arena, sizeof *d);
    *d = (onnx_derived){c->initializer, c->source, transposed};
    t->derived[c->initializer] = d;
    return AMPC_OK;
}

/* ---- the table --------------------------------------------------------------------------------- */

static ampc_status undo_signature(onnx_ties *t)
{
    const onnx_signature *s = t->signature;
    char *buffers = NULL;
    for (size_t i = 0; i < s->merged.count; i++) separate_merged(t, &s->merged.items[i]);
    for (size_t i = 0; i < s->dropped.count; i++) restore_dropped(t, &s->dropped.items[i]);
    for (size_t i = 0; i < s->copies.count && t->untie; i++) {
        if (!buffers) buffers = arena_alloc(t->arena, 2 * PART);
        TRY(derive(t, &s->copies.items[i], buffers));
    }
    return AMPC_OK;
}

ampc_status onnx_ties_find(onnx_file *f, bool untie, strmap *declarations, diag *d, arena *a, onnx_ties **out)
{
    const Onnx__GraphProto *g = f->model->graph;
    onnx_ties *t = arena_alloc(a, sizeof *t);
    *t = (onnx_ties){.file = f, .graph = g, .declarations = declarations, .diag = d, .arena = a, .untie = untie};
    t->by_name = strmap_new(a);
    t->modules = strmap_new(a);
    t->named = strmap_new(a);
    t->names_read = arena_array(a, g->n_initializer + 1, sizeof *t->names_read);
    t->first = arena_array(a, g->n_initializer + 1, sizeof *t->first);
    t->derived = arena_array(a, g->n_initializer + 1, sizeof *t->derived);
    t->nodes = arena_array(a, g->n_node + 1, sizeof *t->nodes);
    t->signature = onnx_signature_read(g, a);
    find_aliases(t);
    read_graph(t, g);
    separate_aliases(t);
    TRY(undo_signature(t));
    for (size_t i = 0; i < g->n_node; i++)
        for (int operand = MEAN; operand <= VARIANCE && is_batch_norm(g->node[i]); operand++)
            separate_statistic(t, i, operand);
    *out = t;
    return AMPC_OK;
}

const onnx_tie *onnx_tie_at(const onnx_ties *t, size_t node, size_t operand)
{
    return operand < t->nodes[node].count ? t->nodes[node].at[operand] : NULL;
}

size_t onnx_ties_operands(const onnx_ties *t, size_t node)
{
    const size_t inputs = t->graph->node[node]->n_input;
    return t->nodes[node].count > inputs ? t->nodes[node].count : inputs;
}

bool onnx_ties_rename(const onnx_ties *t, size_t node) { return t->nodes[node].renames; }

const onnx_tie *onnx_ties_of(const onnx_ties *t, size_t initializer) { return *list_of(t, initializer); }

const onnx_derived *onnx_ties_derived(const onnx_ties *t, size_t initializer) { return t->derived[initializer]; }

const onnx_signature *onnx_ties_signature(const onnx_ties *t) { return t->signature; }

/* ---- the importer ------------------------------------------------------------------------------ */

static void bind_tie(onnx_importer *im, onnx_scope *scope, const onnx_tie *tie)
{
    onnx_binding *b = arena_alloc(im->scratch, sizeof *b);
    if (tie->zeros) {
        onnx_tensor *z = arena_alloc(im->scratch, sizeof *z);
        *z = *tie->zeros;
        z->bytes = arena_alloc(im->arena, z->size);
        *b = (onnx_binding){.initializer = z, .merged = ""};
    } else {
        const char *name = scope->graph->initializer[tie->initializer]->name;
        const onnx_binding *merged = onnx_find(scope, name);
        *b = *merged;
        b->merged = name;
    }
    strmap_put(scope->bindings, tie->name, b);
}

static ampc_status bind_derived(onnx_importer *im, onnx_scope *scope, const onnx_derived *d)
{
    const Onnx__TensorProto *to = scope->graph->initializer[d->initializer];
    ir_value *v = onnx_value(im, scope, scope->graph->initializer[d->source]->name);
    if (!v) return diag_status(im->diag);
    im->builder.loc = (ir_loc){
        .file = im->path, .op = d->transposed ? "Transpose" : "Reshape", .node = arena_intern(im->arena, to->name)};
    v = d->transposed ? ir_transpose(&im->builder, v, (const int64_t[]){1, 0})
                      : ir_reshape(&im->builder, v, to->dims, (int)to->n_dims);
    if (!v) return diag_status(im->diag);
    if (v->kind == IR_VALUE_RESULT) ir_value_rename(v, to->name);
    onnx_bind(im, scope, to->name, (onnx_item){.value = v});
    return AMPC_OK;
}

ampc_status onnx_ties_bind(onnx_importer *im, onnx_scope *scope)
{
    const onnx_ties *t = im->ties;
    for (size_t i = 0; i <= t->graph->n_initializer; i++)
        for (const onnx_tie *tie = t->first[i]; tie; tie = tie->next) bind_tie(im, scope, tie);
    for (size_t i = 0; i < t->graph->n_initializer; i++)
        if (t->derived[i]) TRY(bind_derived(im, scope, t->derived[i]));
    return AMPC_OK;
}

const Onnx__NodeProto *onnx_ties_node(const onnx_importer *im, size_t node)
{
    const Onnx__NodeProto *n = im->ties->graph->node[node];
    const size_t count = onnx_ties_operands(im->ties, node);
    if (!im->ties->nodes[node].at) return n;
    Onnx__NodeProto *copy = arena_alloc(im->scratch, sizeof *copy);
    *copy = *n;
    copy->n_input = count;
    copy->input = arena_array(im->scratch, count, sizeof *copy->input);
    for (size_t i = 0; i < count; i++) {
        const onnx_tie *tie = onnx_tie_at(im->ties, node, i);
        copy->input[i] = tie ? (char *)(uintptr_t)tie->name : n->input[i];
    }
    return copy;
}
