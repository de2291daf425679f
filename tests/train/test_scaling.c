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

TEST_SCRATCH(test_t9_learns_only_with_scaling)
{
    compile_options o = options(NULL, "sgd,lr=1e6");
    outcome with = learn(t, &o);
    o.scaling = PASS_SCALE_OFF;
    outcome without = learn(t, &o);
    o.level = PASS_O0;
    outcome f32 = learn(t, &o);
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

TEST_SCRATCH(test_trace_of_the_loss_scale)
{
    static const trace_row at_n[] = {{8, 1, 0}, {16, 0, 0}, {16, 1, 0}, {16, 0, 1}, {8, 0, 0},
                                     {8, 0, 1}, {8, 1, 0},  {8, 0, 1},  {8, 1, 0},  {16, 0, 0}};
    static const trace_row later[] = {{8, 1, 0}, {8, 2, 0}, {16, 0, 0}, {16, 0, 1}, {16, 0, 2},
                                      {8, 0, 0}, {8, 1, 0}, {8, 0, 1},  {8, 1, 0},  {8, 2, 0}};
    follow(t, "[rules]\nscaling = 8, 2, 2, 2, 0.5\n", at_n);
    follow(t, "[rules]\nscaling = 8, 2, 2, 2, 0.5\ncounters = n+1\n", later);
}

/* ---- metamorphic tests ----------------------------------------------------------------------- */

TEST_SCRATCH(test_scaling_by_a_power_of_two_changes_no_gradient)
{
    static const char *const names[] = {"grad/w1", "grad/b1", "grad/w2", "gradin/x"};
    float first[4][256];
    for (int k = 8; k <= 12; k += 2) {
        compile_options o = options("mse", "sgd");
        o.scaling = PASS_SCALE_STATIC;
        o.init_scale = ldexp(1, k);
        net n = open_net(t, mlp, &o);
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

TEST_SCRATCH(test_all_black_is_fp32_bit_for_bit)
{
    static const char *const all[] = {"Gemm", "MatMul", "Relu", "BatchNormalization", "Dropout"};
    compile_options o = options("mse", "adamw");
    o.scaling = PASS_SCALE_OFF;
    o.black = (pass_strings){all, 5};
    net black = open_net(t, stateful, &o);
    o.level = PASS_O0;
    net f32 = open_net(t, stateful, &o);
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

/* ---- where overflows are detected ------------------------------------------------------------ */

/* The gradient of w2 is so large that its factors are checked instead (fuse_unscaling.c). */
static const char wide[] = "ampc-ir 3\n"
                           "param @w1 : f32[4,512] = zero\n"
                           "param @w2 : f32[512,512] = zero\n"
                           "param @w3 : f32[512,3] = zero\n"
                           "graph @forward(@x : f32[N,4]) as forward {\n"
                           "  %h = matmul @x, @w1 : f32[N,512] !MatMul \"fc1\"\n"
                           "  %r = relu %h : f32[N,512] !Relu \"relu\"\n"
                           "  %g = matmul %r, @w2 : f32[N,512] !MatMul \"fc2\"\n"
                           "  %y = matmul %g, @w3 : f32[N,3] !MatMul \"fc3\"\n"
                           "  output \"y\" = %y\n"
                           "}\n";

/* An update freezes all but w2, so that no other gradient shows the overflow. */
TEST_SCRATCH(test_factors_show_every_overflow)
{
    static const char *const other[] = {"w1", "w3"}, *const flag[] = {"found_inf"}; /* not the norm */
    const rt_session_options unfused = {.device = "cpu", .threads = 1, .deterministic = 1, .no_fuse = true};
    compile_options o = options("mse", "sgd,lr=0");
    o.freeze = (pass_strings){other, 2};
    net fused = open_net(t, wide, &o), plain = fused;
    int found = 0, cases = 0;
    must(fused.t, rt_session_select(fused.s, "train_step", flag, 1, fused.t->d));
    must(plain.t, rt_session_open(plain.m, &unfused, plain.t->d, &plain.s));
    set_parameters(&plain);
    for (int power = 4; power <= 40; power += 2)
        for (int bad = 0; bad < 3; bad++, cases++) {
            fused.x[7][2] = plain.x[7][2] = bad == 2 ? NAN : bad ? 3e4f : 0.5f;
            must(fused.t, rt_session_set_number(fused.s, "loss_scale", ldexp(1, power), fused.t->d));
            must(plain.t, rt_session_set_number(plain.s, "loss_scale", ldexp(1, power), plain.t->d));
            const bool skipped = step(&fused);
            assert_int_equal(skipped, step(&plain));
            found += skipped;
        }
    assert_true(found > cases / 3 && found < cases - 5);
    rt_session_close(plain.s);
    close_net(&fused);
}
