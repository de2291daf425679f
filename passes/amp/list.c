/* list.c - queries of the effective list. list_read.c reads it, list_write.c prints it. */
#include "ir/ops/formulas.h"
#include "passes/amp/list.h"
#include "passes/amp/operands.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

/* ---- conditions ------------------------------------------------------------------------------ */

/* Index of the attribute, or -1. */
static int find_attribute(const ir_node *n, const char *name)
{
    const ir_op_info *info = ir_op_get(n->op);
    for (int i = 0; i < info->n_attr; i++)
        if (strcmp(info->attr[i].name, name) == 0) return i;
    return -1;
}

/* Depthwise convolution as defined by PaddlePaddle: one group per channel, more than one channel. */
static bool is_depthwise(const ir_node *n)
{
    int at = find_attribute(n, "group");
    int64_t group = at < 0 ? 0 : n->attr[at].i;
    return group > 1 && ir_in(n, 0)->type.dims[1] == group && ir_in(n, 1)->type.dims[0] % group == 0;
}

static bool is_single(const ir_type *t)
{
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] != 1) return false;
    return true;
}

/* Whether v is a constant in memory whose only element equals `number`. */
static bool is_number(const ir_value *v, double number)
{
    if (!v || v->kind != IR_VALUE_STORAGE || !is_single(&v->type)) return false;
    const ir_data *data = &v->storage->data;
    if (data->kind == IR_DATA_ZERO) return !(number < 0 || number > 0);
    if (data->kind != IR_DATA_INLINE || !ir_dtype_is_float(v->type.dtype)) return false;
    double x = ir_load_f64(v->type.dtype, data->bytes);
    return !(x < number || x > number);
}

static bool is_strided(const ir_node *n)
{
    int at = find_attribute(n, "step");
    for (int i = 0; at >= 0 && i < n->attr[at].list.count; i++)
        if (n->attr[at].list.items[i] != 1) return true;
    return false;
}

static bool compares(double x, list_comparison how, double y)
{
    const bool less = x < y;
    const bool more = x > y;
    switch (how) {
    case LIST_EQ: return !less && !more;
    case LIST_NE: return less || more;
    case LIST_LE: return !more;
    case LIST_GE: return !less;
    case LIST_LT: return less;
    case LIST_GT: return more;
    }
    return false;
}

/* has_attribute for operators whose attributes are fields. */
static bool has_field(const ir_node *n, const list_condition *c)
{
    const ir_attr *fields = &n->attr[ir_op_find_attr(n->op, "fields")];
    const ir_field *f = ir_field_find(fields->fields.items, fields->fields.count, c->attribute);
    if (!f || (f->kind == 's') != (c->word != NULL)) return false;
    const double number = f->kind == 'f' || f->kind == 'F' ? (double)(float)c->number : c->number;
    switch (f->kind) {
    case 's': return (strcmp(f->s, c->word) == 0) == (c->comparison == LIST_EQ);
    case 'f': return compares(f->f, c->comparison, number);
    case 'i': return compares((double)f->i, c->comparison, number);
    default: break;
    }
    for (int k = 0; k < f->count; k++)
        if (!compares(f->kind == 'I' ? (double)f->ints[k] : (double)f->floats[k], c->comparison, number)) return false;
    return f->count > 0;
}

/* A condition on a list attribute has to hold for all elements. */
static bool has_attribute(const ir_node *n, const list_condition *c)
{
    if (ir_op_has(n->op, IR_DECLARED)) return has_field(n, c);
    int i = find_attribute(n, c->attribute);
    if (i < 0) return false;
    const ir_attr *attr = &n->attr[i];
    const ir_slot *slot = &ir_op_get(n->op)->attr[i];
    const ir_slot_kind kind = slot->kind;
    const char *word = kind == IR_SLOT_STR ? attr->s : kind == IR_SLOT_ONE_OF ? slot->words[attr->i] : NULL;
    if ((word != NULL) != (c->word != NULL) || kind == IR_SLOT_DTYPE) return false;
    if (word) return (strcmp(word, c->word) == 0) == (c->comparison == LIST_EQ);
    if (kind == IR_SLOT_FLOAT) return compares(attr->f, c->comparison, (double)(float)c->number);
    if (kind == IR_SLOT_DOUBLE) return compares(attr->f, c->comparison, c->number);
    if (kind != IR_SLOT_INTS && kind != IR_SLOT_DIMS) return compares((double)attr->i, c->comparison, c->number);
    for (int k = 0; k < attr->list.count; k++)
        if (!compares((double)attr->list.items[k], c->comparison, c->number)) return false;
    return attr->list.count > 0;
}

