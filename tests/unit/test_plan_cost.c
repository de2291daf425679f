/* test_plan_cost.c - bytes and flops of a step, counted by hand; the stages of a plan and their dumps; sessions
 * that only plan. */
#include "tests/unit/plan_text.h"

#include "runtime/files/atomic_file.h"
#include "runtime/session/session.h"

static const rt_step *step_of(const plan_text *t, ir_op op)
{
    for (int i = 0; i < t->plan->n_steps; i++)
        if (t->plan->steps[i]->op == op) return t->plan->steps[i];
    fail_msg("there is no step %s", ir_op_get(op)->name);
    return NULL;
}

static void expect_cost(const plan_text *t, ir_op op, int64_t bytes, int64_t flops)
{
    const rt_cost cost = rt_step_cost(t->plan, step_of(t, op));
    assert_int_equal(cost.bytes, bytes);
    assert_int_equal(cost.flops, flops);
}

static void open_plan(plan_text *t, const char *text, bool fuse)
{
    plan_text_open(t, "cpu", text);
    if (plan_text_make(t, fuse) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
}

/* ---- bytes ------------------------------------------------------------------------------------------- */

TEST(an_operand_counts_once)
{
    plan_text t;
    open_plan(&t,
              "graph @g(@x : f32[N,S]) {\nforward:\n  %s = mul @x, @x : f32[N,S]\n"
              "  %v = reshape @x {shape=[S,N]} : f32[S,N]\n  %m = matmul @x, %v : f32[N,N]\n"
              "  output \"s\" = %s\n  output \"m\" = %m\n}\n",
              false);
    expect_cost(&t, IR_OP_mul, 24 + 24, 0);
    expect_cost(&t, IR_OP_matmul, 24 + 16, 2 * 4 * 3); /* the view shares its memory */
    plan_text_close(&t);
}

TEST(absent_operands_and_dropped_results_do_not_count)
{
    const char *text = "graph @g(@x : f32[N,4,8,8]) {\nforward:\n  %p, %i = max_pool @x {kernel=[2,2], strides=[2,2], "
                       "pads=[0,0,0,0], dilations=[1,1]} : f32[N,4,4,4], i64[N,4,4,4]\n  output \"p\" = %p\n";
    char both[1024];
    plan_text t;
    snprintf(both, sizeof both, "%s}\n", text);
    open_plan(&t, both, false);
    expect_cost(&t, IR_OP_max_pool, 2048 + 512, 0);
    plan_text_close(&t);
    snprintf(both, sizeof both, "%s  output \"i\" = %%i\n}\n", text);
    open_plan(&t, both, false);
    expect_cost(&t, IR_OP_max_pool, 2048 + 512 + 1024, 0);
    plan_text_close(&t);
}

/* A matmul with bias and gelu in its epilogue is one step: a, b, bias and y. */
TEST(fused_values_are_not_counted)
{
    plan_text t;
    open_plan(
        &t,
        "graph @g(@a : f32[4,8], @w : f32[8,16], @b : f32[16]) {\nforward:\n  %m = matmul @a, @w, @b : f32[4,16]\n"
        "  %y = gelu %m {tanh=true} : f32[4,16]\n  output \"y\" = %y\n}\n",
        true);
    assert_int_equal(t.plan->n_steps, 1);
    expect_cost(&t, IR_OP_matmul, 4 * (32 + 128 + 16 + 64), 2 * 64 * 8);
    plan_text_close(&t);
}

/* ---- flops ------------------------------------------------------------------------------------------- */

#define WINDOWS "strides=[1,1], pads=[1,1,1,1], dilations=[1,1]"
#define CONVOLUTIONS(group, weight) \
    "graph @g(@x : f32[2,4,8,8], @w : f32" weight ", @dy : f32[2,6,8,8]) {\nforward:\n" \
    "  %y = conv @x, @w, _ {" WINDOWS ", group=" group "} : f32[2,6,8,8]\n" \
    "  %dx = conv_grad_input @dy, @w {" WINDOWS ", group=" group ", shape=[2,4,8,8]} : f32[2,4,8,8]\n" \
    "  %dw, %db = conv_grad_weight @dy, @x {" WINDOWS ", group=" group ", shape=" weight ", out=f32} : f32" weight \
    ", f32[6]\n" \
    "  output \"y\" = %y\n  output \"dx\" = %dx\n"

TEST(a_convolution_and_its_gradients_have_equal_flops)
{
    const int64_t x = 2048, y = 3072, dense = 2 * 768 * 4 * 9, grouped = dense / 2;
    plan_text t;
    open_plan(&t, CONVOLUTIONS("1", "[6,4,3,3]") "  output \"dw\" = %dw\n}\n", false);
    expect_cost(&t, IR_OP_conv, x + 864 + y, dense);
    expect_cost(&t, IR_OP_conv_grad_input, y + 864 + x, dense);
    expect_cost(&t, IR_OP_conv_grad_weight, y + x + 864, dense);
    plan_text_close(&t);
    open_plan(&t, CONVOLUTIONS("2", "[6,2,3,3]") "  output \"dw\" = %dw\n}\n", false);
    expect_cost(&t, IR_OP_conv, x + 432 + y, grouped);
    expect_cost(&t, IR_OP_conv_grad_weight, y + x + 432, grouped);
    plan_text_close(&t);
    open_plan(&t, CONVOLUTIONS("1", "[6,4,3,3]") "  output \"db\" = %db\n}\n", false);
    expect_cost(&t, IR_OP_conv_grad_weight, y + x + 24, 0); /* only the bias gradient */
    plan_text_close(&t);
}

TEST(a_batch_of_matrices)
{
    plan_text t;
    open_plan(&t,
              "graph @g(@a : f16[5,2,4,8], @b : f16[2,16,8]) {\nforward:\n"
              "  %y = matmul @a, @b {trans_b=true} : f16[5,2,4,16]\n  output \"y\" = %y\n}\n",
              false);
    expect_cost(&t, IR_OP_matmul, 2 * (320 + 256 + 640), 2 * 640 * 8);
    plan_text_close(&t);
}

/* Whatever results are used, the same products are computed. */
TEST(a_recurrent_network)
{
    static const char *const results[] = {"  output \"y\" = %y\n", "  output \"h\" = %h\n"};
    char text[512];
    plan_text t;
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text,
                 "graph @g(@x : f32[7,2,12], @r : f32[12,3]) {\nforward:\n"
                 "  %%y, %%h, %%c, %%s, %%g = recurrent @x, @r, _, _, _, _, _ : f32[7,2,3], f32[2,3], f32[2,3], "
                 "f32[7,2,3], f32[7,2,12]\n%s}\n",
                 results[i]);
        open_plan(&t, text, false);
        assert_int_equal(rt_step_cost(t.plan, step_of(&t, IR_OP_recurrent)).flops, 2 * 7 * 2 * 12 * 3);
        plan_text_close(&t);
    }
}

