/* test_scaler.c - the state machine of each loss scaler: random flags against the rules as each framework writes them,
 * the switch, and what a compilation refuses. The op is that of a compiled training step. */
#include "kernels/kernel.h"
#include "tests/train/training_net.h"

#include <stdint.h>

extern const k_kernel cpu_update_loss_scaling;

enum { SEQUENCES = 10000, LENGTH = 96 };

/* ---- the references, in f32 as the frameworks compute --------------------------------------------- */

typedef struct reference {
    float scale, incr, decr, min, max;
    int good, bad, incr_every, decr_every;
    int tracker; /* Apex: steps that hysteresis still tolerates */
} reference;

/* amp_update_scale_ of PyTorch, which has no count of bad steps. */
static void torch(reference *r, bool found)
{
    if (found) {
        r->scale = (float)(r->scale * 0.5);
        r->good = 0;
        return;
    }
    const int successful = r->good + 1;
    if (successful < r->incr_every) {
        r->good = successful;
        return;
    }
    const float grown = (float)(r->scale * 2.0);
    if (isfinite(grown)) r->scale = grown;
    r->good = 0;
}

/* fp16_utils.update_loss_scaling of PaddlePaddle 1.8 */
static void paddle_1_8(reference *r, bool found)
{
    if (!found) {
        const bool grow = r->incr_every < r->good + 1;
        const float grown = r->scale * r->incr;
        if (grow && isfinite(grown)) r->scale = grown;
        r->good = grow ? 0 : r->good + 1;
        r->bad = 0;
        return;
    }
    const bool shrink = r->decr_every < r->bad + 1;
    const float shrunk = r->scale * r->decr;
    if (shrink) r->scale = shrunk < 1 ? 1 : shrunk;
    r->bad = shrink ? 0 : r->bad + 1;
    r->good = 0;
}

/* UpdateLossScalingFunctor of PaddlePaddle 2 and 3 */
static void paddle(reference *r, bool found)
{
    if (found) {
        r->good = 0;
        r->bad++;
        if (r->bad == r->decr_every) {
            r->scale = r->scale * r->decr < 1 ? 1 : r->scale * r->decr;
            r->bad = 0;
        }
        return;
    }
    r->bad = 0;
    r->good++;
    if (r->good == r->incr_every) {
        if (isfinite(r->scale * r->incr)) r->scale *= r->incr;
        r->good = 0;
    }
}

/* update_scale_hysteresis of Apex, with the limits of its LossScaler */
static void apex(reference *r, bool found)
{
    if (found && --r->tracker > 0) {
        r->good = 0;
        return;
    }
    if (found) {
        r->scale = fmaxf(r->min, r->scale * 0.5f);
        r->good = 0;
        return;
    }
    if (++r->good == r->incr_every) {
        if (isfinite(r->scale * 2)) r->scale = fminf(r->max, r->scale * 2);
        r->good = 0;
    }
    r->tracker = r->decr_every;
}

/* ---- the op of a compiled step ------------------------------------------------------------------- */

static const ir_node *update_of(const ir_module *m)
{
    const ir_graph *g = ir_graph_by_role(m, IR_GRAPH_train_step);
    for (const ir_node *n = g ? g->first : NULL; n; n = n->next)
        if (n->op == IR_OP_update_loss_scaling) return n;
    fail_msg("no update of the loss scale");
    return NULL;
}

static void run_update(const ir_node *n, bool found, float *scale, int32_t *good, int32_t *bad)
{
    k_view in[4] = {{.data = &found, .dtype = IR_bool},
                    {.data = scale, .dtype = IR_f32},
                    {.data = good, .dtype = IR_i32},
                    {.data = bad, .dtype = IR_i32}};
    k_view out[3] = {in[1], in[2], in[3]};
    const k_args args = {.op = n->op, .in = in, .out = out, .n_in = 4, .n_out = 3, .attr = n->attr};
    assert_int_equal(cpu_update_loss_scaling.run(&args), AMPC_OK);
}

static double draw(uint64_t sequence, uint64_t k) { return philox_unit(philox_word(77, sequence, k)); }

