/* test_emit_goldens.c - emitted networks compute what the compiled ones do. */
#include "tests/unit/emit_fixture.h"

/* The emitted model, read back, computes the same as the module. */
static void check_round_trip(scratch *t, const char *name, pass_level level, ir_dtype low, double max)
{
    char path[512];
    rt_arrays arrays;
    snprintf(path, sizeof path, GOLDENS "/%s/model.onnx", name);
    ir_module *m = compile_model(t, path, false, level, low);
    if (!m) return;
    emit_to(t, m, "new.onnx");
    ir_module *back = read_back(t);
    snprintf(path, sizeof path, GOLDENS "/%s/golden.npz", name);
    assert_int_equal(rt_npz_read(path, IR_NO_DTYPE, t->d, &arrays), AMPC_OK);
    rt_session *a = run(t, m, "infer", &arrays), *b = run(t, back, "forward", &arrays);
    assert_int_equal(rt_session_output_count(a), rt_session_output_count(b));
    for (int i = 0; i < rt_session_output_count(a); i++) {
        const rt_tensor *x = rt_session_output_at(a, i), *y = rt_session_output_at(b, i);
        assert_string_equal(x->name, y->name);
        if (!(distance(x, y) <= max)) fail_msg("%s: %s differs by %g", name, x->name, distance(x, y));
    }
    rt_arrays_clear(&arrays);
    rt_session_close(a);
    rt_session_close(b);
    ir_module_free(m);
    ir_module_free(back);
}

static void check_goldens(scratch *t, pass_level level, ir_dtype low, double max)
{
    DIR *dir = opendir(GOLDENS);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.' && e->d_type == DT_DIR) check_round_trip(t, e->d_name, level, low, max);
    closedir(dir);
}

TEST_SCRATCH(test_goldens_fp32) { check_goldens(t, PASS_O0, IR_f16, 1e-6); }
TEST_SCRATCH(test_goldens_fp16) { check_goldens(t, PASS_O1, IR_f16, 5e-3); }
TEST_SCRATCH(test_goldens_bf16) { check_goldens(t, PASS_O1, IR_bf16, 4e-2); }
