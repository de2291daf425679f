/* opaque.c - lowers opaque operators.
 *
 * An opaque node stores its attributes as the bytes in the file. Its result types are inferred by a rule or declared
 * by the model. Subgraphs (of If, Loop, Scan) become graphs of the module (subgraph.c); those that cannot be lowered
 * are stored as bytes too. Values that its subgraphs capture become operands, which keeps them alive. */
#include "frontend/opaque/opaque.h"
#include "frontend/read/external.h"
#include "frontend/read/fields.h"
#include "ir/base/wire.h"

#include <limits.h>
#include <string.h>

/* ---- bytes as text --------------------------------------------------------------------------- */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static char *to_text(arena *a, const uint8_t *bytes, size_t n)
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

onnx_bytes opaque_from_text(arena *a, const char *text)
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

/* ---- names in subgraphs ------------------------------------------------------------------------ */

opaque_names opaque_names_new(arena *a)
{
    return (opaque_names){.arena = a, .defined = strmap_new(a), .read = strmap_new(a)};
}

void opaque_visit(opaque_names *f, const Onnx__NodeProto *n, void (*visit)(opaque_names *f, const Onnx__GraphProto *g))
{
    for (size_t i = 0; i < n->n_attribute; i++) {
        const Onnx__AttributeProto *a = n->attribute[i];
        if (a->g) visit(f, a->g);
        for (size_t k = 0; k < a->n_graphs; k++) visit(f, a->graphs[k]);
    }
}

static void define_name(opaque_names *f, const char *name)
{
    strmap_put(f->defined, name, f);
    vec_push(f->arena, &f->definitions, name);
}

void opaque_define(opaque_names *f, const Onnx__GraphProto *g)
{
    for (size_t i = 0; i < g->n_input; i++) define_name(f, g->input[i]->name);
    for (size_t i = 0; i < g->n_initializer; i++) define_name(f, g->initializer[i]->name);
    for (size_t i = 0; i < g->n_node; i++) {
        const Onnx__NodeProto *n = g->node[i];
        for (size_t k = 0; k < n->n_output; k++) define_name(f, n->output[k]);
        opaque_visit(f, n, opaque_define);
    }
}

static void read_name(opaque_names *f, const char *name)
{
    if (!*name || strmap_get(f->defined, name) || strmap_get(f->read, name)) return;
    strmap_put(f->read, name, f);
    vec_push(f->arena, &f->free, name);
}

static void opaque_read(opaque_names *f, const Onnx__GraphProto *g)
{
    for (size_t i = 0; i < g->n_node; i++) {
        for (size_t k = 0; k < g->node[i]->n_input; k++) read_name(f, g->node[i]->input[k]);
        opaque_visit(f, g->node[i], opaque_read);
    }
    for (size_t i = 0; i < g->n_output; i++) read_name(f, g->output[i]->name);
}

opaque_names opaque_names_of(arena *a, const Onnx__NodeProto *n)
{
    opaque_names names = opaque_names_new(a);
    opaque_visit(&names, n, opaque_define);
    opaque_visit(&names, n, opaque_read);
    return names;
}

/* ---- versions -------------------------------------------------------------------------------- */

static const opaque_change changes[] = {
#define CHANGED(op, opset) {#op, opset, NULL, 0, NULL, NULL},
#define MOVED(op, opset, attribute, operand) {#op, opset, #attribute, operand, NULL, NULL},
#define RENAMED(op, opset, attribute, before, after) {#op, opset, #attribute, 0, #before, #after},
#include "frontend/onnx.def"
};

const opaque_change *opaque_changed(const char *op, int from, int to, const opaque_change *after)
{
    for (size_t i = after ? (size_t)(after - changes) + 1 : 0; i < sizeof changes / sizeof *changes; i++)
        if (changes[i].opset > from && changes[i].opset <= to && strcmp(changes[i].op, op) == 0) return &changes[i];
    return NULL;
}

/* ---- the bytes of the attributes --------------------------------------------------------------- */

/* Finds the index-th field with this number within another field. The pre-scan has checked the file. */
static bool find_field(const wire_field *in, uint64_t number, size_t index, wire_field *out)
{
    for (wire_field rest = *in; wire_next_field(&rest, out);)
        if (out->number == number && index-- == 0) return true;
    return false;
}

static uint64_t node_field_of(const onnx_scope *scope)
{
    return scope->outer || !scope->call ? (uint64_t)GRAPH_NODE : (uint64_t)FUNCTION_NODE;
}

