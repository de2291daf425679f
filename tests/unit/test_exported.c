/* test_exported.c - what exporters did to a network: the exports of tests/models/exports (make_exports.py), what the
 * importer records about them, what a training warns about, and that it is refused if warnings are errors. */
#include "frontend/onnx.h"
#include "ir/graph/exported.h"
#include "tests/compile.h"
#include "tests/unit/import_fixture.h"

#include <stdio.h>
#include <string.h>

#define EXPORTS AMPC_SOURCE_DIR "/tests/models/exports/"

/* Facts as in the module's metadata; NULL: it did not happen. */
typedef struct row {
    const char *file, *exporter, *mode, *facts[IR_FACT_COUNT];
} row;

#define FOLDED "3 bn1 into Conv, bn2 into ConvTranspose, bn5 into Gemm"
#define MERGED "2 bn4.weight with bn3.weight, bn4.bias with bn3.bias"

static const row rows[] = {
    {"dynamo", "dynamo", "training", {FOLDED, [IR_FACT_separated] = MERGED, [IR_FACT_restored] = "1 fc2.bias"}},
    {"dynamo-eval", "dynamo", "evaluation", {FOLDED, [IR_FACT_separated] = MERGED, [IR_FACT_restored] = "1 fc2.bias"}},
    {"dynamo-whole", "dynamo", "training", {NULL}},
    {"script-eval", "torchscript", "evaluation", {"1 /conv/Conv"}},
    {"script-whole", "torchscript", "training", {NULL}},
    {"addmm", "dynamo", NULL, {[IR_FACT_separated] = "1 w2 with w1", [IR_FACT_restored] = "2 b1, b2"}},
    {"fixed-dynamo", "dynamo", NULL, {NULL}},
    {"fixed-script", "torchscript", NULL, {NULL}},
    {"symbols", "dynamo", NULL, {[IR_FACT_computed] = "2 val_0 from left.weight, val_5 from right.weight"}},
};

static void check_text(const row *r, const char *what, const char *actual, const char *expected)
{
    if ((actual != NULL) == (expected != NULL) && (!actual || strcmp(actual, expected) == 0)) return;
    fail_msg("%s: %s is '%s', not '%s'", r->file, what, actual ? actual : "", expected ? expected : "");
}

static ir_module *import_file(const char *file, diag *d)
{
    char path[512];
    ir_module *m;
    snprintf(path, sizeof path, EXPORTS "%s.onnx", file);
    if (onnx_import(path, NULL, d, &m) != AMPC_OK) fail_msg("%s: %s", file, diag_first_error(d));
    return m;
}

/* "2 a, b"; NULL: it has not happened. */
static const char *text_of(const ir_module *m, int fact)
{
    const ir_names *names = &m->training.exported.facts[fact];
    const char *text = names->count ? arena_printf(m->arena, "%d", names->count) : NULL;
    for (int i = 0; i < names->count; i++)
        text = arena_printf(m->arena, "%s%s%s", text, i ? ", " : " ", names->items[i]);
    return text;
}

TEST(test_facts)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        diag *d = diag_new(NULL, NULL);
        ir_module *m = import_file(r->file, d);
        check_text(r, "the exporter", ir_exporter_get(m)->word, r->exporter);
        check_text(r, "the mode", ir_meta_get(m, IR_EXPORTED_MODE), r->mode);
        for (int f = 0; f < IR_FACT_COUNT; f++) {
            check_text(r, ir_facts[f].word, text_of(m, f), r->facts[f]);
        }
        ir_module_free(m);
        diag_free(d);
    }
}

