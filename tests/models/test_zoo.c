/* test_zoo.c - the models of tests/models/zoo, exported from PyTorch by make_zoo.py: each is imported, its outputs are
 * PyTorch's within 1e-4 of the largest value, it converts to fp16 and bf16, and training steps reduce a loss; in bf16 and fp16,
 * none is skipped with a small loss scale. A model with sizes that depend on data cannot be trained.
 *
 * NAME.npz has the inputs in/0, in/1, .. in the order of the graph inputs, and the outputs out/0, .. The loss is the mean
 * squared distance of the first float output from 0.9 of PyTorch's. */
#include "frontend/onnx.h"
#include "ir/graph/parts.h"
#include "passes/passes.h"
#include "runtime/data/npz.h"
#include "runtime/session/session.h"
#include "tests/compile.h"
#include "tests/test.h"

#include <dirent.h>
#include <math.h>

#define ZOO AMPC_SOURCE_DIR "/tests/models/zoo"

enum { MAX_MODELS = 64, MAX_INPUTS = 8, STEPS = 4 };

typedef struct zoo_model {
    char name[64];
    diag *d;
    rt_arrays arrays;
    ir_module *m;
    rt_session *s;
    rt_tensor in[MAX_INPUTS];
    int n;
} zoo_model;

static void succeed(const zoo_model *z, const char *what, ampc_status status)
{
    if (status != AMPC_OK) fail_msg("%s: %s: %s", z->name, what, diag_first_error(z->d));
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static const rt_array *find_array(const zoo_model *z, const char *kind, int i)
{
    char name[32];
    snprintf(name, sizeof name, "%s/%d", kind, i);
    return rt_arrays_find(&z->arrays, name);
}

static rt_tensor tensor_of(const rt_array *a, const char *name)
{
    rt_tensor t = {.name = name, .dtype = a->dtype, .rank = a->rank, .data = a->data};
    memcpy(t.dims, a->dims, sizeof *t.dims * (size_t)a->rank);
    return t;
}

static void import_model(zoo_model *z, const onnx_import_options *options)
{
    char path[1024];
    snprintf(path, sizeof path, ZOO "/%s.onnx", z->name);
    succeed(z, "import", onnx_import(path, options, z->d, &z->m));
}

/* Imports and compiles the model and opens a session. */
static void open_model(zoo_model *z, const compile_options *o)
{
    const rt_session_options device = {.device = "cpu", .threads = 1};
    import_model(z, NULL);
    succeed(z, "compilation", test_compile(z->m, o, z->d));
    succeed(z, "session", rt_session_open(z->m, &device, z->d, &z->s));
    const ir_graph *g = ir_graph_find(z->m, "infer");
    z->n = 0;
    for (size_t i = 0; i < g->inputs.count && i < MAX_INPUTS; i++) {
        const rt_array *a = find_array(z, "in", (int)i);
        if (!a) fail_msg("%s: no values for input %d", z->name, (int)i);
        z->in[z->n++] = tensor_of(a, g->inputs.items[i]->name);
    }
}

static void close_model(zoo_model *z)
{
    rt_session_close(z->s);
    ir_module_free(z->m);
    z->s = NULL;
    z->m = NULL;
}

/* ---- checks ----------------------------------------------------------------------------------------------------- */

static void compare(const zoo_model *z, const rt_tensor *got, const rt_array *want, int number)
{
    double worst = 0, scale = 0;
    int64_t count = 1;
    bool same = got && got->rank == want->rank;
    for (int i = 0; same && i < got->rank; i++) count *= got->dims[i] == want->dims[i] ? got->dims[i] : (same = false);
    if (!same) fail_msg("%s: output %d has another shape", z->name, number);
    for (int64_t i = 0; i < count; i++) {
        const double a = ir_load_f64(got->dtype, (const char *)got->data + (size_t)i * ir_dtype_size(got->dtype));
        const double b = ir_load_f64(want->dtype, (const char *)want->data + (size_t)i * ir_dtype_size(want->dtype));
        worst = isnan(a) ? INFINITY : fmax(worst, fabs(a - b));
        scale = fmax(scale, fabs(b));
    }
    if (worst > 1e-4 * scale) fail_msg("%s: output %d differs by %.1e", z->name, number, worst / scale);
}

static compile_options options_for(pass_level level)
{
    compile_options o = compile_options_default();
    o.level = level;
    o.mode = PASS_MODE_EVAL;
    return o;
}

static void check_outputs(zoo_model *z)
{
    const compile_options o = options_for(PASS_O0);
    open_model(z, &o);
    succeed(z, "run", rt_session_run(z->s, "infer", z->in, z->n, z->d));
    for (int i = 0; i < rt_session_output_count(z->s); i++) {
        const rt_array *want = find_array(z, "out", i);
        if (want) compare(z, rt_session_output_at(z->s, i), want, i);
    }
    if (rt_session_output_count(z->s) == 0) fail_msg("%s: no output", z->name);
    close_model(z);
}

static ampc_status count_bytes(void *user, onnx_part part, const void *bytes, size_t n)
{
    (void)part, (void)bytes;
    *(size_t *)user += n;
    return AMPC_OK;
}

static void check_conversion(zoo_model *z, ir_dtype low)
{
    compile_options o = options_for(PASS_O1);
    o.low = low;
    size_t bytes = 0;
    const onnx_emit_options emit = {.data_name = "data", .write = count_bytes, .user = &bytes};
    const onnx_import_options kept = {.opaque = true, /* as the command line does */
                                      .emit_opset = low == IR_bf16 ? ONNX_OPSET_BF16 : ONNX_OPSET_EMIT};
    o.plain_runtime = true;
    import_model(z, &kept);
    succeed(z, "compilation", test_compile(z->m, &o, z->d));
    succeed(z, "emission", onnx_emit(z->m, "infer", &emit, z->d));
    assert_true(bytes > 0);
    close_model(z);
}

/* The first float output and 0.9 of its values; without data: a model that returns integers is not trained. */
static rt_tensor label_of(const zoo_model *z, int *output)
{
    for (*output = 0; find_array(z, "out", *output); ++*output) {
        const rt_array *a = find_array(z, "out", *output);
        if (a->dtype != IR_f32) continue;
        rt_tensor label = tensor_of(a, "label");
        label.data = malloc(a->bytes + 1);
        for (size_t i = 0; i < a->bytes / sizeof(float); i++)
            ((float *)label.data)[i] = 0.9f * ((const float *)a->data)[i];
        return label;
    }
    return (rt_tensor){.data = NULL};
}

static const char *output_name(const zoo_model *z, int number)
{
    const ir_graph *g = ir_graph_find(z->m, "forward");
    for (const ir_node *n = g->first; n; n = n->next)
        if (n->op == IR_OP_output && number-- == 0) return ir_output_name(n);
    return NULL;
}

static const struct precision {
    const char *name;
    pass_level level;
    ir_dtype low;
} precisions[] = {
    {"f32", PASS_O0, IR_bf16},
#ifndef AMPC_SANITIZED
    {"bf16 at O1", PASS_O1, IR_bf16},
    {"fp16 at O2", PASS_O2, IR_f16},
#endif
};

/* Runs training steps, none of which may be skipped, and returns the first loss; in f32 the loss must fall. */
static double train(zoo_model *z, const struct precision *p, const char *loss, const rt_tensor *label)
{
    double first = 0, last = 0;
    compile_options o = options_for(p->level);
    o.low = p->low;
    o.loss = loss;
    o.optimizer = "adam,lr=0.00001";
    o.init_scale = 128;
    open_model(z, &o);
    rt_tensor in[MAX_INPUTS + 1];
    memcpy(in, z->in, sizeof z->in);
    in[z->n] = *label;
    for (int i = 0; i < STEPS; i++) {
        succeed(z, "training step", rt_session_run(z->s, "train_step", in, z->n + 1, z->d));
        last = *(const float *)rt_session_output(z->s, "loss")->data;
        const rt_tensor *found = rt_session_output(z->s, "found_inf");
        if (found && *(const char *)found->data) fail_msg("%s, %s: step %d was skipped", z->name, p->name, i + 1);
        if (i == 0) first = last;
    }
    if (p->level == PASS_O0 && !(last < first)) fail_msg("%s: the loss was %g and became %g", z->name, first, last);
    close_model(z);
    return first;
}

static void check_training(zoo_model *z)
{
    char loss[256];
    double wanted = 0;
    int output;
    const rt_tensor label = label_of(z, &output);
    if (!label.data) return;
    import_model(z, NULL);
    snprintf(loss, sizeof loss, "mse:%s", output_name(z, output));
    ir_module_free(z->m);
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
        const double got = train(z, &precisions[i], loss, &label);
        if (i == 0) wanted = got;
        else if (!(fabs(got - wanted) <= 0.3 * wanted))
            fail_msg("%s, %s: the loss is %g, not %g", z->name, precisions[i].name, got, wanted);
    }
    free(label.data);
}

