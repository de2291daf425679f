/* model_forms.h - random ONNX models of all operators, for fuzz_onnx_graph.c. */
#ifndef TESTS_FUZZ_MODEL_FORMS_H
#define TESTS_FUZZ_MODEL_FORMS_H

#include "tests/fuzz/choices.h"
#include "tests/unit/wire_writer.h"

/* Returns the bytes of a model with up to five nodes of the forms in tests/forms; the last node may be one that the
 * importer refuses. */
wire model_of_forms(choices *c);

#endif