/* tf2onnx names what it folds; PyTorch's TorchScript exporter generates such names for weights alone too. */
TEST_SCRATCH(test_names)
{
    static const struct {
        const char *weight, *bias, *folded;
    } cases[] = {{"c/Conv2D_weights_fused_bn", "c/Conv2D_bias_fused_bn", "1 Conv_0"},
                 {"c.weight", "c.bias", NULL},
                 {"onnx::Conv_1", "onnx::Conv_2", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model m = model_new(17);
        char inputs[128];
        ir_module *module = NULL;
        model_input(&m, "x", ONNX_float32, "1,1,4,4");
        model_tensor(&m, TENSOR_FLOATS(cases[i].weight, "1,1,1,1", 2));
        model_tensor(&m, TENSOR_FLOATS(cases[i].bias, "1", 3));
        snprintf(inputs, sizeof inputs, "x,%s,%s", cases[i].weight, cases[i].bias);
        node n = node_new("Conv", inputs, "y");
        wire_text(&n, 3, "Conv_0");
        model_add(&m, &n);
        model_output(&m, "y", 0, NULL);
        if (import_bytes(t, model_finish(&m), NULL, &module) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
        const char *folded = text_of(module, IR_FACT_folded);
        if ((folded != NULL) != (cases[i].folded != NULL)) fail_msg("%s: %s", cases[i].weight, folded);
        if (folded) assert_string_equal(folded, cases[i].folded);
        ir_module_free(module);
    }
}

/* ---- trainings ----------------------------------------------------------------------------------- */

typedef struct log {
    char text[8192];
} log;

static void add_message(void *user, diag_level level, const char *message)
{
    log *l = user;
    const size_t used = strlen(l->text);
    (void)level;
    snprintf(l->text + used, sizeof l->text - used, "%s\n", message);
}

static ampc_status compile_training(const char *file, bool strict, log *messages)
{
    diag *d = diag_new(add_message, messages);
    ir_module *m = import_file(file, d);
    compile_options o = compile_options_default();
    o.loss = "ce";
    diag_set_strict(d, strict);
    const ampc_status status = test_compile(m, &o, d);
    ir_module_free(m);
    diag_free(d);
    return status;
}

TEST(test_training)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        const bool changed = r->facts[IR_FACT_folded];
        log messages = {""};
        if (compile_training(r->file, false, &messages) != AMPC_OK) fail_msg("%s: %s", r->file, messages.text);
        if (!strstr(messages.text, "folded into the operator") != !changed ||
            !strstr(messages.text, "keeps the network as it is: torch.onnx.export(model.train(), ") != !changed)
            fail_msg("%s: %s", r->file, messages.text);
        messages.text[0] = '\0';
        const ampc_status strict = compile_training(r->file, true, &messages);
        if (strict != (changed ? AMPC_REJECTED : AMPC_OK)) fail_msg("%s: %s", r->file, messages.text);
    }
}

/* A model that is not trained is converted without a warning. */
TEST(test_inference)
{
    diag *d = diag_new(NULL, NULL);
    ir_module *m = import_file("dynamo", d);
    const compile_options o = compile_options_default();
    assert_int_equal(test_compile(m, &o, d), AMPC_OK);
    assert_int_equal(diag_count(d, DIAG_WARNING), 0);
    ir_module_free(m);
    diag_free(d);
}

/* ---- texts --------------------------------------------------------------------------------------- */

TEST(test_text)
{
    static const char *const names[] = {"a", "b", "c"};
    ir_module *m = ir_module_new(), *recipe = ir_module_new();
    ir_exported_set(m, IR_FACT_dropped, names, 3);
    assert_string_equal(ir_exported_text(m, IR_FACT_dropped, 0, m->arena),
                        "3 biases were removed because they were zero: a, b, c");
    assert_string_equal(ir_exported_text(m, IR_FACT_dropped, 2, m->arena),
                        "3 biases were removed because they were zero: a, b and 1 more");
    ir_exported_set(m, IR_FACT_dropped, names, 1);
    assert_string_equal(ir_exported_text(m, IR_FACT_dropped, 2, m->arena), "1 bias was removed because it was zero: a");
    assert_string_equal(ir_exported_text(m, IR_FACT_folded, 2, m->arena), "");
    m->training.exported.exporter = IR_EXPORTER_dynamo;
    ir_exported_copy(recipe, m, "g");
    ir_exported_copy(recipe, m, "d");
    assert_string_equal(ir_exporter_get(recipe)->word, "dynamo");
    assert_string_equal(text_of(recipe, IR_FACT_dropped), "2 g: a, d: a");
    ir_module_free(recipe);
    ir_module_free(m);
}
