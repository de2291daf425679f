/* check.c - checks of a graph before any node is lowered: names, order, operators.
 *
 * Names are assigned once, also with respect to enclosing graphs. Nodes that are not sorted are sorted (order.c).
 * Unsupported operators are counted and reported together. */
#include "frontend/lower/lower.h"

#include <stdio.h>
#include <string.h>

const custom_op *onnx_custom_of(const onnx_importer *im, const Onnx__NodeProto *p)
{
    const Onnx__ModelProto *m = im->file->model;
    for (size_t i = 0; i < m->n_opset_import; i++)
        if (strcmp(m->opset_import[i]->domain, p->domain) == 0)
            return custom_find(im->options->custom, p->domain, p->op_type, m->opset_import[i]->version);
    return NULL;
}

const onnx_row *onnx_find_row(const onnx_importer *im, const Onnx__NodeProto *p)
{
    if (!onnx_is_default_domain(p->domain) && onnx_custom_of(im, p)) return im->custom;
    if (onnx_function_find(im, p)) return im->function;
    char other[2 * 1024 + 8]; /* names have at most ONNX_MAX_NAME bytes */
    snprintf(other, sizeof other, "%s:%s", p->domain, p->op_type);
    if (!onnx_is_default_domain(p->domain)) return strmap_get(im->rows, other);
    const onnx_row *found = NULL, *row = strmap_get(im->rows, p->op_type);
    for (; row && row->op && strcmp(row->op, p->op_type) == 0; row++)
        if (row->since <= im->opset) found = row;
    return found;
}

const char *onnx_node_name(onnx_importer *im, const onnx_scope *scope, const Onnx__NodeProto *p, int index)
{
    const char *path = scope->path ? scope->path : "";
    if (*p->name) return arena_printf(im->arena, "%s%s", path, p->name);
    return arena_printf(im->arena, "%s%s_%d", path, p->op_type, index);
}

/* ---- names ----------------------------------------------------------------------------------- */

typedef struct checker {
    onnx_importer *im;
    const onnx_scope *scope;
    strmap *producers; /* name -> index of its node + 1, NO_NODE or INPUT_ONLY */
    size_t problems;
} checker;

#define NO_NODE UINTPTR_MAX          /* graph input or initializer */
#define INPUT_ONLY (UINTPTR_MAX - 1) /* graph input that has no initializer so far */

static diag_loc place_of(const checker *c, const Onnx__NodeProto *p, size_t index)
{
    const ir_loc *at = &c->im->builder.loc; /* of the node whose subgraph is checked */
    if (!p) return diag_node(c->im->path, at->node, at->op);
    return diag_node(c->im->path, onnx_node_name(c->im, c->scope, p, (int)index), p->op_type);
}

static void report(checker *c, const Onnx__NodeProto *p, size_t index, const char *text, const char *name)
{
    diag_error(c->im->diag, AMPC_REJECTED, place_of(c, p, index), text, name);
    c->problems++;
}

static bool enclosing_value(const checker *c, const char *name)
{
    return c->scope->outer && onnx_find(c->scope->outer, name);
}

static void define_inputs(checker *c)
{
    const Onnx__GraphProto *g = c->scope->graph;
    for (size_t i = 0; i < g->n_input; i++) {
        const char *name = g->input[i]->name;
        if (!*name) report(c, NULL, 0, "a graph input has no name%s", "");
        else if (strmap_get(c->producers, name)) report(c, NULL, 0, "duplicate graph input '%s'", name);
        strmap_put(c->producers, name, (void *)INPUT_ONLY);
    }
    strmap_reserve(c->producers, g->n_input + g->n_initializer + g->n_node);
    for (size_t i = 0; i < g->n_initializer; i++) {
        const char *name = g->initializer[i]->name;
        bool input = strmap_get(c->producers, name) == (void *)INPUT_ONLY; /* an input's default value */
        if (!*name) report(c, NULL, 0, "an initializer has no name%s", "");
        else if (!input && !strmap_enter(c->producers, name, (void *)NO_NODE))
            report(c, NULL, 0, "duplicate initializer '%s'", name);
        else if (enclosing_value(c, name))
            report(c, NULL, 0, "initializer '%s' shadows a value of an enclosing graph", name);
        if (input) strmap_put(c->producers, name, (void *)NO_NODE);
    }
}

