/* custom.c - lowers custom operators, which the caller of the library has registered.
 *
 * The operator's own inference determines the types of the results. It is called with the types of the model and, to
 * find the results that follow the float operands, with another float type that the operator allows. A model in a type
 * that the operator does not allow gets casts to f32 and back. */
#include "frontend/opaque/opaque.h"

#include <string.h>

typedef struct custom_node {
    onnx_node *n;
    const custom_op *op;
    custom_types types;       /* by position in the model */
    ir_dtype model;           /* type of the float operands in the model; IR_NO_DTYPE: none */
    ir_dtype dtype;           /* type in which the operator gets them */
    bool follows[CUSTOM_MAX]; /* by result: has the type of these operands */
} custom_node;

/* ---- attributes ------------------------------------------------------------------------------- */

/* All attributes. */
static ampc_attributes read_attributes(onnx_node *n)
{
    const int count = (int)n->proto->n_attribute;
    ir_field *fields = arena_array(n->importer->scratch, (size_t)count + 1, sizeof *fields);
    for (int i = 0; i < count && !n->failed; i++) {
        const Onnx__AttributeProto *p = n->proto->attribute[i];
        n->attr_read[i] = true;
        if (!opaque_field(p, &fields[i]))
            onnx_refuse(n,
                        "custom operators cannot read attribute '%s': it must be a number, a string without NUL "
                        "bytes or a list of numbers",
                        p->name);
    }
    return (ampc_attributes){fields, count};
}

/* ---- types ------------------------------------------------------------------------------------ */

static bool is_f32_operand(const custom_node *c, int i) { return c->op->table.f32_operands >> i & 1; }
static bool is_cast_operand(const custom_node *c, int i)
{
    return c->n->in[i] && ir_dtype_is_float(c->n->in[i]->type.dtype) && !is_f32_operand(c, i);
}

static void find_model_type(custom_node *c)
{
    onnx_node *n = c->n;
    for (int i = 0; i < n->n_in; i++) {
        if (!is_cast_operand(c, i)) continue;
        const ir_dtype t = n->in[i]->type.dtype;
        if (c->model != IR_NO_DTYPE && c->model != t)
            onnx_reject(n, "float operands of a custom operator must agree: %s and %s", ir_dtype_name(c->model),
                        ir_dtype_name(t));
        c->model = t;
    }
    c->dtype = c->model == IR_NO_DTYPE || custom_allows(c->op, c->model) ? c->model : IR_f32;
    if (c->model == IR_f64 && c->dtype != IR_f64) onnx_refuse(n, "the operator does not allow f64 operands");
}

/* The type in which the operator gets operand i if its float type is `to`. */
static ir_dtype operand_dtype(const custom_node *c, int i, ir_dtype to)
{
    const ir_dtype t = c->n->in[i]->type.dtype;
    if (!ir_dtype_is_float(t)) return t;
    if (is_f32_operand(c, i)) return ir_dtype_is_low(t) ? IR_f32 : t;
    return to;
}

static bool infer(custom_node *c, ir_dtype to)
{
    char message[512];
    onnx_node *n = c->n;
    for (int i = 0; i < n->n_in; i++) {
        ampc_type *t = &c->types.in[i];
        *t = (ampc_type){0};
        if (!n->in[i]) continue;
        t->dtype = (ampc_dtype)operand_dtype(c, i, to);
        t->rank = n->in[i]->type.rank;
        memcpy(t->dims, n->in[i]->type.dims, sizeof t->dims);
    }
    ampc_status status = custom_infer(n->importer->options->custom, c->op, &c->types, message, sizeof message);
    if (status != AMPC_OK) onnx_fail(n, status, "%s", message);
    for (int i = 0; i < n->n_out && !n->failed; i++) {
        if (onnx_result_is_used(n, i) && !c->types.out[i].dtype)
            onnx_reject(n, "infer has not set the type of result %d", i);
        if (c->types.out[i].rank > ONNX_MAX_RANK)
            onnx_reject(n, "infer has set rank %d for result %d; a model has at most %d dimensions",
                        c->types.out[i].rank, i, ONNX_MAX_RANK);
    }
    return !n->failed;
}

/* Another float type that the operator allows: f32 in a model of another type, else a low one; IR_NO_DTYPE: none. */
static ir_dtype other_dtype(const custom_node *c)
{
    if (c->dtype == IR_NO_DTYPE) return IR_NO_DTYPE;
    if (c->dtype != IR_f32) return IR_f32;
    return custom_allows(c->op, IR_f16) ? IR_f16 : custom_allows(c->op, IR_bf16) ? IR_bf16 : IR_NO_DTYPE;
}

static void find_types(custom_node *c)
{
    ampc_dtype dtypes[CUSTOM_MAX];
    const ir_dtype other = other_dtype(c);
    if (other != IR_NO_DTYPE && !infer(c, other)) return;
    for (int i = 0; i < c->n->n_out; i++) dtypes[i] = c->types.out[i].dtype;
    if (!infer(c, c->dtype)) return;
    for (int i = 0; i < c->n->n_out; i++)
        c->follows[i] = other != IR_NO_DTYPE && (ir_dtype)dtypes[i] == other &&
                        (ir_dtype)c->types.out[i].dtype == c->dtype;
}

/* ---- the node --------------------------------------------------------------------------------- */

/* The mark of operands and results that may be low (ops.def). */
static char float_mark(const custom_op *op)
{
    const bool f16 = custom_allows(op, IR_f16), bf16 = custom_allows(op, IR_bf16);
    return f16 && bf16 ? 't' : f16 ? 'h' : bf16 ? 'b' : 'x';
}

