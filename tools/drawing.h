/* drawing.h - the compiled graph as a drawing. */
#ifndef AMPC_TOOLS_DRAWING_H
#define AMPC_TOOLS_DRAWING_H

#include "tools/tool.h"

/* Writes t->module to t->o.output as Graphviz text or, with `svg`, as SVG produced by Graphviz' program `dot`. Fails
 * with AMPC_IO if `dot` is missing or fails. */
ampc_status drawing_write(tool *t, bool svg);

#endif
