/* test_golden.c - whole networks against PyTorch: outputs, loss, every gradient by name, BN state, six SGD steps.
 *
 * Each folder of tests/goldens holds a model and what PyTorch autograd computes for it in double precision (README
 * there). fp32: max|a-b| / max|b| per tensor, outputs and BN state 1e-5, gradients 1e-4 (those that are zero in
 * exact arithmetic against the norm of all gradients), SGD losses max(1e-5, 4 x what PyTorch's own f32
 * reaches). O1: the
 * gradients as one vector within 4 x the error of rounding matmul operands alone, at least 0.02 (fp16), 0.05 (bf16),
 * and visibly not fp32. A model with operators that are not supported must be refused with exactly those. */
#include "frontend/onnx.h"
#include "passes/passes.h"
#include "runtime/npz.h"
#include "runtime/session.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SGD_STEPS = 6, MAX_NAMES = 512 };

/* What the importer must name when it refuses a case; every other case must run. */
static const struct {
    const char *name, *operators[6];
} refused[] = {
    {"dcgan_discriminator", {"LeakyRelu"}},
    {"dcgan_generator", {"ConvTranspose"}},
    {"deconv_autoencoder", {"ConvTranspose"}},
    {"gru_classifier", {"GRU"}},
    {"llama_gqa", {"Einsum"}},
    {"lstm_lm", {"LSTM"}},
    {"ops_mixed", {"CumSum", "Einsum", "Elu", "GatherElements", "HardSwish", "ReduceL2"}},
    {"unet_bilinear", {"Resize"}},
};

typedef struct precision {
    const char *name;
    pass_level level;
    ir_dtype low;
    double floor;
} precision;

static const precision precisions[] = {
    {"fp32", PASS_O0, IR_f16, 0}, {"fp16", PASS_O1, IR_f16, 0.02}, {"bf16", PASS_O1, IR_bf16, 0.05}};

typedef struct golden {
    char name[96];
    const precision *precision;
    char folder[1024];
    json_t *meta;
    rt_arrays arrays;
    diag *diag;
    bool quiet;
    char errors[8192];
    ir_module *module;
    rt_session *session;
} golden;

/* ---- loading --------------------------------------------------------------------------------- */

/* Keeps the errors; a refusal that is expected makes no noise. */
static void take_message(void *user, diag_level level, const char *message)
{
    golden *g = user;
    size_t used = strlen(g->errors);
    if (level == DIAG_ERROR) snprintf(g->errors + used, sizeof g->errors - used, "%s\n", message);
    if (level == DIAG_ERROR && !g->quiet) print_error("%s\n", message);
}

static const char *meta_text(const golden *g, const char *key)
{
    return json_string_value(json_object_get(g->meta, key));
}

