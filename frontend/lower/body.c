/* body.c - graphs that are lowered in place of a node: the branch of an If, the iterations of Loop and Scan, the items
 * of SequenceMap, and the bodies of functions. Their nodes become part of the current graph.
 *
 * A file of a few kilobytes can ask for any number of copies, so their nodes have a budget. */
#include "frontend/lower/lower.h"

#include <string.h>

enum { MAX_PATH = 256 };

bool onnx_body_open(onnx_node *n, const Onnx__GraphProto *g, onnx_body *b)
{
    onnx_importer *im = n->importer;
    *b = (onnx_body){.node = n, .n_in = g ? (int)g->n_input : 0, .n_out = g ? (int)g->n_output : 0};
    if (!g || n->failed) {
        onnx_reject(n, "its subgraph is missing");
        return false;
    }
    b->scope = (onnx_scope){.graph = g,
                            .outer = n->scope,
                            .bindings = strmap_new(im->scratch),
                            .node = n->index,
                            .call = n->scope->call,
                            .path = n->scope->path};
    n->failed |= onnx_check_graph(im, &b->scope) != AMPC_OK || onnx_initializers_bind(im, &b->scope) != AMPC_OK;
    b->initializers = b->scope.bindings;
    return !n->failed;
}

/* Whether an item may be the input that the body declares. */
static bool fits(const Onnx__ValueInfoProto *info, const onnx_item *item)
{
    const Onnx__TypeProto__Tensor *t = onnx_tensor_type(info);
    if (t && item->sequence) return false;
    return !t || !item->value || !t->elem_type || onnx_type_holder(t->elem_type) == item->value->type.dtype;
}

static void bind_inputs(onnx_body *b, onnx_scope *scope, const onnx_item *in)
{
    onnx_importer *im = b->node->importer;
    const Onnx__GraphProto *g = scope->graph;
    scope->bindings = strmap_new(im->scratch);
    for (size_t i = 0; i < g->n_initializer; i++) {
        const char *name = g->initializer[i]->name;
        strmap_put(scope->bindings, name, strmap_get(b->initializers, name));
    }
    for (int i = 0; i < b->n_in; i++) {
        const char *name = g->input[i]->name;
        if (!fits(g->input[i], &in[i])) onnx_reject(b->node, "input '%s' of its body has another type", name);
        onnx_bind(im, scope, name, in[i]);
        onnx_binding *bound = strmap_get(scope->bindings, name);
        bound->absent = bound->failed;
        bound->failed = false;
    }
}

/* Names are not shortened in the middle of the path, which would make them meaningless. */
static const char *shorten(onnx_importer *im, const char *path)
{
    const size_t length = path ? strlen(path) : 0;
    return length <= MAX_PATH ? path : arena_printf(im->scratch, "..%s", path + length - MAX_PATH);
}

bool onnx_body_lower(onnx_body *b, const char *path, const onnx_item *in, onnx_item *out)
{
    onnx_node *n = b->node;
    onnx_importer *im = n->importer;
    onnx_scope scope = b->scope;
    const ir_loc loc = n->b->loc;
    if (im->nesting == ONNX_MAX_NESTING) onnx_refuse(n, "bodies are nested more than %d deep", ONNX_MAX_NESTING);
    if (n->failed || !onnx_charge(n, (int64_t)scope.graph->n_node + 1)) return false;
    if (path) scope.path = shorten(im, path);
    bind_inputs(b, &scope, in);
    im->nesting++;
    n->failed = n->failed || !onnx_lower_graph(im, &scope);
    im->nesting--;
    n->b->loc = loc;
    for (int i = 0; i < b->n_out && !n->failed; i++) {
        out[i] = onnx_item_of(im, &scope, scope.graph->output[i]->name);
        n->failed |= !out[i].value && !out[i].sequence;
    }
    return !n->failed;
}
