/* csv_values.h - the values of a CSV file as numbers: missing ones are dropped or replaced, texts are numbered. */
#ifndef RT_CSV_VALUES_H
#define RT_CSV_VALUES_H

#include "runtime/data/codebook.h"
#include "runtime/data/csv_table.h"
#include "runtime/data/data_spec.h"

/* The entry of a codebook for a column. */
const char *rt_csv_code(const rt_csv *t, const rt_csv_column *c);

/* Sets finite `values` for every column but those of files, by the codes of `given` (NULL: derived from the file), and
 * adds the codes to *out. `describes`: without the option `missing`, missing numbers stay NaN. Fails with
 * AMPC_REJECTED, naming the line, or AMPC_NO_MEMORY. */
ampc_status rt_csv_convert(rt_csv *t, const rt_data_spec *spec, const rt_codebook *given, bool describes,
                           rt_codebook *out, diag *d);
/* Notes how many values of each column are missing. */
void rt_csv_note_missing(const rt_csv *t, diag *d);

#endif
