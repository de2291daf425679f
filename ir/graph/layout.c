/* layout.c - the layout of opaque nodes, "x_t>tx": which operands and results of the operator are present, and which
 * have its float type. */
#include "ir/graph/ir.h"

#include <string.h>

/* The mark of operand or result i, not counting absent ones, or 0 if the layout has none. */
static char mark_of(const char *at, int i)
{
    for (; *at && *at != '>'; at++)
        if (*at != '_' && i-- == 0) return *at;
    return 0;
}

bool ir_opaque_operand_is_float(const ir_node *n, int i)
{
    return mark_of(n->attr[IR_ATTR(opaque, layout)].s, i) == 't';
}

bool ir_opaque_result_is_float(const ir_node *n, int i)
{
    const char *results = strchr(n->attr[IR_ATTR(opaque, layout)].s, '>');
    return results && mark_of(results + 1, i) == 't';
}

/* The index of position `at` of a layout that ends at `end`, or -1. */
static int index_at(const char *layout, const char *end, int at)
{
    int index = 0;
    if (at < 0 || end - layout <= at || layout[at] == '_') return -1;
    for (int i = 0; i < at; i++) index += layout[i] != '_';
    return index;
}

static const char *operands_end(const ir_node *n)
{
    const char *layout = n->attr[IR_ATTR(opaque, layout)].s;
    return layout + strcspn(layout, ">");
}

static const char *results_begin(const ir_node *n) { return operands_end(n) + (*operands_end(n) == '>'); }

int ir_opaque_operand_positions(const ir_node *n)
{
    return (int)(operands_end(n) - n->attr[IR_ATTR(opaque, layout)].s);
}

int ir_opaque_result_positions(const ir_node *n) { return (int)strlen(results_begin(n)); }

int ir_opaque_operand_at(const ir_node *n, int position)
{
    return index_at(n->attr[IR_ATTR(opaque, layout)].s, operands_end(n), position);
}

int ir_opaque_result_at(const ir_node *n, int position)
{
    const char *results = results_begin(n);
    return index_at(results, results + strlen(results), position);
}

void ir_opaque_resolve_low(ir_node *n, ir_dtype low)
{
    const char *layout = n->attr[IR_ATTR(opaque, layout)].s;
    if (!strpbrk(layout, "hb")) return;
    char *resolved = arena_strdup(n->graph->module->arena, layout);
    for (char *p = resolved; *p; p++)
        if (*p == 'h' || *p == 'b') *p = (*p == 'h') == (low == IR_f16) ? 't' : 'x';
    n->attr[IR_ATTR(opaque, layout)].s = resolved;
}

ir_loop_form ir_loop_form_of(const ir_node *n)
{
    const bool counted = n->attr[IR_ATTR(loop, counted)].i;
    ir_loop_form f = {.fixed = counted ? 2 : 0, .fixed_out = counted};
    f.trip_count = counted ? ir_opaque_operand_at(n, 0) : -1;
    f.condition = counted ? ir_opaque_operand_at(n, 1) : -1;
    f.first = (f.trip_count >= 0) + (f.condition >= 0);
    f.slices = (int)n->attr[IR_ATTR(loop, scanned)].i;
    const int positions = ir_opaque_operand_positions(n);
    f.states = (positions > f.fixed ? positions : f.fixed) - f.fixed - f.slices; /* trailing ones may be absent */
    return f;
}