/* ---- plan totals ------------------------------------------------------------------------------------- */

/* The low-precision copy of a weight is made when weights are loaded and costs nothing per run. */
TEST(hoisted_steps_cost_nothing)
{
    plan_text t;
    open_plan(&t,
              "param @w : f32[2,8,8] = zero\ngraph @g(@x : f16[2,N,8]) {\nforward:\n"
              "  %h = cast @w {to=f16} : f16[2,8,8]\n"
              "  %y = matmul @x, %h : f16[2,N,8]\n  %z = exp %y : f16[2,N,8]\n  output \"z\" = %z\n}\n",
              true);
    const rt_plan_totals sum = rt_plan_sum(t.plan);
    assert_int_equal(t.plan->n_hoisted, 1);
    expect_cost(&t, IR_OP_cast, 0, 0);
    assert_int_equal(sum.launches, 1);
    assert_int_equal(sum.bytes, 64 + 256 + 64);
    assert_int_equal(sum.flops, 2 * 32 * 8);
    assert_int_equal(sum.copies, 0);
    plan_text_close(&t);
}

/* An output whose storage is overwritten needs a copy of the old value. */
TEST(copies_are_counted_separately)
{
    plan_text t;
    open_plan(
        &t,
        "param @w : f32[4] = zero\nstate @lr : f32[] = 0.5\ngraph @g(@d : f32[4]) {\nforward:\n  output \"old\" = @w\n"
        "update:\n  %w1 = sgd @w, @d, @lr : f32[4]\n  store @w, %w1\n}\n",
        false);
    const rt_plan_totals sum = rt_plan_sum(t.plan);
    assert_int_equal(sum.bytes, 16 + 16 + 4 + 16);
    assert_int_equal(sum.copies, t.plan->n_before + t.plan->n_after);
    assert_int_equal(sum.copies, 1);
    assert_int_equal(sum.copy_bytes, 32);
    plan_text_close(&t);
}

/* ---- stages ------------------------------------------------------------------------------------------ */

/* The table in docs/plan.md has one row per stage, in order. */
TEST(stages_are_documented)
{
    FILE *f = fopen(AMPC_SOURCE_DIR "/docs/plan.md", "r");
    char line[1024], name[64];
    int n = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "| `%63[a-z0-9_]` |", name) != 1) continue;
        const char *stage = rt_stages[n++].name;
        if (!stage || strcmp(stage, name) != 0)
            fail_msg("row %d of docs/plan.md is '%s', the stage '%s'", n, name, stage ? stage : "none");
    }
    fclose(f);
    assert_null(rt_stages[n].name);
}

