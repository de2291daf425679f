/* operands.c - see operands.h. The low operands and results of such a node are those marked t in its layout. */
#include "passes/amp/operands.h"

#include <string.h>

/* ---- lines ------------------------------------------------------------------------------------------------------ */

static bool is_copied(const ir_node *n)
{
    const bool custom = ir_op_find_attr(n->op, "colour") >= 0;
    return ir_op_has(n->op, IR_DECLARED) && !custom && !n->n_regions && n->loc.op;
}

bool operands_name(const list_operands *line, const ir_node *n)
{
    if (!is_copied(n)) return false;
    const char *domain = n->attr[ir_op_find_attr(n->op, "domain")].s, *scope = strstr(line->op, "::");
    if (!scope) return strcmp(line->op, n->loc.op) == 0;
    const size_t length = (size_t)(scope - line->op);
    return strcmp(scope + 2, n->loc.op) == 0 && strlen(domain) == length && memcmp(line->op, domain, length) == 0;
}

const list_operands *operands_find(const amp_list *l, const ir_node *n)
{
    for (size_t i = l->layers.count; i-- > 0;)
        for (size_t k = 0; k < l->layers.items[i].operands.count; k++)
            if (operands_name(&l->layers.items[i].operands.items[k], n)) return &l->layers.items[i].operands.items[k];
    return NULL;
}

static bool is_castable(const ir_value *v) { return ir_dtype_is_float(v->type.dtype) && v->type.dtype != IR_f64; }

/* The type at a position of the operator, where v is; a single type is that of all floats. */
static ir_dtype type_at(const list_types *types, int position, const ir_value *v)
{
    if (types->count > 1) return (size_t)position < types->count ? types->items[position] : IR_NO_DTYPE;
    return v && is_castable(v) ? types->items[0] : IR_NO_DTYPE;
}

ir_dtype operands_type(const list_operands *line, const ir_node *n, int i)
{
    for (int position = 0; line && position < n->layout.n_in; position++)
        if (ir_opaque_operand_at(n, position) == i) return type_at(&line->operands, position, ir_in(n, i));
    return IR_NO_DTYPE;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------ */

/* One side of a node: the types of its line, and the values at all positions of the operator, or NULL. */
typedef struct side {
    const char *what; /* "operand" or "result" */
    const list_types *types;
    int count;
    ir_value **values;
} side;

/* The marks of all positions: t for the low type, x for those that the node does not choose. */
static char *marks_of(const ir_node *n, const list_place *line, const side *s, const amp_scope *scope)
{
    char *marks = arena_alloc(scope->arena, (size_t)s->count + 1);
    const diag_loc at = {.file = line->file, .line = line->line, .column = 1};
    const bool fits = s->types->count <= 1 || s->types->count == (size_t)s->count;
    if (!fits)
        diag_error(scope->compile->diag, AMPC_REJECTED, at, "%zu types of %ss for the %d of node '%s'", s->types->count,
                   s->what, s->count, n->loc.node);
    for (int i = 0; i < s->count; i++) {
        const ir_value *v = s->values[i];
        const ir_dtype to = type_at(s->types, i, v);
        marks[i] = !v ? '_' : ir_dtype_is_low(to) ? 't' : 'x';
        if (fits && v && to != IR_NO_DTYPE && !is_castable(v))
            diag_error(scope->compile->diag, AMPC_REJECTED, at, "%s %d of node '%s' is %s, which only 'keep' allows",
                       s->what, i, n->loc.node, ir_dtype_name(v->type.dtype));
    }
    return marks;
}

void operands_resolve(ir_node *n, const amp_scope *s)
{
    const list_operands *line = operands_find(s->compile->list, n);
    if (!line) {
        ir_opaque_resolve_low(n, s->compile->options->low);
        return;
    }
    const int n_in = n->layout.n_in, n_out = n->layout.n_out;
    side operands = {"operand", &line->operands, n_in, arena_array(s->arena, (size_t)n_in + 1, sizeof(ir_value *))};
    side results = {"result", &line->results, n_out, arena_array(s->arena, (size_t)n_out + 1, sizeof(ir_value *))};
    for (int i = 0, k; i < n_in; i++)
        if ((k = ir_opaque_operand_at(n, i)) >= 0) operands.values[i] = ir_in(n, k);
    for (int i = 0, k; i < n_out; i++)
        if ((k = ir_opaque_result_at(n, i)) >= 0) results.values[i] = n->out[k];
    const char *of_operands = marks_of(n, &line->place, &operands, s);
    ir_layout_set(n, of_operands, marks_of(n, &line->place, &results, s));
}

bool operands_colour(const ir_node *n, const amp_scope *s, amp_entry *e)
{
    const list_operands *line = operands_find(s->compile->list, n);
    if (!line) return false;
    const bool low = memchr(n->layout.marks, 't', (size_t)(n->layout.n_in + n->layout.n_out));
    *e = (amp_entry){.colour = low ? IR_WHITE : IR_KEEP, .rule = AMP_OPERANDS, .line = &line->place};
    return true;
}

void operands_declare(ir_node *n, const amp_list *l)
{
    const list_operands *line = operands_find(l, n);
    for (int position = 0; line && position < n->layout.n_out; position++) {
        const int i = ir_opaque_result_at(n, position);
        const ir_dtype to = i < 0 ? IR_NO_DTYPE : type_at(&line->results, position, n->out[i]);
        if (to != IR_NO_DTYPE) n->out[i]->type.dtype = to;
    }
}
