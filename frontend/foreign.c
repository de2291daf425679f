/* foreign.c - operators that are only carried along.
 *
 * A node that we do not lower keeps its attributes as the bytes that the file has for them. The
 * types of its results are those that the model declares. Values that its graphs (of If, Loop,
 * Scan) read from outside become operands, so that they stay alive and keep their type. */
#include "frontend/foreign.h"
#include "frontend/lower.h"
#include "frontend/wire.h"

#include <string.h>

/* ---- bytes as text --------------------------------------------------------------------------- */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *foreign_to_text(arena *a, const uint8_t *bytes, size_t n)
{
    char *text = arena_alloc(a, (n + 2) / 3 * 4 + 1), *to = text;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t group = (uint32_t)bytes[i] << 16;
        if (i + 1 < n) group |= (uint32_t)bytes[i + 1] << 8;
        if (i + 2 < n) group |= bytes[i + 2];
        for (size_t k = 0; k < 4; k++) *to++ = i + k <= n ? digits[group >> (18 - 6 * k) & 63] : '=';
    }
    return text;
}

onnx_bytes foreign_from_text(arena *a, const char *text)
{
    size_t length = strlen(text), n = 0, padding = 0;
    uint8_t *bytes = arena_alloc(a, length + 1);
    while (padding < 2 && padding < length && text[length - 1 - padding] == '=') padding++;
    if (length % 4) return (onnx_bytes){0};
    for (size_t i = 0; i < length; i += 4) {
        uint32_t group = 0;
        for (size_t k = 0; k < 4; k++) {
            bool pad = i + k >= length - padding;
            const char *digit = pad ? digits : strchr(digits, text[i + k]);
            if (!digit) return (onnx_bytes){0};
            group = group << 6 | (uint32_t)(digit - digits);
        }
        for (int k = 2; k >= 0; k--) bytes[n++] = (uint8_t)(group >> 8 * k);
    }
    return (onnx_bytes){.data = bytes, .size = n - padding};
}

/* ---- names of graphs within -------------------------------------------------------------------- */

foreign_names foreign_names_new(arena *a)
{
    return (foreign_names){.arena = a, .defined = strmap_new(a), .read = strmap_new(a)};
}

static void each_graph(foreign_names *f, const Onnx__NodeProto *n,
                       void (*visit)(foreign_names *f, const Onnx__GraphProto *g))
{
    for (size_t i = 0; i < n->n_attribute; i++) {
        const Onnx__AttributeProto *a = n->attribute[i];
        if (a->g) visit(f, a->g);
        for (size_t k = 0; k < a->n_graphs; k++) visit(f, a->graphs[k]);
    }
}

static void define_name(foreign_names *f, const char *name)
{
    strmap_put(f->defined, name, f);
    vec_push(f->arena, &f->own, name);
}

void foreign_define(foreign_names *f, const Onnx__GraphProto *g)
{
    for (size_t i = 0; i < g->n_input; i++) define_name(f, g->input[i]->name);
    for (size_t i = 0; i < g->n_initializer; i++) define_name(f, g->initializer[i]->name);
    for (size_t i = 0; i < g->n_node; i++) {
        const Onnx__NodeProto *n = g->node[i];
        for (size_t k = 0; k < n->n_output; k++) define_name(f, n->output[k]);
        each_graph(f, n, foreign_define);
    }
}

static void read_name(foreign_names *f, const char *name)
{
    if (!*name || strmap_get(f->defined, name) || strmap_get(f->read, name)) return;
    strmap_put(f->read, name, f);
    vec_push(f->arena, &f->free, name);
}

void foreign_read(foreign_names *f, const Onnx__GraphProto *g)
{
    for (size_t i = 0; i < g->n_node; i++) {
        for (size_t k = 0; k < g->node[i]->n_input; k++) read_name(f, g->node[i]->input[k]);
        each_graph(f, g->node[i], foreign_read);
    }
    for (size_t i = 0; i < g->n_output; i++) read_name(f, g->output[i]->name);
}

/* ---- versions -------------------------------------------------------------------------------- */

