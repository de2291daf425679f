/* test_scaler.c - the state machine of each loss scaler: random flags against the rules as each framework writes them
 * (scaler_rules.h), the switch, and what a compilation refuses. */
#include "tests/train/scaler_rules.h"

/* ---- random flags ------------------------------------------------------------------------------- */

extern const k_kernel cpu_update_loss_scaling;

enum { LENGTH = 96 };

static void run_on_cpu(const ir_node *n, scaler_trail *t)
{
    for (int k = 0; k < t->length; k++) {
        k_view in[4] = {{.data = &t->found[k], .dtype = IR_bool},
                        {.data = &t->scale[k], .dtype = IR_f32},
                        {.data = &t->good[k], .dtype = IR_i32},
                        {.data = &t->bad[k], .dtype = IR_i32}};
        k_view out[3] = {in[1], in[2], in[3]};
        out[0].data = &t->scale[k + 1];
        out[1].data = &t->good[k + 1];
        out[2].data = &t->bad[k + 1];
        const k_args args = {.op = n->op, .in = in, .out = out, .n_in = 4, .n_out = 3, .attr = n->attr};
        assert_int_equal(cpu_update_loss_scaling.run(&args), AMPC_OK);
    }
}

TEST_SCRATCH(test_scalers)
{
    bool found[LENGTH];
    float scale[LENGTH + 1];
    int32_t good[LENGTH + 1], bad[LENGTH + 1];
    scaler_trail trail = {LENGTH, found, scale, good, bad};
    for (int i = 0; i < SCALER_ROWS; i++) scaler_compare(t, &scaler_rows[i], &trail, run_on_cpu);
}

/* ---- the switch ---------------------------------------------------------------------------------- */

TEST_SCRATCH(test_switch)
{
    compile_options o = options("mse", "sgd,lr=0.1");
    o.incr_every = 2;
    o.init_scale = 256;
    net off = open_net(t, mlp, &o);
    must(off.t, rt_stepper_set_scaling(off.s, off.m, false, off.t->d));
    for (int k = 0; k < 5; k++) {
        off.x[0][0] = k == 2 ? INFINITY : 1;
        assert_int_equal(step(&off), k == 2);
        assert_true(state_of(&off, "loss_scale") == 1);
        assert_true(state_of(&off, "good_steps") == -1);
    }
    assert_true(state_of(&off, "step") == 4);
    must(off.t, rt_stepper_set_scaling(off.s, off.m, true, off.t->d));
    assert_true(state_of(&off, "loss_scale") == 256);
    off.x[0][0] = 1;
    assert_false(step(&off));
    assert_false(step(&off));
    assert_true(state_of(&off, "loss_scale") == 512);
    must(off.t, rt_stepper_set_scaling(off.s, off.m, true, off.t->d)); /* it is on already */
    assert_true(state_of(&off, "loss_scale") == 512);
    close_net(&off);
}

/* ---- refusals ------------------------------------------------------------------------------------ */

static void refuse(scratch *t, const compile_options *o, const char *why)
{
    ir_module *m = NULL;
    must(t, ir_parse(mlp, strlen(mlp), "net.ir", t->d, &m));
    assert_int_equal(test_compile(m, o, t->d), AMPC_USAGE);
    scratch_expect(t, why);
    ir_module_free(m);
}

TEST_SCRATCH(test_refusals)
{
    compile_options o = options("mse", "sgd");
    o.hysteresis = 2;
    o.decr_every = 2;
    refuse(t, &o, "not with decr-every-n-nan-or-inf");
    o.decr_every = 0;
    o.preset = PASS_PRESET_PADDLE_1_8;
    refuse(t, &o, "n+1 steps");
    o = options("mse", "sgd");
    o.max_scale = 1024;
    refuse(t, &o, "initial loss scale, 65536");
    o.init_scale = 512;
    o.min_scale = 2048;
    refuse(t, &o, "smallest loss scale, 2048");
}