/* Whether the size of a result depends on data, as in a detector. */
static bool is_sized(zoo_model *z)
{
    const compile_options o = options_for(PASS_O0);
    open_model(z, &o);
    const bool sized = ir_has_parts(ir_graph_find(z->m, "infer"));
    close_model(z);
    return sized;
}

static void check_refusal(zoo_model *z)
{
    char path[1024];
    compile_options o = options_for(PASS_O0);
    o.loss = "mse";
    snprintf(path, sizeof path, ZOO "/%s.onnx", z->name);
    succeed(z, "import", onnx_import(path, NULL, z->d, &z->m));
    assert_int_equal(test_compile(z->m, &o, z->d), AMPC_UNSUPPORTED);
    assert_non_null(strstr(diag_first_error(z->d), "cannot be trained: the size of its result depends on data"));
    ir_module_free(z->m);
}

static void test_model(void **state)
{
    char path[1024];
    zoo_model *z = *state;
    z->d = diag_new(NULL, NULL);
    snprintf(path, sizeof path, ZOO "/%s.npz", z->name);
    succeed(z, "arrays", rt_npz_read(path, IR_f16, z->d, &z->arrays));
    check_outputs(z);
    check_conversion(z, IR_f16);
    check_conversion(z, IR_bf16);
    is_sized(z) ? check_refusal(z) : check_training(z);
    rt_arrays_clear(&z->arrays);
    diag_free(z->d);
}

/* ---- the folder ------------------------------------------------------------------------------------------------- */

static int is_model(const struct dirent *e)
{
    const size_t n = strlen(e->d_name);
    return n > 5 && strcmp(e->d_name + n - 5, ".onnx") == 0;
}

int main(void)
{
    static zoo_model models[MAX_MODELS];
    struct CMUnitTest tests[MAX_MODELS];
    struct dirent **files = NULL;
    const int n = scandir(ZOO, &files, is_model, alphasort);
    for (int i = 0; i < n && i < MAX_MODELS; i++) {
        snprintf(models[i].name, sizeof models[i].name, "%.*s", (int)strlen(files[i]->d_name) - 5, files[i]->d_name);
        tests[i] = (struct CMUnitTest){models[i].name, test_model, NULL, NULL, &models[i]};
        free(files[i]);
    }
    free(files);
    return n > 0 ? _cmocka_run_group_tests("zoo", tests, (size_t)n, NULL, NULL) : 1;
}
