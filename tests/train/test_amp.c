/* test_amp.c - known failures of mixed precision, one named test each, on complete training steps.
 *
 * The numbers in the names refer to a list of bugs that mixed-precision trainers commonly have: a loss scale
 * that collapses, an infinity that persists, a scale that grows too early, stale casts, statistics poisoned
 * by a skipped step, a seed that is infinite in fp16, an epsilon that is zero in fp16. */
#include "tests/train/training_net.h"

/* ---- 1 and 2: the scale collapses, or skipping never ends ------------------------------------ */

TEST_SCRATCH(test_1_always_overflows)
{
    char text[1024];
    snprintf(text, sizeof text, scaled, "1e9");
    compile_options o = options(NULL, "sgd");
    net n = open_net(t, text, &o);
    const rt_stepper_options defaults = {0};
    rt_stepper stepper;
    must(t, rt_stepper_open(n.s, n.m, &defaults, t->d, &stepper));
    picture before = picture_of(&n, scaler);
    ampc_status status = AMPC_OK;
    int steps = 0;
    for (; status == AMPC_OK && steps < 200; steps++) {
        rt_tensor in[2];
        rt_step_result result;
        int inputs = inputs_of(&n, "train_step", in);
        status = rt_stepper_run(&stepper, in, inputs, t->d, &result);
        assert_true(result.skipped);
        assert_true(isfinite(result.loss));
        assert_true(result.scale >= 1);
    }
    assert_int_equal(status, AMPC_NUMERIC);
    /* 65536 halved down to the floor, then the patience, which starts with the last halving */
    assert_int_equal(steps, 15 + 50);
    assert_non_null(strstr(diag_first_error(t->d), "'fc'"));
    assert_non_null(strstr(diag_first_error(t->d), "'d.y' f16[32,3] of the backward (cast) has 96 infinities"));
    assert_true(state_of(&n, "loss_scale") == 1);
    picture after = picture_of(&n, scaler);
    assert_same(&before, &after);
    close_net(&n);
}

/* ---- 3: an infinity persists in the state ---------------------------------------------------- */

TEST_SCRATCH(test_3_nothing_of_an_infinite_step_stays)
{
    static const char *const optimizers[] = {"sgd", "momentum", "nesterov", "adam", "adamw"};
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        compile_options o = options("mse", optimizers[i]);
        o.decr_every = 1000; /* a constant scale, so only the injected step differs */
        o.init_scale = 1024;
        net clean = open_net(t, mlp, &o), hit = open_net(t, mlp, &o);
        assert_false(step(&clean));
        assert_false(step(&hit));
        hit.x[3][1] = 1e30f;
        assert_true(step(&hit));
        for (uint64_t k = 1; k < 4; k++) {
            set_batch(&clean, k);
            set_batch(&hit, k);
            run(&clean, "grad");
            run(&hit, "grad");
            const rt_tensor *a = rt_session_output(clean.s, "grad/w1"), *b = rt_session_output(hit.s, "grad/w1");
            assert_memory_equal(a->data, b->data, count(a) * sizeof(float));
            assert_false(step(&clean));
            assert_false(step(&hit));
        }
        picture a = picture_of(&clean, scaler), b = picture_of(&hit, scaler);
        assert_same(&a, &b);
        close_net(&clean);
        close_net(&hit);
    }
}

/* ---- 4: unscaled with the scale of the next step --------------------------------------------- */

TEST_SCRATCH(test_4_growth_every_step)
{
    compile_options o = options(NULL, "sgd,lr=1");
    o.incr_every = 1;
    o.init_scale = 16;
    net amp = open_net(t, linear, &o);
    o.level = PASS_O0;
    net f32 = open_net(t, linear, &o);
    for (int k = 0; k < 8; k++) {
        for (size_t i = 0; i < ROWS * IN; i++) /* exact in fp16 */
            amp.x[i / IN][i % IN] = f32.x[i / IN][i % IN] = roundf(4 * random_value(50 + (uint64_t)k, i));
        assert_true(state_of(&amp, "loss_scale") == 16 << k);
        assert_false(step(&amp));
        run(&f32, "train_step");
        rt_tensor a = storage(&amp, "w"), b = storage(&f32, "w");
        assert_memory_equal(a.data, b.data, count(&a) * sizeof(float));
    }
    close_net(&amp);
    close_net(&f32);
}

