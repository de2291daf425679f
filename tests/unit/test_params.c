/* test_params.c - which initializers are trained: exporter-generated names, their metadata, --train and --freeze. */
#include "tests/unit/params.h"

#include <dirent.h>
#include <jansson.h>

/* ---- names ------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    bool held;
} names[] = {
    /* torch.onnx, TorchScript */
    {"onnx::Mul_123", true},
    {"217", true},
    {"/layer/Constant_output_0", true},
    {"/attn/Sqrt_1_output_0", true},
    /* torch.onnx, dynamo */
    {"val_12", true},
    {"scalar_tensor_default", true},
    {"scalar_tensor_default_3", true},
    {"lifted_tensor_0", true},
    /* tf2onnx, TensorFlow */
    {"const_fold_opt__389", true},
    {"axes_const__9894", true},
    {"Const__523", true},
    {"model/gelu/Const_1:0", true},
    {"Const:0", true},
    {"bert/encoder/layer_0/LayerNorm/batchnorm/add/y:0", true},
    {"model/truediv/y:0", true},
    {"mul/x:0", true},
    /* Paddle2ONNX, skl2onnx */
    {"p2o.helper.constant.14", true},
    {"p2o.pd_op.full.0.0", true},
    {"Ad_Addcst", true},
    {"Mu_Mulcst1", true},
    /* chosen by people */
    {"logit_scale", false},
    {"temperature", false},
    {"model.0.weight", false},
    {"layer.0.gamma", false},
    {"one.bias", false},
    {"prelu.weight", false},
    {"alpha", false},
    {"val", false},
    {"val_", false},
    {"val_1_scale", false},
    {"interval_3", false},
    {"w1", false},
    {"1x", false},
    {"lifted_tensor_scale", false},
    {"/scale", false},
    {"conv2d_0.w_0", false},
    {"linear_0.b_0", false},
    {"kernel:0", false},
    {"dense/bias:0", false},
    {"scale__x", false},
    {"burst", false},
};

/* Returns the model y = x * s with s of `dims`. */
static model scale_model(const char *name, const char *dims)
{
    static const float values[2] = {0.5f, 2};
    model m = model_new(17);
    char inputs[128];
    model_input(&m, "x", ONNX_float32, "N,2");
    model_tensor(&m, TENSOR_FLOATS("w", "2,2", 1, 2, 3, 4));
    model_tensor(&m, tensor_new(name, ONNX_float32, dims, values, strcmp(dims, "2") == 0 ? 8 : 4));
    model_node(&m, "MatMul", "x,w", "h");
    snprintf(inputs, sizeof inputs, "h,%s", name);
    model_node(&m, "Mul", inputs, "y");
    model_output(&m, "y", 0, NULL);
    return m;
}

TEST_SCRATCH(names_of_single_elements)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int form = 0; form < 3; form++) {
            static const char *const dims[] = {"", "1", "1,1"};
            model m = scale_model(names[i].name, dims[form]);
            ir_module *out = compile_net(t, &m, &only_params, NULL);
            assert_non_null(out);
            expect_state(out, names[i].name, names[i].held ? "constant" : "trained");
            expect_state(out, "w", "trained");
            ir_module_free(out);
        }
}

/* Exporters transpose weights under generated names. */
TEST_SCRATCH(several_elements_are_not_judged_by_name)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        model m = scale_model(names[i].name, "2");
        ir_module *out = compile_net(t, &m, &only_params, NULL);
        expect_state(out, names[i].name, "trained");
        ir_module_free(out);
    }
}

/* Without a loss, storage has the same kinds as for inference: names do not matter in a conversion. */
TEST_SCRATCH(inference_holds_nothing)
{
    static const choice inference = {.pass = "params"};
    text_log log = {""};
    model m = scale_model("val_12", "");
    ir_module *out = compile_net(t, &m, &inference, &log);
    expect_state(out, "val_12", "trained");
    assert_string_equal(log.text, "");
    ir_module_free(out);
    m = scale_model("onnx::Mul_3", "");
    out = compile_net(t, &m, &inference, &log);
    expect_state(out, "onnx::Mul_3", "constant");
    ir_module_free(out);
}