/* The position of the subgraph among the attributes of its node. */
static size_t attribute_of(const onnx_scope *scope)
{
    const Onnx__NodeProto *p = scope->outer->graph->node[scope->node];
    size_t i = 0;
    while (i < p->n_attribute && p->attribute[i]->g != scope->graph) i++;
    return i;
}

/* Finds a graph or function in the file. */
static bool find_graph(const onnx_importer *im, const onnx_scope *scope, wire_field *out)
{
    const onnx_bytes *file = &im->file->bytes;
    wire_field outer = {.value = file->data, .end = file->data + file->size}, node, attribute;
    if (!scope->outer && scope->call) return find_field(&outer, MODEL_FUNCTIONS, scope->call->function->index, out);
    if (!scope->outer) return find_field(&outer, MODEL_GRAPH, 0, out);
    return find_graph(im, scope->outer, &outer) &&
           find_field(&outer, node_field_of(scope->outer), onnx_position_in_file(im, scope->outer->graph, scope->node),
                      &node) &&
           find_field(&node, NODE_ATTRIBUTE, attribute_of(scope), &attribute) &&
           find_field(&attribute, ATTRIBUTE_G, 0, out);
}

/* Finds the nodes of a graph in the file. */
static const wire_field *node_fields(onnx_importer *im, const onnx_scope *scope)
{
    const Onnx__GraphProto *g = scope->graph;
    if (im->fields_of == g) return im->node_fields;
    wire_field graph, *fields = arena_array(im->scratch, g->n_node + 1, sizeof *fields);
    size_t n = 0;
    if (!find_graph(im, scope, &graph)) return NULL;
    const uint64_t number = node_field_of(scope);
    while (n < g->n_node && wire_next_field(&graph, &fields[n])) n += fields[n].number == number;
    if (n < g->n_node) return NULL;
    im->fields_of = g;
    return im->node_fields = fields;
}

/* Whether all of an attribute has been decoded; large tensors stay in the file. */
static bool is_decoded(const Onnx__AttributeProto *a)
{
    bool decoded = !a->g && !a->n_graphs && (!a->t || !a->t->has_lifted_length);
    for (size_t i = 0; i < a->n_tensors; i++) decoded &= !a->tensors[i]->has_lifted_length;
    return decoded;
}

/* Encodes the attributes that are not graphs. Those of a node in a function may come from the call. */
static const char *resolved_text(onnx_node *n)
{
    arena *a = n->importer->scratch;
    Onnx__NodeProto node = ONNX__NODE_PROTO__INIT;
    node.attribute = arena_array(a, n->proto->n_attribute + 1, sizeof *node.attribute);
    for (size_t i = 0; i < n->proto->n_attribute; i++) {
        Onnx__AttributeProto *from = n->proto->attribute[i];
        if (from->g) continue;
        if (!is_decoded(from))
            onnx_refuse(n, "attribute '%s' of a function's node is too large to be kept", from->name);
        node.attribute[node.n_attribute++] = from;
    }
    if (n->failed) return NULL;
    uint8_t *bytes = arena_alloc(a, protobuf_c_message_get_packed_size(&node.base) + 1);
    return to_text(a, bytes, protobuf_c_message_pack(&node.base, bytes));
}

const char *opaque_attributes(onnx_node *n, bool graphs)
{
    if (!n->proto->n_attribute) return "";
    if (n->scope->made || n->proto != n->scope->graph->node[n->index]) return resolved_text(n);
    const wire_field *nodes = node_fields(n->importer, n->scope);
    if (!nodes) {
        onnx_refuse(n, "its attributes are not contiguous in the file");
        return NULL;
    }
    wire_field node = nodes[onnx_position_in_file(n->importer, n->scope->graph, n->index)];
    uint8_t *bytes = arena_alloc(n->importer->scratch, (size_t)(node.end - node.value) + 1);
    size_t size = 0, index = 0;
    for (wire_field f; wire_next_field(&node, &f);) {
        if (f.number != NODE_ATTRIBUTE || (n->proto->attribute[index++]->g && !graphs)) continue;
        size_t length = (size_t)(f.end - f.start);
        if (onnx_bytes_need(&n->importer->file->bytes, f.start, length, n->importer->diag) != AMPC_OK) return NULL;
        memcpy(bytes + size, f.start, length);
        size += length;
    }
    return to_text(n->importer->scratch, bytes, size);
}