/* ---- 8: stale casts of weights --------------------------------------------------------------- */

static double eval_loss(net *n)
{
    run(n, "eval");
    return output(n, "loss");
}

static void save(const net *n, const char *name)
{
    const rt_run_state run_state = {.step = 1};
    must(n->t, rt_checkpoint_write(n->s, n->m, &run_state, scratch_path(n->t, name), n->t->d));
}

static void load(const net *n, const char *name)
{
    must(n->t, rt_checkpoint_read(n->s, n->m, scratch_path(n->t, name), &rt_checkpoint_all, n->t->d, NULL));
}

static double fresh_loss(scratch *t, const compile_options *o, const char *name)
{
    net n = open_net(t, mlp, o);
    load(&n, name);
    double loss = eval_loss(&n);
    close_net(&n);
    return loss;
}

TEST_SCRATCH(test_8_no_stale_casts)
{
    compile_options o = options("mse", "momentum,lr=0.05");
    o.init_scale = 1024;
    net n = open_net(t, mlp, &o);
    for (int k = 0; k < 3; k++) step(&n);
    save(&n, "a");
    double a = eval_loss(&n);
    for (int k = 0; k < 3; k++) step(&n);
    save(&n, "b");
    double b = eval_loss(&n);
    assert_true(a != b);
    load(&n, "a");
    assert_true(eval_loss(&n) == a);
    load(&n, "b");
    assert_true(eval_loss(&n) == b);
    step(&n);
    load(&n, "a");
    assert_true(eval_loss(&n) == a);
    assert_true(fresh_loss(t, &o, "a") == a);
    assert_true(fresh_loss(t, &o, "b") == b);
    close_net(&n);
}

/* ---- 9 and 19: a skipped step updates nothing ------------------------------------------------ */

TEST_SCRATCH(test_9_skipped_steps_move_no_state)
{
    static const char *const optimizers[] = {"sgd,weight_decay=0.1", "momentum,weight_decay=0.1", "nesterov", "adam",
                                             "adamw,weight_decay=0.1"};
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        compile_options o = options("mse", optimizers[i]);
        net n = open_net(t, stateful, &o);
        assert_false(step(&n)); /* the moments are not zero any more */
        picture before = picture_of(&n, scaler);
        rt_tensor rng = storage(&n, "rng");
        int64_t drawn_before = ((int64_t *)rng.data)[1];
        *(float *)storage(&n, "loss_scale").data = 0x1p40f; /* gradients overflow, but the loss stays finite */
        for (int k = 0; k < 3; k++) {
            assert_true(step(&n));
            assert_true(isfinite(output(&n, "loss")));
        }
        picture after = picture_of(&n, scaler);
        assert_same(&before, &after);
        assert_true(state_of(&n, "loss_scale") == 0x1p37);
        assert_int_equal(((int64_t *)rng.data)[1], drawn_before + 3); /* a repeated mask would bias */
        *(float *)storage(&n, "loss_scale").data = 1024;
        assert_false(step(&n));
        assert_true(state_of(&n, "step") == 2);
        close_net(&n);
    }
}

/* The batch itself poisons the statistics. */
TEST_SCRATCH(test_9_infinite_batch_and_statistics)
{
    compile_options o = options("mse", "sgd");
    net n = open_net(t, stateful, &o);
    assert_false(step(&n));
    picture before = picture_of(&n, scaler);
    n.x[0][0] = INFINITY;
    assert_true(step(&n));
    picture after = picture_of(&n, scaler);
    assert_same(&before, &after);
    close_net(&n);
}

/* ---- 15: the scale itself is infinite in fp16 ------------------------------------------------ */

static bool reads_scale(const ir_node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        const ir_value *v = ir_in(n, i);
        if (v && v->kind == IR_VALUE_STORAGE && strcmp(v->name, "loss_scale") == 0) return true;
    }
    return false;
}

