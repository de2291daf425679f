/* lower_function.c - calls of model-local functions: the body of the function replaces the node.
 *
 * A function sees only its inputs. Its nodes have the operator set that it imports, and may refer to attributes of the
 * call, or their defaults. */
#include "frontend/lower/lower.h"

/* Attributes that the function does not declare are not read, and rejected like those of an operator. */
static void read_attributes(onnx_node *n, const Onnx__FunctionProto *f)
{
    for (size_t i = 0; i < f->n_attribute; i++) onnx_ignore(n, f->attribute[i]);
    for (size_t i = 0; i < f->n_attribute_proto; i++) onnx_ignore(n, f->attribute_proto[i]->name);
}

static bool check_call(onnx_node *n, const onnx_function *f)
{
    const Onnx__FunctionProto *p = f->proto;
    if (f->active) onnx_reject(n, "function %s calls itself", p->name);
    if ((size_t)n->n_in > p->n_input) onnx_reject(n, "has %d inputs, the function %zu", n->n_in, p->n_input);
    if ((size_t)n->n_out > p->n_output) onnx_reject(n, "has %d outputs, the function %zu", n->n_out, p->n_output);
    read_attributes(n, p);
    return !n->failed;
}

/* The body of the function in the scope of the call. Its names are checked at the first call. */
static bool open_body(onnx_node *n, onnx_function *f, const onnx_call *call, onnx_body *b)
{
    onnx_importer *im = n->importer;
    *b = (onnx_body){.node = n,
                     .scope = {.graph = f->body,
                               .bindings = strmap_new(im->scratch),
                               .call = call,
                               .path = arena_printf(im->scratch, "%s/", n->b->loc.node)},
                     .n_in = (int)f->body->n_input,
                     .n_out = (int)f->body->n_output};
    if (!f->checked) n->failed |= onnx_check_graph(im, &b->scope) != AMPC_OK;
    f->checked = true;
    return !n->failed;
}

static void put_results(onnx_node *n, const onnx_item *out)
{
    for (int i = 0; i < n->n_out && !n->failed; i++) {
        n->out[i] = out[i].value;
        n->out_sequence[i] = out[i].sequence;
    }
}

/* Operators stay opaque as a whole only if their form is that of the model's opset. */
static void enter(onnx_importer *im, const onnx_function *f)
{
    if (f->opset != im->opset) im->composites = NULL;
    im->opset = f->opset;
}

void onnx_lower_function(onnx_node *n)
{
    onnx_importer *im = n->importer;
    onnx_function *f = onnx_function_find(im, n->proto);
    const onnx_call call = {f, n->proto};
    const int opset = im->opset;
    const strmap *composites = im->composites;
    onnx_body b;
    if (!check_call(n, f)) return;
    onnx_item *in = arena_array(im->scratch, f->body->n_input + 1, sizeof *in);
    onnx_item *out = arena_array(im->scratch, f->body->n_output + 1, sizeof *out);
    for (int i = 0; i < n->n_in; i++) in[i] = (onnx_item){n->in[i], n->in_sequence[i]};
    f->active = true;
    enter(im, f);
    if (open_body(n, f, &call, &b)) onnx_body_lower(&b, b.scope.path, in, out);
    im->opset = opset;
    im->composites = composites;
    f->active = false;
    put_results(n, out);
}
