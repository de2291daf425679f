/* test_plan_stages.c - the plan stages before buffer assignment: layouts, hoisting, fused kernels, updates,
 * epilogues. Text in, text out. */
#include "tests/unit/plan_text.h"

static void expect(const char *text, const char *expected) { plan_text_expect("cpu", text, expected); }

/* ---- fused kernels ----------------------------------------------------------------------------------- */

/* Fused kernels consist of ops with a formula and some that are separate instructions. */
TEST(ops_of_fused_kernels_are_elementwise)
{
    static const bool expected[IR_OP_COUNT] = {
#define FORMULA_OP(op) [IR_OP_##op] = true,
#include "ir/ops/formulas.def"
        [IR_OP_cast] = true,
        [IR_OP_where] = true,
        [IR_OP_select] = true,
        [IR_OP_dropout_grad] = true,
    };
    for (int op = 0; op < IR_OP_COUNT; op++)
        if (ir_op_has((ir_op)op, IR_ELEMENTWISE) != expected[op]) fail_msg("%s", ir_op_get((ir_op)op)->name);
}

TEST(broadcasts_and_views_are_fused)
{
    expect("graph @g(@x : f32[N,4,5], @b : f32[4,1], @s : f32[]) {\nforward:\n"
           "  %a = add @x, @b : f32[N,4,5]\n  %f = reshape %a {shape=[N,20]} : f32[N,20]\n"
           "  %e = expand @s {shape=[N,20]} : f32[N,20]\n  %y = mul %f, %e : f32[N,20]\n"
           "  output \"y\" = %y\n}\n",
           "plan @g N=2: 1 steps\n"
           "   0  program              @x, @b, @s\n"
           "        .0 = add @x, @b : f32\n"
           "        .1 = cast @s : f32\n"
           "        .2 = mul .0, .1 : f32\n"
           "        %y of .2 : f32[2,20]\n"
           "output \"y\"\n");
}

/* ---- order of reductions between ranks ------------------------------------------------------------------ */

static void print_reductions(const rt_plan *p, char *to)
{
    for (int i = 0; i < p->n_steps; i++)
        if (ir_op_has(p->steps[i]->op, IR_COLLECTIVE)) strcat(strcat(to, p->steps[i]->node->out[0]->name), " ");
}

/* Ranks whose shares of a batch differ run their reductions in the order of the graph: what depends on parameters
 * alone is not hoisted if it waits for the others, and nothing moves it past another such step. */
TEST(reductions_keep_their_order_for_all_sizes)
{
    static const int64_t sizes[][2] = {{1, 1}, {2, 1}, {1, 300}, {64, 3}};
    plan_text t;
    plan_text_open(&t, "cpu",
                   "param @a : f32[4,4] = zero\nparam @b : f32[4,4] = zero\nparam @c : f32[4,4] = zero\n"
                   "state @lr : f32[] = 0.5 as lr\ngraph @g(@x : f32[N,4], @y : f32[M,4]) {\nforward:\n"
                   "  %m = reduce_mean @x {axes=[0,1], keepdims=false} : f32[]\n  %rm = all_reduce %m : f32[]\n"
                   "  %p = all_reduce @c {by=\"max\"} : f32[4,4]\n"
                   "backward:\n"
                   "  %da = matmul @x, @x {trans_a=true} : f32[4,4]\n  %ra = all_reduce %da {wire=f16} : f32[4,4]\n"
                   "  %db = matmul @y, @y {trans_a=true} : f32[4,4]\n  %rb = all_reduce %db : f32[4,4]\n"
                   "update:\n"
                   "  %a1 = sgd @a, %ra, @lr : f32[4,4]\n  %rc = all_reduce %p : f32[4,4]\n"
                   "  %b1 = sgd @b, %rb, @lr : f32[4,4]\n"
                   "  output \"m\" = %rm\n  output \"c\" = %rc\n  store @a, %a1\n  store @b, %b1\n}\n");
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        char order[200] = "";
        const pipeline_options o = {.verify_each = true};
        const rt_plan_request request = {.graph = t.module->graphs.items[0],
                                         .sizes = sizes[i / 2],
                                         .backend = t.backend,
                                         .ctx = &t.ctx,
                                         .fuse = i % 2,
                                         .pipeline = &o};
        if (rt_plan_make(&request, t.d, &t.plan) != AMPC_OK) fail_msg("%s", diag_first_error(t.d));
        print_reductions(t.plan, order);
        assert_string_equal(order, "rm p ra rb rc ");
        rt_plan_free(t.plan);
        t.plan = NULL;
    }
    plan_text_close(&t);
}

