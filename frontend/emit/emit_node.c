/* emit_node.c - writes a NodeProto: operands, attributes, results, and casts of results to the types of the IR. */
#include "frontend/emit/emit.h"
#include "frontend/lower/lower.h"
#include "frontend/read/fields.h"
#include "ir/text/text.h"

#include <assert.h>
#include <string.h>

/* ---- names ----------------------------------------------------------------------------------- */

static const char *unique_name(emitter *e, const char *base)
{
    const char *name = base;
    for (int k = 1; strmap_get(e->node_names, name); k++) name = arena_printf(e->arena, "%s_%d", base, k);
    strmap_put(e->node_names, name, e);
    return name;
}

/* If a fused node is expanded again, its original nodes lend their names: returns the unused name of one with this
 * operator, or NULL. */
static const char *name_of_part(const emitter *e, const ir_node *n, const char *type)
{
    for (const ir_origin *p = n->loc.fused_from; p && p->op; p++)
        if (strcmp(p->op, type) == 0 && strcmp(p->node, n->loc.node) != 0 && !strmap_get(e->node_names, p->node))
            return p->node;
    return NULL;
}

static const char *helper_name(emitter *e, const ir_node *n, const char *type)
{
    const char *part = n && !e->own ? name_of_part(e, n, type) : NULL;
    if (part) return unique_name(e, part);
    const char *base = "";
    if (n && n->loc.op) base = n->loc.node;
    else if (n && n->n_out) base = n->out[0]->name;
    if (e->own && n && (n->n_out || e->scope->output[n->id]))
        base = n->n_out ? n->out[0]->name : e->scope->output[n->id];
    return unique_name(e, arena_printf(e->arena, "%s/%s", base, type));
}

emit_op emit_begin(emitter *e, const ir_node *n, const char *type)
{
    bool keeps_name = e->scope->has_own_name[n->id] && !strmap_get(e->node_names, n->loc.node);
    const char *name = keeps_name           ? unique_name(e, n->loc.node)
                       : e->own && n->n_out ? unique_name(e, n->out[0]->name)
                                            : helper_name(e, n, type);
    return (emit_op){.e = e, .n = n, .type = type, .domain = "", .name = name};
}

emit_op emit_helper(emitter *e, const ir_node *n, const char *type)
{
    return (emit_op){.e = e, .n = n, .type = type, .domain = "", .name = helper_name(e, n, type)};
}

/* ---- operands -------------------------------------------------------------------------------- */

void emit_in(emit_op *op, const char *name) { rope_add_text(op->e->arena, &op->in, NODE_INPUT, name ? name : ""); }

/* ---- attributes ------------------------------------------------------------------------------ */

static rope begin_attribute(emit_op *op, const char *name)
{
    rope attribute = {0};
    rope_add_text(op->e->arena, &attribute, ATTRIBUTE_NAME, name);
    return attribute;
}

static void end_attribute(emit_op *op, rope *attribute, int type)
{
    rope_add_int(op->e->arena, attribute, ATTRIBUTE_TYPE, (uint64_t)type);
    rope_add_message(op->e->arena, &op->attributes, NODE_ATTRIBUTE, attribute);
}

