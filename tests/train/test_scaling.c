/* test_scaling.c - loss scaling in complete training steps: what is learned only with it, the trace of its state machine,
 * and changes of the compilation that must not change results. */
#include "tests/train/training_net.h"

/* ---- T9: a hostile scale --------------------------------------------------------------------- */

typedef struct outcome {
    double first, last;
} outcome;

static outcome learn(scratch *t, const compile_options *o)
{
    char text[1024];
    snprintf(text, sizeof text, scaled, "1e-6");
    net n = open_net(t, text, o);
    outcome r = {0};
    for (uint64_t k = 0; k < 150; k++) {
        set_batch(&n, k % 8);
        run(&n, "train_step");
        r.last = output(&n, "l");
        if (!k) r.first = r.last;
    }
    close_net(&n);
    return r;
}

static void test_t9_learns_only_with_scaling(void **state)
{
    compile_options o = options(NULL, "sgd,lr=1e6");
    outcome with = learn(*state, &o);
    o.scaling = PASS_SCALE_OFF;
    outcome without = learn(*state, &o);
    o.level = PASS_O0;
    outcome f32 = learn(*state, &o);
    assert_true(f32.last < 0.01 * f32.first);
    assert_true(with.last < 0.01 * with.first);
    assert_true(without.last > 0.5 * without.first);
}

/* ---- the state machine of the loss scale in complete steps ----------------------------------- */

typedef struct trace_row {
    double scale, good, bad;
} trace_row;

static void follow(scratch *t, const char *list, const trace_row *rows)
{
    static const char flags[] = "FFFTTTFTFF";
    compile_options o = options(NULL, "sgd");
    const char *path = scratch_path(t, "trace.amplist");
    scratch_write(t, "trace.amplist", list, strlen(list));
    o.lists = (pass_strings){&path, 1};
    net n = open_net(t, linear, &o);
    for (size_t i = 0; flags[i]; i++) {
        n.x[1][1] = flags[i] == 'T' ? INFINITY : 1.0f;
        assert_int_equal(step(&n), flags[i] == 'T');
        assert_true(state_of(&n, "loss_scale") == rows[i].scale);
        assert_true(state_of(&n, "good_steps") == rows[i].good);
        assert_true(state_of(&n, "bad_steps") == rows[i].bad);
    }
    assert_true(state_of(&n, "step") == 6);
    close_net(&n);
}

static void test_trace_of_the_loss_scale(void **state)
{
    static const trace_row at_n[] = {{8, 1, 0}, {16, 0, 0}, {16, 1, 0}, {16, 0, 1}, {8, 0, 0},
                                     {8, 0, 1}, {8, 1, 0},  {8, 0, 1},  {8, 1, 0},  {16, 0, 0}};
    static const trace_row later[] = {{8, 1, 0}, {8, 2, 0}, {16, 0, 0}, {16, 0, 1}, {16, 0, 2},
                                      {8, 0, 0}, {8, 1, 0}, {8, 0, 1},  {8, 1, 0},  {8, 2, 0}};
    follow(*state, "[rules]\nscaling = 8, 2, 2, 2, 0.5\n", at_n);
    follow(*state, "[rules]\nscaling = 8, 2, 2, 2, 0.5\ncounters = n+1\n", later);
}

/* ---- metamorphic tests ----------------------------------------------------------------------- */

static void test_scaling_by_a_power_of_two_changes_no_gradient(void **state)
{
    static const char *const names[] = {"grad/w1", "grad/b1", "grad/w2", "gradin/x"};
    float first[4][256];
    for (int k = 8; k <= 12; k += 2) {
        compile_options o = options("mse", "sgd");
        o.scaling = PASS_SCALE_STATIC;
        o.init_scale = ldexp(1, k);
        net n = open_net(*state, mlp, &o);
        run(&n, "grad");
        assert_true(output(&n, "found_inf") == 0);
        for (int i = 0; i < 4; i++) {
            const rt_tensor *g = rt_session_output(n.s, names[i]);
            assert_true(count(g) <= 256);
            if (k == 8) memcpy(first[i], g->data, count(g) * sizeof(float));
            assert_memory_equal(first[i], g->data, count(g) * sizeof(float));
        }
        close_net(&n);
    }
}

static void test_all_black_is_fp32_bit_for_bit(void **state)
{
    static const char *const all[] = {"Gemm", "MatMul", "Relu", "BatchNormalization", "Dropout"};
    compile_options o = options("mse", "adamw");
    o.scaling = PASS_SCALE_OFF;
    o.black = (pass_strings){all, 5};
    net black = open_net(*state, stateful, &o);
    o.level = PASS_O0;
    net f32 = open_net(*state, stateful, &o);
    for (uint64_t k = 0; k < 4; k++) {
        set_batch(&black, k);
        set_batch(&f32, k);
        run(&black, "train_step");
        run(&f32, "train_step");
    }
    picture a = picture_of(&black, NULL), b = picture_of(&f32, NULL);
    assert_same(&a, &b);
    run(&black, "infer");
    run(&f32, "infer");
    const rt_tensor *y = rt_session_output(black.s, "y"), *z = rt_session_output(f32.s, "y");
    assert_memory_equal(y->data, z->data, count(y) * sizeof(float));
    close_net(&black);
    close_net(&f32);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_t9_learns_only_with_scaling),
        TEST(test_trace_of_the_loss_scale),
        TEST(test_scaling_by_a_power_of_two_changes_no_gradient),
        TEST(test_all_black_is_fp32_bit_for_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
