/* golden.c - see the header, and tests/goldens/README.md for the files. */
#include "tests/compile.h"
#include "tests/train/golden.h"

#include "frontend/onnx.h"
#include "tests/rows.h"

#include <dirent.h>

enum { MAX_NAMES = 512 };

const golden_precision golden_precisions[] = {
    {"fp32", PASS_O0, IR_f16, 0}, {"fp16", PASS_O1, IR_f16, 0.02}, {"bf16", PASS_O1, IR_bf16, 0.05}, {0}};

/* ---- loading --------------------------------------------------------------------------------- */

static void take_message(void *user, diag_level level, const char *message)
{
    (void)user;
    if (level == DIAG_ERROR) print_error("%s\n", message);
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

void golden_load(golden *g)
{
    char path[1200];
    json_error_t error;
    g->diag = diag_new(take_message, g);
    snprintf(path, sizeof path, "%s/meta.json", g->folder);
    g->meta = json_load_file(path, 0, &error);
    assert_non_null(g->meta);
    snprintf(path, sizeof path, "%s/golden.npz", g->folder);
    assert_int_equal(rt_npz_read(path, IR_NO_DTYPE, g->diag, &g->arrays), AMPC_OK);
}

ampc_status golden_compile(golden *g)
{
    char path[1200], loss[256], optimizer[64];
    const char *train[MAX_NAMES];
    snprintf(path, sizeof path, "%s/model.onnx", g->folder);
    ampc_status status = onnx_import(path, NULL, g->diag, &g->module);
    if (status != AMPC_OK) return status;
    compile_options o = compile_options_default();
    o.level = g->precision->level;
    o.low = g->precision->low;
    o.loss = loss_option(g, loss, sizeof loss);
    if (!o.loss) o.loss_output = meta_text(g, "loss_output");
    snprintf(optimizer, sizeof optimizer, "sgd,lr=%.9g", json_number_value(json_object_get(g->meta, "lr")));
    o.optimizer = optimizer;
    o.init_scale = 1024;
    o.attention = g->fuse_attention;
    o.pipeline.roundtrip_each = true;
    json_t *names = json_object_get(g->meta, "trainable");
    for (size_t i = 0; i < json_array_size(names); i++) train[i] = json_string_value(json_array_get(names, i));
    o.train = (pass_strings){train, (int)json_array_size(names)};
    return test_compile(g->module, &o, g->diag);
}

int golden_inputs(const golden *g, const char *graph, rt_tensor inputs[GOLDEN_INPUTS])
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

double golden_reference_error(const golden *g, const char *what)
{
    json_t *errors = json_object_get(json_object_get(g->meta, "reference_error"), g->precision->name);
    return json_number_value(json_object_get(errors, what));
}

/* ---- running --------------------------------------------------------------------------------- */

void golden_run(const golden *g, rt_session *s, const char *graph)
{
    rt_tensor inputs[GOLDEN_INPUTS];
    int n = golden_inputs(g, graph, inputs);
    assert_int_equal(rt_session_run(s, graph, inputs, n, g->diag), AMPC_OK);
}

static bool overflows(rt_session *s)
{
    const rt_tensor *flag = rt_session_output(s, "found_inf");
    return flag && *(const unsigned char *)flag->data;
}

void golden_run_gradient(const golden *g, rt_session *s)
{
    double scale;
    golden_run(g, s, "grad");
    for (int i = 0; overflows(s) && i < 10; i++) {
        assert_int_equal(rt_session_get_number(s, "loss_scale", g->diag, &scale), AMPC_OK);
        assert_int_equal(rt_session_set_number(s, "loss_scale", scale / 2, g->diag), AMPC_OK);
        golden_run(g, s, "grad");
    }
    assert_false(overflows(s));
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

static int is_case(const struct dirent *e) { return e->d_name[0] != '.' && !strchr(e->d_name, '.'); }

int golden_main(int argc, char **argv, const char *group, golden_choice *is_chosen, void (*test)(void **state))
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    struct dirent **folders;
    const char *goldens = getenv("AMPC_GOLDENS"); /* where the source tree is not at hand */
    if (!goldens) goldens = AMPC_SOURCE_DIR "/tests/goldens";
    int n = scandir(goldens, &folders, is_case, compare_names);
    if (n <= 0) return 1;
    int variants = 0, count = 0;
    while (golden_precisions[variants].name) variants++;
    golden *cases = calloc((size_t)(n * variants), sizeof *cases);
    struct CMUnitTest *tests = calloc((size_t)(n * variants), sizeof *tests);
    if (!cases || !tests) return 1;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < variants; k++) {
            golden *g = &cases[count];
            g->precision = &golden_precisions[k];
            snprintf(g->name, sizeof g->name, "%.80s %s", folders[i]->d_name, golden_precisions[k].name);
            snprintf(g->folder, sizeof g->folder, "%.900s/%.80s", goldens, folders[i]->d_name);
            if (is_chosen && !is_chosen(i, g)) continue;
            tests[count++] = (struct CMUnitTest){
                .name = g->name, .test_func = test, .teardown_func = clean, .initial_state = g};
        }
    for (int i = 0; i < n; i++) free(folders[i]);
    free(folders);
    int failed = rows_run(group, tests, (size_t)count);
    free(tests);
    free(cases);
    return failed;
}