/* ---- layouts ------------------------------------------------------------------------------------------ */

TEST(convolution_chains_are_nhwc)
{
    expect("param @w : f32[4,3,3,3] = zero\nparam @b : f32[4,1,1] = zero\n"
           "graph @g(@x : f32[N,3,8,8]) {\nforward:\n"
           "  %c = conv @x, @w, _ {strides=[1,1], pads=[1,1,1,1], dilations=[1,1]} : f32[N,4,8,8]\n"
           "  %a = add %c, @b : f32[N,4,8,8]\n"
           "  %r = relu %a : f32[N,4,8,8]\n"
           "  %p = avg_pool %r {kernel=[2,2], strides=[2,2], pads=[0,0,0,0], dilations=[1,1]} : f32[N,4,4,4]\n"
           "  %m = reduce_mean %p {axes=[2,3]} : f32[N,4,1,1]\n"
           "  %f = reshape %m {shape=[N,4]} : f32[N,4]\n"
           "  output \"f\" = %f\n  output \"r\" = %r\n}\n",
           "plan @g N=2: 5 steps\n"
           "   0  transpose            @x\n"
           "        %x' : f32[2,8,8,3]\n"
           "   1  conv                 %x', @w, @b\n"
           "        .0 = relu conv : f32\n"
           "        %r of .0 : f32[2,4,8,8]\n"
           "   2  transpose            %r\n"
           "        %r' : f32[2,4,8,8]\n"
           "   3  avg_pool             %r\n"
           "        %p : f32[2,4,4,4]\n"
           "   4  reduce_mean          %p\n"
           "        %m : f32[2,1,1,4]\n"
           "output \"f\"\n"
           "output \"r\"\n");
}

/* ---- batch normalization ---- */

TEST(running_statistics_are_hoisted)
{
    expect("param @s : f32[4] = zero\nparam @b : f32[4] = zero\nparam @m : f32[4] = zero\nparam @v : f32[4] = zero\n"
           "graph @g(@x : f16[N,4,8]) {\nforward:\n"
           "  %y, %m1, %v1, %sm, %sr = batch_norm @x, @s, @b, @m, @v :"
           " f16[N,4,8], f32[4], f32[4], f32[4], f32[4]\n"
           "  %r = relu %y : f16[N,4,8]\n  output \"r\" = %r\n}\n",
           "plan @g N=2: 3 steps\n"
           "   0* batch_norm           @s, @s, @b, @m, @v\n"
           "        %m1 : f32[4]\n"
           "        %v1 : f32[4]\n"
           "        %sm : f32[4]\n"
           "        %sr : f32[4]\n"
           "   1* program              %sr, @s, %sm, @b\n"
           "        .0 = mul %sr, @s : f32\n"
           "        .1 = mul %sm, .0 : f32\n"
           "        .2 = sub @b, .1 : f32\n"
           "        %y' of .0 : f32[4]\n"
           "        %y' of .2 : f32[4]\n"
           "   2  program              @x, %y', %y'\n"
           "        .0 = mul @x, %y' : f32\n"
           "        .1 = add .0, %y' : f16\n"
           "        .2 = relu .1 : f16\n"
           "        %r of .2 : f16[2,4,8]\n"
           "output \"r\"\n");
}

/* An op in a fused kernel has both operands in one type. */
TEST(a_norm_with_two_types_is_not_split)
{
    expect("graph @g(@x : f64[N,3,2,2], @s : f32[3]) {\nforward:\n"
           "  %n, %a, %b, %c, %d = batch_norm @x, @s, @s, @s, @s : f64[N,3,2,2], f32[3], f32[3], f64[3], f64[3]\n"
           "  %y = relu %n : f64[N,3,2,2]\n  output \"y\" = %y\n}\n",
           "plan @g N=2: 2 steps\n"
           "   0  batch_norm           @x, @s, @s, @s, @s\n"
           "        %n : f64[2,3,2,2]\n"
           "        %a : f32[3]\n"
           "        %b : f32[3]\n"
           "        %c : f64[3]\n"
           "        %d : f64[3]\n"
           "   1  relu                 %n\n"
           "        %y : f64[2,3,2,2]\n"
           "output \"y\"\n");
}

