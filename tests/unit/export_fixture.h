/* export_fixture.h - exports trained values into memory and reads the result. */
#ifndef TESTS_EXPORT_FIXTURE_H
#define TESTS_EXPORT_FIXTURE_H

#include "frontend/onnx.h"
#include "frontend/read/tensor.h"
#include "runtime/api/ampc.h"
#include "tests/unit/model_writer.h"
#include "tests/unit/scratch.h"
#include "tests/unit/written_parts.h"

/* ---- running an export, both files into memory ----------------------------------------------- */

static inline ampc_status export_file(scratch *t, wire file, const onnx_trained *trained, int n, parts *out)
{
    onnx_export_options o = {
        .trained = trained, .n_trained = n, .data_name = "new.data", .write = collect, .user = out};
    scratch_write(t, "m.onnx", file.bytes, file.size);
    wire_free(&file);
    return onnx_export_trained(scratch_path(t, "m.onnx"), &o, t->d);
}

static inline void expect_failure(scratch *t, wire file, const onnx_trained *trained, int n, ampc_status expected,
                                  const char *text)
{
    parts out = {0};
    assert_int_equal(export_file(t, file, trained, n, &out), expected);
    assert_int_equal(out.part[0].size + out.part[1].size, 0);
    scratch_expect(t, text);
}

/* Returns the decoded exported model, which the caller closes. */
static inline onnx_file *exported(scratch *t, wire file, const onnx_trained *trained, int n, parts *out)
{
    onnx_file *f = NULL;
    ampc_status status = export_file(t, file, trained, n, out);
    if (status == AMPC_OK)
        status = onnx_file_wrap(out->part[ONNX_PART_MODEL].bytes, out->part[ONNX_PART_MODEL].size, "new.onnx", t->d,
                                &f);
    if (status != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    return f;
}

static inline void close_export(onnx_file *f, parts *out)
{
    onnx_file_close(f);
    wire_free(&out->part[0]);
    wire_free(&out->part[1]);
}

static inline onnx_trained values(const char *name, int count, const float *data)
{
    return (onnx_trained){name, ir_type_make(IR_f32, 1, (const int64_t[]){count}), data};
}

/* ---- values ---------------------------------------------------------------------------------- */

static inline wire add_model(wire tensor)
{
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "N,3");
    model_tensor(&m, tensor);
    model_tensor(&m, TENSOR_FLOATS("kept", "3", 7, 8, 9));
    model_node(&m, "Add", "x,w", "a");
    model_node(&m, "Mul", "a,kept", "y");
    model_output(&m, "y", ONNX_float32, NULL);
    return model_finish(&m);
}

#endif