int foreign_changed(const char *op, int from, int to)
{
    static const struct {
        const char *op;
        int opset;
    } changes[] = {
#define CHANGED(op, opset) {#op, opset},
#include "frontend/foreign.def"
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        if (changes[i].opset > from && changes[i].opset <= to && strcmp(changes[i].op, op) == 0)
            return changes[i].opset;
    return 0;
}

/* ---- the bytes of the attributes --------------------------------------------------------------- */

enum { MODEL_GRAPH = 7, GRAPH_NODE = 1, NODE_ATTRIBUTE = 5 };

/* The field of that number, the index-th of its kind. The pre-scan has seen the file. */
static bool find_field(const uint8_t *p, const uint8_t *end, uint64_t number, size_t index, wire_field *out)
{
    while (p < end && wire_read_field(&p, end, out))
        if (out->number == number && index-- == 0) return true;
    return false;
}

/* Where the nodes of the graph lie in the file; NULL: it is not the model's own graph. */
static const wire_field *node_fields(onnx_importer *im, const Onnx__GraphProto *g)
{
    if (g != im->file->model->graph) return NULL;
    if (im->node_fields) return im->node_fields;
    const uint8_t *start = im->file->bytes.data, *end = start + im->file->bytes.size;
    wire_field graph, *fields = arena_array(im->scratch, g->n_node + 1, sizeof *fields);
    if (!find_field(start, end, MODEL_GRAPH, 0, &graph)) return NULL;
    size_t n = 0;
    for (const uint8_t *p = graph.value; p < graph.end && n < g->n_node;)
        if (!wire_read_field(&p, graph.end, &fields[n]))
            return NULL;
        else
            n += fields[n].number == GRAPH_NODE;
    return im->node_fields = fields;
}

static const char *attribute_text(onnx_node *n)
{
    if (!n->proto->n_attribute) return "";
    const wire_field *nodes = node_fields(n->importer, n->scope->graph);
    if (!nodes) {
        onnx_refuse(n, "it stands in a graph that has taken the place of an If");
        return NULL;
    }
    const wire_field *node = &nodes[n->index];
    uint8_t *bytes = arena_alloc(n->importer->scratch, (size_t)(node->end - node->value) + 1);
    size_t size = 0;
    for (const uint8_t *p = node->value; p < node->end;) {
        wire_field f;
        if (!wire_read_field(&p, node->end, &f)) break;
        if (f.number != NODE_ATTRIBUTE) continue;
        memcpy(bytes + size, f.start, (size_t)(f.end - f.start));
        size += (size_t)(f.end - f.start);
    }
    return foreign_to_text(n->importer->scratch, bytes, size);
}

/* ---- what cannot be carried -------------------------------------------------------------------- */

static bool graph_is_external(const Onnx__GraphProto *g);

static bool is_external(const Onnx__TensorProto *t)
{
    return t && t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
}

static bool node_is_external(const Onnx__NodeProto *n)
{
    bool external = false;
    for (size_t i = 0; i < n->n_attribute; i++) {
        const Onnx__AttributeProto *a = n->attribute[i];
        external |= is_external(a->t) || (a->g && graph_is_external(a->g));
        for (size_t k = 0; k < a->n_tensors; k++) external |= is_external(a->tensors[k]);
        for (size_t k = 0; k < a->n_graphs; k++) external |= graph_is_external(a->graphs[k]);
    }
    return external;
}

static bool graph_is_external(const Onnx__GraphProto *g)
{
    bool external = false;
    for (size_t i = 0; i < g->n_initializer; i++) external |= is_external(g->initializer[i]);
    for (size_t i = 0; i < g->n_node; i++) external |= node_is_external(g->node[i]);
    return external;
}

static bool is_function(const onnx_node *n)
{
    const Onnx__ModelProto *m = n->importer->file->model;
    for (size_t i = 0; i < m->n_functions; i++)
        if (strcmp(m->functions[i]->name, n->proto->op_type) == 0 &&
            strcmp(m->functions[i]->domain, n->proto->domain) == 0)
            return true;
    return false;
}

/* ---- the node ---------------------------------------------------------------------------------- */

static void declare(strmap *map, Onnx__ValueInfoProto *const *infos, size_t n)
{
    for (size_t i = 0; i < n; i++) strmap_put(map, infos[i]->name, infos[i]);
}

static const Onnx__ValueInfoProto *find_declared(const onnx_node *n, const char *name)
{
    onnx_importer *im = n->importer;
    const Onnx__GraphProto *g = n->scope->graph;
    if (im->declared_of != g) {
        im->declared = strmap_new(im->scratch);
        declare(im->declared, g->output, g->n_output);
        declare(im->declared, g->value_info, g->n_value_info);
        im->declared_of = g;
    }
    return strmap_get(im->declared, name);
}

/* Types of the results that have a name, separated by commas; their number. */
static int result_types(onnx_node *n, const char **text)
{
    onnx_importer *im = n->importer;
    int count = 0;
    *text = "";
    for (int i = 0; i < n->n_out && !n->failed; i++) {
        const char *name = n->proto->output[i];
        if (!*name) continue;
        const Onnx__ValueInfoProto *info = find_declared(n, name);
        ir_type type;
        bool known = foreign_type(n, i, &type);
        if (!known && (!info || !info->type))
            onnx_refuse(n,
                        "this operator is only carried along, and the model does not declare the "
                        "type of its result '%s' (shape inference adds it)",
                        name);
        else if (!known)
            n->failed = onnx_declared_type(im, "result", info, NULL, &type) != AMPC_OK;
        if (!n->failed) {
            *text = arena_printf(im->scratch, "%s%s%s", *text, count ? "," : "",
                                 ir_type_print(im->module, &type, im->scratch));
            count++;
        }
    }
    return count;
}

static void add_domain(onnx_node *n)
{
    const Onnx__ModelProto *m = n->importer->file->model;
    if (onnx_is_default_domain(n->proto->domain)) return;
    for (size_t i = 0; i < m->n_opset_import; i++)
        if (strcmp(m->opset_import[i]->domain, n->proto->domain) == 0)
            ir_meta_set(n->importer->module, arena_printf(n->importer->scratch, "opset.%s", n->proto->domain),
                        arena_printf(n->importer->scratch, "%lld", (long long)m->opset_import[i]->version));
}

/* Operands: those of the node that are there, then the values that its graphs read. */
static ir_value **operands(onnx_node *n, char *layout, const char **captures, int *count)
{
    arena *a = n->importer->scratch;
    foreign_names names = foreign_names_new(a);
    each_graph(&names, n->proto, foreign_define);
    each_graph(&names, n->proto, foreign_read);
    ir_value **in = arena_array(a, (size_t)n->n_in + names.free.count + 1, sizeof *in);
    *count = 0;
    for (int i = 0; i < n->n_in; i++) {
        layout[i] = n->in[i] ? 'x' : '_';
        if (n->in[i]) in[(*count)++] = n->in[i];
    }
    *captures = "";
    for (size_t i = 0; i < names.free.count; i++) {
        ir_value *v = onnx_value(n->importer, n->scope, names.free.items[i]);
        if (!v) n->failed = true; /* reported where it failed */
        in[(*count)++] = v;
        *captures = arena_printf(a, "%s%s%s", *captures, i ? "\n" : "", names.free.items[i]);
    }
    return in;
}

void onnx_lower_foreign(onnx_node *n)
{
    arena *a = n->importer->scratch;
    const char *types, *captures, *attributes = attribute_text(n);
    char *layout = arena_alloc(a, (size_t)(n->n_in + n->n_out) + 2);
    if (is_function(n)) onnx_refuse(n, "it is a function of the model");
    if (node_is_external(n->proto)) onnx_refuse(n, "its graphs have values in other files");
    int n_in, n_out = n->failed ? 0 : result_types(n, &types);
    if (n->failed) return;
    ir_value **in = operands(n, layout, &captures, &n_in);
    layout[n->n_in] = '>';
    for (int i = 0; i < n->n_out; i++) layout[n->n_in + 1 + i] = onnx_wants(n, i) ? 'x' : '_';
    if (n->failed) return;
    add_domain(n);
    ir_node *node = ir_new_array(n->b, IR_OP_foreign, n_in, in, n_out);
    ir_set_str(node, IR_ATTR(foreign, node), n->b->loc.node);
    ir_set_str(node, IR_ATTR(foreign, domain), n->proto->domain);
    ir_set_str(node, IR_ATTR(foreign, types), types);
    ir_set_str(node, IR_ATTR(foreign, layout), layout);
    ir_set_str(node, IR_ATTR(foreign, captures), captures);
    ir_set_str(node, IR_ATTR(foreign, attributes), attributes);
    if (!ir_done_all(n->b, node)) return;
    for (int i = 0, k = 0; i < n->n_out; i++)
        if (onnx_wants(n, i)) n->out[i] = node->out[k++];
}
