/* drawing.h - the compiled graph as a picture. */
#ifndef AMPC_TOOLS_DRAWING_H
#define AMPC_TOOLS_DRAWING_H

#include "tools/tool.h"

/* Writes t->module to t->o.output as text for Graphviz, or, with `svg`, as what its program `dot` makes of that:
 * AMPC_IO when it is missing or fails. */
ampc_status drawing_write(tool *t, bool svg);

#endif
