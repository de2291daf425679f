/* test_accumulate.c - the training step in parts: windows of micro-batches, and clipped gradients. */
#include "ir/base/limits.h"
#include "tests/train/training_net.h"

static const char *const pending[] = {"grad_sum.w1", "grad_sum.g", "grad_sum.b", "grad_sum.b1", "grad_sum.w2",
                                      "next.mean",   "next.var",   "loss_sum",   NULL};

/* Runs @accumulate on `rows` rows of the batch, from row `first`. */
static void accumulate(net *n, int first, int rows)
{
    rt_tensor in[2];
    const int inputs = inputs_of(n, "accumulate", in);
    for (int i = 0; i < inputs; i++) in[i].dims[0] = rows;
    in[0].data = n->x[first];
    in[1].data = n->label[first];
    must(n->t, rt_session_run(n->s, "accumulate", in, inputs, n->t->d));
}

static void apply(net *n) { must(n->t, rt_session_run(n->s, "apply", NULL, 0, n->t->d)); }

static compile_options accumulating(const char *optimizer, pass_level level)
{
    compile_options o = options("mse", optimizer);
    o.level = level;
    o.accumulate = 4;
    return o;
}

/* ---- windows ----------------------------------------------------------------------------------- */

TEST_SCRATCH(test_a_window_of_one_is_a_training_step)
{
    static const pass_level levels[] = {PASS_O0, PASS_O1};
    static const char *const texts[] = {mlp, stateful};
    for (int i = 0; i < 4; i++) {
        compile_options o = accumulating("adamw", levels[i % 2]);
        o.clip_norm = 0.05;
        net whole = open_net(t, texts[i / 2], &o), apart = open_net(t, texts[i / 2], &o);
        for (uint64_t k = 0; k < 5; k++) {
            set_batch(&whole, k);
            set_batch(&apart, k);
            run(&whole, "train_step");
            accumulate(&apart, 0, ROWS);
            apply(&apart);
            assert_true(output(&apart, "loss") == state_of(&apart, "loss_sum"));
        }
        picture a = picture_of(&whole, pending), b = picture_of(&apart, pending);
        assert_same(&a, &b);
        assert_true(state_of(&apart, "micro_batches") == 0);
        close_net(&whole);
        close_net(&apart);
    }
}

static double largest_difference(const net *a, const net *b, const char *name)
{
    rt_tensor v = storage(a, name), w = storage(b, name);
    double most = 0;
    for (size_t i = 0; i < count(&v); i++)
        most = fmax(most, fabs((double)((float *)v.data)[i] - (double)((float *)w.data)[i]));
    return most;
}