static const char *loss_option(const golden *g, char *buffer, size_t size)
{
    static const char *const names[][2] = {
        {"cross_entropy", "ce"}, {"nll", "nll"}, {"mse", "mse"}, {"bce_with_logits", "bce_logits"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(meta_text(g, "loss"), names[i][0]) == 0) {
            snprintf(buffer, size, "%s:%s,label", names[i][1], meta_text(g, "loss_output"));
            return buffer;
        }
    return NULL; /* in_graph */
}

static void load(golden *g)
{
    char path[1200];
    json_error_t error;
    snprintf(path, sizeof path, "%s/meta.json", g->folder);
    g->meta = json_load_file(path, 0, &error);
    assert_non_null(g->meta);
    snprintf(path, sizeof path, "%s/golden.npz", g->folder);
    assert_int_equal(rt_npz_read(path, IR_NO_DTYPE, g->diag, &g->arrays), AMPC_OK);
}

static ampc_status compile(golden *g)
{
    char path[1200], loss[256], optimizer[64];
    const char *train[MAX_NAMES];
    snprintf(path, sizeof path, "%s/model.onnx", g->folder);
    ampc_status status = onnx_import(path, NULL, g->diag, &g->module);
    if (status != AMPC_OK) return status;
    pass_options o = pass_options_default();
    o.level = g->precision->level;
    o.low = g->precision->low;
    o.loss = loss_option(g, loss, sizeof loss);
    if (!o.loss) o.loss_output = meta_text(g, "loss_output");
    snprintf(optimizer, sizeof optimizer, "sgd,lr=%.9g", json_number_value(json_object_get(g->meta, "lr")));
    o.optimizer = optimizer;
    o.init_scale = 1024;
    o.roundtrip_each = true;
    json_t *names = json_object_get(g->meta, "trainable");
    for (size_t i = 0; i < json_array_size(names); i++) train[i] = json_string_value(json_array_get(names, i));
    o.train = (pass_strings){train, (int)json_array_size(names)};
    return pass_compile(g->module, &o, g->diag);
}

static int inputs_of(const golden *g, const char *graph, rt_tensor *inputs)
{
    const ir_graph *entry = ir_graph_find(g->module, graph);
    assert_non_null(entry);
    int n = 0;
    for (size_t i = 0; i < entry->inputs.count; i++) {
        const char *name = entry->inputs.items[i]->name;
        char key[256];
        snprintf(key, sizeof key, "input/%s", name);
        const rt_array *a = rt_arrays_find(&g->arrays, key);
        if (!a) a = rt_arrays_find(&g->arrays, strcmp(name, "label") == 0 ? "label" : key);
        assert_non_null(a);
        inputs[n] = (rt_tensor){.name = name, .dtype = a->dtype, .rank = a->rank, .data = a->data};
        for (int k = 0; k < a->rank; k++) inputs[n].dims[k] = a->dims[k];
        n++;
    }
    return n;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static double element(const rt_tensor *t, size_t i)
{
    return ir_load_f64(t->dtype, (const char *)t->data + i * ir_dtype_size(t->dtype));
}

static double reference(const rt_array *a, size_t i)
{
    return ir_load_f64(a->dtype, (const char *)a->data + i * ir_dtype_size(a->dtype));
}

typedef struct distance {
    double max_difference, max_reference; /* over one tensor */
    double squares_difference, squares_reference;
} distance;

static distance compare(const rt_tensor *t, const rt_array *a)
{
    distance d = {0};
    size_t n = a->bytes / ir_dtype_size(a->dtype), m = 1;
    for (int i = 0; i < t->rank; i++) m *= (size_t)t->dims[i];
    assert_int_equal(n, m);
    for (size_t i = 0; i < n; i++) {
        double x = element(t, i), y = reference(a, i), difference = fabs(x - y);
        if (isnan(difference)) difference = INFINITY;
        d.max_difference = fmax(d.max_difference, difference);
        d.max_reference = fmax(d.max_reference, fabs(y));
        d.squares_difference += difference * difference;
        d.squares_reference += y * y;
    }
    return d;
}

static bool has_prefix(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

static bool is_zero_gradient(const golden *g, const char *name)
{
    json_t *names = json_object_get(g->meta, "zero_grad");
    for (size_t i = 0; i < json_array_size(names); i++)
        if (strcmp(json_string_value(json_array_get(names, i)), name) == 0) return true;
    return false;
}

static double gradient_norm(const golden *g)
{
    double squares = 0;
    for (size_t i = 0; i < g->arrays.count; i++)
        for (size_t k = 0; has_prefix(g->arrays.items[i].name, "grad/") &&
                           k < g->arrays.items[i].bytes / ir_dtype_size(g->arrays.items[i].dtype);
             k++)
            squares += pow(reference(&g->arrays.items[i], k), 2);
    return sqrt(squares);
}

/* The output of the graph that a golden array stands for, or NULL when it is no result. */
static const rt_tensor *result_of(const golden *g, const char *key)
{
    char name[300];
    if (has_prefix(key, "output/")) return rt_session_output(g->session, key + 7);
    if (has_prefix(key, "grad/") || has_prefix(key, "gradin/")) return rt_session_output(g->session, key);
    if (!has_prefix(key, "bn/")) return NULL;
    snprintf(name, sizeof name, "buf/%s", key + 3);
    return rt_session_output(g->session, name);
}

static void check_fp32(const golden *g)
{
    double norm = gradient_norm(g);
    int failures = 0;
    for (size_t i = 0; i < g->arrays.count; i++) {
        const rt_array *a = &g->arrays.items[i];
        if (has_prefix(a->name, "input/") || strcmp(a->name, "label") == 0 || strcmp(a->name, "sgd_loss") == 0 ||
            strcmp(a->name, "loss") == 0)
            continue;
        const rt_tensor *t = result_of(g, a->name);
        if (!t) {
            print_error("%s: no result\n", a->name);
            failures++;
            continue;
        }
        distance d = compare(t, a);
        bool gradient = has_prefix(a->name, "grad"), zero = gradient && is_zero_gradient(g, a->name + 5);
        double error = d.max_difference / (zero ? norm : d.max_reference > 0 ? d.max_reference : 1);
        if (error <= (gradient ? 1e-4 : 1e-5)) continue;
        print_error("%s: error %.3g (max|a-b| %.3g, max|b| %.3g)\n", a->name, error, d.max_difference, d.max_reference);
        failures++;
    }
    assert_int_equal(failures, 0);
}

static void check_low(const golden *g)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < g->arrays.count; i++) {
        const rt_array *a = &g->arrays.items[i];
        if (!has_prefix(a->name, "grad/")) continue;
        const rt_tensor *t = result_of(g, a->name);
        assert_non_null(t);
        distance d = compare(t, a);
        difference += d.squares_difference;
        norm += d.squares_reference;
    }
    json_t *errors = json_object_get(json_object_get(g->meta, "reference_error"), g->precision->name);
    double error = sqrt(difference / norm), expected = json_number_value(json_object_get(errors, "grad_rel2_all"));
    double bound = fmax(4 * expected, g->precision->floor);
    if (!(error <= bound)) print_error("gradient error %.4g, allowed %.4g\n", error, bound);
    assert_true(error <= bound);
    assert_true(error > 1e-5); /* visibly not fp32 */
}

/* ---- running --------------------------------------------------------------------------------- */

static void run(golden *g, const char *graph)
{
    rt_tensor inputs[16];
    int n = inputs_of(g, graph, inputs);
    assert_int_equal(rt_session_run(g->session, graph, inputs, n, g->diag), AMPC_OK);
}

/* A gradient that overflows asks for a smaller scale, as ampc-run grad does. */
static void run_gradient(golden *g)
{
    rt_tensor scale;
    run(g, "grad");
    const rt_tensor *flag = rt_session_output(g->session, "found_inf");
    for (int i = 0; flag && *(const unsigned char *)flag->data && i < 10; i++) {
        assert_int_equal(rt_session_storage(g->session, "loss_scale", g->diag, &scale), AMPC_OK);
        *(float *)scale.data *= 0.5f;
        run(g, "grad");
        flag = rt_session_output(g->session, "found_inf");
    }
    assert_false(flag && *(const unsigned char *)flag->data);
}

static void check_sgd(golden *g)
{
    const rt_array *losses = rt_arrays_find(&g->arrays, "sgd_loss");
    json_t *errors = json_object_get(json_object_get(g->meta, "reference_error"), "fp32");
    double bound = fmax(1e-5, 4 * json_number_value(json_object_get(errors, "sgd_loss")));
    for (int i = 0; i < SGD_STEPS; i++) {
        run(g, "train_step");
        const rt_tensor *loss = rt_session_output(g->session, ir_meta_get(g->module, "loss"));
        assert_non_null(loss);
        double expected = reference(losses, (size_t)i), error = fabs(element(loss, 0) - expected) / fabs(expected);
        if (!(error <= bound)) print_error("step %d: loss %.9g, expected %.9g\n", i, element(loss, 0), expected);
        assert_true(error <= bound);
    }
}

static void check_refusal(golden *g, const char *const *operators)
{
    g->quiet = true;
    assert_int_equal(compile(g), AMPC_UNSUPPORTED);
    for (int i = 0; i < 6 && operators[i]; i++) assert_non_null(strstr(g->errors, operators[i]));
}

static void test_case(void **state)
{
    golden *g = *state;
    g->diag = diag_new(take_message, g);
    load(g);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (has_prefix(g->name, refused[i].name) && g->name[strlen(refused[i].name)] == ' ') {
            check_refusal(g, refused[i].operators);
            return;
        }
    assert_int_equal(compile(g), AMPC_OK);
    rt_session_options options = {.device = "cpu", .threads = 2};
    assert_int_equal(rt_session_open(g->module, &options, g->diag, &g->session), AMPC_OK);
    run_gradient(g);
    if (g->precision->level == PASS_O0) check_fp32(g);
    else check_low(g);
    if (g->precision->level == PASS_O0) check_sgd(g);
}

static int clean(void **state)
{
    golden *g = *state;
    rt_session_close(g->session);
    ir_module_free(g->module);
    rt_arrays_clear(&g->arrays);
    json_decref(g->meta);
    diag_free(g->diag);
    return 0;
}

/* ---- one test a folder and precision --------------------------------------------------------- */

static int compare_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_case(const struct dirent *e)
{
    return e->d_name[0] != '.' && !strchr(e->d_name, '.');
}

int main(void)
{
    struct dirent **folders;
    int n = scandir(AMPC_SOURCE_DIR "/tests/goldens", &folders, is_case, compare_names);
    if (n <= 0) return 1;
    int variants = (int)(sizeof precisions / sizeof *precisions), count = 0;
    golden *cases = calloc((size_t)(n * variants), sizeof *cases);
    struct CMUnitTest *tests = calloc((size_t)(n * variants), sizeof *tests);
    if (!cases || !tests) return 1;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < variants; k++, count++) {
            golden *g = &cases[count];
            g->precision = &precisions[k];
            snprintf(g->name, sizeof g->name, "%.80s %s", folders[i]->d_name, precisions[k].name);
            snprintf(g->folder, sizeof g->folder, "%s/tests/goldens/%.80s", AMPC_SOURCE_DIR, folders[i]->d_name);
            tests[count] = (struct CMUnitTest){.name = g->name, .test_func = test_case, .teardown_func = clean,
                                               .initial_state = g};
        }
    for (int i = 0; i < n; i++) free(folders[i]);
    free(folders);
    int failed = _cmocka_run_group_tests("golden", tests, (size_t)count, NULL, NULL);
    free(tests);
    free(cases);
    return failed;
}