static bool holds(const list_condition *c, const ir_node *n, const amp_list *l, ir_dtype low)
{
    bool of_node = c->test != LIST_DTYPE && c->test != LIST_LEVEL;
    if (of_node && !n) return false;
    const ir_value *v = of_node && c->argument < n->n_in ? ir_in(n, (int)c->argument) : NULL;
    switch (c->test) {
    case LIST_DEPTHWISE: return is_depthwise(n);
    case LIST_STRIDED: return is_strided(n);
    case LIST_DTYPE: return (ir_dtype)c->choice == low;
    case LIST_LEVEL: return (pass_level)c->choice == l->level;
    case LIST_OUTPUTS: {
        int64_t used = 0;
        for (int i = 0; i < n->n_out; i++) used += ir_value_used(n->out[i]);
        return used == c->value;
    }
    case LIST_RANK: return v && v->type.rank == c->value;
    case LIST_SCALAR: return v && v->kind == IR_VALUE_STORAGE && is_single(&v->type);
    case LIST_PARAM: return v && v->kind == IR_VALUE_STORAGE && v->storage->kind == IR_PARAM;
    case LIST_SAME: return v && v == ir_in(n, (int)c->value);
    case LIST_VALUE: return is_number(v, c->number);
    case LIST_ATTRIBUTE: return has_attribute(n, c);
    }
    return false;
}

static bool matches(const list_entry *e, const ir_node *n, const amp_list *l, ir_dtype low)
{
    for (size_t i = 0; i < e->conditions.count; i++)
        if (holds(&e->conditions.items[i], n, l, low) == e->conditions.items[i].negated) return false;
    return true;
}

/* ---- lookup ---------------------------------------------------------------------------------- */

/* "Op" of the custom operator "com.example::Op": its name in lines without a domain. NULL: it has no domain. */
static const char *plain_name(const char *op)
{
    const char *scope = strstr(op, "::");
    return scope ? scope + 2 : NULL;
}

/* The first line of a layer for an operator under that name. Adds the colours that the layer removes to *removes. */
static const list_entry *find_line(const list_layer *layer, const char *op, const ir_node *n, const amp_list *l,
                                   ir_dtype low, unsigned removed, unsigned *removes)
{
    for (int conditional = 1; conditional >= 0; conditional--)
        for (size_t k = 0; k < layer->entries.count; k++) {
            const list_entry *e = &layer->entries.items[k];
            if (*e->op != *op || strcmp(e->op, op) != 0) continue; /* cheap test first */
            if ((e->conditions.count > 0) != conditional) continue;
            if (e->remove) *removes |= 1u << e->colour;
            else if (!(removed & 1u << e->colour) && matches(e, n, l, low)) return e;
        }
    return NULL;
}

/* Later layers come first; a removal hides the lines of that colour for the operator in lower layers. In a profile,
 * lines without a domain name ONNX operators. */
const list_entry *amp_list_find(const amp_list *l, const char *op, const ir_node *n, ir_dtype low)
{
    const char *plain = plain_name(op);
    unsigned removed = 0;
    for (size_t i = l->layers.count; i-- > 0;) {
        unsigned removes = 0;
        const list_entry *e = find_line(&l->layers.items[i], op, n, l, low, removed, &removes);
        if (!e && plain && i > 0) e = find_line(&l->layers.items[i], plain, n, l, low, removed, &removes);
        if (e) return e;
        removed |= removes;
    }
    return NULL;
}

/* Whether line e is in a later layer than line `than`. */
static bool is_later(const amp_list *l, const list_entry *e, const list_entry *than)
{
    for (size_t i = l->layers.count; i-- > 0;) {
        const list_entry *items = l->layers.items[i].entries.items;
        const list_entry *end = items + l->layers.items[i].entries.count;
        if (than >= items && than < end) return false;
        if (e >= items && e < end) return true;
    }
    return false;
}

const list_entry *amp_list_find_at(const amp_list *l, const ir_node *n, ir_dtype low)
{
    const list_entry *line = amp_list_find(l, n->loc.op, n, low);
    for (const ir_origin *p = n->loc.fused_from; p && p->op; p++) {
        const list_entry *part = amp_list_find(l, p->op, n, low);
        bool black = part && part->colour == IR_BLACK && !part->conditions.count;
        if (black && line && is_later(l, part, line)) line = part;
    }
    return line;
}