/* ---- updates --------------------------------------------------------------------------------------------- */

#define UPDATED \
    "param @w : f32[8,8] = zero\nparam @b : f32[8] = zero\nstate @lr : f32[] = 0.5\nstate @scale : f32[] = 4\n"

/* Each check adds its sums of squares to those of the previous one; a norm of other operands reads the gradients
 * directly. */
TEST(checks_accumulate_squares)
{
    expect(UPDATED "graph @g(@dw : f16[8,8], @db : f32[8]) {\n"
                   "update:\n  %cw = cast @dw {to=f32} : f32[8,8]\n"
                   "  %uw, %ub, %inf = check_finite_and_unscale %cw, @db, @scale : f32[8,8], f32[8], bool[]\n"
                   "  %n = global_norm %uw, %ub : f32[]\n  output \"norm\" = %n\n"
                   "  %m = global_norm %ub, %uw : f32[]\n  output \"other\" = %m\n"
                   "  %w1 = sgd @w, %uw, @lr, %inf : f32[8,8]\n  store @w, %w1\n"
                   "  %b1 = sgd @b, %ub, @lr, %inf : f32[8]\n  store @b, %b1\n}\n",
           "plan @g: 6 steps\n"
           "   0  check_finite_and_unscale @dw, @scale\n"
           "        %inf' : bool[]\n"
           "        %n' : f64[1]\n"
           "   1  check_finite_and_unscale @db, @scale, %inf', %n'\n"
           "        %inf : bool[]\n"
           "        %n' : f64[1]\n"
           "   2  global_norm          _, %n'\n"
           "        %n : f32[]\n"
           "   3  global_norm          @db, @dw, @scale\n"
           "        %m : f32[]\n"
           "   4  sgd                  @w, @dw, @lr, %inf, @scale\n"
           "        %w1 : f32[8,8]\n"
           "   5  sgd                  @b, @db, @lr, %inf, @scale\n"
           "        %b1 : f32[8]\n"
           "output \"norm\"\n"
           "output \"other\"\n");
}

/* One check per gradient type. A cast with another use remains, and its result is checked. */
TEST(casts_of_gradients_are_removed)
{
    expect(UPDATED "param @v : f32[8,8] = zero\ngraph @g(@x : f16[N,8], @dy : f16[N,8]) {\n"
                   "backward:\n  %hw = matmul @x, @dy {trans_a=true} : f16[8,8]\n  %dw = cast %hw {to=f32} : f32[8,8]\n"
                   "  %hv = matmul @dy, @x {trans_a=true} : f16[8,8]\n  %dv = cast %hv {to=f32} : f32[8,8]\n"
                   "  %db = reduce_sum @dy {axes=[0], keepdims=false, out=f32} : f32[8]\n  output \"dv\" = %dv\n"
                   "update:\n  %uw, %ub, %uv, %inf = check_finite_and_unscale %dw, %db, %dv, @scale :"
                   " f32[8,8], f32[8], f32[8,8], bool[]\n"
                   "  %w1 = sgd @w, %uw, @lr, %inf : f32[8,8]\n  store @w, %w1\n"
                   "  %v1 = sgd @v, %uv, @lr, %inf : f32[8,8]\n  store @v, %v1\n"
                   "  %b1 = sgd @b, %ub, @lr, %inf : f32[8]\n  store @b, %b1\n}\n",
           "plan @g N=2: 9 steps\n"
           "   0  matmul               @x, @dy, _\n"
           "        %hw : f16[8,8]\n"
           "   1  matmul               @dy, @x, _\n"
           "        %hv : f16[8,8]\n"
           "   2  cast                 %hv\n"
           "        %dv : f32[8,8]\n"
           "   3  reduce_sum           @dy\n"
           "        %db : f32[8]\n"
           "   4  check_finite_and_unscale %hw, @scale\n"
           "        %inf' : bool[]\n"
           "   5  check_finite_and_unscale %db, %dv, @scale, %inf'\n"
           "        %inf : bool[]\n"
           "   6  sgd                  @w, %hw, @lr, %inf, @scale\n"
           "        %w1 : f32[8,8]\n"
           "   7  sgd                  @v, %dv, @lr, %inf, @scale\n"
           "        %v1 : f32[8,8]\n"
           "   8  sgd                  @b, %db, @lr, %inf, @scale\n"
           "        %b1 : f32[8]\n"
           "output \"dv\"\n");
}