bool opaque_field(const Onnx__AttributeProto *p, ir_field *out)
{
    *out = (ir_field){.name = p->name};
    switch (p->type) {
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT: out->kind = 'i', out->i = p->i; return true;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT: out->kind = 'f', out->f = (double)p->f; return true;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING: out->kind = 's', out->s = onnx_bytes_text(p->s); return out->s;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS:
        out->kind = 'I', out->ints = p->ints, out->count = (int)p->n_ints;
        return p->n_ints <= INT_MAX;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS:
        out->kind = 'F', out->floats = p->floats, out->count = (int)p->n_floats;
        return p->n_floats <= INT_MAX;
    default: return false;
    }
}

/* Sets the fields that list conditions may name: all but long lists. */
static void set_fields(const onnx_node *n, ir_node *node)
{
    ir_field *fields = arena_array(n->importer->scratch, n->proto->n_attribute + 1, sizeof *fields);
    int count = 0;
    for (size_t i = 0; i < n->proto->n_attribute; i++)
        if (opaque_field(n->proto->attribute[i], &fields[count]) && fields[count].count <= ONNX_MAX_RANK) count++;
    ir_set_fields(node, ir_op_find_attr(node->op, "fields"), fields, count);
}

/* ---- unsupported forms ------------------------------------------------------------------------- */

static bool graph_is_external(const Onnx__GraphProto *g);

static bool node_is_external(const Onnx__NodeProto *n)
{
    bool external = false;
    for (size_t i = 0; i < n->n_attribute; i++) {
        const Onnx__AttributeProto *a = n->attribute[i];
        external |= (a->t && onnx_is_external(a->t)) || (a->g && graph_is_external(a->g));
        for (size_t k = 0; k < a->n_tensors; k++) external |= onnx_is_external(a->tensors[k]);
        for (size_t k = 0; k < a->n_graphs; k++) external |= graph_is_external(a->graphs[k]);
    }
    return external;
}

static bool graph_is_external(const Onnx__GraphProto *g)
{
    bool external = false;
    for (size_t i = 0; i < g->n_initializer; i++) external |= onnx_is_external(g->initializer[i]);
    for (size_t i = 0; i < g->n_node; i++) external |= node_is_external(g->node[i]);
    return external;
}

/* Whether subgraphs that are stored as bytes depend on functions, which are not written. */
static bool needs_functions(const onnx_node *n)
{
    bool needs = false;
    for (size_t i = 0; i < n->proto->n_attribute; i++) {
        const Onnx__AttributeProto *a = n->proto->attribute[i];
        needs |= a->g && onnx_needs_functions(n->importer, a->g);
        for (size_t k = 0; k < a->n_graphs; k++) needs |= onnx_needs_functions(n->importer, a->graphs[k]);
    }
    return needs;
}

/* The written model has one opset, to which the form of the operator is adapted from the model's. */
static void check_opset(onnx_node *n)
{
    const int own = n->opset, other = n->importer->model_opset;
    const bool is_onnx = onnx_is_default_domain(n->proto->domain);
    if (is_onnx && own != other &&
        opaque_changed(n->proto->op_type, own < other ? own : other, own < other ? other : own, NULL))
        onnx_refuse(n, "%s has different forms in opset %d of its function and opset %d of the model",
                    n->proto->op_type, own, other);
}

/* ---- the node ---------------------------------------------------------------------------------- */

static void find_result_type(onnx_node *n, int i, ir_type *out)
{
    const char *name = n->proto->output[i];
    const Onnx__ValueInfoProto *info = onnx_find_declared(n, name);
    if (n->types) *out = n->types[i];
    if (n->types || opaque_type(n, i, out)) return;
    const onnx_declaration d = {"result", info, -1};
    if (info && info->type) n->failed = onnx_declared_type(n->importer, &d, NULL, out) != AMPC_OK;
    else
        onnx_refuse(n,
                    "the operator is opaque, and the model does not declare the type of its result '%s' (shape "
                    "inference adds it)",
                    name);
}

/* Finds the types of the named results and returns their number. */
static int result_types(onnx_node *n, const onnx_subgraphs *subgraphs, ir_type *types)
{
    int count = 0;
    for (int i = 0; i < n->n_out && !n->failed; i++) {
        if (!onnx_result_is_used(n, i)) continue;
        if (subgraphs) types[count] = subgraphs->types[i];
        else find_result_type(n, i, &types[count]);
        count++;
    }
    return count;
}

