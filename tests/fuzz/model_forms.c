/* model_forms.c - random ONNX models of the operators in tests/forms. */
#include "tests/forms/form.h"
#include "tests/fuzz/model_forms.h"

enum { MAX_NODES = 5 };

wire model_of_forms(choices *c)
{
    int outputs[FORM_POOL], n;
    drawing w = drawing_start(c, 7 + choose(c, 17));
    for (int i = choose(c, MAX_NODES); i >= 0 && drawing_add(&w, drawing_any_form(&w)); i--) continue;
    wire file = drawing_file(&w, outputs, &n, false);
    drawing_free(&w);
    return file;
}
