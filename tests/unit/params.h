/* params.h - compiles models for the tests of pass params, and asks what became of their initializers. */
#ifndef TESTS_PARAMS_H
#define TESTS_PARAMS_H

#include "frontend/onnx.h"
#include "frontend/read/tensor.h"
#include "passes/passes.h"
#include "runtime/files/weights.h"
#include "tests/unit/model_writer.h"
#include "tests/unit/scratch.h"

enum { SIZE = 4, CELLS = SIZE * SIZE };

/* ---- compiling -------------------------------------------------------------------------------- */

typedef struct text_log {
    char text[1 << 14];
} text_log;

static inline void add_text(void *user, const char *text)
{
    text_log *log = user;
    size_t used = strlen(log->text);
    snprintf(log->text + used, sizeof log->text - used, "%s", text);
}

static inline void add_message(void *user, diag_level level, const char *message)
{
    if (level == DIAG_NOTE) add_text(user, message);
}

/* Names separated by commas; `passes` NULL: all passes. */
typedef struct choice {
    const char *train[4], *freeze[4];
    const char *loss, *loss_output, *pass;
    bool explain, json;
} choice;

static inline pass_strings strings_of(const char *const *names)
{
    int n = 0;
    while (n < 4 && names[n]) n++;
    return (pass_strings){names, n};
}

static inline ampc_status run_passes(ir_module *m, const compile_options *o, const char *pass, text_log *log, diag *d)
{
    arena *a = arena_new(0);
    size_t used = strlen(log->text);
    FILE *text = fmemopen(log->text + used, sizeof log->text - used, "w");
    rt_weights *weights;
    compile *c;
    assert_int_equal(rt_weights_open(m, NULL, d, &weights), AMPC_OK);
    assert_int_equal(compile_load(o, a, d, &c), AMPC_OK);
    c->read = rt_weights_read_part;
    c->read_user = weights;
    c->report.text = text;
    ampc_status status = pass ? pass_run(m, pass, c) : compile_module(m, c);
    fclose(text);
    rt_weights_close(weights);
    arena_free(a);
    return status;
}

/* Returns NULL if the model is rejected; the diag has the message. */
static inline ir_module *compile_file(scratch *t, const char *path, const choice *c, text_log *log)
{
    ir_module *m = NULL;
    compile_options o = compile_options_default();
    o.level = PASS_O0;
    o.loss = c->loss;
    o.loss_output = c->loss_output;
    o.optimizer = "adamw,lr=0.1,weight_decay=0.1";
    o.train = strings_of(c->train);
    o.freeze = strings_of(c->freeze);
    o.explain = c->explain ? "params" : NULL;
    o.json = c->json;
    o.pipeline.roundtrip_each = true;
    if (onnx_import(path, NULL, t->d, &m) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    assert_int_equal(ir_verify(m, t->d), AMPC_OK);
    text_log none = {""};
    if (run_passes(m, &o, c->pass, log ? log : &none, t->d) == AMPC_OK) return m;
    ir_module_free(m);
    return NULL;
}

static inline ir_module *compile_net(scratch *t, model *m, const choice *c, text_log *log)
{
    wire file = model_finish(m);
    scratch_write(t, "m.onnx", file.bytes, file.size);
    wire_free(&file);
    return compile_file(t, scratch_path(t, "m.onnx"), c, log);
}

static const choice only_params = {.loss = "mse", .pass = "params"};

/* Returns "trained", "frozen", "constant", "buffer", or "gone". */
static inline const char *state_of(const ir_module *m, const char *name)
{
    const ir_storage *s = ir_storage_find(m, name);
    if (!s) return "gone";
    if (s->kind == IR_PARAM) return s->frozen ? "frozen" : "trained";
    return s->kind == IR_CONST ? "constant" : "buffer";
}

static inline void expect_state(const ir_module *m, const char *name, const char *state)
{
    if (strcmp(state_of(m, name), state) != 0) fail_msg("'%s' is %s, not %s", name, state_of(m, name), state);
}

static inline void expect_in(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("expected '%s' in:\n%s", part, text);
}

/* ---- models with a mask ------------------------------------------------------------------------- */

/* y = softmax(x combined with the tensor m[4,4] in some way) w; "one", "minus" and "cond" are for the forms. */
typedef void mask_form(model *m);

static inline void add_form(model *m) { model_node(m, "Add", "x,m", "s"); }
static inline void select_form(model *m) { model_node(m, "Where", "cond,x,m", "s"); }

static inline model mask_model(mask_form *form, const float *values, const char *dims)
{
    static const bool cond[SIZE] = {true, false, true, true};
    bool single = !*dims || strcmp(dims, "1") == 0;
    model m = model_new(17);
    model_input(&m, "x", ONNX_float32, "4,4");
    model_tensor(&m, tensor_new("m", ONNX_float32, dims, values, (single ? 1 : CELLS) * sizeof *values));
    model_tensor(&m, TENSOR_FLOATS("w", "4,1", 1, 2, 3, 4));
    model_tensor(&m, TENSOR_FLOATS("onnx::Sub_1", "", 1));
    model_tensor(&m, TENSOR_FLOATS("onnx::Mul_2", "", -10000));
    model_tensor(&m, tensor_new("cond", ONNX_bool, "4", cond, sizeof cond));
    model_tensor(&m, TENSOR_INTS("first", "1", 0));
    model_node(&m, "Identity", "onnx::Sub_1", "one");
    model_node(&m, "Identity", "onnx::Mul_2", "minus");
    form(&m);
    node softmax = node_new("Softmax", "s", "p");
    node_int(&softmax, "axis", -1);
    model_add(&m, &softmax);
    model_node(&m, "MatMul", "p,w", "y");
    model_output(&m, "y", 0, NULL);
    return m;
}

static inline void fill(float *cells, float low, float high)
{
    for (int i = 0; i < CELLS; i++) cells[i] = i % SIZE > i / SIZE ? high : low; /* above the diagonal: high */
}

#endif