/* The users of the scale and all single-element values after it are f32. */
static void assert_f32_seed(const ir_module *m)
{
    for (size_t g = 0; g < m->graphs.count; g++)
        for (const ir_node *n = m->graphs.items[g]->first; n; n = n->next) {
            if (n->phase != IR_BACKWARD || !reads_scale(n)) continue;
            assert_int_not_equal(n->op, IR_OP_cast);
            if (n->out[0]->type.rank == 0) assert_int_equal(n->out[0]->type.dtype, IR_f32);
        }
}

static void assert_first_step_counts(scratch *t, const char *text, const char *loss)
{
    compile_options o = options(loss, "sgd");
    net n = open_net(t, text, &o);
    assert_true(state_of(&n, "loss_scale") == 65536);
    assert_f32_seed(n.m);
    assert_false(step(&n));
    assert_true(state_of(&n, "loss_scale") == 65536);
    assert_true(isfinite(output(&n, "grad_norm")) && output(&n, "grad_norm") > 0);
    close_net(&n);
}

TEST_SCRATCH(test_15_seed_is_f32)
{
    static const char *const losses[] = {"mse", "l1", "bce_logits"};
    static const char root[] = "ampc-ir 3\n"
                               "param @w : f32[4,3] = zero\n"
                               "graph @forward(@x : f32[N,4]) as forward {\n"
                               "  %y = matmul @x, @w : f32[N,3] !MatMul \"fc\"\n"
                               "  %q = mul %y, %y : f32[N,3] !Mul \"square\"\n"
                               "  %m = reduce_mean %q {axes=[0,1], keepdims=false} : f32[] !ReduceMean \"mean\"\n"
                               "  %l = sqrt %m : f32[] !Sqrt \"root\"\n"
                               "  output \"l\" = %l\n"
                               "}\n";
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) assert_first_step_counts(t, mlp, losses[i]);
    assert_first_step_counts(t, linear, NULL);
    assert_first_step_counts(t, root, NULL);
}

/* ---- 16: the optimizer is never low ---------------------------------------------------------- */

static void assert_update_is_f32(const ir_graph *g)
{
    int seen = 0;
    for (const ir_node *n = g->first; n; n = n->next) {
        if (n->phase != IR_UPDATE) continue;
        seen++;
        for (int i = 0; i < n->n_in; i++)
            if (ir_in(n, i)) assert_false(ir_dtype_is_low(ir_in(n, i)->type.dtype));
        for (int i = 0; i < n->n_out; i++) assert_false(ir_dtype_is_low(n->out[i]->type.dtype));
    }
    assert_true(seen > 10);
}

TEST_SCRATCH(test_16_optimizer_is_f32_under_any_list)
{
    static const char *const all[] = {"Gemm", "MatMul", "Relu", "BatchNormalization", "Dropout", "Adam", "Momentum"};
    compile_options o = options("mse", "adam,lr=0.125");
    o.white = (pass_strings){all, 7};
    net n = open_net(t, stateful, &o);
    assert_update_is_f32(ir_graph_find(n.m, "train_step"));
    assert_false(step(&n));
    close_net(&n);

    /* A gradient of zero: 0 / (sqrt(0) + eps) is 0 unless eps is 0. */
    n = open_net(t, linear,
                 &(compile_options){.level = PASS_O1,
                                    .low = IR_f16,
                                    .loss_output = "l",
                                    .keep_io_types = true,
                                    .optimizer = "adam,lr=0.125",
                                    .init = "file"});
    for (size_t i = 0; i < ROWS; i++) n.x[i][2] = 0;
    float before = ((float *)storage(&n, "w").data)[2 * 4], other = ((float *)storage(&n, "w").data)[0];
    assert_false(step(&n));
    assert_true(((float *)storage(&n, "w").data)[2 * 4] == before);
    /* A tiny gradient is comparable to eps: the update is lr g / (g + eps), not lr. */
    double g = fabs(((float *)storage(&n, "opt.m.w").data)[0]) / 0.1;
    double moved = fabs((double)((float *)storage(&n, "w").data)[0] - (double)other);
    assert_true(fabs(moved - 0.125 * g / (g + 1e-8)) < 1e-6);
    close_net(&n);
}