/* ---- metadata of torch.onnx -------------------------------------------------------------------- */

static wire entry_new(const char *key, const char *value)
{
    wire e = {0};
    wire_text(&e, 1, key);
    wire_text(&e, 2, value);
    return e;
}

static void declare(model *m, const char *name, const char *key, const char *value)
{
    wire info = {0}, e = entry_new(key, value);
    wire_text(&info, 1, name);
    wire_message(&info, 4, &e);
    wire_message(&m->graph, 13, &info);
}

#define KIND "pkg.torch.export.graph_signature.InputSpec.kind"
#define FOLDED "pkg.onnxscript.optimizer.folded_from"
#define SIGNATURE "pkg.torch.export.ExportedProgram.graph_signature"

TEST_SCRATCH(metadata_decides)
{
    static const struct {
        const char *name, *dims, *key, *value, *state;
    } rows[] = {
        {"val_3", "", KIND, "PARAMETER", "trained"}, /* whatever its name */
        {"clone", "", KIND, "PARAMETER", "trained"},
        {"scale", "", KIND, "BUFFER", "constant"},
        {"scale", "2", KIND, "BUFFER", "constant"}, /* whatever its size */
        {"lifted", "2", KIND, "CONSTANT_TENSOR", "constant"},
        {"scale", "2", KIND, "USER_INPUT", "trained"}, /* not a category of storage */
        {"val_9", "", KIND, "USER_INPUT", "constant"},
        {"clone", "", FOLDED, "['lifted_tensor_0']", "constant"},
        {"triu", "2", FOLDED, "['full', 'val_2']", "constant"},
        {"new_full", "", FOLDED, "[]", "constant"},
        {"val_38", "2", FOLDED, "['fc.weight']", "trained"},
        {"exp", "", FOLDED, "['val_1', 'logit_scale']", "trained"},
        {"exp", "", FOLDED, "['logit_scale_2']", "constant"}, /* a parameter's name is only its prefix */
        {"exp", "", FOLDED, "['scale']", "constant"},         /* a parameter's name is only its suffix */
        {"broken", "", FOLDED, "['fc.weight", "trained"},     /* damaged lists are parsed to their end */
        {"broken", "2", FOLDED, "'", "constant"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        model m = scale_model(rows[i].name, rows[i].dims);
        wire signature = entry_new(SIGNATURE, "\n# inputs\np_fc_weight: PARAMETER target='fc.weight'\n"
                                              "p_logit_scale: PARAMETER target='logit_scale'\n"
                                              "b_scale: BUFFER target='scale'\n");
        wire_message(&m.graph, 16, &signature);
        declare(&m, rows[i].name, rows[i].key, rows[i].value);
        ir_module *out = compile_net(t, &m, &only_params, NULL);
        assert_non_null(out);
        expect_state(out, rows[i].name, rows[i].state);
        ir_module_free(out);
    }
}

/* ---- always constant --------------------------------------------------------------------------- */

TEST_SCRATCH(constants_of_the_graph)
{
    model m = model_new(17);
    node c = node_new("Constant", "", "c");
    node_tensor(&c, "value", TENSOR_FLOATS("", "2", 3, 4));
    model_input(&m, "x", ONNX_float32, "N,2");
    model_tensor(&m, TENSOR_FLOATS("w", "2,2", 1, 2, 3, 4));
    model_tensor(&m, TENSOR_FLOATS("logit_scale", "", 0.25));
    model_tensor(&m, TENSOR_FLOATS("bias", "1", 0));
    model_tensor(&m, TENSOR_FLOATS("bound", "", 6));
    model_add(&m, &c);
    model_node(&m, "MatMul", "x,w", "a");
    model_node(&m, "Mul", "a,logit_scale", "b");
    model_node(&m, "Add", "b,bias", "d");
    model_node(&m, "Clip", "d,,bound", "e");
    model_node(&m, "Mul", "e,c", "y");
    model_output(&m, "y", 0, NULL);
    ir_module *out = compile_net(t, &m, &only_params, NULL);
    assert_non_null(out);
    expect_state(out, "w", "trained");
    expect_state(out, "logit_scale", "trained");
    expect_state(out, "bias", "trained");
    expect_state(out, "bound", "constant");
    expect_state(out, "c", "constant");
    ir_module_free(out);
}

/* ---- --train, --freeze ------------------------------------------------------------------------- */

static model attention_model(void)
{
    float cells[CELLS];
    fill(cells, 0, -1e9f);
    model m = mask_model(add_form, cells, "4,4");
    model_tensor(&m, TENSOR_FLOATS("bound", "", 6));
    model_tensor(&m, TENSOR_FLOATS("val_7", "", 0.5));
    model_node(&m, "Clip", "y,,bound", "z");
    model_node(&m, "Mul", "z,val_7", "u");
    model_output(&m, "u", 0, NULL);
    return m;
}

TEST_SCRATCH(train_releases_what_it_names)
{
    static const struct {
        choice options;
        const char *w, *m, *val;
    } rows[] = {
        {{.train = {NULL}}, "trained", "constant", "constant"},
        {{.train = {"*"}}, "trained", "constant", "constant"}, /* globs release nothing */
        {{.train = {"[mw]"}}, "trained", "constant", "constant"},
        {{.train = {"m"}}, "frozen", "trained", "constant"}, /* trains only the named ones */
        {{.train = {"w", "m"}}, "trained", "trained", "constant"},
        {{.train = {"*", "m", "val_7"}}, "trained", "trained", "trained"},
        {{.freeze = {"*"}}, "frozen", "constant", "constant"},
        {{.freeze = {"m"}}, "trained", "constant", "constant"},
        {{.train = {"*"}, .freeze = {"m"}}, "trained", "constant", "constant"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        choice c = rows[i].options;
        c.loss = "mse";
        c.pass = "params";
        model m = attention_model();
        ir_module *out = compile_net(t, &m, &c, NULL);
        if (!out) fail_msg("row %zu: %s", i, diag_first_error(t->d));
        expect_state(out, "w", rows[i].w);
        expect_state(out, "m", rows[i].m);
        expect_state(out, "val_7", rows[i].val);
        assert_int_equal(diag_count(t->d, DIAG_WARNING), 0);
        ir_module_free(out);
    }
}

/* A bound is a setting, also if a node moves it first; one that is computed is not. */
TEST_SCRATCH(settings_are_trained_if_named)
{
    static const struct {
        const char *op, *train, *expected;
    } rows[] = {
        {NULL, NULL, "constant"},        {"Squeeze", NULL, "gone"},  {"Identity", NULL, "constant"},
        {"Squeeze", "bound", "trained"}, {NULL, "bound", "trained"}, {"Exp", NULL, "trained"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        model m = model_new(17);
        model_input(&m, "x", ONNX_float32, "N,2");
        model_tensor(&m, TENSOR_FLOATS("w", "2,2", 1, 2, 3, 4));
        model_tensor(&m, TENSOR_FLOATS("bound", rows[i].op && *rows[i].op == 'S' ? "1" : "", 6));
        if (rows[i].op) model_node(&m, rows[i].op, "bound", "top");
        model_node(&m, "MatMul", "x,w", "h");
        model_node(&m, "Clip", rows[i].op ? "h,,top" : "h,,bound", "y");
        model_output(&m, "y", 0, NULL);
        choice c = {.loss = "mse", .train = {"*", rows[i].train}};
        ir_module *out = compile_net(t, &m, &c, NULL);
        if (!out) fail_msg("row %zu: %s", i, diag_first_error(t->d));
        expect_state(out, "bound", rows[i].expected);
        ir_module_free(out);
    }
}

TEST_SCRATCH(train_refuses_what_cannot_be)
{
    static const struct {
        choice options;
        const char *message;
    } rows[] = {
        {{.train = {"cond"}}, "train: 'cond' cannot be trained: it is not a float tensor"},
        {{.train = {"m"}, .freeze = {"m"}}, "parameter 'm' is matched by train and by freeze"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        choice c = rows[i].options;
        c.loss = "mse";
        c.pass = "params";
        float cells[CELLS];
        fill(cells, 0, -1e9f);
        model m = mask_model(select_form, cells, "4,4");
        model_tensor(&m, TENSOR_FLOATS("bound", "", 6));
        model_node(&m, "Clip", "y,,bound", "z");
        model_output(&m, "z", 0, NULL);
        assert_null(compile_net(t, &m, &c, NULL));
        assert_int_equal(diag_status(t->d), AMPC_USAGE);
        scratch_expect(t, rows[i].message);
    }
}

/* ---- the note and the list --------------------------------------------------------------------- */

static const char *note_of(scratch *t, model *m, choice c, text_log *log)
{
    diag *previous = t->d;
    *log = (text_log){""};
    t->d = diag_new(add_message, log);
    ir_module_free(compile_net(t, m, &c, NULL));
    diag_free(t->d);
    t->d = previous;
    return log->text;
}

TEST_SCRATCH(the_note_counts)
{
    static text_log log;
    model m = attention_model();
    expect_in(
        note_of(t, &m, only_params, &log),
        "note: 1 initializer trained (4 elements), 2 held constant: m, val_7; set explain to params for the reasons");
    m = scale_model("gamma", "2");
    expect_in(note_of(t, &m, only_params, &log), "note: 2 initializers trained (6 elements)");
    assert_null(strstr(log.text, "held"));
    m = scale_model("gamma", "2");
    choice c = only_params;
    c.freeze[0] = "gamma";
    expect_in(note_of(t, &m, c, &log), "note: 1 initializer trained (4 elements), 1 frozen");
    m = model_new(17);
    model_input(&m, "y0", ONNX_float32, "N");
    for (int i = 0; i < 7; i++) {
        char name[16], inputs[32], output[8];
        snprintf(name, sizeof name, "val_%d", i);
        snprintf(inputs, sizeof inputs, "y%d,%s", i, name);
        snprintf(output, sizeof output, "y%d", i + 1);
        model_tensor(&m, TENSOR_FLOATS(name, "", 2));
        model_node(&m, "Mul", inputs, output);
    }
    model_output(&m, "y7", 0, NULL);
    expect_in(note_of(t, &m, only_params, &log), "7 held constant: val_0, val_1, val_2, val_3 and 3 more");
}

TEST_SCRATCH(the_list_has_reasons)
{
    static text_log log;
    choice c = {.explain = true, .pass = "params", .freeze = {"w"}};
    model m = attention_model();
    ir_module_free(compile_net(t, &m, &c, &log));
    expect_in(log.text, "w: f32[4,1], 4 elements, frozen: among the parameters to freeze [rule freeze]\n");
    expect_in(log.text, "m: f32[4,4], 16 elements, held constant: a mask");
    expect_in(log.text, "val_7: f32[], 1 element, held constant: one element with a name that an exporter generated "
                        "[rule name; facts generated, single]\n");
    expect_in(log.text, "bound: f32[], 1 element, constant: a setting of an operator");
    c = (choice){.explain = true, .json = true, .pass = "params", .train = {"m"}};
    log = (text_log){""};
    m = attention_model();
    ir_module_free(compile_net(t, &m, &c, &log));
    expect_in(log.text,
              "{\"name\": \"m\", \"dtype\": \"f32\", \"shape\": [4, 4], \"elements\": 16, \"state\": \"trained\", "
              "\"reason\": \"named among the parameters to train\", \"rule\": \"named\", \"facts\": [\"mask\"]}\n");
    expect_in(log.text, "\"state\": \"frozen\", \"reason\": \"not among the parameters to train\"");
}

/* ---- patterns in training --------------------------------------------------------------------- */

static int count_op(const ir_module *m, const char *graph, ir_op op)
{
    int n = 0;
    for (const ir_node *p = ir_graph_find(m, graph)->first; p; p = p->next) n += p->op == op;
    return n;
}

/* x * 0.5 * (1 + erf(x / sqrt(2))) with initializers for scalars, as in optimized exports: a training step has one
 * gelu and one gelu gradient. */
TEST_SCRATCH(gelu_is_recognised_in_training)
{
    for (int generated = 0; generated < 2; generated++) {
        const char *const n[] = {generated ? "val_1" : "root", generated ? "val_2" : "half",
                                 generated ? "val_3" : "one"};
        const float values[] = {1.41421354f, 0.5f, 1};
        char div[16], mul[16], add[16];
        snprintf(div, sizeof div, "h,%s", n[0]);
        snprintf(mul, sizeof mul, "h,%s", n[1]);
        snprintf(add, sizeof add, "b,%s", n[2]);
        model m = model_new(17);
        model_input(&m, "x", ONNX_float32, "4,4");
        model_tensor(&m, TENSOR_FLOATS("w", "4,1", 1, 2, 3, 4));
        for (int i = 0; i < 3; i++) model_tensor(&m, tensor_new(n[i], ONNX_float32, "", &values[i], sizeof(float)));
        model_node(&m, "MatMul", "x,w", "h");
        model_node(&m, "Div", div, "a");
        model_node(&m, "Erf", "a", "b");
        model_node(&m, "Add", add, "c");
        model_node(&m, "Mul", mul, "d");
        model_node(&m, "Mul", "d,c", "y");
        model_output(&m, "y", 0, NULL);
        const choice c = {.loss = "mse"};
        ir_module *out = compile_net(t, &m, &c, NULL);
        assert_non_null(out);
        assert_int_equal(count_op(out, "train_step", IR_OP_gelu), generated);
        assert_int_equal(count_op(out, "train_step", IR_OP_erf) > 0, !generated);
        ir_module_free(out);
    }
}

/* ---- the goldens ------------------------------------------------------------------------------- */

/* Whatever PyTorch trains is trained without any option. */
static void expect_trained(scratch *t, const char *folder)
{
    char path[1200];
    json_error_t error;
    size_t i;
    const json_t *name;
    snprintf(path, sizeof path, AMPC_SOURCE_DIR "/tests/goldens/%s/meta.json", folder);
    json_t *meta = json_load_file(path, 0, &error);
    assert_non_null(meta);
    snprintf(path, sizeof path, AMPC_SOURCE_DIR "/tests/goldens/%s/model.onnx", folder);
    const choice c = {.loss_output = json_string_value(json_object_get(meta, "loss_output")), .pass = "params"};
    ir_module *m = NULL;
    if (onnx_import(path, NULL, t->d, &m) == AMPC_OK) {
        ir_module_free(m);
        m = compile_file(t, path, &c, NULL);
        assert_non_null(m);
        json_array_foreach(json_object_get(meta, "trainable"), i, name)
            expect_state(m, json_string_value(name), "trained");
        ir_module_free(m);
    }
    assert_true(diag_status(t->d) == AMPC_OK || diag_status(t->d) == AMPC_UNSUPPORTED);
    diag_clear(t->d);
    json_decref(meta);
}

TEST_SCRATCH(goldens_train_their_parameters)
{
    int folders = 0;
    DIR *dir = opendir(AMPC_SOURCE_DIR "/tests/goldens");
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (strchr(e->d_name, '.')) continue;
        expect_trained(t, e->d_name);
        folders++;
    }
    closedir(dir);
    assert_true(folders >= 25);
}
