/* ties.c - separates tensors that an exporter merged because their values were equal.
 *
 * The TorchScript exporter keeps one of the equal initializers and turns the others into Identity nodes that read it;
 * the optimizer of torch.onnx (dynamo) makes all nodes read the same initializer. In a network with fresh weights,
 * the scales and running variances of all BatchNormalizations of the same size become one tensor.
 *
 * The tensors that are separated again are
 *   results of an Identity        that reads a float initializer of which several names are read. An Identity of the
 *                                 network itself has a generated name, or metadata declares the initializer.
 *   running statistics            that something else or several modules read too. Modules are identified by the four
 *                                 tensors that they read; one module may be used several times.
 * Other initializers that several nodes read directly are shared weights. The importer and the exporter of trained
 * values use the same table, so a tensor has the same name in both. */
#include "frontend/lower/lower.h"

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

struct onnx_ties {
    const Onnx__GraphProto *graph;
    const strmap *declarations;
    arena *arena;
    VEC(alias *) aliases;
    strmap *by_name;    /* name -> alias * */
    size_t *names_read; /* by initializer: number of its names that are read */
    strmap *modules;    /* module -> onnx_tie * of its statistic */
    strmap *used_names; /* names in the graph; NULL: not collected yet */
    onnx_tie *(*at)[3]; /* by node: of an Identity, a mean, a variance */
    onnx_tie **first;   /* by initializer */
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

static onnx_tie *new_tie(onnx_ties *t, const char *name, size_t initializer)
{
    onnx_tie *tie = arena_alloc(t->arena, sizeof *tie);
    *tie = (onnx_tie){.name = name, .initializer = initializer, .next = t->first[initializer]};
    t->first[initializer] = tie;
    return tie;
}

/* Statistics are separated even without `untie`. */
static void separate_aliases(onnx_ties *t, bool untie)
{
    for (size_t i = 0; i < t->graph->n_node; i++) {
        const Onnx__NodeProto *n = t->graph->node[i];
        alias *a = merged(t, n) ? strmap_get(t->by_name, n->output[0]) : NULL;
        if (!a || !a->read || t->names_read[a->initializer] < 2 || (a->elsewhere && !untie)) continue;
        t->at[i][0] = new_tie(t, a->name, a->initializer);
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
    if (!a) return;
    const char *module = module_of(t, node, operand, a->tensor->elsewhere);
    if (!a->tensor->elsewhere && !a->tensor->owner) a->tensor->owner = module;
    if (a->tensor->owner && strcmp(a->tensor->owner, module) == 0) return;
    onnx_tie *tie = strmap_get(t->modules, module);
    if (!tie) {
        tie = new_tie(t, statistic_name(t, node, operand), a->initializer);
        strmap_put(t->modules, module, tie);
    }
    t->at[node][operand - MEAN + 1] = tie;
}

/* ---- the table --------------------------------------------------------------------------------- */

onnx_ties *onnx_ties_find(const Onnx__GraphProto *g, bool untie, const strmap *declarations, arena *a)
{
    onnx_ties *t = arena_alloc(a, sizeof *t);
    *t = (onnx_ties){.graph = g, .declarations = declarations, .arena = a};
    t->by_name = strmap_new(a);
    t->modules = strmap_new(a);
    t->names_read = arena_array(a, g->n_initializer + 1, sizeof *t->names_read);
    t->first = arena_array(a, g->n_initializer + 1, sizeof *t->first);
    t->at = arena_array(a, g->n_node + 1, sizeof *t->at);
    find_aliases(t);
    read_graph(t, g);
    separate_aliases(t, untie);
    for (size_t i = 0; i < g->n_node; i++)
        for (int operand = MEAN; operand <= VARIANCE && is_batch_norm(g->node[i]); operand++)
            separate_statistic(t, i, operand);
    return t;
}

onnx_tie *onnx_tie_at(const onnx_ties *t, size_t node, int operand)
{
    if (operand == 0) return t->at[node][0];
    return operand == MEAN || operand == VARIANCE ? t->at[node][operand - MEAN + 1] : NULL;
}

const onnx_tie *onnx_ties_of(const onnx_ties *t, size_t initializer) { return t->first[initializer]; }
