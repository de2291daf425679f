/* node.c - messages about the current node, and the budget of copies of bodies. */
#include "frontend/lower/lower.h"

#include <stdarg.h>

diag_loc onnx_loc(const onnx_node *n) { return diag_node(n->b->loc.file, n->b->loc.node, n->b->loc.op); }

void onnx_fail(onnx_node *n, ampc_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!n->failed) diag_verror(n->importer->diag, status, onnx_loc(n), format, args);
    va_end(args);
    n->failed = true;
}

/* A symbol of the dimension, or NULL. */
static const char *symbol_of(const onnx_node *n, ir_dim d)
{
    const size_t count = ir_dim_symbol_count(n->dims);
    int64_t *sizes = arena_array(n->importer->scratch, count + 1, sizeof *sizes), value;
    size_t symbol = SIZE_MAX;
    for (size_t i = 0; i < count; i++) sizes[i] = -1;
    if (!ir_dim_is_symbolic(d) || ir_dim_eval(n->dims, d, sizes, &value, &symbol) || symbol == SIZE_MAX) return NULL;
    return ir_dim_symbol_name(n->dims, symbol);
}

void onnx_refuse_dim(onnx_node *n, ir_dim d, const char *format, ...)
{
    va_list args;
    const char *name = symbol_of(n, d);
    diag_loc loc = onnx_loc(n);
    if (name && onnx_is_data_dim(n->importer, name)) name = NULL;
    if (name) loc = DIAG_USE(loc, OPTION_dims, .key = name, .value = "SIZE");
    va_start(args, format);
    if (!n->failed) diag_verror(n->importer->diag, AMPC_UNSUPPORTED, loc, format, args);
    va_end(args);
    n->failed = true;
}

bool onnx_charge(onnx_node *n, int64_t nodes)
{
    n->importer->inlined += nodes;
    if (n->importer->inlined <= ONNX_MAX_INLINED) return true;
    onnx_refuse(n, "the bodies of functions, loops and branches have more than %d nodes in all", ONNX_MAX_INLINED);
    return false;
}
