/* training.h - a compiled training network, its session and training data, for the tests of checkpoints, the training
 * loop and the API.
 *
 * The network is tests/models/mlp.onnx; the data are points whose first coordinate decides the class. */
#ifndef TESTS_TRAINING_H
#define TESTS_TRAINING_H

#include "frontend/onnx.h"
#include "ir/base/philox.h"
#include "passes/passes.h"
#include "runtime/train/trainer.h"
#include "tests/compile.h"
#include "tests/data.h"
#include "tests/session.h"
#include "tests/unit/scratch.h"

#define MLP AMPC_SOURCE_DIR "/tests/models/mlp.onnx"

typedef struct training {
    ir_module *m;
    rt_session *s;
    rt_dataset *data;
} training;

static inline compile_options training_options(ir_dtype low)
{
    compile_options o = compile_options_default();
    o.low = low;
    o.loss = "ce";
    o.optimizer = "adamw,lr=0.02";
    o.mode = PASS_MODE_FILE;
    return o;
}

#define assert_ok(t, call) \
    do { \
        if ((call) != AMPC_OK) fail_msg("%s: %s", #call, diag_first_error((t)->d)); \
    } while (0)

/* Compiles the network. `batch` 0: the symbol N stays. */
static inline ir_module *training_module(scratch *t, const compile_options *o, int64_t batch)
{
    ir_module *m = NULL;
    const onnx_dim_binding dim = {"N", batch};
    const onnx_import_options import = {.dims = &dim, .n_dims = batch ? 1 : 0};
    assert_ok(t, onnx_import(MLP, &import, t->d, &m));
    assert_ok(t, test_compile(m, o, t->d));
    return m;
}

static inline rt_session *training_session(scratch *t, const ir_module *m)
{
    rt_session *s = NULL;
    const rt_session_options o = {.device = "cpu", .threads = 1, .deterministic = 1};
    assert_ok(t, rt_session_open(m, &o, t->d, &s));
    return s;
}

/* Writes x f32[rows,4] and label i64[rows] to the scratch folder and opens them. */
static inline rt_dataset *training_data(scratch *t, int64_t rows)
{
    float x[512][4];
    int64_t label[512];
    char *spec;
    rt_dataset *data = NULL;
    const rt_dataset_options o = {0};
    assert_true(rows <= 512);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < 4; k++) x[i][k] = 2 * philox_unit(philox_word(5, (uint64_t)k, (uint64_t)i)) - 1;
        label[i] = x[i][0] > 0;
    }
    rt_array points = {.dtype = IR_f32, .rank = 2, .dims = {rows, 4}, .bytes = (size_t)rows * 16, .data = x};
    rt_array labels = {.dtype = IR_i64, .rank = 1, .dims = {rows}, .bytes = (size_t)rows * 8, .data = label};
    assert_ok(t, npy_write(scratch_path(t, "x.npy"), &points, t->d));
    assert_ok(t, npy_write(scratch_path(t, "label.npy"), &labels, t->d));
    assert_true(asprintf(&spec, "npy:x=%s,label=%s", scratch_path(t, "x.npy"), scratch_path(t, "label.npy")) > 0);
    assert_ok(t, rt_dataset_open(spec, &o, t->d, &data));
    free(spec);
    return data;
}

static inline training training_open(scratch *t, const compile_options *o, int64_t rows)
{
    training r = {.m = training_module(t, o, 0), .data = training_data(t, rows)};
    r.s = training_session(t, r.m);
    return r;
}

static inline void training_close(training *r)
{
    rt_session_close(r->s);
    rt_dataset_close(r->data);
    ir_module_free(r->m);
}

/* Returns all parameters and states, concatenated; the caller frees them. */
static inline char *training_bytes(rt_session *s, size_t *n)
{
    char *bytes = NULL;
    *n = 0;
    for (int i = 0; i < rt_session_storage_count(s); i++) {
        rt_tensor t;
        ir_storage_kind kind;
        diag *d = diag_new(NULL, NULL);
        rt_session_storage_at(s, i, &t, &kind);
        assert_int_equal(rt_session_read(s, i, d, &t), AMPC_OK);
        diag_free(d);
        if (kind == IR_CONST) continue;
        size_t size = ir_dtype_size(t.dtype);
        for (int k = 0; k < t.rank; k++) size *= (size_t)t.dims[k];
        bytes = realloc(bytes, *n + size + 1);
        memcpy(bytes + *n, t.data, size);
        *n += size;
    }
    return bytes;
}

/* Sets all bytes of parameters and states to `mixed`, or to varying values if that is 0. */
static inline void training_scramble(rt_session *s, unsigned char mixed)
{
    for (int i = 0; i < rt_session_storage_count(s); i++) {
        rt_tensor t;
        ir_storage_kind kind;
        diag *d = diag_new(NULL, NULL);
        rt_session_storage_at(s, i, &t, &kind);
        assert_int_equal(rt_session_read(s, i, d, &t), AMPC_OK);
        diag_free(d);
        size_t size = ir_dtype_size(t.dtype);
        for (int k = 0; k < t.rank; k++) size *= (size_t)t.dims[k];
        for (size_t b = 0; kind != IR_CONST && b < size; b++)
            ((unsigned char *)t.data)[b] = mixed ? mixed : (unsigned char)(b * 7 + (size_t)i * 3 + 1);
    }
}

static inline rt_tensor training_storage(scratch *t, rt_session *s, const char *name)
{
    rt_tensor out;
    assert_ok(t, test_storage(s, name, t->d, &out));
    return out;
}

#endif