bool amp_list_is_of_profile(const amp_list *l, const list_entry *line)
{
    const list_layer *profile = &l->layers.items[0];
    return line >= profile->entries.items && line < profile->entries.items + profile->entries.count;
}

static bool matches_name(const list_pattern *p, const char *name)
{
    if (p->plain) return strcmp(p->plain, name) == 0;
    return p->regex ? regex_match(p->regex, name) : fnmatch(p->glob, name, 0) == 0;
}

/* Whether the pattern matches the name of the node or of a node it was fused from. */
static bool names_node(const list_pattern *p, const ir_loc *loc)
{
    bool found = matches_name(p, loc->node);
    for (const ir_origin *from = loc->fused_from; from && from->op && !found; from++)
        found = matches_name(p, from->node);
    return found;
}

const list_pattern *amp_list_find_node(const amp_list *l, const ir_loc *loc)
{
    for (size_t i = l->layers.count; i-- > 0;)
        for (size_t k = 0; k < l->layers.items[i].nodes.count; k++)
            if (names_node(&l->layers.items[i].nodes.items[k], loc)) return &l->layers.items[i].nodes.items[k];
    return NULL;
}

const list_pattern *amp_list_find_tensor(const amp_list *l, const char *name)
{
    for (size_t i = l->layers.count; i-- > 0;)
        for (size_t k = 0; k < l->layers.items[i].tensors.count; k++)
            if (strcmp(l->layers.items[i].tensors.items[k].glob, name) == 0)
                return &l->layers.items[i].tensors.items[k];
    return NULL;
}

/* `pins = Op(slot,...), ...`: naming the operator pins its second float group, which contains the slots. */
bool amp_list_fp32_operands(const amp_list *l, const char *op) { return rules_text_has(l->rule.pins, op); }

bool amp_list_unsupported(const amp_list *l, const char *op)
{
    if (l->rule.unsupported_at == UNSUPPORTED_AT_NEVER) return false;
    if (l->rule.unsupported_at == UNSUPPORTED_AT_O2 && l->level != PASS_O2) return false;
    return strmap_get(l->unsupported, op) != NULL;
}

bool amp_list_inside(const amp_list *l, const ir_node *n)
{
    if (!ir_op_has(ir_op_like(n->op, n->attr), IR_F32_COMPUTE) || l->rule.f32_inside == INSIDE_IGNORE) return false;
    bool all = l->rule.f32_inside == INSIDE_HONOUR && !l->plain_runtime;
    return all || (n->loc.op && rules_text_has(l->rule.promises, n->loc.op));
}

bool amp_list_black_lifted_at_level(const amp_list *l, const char *op)
{
    const list_layer *profile = &l->layers.items[0];
    for (size_t i = 0; i < profile->entries.count; i++) {
        const list_entry *e = &profile->entries.items[i];
        if (e->colour != IR_BLACK || e->remove || strcmp(e->op, op) != 0) continue;
        for (size_t k = 0; k < e->conditions.count; k++) {
            const list_condition *c = &e->conditions.items[k];
            if (c->test == LIST_LEVEL && c->negated == ((pass_level)c->choice == l->level)) return true;
        }
    }
    return false;
}

bool amp_list_is_attribute(const amp_list *l, const ir_node *n, int i)
{
    const ir_value *v = ir_in(n, i);
    if (!v || v->kind != IR_VALUE_STORAGE || !is_single(&v->type)) return false;
    if (ir_is_scalar(v)) return true;
    bool constant = v->storage->kind == IR_CONST || v->type.rank == 0;
    return constant && n->loc.op && rules_text_has(l->rule.attributes, n->loc.op);
}

/* ---- lines that match nothing ---------------------------------------------------------------- */

static bool is_op(const ir_loc *loc, const char *op)
{
    const char *plain = loc->op ? plain_name(loc->op) : NULL;
    bool found = loc->op && (strcmp(loc->op, op) == 0 || (plain && strcmp(plain, op) == 0));
    for (const ir_origin *p = loc->fused_from; p && p->op && !found; p++) found = strcmp(p->op, op) == 0;
    return found;
}

static bool op_occurs(const ir_module *m, const char *op)
{
    for (const ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g))
        for (const ir_node *n = g->first; n; n = n->next)
            if (is_op(&n->loc, op)) return true;
    return false;
}

