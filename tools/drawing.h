/* drawing.h - the compiled graph as a drawing. */
#ifndef AMPC_TOOLS_DRAWING_H
#define AMPC_TOOLS_DRAWING_H

#include "tools/tool.h"

/* Writes t->module to t->o.output as Graphviz text or, with `svg`, as SVG made by Graphviz' program `dot`; AMPC_IO if
 * that is missing or fails. */
ampc_status drawing_write(tool *t, bool svg);

#endif