/* Starts near the limits of the counters, so that short sequences cross them. */
static reference start(const reference *rules, uint64_t sequence)
{
    reference r = *rules;
    const int near = r.incr_every < LENGTH ? r.incr_every : LENGTH / 2;
    r.scale = (float)ldexp(1 + draw(sequence, 1), (int)(draw(sequence, 2) * 254) - 126);
    if (r.min > 0) r.scale = fmaxf(r.scale, r.min);
    if (r.max > 0) r.scale = fminf(r.scale, r.max);
    r.good = r.incr_every - 1 - (int)(draw(sequence, 3) * near);
    r.bad = 0;
    r.tracker = r.decr_every;
    return r;
}

typedef struct preset {
    const char *name;
    void (*step)(reference *r, bool found);
    reference rules;
    bool counts_bad; /* the reference has the same count of bad steps */
} preset;

static void compare(const preset *p, const ir_node *n)
{
    int grown = 0, shrunk = 0;
    for (uint64_t s = 0; s < SEQUENCES; s++) {
        reference r = start(&p->rules, s);
        float scale = r.scale;
        int32_t good = r.good, bad = r.bad;
        const double bad_share = 0.5 * draw(s, 4) * draw(s, 5);
        for (uint64_t k = 0; k < LENGTH; k++) {
            const bool found = draw(s, 10 + k) < bad_share;
            const float before = scale;
            p->step(&r, found);
            run_update(n, found, &scale, &good, &bad);
            grown += scale > before;
            shrunk += scale < before;
            if (scale == r.scale && good == r.good && (!p->counts_bad || bad == r.bad)) continue;
            fail_msg("%s, sequence %d, step %d: %a/%d/%d, not %a/%d/%d", p->name, (int)s, (int)k, scale, good, bad,
                     r.scale, r.good, r.bad);
        }
    }
    assert_true(grown > SEQUENCES / 4);
    assert_true(shrunk > SEQUENCES / 4);
}

static void test_presets(void **state)
{
    static const preset presets[] = {
        {"torch", torch, {65536, 2, 0.5f, 0, 0, .incr_every = 2000, .decr_every = 1}, true},
        {"paddle-1.8", paddle_1_8, {32768, 2, 0.8f, 1, 0, .incr_every = 1000, .decr_every = 2}, true},
        {"paddle-2", paddle, {32768, 2, 0.8f, 1, 0, .incr_every = 1000, .decr_every = 2}, true},
        {"paddle-3", paddle, {65536, 2, 0.5f, 1, 0, .incr_every = 2000, .decr_every = 1}, true},
    };
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        int word;
        compile_options o = options("mse", "sgd");
        assert_true(pass_find_word(pass_presets, presets[i].name, &word));
        o.preset = (pass_preset)word;
        net n = open_net(*state, mlp, &o);
        assert_true(state_of(&n, "loss_scale") == presets[i].rules.scale);
        compare(&presets[i], update_of(n.m));
        close_net(&n);
    }
}

static void test_hysteresis_and_limits(void **state)
{
    const preset p = {"apex", apex, {1024, 2, 0.5f, 4, 65536, .incr_every = 20, .decr_every = 3}, false};
    compile_options o = options("mse", "sgd");
    o.hysteresis = 3;
    o.min_scale = 4;
    o.max_scale = 65536;
    o.incr_every = 20;
    o.init_scale = 1024;
    net n = open_net(*state, mlp, &o);
    compare(&p, update_of(n.m));
    close_net(&n);
}

/* ---- the switch ---------------------------------------------------------------------------------- */

static void test_switch(void **state)
{
    compile_options o = options("mse", "sgd,lr=0.1");
    o.incr_every = 2;
    o.init_scale = 256;
    net off = open_net(*state, mlp, &o);
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

static void test_refusals(void **state)
{
    compile_options o = options("mse", "sgd");
    o.hysteresis = 2;
    o.decr_every = 2;
    refuse(*state, &o, "--decr-every-n-nan-or-inf");
    o.decr_every = 0;
    o.preset = PASS_PRESET_PADDLE_1_8;
    refuse(*state, &o, "n+1 steps");
    o = options("mse", "sgd");
    o.max_scale = 1024;
    refuse(*state, &o, "initial loss scale, 65536");
    o.init_scale = 512;
    o.min_scale = 2048;
    refuse(*state, &o, "smallest loss scale, 2048");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_TEST(test_presets),
        SCRATCH_TEST(test_hysteresis_and_limits),
        SCRATCH_TEST(test_switch),
        SCRATCH_TEST(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