/* Four micro-batches of 8 against one batch of 32, at several levels. */
TEST_SCRATCH(test_a_window_is_the_large_batch)
{
    static const struct {
        pass_level level;
        ir_dtype low;
        double bound;
    } rows[] = {{PASS_O0, IR_f16, 2e-6}, {PASS_O1, IR_f16, 2e-3}, {PASS_O1, IR_bf16, 2e-2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        compile_options o = accumulating("momentum,lr=0.1", rows[i].level);
        o.low = rows[i].low;
        net large = open_net(t, mlp, &o), window = open_net(t, mlp, &o);
        for (uint64_t k = 0; k < 5; k++) {
            set_batch(&large, k);
            set_batch(&window, k);
            run(&large, "train_step");
            double loss = output(&large, "loss");
            for (int m = 0; m < 4; m++) accumulate(&window, 8 * m, 8);
            apply(&window);
            assert_true(fabs(output(&window, "loss") - loss) <= 10 * rows[i].bound);
        }
        assert_true(largest_difference(&large, &window, "w1") <= rows[i].bound);
        assert_true(largest_difference(&large, &window, "w2") <= rows[i].bound);
        assert_true(state_of(&window, "step") == 5);
        close_net(&large);
        close_net(&window);
    }
}

/* What the reference divides by: a window with fewer micro-batches is a mean of those. */
TEST_SCRATCH(test_a_short_window_is_a_mean)
{
    compile_options o = accumulating("sgd,lr=0.5", PASS_O0);
    net large = open_net(t, mlp, &o), window = open_net(t, mlp, &o);
    run(&large, "train_step");
    for (int m = 0; m < 2; m++) accumulate(&window, 16 * m, 16);
    apply(&window);
    assert_true(largest_difference(&large, &window, "w1") <= 1e-6);
    close_net(&large);
    close_net(&window);
}

TEST_SCRATCH(test_an_infinity_in_one_micro_batch_skips_the_window)
{
    static const char *const moving[] = {"loss_scale",  "good_steps", "bad_steps",  "rng",
                                         "grad_sum.w1", "grad_sum.g", "grad_sum.b", "grad_sum.w2",
                                         "next.mean",   "next.var",   "loss_sum",   NULL};
    compile_options o = accumulating("adamw", PASS_O1);
    o.init_scale = 1024;
    net n = open_net(t, stateful, &o);
    for (int m = 0; m < 4; m++) accumulate(&n, 8 * m, 8);
    apply(&n);
    assert_true(output(&n, "found_inf") == 0);
    picture before = picture_of(&n, moving);
    for (int m = 0; m < 4; m++) {
        const float kept = n.x[17][1];
        if (m == 2) n.x[17][1] = 1e30f;
        accumulate(&n, 8 * m, 8);
        n.x[17][1] = kept;
        assert_true(state_of(&n, "loss_scale") == 1024);
        assert_true(state_of(&n, "micro_batches") == m + 1);
    }
    apply(&n);
    assert_true(output(&n, "found_inf") == 1);
    picture after = picture_of(&n, moving);
    assert_same(&before, &after);
    assert_true(state_of(&n, "loss_scale") == 512);
    assert_true(((int64_t *)storage(&n, "rng").data)[1] == 8);
    for (int m = 0; m < 4; m++) accumulate(&n, 8 * m, 8);
    apply(&n);
    assert_true(output(&n, "found_inf") == 0 && state_of(&n, "step") == 2);
    close_net(&n);
}

/* PyTorch updates running statistics in every forward, so a window updates them as four steps would. */
TEST_SCRATCH(test_running_statistics_follow_every_micro_batch)
{
    compile_options o = accumulating("sgd,lr=0", PASS_O0);
    net steps = open_net(t, stateful, &o), window = open_net(t, stateful, &o);
    for (uint64_t k = 0; k < 4; k++) {
        set_batch(&steps, k);
        set_batch(&window, k);
        run(&steps, "train_step");
        accumulate(&window, 0, ROWS);
        assert_true(((float *)storage(&window, "mean").data)[0] == 0);
    }
    apply(&window);
    assert_true(largest_difference(&steps, &window, "mean") == 0);
    assert_true(largest_difference(&steps, &window, "var") == 0);
    assert_true(((float *)storage(&window, "mean").data)[0] != 0);
    close_net(&steps);
    close_net(&window);
}

/* @unscale leaves mean gradients in the sums, and @apply uses what the caller left there. */
TEST_SCRATCH(test_unscaled_gradients_can_be_changed)
{
    compile_options o = accumulating("sgd,lr=1", PASS_O1);
    net n = open_net(t, mlp, &o), reference = open_net(t, mlp, &o);
    float before[24], gradient[24];
    for (int m = 0; m < 2; m++) accumulate(&n, 16 * m, 16);
    run(&reference, "grad");
    must(n.t, rt_session_run(n.s, "unscale", NULL, 0, n.t->d));
    assert_true(output(&n, "found_inf") == 0 && output(&n, "grad_norm") > 0);
    rt_tensor sum = storage(&n, "grad_sum.w2");
    memcpy(gradient, sum.data, sizeof gradient);
    const rt_tensor *expected = rt_session_output(reference.s, "grad/w2");
    for (int i = 0; i < 24; i++) assert_float_equal(gradient[i], ((float *)expected->data)[i], 2e-3);
    memcpy(before, storage(&n, "w2").data, sizeof before);
    for (int i = 0; i < 24; i++) ((float *)sum.data)[i] *= 2;
    apply(&n);
    const float *after = storage(&n, "w2").data;
    for (int i = 0; i < 24; i++) assert_float_equal(after[i], before[i] - 2 * gradient[i], 1e-6);
    assert_true(state_of(&n, "unscaled") == 0 && state_of(&n, "micro_batches") == 0);
    close_net(&n);
    close_net(&reference);
}

/* A caller that replaces non-finite gradients after @unscale cannot hide the overflow from the loss scale. */
TEST_SCRATCH(test_an_overflow_is_remembered)
{
    compile_options o = accumulating("sgd", PASS_O1);
    o.init_scale = 1024;
    net n = open_net(t, mlp, &o);
    n.x[3][1] = 1e30f;
    accumulate(&n, 0, ROWS);
    must(n.t, rt_session_run(n.s, "unscale", NULL, 0, n.t->d));
    assert_true(output(&n, "found_inf") == 1);
    for (const char *const *name = pending; *name; name++)
        if (ir_storage_find(n.m, *name)) {
            rt_tensor v = storage(&n, *name);
            memset(v.data, 0, count(&v) * sizeof(float));
        }
    apply(&n);
    assert_true(output(&n, "found_inf") == 1 && state_of(&n, "loss_scale") == 512 && state_of(&n, "step") == 0);
    n.x[3][1] = 0;
    accumulate(&n, 0, ROWS);
    apply(&n);
    assert_true(output(&n, "found_inf") == 0 && state_of(&n, "step") == 1);
    close_net(&n);
}

/* ---- a loss that is not finite ------------------------------------------------------------------ */

/* The mean of x w plus that of the label, which no gradient depends on. */
static const char with_label[] =
    "ampc-ir 3\n"
    "param @w : f32[4,4] = zero\n"
    "graph @forward(@x : f32[N,4], @label : f32[N,3]) as forward {\n"
    "  %y = matmul @x, @w : f32[N,4] !MatMul \"fc\"\n"
    "  %m = reduce_mean %y {axes=[0,1], keepdims=false} : f32[] !ReduceMean \"mean\"\n"
    "  %c = reduce_mean @label {axes=[0,1], keepdims=false} : f32[] !ReduceMean \"other\"\n"
    "  %l = add %m, %c : f32[] !Add \"sum\"\n"
    "  output \"l\" = %l\n"
    "}\n";

static void start_bad_window(net *n)
{
    for (int m = 0; m < 2; m++) accumulate(n, 16 * m, 16);
}

static void run_bad_step(net *n) { run(n, "train_step"); }

static void run_bad_window(net *n)
{
    start_bad_window(n);
    apply(n);
}

/* A caller that unscales sees the flag, and @apply remembers it. */
static void run_bad_unscaled_window(net *n)
{
    start_bad_window(n);
    must(n->t, rt_session_run(n->s, "unscale", NULL, 0, n->t->d));
    assert_true(output(n, "found_inf") == 1);
    must(n->t, rt_session_set_number(n->s, "loss_sum", 0, n->t->d));
    apply(n);
}

TEST_SCRATCH(test_a_loss_that_is_not_finite_moves_nothing)
{
    static const char *const moving[] = {"loss_scale", "good_steps", "bad_steps",     "rng",
                                         "grad_sum.w", "loss_sum",   "micro_batches", NULL};
    static const struct {
        pass_level level;
        ir_dtype low;
        pass_scaling scaling;
    } rows[] = {{PASS_O1, IR_f16, PASS_SCALE_DEFAULT},  {PASS_O1, IR_f16, PASS_SCALE_STATIC},
                {PASS_O1, IR_bf16, PASS_SCALE_DEFAULT}, {PASS_O0, IR_f16, PASS_SCALE_DYNAMIC},
                {PASS_O0, IR_f16, PASS_SCALE_DEFAULT},  {PASS_O1, IR_f16, PASS_SCALE_OFF}};
    enum { CASES = sizeof rows / sizeof *rows };
    static void (*const steps[])(net *) = {run_bad_step, run_bad_window, run_bad_unscaled_window};
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < CASES * 3 * 3; i++) {
        compile_options o = accumulating("adamw,weight_decay=0.1", rows[i % CASES].level);
        o.loss = NULL;
        o.loss_output = "l";
        o.low = rows[i % CASES].low;
        o.scaling = rows[i % CASES].scaling;
        net n = open_net(t, with_label, &o);
        n.label[30][1] = bad[i / CASES % 3];
        const picture before = picture_of(&n, moving);
        steps[i / CASES / 3](&n);
        assert_true(output(&n, "found_inf") == 1);
        const picture after = picture_of(&n, moving);
        assert_same(&before, &after);
        n.label[30][1] = 0;
        assert_false(step(&n));
        close_net(&n);
    }
}