/* `use`: a use of an unscaled gradient other than the optimizer. */
static void expect_unscaled(const char *use, const char *printed, const char *at_the_end)
{
    char text[1024], expected[1024];
    snprintf(text, sizeof text,
             UPDATED "graph @g(@dw : f32[8,8], @db : f32[8]) {\nupdate:\n"
                     "  %%uw, %%ub, %%inf = check_finite_and_unscale @dw, @db, @scale : f32[8,8], f32[8], bool[]\n%s"
                     "  %%w1 = sgd @w, %%uw, @lr, %%inf : f32[8,8]\n  store @w, %%w1\n}\n",
             use);
    snprintf(expected, sizeof expected,
             "plan @g: %d steps\n"
             "   0  check_finite_and_unscale @dw, @db, @scale\n"
             "        %%uw : f32[8,8]\n        %%ub : f32[8]\n        %%inf : bool[]\n%s"
             "   %d  sgd                  @w, %%uw, @lr, %%inf\n"
             "        %%w1 : f32[8,8]\n%s",
             *printed ? 3 : 2, printed, *printed ? 2 : 1, at_the_end);
    expect(text, expected);
}

TEST(gradients_with_other_readers_are_unscaled)
{
    expect_unscaled("  output \"u\" = %ub\n", "", "output \"u\"\n");
    expect_unscaled("  %f = reshape %ub {shape=[2,4]} : f32[2,4]\n  output \"u\" = %f\n", "", "output \"u\"\n");
    expect_unscaled("  store @b, %ub\n", "", "");
    expect_unscaled("  %c = neg %ub : f32[8]\n  output \"c\" = %c\n",
                    "   1  neg                  %ub\n        %c : f32[8]\n", "output \"c\"\n");
    expect_unscaled("  %n = global_norm %ub, @b : f32[]\n  output \"n\" = %n\n",
                    "   1  global_norm          %ub, @b\n        %n : f32[]\n", "output \"n\"\n");
    expect_unscaled("  %b1 = sgd %ub, %ub, @lr : f32[8]\n  output \"n\" = %b1\n",
                    "   1  sgd                  %ub, %ub, @lr, _\n        %b1 : f32[8]\n", "output \"n\"\n");
}

/* ---- epilogues ------------------------------------------------------------------------------------------- */

#define LAYER "param @w : f32[8,4] = zero\nparam @b : f32[4] = zero\ngraph @g(@x : f32[N,8]) {\nforward:\n"

TEST(gelu_is_fused_into_a_matmul)
{
    expect(LAYER "  %h = matmul @x, @w, @b : f32[N,4]\n  %s = reshape %h {shape=[N,2,2]} : f32[N,2,2]\n"
                 "  %g = gelu %s : f32[N,2,2]\n  %y = tanh %g : f32[N,2,2]\n  output \"y\" = %y\n}\n",
           "plan @g N=2: 2 steps\n"
           "   0  matmul               @x, @w, @b\n"
           "        .0 = gelu matmul : f32\n"
           "        %g of .0 : f32[2,4]\n"
           "   1  tanh                 %g\n"
           "        %y : f32[2,2,2]\n"
           "output \"y\"\n");
}

/* A matmul absorbs an added row as its bias, but not a second one, nor a column, nor a value that is computed after it.
 * Its result before the addition must have no other use. */
