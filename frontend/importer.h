/* importer.h - the part of the importer that describes a model without importing it, for import.c and describe.c. */
#ifndef AMPC_FRONTEND_IMPORTER_H
#define AMPC_FRONTEND_IMPORTER_H

#include "frontend/lower/lower.h"

/* Sets the rows of operators, by which onnx_find_row finds them. */
void onnx_importer_rows(onnx_importer *im);

#endif
