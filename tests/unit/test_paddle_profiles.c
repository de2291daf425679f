/* test_paddle_profiles.c - names of casts, operator lists, levels and loss scaling of the PaddlePaddle profiles. */
#include "passes/amp/list.h"
#include "tests/unit/paddle.h"

static void test_cast_names(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        diag *d = diag_new(collect, NULL);
        ir_module *m = parse(&white_first, d);
        compile_options o = compile_options_default();
        o.profile = "paddle-3";
        o.low = i ? IR_bf16 : IR_f16; /* the name is the same for both */
        assert_int_equal(test_pass(m, "amp", &o, d), AMPC_OK);
        int found = 0;
        for (const ir_node *n = m->graphs.items[0]->first; n; n = n->next)
            if (n->n_out)
                found += !strcmp(n->out[0]->name, "x.cast_fp16") + !strcmp(n->out[0]->name, "w.cast_fp16") +
                         !strcmp(n->out[0]->name, "m.cast_fp32");
        assert_int_equal(found, 3);
        ir_module_free(m);
        diag_free(d);
    }
}

/* Asserts the colour that the effective list has for an operator. */
static void expect_listed(const char *profile, const char *white, const char *black, const char *op, int colour)
{
    arena *a = arena_new(0);
    diag *d = diag_new(collect, NULL);
    compile_options o = compile_options_default();
    o.profile = profile;
    if (white) o.white = (pass_strings){&white, 1};
    if (black) o.black = (pass_strings){&black, 1};
    amp_list *l;
    assert_int_equal(amp_list_load(&o, a, d, &l), AMPC_OK);
    ir_module *m = parse(&white_first, d);
    const list_entry *line = amp_list_find(l, op, m->graphs.items[0]->first, IR_f16);
    assert_int_equal(line ? (int)line->colour : -1, colour);
    ir_module_free(m);
    diag_free(d);
    arena_free(a);
}

static void test_lists(void **state)
{
    (void)state;
    static const char *const profiles[] = {"paddle-3", "paddle-2.4", "paddle-1.8"};
    for (int i = 0; i < 3; i++) {
        expect_listed(profiles[i], NULL, NULL, "MatMul", IR_WHITE);
        expect_listed(profiles[i], NULL, NULL, "Exp", IR_BLACK);
        expect_listed(profiles[i], NULL, NULL, "Tanh", IR_GRAY);
        expect_listed(profiles[i], NULL, NULL, "LSTM", -1);
        expect_listed(profiles[i], "Exp", NULL, "Exp", IR_WHITE);
        expect_listed(profiles[i], "Tanh", NULL, "Tanh", IR_WHITE);
        expect_listed(profiles[i], "LSTM", NULL, "LSTM", IR_WHITE);
        expect_listed(profiles[i], NULL, "Conv", "Conv", IR_BLACK);
        expect_listed(profiles[i], NULL, "Tanh", "Tanh", IR_BLACK);
        expect_listed(profiles[i], NULL, "LSTM", "LSTM", IR_BLACK);
    }
    expect_listed("paddle-3", NULL, NULL, "Sum", -1);
    expect_listed("paddle-2.4", NULL, NULL, "Sum", IR_BLACK);
    expect_listed("paddle-2.4", NULL, NULL, "LayerNormalization", IR_GRAY);
    expect_listed("paddle-1.8", NULL, NULL, "LayerNormalization", -1);
    expect_listed("paddle-1.8", NULL, NULL, "TopK", IR_GRAY);
    expect_listed("paddle-2.4", NULL, NULL, "TopK", -1);
    expect_listed("paddle-1.8", NULL, NULL, "Flatten", IR_GRAY);
    expect_listed("paddle-3", NULL, NULL, "Flatten", -1);
    expect_listed("paddle-1.8", NULL, NULL, "Concat", -1);
    expect_listed("paddle-2.4", NULL, NULL, "Concat", IR_GRAY);
}

static ampc_status run_with(const program *p, const compile_options *o)
{
    messages[0] = '\0';
    diag *d = diag_new(collect, NULL);
    ir_module *m = parse(p, d);
    ampc_status status = test_pass(m, "amp", o, d);
    ir_module_free(m);
    diag_free(d);
    return status;
}

static void test_refused(void **state)
{
    (void)state;
    compile_options o = compile_options_default();
    const char *exp = "Exp";
    o.profile = "paddle-3";
    o.white = o.black = (pass_strings){&exp, 1};
    assert_int_equal(run_with(&white_first, &o), AMPC_USAGE);
    assert_non_null(strstr(messages, "Exp"));
    o = compile_options_default();
    o.profile = "paddle-1.8";
    o.level = PASS_O2;
    assert_int_equal(run_with(&white_first, &o), AMPC_UNSUPPORTED);
    o.profile = "paddle-2.4";
    o.level = PASS_OD;
    assert_int_equal(run_with(&white_first, &o), AMPC_UNSUPPORTED);
    assert_non_null(strstr(messages, "paddle-2.4 has no level OD"));
}

static void test_scaling(void **state)
{
    (void)state;
    static const struct {
        const char *profile;
        scaling_rules rules;
    } eras[] = {
        {"paddle-3", {65536, 2, 0.5, 1, 0, 2000, 1, false, false, true, true}},
        {"paddle-2.4", {32768, 2, 0.8, 1, 0, 1000, 2, false, false, true, true}},
        {"paddle-1.8", {32768, 2, 0.8, 1, 0, 1000, 2, false, true, true, true}},
    };
    for (int i = 0; i < 3; i++) {
        compile_options o = compile_options_default();
        o.profile = eras[i].profile;
        diag *d = diag_new(collect, NULL);
        arena *a = arena_new(0);
        compile *c;
        assert_int_equal(compile_load(&o, a, d, &c), AMPC_OK);
        const scaling_rules r = c->scaling;
        diag_free(d);
        arena_free(a);
        assert_float_equal(r.init, eras[i].rules.init, 0);
        assert_float_equal(r.incr_ratio, eras[i].rules.incr_ratio, 0);
        assert_float_equal(r.decr_ratio, eras[i].rules.decr_ratio, 0);
        assert_int_equal(r.incr_every, eras[i].rules.incr_every);
        assert_int_equal(r.decr_every, eras[i].rules.decr_every);
        assert_int_equal(r.late, eras[i].rules.late);
        assert_int_equal(r.on && r.dynamic, eras[i].rules.on && eras[i].rules.dynamic);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cast_names),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_scaling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
