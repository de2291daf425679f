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

bool onnx_charge(onnx_node *n, int64_t nodes)
{
    n->importer->inlined += nodes;
    if (n->importer->inlined <= ONNX_MAX_INLINED) return true;
    onnx_refuse(n, "the bodies of functions, loops and branches have more than %d nodes in all", ONNX_MAX_INLINED);
    return false;
}
