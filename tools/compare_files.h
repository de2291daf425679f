/* compare_files.h - a comparison as a table in a file, with the columns and rules of PaddlePaddle. */
#ifndef AMPC_TOOLS_COMPARE_FILES_H
#define AMPC_TOOLS_COMPARE_FILES_H

#include "runtime/inspect/compare.h"

/* One line per value, the largest error first. */
ampc_status compare_write_csv(const char *path, const rt_compared *const *rows, int count, diag *d);
/* The same as one HTML file without scripts or references. Red: out of the range of fp16; orange: an extreme or mean
 * that differs from that in f32 by more than 5 %; yellow: computed in fp16 or bf16. It ends with the operators that
 * produced infinities. */
ampc_status compare_write_html(const char *path, const char *model, const rt_comparison *c,
                               const rt_compared *const *rows, diag *d);

#endif
