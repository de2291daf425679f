/* test_recipes.c - the recipes of PyTorch's page "Automatic Mixed Precision examples" against PyTorch.
 *
 * make_recipes.py computes recipes.h in float64. Here everything is f32, with loss scaling, so that only rounding may
 * differ. The same recipes then run in mixed precision, with a wider bound. */
#include "runtime/train/checkpoint.h"
#include "tests/train/training_net.h"

enum { STEPS = 6, PARAMS = 3 };

typedef struct recipe {
    const char *name;
    int accumulate;
    double clip_norm, clip_value;
    int overflow_step, overflow_batch; /* where the gradient of w2 becomes infinite; -1: nowhere */
    const char *penalty;               /* --grad-penalty */
    double factor;                     /* of the unscaled gradient of w2, changed before the update; 0: none */
    int restored;                      /* a new session continues before this step; 0: none */
    bool off;                          /* the loss scale is switched off */
    struct {
        double loss, scale; /* the scale after the step */
    } step[STEPS];
    struct {
        double sum, squares;
    } param[PARAMS];
} recipe;

static const recipe recipes[] = {
#include "tests/train/recipes.h"
};

static const char *const params[PARAMS] = {"w1", "b1", "w2"};

/* The formulas of the script. */
static float pattern(int i, int factor, int modulus)
{
    return (float)((double)(i * factor % modulus) / (double)(modulus / 2) - 1);
}

static void set_samples(net *n, int step)
{
    for (int i = 0; i < ROWS * IN; i++) n->x[i / IN][i % IN] = pattern(i + step, 29, 23);
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < OUT; k++) n->label[i][k] = 0.5f * n->x[i][k] - 0.25f * n->x[i][3];
}

static net open_recipe(scratch *t, const recipe *r, pass_level level, ir_dtype low)
{
    compile_options o = options("mse", "momentum,lr=0.25,momentum=0.9");
    o.level = level;
    o.low = low;
    o.grad_penalty = r->penalty;
    o.scaling = PASS_SCALE_DYNAMIC;
    o.init_scale = 1024;
    o.incr_every = 2;
    o.accumulate = r->accumulate;
    o.clip_norm = r->clip_norm;
    o.clip_value = r->clip_value;
    net n = open_net(t, mlp, &o);
    if (r->off) must(t, rt_stepper_set_scaling(n.s, n.m, false, t->d));
    for (int k = 0; k < PARAMS; k++) {
        rt_tensor v = storage(&n, params[k]);
        for (size_t i = 0; i < count(&v); i++) ((float *)v.data)[i] = 0.5f * pattern((int)i, 37, 19);
    }
    return n;
}

static void change_gradient(const net *n, double factor)
{
    must(n->t, rt_session_run(n->s, "unscale", NULL, 0, n->t->d));
    rt_tensor g = storage(n, "grad_sum.w2");
    for (size_t i = 0; i < count(&g); i++) ((float *)g.data)[i] *= (float)factor;
}

static void run_window(net *n, const recipe *r, int step)
{
    const int rows = ROWS / r->accumulate;
    for (int k = 0; k < r->accumulate; k++) {
        rt_tensor in[2];
        const int inputs = inputs_of(n, "accumulate", in);
        for (int i = 0; i < inputs; i++) in[i].dims[0] = rows;
        in[0].data = n->x[k * rows];
        in[1].data = n->label[k * rows];
        must(n->t, rt_session_run(n->s, "accumulate", in, inputs, n->t->d));
        if (r->overflow_step == step && r->overflow_batch == k) ((float *)storage(n, "grad_sum.w2").data)[0] = INFINITY;
    }
    if (r->factor != 0) change_gradient(n, r->factor);
    must(n->t, rt_session_run(n->s, "apply", NULL, 0, n->t->d));
}

/* Continues the training in a new session. */
static void restore(net *n, const recipe *r, pass_level level, ir_dtype low)
{
    const char *path = scratch_path(n->t, "recipe.safetensors");
    const rt_run_state run = {.step = (uint64_t)r->restored};
    must(n->t, rt_checkpoint_write(n->s, n->m, &run, path, n->t->d));
    net fresh = open_recipe(n->t, r, level, low);
    close_net(n);
    *n = fresh;
    must(n->t, rt_checkpoint_read(n->s, n->m, path, &rt_checkpoint_all, n->t->d, NULL));
}

static void near(const recipe *r, const char *what, double have, double expected, double bound)
{
    if (!(fabs(have - expected) <= bound * (1 + fabs(expected))))
        fail_msg("%s: %s is %.9g, not %.9g", r->name, what, have, expected);
}

static void follow(scratch *t, const recipe *r, pass_level level, ir_dtype low, bool window, double bound)
{
    net n = open_recipe(t, r, level, low);
    for (int i = 0; i < STEPS; i++) {
        if (i && i == r->restored) restore(&n, r, level, low);
        set_samples(&n, i);
        if (window) run_window(&n, r, i);
        else run(&n, "train_step");
        near(r, "the loss", output(&n, "loss"), r->step[i].loss, bound);
        assert_int_equal(output(&n, "found_inf") != 0, i == r->overflow_step);
        assert_true(state_of(&n, "loss_scale") == r->step[i].scale);
    }
    for (int k = 0; k < PARAMS; k++) {
        rt_tensor v = storage(&n, params[k]);
        double sum = 0, squares = 0;
        for (size_t i = 0; i < count(&v); i++) {
            double w = (double)((float *)v.data)[i];
            sum += w;
            squares += w * w;
        }
        near(r, params[k], sum, r->param[k].sum, bound);
        near(r, params[k], squares, r->param[k].squares, bound);
    }
    close_net(&n);
}

TEST_SCRATCH(test_recipes)
{
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        const bool parts = recipes[i].accumulate > 1 || recipes[i].factor != 0;
        for (int window = parts; window <= 1; window++) {
            follow(t, &recipes[i], PASS_O0, IR_f16, window, 5e-6);
            follow(t, &recipes[i], PASS_O1, IR_f16, window, 2e-2);
            follow(t, &recipes[i], PASS_O1, IR_bf16, window, 5e-2);
        }
    }
}

/* A loss scale that is too large for the gradient in the penalty skips the step, with a loss that is not finite; at its
 * floor that is an error. */
TEST_SCRATCH(test_overflow)
{
    for (int floor = 0; floor <= 1; floor++) {
        const rt_stepper_options at = {.scale_floor = floor ? 0x1p40 : 0};
        compile_options o = options("mse", "sgd,lr=0.1");
        rt_step_result result;
        rt_stepper stepper;
        o.grad_penalty = "L2:params,1";
        o.init_scale = 0x1p26;
        net n = open_net(t, mlp, &o);
        rt_tensor in[2];
        const int inputs = inputs_of(&n, "train_step", in);
        must(n.t, rt_stepper_open(n.s, n.m, &at, n.t->d, &stepper));
        ampc_status status = rt_stepper_run(&stepper, in, inputs, n.t->d, &result);
        assert_true(result.skipped && !isfinite(result.loss));
        assert_int_equal(status, floor ? AMPC_NUMERIC : AMPC_OK);
        for (int i = 0; i < 20 && !floor && result.skipped; i++)
            must(n.t, rt_stepper_run(&stepper, in, inputs, n.t->d, &result));
        assert_true(floor || (!result.skipped && isfinite(result.loss)));
        close_net(&n);
    }
}
