/* test_other.c - the operators that onnxruntime adds to ONNX's (frontend/lower/other_ops.def), in the models of
 * tests/models/other, which tests/fuzz/other.py has made, and files of other tools in tests/models/tools, made by
 * tests/models/other_tools.py.
 *
 * The operands of the node are initializers. The output is the largest difference from what onnxruntime computes. If the
 * model is only converted, the node stays as it is, with inferred types. Each operator has a model. */
#include "frontend/onnx.h"
#include "passes/passes.h"
#include "runtime/session/session.h"
#include "tests/compile.h"
#include "tests/test.h"

#include <dirent.h>

#define MODELS AMPC_SOURCE_DIR "/tests/models/other"
#define TOOLS AMPC_SOURCE_DIR "/tests/models/tools"

static const struct {
    const char *domain, *op;
} operators[] = {
#define OTHER(domain, op, letters, colour, handler, arg, limits) {domain, #op},
#include "frontend/lower/other_ops.def"
};
enum { OPERATORS = sizeof operators / sizeof *operators };
static int models[OPERATORS];

static void succeed(const char *name, const char *what, ampc_status status, const diag *d)
{
    if (status != AMPC_OK) fail_msg("%s: %s: %s", name, what, diag_first_error(d));
}

static void check_result(const char *name, const char *path, diag *d)
{
    const rt_session_options device = {.device = "cpu", .threads = 1};
    compile_options o = compile_options_default();
    ir_module *m = NULL;
    rt_session *s = NULL;
    o.level = PASS_O0;
    o.mode = PASS_MODE_EVAL;
    succeed(name, "import", onnx_import(path, NULL, d, &m), d);
    succeed(name, "compilation", test_compile(m, &o, d), d);
    succeed(name, "session", rt_session_open(m, &device, d, &s), d);
    succeed(name, "run", rt_session_run(s, "infer", NULL, 0, d), d);
    const rt_tensor *t = rt_session_output(s, "difference");
    assert_non_null(t);
    const double difference = ir_load_f64(t->dtype, t->data);
    const double limit = strstr(name, "float16") ? 2e-3 : 1e-4;
    if (!(difference <= limit)) fail_msg("%s: differs from onnxruntime by %g", name, difference);
    rt_session_close(s);
    ir_module_free(m);
}

/* Whether the file is of operator i: its name is that of the operator between two dashes. */
static bool is_of(const char *name, int i)
{
    const char *op = strchr(name, '-');
    const size_t length = strlen(operators[i].op);
    return op && strncmp(op + 1, operators[i].op, length) == 0 && op[1 + length] == '-';
}

/* The operator of the file, which may have others of its domain before and after it. */
static void check_kept(const char *name, const char *path, diag *d)
{
    const onnx_import_options options = {.opaque = true, .emit_opset = 17};
    ir_module *m = NULL;
    int kept = 0;
    succeed(name, "import for conversion", onnx_import(path, &options, d, &m), d);
    const ir_graph *g = ir_graph_by_role(m, IR_GRAPH_forward);
    for (const ir_node *n = g->first; n; n = n->next)
        for (int i = 0; i < OPERATORS && n->op == IR_OP_opaque; i++)
            if (is_of(name, i) && strcmp(n->loc.op, operators[i].op) == 0 &&
                strcmp(n->attr[IR_ATTR(opaque, domain)].s, operators[i].domain) == 0)
                kept++, models[i]++;
    if (!kept) fail_msg("%s: its operator is not kept", name);
    ir_module_free(m);
}

TEST(test_models)
{
    DIR *dir = opendir(MODELS);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char path[1024];
        if (!strstr(e->d_name, ".onnx")) continue;
        snprintf(path, sizeof path, MODELS "/%s", e->d_name);
        diag *d = diag_new(NULL, NULL);
        check_result(e->d_name, path, d);
        check_kept(e->d_name, path, d);
        diag_free(d);
    }
    closedir(dir);
    for (int i = 0; i < OPERATORS; i++)
        if (!models[i]) fail_msg("no model of %s:%s in " MODELS, operators[i].domain, operators[i].op);
}

TEST(test_files_of_tools)
{
    int files = 0;
    DIR *dir = opendir(TOOLS);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char path[1024];
        if (!strstr(e->d_name, ".onnx")) continue;
        snprintf(path, sizeof path, TOOLS "/%s", e->d_name);
        diag *d = diag_new(NULL, NULL);
        check_result(e->d_name, path, d);
        diag_free(d);
        files++;
    }
    closedir(dir);
    assert_true(files > 0);
}
