/* layout.c - which operands and results of its operator an opaque node has, and which have the float type. */
#include "ir/graph/ir.h"

#include <string.h>

static arena *arena_of(const ir_node *n) { return (n->n_out ? n->out[0] : ir_in(n, 0))->graph->module->arena; }

void ir_layout_set(ir_node *n, const char *operands, const char *results)
{
    n->layout = (ir_layout){.n_in = (int)strlen(operands), .n_out = (int)strlen(results)};
    n->layout.marks = arena_printf(arena_of(n), "%s%s", operands, results);
}

/* The number of present positions before position `at` of n marks. */
static int count_present(const char *marks, int at)
{
    int count = 0;
    for (int i = 0; i < at; i++) count += marks[i] != '_';
    return count;
}

static int index_at(const char *marks, int n, int at)
{
    return at < 0 || at >= n || marks[at] == '_' ? -1 : count_present(marks, at);
}

/* The mark of operand or result i, not counting absent ones, or 0. */
static char mark_of(const char *marks, int n, int i)
{
    for (int at = 0; at < n; at++)
        if (marks[at] != '_' && i-- == 0) return marks[at];
    return 0;
}

static const char *results_of(const ir_node *n) { return n->layout.marks + n->layout.n_in; }

int ir_layout_operands(const ir_node *n) { return count_present(n->layout.marks, n->layout.n_in); }

int ir_layout_results(const ir_node *n) { return count_present(results_of(n), n->layout.n_out); }

bool ir_opaque_operand_is_float(const ir_node *n, int i) { return mark_of(n->layout.marks, n->layout.n_in, i) == 't'; }

bool ir_opaque_result_is_float(const ir_node *n, int i) { return mark_of(results_of(n), n->layout.n_out, i) == 't'; }

int ir_opaque_operand_at(const ir_node *n, int position) { return index_at(n->layout.marks, n->layout.n_in, position); }

int ir_opaque_result_at(const ir_node *n, int position) { return index_at(results_of(n), n->layout.n_out, position); }

void ir_opaque_resolve_low(ir_node *n, ir_dtype low)
{
    const size_t count = (size_t)(n->layout.n_in + n->layout.n_out);
    if (!memchr(n->layout.marks, 'h', count) && !memchr(n->layout.marks, 'b', count)) return;
    char *resolved = arena_strndup(arena_of(n), n->layout.marks, count);
    for (char *p = resolved; *p; p++)
        if (*p == 'h' || *p == 'b') *p = (*p == 'h') == (low == IR_f16) ? 't' : 'x';
    n->layout.marks = resolved;
}

ir_loop_form ir_loop_form_of(const ir_node *n)
{
    const bool counted = n->attr[IR_ATTR(loop, counted)].i;
    ir_loop_form f = {.fixed = counted ? 2 : 0, .fixed_out = counted};
    f.trip_count = counted ? ir_opaque_operand_at(n, 0) : -1;
    f.condition = counted ? ir_opaque_operand_at(n, 1) : -1;
    f.first = (f.trip_count >= 0) + (f.condition >= 0);
    f.slices = (int)n->attr[IR_ATTR(loop, scanned)].i;
    const int positions = n->layout.n_in;
    f.states = (positions > f.fixed ? positions : f.fixed) - f.fixed - f.slices; /* trailing ones may be absent */
    return f;
}
