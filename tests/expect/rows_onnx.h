/* rows_onnx.h - ONNX models in text, for the files of program `rows` that read them. */
#ifndef TESTS_EXPECT_ROWS_ONNX_H
#define TESTS_EXPECT_ROWS_ONNX_H

#include "frontend/onnx.h"
#include "frontend/read/tensor.h"
#include "passes/passes.h"
#include "tests/expect/rows.h"
#include "tests/unit/model_writer.h"

enum { MAX_BINDINGS = 8 };

typedef struct text_model {
    model m;
    wire opsets;       /* further ones */
    const char *given; /* " NAME " of each initializer */
    const char *last;  /* result */
    bool has_output;
    uint32_t node_field;          /* of the message; 0: that of a graph */
    const char *errors, *remarks; /* of the import */
    onnx_import_options o;
    pass_level level;
    ir_dtype low;
    const char *consumer, *list; /* list: a list file */
    int written;                 /* the opset, or 0 */
    onnx_dim_binding dims[MAX_BINDINGS];
    onnx_constant constants[MAX_BINDINGS];
} text_model;

/* Imports the model of a row, which is compiled and written as ONNX if it `emits`. Returns NULL, or the errors. */
const char *import_text(text_model *t, const char *input, bool emits, ir_module **m);
/* The status and the errors that have been collected. */
const char *text_errors(const text_model *t, ampc_status status);
/* Adds each message without the name of the file and without "error: ". */
void collect_errors(void *user, diag_level level, const char *message);

#endif