static void define_results(checker *c)
{
    const Onnx__GraphProto *g = c->scope->graph;
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i]->n_output; k++) {
            const char *name = g->node[i]->output[k];
            if (!*name) continue;
            if (!strmap_enter(c->producers, name, (void *)(i + 1)))
                report(c, g->node[i], i, "output '%s' is already the name of another value", name);
            else if (enclosing_value(c, name))
                report(c, g->node[i], i, "output '%s' shadows a value of an enclosing graph", name);
        }
}

/* ---- uses and order -------------------------------------------------------------------------- */

static void check_uses(checker *c)
{
    const Onnx__GraphProto *g = c->scope->graph;
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i]->n_input; k++) {
            const char *name = g->node[i]->input[k];
            if (*name && !strmap_get(c->producers, name) && !enclosing_value(c, name))
                report(c, g->node[i], i, "reads '%s', which is not defined", name);
        }
    for (size_t i = 0; i < g->n_output; i++) {
        const char *name = g->output[i]->name;
        if (!strmap_get(c->producers, name) && !enclosing_value(c, name))
            report(c, NULL, 0, "graph output '%s' is not defined", name);
    }
}

static void sort(checker *c)
{
    const Onnx__GraphProto *g = c->scope->graph;
    bool sorted;
    const size_t cyclic = onnx_sort_nodes(c->im, g, c->producers, &sorted);
    if (cyclic != SIZE_MAX)
        report(c, g->node[cyclic], cyclic, "is part of a cycle through '%s'", g->node[cyclic]->output[0]);
    else if (!sorted)
        diag_remark(c->im->diag, place_of(c, NULL, 0), "the nodes of the graph are not sorted: they are put in order");
}

/* ---- operators ------------------------------------------------------------------------------- */

typedef struct unsupported {
    const Onnx__NodeProto *first;
    size_t index;
    int count;
} unsupported;

static void list_unsupported(checker *c)
{
    const Onnx__GraphProto *g = c->scope->graph;
    onnx_importer *im = c->im;
    strmap *by_op = strmap_new(im->scratch);
    VEC(unsupported *) ops = {0};
    for (size_t i = 0; i < g->n_node; i++) {
        const Onnx__NodeProto *p = g->node[i];
        if (onnx_find_row(im, p)) continue;
        const char *key = arena_printf(im->scratch, "%s\x1f%s", p->domain, p->op_type);
        unsupported *u = strmap_get(by_op, key);
        if (!u) {
            u = arena_alloc(im->scratch, sizeof *u);
            *u = (unsupported){p, i, 0};
            strmap_put(by_op, key, u);
            vec_push(im->scratch, &ops, u);
        }
        u->count++;
    }
    for (size_t i = 0; i < ops.count; i++) {
        const unsupported *u = ops.items[i];
        const Onnx__NodeProto *p = u->first;
        const char *domain = onnx_is_default_domain(p->domain) ? "" : p->domain;
        diag_loc loc = diag_node(im->path, onnx_node_name(im, c->scope, p, (int)u->index), p->op_type);
        const onnx_row *oldest = *domain ? NULL : strmap_get(im->rows, p->op_type);
        if (custom_find(im->options->custom, domain, p->op_type, INT64_MAX))
            diag_error(im->diag, AMPC_UNSUPPORTED, loc,
                       "operator %s::%s is not registered for the version of its domain that the model imports", domain,
                       p->op_type);
        else if (oldest)
            diag_error(im->diag, AMPC_UNSUPPORTED, loc, "operator %s needs opset %d or later, the model has %d",
                       p->op_type, oldest->since, im->opset);
        else
            diag_error(im->diag, AMPC_UNSUPPORTED, loc, "operator %s%s%s is not supported (%d node%s)", domain,
                       *domain ? "." : "", p->op_type, u->count, u->count == 1 ? "" : "s");
        c->problems++;
    }
}

ampc_status onnx_check_graph(onnx_importer *im, const onnx_scope *scope)
{
    checker c = {im, scope, strmap_new_borrowing(im->scratch), 0};
    if (scope->graph->n_sparse_initializer) {
        diag_error(im->diag, AMPC_UNSUPPORTED, DIAG_FILE(im->path), "sparse initializers are not supported");
        c.problems++;
    }
    define_inputs(&c);
    define_results(&c);
    check_uses(&c);
    if (!c.problems) sort(&c);
    if (!c.problems && !im->options->opaque) list_unsupported(&c);
    return c.problems ? diag_status(im->diag) : AMPC_OK;
}