/* At the largest scale that options allow, a window still is a mean. A larger scale that a few micro-batches bring to
 * an infinity does not make the gradients 0. */
TEST_SCRATCH(test_the_scale_times_the_count_does_not_overflow)
{
    static const char *const moving[] = {"grad_sum.w", "loss_sum", "micro_batches", NULL};
    static const double limits[] = {LIMITS_LOSS_SCALE};
    compile_options o = accumulating("sgd,lr=1", PASS_O0), without = o;
    o.loss = without.loss = NULL;
    o.loss_output = without.loss_output = "l";
    o.scaling = PASS_SCALE_STATIC;
    o.init_scale = limits[1];
    net scaled_net = open_net(t, linear, &o), plain = open_net(t, linear, &without);
    for (int m = 0; m < 8; m++) {
        accumulate(&scaled_net, 4 * m, 4);
        accumulate(&plain, 4 * m, 4);
    }
    apply(&scaled_net);
    apply(&plain);
    assert_true(output(&scaled_net, "found_inf") == 0);
    assert_true(largest_difference(&scaled_net, &plain, "w") <= 1e-6);

    must(scaled_net.t, rt_session_set_number(scaled_net.s, "loss_scale", 1e38, scaled_net.t->d));
    const picture before = picture_of(&scaled_net, moving);
    for (int m = 0; m < 4; m++) accumulate(&scaled_net, 4 * m, 4);
    apply(&scaled_net);
    assert_true(output(&scaled_net, "found_inf") == 1);
    const picture after = picture_of(&scaled_net, moving);
    assert_same(&before, &after);
    close_net(&scaled_net);
    close_net(&plain);
}

