/* parse_v2_slopes.c - IR text versions 1 and 2, in which the slope of each function was an op, with the attributes of
 * the function's op.
 *
 *   version 2   %dx = leaky_relu_grad %dy, %x {alpha=0.2}
 *   version 3   %dx = slope %dy, %x {of="leaky_relu", p=0.2} */
#include "ir/ops/formulas.h"
#include "ir/text/parser.h"

#include <string.h>

enum { MAX_ATTRS = 4 }; /* of an op that computes a function */

static void set_defaults(ir_op op, ir_attr *attr)
{
    const ir_op_info *info = ir_op_get(op);
    for (int i = 0; i < info->n_attr && i < MAX_ATTRS; i++) attr[i] = info->attr[i].initial;
}

bool ir_find_v2_slope(ir_parser *p)
{
    static const char suffix[] = "_grad";
    const char *text = p->lex.token.text, *end = strstr(text, suffix);
    ir_attr attr[MAX_ATTRS], derivative[IR_DERIVATIVE_ATTRS];
    ir_op op;
    if (!end || end[sizeof suffix - 1] || !ir_op_find(arena_strndup(p->scratch, text, (size_t)(end - text)), &op))
        return false;
    set_defaults(op, attr);
    if (!ir_function_of(op, attr, derivative)) return false;
    p->derived = op;
    return true;
}

ampc_status ir_parse_v2_slope(ir_parser *p, ir_node *n)
{
    ir_attr attr[MAX_ATTRS];
    ir_node function = {.op = p->derived, .attr = attr};
    set_defaults(function.op, attr);
    TRY(ir_parse_attrs(p, &function));
    ir_function_of(function.op, attr, n->attr);
    return AMPC_OK;
}
