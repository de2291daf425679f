/* emit_opaque.c - emits opaque operators: their original bytes, and their subgraphs.
 *
 * In ONNX, captured values are not inputs of a subgraph, which refers to their names instead. A captured value may
 * have got a new name, for example when it is cast first; subgraphs still stored as bytes are then rewritten with the
 * new name. These subgraphs, like the operator itself, have the form of the model's opset, so their operators must
 * not have changed up to the opset that is written. */
#include "frontend/emit/emit.h"
#include "frontend/opaque/opaque.h"
#include "frontend/lower/lower.h"
#include "frontend/read/fields.h"

#include <stdlib.h>
#include <string.h>

typedef struct renaming {
    arena *arena;
    strmap *to; /* name in the subgraphs -> new name */
} renaming;

/* ---- renaming captured values in subgraphs --------------------------------------------------- */

static void rename_graph(renaming *r, const wire_field *field, rope *out);

static void rename_attribute(renaming *r, const wire_field *field, rope *out)
{
    rope attribute = {0};
    wire_field in = *field;
    for (wire_field f; wire_next_field(&in, &f);)
        if (f.number == ATTRIBUTE_G || f.number == ATTRIBUTE_GRAPHS) rename_graph(r, &f, &attribute);
        else rope_add_field(r->arena, &attribute, &f);
    rope_add_message(r->arena, out, (uint32_t)field->number, &attribute);
}

static void rename_node(renaming *r, const wire_field *field, rope *out)
{
    rope node = {0};
    wire_field in = *field;
    for (wire_field f; wire_next_field(&in, &f);) {
        const char *to = NULL;
        if (f.number == NODE_INPUT)
            to = strmap_get(r->to, arena_strndup(r->arena, (const char *)f.value, (size_t)(f.end - f.value)));
        if (to) rope_add_text(r->arena, &node, NODE_INPUT, to);
        else if (f.number == NODE_ATTRIBUTE) rename_attribute(r, &f, &node);
        else rope_add_field(r->arena, &node, &f);
    }
    rope_add_message(r->arena, out, (uint32_t)field->number, &node);
}

static void rename_graph(renaming *r, const wire_field *field, rope *out)
{
    rope graph = {0};
    wire_field in = *field;
    for (wire_field f; wire_next_field(&in, &f);)
        if (f.number == GRAPH_NODE) rename_node(r, &f, &graph);
        else rope_add_field(r->arena, &graph, &f);
    rope_add_message(r->arena, out, (uint32_t)field->number, &graph);
}

/* ---- the form of the operator -------------------------------------------------- */

static int model_opset(const emitter *e)
{
    const int64_t opset = ir_training_opset(&e->module->training, "");
    return opset ? (int)opset : e->opset;
}

static const opaque_change *next_change(const emitter *e, const char *op, const opaque_change *after)
{
    return opaque_changed(op, model_opset(e), e->opset, after);
}

static void refuse_change(emitter *e, const ir_node *n, const char *op, const opaque_change *c)
{
    emit_refuse(e, n, "%s changed in opset %d: its form in opset %d cannot be exported to opset %d", op, c->opset,
                model_opset(e), e->opset);
}

static void check_graphs(emitter *e, const ir_node *n, const Onnx__NodeProto *p);

/* Nodes of subgraphs stored as bytes cannot be adapted to another opset. */
static void check_graph(emitter *e, const ir_node *n, const Onnx__GraphProto *g)
{
    for (size_t i = 0; i < g->n_node; i++) {
        const Onnx__NodeProto *inner = g->node[i];
        const opaque_change *c = onnx_is_default_domain(inner->domain) ? next_change(e, inner->op_type, NULL) : NULL;
        if (c) refuse_change(e, n, inner->op_type, c);
        check_graphs(e, n, inner);
    }
}

static void check_graphs(emitter *e, const ir_node *n, const Onnx__NodeProto *p)
{
    for (size_t i = 0; i < p->n_attribute; i++) {
        const Onnx__AttributeProto *a = p->attribute[i];
        if (a->g) check_graph(e, n, a->g);
        for (size_t k = 0; k < a->n_graphs; k++) check_graph(e, n, a->graphs[k]);
    }
}

/* ---- changed attributes -------------------------------------------------------------------------- */

static bool has_word(const Onnx__AttributeProto *a, const char *word)
{
    return a->s.len == strlen(word) && memcmp(a->s.data, word, a->s.len) == 0;
}

/* The change of the attribute between the model's opset and the one written, or NULL. */
static const opaque_change *find_change(const emitter *e, const emit_op *op, const Onnx__AttributeProto *a)
{
    const opaque_change *c = *op->domain ? NULL : next_change(e, op->type, NULL);
    while (c && (!c->attribute || strcmp(c->attribute, a->name) != 0 || (c->before && !has_word(a, c->before))))
        c = next_change(e, op->type, c);
    return c;
}

/* Appends the attributes that have become operands to the operands of the node. */
static void put_moved(emitter *e, const ir_node *n, const Onnx__NodeProto *p, emit_op *op)
{
    int count = n->layout.n_in;
    for (size_t i = 0; i < p->n_attribute; i++) {
        const Onnx__AttributeProto *a = p->attribute[i];
        const opaque_change *c = find_change(e, op, a);
        if (!c || c->after) continue;
        for (; count < c->operand; count++) emit_in(op, NULL);
        emit_in(op, emit_i64s(e, a->ints, (int)a->n_ints));
        count++;
    }
}