/* bf16: the scale stays 1; the finite check runs. */
TEST_SCRATCH(test_18_bf16_has_no_scale_but_a_check)
{
    compile_options o = options("mse", "sgd");
    o.low = IR_bf16;
    net n = open_net(t, stateful, &o);
    assert_true(state_of(&n, "loss_scale") == 1);
    assert_false(step(&n));
    picture before = picture_of(&n, scaler);
    n.x[5][0] = INFINITY;
    assert_true(step(&n));
    picture after = picture_of(&n, scaler);
    assert_same(&before, &after);
    assert_true(state_of(&n, "loss_scale") == 1);
    close_net(&n);
}

/* ---- 19: skipped steps that no loss scale explains -------------------------------------------- */

/* The root of a square is 0 for a sample of zeros, and its derivative NaN. */
static const char root[] = "ampc-ir 3\n"
                           "param @w : f32[4,3] = zero\n"
                           "graph @forward(@x : f32[N,4]) as forward {\n"
                           "  %y = matmul @x, @w : f32[N,3] !MatMul \"fc\"\n"
                           "  %a = mul %y, %y : f32[N,3] !Mul \"square\"\n"
                           "  %r = sqrt %a : f32[N,3] !Sqrt \"root\"\n"
                           "  %l = reduce_mean %r {axes=[0,1], keepdims=false} : f32[] !ReduceMean \"mean\"\n"
                           "  output \"l\" = %l\n"
                           "}\n";

enum { BAD_FROM = 3, BAD_STEPS = 10 };

/* Runs steps of which all from BAD_FROM on have a NaN in a gradient; warnings are errors. Returns the number of steps
 * without one. */
static int step_until_error(scratch *t, const compile_options *o, const rt_stepper_options *how, ampc_status *status)
{
    net n = open_net(t, root, o);
    rt_stepper stepper;
    int steps = 0;
    must(t, rt_stepper_open(n.s, n.m, how, t->d, &stepper));
    diag_set_strict(t->d, true);
    for (*status = AMPC_OK; *status == AMPC_OK && steps < BAD_STEPS; steps += *status == AMPC_OK) {
        rt_tensor in[2];
        rt_step_result result;
        const int inputs = inputs_of(&n, "train_step", in);
        if (steps == BAD_FROM) memset(n.x[2], 0, sizeof n.x[2]);
        *status = rt_stepper_run(&stepper, in, inputs, t->d, &result);
        assert_int_equal(result.skipped, steps >= BAD_FROM);
    }
    if (*status == AMPC_OK) *status = rt_stepper_end(&stepper, t->d);
    diag_set_strict(t->d, false);
    close_net(&n);
    return steps;
}

TEST_SCRATCH(test_19_skipped_steps_without_a_reason)
{
    static const struct {
        pass_level level;
        ir_dtype low;
        bool is_static, allow;
        int steps;
        ampc_status status;
        const char *says;
    } rows[] = {
        {PASS_O1, IR_bf16, false, false, BAD_FROM, AMPC_NUMERIC, "(Sqrt): error: step 4: a gradient is not finite"},
        {PASS_O0, IR_f16, true, false, BAD_FROM, AMPC_NUMERIC, "(Sqrt): error: step 4: a gradient is not finite"},
        {PASS_O1, IR_bf16, false, true, BAD_STEPS, AMPC_OK, ""},
        {PASS_O1, IR_f16, true, false, BAD_FROM + 2, AMPC_REJECTED, "3 of 6 steps were skipped"},
        {PASS_O1, IR_f16, false, false, BAD_FROM + 2, AMPC_REJECTED, "3 of 6 steps were skipped"},
        {PASS_O1, IR_f16, false, true, BAD_STEPS, AMPC_OK, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        compile_options o = options(NULL, "sgd");
        o.level = rows[i].level;
        o.low = rows[i].low;
        if (rows[i].is_static) o.scaling = PASS_SCALE_STATIC, o.init_scale = 1;
        const rt_stepper_options how = {.allow_skips = rows[i].allow};
        ampc_status status;
        assert_int_equal(step_until_error(t, &o, &how, &status), rows[i].steps);
        assert_int_equal(status, rows[i].status);
        scratch_expect(t, rows[i].says);
    }
}