/* ---- clipping ---------------------------------------------------------------------------------- */

/* The formulas of torch.nn.utils.clip_grad_value_ and clip_grad_norm_ on the gradients of @grad, in double. */
static void clip(double (*g)[64], const int *n, const compile_options *o)
{
    double squares = 0;
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < n[k]; i++) {
            if (o->clip_value > 0) g[k][i] = fmin(fmax(g[k][i], -o->clip_value), o->clip_value);
            squares += g[k][i] * g[k][i];
        }
    const double factor = o->clip_norm > 0 ? fmin(1, o->clip_norm / (sqrt(squares) + 1e-6)) : 1;
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < n[k]; i++) g[k][i] *= factor;
}

static void check_clipped_step(scratch *t, const compile_options *o)
{
    static const char *const names[] = {"w1", "b1", "w2"}, *const outputs[] = {"grad/w1", "grad/b1", "grad/w2"};
    double g[3][64], before[3][64], squares = 0;
    int elements[3];
    net n = open_net(t, mlp, o);
    run(&n, "grad");
    for (int k = 0; k < 3; k++) {
        const rt_tensor *v = rt_session_output(n.s, outputs[k]);
        elements[k] = (int)count(v);
        for (int i = 0; i < elements[k]; i++) {
            g[k][i] = (double)((float *)v->data)[i];
            before[k][i] = (double)((float *)storage(&n, names[k]).data)[i];
            squares += g[k][i] * g[k][i];
        }
    }
    clip(g, elements, o);
    run(&n, "train_step");
    assert_true(fabs(output(&n, "grad_norm") - sqrt(squares)) <= 1e-6 * sqrt(squares)); /* before clipping */
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < elements[k]; i++)
            assert_true(fabs((double)((float *)storage(&n, names[k]).data)[i] - before[k][i] + g[k][i]) <= 1e-6);
    close_net(&n);
}

TEST_SCRATCH(test_clipping_follows_the_formula)
{
    static const double rows[][2] = {{0, 0}, {0.05, 0}, {1e6, 0}, {0, 0.02}, {0, 1e6}, {0.05, 0.02}, {1e-20, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int level = 0; level < 2; level++) {
            compile_options o = options("mse", "sgd,lr=1");
            o.level = level ? PASS_O1 : PASS_O0;
            o.clip_norm = rows[i][0];
            o.clip_value = rows[i][1];
            check_clipped_step(t, &o);
        }
}

TEST_SCRATCH(test_clipping_hides_no_overflow)
{
    compile_options o = options("mse", "sgd,lr=1");
    o.clip_norm = o.clip_value = 1;
    net n = open_net(t, mlp, &o);
    n.x[3][1] = INFINITY;
    picture before = picture_of(&n, scaler);
    assert_true(step(&n));
    picture after = picture_of(&n, scaler);
    assert_same(&before, &after);
    close_net(&n);
}