static bool check_form(emitter *e, const ir_node *n, const Onnx__NodeProto *p, bool is_onnx)
{
    const opaque_change *c = is_onnx ? next_change(e, n->loc.op, NULL) : NULL;
    while (c && c->attribute) c = next_change(e, n->loc.op, c);
    if (c) refuse_change(e, n, n->loc.op, c);
    check_graphs(e, n, p);
    return !c;
}

/* Copies the stored attributes, except those that have become operands, and renames values that changed. */
static void put_attributes(emitter *e, const ir_node *n, const Onnx__NodeProto *p, onnx_bytes bytes, emit_op *op)
{
    renaming r = {e->arena, strmap_new(e->arena)};
    const opaque_names names = opaque_names_of(e->arena, p);
    const int declared = ir_declared_operands(n);
    for (int i = declared; i < n->n_in && (size_t)(i - declared) < names.free.count; i++)
        strmap_put(r.to, names.free.items[i - declared], (void *)(uintptr_t)emit_value(e, ir_in(n, i)));
    wire_field in = {.value = bytes.data, .end = bytes.data + bytes.size};
    size_t index = 0;
    for (wire_field f; wire_next_field(&in, &f); index++) {
        const Onnx__AttributeProto *a = p->attribute[index];
        const opaque_change *c = find_change(e, op, a);
        if (!c) rename_attribute(&r, &f, &op->attributes);
        else if (c->after) emit_text(op, c->attribute, c->after);
    }
}

void emit_region(emitter *e, const ir_node *n, const ir_region *region, rope *out)
{
    const ir_graph *g = region->graph;
    const char **inputs = arena_array(e->arena, g->inputs.count + 1, sizeof *inputs);
    for (size_t i = 0; i < g->inputs.count; i++) {
        const int operand = ir_capture_of(region, i);
        if (operand >= 0) inputs[i] = emit_value(e, ir_in(n, operand));
    }
    rope attribute = {0}, graph = emit_graph(e, emit_enter(e, g, inputs), inputs);
    emit_leave(e);
    rope_add_text(e->arena, &attribute, ATTRIBUTE_NAME, region->name);
    rope_add_message(e->arena, &attribute, ATTRIBUTE_G, &graph);
    rope_add_int(e->arena, &attribute, ATTRIBUTE_TYPE, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH);
    rope_add_message(e->arena, out, NODE_ATTRIBUTE, &attribute);
}

static const char *domain_of(const ir_node *n) { return n->attr[ir_op_find_attr(n->op, "domain")].s; }

/* Requires the opset whose schema allows bfloat16 for the operator. */
static void need_bf16(emitter *e, const ir_node *n)
{
    const onnx_operator *op = *domain_of(n) ? NULL : onnx_operator_find(n->loc.op);
    for (int i = 0; i < n->n_in; i++)
        if (op && ir_opaque_operand_is_float(n, i) && ir_in(n, i)->type.dtype == IR_bf16) emit_need(e, op->bf16);
}

void emit_layout_operands(emit_op *op)
{
    for (int position = 0; position < op->n->layout.n_in; position++) {
        const int i = ir_opaque_operand_at(op->n, position);
        if (i >= 0) emit_operand(op, i);
        else emit_in(op, NULL);
    }
}

/* Includes those that the model lacks although the schema requires them. */
void emit_layout_results(emit_op *op)
{
    int position = 0;
    for (; position < op->n->layout.n_out; position++) {
        const int i = ir_opaque_result_at(op->n, position);
        if (i < 0) {
            emit_unread(op, position);
            continue;
        }
        emit_result(op, i, op->n->out[i]->type.dtype);
    }
    for (; emit_requires(op, position); position++) emit_unread(op, position);
}

void emit_opaque(emitter *e, const ir_node *n)
{
    const char *domain = domain_of(n);
    onnx_bytes bytes;
    const Onnx__NodeProto *p = emit_decode_opaque(e, n, &bytes);
    if (!p) return;
    if (!n->loc.op) {
        if (emit_inexact(e)) return;
        diag_error(e->diag, AMPC_REJECTED, ir_diag_loc(n), "it has no ONNX operator");
        return;
    }
    if (!*domain) emit_need(e, model_opset(e));
    if (!check_form(e, n, p, !*domain)) return;
    need_bf16(e, n);
    const int type = ir_op_find_attr(n->op, "op_type"); /* without the domain */
    emit_op op = emit_begin(e, n, type < 0 ? n->loc.op : n->attr[type].s);
    op.domain = domain;
    emit_layout_operands(&op);
    put_moved(e, n, p, &op);
    put_attributes(e, n, p, bytes, &op);
    for (int i = 0; i < n->n_regions; i++) emit_region(e, n, &n->regions[i], &op.attributes);
    emit_layout_results(&op);
    emit_end(&op);
}

static bool all_zero(const ir_attr *list)
{
    for (int i = 0; i < list->list.count; i++)
        if (list->list.items[i]) return false;
    return true;
}

/* A step has Scans and gradients as loops too, which ONNX's Loop does not express. */
void emit_loop(emitter *e, const ir_node *n)
{
    const ir_attr *a = n->attr;
    const bool plain = a[IR_ATTR(loop, counted)].i && !a[IR_ATTR(loop, scanned)].i && !a[IR_ATTR(loop, partial)].i &&
                       all_zero(&a[IR_ATTR(loop, stack_axes)]) && all_zero(&a[IR_ATTR(loop, stack_reversed)]);
    if (!plain || !n->loc.op || strcmp(n->loc.op, "Loop") != 0) emit_inexact(e);
    emit_opaque(e, n);
}
