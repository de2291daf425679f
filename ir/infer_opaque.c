/* infer_opaque.c - results of an opaque operator have the types written with it, except that those marked in the
 * layout have the element type of the marked operands. */
#include "ir/infer.h"

#include <string.h>

/* ---- the layout: "x_t>tx" ------------------------------------------------------------------------------- */

/* The mark of operand or result i, not counting absent ones, or 0 if the layout has none. */
static char mark_of(const char *at, int i)
{
    for (; *at && *at != '>'; at++)
        if (*at != '_' && i-- == 0) return *at;
    return 0;
}

bool ir_opaque_operand_is_float(const ir_node *n, int i)
{
    return mark_of(n->attr[IR_ATTR(foreign, layout)].s, i) == 't';
}

bool ir_opaque_result_is_float(const ir_node *n, int i)
{
    const char *results = strchr(n->attr[IR_ATTR(foreign, layout)].s, '>');
    return results && mark_of(results + 1, i) == 't';
}

void ir_opaque_resolve_bf16(ir_node *n, bool low)
{
    const char *layout = n->attr[IR_ATTR(foreign, layout)].s;
    if (!strchr(layout, 'h')) return;
    char *resolved = arena_strdup(n->graph->module->arena, layout);
    for (char *p = resolved; *p; p++)
        if (*p == 'h') *p = low ? 't' : 'x';
    n->attr[IR_ATTR(foreign, layout)].s = resolved;
}

/* ---- types ----------------------------------------------------------------------------------------------- */

/* Parses "f32[N,3]" at *at and moves *at past it. */
static bool read_type(ir_dim_table *dims, const char **at, ir_type *out)
{
    const char *p = *at;
    char name[8];
    size_t n = 0;
    while (*p && *p != '[' && n + 1 < sizeof name) name[n++] = *p++;
    name[n] = '\0';
    *out = (ir_type){.dtype = ir_dtype_parse(name)};
    if (out->dtype == IR_NO_DTYPE || *p++ != '[') return false;
    while (*p != ']') {
        if (out->rank == IR_MAX_RANK || (out->rank && *p++ != ',')) return false;
        ir_dim d = ir_dim_parse(dims, p, &p);
        if (d == IR_DIM_NONE || (!ir_dim_is_symbolic(d) && d < 0)) return false;
        out->dims[out->rank++] = d;
    }
    *at = p + 1;
    return true;
}

/* The type of all marked operands, or NO_DTYPE if there are none. */
static ampc_status float_type(const inference *x, ir_dtype *out)
{
    *out = IR_NO_DTYPE;
    for (int i = 0; i < x->node->n_in; i++) {
        if (!ir_opaque_operand_is_float(x->node, i)) continue;
        ir_dtype t = infer_in(x, i)->dtype;
        if (*out != IR_NO_DTYPE && *out != t)
            return infer_reject(x, "float operands differ: %s and %s", ir_dtype_name(*out), ir_dtype_name(t));
        *out = t;
    }
    return AMPC_OK;
}

ampc_status infer_opaque(const inference *x)
{
    ir_dtype float_dtype;
    TRY(float_type(x, &float_dtype));
    const char *at = infer_attr(x, "types")->s, *all = at;
    for (int i = 0; i < x->node->n_out; i++) {
        ir_type type;
        if ((i && *at++ != ',') || !read_type(x->dims, &at, &type))
            return infer_reject(x, "types \"%s\" does not have %d entries", all, x->node->n_out);
        if (float_dtype != IR_NO_DTYPE && ir_opaque_result_is_float(x->node, i)) type.dtype = float_dtype;
        TRY(infer_result(x, i, type));
    }
    return *at ? infer_reject(x, "types \"%s\" does not have %d entries", all, x->node->n_out) : AMPC_OK;
}

void ir_opaque_set_result_dtype(ir_node *n, ir_dtype to)
{
    arena *a = n->graph->module->arena;
    const char *types = "";
    for (int i = 0; i < n->n_out; i++) {
        ir_type type = n->out[i]->type;
        if (type.dtype == IR_f32) type.dtype = to;
        types = arena_printf(a, "%s%s%s", types, i ? "," : "", ir_type_print(n->graph->module, &type, a));
    }
    ir_set_str(n, IR_ATTR(foreign, types), types);
}