void emit_int(emit_op *op, const char *name, int64_t v)
{
    rope a = begin_attribute(op, name);
    rope_add_int(op->e->arena, &a, ATTRIBUTE_I, (uint64_t)v);
    end_attribute(op, &a, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
}

void emit_float(emit_op *op, const char *name, double v)
{
    rope a = begin_attribute(op, name);
    rope_add_float(op->e->arena, &a, ATTRIBUTE_F, (float)v);
    end_attribute(op, &a, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
}

void emit_double(emit_op *op, const char *name, double v)
{
    rope a = begin_attribute(op, name), tensor = {0};
    rope_add_int(op->e->arena, &tensor, TENSOR_DATA_TYPE, onnx_type_of(IR_f64));
    rope_add_header(op->e->arena, &tensor, TENSOR_RAW_DATA, sizeof v);
    double *value = arena_alloc(op->e->arena, sizeof *value);
    *value = v;
    rope_add(op->e->arena, &tensor, value, sizeof *value);
    rope_add_message(op->e->arena, &a, ATTRIBUTE_T, &tensor);
    end_attribute(op, &a, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR);
}

void emit_text(emit_op *op, const char *name, const char *v)
{
    rope a = begin_attribute(op, name);
    rope_add_text(op->e->arena, &a, ATTRIBUTE_S, v);
    end_attribute(op, &a, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
}

void emit_floats(emit_op *op, const char *name, const double *items, int count)
{
    rope a = begin_attribute(op, name);
    for (int i = 0; i < count; i++) rope_add_float(op->e->arena, &a, ATTRIBUTE_FLOATS, (float)items[i]);
    end_attribute(op, &a, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS);
}

void emit_texts(emit_op *op, const char *name, const char *const *items, int count)
{
    rope a = begin_attribute(op, name);
    for (int i = 0; i < count; i++) rope_add_text(op->e->arena, &a, ATTRIBUTE_STRINGS, items[i]);
    end_attribute(op, &a, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS);
}

void emit_ints(emit_op *op, const char *name, const int64_t *items, int count)
{
    rope a = begin_attribute(op, name);
    for (int i = 0; i < count; i++) rope_add_int(op->e->arena, &a, ATTRIBUTE_INTS, (uint64_t)items[i]);
    end_attribute(op, &a, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
}

/* ---- results --------------------------------------------------------------------------------- */

void emit_out(emit_op *op, const char *name) { rope_add_text(op->e->arena, &op->out, NODE_OUTPUT, name); }

bool emit_requires(const emit_op *op, int i)
{
    const onnx_operator *schema = *op->domain ? NULL : onnx_operator_find(op->type);
    return schema && onnx_is_required_result(schema, i);
}

static bool is_needed(const emit_op *op, int i)
{
    const ir_node *n = op->n;
    const ir_slot *slot = ir_op_out_slot(n->op, i, n->n_out);
    if (ir_value_used(n->out[i])) return true;
    return strcmp(op->domain, EMIT_OWN_DOMAIN) != 0 && (i == 0 || slot->kind == IR_SLOT_OUTS || emit_requires(op, i));
}

bool emit_loses(ir_dtype from, ir_dtype to)
{
    return from != to && ir_dtype_is_float(from) && ir_dtype_is_float(to) && ir_dtype_size(to) <= ir_dtype_size(from);
}

void emit_unread(emit_op *op, int i)
{
    emitter *e = op->e;
    emit_out(op, emit_requires(op, i) ? emit_name(e, arena_printf(e->arena, "%s.%d", op->name, i)) : "");
}

void emit_result(emit_op *op, int i, ir_dtype is)
{
    emitter *e = op->e;
    const ir_value *v = op->n->out[i];
    if (!is_needed(op, i)) {
        emit_out(op, "");
        return;
    }
    const char *claimed = e->scope->output_of[v->id], *name = claimed ? claimed : emit_name(e, v->name);
    e->scope->value[v->id] = name;
    if (!claimed && (e->own || ir_op_has(op->n->op, IR_DECLARED)))
        emit_put_value_info(e, &e->scope->infos, GRAPH_VALUE_INFO, name, &v->type, NULL);
    if (is == v->type.dtype) {
        emit_out(op, name);
        return;
    }
    if (emit_loses(v->type.dtype, is)) emit_inexact(e);
    assert(op->n_casts < (int)(sizeof op->casts / sizeof *op->casts));
    const char *raw = emit_name(e, arena_printf(e->arena, "%s.%s", name, ir_dtype_name(is)));
    emit_out(op, raw);
    ir_type type = v->type;
    type.dtype = is;
    emit_declare(e, raw, &type);
    op->casts[op->n_casts].result = i;
    op->casts[op->n_casts].name = raw;
    op->casts[op->n_casts++].is = is;
}

/* A result of the schema's float type has the type of the first operand that has it. */
static ir_dtype schema_type(const emit_op *op, int i)
{
    const onnx_types types = {onnx_operator_find(op->type)->types, 't'};
    int operand = 0;
    if (onnx_result_mark(&types, i) != 't') return op->n->out[i]->type.dtype;
    while (onnx_operand_mark(&types, operand) != 't') operand++;
    return ir_in(op->n, operand)->type.dtype;
}

void emit_results(emit_op *op)
{
    int count = op->n->n_out;
    while (count && !is_needed(op, count - 1)) count--;
    for (int i = 0; i < count; i++) emit_result(op, i, schema_type(op, i));
}

/* ---- metadata -------------------------------------------------------------------------------- */

static void put_entry(emitter *e, rope *node, const char *key, const char *value)
{
    if (value) rope_add_entry(e->arena, node, NODE_METADATA, key, value);
}

static void put_origin(emitter *e, const ir_node *n, rope *node)
{
    if (!n) return;
    put_entry(e, node, "ampc.phase", ir_phase_names[n->phase]);
    put_entry(e, node, "ampc.op", ir_op_get(n->op)->name);
    put_entry(e, node, "ampc.note", n->note);
    if (!n->loc.op) return;
    text_buffer parts = {.arena = e->arena};
    for (const ir_origin *p = n->loc.fused_from; p && p->op; p++)
        text_add(&parts, "%s%s", parts.length ? ", " : "", p->node);
    put_entry(e, node, "ampc.origin", n->loc.node);
    put_entry(e, node, "ampc.origin_type", n->loc.op);
    if (parts.length) put_entry(e, node, "ampc.fused_from", text_finish(&parts));
}

/* ---- the node -------------------------------------------------------------------------------- */

static bool is_ours(const emit_op *op) { return !op->n || !op->n->loc.op || strcmp(op->n->loc.op, op->type) != 0; }

static void put_node(emit_op *op)
{
    arena *a = op->e->arena;
    rope node = {0};
    if (strcmp(op->type, "Cast") == 0 && is_ours(op)) op->e->casts++;
    rope_add_pieces(a, &node, &op->in);
    rope_add_pieces(a, &node, &op->out);
    rope_add_text(a, &node, NODE_NAME, op->name);
    rope_add_text(a, &node, NODE_OP_TYPE, op->type);
    rope_add_pieces(a, &node, &op->attributes);
    if (*op->domain) rope_add_text(a, &node, NODE_DOMAIN, op->domain);
    if (op->e->own) put_origin(op->e, op->n ? op->n : op->e->node, &node);
    rope_add_message(a, &op->e->scope->nodes, GRAPH_NODE, &node);
}

void emit_end(emit_op *op)
{
    const onnx_operator *schema = *op->domain ? NULL : onnx_operator_find(op->type);
    if (schema) emit_need(op->e, schema->since);
    put_node(op);
    for (int i = 0; i < op->n_casts; i++) {
        const ir_value *v = op->n->out[op->casts[i].result];
        emit_op cast = emit_helper(op->e, op->n, "Cast");
        emit_in(&cast, op->casts[i].name);
        emit_int(&cast, "to", onnx_type_of(v->type.dtype));
        emit_out(&cast, op->e->scope->value[v->id]);
        put_node(&cast);
    }
}

static const char *call(emitter *e, const ir_node *n, const char *type, const char *a, const char *b)
{
    const char *base = n && n->n_out ? n->out[0]->name : "value";
    const char *name = emit_name(e, arena_printf(e->arena, "%s.%s", base, type));
    emit_op op = emit_helper(e, n, type);
    emit_in(&op, a);
    if (b) emit_in(&op, b);
    emit_out(&op, name);
    emit_end(&op);
    return name;
}

const char *emit_call(emitter *e, const ir_node *n, const char *type, const char *a, const char *b)
{
    emit_inexact(e);
    return call(e, n, type, a, b);
}

const char *emit_size_call(emitter *e, const ir_node *n, const char *type, const char *a, const char *b)
{
    const char *name = call(e, n, type, a, b);
    emit_declare_sizes(e, name, 1);
    return name;
}

const char *emit_cast_of(emitter *e, const ir_node *n, const char *name, ir_dtype to)
{
    const char *key = arena_printf(e->arena, "cast %d %s", to, name);
    const char *shared = emit_made(e, key);
    if (shared) return shared;
    shared = emit_name(e, arena_printf(e->arena, "%s.%s", name, ir_dtype_name(to)));
    emit_op op = emit_helper(e, n, "Cast");
    if (!n) op.name = unique_name(e, arena_printf(e->arena, "%s/Cast", shared));
    emit_in(&op, name);
    emit_int(&op, "to", onnx_type_of(to));
    emit_out(&op, shared);
    emit_end(&op);
    emit_make(e, key, shared);
    return shared;
}