static void set_layout(const custom_node *c, ir_node *node)
{
    const onnx_node *n = c->n;
    const char mark = float_mark(c->op);
    char operands[CUSTOM_MAX + 1] = "", results[CUSTOM_MAX + 1] = "";
    for (int i = 0; i < n->n_in; i++) operands[i] = !n->in[i] ? '_' : is_cast_operand(c, i) ? mark : 'x';
    for (int i = 0; i < n->n_out; i++) results[i] = !onnx_result_is_used(n, i) ? '_' : c->follows[i] ? mark : 'x';
    ir_layout_set(node, operands, results);
}

static const char *gradients_of(const custom_node *c)
{
    const uint64_t mask = c->op->table.gradient_operands ? c->op->table.gradient_operands : UINT64_MAX;
    char *text = arena_alloc(c->n->importer->scratch, (size_t)c->n->n_in + 1), *to = text;
    if (!custom_has_gradient(c->op)) return "";
    for (int i = 0; i < c->n->n_in; i++)
        if (c->n->in[i]) *to++ = ir_dtype_is_float(c->n->in[i]->type.dtype) && mask >> i & 1 ? 'd' : '-';
    return text;
}

/* The operands in the types that the operator gets. */
static int cast_operands(custom_node *c, ir_value **in)
{
    int count = 0;
    for (int i = 0; i < c->n->n_in; i++)
        if (c->n->in[i]) in[count++] = ir_cast(c->n->b, c->n->in[i], operand_dtype(c, i, c->dtype));
    return count;
}

static void set_types(const custom_node *c, ir_node *node)
{
    for (int i = 0, k = 0; i < c->n->n_out; i++) {
        if (!onnx_result_is_used(c->n, i)) continue;
        const ampc_type *from = &c->types.out[i];
        ir_type *to = &node->out[k++]->type;
        *to = (ir_type){.dtype = (ir_dtype)from->dtype, .rank = from->rank};
        memcpy(to->dims, from->dims, sizeof to->dims);
    }
}

/* Results in the type of the model. */
static void bind_results(custom_node *c, const ir_node *node)
{
    onnx_node *n = c->n;
    for (int i = 0, k = 0; i < n->n_out; i++) {
        if (!onnx_result_is_used(n, i)) continue;
        ir_value *v = node->out[k++];
        n->out[i] = c->dtype != c->model && v->type.dtype == c->dtype ? ir_cast(n->b, v, c->model) : v;
    }
}

static void make_node(custom_node *c)
{
    onnx_node *n = c->n;
    const ampc_operator *table = &c->op->table;
    int n_out = 0;
    const char *attributes = opaque_attributes(n, false);
    for (int i = 0; i < n->n_out; i++) n_out += onnx_result_is_used(n, i);
    ir_value **in = arena_array(n->importer->scratch, (size_t)n->n_in + 1, sizeof *in);
    const int n_in = cast_operands(c, in);
    if (n->failed) return;
    opaque_add_domain(n);
    ir_node *node = ir_new_array(n->b, IR_OP_custom, n_in, in, n_out);
    if (!node) return;
    ir_set_str(node, IR_ATTR(custom, domain), table->domain);
    ir_set_str(node, IR_ATTR(custom, op_type), table->name);
    ir_set_int(node, IR_ATTR(custom, since), table->since);
    ir_set_int(node, IR_ATTR(custom, colour), (int64_t)c->op->colour);
    set_types(c, node);
    set_layout(c, node);
    ir_set_str(node, IR_ATTR(custom, gradients), gradients_of(c));
    ir_set_fields(node, IR_ATTR(custom, fields), c->types.attributes.items, c->types.attributes.count);
    ir_set_str(node, IR_ATTR(custom, attributes), attributes);
    if (ir_done_all(n->b, node)) bind_results(c, node);
}

/* Finds the operator, the node's attributes and its types. NULL: the node has failed. */
static custom_node *read_node(onnx_node *n)
{
    custom_node *c = arena_alloc(n->importer->scratch, sizeof *c);
    *c = (custom_node){.n = n, .op = onnx_custom_of(n->importer, n->proto)};
    c->types = (custom_types){.node = n->b->loc.node, .dims = n->dims, .n_in = n->n_in, .n_out = n->n_out};
    if (n->n_in > CUSTOM_MAX || n->n_out > CUSTOM_MAX)
        onnx_refuse(n, "custom operators have at most %d operands and results", CUSTOM_MAX);
    c->types.attributes = read_attributes(n);
    if (!n->failed) find_model_type(c);
    if (!n->failed) find_types(c);
    return n->failed ? NULL : c;
}

/* A node that is only written as ONNX stays as it is. */
static void keep_node(const custom_node *c)
{
    onnx_node *n = c->n;
    n->types = arena_array(n->importer->scratch, (size_t)n->n_out + 1, sizeof *n->types);
    for (int i = 0; i < n->n_out; i++) {
        const ampc_type *from = &c->types.out[i];
        const ir_dtype t = (ir_dtype)from->dtype;
        n->types[i] = (ir_type){.dtype = t == c->dtype ? c->model : t, .rank = from->rank};
        memcpy(n->types[i].dims, from->dims, sizeof from->dims);
    }
    onnx_keep_opaque(n);
}

void onnx_lower_custom(onnx_node *n)
{
    const Onnx__NodeProto *p = n->proto;
    n->b->loc.op = arena_intern(n->importer->arena,
                                arena_printf(n->importer->scratch, "%s::%s", p->domain, p->op_type));
    custom_node *c = read_node(n);
    if (!c) return;
    if (n->importer->options->emit_opset) keep_node(c);
    else make_node(c);
}