/* Whether any node of the operator has the attribute of the condition; true if there is no such node. */
static bool attribute_occurs(const ir_module *m, const char *op, const list_condition *c)
{
    bool any = false;
    for (const ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g))
        for (const ir_node *n = g->first; n; n = n->next) {
            if (!is_op(&n->loc, op)) continue;
            if (ir_op_has(n->op, IR_DECLARED) || find_attribute(n, c->attribute) >= 0) return true;
            any = true;
        }
    return !any;
}

static bool node_occurs(const ir_module *m, const list_pattern *p)
{
    for (const ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g))
        for (const ir_node *n = g->first; n; n = n->next)
            if (n->loc.op && names_node(p, &n->loc)) return true;
    return false;
}

static bool tensor_occurs(const ir_module *m, const char *name)
{
    if (ir_storage_find(m, name)) return true;
    for (const ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g)) {
        if (ir_graph_find_input(g, name)) return true;
        for (const ir_node *n = g->first; n; n = n->next)
            for (int k = 0; k < n->n_out; k++)
                if (strcmp(n->out[k]->name, name) == 0) return true;
    }
    return false;
}

static bool copied_occurs(const ir_module *m, const list_operands *o)
{
    for (const ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g))
        for (const ir_node *n = g->first; n; n = n->next)
            if (operands_name(o, n)) return true;
    return false;
}

static ampc_status warn(diag *d, const list_place *p, const char *what, const char *name)
{
    diag_loc loc = {.file = p->file, .line = p->line, .column = p->line ? 1 : 0};
    return diag_warning(d, loc, what, name);
}

static ampc_status check_layer(const amp_list *l, const list_layer *layer, const ir_module *m, diag *d)
{
    static const char unknown[] = "unknown operator '%s'", node[] = "'%s' matches no node of the model",
                      tensor[] = "tensor '%s' is not in the model",
                      lowered[] = "operator '%s' is not copied, so its colour decides about its operands",
                      attribute[] = "attribute '%s' is not available for this operator, so the condition never holds";
    ampc_status worst = AMPC_OK;
    for (size_t k = 0; k < layer->entries.count; k++) {
        const list_entry *e = &layer->entries.items[k];
        bool known = strmap_get(l->known, e->op) || op_occurs(m, e->op);
        if (!known && warn(d, &e->place, unknown, e->op) != AMPC_OK) worst = AMPC_REJECTED;
        for (size_t j = 0; j < e->conditions.count; j++) {
            const list_condition *c = &e->conditions.items[j];
            if (c->test != LIST_ATTRIBUTE || attribute_occurs(m, e->op, c)) continue;
            if (warn(d, &e->place, attribute, c->attribute) != AMPC_OK) worst = AMPC_REJECTED;
        }
    }
    for (size_t k = 0; k < layer->operands.count; k++) {
        const list_operands *o = &layer->operands.items[k];
        const char *what = copied_occurs(m, o)           ? NULL
                           : op_occurs(m, o->op)         ? lowered
                           : strmap_get(l->known, o->op) ? NULL
                                                         : unknown;
        if (what && warn(d, &o->place, what, o->op) != AMPC_OK) worst = AMPC_REJECTED;
    }
    for (size_t k = 0; k < layer->nodes.count; k++) {
        const list_pattern *p = &layer->nodes.items[k];
        if (!node_occurs(m, p) && warn(d, &p->place, node, p->glob) != AMPC_OK) worst = AMPC_REJECTED;
    }
    for (size_t k = 0; k < layer->tensors.count; k++) {
        const list_pattern *p = &layer->tensors.items[k];
        if (!tensor_occurs(m, p->glob) && warn(d, &p->place, tensor, p->glob) != AMPC_OK) worst = AMPC_REJECTED;
    }
    return worst;
}

ampc_status amp_list_check_used(const amp_list *l, const ir_module *m, diag *d)
{
    ampc_status worst = AMPC_OK;
    for (size_t i = 1; i < l->layers.count; i++)
        if (check_layer(l, &l->layers.items[i], m, d) != AMPC_OK) worst = AMPC_REJECTED;
    return worst;
}

/* ---- a table of operators -------------------------------------------------------------------- */

void pass_operator_colours(const compile *c, const char *const *operators, size_t count, const char *(*out)[2])
{
    static const ir_dtype types[2] = {IR_f16, IR_bf16};
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < 2; k++) {
            const list_entry *line = amp_list_find(c->list, operators[i], NULL, types[k]);
            out[i][k] = line ? ir_colour_name(line->colour) : "-";
        }
}