void opaque_add_domain(onnx_node *n)
{
    const Onnx__ModelProto *m = n->importer->file->model;
    if (onnx_is_default_domain(n->proto->domain)) return;
    for (size_t i = 0; i < m->n_opset_import; i++)
        if (strcmp(m->opset_import[i]->domain, n->proto->domain) == 0)
            ir_training_set_opset(&n->importer->module->training, n->importer->module->arena, n->proto->domain,
                                  m->opset_import[i]->version);
}

/* ---- operands ---------------------------------------------------------------------------------- */

typedef VEC(ir_value *) operand_list;

static ir_value *find_captured(onnx_node *n, const char *name)
{
    ir_value *v = onnx_value(n->importer, n->scope, name);
    if (!v && !onnx_find(n->scope, name)) onnx_reject(n, "its subgraphs read '%s', which is not defined", name);
    if (!v) n->failed = true; /* reported above, or by the node that failed */
    return v;
}

/* The operands that are present, then the captured values of its subgraphs. */
static operand_list operands(onnx_node *n, const onnx_subgraphs *subgraphs, char *marks)
{
    arena *a = n->importer->scratch;
    operand_list list = {0};
    const onnx_types types = onnx_types_of(n);
    for (int i = 0; i < n->n_in; i++) {
        marks[i] = n->in[i] ? onnx_operand_mark(&types, i) : '_';
        if (n->in[i]) vec_push(a, &list, n->in[i]);
    }
    for (size_t i = 0; subgraphs && i < subgraphs->values.count; i++) vec_push(a, &list, subgraphs->values.items[i]);
    if (subgraphs) return list;
    const opaque_names names = opaque_names_of(a, n->proto);
    for (size_t i = 0; i < names.free.count; i++) vec_push(a, &list, find_captured(n, names.free.items[i]));
    return list;
}

/* The inputs of the graph that captures read are the last ones, in order. */
static void add_region(ir_node *node, const char *name, const onnx_subgraph *s)
{
    ir_region_add(node, name, s->graph);
    for (size_t i = 0, at = s->graph->inputs.count - s->captures.count; i < s->captures.count; i++)
        ir_capture_bind(s->graph, at + i, s->captures.items[i].outer);
}

static void check_carried(onnx_node *n, const onnx_subgraphs *subgraphs)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in_sequence[i]) onnx_refuse(n, "input %d ('%s') is a sequence or optional", i, n->proto->input[i]);
    if (!subgraphs && node_is_external(n->proto)) onnx_refuse(n, "its subgraphs have external data");
    if (!subgraphs && needs_functions(n)) onnx_refuse(n, "its subgraphs call functions of the model");
    check_opset(n);
}

void onnx_lower_opaque(onnx_node *n)
{
    onnx_subgraphs lowered, *subgraphs = onnx_lower_subgraphs(n, &lowered) ? &lowered : NULL;
    const char *attributes = opaque_attributes(n, !subgraphs);
    arena *a = n->importer->scratch;
    char *of_operands = arena_alloc(a, (size_t)n->n_in + 1), *of_results = arena_alloc(a, (size_t)n->n_out + 1);
    ir_type *types = arena_array(a, (size_t)n->n_out + 1, sizeof *types);
    check_carried(n, subgraphs);
    int n_out = n->failed ? 0 : result_types(n, subgraphs, types);
    if (n->failed) return;
    operand_list in = operands(n, subgraphs, of_operands);
    const onnx_types marks = onnx_types_of(n);
    for (int i = 0; i < n->n_out; i++) of_results[i] = onnx_result_is_used(n, i) ? onnx_result_mark(&marks, i) : '_';
    if (n->failed) return;
    opaque_add_domain(n);
    const ir_op op = subgraphs ? lowered.op : IR_OP_opaque;
    ir_node *node = ir_new_array(n->b, op, (int)in.count, in.items, n_out);
    ir_layout_set(node, of_operands, of_results);
    for (int i = 0; i < n_out; i++) node->out[i]->type = types[i];
    ir_set_str(node, ir_op_find_attr(op, "domain"), n->proto->domain);
    set_fields(n, node);
    ir_set_str(node, ir_op_find_attr(op, "attributes"), attributes);
    onnx_set_loop(n, node);
    if (n->failed) return;
    for (size_t i = 0; subgraphs && i < subgraphs->graphs.count; i++)
        add_region(node, subgraphs->attributes.items[i], &subgraphs->graphs.items[i]);
    if (!ir_done_all(n->b, node)) return;
    for (int i = 0, k = 0; i < n->n_out; i++)
        if (onnx_result_is_used(n, i)) n->out[i] = node->out[k++];
}