/* Returns what planning prints after the stages, which the caller frees. */
static char *dump_stages(plan_text *t, bool fuse, const char *stage)
{
    char *text = NULL;
    size_t size = 0;
    const pipeline_options o = {.dump_after = stage, .verify_each = true, .dumps = open_memstream(&text, &size)};
    assert_non_null(o.dumps);
    if (plan_text_run(t, fuse, &o) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    fclose(o.dumps);
    rt_plan_free(t->plan);
    t->plan = NULL;
    return text;
}

/* Compares the stages that have a dump, in order. */
static void expect_stages(const char *dumps, bool fuse)
{
    for (const rt_stage *s = rt_stages; s->name; s++) {
        char title[64];
        if (s->when != RT_ALWAYS && !fuse) continue;
        const int n = snprintf(title, sizeof title, "after %s: plan @g N=2: ", s->name);
        if (strncmp(dumps, title, (size_t)n) != 0) fail_msg("%s is missing: %s", s->name, dumps);
        dumps = strstr(dumps, "\n\n") + 2;
    }
    assert_string_equal(dumps, "");
}

TEST(stages_are_dumped)
{
    const char *text = "graph @g(@x : f32[N,8]) {\nforward:\n  %a = exp @x : f32[N,8]\n  %b = neg %a : f32[N,8]\n"
                       "  output \"b\" = %b\n}\n";
    plan_text t;
    plan_text_open(&t, "cpu", text);
    char *fused = dump_stages(&t, true, "all"), *separate = dump_stages(&t, false, "all"),
         *one = dump_stages(&t, true, "fuse_pointwise");
    expect_stages(fused, true);
    expect_stages(separate, false);
    /* No offsets or bytes before buffers are assigned. */
    assert_string_equal(one, "after fuse_pointwise: plan @g N=2: 1 steps\n"
                             "   0  program              @x\n        .0 = exp @x : f32\n"
                             "        .1 = neg .0 : f32\n        %b of .1 : f32[2,8]\n\n");
    free(fused);
    free(separate);
    free(one);
    plan_text_close(&t);
}

/* A stage whose dump cannot be written ends planning. */
TEST(a_failed_dump_is_an_error)
{
    const pipeline_options o = {.dump_after = "make_steps", .dump_dir = "/nonexistent", .save = rt_atomic_save};
    plan_text t;
    plan_text_open(&t, "cpu", "graph @g(@x : f32[N]) {\nforward:\n  output \"x\" = @x\n}\n");
    assert_int_equal(plan_text_run(&t, true, &o), AMPC_IO);
    assert_null(t.plan);
    assert_non_null(
        strstr(diag_first_error(t.d), "/nonexistent/01-make_steps.plan: error: cannot create a temporary file"));
    plan_text_close(&t);
}

/* ---- sessions that only plan ------------------------------------------------------------------------- */

static const char huge[] = "ampc-ir 3\nparam @w : f32[65536,1048576] = file(\"absent.bin\", 0, 274877906944)\n"
                           "graph @g(@x : f32[N,65536]) {\nforward:\n"
                           "  %y = matmul @x, @w : f32[N,1048576]\n  output \"y\" = %y\n}\n";

/* 256 GiB of weights in a file that does not exist, 4 TiB of results. */
TEST(a_plan_needs_no_memory_and_no_weights)
{
    diag *d = diag_new(NULL, NULL);
    ir_module *m = NULL;
    rt_session *s = NULL;
    const rt_plan *p = NULL;
    rt_memory memory;
    rt_tensor out;
    if (ir_parse(huge, strlen(huge), "huge.ir", d, &m) != AMPC_OK) fail_msg("%s", diag_first_error(d));
    const rt_session_options o = {.plan_only = true, .symbol_sizes = (int64_t[]){1 << 20}};
    if (rt_session_open(m, &o, d, &s) != AMPC_OK) fail_msg("%s", diag_first_error(d));
    if (rt_session_plan(s, "g", NULL, 0, NULL, d, &p) != AMPC_OK) fail_msg("%s", diag_first_error(d));
    assert_true(p->arena_bytes >= (int64_t)4 << 40);
    assert_int_equal(rt_plan_sum(p).flops, (int64_t)2 << (20 + 16 + 20));
    assert_int_equal(rt_session_memory(s, "g", NULL, 0, d, &memory), AMPC_OK);
    assert_int_equal(memory.storage, p->n_packs ? 0 : (int64_t)1 << 38); /* runs only read the pack */
    assert_true(memory.storage + rt_plan_pack_bytes(&p, 0) >= (int64_t)1 << 38);
    assert_int_equal(rt_session_run(s, "g", NULL, 0, d), AMPC_USAGE);
    assert_int_equal(rt_session_read(s, 0, d, &out), AMPC_USAGE);
    assert_int_equal(rt_session_write(s, 0, "", d), AMPC_USAGE);
    assert_non_null(strstr(diag_first_error(d), "opened only for planning"));
    rt_session_close(s);
    ir_module_free(m);
    diag_free(d);
}