TEST(bias_is_fused_into_a_matmul)
{
    expect(LAYER "  %m = matmul @x, @w : f32[N,4]\n  %h = add @b, %m : f32[N,4]\n  %g = gelu %h : f32[N,4]\n"
                 "  %r = reshape @b {shape=[1,4]} : f32[1,4]\n  %k = matmul @x, @w : f32[N,4]\n"
                 "  %c = add %k, %r : f32[N,4]\n  %d = add %c, @b : f32[N,4]\n"
                 "  output \"g\" = %g\n  output \"d\" = %d\n}\n",
           "plan @g N=2: 2 steps\n"
           "   0  matmul               @x, @w, @b\n        .0 = gelu matmul : f32\n        %g of .0 : f32[2,4]\n"
           "   1  matmul               @x, @w, %r, @b\n        .0 = add matmul, @b : f32\n"
           "        %d of .0 : f32[2,4]\n"
           "output \"g\"\noutput \"d\"\n");
    expect("param @w : f32[4,4] = zero\nparam @b : f32[4,1] = zero\ngraph @g(@x : f32[4,4], @c : f32[4]) {\nforward:\n"
           "  %m = matmul @x, @w : f32[4,4]\n  %y = add %m, @b : f32[4,4]\n"
           "  %k = matmul @x, @x : f32[4,4]\n  %z = add %k, @c : f32[4,4]\n"
           "  %l = matmul @w, @x : f32[4,4]\n  %s = softmax @c : f32[4]\n  %t = add %l, %s : f32[4,4]\n"
           "  output \"y\" = %y\n  output \"z\" = %z\n  output \"k\" = %k\n  output \"t\" = %t\n}\n",
           "plan @g: 5 steps\n"
           "   0  matmul               @x, @w, _, @b\n        .0 = add matmul, @b : f32\n        %y of .0 : f32[4,4]\n"
           "   1  matmul               @x, @x, _\n        %k : f32[4,4]\n"
           "   2  add                  %k, @c\n        %z : f32[4,4]\n"
           "   3  softmax              @c\n        %s : f32[4]\n"
           "   4  matmul               @w, @x, _, %s\n        .0 = add matmul, %s : f32\n"
           "        %t of .0 : f32[4,4]\n"
           "output \"y\"\noutput \"z\"\noutput \"k\"\noutput \"t\"\n");
}

/* Programs run what the library cannot, or computes differently. */
TEST(unsupported_activations_are_programs)
{
    expect(LAYER "  %h = matmul @x, @w, @b : f32[N,4]\n  %c = cast %h {to=f16} : f16[N,4]\n"
                 "  %g = gelu %c : f16[N,4]\n  output \"g\" = %g\n}\n",
           "plan @g N=2: 1 steps\n"
           "   0  matmul               @x, @w, @b\n        .0 = cast matmul : f16\n        .1 = gelu .0 : f16\n"
           "        %g of .1 : f16[2,4]\n"
           "output \"g\"\n");
    expect(LAYER "  %h = matmul @x, @w, @b : f32[N,4]\n  %g = relu %h : f32[N,4]\n  output \"g\" = %g\n}\n",
           "plan @g N=2: 1 steps\n"
           "   0  matmul               @x, @w, @b\n        .0 = relu matmul : f32\n        %g of .0 : f32[2,4]\n"
           "output \"g\"\n");
}

/* A second gelu is not fused, and hoisted steps are not fused with others. */
TEST(a_matmul_has_one_activation)
{
    expect(LAYER "  %h = matmul @x, @w, @b : f32[N,4]\n  %g = gelu %h {tanh=true} : f32[N,4]\n"
                 "  %y = gelu %g : f32[N,4]\n  output \"y\" = %y\n}\n",
           "plan @g N=2: 2 steps\n"
           "   0  matmul               @x, @w, @b\n        .0 = gelu matmul : f32\n        %g of .0 : f32[2,4]\n"
           "   1  gelu                 %g\n        %y : f32[2,4]\n"
           "output \"y\"\n");
    expect("param @w : f32[8,4] = zero\ngraph @g(@x : f32[8,N]) {\nforward:\n"
           "  %h = matmul @w, @w {trans_b=true} : f32[8,8]\n  %g = gelu %h : f32[8,8]\n"
           "  %y = matmul %g, @x : f32[8,N]\n  output \"y\" = %y\n}\n",
           "plan @g N=2: 2 steps\n"
           "   0* matmul               @w, @w, _\n        .0 = gelu matmul : f32\n        %g of .0 : f32[8,8]\n"
           "   1  matmul               %g, @x, _\n        %y : f32[8,2]\n"
           "output \"y\"\n");
}
