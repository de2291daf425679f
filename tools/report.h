/* report.h - the compilation as a report: JSON, or a page that shows it. */
#ifndef AMPC_TOOLS_REPORT_H
#define AMPC_TOOLS_REPORT_H

#include "tools/tool.h"

/* Writes the report of t->compile to t->o.output as JSON or, with `page`, as an HTML file that loads nothing. */
ampc_status report_write(tool *t, bool page);

#endif
