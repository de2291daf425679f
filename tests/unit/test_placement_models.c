/* test_placement_models.c - minimum-cut placement of all models of the repository in all modes: never more expensive
 * than greedy placement, in prediction and in cast bytes after all passes. */
#include "frontend/onnx.h"
#include "passes/amp/cast.h"
#include "passes/amp/cost.h"
#include "passes/amp/placement.h"
#include "tests/compile.h"
#include "tests/test.h"

#include <dirent.h>

typedef struct variant {
    const char *target, *profile;
    ir_dtype low;
    pass_level level;
    bool trains, soft, plain;
} variant;

// clang-format off
static const variant variants[] = {
    {"bytes", "ampc", IR_f16, PASS_O1, false, false, false},
    {"bytes", "ampc", IR_bf16, PASS_O1, true, false, false},
    {"bytes", "ampc", IR_f16, PASS_O2, true, true, false},
    {"bytes", "ampc", IR_f16, PASS_O1, false, false, true},
    {"bytes", "ampc", IR_bf16, PASS_O2, false, true, true},
    {"bytes", "paddle-3", IR_f16, PASS_O1, false, false, false},
    {"bytes", "paddle-2.4", IR_f16, PASS_O2, true, false, false},
    {"bytes", "paddle-1.8", IR_f16, PASS_O1, true, false, false},
    {"gpu", "ampc", IR_f16, PASS_O1, false, true, false},
    {"gpu", "ampc", IR_f16, PASS_O1, true, false, false},
    {"gpu", "ampc", IR_f16, PASS_O1, false, false, true},
    {"cpu", "ampc", IR_bf16, PASS_O1, true, true, false},
    {"gpu", "paddle-3", IR_f16, PASS_O2, true, true, false},
};
// clang-format on

static compile_options options_of(const variant *v, const ir_module *m)
{
    compile_options o = compile_options_default();
    o.low = v->low;
    o.level = v->level;
    o.white_soft = v->soft;
    o.target = v->target;
    o.profile = v->profile;
    o.plain_runtime = v->plain;
    if (!v->trains) return o;
    if (ir_graph_find_output(m->graphs.items[0], "loss")) o.loss_output = "loss";
    else o.loss = "mse";
    return o;
}

static ir_module *import_model(const char *path, diag *d)
{
    static const onnx_import_options with_opaque = {.opaque = true};
    ir_module *m = NULL;
    diag_clear(d);
    if (onnx_import(path, &with_opaque, d, &m) != AMPC_OK) fail_msg("%s: %s", path, diag_first_error(d));
    return m;
}

/* Returns the bytes of the casts left after all passes, or -1 if the model cannot be compiled with these options. */
static int64_t compiled_bytes(const char *path, const variant *v, pass_placement placement, diag *d)
{
    ir_module *m = import_model(path, d);
    compile_options o = options_of(v, m);
    o.placement = placement;
    ampc_status status = test_compile(m, &o, d);
    int64_t bytes = status == AMPC_OK ? pass_count_casts(pass_primary(m)).bytes : -1;
    if (status != AMPC_OK && placement == PASS_MINCUT) fail_msg("%s: %s", path, diag_first_error(d));
    ir_module_free(m);
    return bytes;
}

static void check_prediction(const char *path, const variant *v, arena *a, diag *d)
{
    static const char *const passes[] = {"params", "mode", "loss"};
    ir_module *m = import_model(path, d);
    compile_options o = options_of(v, m);
    compile *c;
    assert_int_equal(compile_load(&o, a, d, &c), AMPC_OK);
    assert_int_equal(device_load(v->target, a, d, &c->device), AMPC_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(pass_run(m, passes[i], c), AMPC_OK);
    for (size_t i = 0; i < m->graphs.count; i++) {
        ir_graph *g = m->graphs.items[i];
        amp_scope scope = {.compile = c, .arena = a};
        amp_colour(g, &scope);
        pass_costs costs = amp_place(g, &scope, false);
        if (costs.cut > costs.greedy) fail_msg("%s @%s: predicted more than greedy", path, g->name);
        /* At O2 white operators are low even with white_soft, so keeping everything in f32 is not a choice. */
        if (v->soft && v->level != PASS_O2 && costs.cut > costs.f32)
            fail_msg("%s @%s: predicted more than f32", path, g->name);
    }
    ir_module_free(m);
}

static void check_model(const char *path)
{
    arena *a = arena_new(0);
    diag *d = diag_new(NULL, NULL);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        const variant *v = &variants[i];
        int64_t greedy = compiled_bytes(path, v, PASS_GREEDY, d);
        if (greedy < 0) continue; /* not trainable */
        int64_t cut = compiled_bytes(path, v, PASS_MINCUT, d);
        if (strcmp(v->target, "bytes") == 0 && cut > greedy)
            fail_msg("%s, variant %zu: %lld bytes of casts, greedy %lld", path, i, (long long)cut, (long long)greedy);
        check_prediction(path, v, a, d);
    }
    diag_free(d);
    arena_free(a);
}

TEST(never_above_greedy)
{
    char path[1024];
    int models = 0;
    check_model(AMPC_SOURCE_DIR "/tests/models/mlp.onnx");
    check_model(AMPC_SOURCE_DIR "/tests/models/mnist.onnx");
    DIR *folder = opendir(AMPC_SOURCE_DIR "/tests/goldens");
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder));) {
        snprintf(path, sizeof path, AMPC_SOURCE_DIR "/tests/goldens/%s/model.onnx", e->d_name);
        if (e->d_name[0] == '.' || strcmp(e->d_name, "README.md") == 0) continue;
        check_model(path);
        models++;
    }
    closedir(folder);
    assert_true(models >= 19);
}
